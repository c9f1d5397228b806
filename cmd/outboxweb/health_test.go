package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// wantHealth runs health with an environment, and compares its exit code and its one sentence.
func wantHealth(t *testing.T, code int, sentence string, env []string, args ...string) {
	t.Helper()
	out, errs, got := runWith(t, t.TempDir(), env, append([]string{"health"}, args...)...)
	if text := out + errs; got != code || !strings.Contains(text, sentence) || strings.Count(text, "\n") != 1 {
		t.Errorf("health %v with %v: exit %d, %q; want %d, one line with %q", args, env, got, text, code, sentence)
	}
}

// A probe beside the server needs only the server's own environment or configuration file.
func TestHealth_findsTheServerWhereItListens(t *testing.T) {
	t.Parallel()
	s := serve(t, "--base-path", "/ops/outbox")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "outboxweb.yaml")
	must.OK(t, os.WriteFile(config, []byte("listen: 0.0.0.0:"+port+"\n"), 0o600))
	ready := "ready: http://127.0.0.1:" + port + "/readyz answered 200"
	wantHealth(t, 0, ready, nil, "--listen", ":"+port)
	wantHealth(t, 0, ready, []string{"OUTBOXWEB_LISTEN=0.0.0.0:" + port})
	wantHealth(t, 0, ready, nil, "--config", config)
	wantHealth(t, 0, ready, []string{"OUTBOXWEB_CONFIG=" + config, "OUTBOXWEB_BASE_PATH=/ops/outbox"})
	wantHealth(t, 0, "ready: "+s.url+"/ops/outbox/readyz answered 200", nil, "--url", s.url+"/ops/outbox/")
	wantHealth(t, 0, "alive: "+s.url+"/healthz answered 200", nil, "--url", s.url, "--live")
}

func TestHealth_asksThroughASocketAndTLS(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "http.sock")
	serve(t, "--auth", "none", "--listen", "unix:"+socket)
	wantHealth(t, 0, "ready: http://localhost/readyz answered 200", []string{"OUTBOXWEB_LISTEN=unix:" + socket})

	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	wantHealth(t, 0, "ready: https://", []string{"OUTBOXWEB_TLS_CERT=cert.pem", "OUTBOXWEB_LISTEN=" + secure.Listener.Addr().String()})
	wantHealth(t, 1, "certificate", nil, "--url", secure.URL)
}

func TestHealth_saysWhatIsWrong(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	wantHealth(t, 1, "/readyz: the disk is full; the worker is stalled", nil, "--url", answer(503, `{"ready":false,"reasons":["the disk is full","the worker is stalled"]}`))
	wantHealth(t, 1, "not alive: ", nil, "--live", "--url", answer(502, "no"))
	wantHealth(t, 1, "the answer is 307 Temporary Redirect", nil, "--url", answer(307, ""))
	wantHealth(t, 1, "connection refused", nil, "--listen", "127.0.0.1:1")
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer silent.Close()
	wantHealth(t, 1, "no answer within 50ms", nil, "--timeout", "50ms", "--url", "http://"+silent.Addr().String())
	switching := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"))
		}
	}))
	t.Cleanup(switching.Close)
	wantHealth(t, 1, "the answer is 101 Switching Protocols", nil, "--url", switching.URL)
	for _, args := range [][]string{{"--listen", "systemd"}, {"--listen", "127.0.0.1:0"}, {"--listen", "nowhere"}, {"--url", "ops.example"}, {"--timeout", "0s"}} {
		wantHealth(t, 2, args[0], nil, args...)
	}
}
