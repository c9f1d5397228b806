package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// pairFiles are a certificate and its key in a directory.
type pairFiles struct {
	t         *testing.T
	cert, key string
}

func newPairFiles(t *testing.T) pairFiles {
	dir := t.TempDir()
	return pairFiles{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// put replaces a file by rename, as certificate renewal tools do.
func (p pairFiles) put(name string, text []byte) {
	p.t.Helper()
	must.OK(p.t, os.WriteFile(name+".new", text, 0o600))
	must.OK(p.t, os.Rename(name+".new", name))
}

// write makes a pair for 127.0.0.1 with this serial number.
func (p pairFiles) write(serial int64) {
	cert, key := newPair(p.t, serial)
	p.put(p.cert, cert)
	p.put(p.key, key)
}

func newPair(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "outboxweb test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)).Or(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(private)).Or(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// trusting is a client that trusts the certificate in the file, and opens a connection for each
// request.
func (p pairFiles) trusting() *http.Client {
	p.t.Helper()
	text := must.Get(os.ReadFile(p.cert)).Or(p.t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
}

func TestTLS_speaksHTTP2AndAsksForIt(t *testing.T) {
	t.Parallel()
	pair := newPairFiles(t)
	pair.write(1)
	s := serve(t, "--tls-cert", pair.cert, "--tls-key", pair.key)
	if !strings.HasPrefix(s.url, "https://127.0.0.1:") {
		t.Fatalf("it prints %q", s.url)
	}
	response := wantAnswer(t, pair.trusting(), s.url+"/")
	if response.ProtoMajor != 2 {
		t.Errorf("it speaks %s", response.Proto)
	}
	if got := response.Header.Get("Strict-Transport-Security"); got != "max-age=31536000" {
		t.Errorf("Strict-Transport-Security: %q", got)
	}
	old := pair.trusting()
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	if _, err := old.Get(s.url + "/"); err == nil {
		t.Error("it speaks TLS 1.1")
	}
	plain := serve(t)
	if got := wantAnswer(t, http.DefaultClient, plain.url+"/").Header.Values("Strict-Transport-Security"); got != nil {
		t.Errorf("without TLS, Strict-Transport-Security: %q", got)
	}
}

func TestTLS_serverTakesAnotherCertificateWithoutRestart(t *testing.T) {
	t.Parallel()
	pair := newPairFiles(t)
	pair.write(1)
	s := serve(t, "--tls-cert", pair.cert, "--tls-key", pair.key)
	wantAnswer(t, pair.trusting(), s.url+"/healthz")
	pair.write(2)
	client := pair.trusting()
	eventually(t, "the new certificate is in use", func() bool {
		response, err := client.Get(s.url + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
}

// logged is what a logger has written, for a test to read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func TestCertificate_thatIsNotSoundLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	pair := newPairFiles(t)
	pair.write(1)
	var log logged
	c := must.Get(readCertificate(pair.cert, pair.key, slog.New(slog.NewTextHandler(&log, nil)))).Or(t)
	clock := time.Now()
	c.now = func() time.Time { return clock }
	serial := func() int64 { return c.current().Leaf.SerialNumber.Int64() }
	look := func() int64 {
		clock = clock.Add(certificateLook)
		return serial()
	}
	if got := look(); got != 1 {
		t.Fatalf("serial %d", got)
	}
	cert, key := newPair(t, 2)
	pair.put(pair.cert, cert) // the key has yet to come
	for range 3 {
		if got := look(); got != 1 {
			t.Fatalf("serial %d while key and certificate do not fit", got)
		}
	}
	if n := log.count("the previous one stays in use"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	pair.put(pair.key, key)
	if got := serial(); got != 1 {
		t.Errorf("the files were looked at again at once")
	}
	if got := look(); got != 2 {
		t.Errorf("serial %d once key and certificate fit", got)
	}
	must.OK(t, os.Remove(pair.key))
	for range 3 {
		if got := look(); got != 2 {
			t.Errorf("serial %d without a key", got)
		}
	}
	if n := log.count("the previous one stays in use"); n != 2 || log.count(pair.key) != 2 {
		t.Errorf("logged %d times in all: %s", n, &log.text)
	}
}

// What serve refuses, it refuses in one sentence, and makes nothing.
func TestServe_refusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	pair, other, unused := newPairFiles(t), newPairFiles(t), shortDir(t)
	pair.write(1)
	other.write(2)
	taken := tcpSocket(t, "127.0.0.1").Addr().String()
	precious := filepath.Join(unused, "precious")
	must.OK(t, os.WriteFile(precious, []byte("text"), 0o600))
	missing, long := filepath.Join(unused, "missing.pem"), filepath.Join(unused, strings.Repeat("x", 120))
	for _, c := range []struct {
		want  string
		code  int
		flags []string
	}{
		{"--tls-cert and --tls-key go together", exitUsage, []string{"--tls-cert", pair.cert}},
		{"--tls-cert and --tls-key go together", exitUsage, []string{"--tls-key", pair.key}},
		{"--tls-cert: cannot read " + missing + ": no such file or directory", exitUsage, []string{"--tls-cert", missing, "--tls-key", pair.key}},
		{"--tls-key: cannot read " + missing + ": no such file or directory", exitUsage, []string{"--tls-cert", pair.cert, "--tls-key", missing}},
		{"--tls-cert " + pair.cert + " and --tls-key " + other.key + " are not a certificate and its key", exitUsage, []string{"--tls-cert", pair.cert, "--tls-key", other.key}},
		{"--tls-cert: a Unix socket does not use TLS", exitUsage, []string{"--tls-cert", pair.cert, "--tls-key", pair.key, "--listen", "unix:" + filepath.Join(unused, "s")}},
		{`--redact-value: "(" is not a regular expression`, exitUsage, []string{"--redact-value=("}},
		{`--redact-value: "a*" matches the empty string`, exitUsage, []string{"--redact-value=a*"}},
		{`--redact-key: "--" is not a key name`, exitUsage, []string{"--redact-key=--"}},
		{"--listen: cannot listen on " + taken + ": address already in use", exitFailed, []string{"--listen", taken}},
		{"a file that is not a socket", exitFailed, []string{"--auth", "none", "--listen", "unix:" + precious}},
		{"no such file or directory", exitFailed, []string{"--auth", "none", "--listen", "unix:" + filepath.Join(unused, "no", "http.sock")}},
		{"bytes long, and the system's limit is 107", exitFailed, []string{"--auth", "none", "--listen", "unix:" + long}},
	} {
		dir := t.TempDir()
		out, errs, code := runIn(t, dir, append([]string{"serve", "--listen", "127.0.0.1:0"}, c.flags...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", c.flags, code, out, errs)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); left != nil {
			t.Errorf("left behind: %v", left)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "text" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}
