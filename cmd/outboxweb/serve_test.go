package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// patience is how long a test waits for a condition before it fails.
const patience = time.Minute

// served is a server in its own process.
type served struct {
	t      testing.TB
	cmd    *exec.Cmd
	url    string
	dir    string
	stderr bytes.Buffer
	ended  chan error
}

// serve starts the program on databases in a fresh directory and waits until it prints its address.
func serve(t testing.TB, flags ...string) *served {
	t.Helper()
	s := &served{t: t, dir: t.TempDir(), ended: make(chan error, 1)}
	s.cmd = exec.Command("outboxweb", append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	s.cmd.Dir = s.dir
	s.cmd.Stderr = &s.stderr
	first := s.start()
	url, found := strings.CutPrefix(first, "listening on ")
	if !found {
		s.cmd.Process.Kill()
		s.wait()
		t.Fatalf("stdout %q; stderr: %s", first, s.stderr.String())
	}
	s.url = url
	return s
}

// start starts the process and returns its first line, empty when there is
// none.
func (s *served) start() string {
	s.t.Helper()
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	must.OK(s.t, s.cmd.Start())
	s.t.Cleanup(func() { s.cmd.Process.Kill() })
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	if err != nil && err != io.EOF {
		s.t.Fatal(err)
	}
	go func() {
		io.Copy(io.Discard, lines)
		s.ended <- s.cmd.Wait()
	}()
	return strings.TrimSpace(first)
}

// wait waits for the process to end.
func (s *served) wait() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		s.t.Fatalf("the server did not end; stderr: %s", s.stderr.String())
		return nil
	}
}

func (s *served) signal(sig syscall.Signal) {
	s.t.Helper()
	must.OK(s.t, s.cmd.Process.Signal(sig))
}

func (s *served) get(path string) (int, []byte) {
	s.t.Helper()
	response := must.Get(http.Get(s.url + path)).Or(s.t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body)).Or(s.t)
	return response.StatusCode, body
}

func (s *served) summary() outbox.Summary {
	s.t.Helper()
	code, body := s.get("/api/v1/summary")
	var summary outbox.Summary
	if err := json.Unmarshal(body, &summary); err != nil || code != http.StatusOK {
		s.t.Fatalf("GET /api/v1/summary: %d %v\n%s", code, err, body)
	}
	return summary
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		<-look.C
	}
}

// runIn runs the program to its end in a directory.
func runIn(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runWith(t, dir, nil, args...)
}

// runWith is runIn with variables added to the environment.
func runWith(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	cmd := exec.CommandContext(ctx, "outboxweb", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	return out.String(), errs.String(), code
}

func TestServe_sampleShowsItsDeadHeadsAndStopsCleanly(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sample", "--max-attempts", "2", "--retry-base", "1ms", "--poll-interval", "20ms")
	if code, body := s.get("/readyz"); code != http.StatusOK {
		t.Errorf("GET /readyz: %d %s", code, body)
	}
	eventually(t, "three dead heads and everything else applied", func() bool {
		now := s.summary()
		return now.Counts.Dead == 3 && now.Campaigns.Lagging == 3 && now.Campaigns.Total == 40
	})
	if code, body := s.get("/"); code != http.StatusOK || !bytes.Contains(body, []byte("<html")) {
		t.Errorf("GET /: %d", code)
	}
	s.signal(syscall.SIGTERM)
	if err := s.wait(); err != nil {
		t.Errorf("after SIGTERM: %v; stderr: %s", err, s.stderr.String())
	}
	if out, errs, code := runIn(t, s.dir, "check"); code != 0 {
		t.Errorf("check: %d\n%s%s", code, out, errs)
	}
}

func TestServe_sampleLeavesAJournalThatHasEventsAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sample", "--worker=false")
	first := s.summary()
	if first.Counts.Pending != 4000 || first.Worker.Running {
		t.Errorf("with --worker=false: %+v", first)
	}
	s.signal(syscall.SIGINT)
	if err := s.wait(); err != nil {
		t.Fatalf("after SIGINT: %v", err)
	}
	again := serve(t, "--sample", "--worker=false",
		"--journal-db", "sqlite:"+filepath.Join(s.dir, "data/journal.db"), "--projections-db", "sqlite:"+filepath.Join(s.dir, "data/projections.db"))
	if second := again.summary(); second.Counts.Pending != 4000 {
		t.Errorf("a second start changed the journal: %+v", second.Counts)
	}
}

// The server waits only briefly for requests. If the machine is too slow to send the second signal
// in that time, the test retries.
func TestServe_secondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	var ended error
	for range 10 {
		ended = signalledTwice(t)
		if exit, ok := errors.AsType[*exec.ExitError](ended); ok && exit.Sys().(syscall.WaitStatus).Signaled() {
			return
		}
	}
	t.Errorf("ended with %v, want the signal", ended)
}

func signalledTwice(t *testing.T) error {
	t.Helper()
	s := serve(t)
	address := strings.TrimPrefix(s.url, "http://")
	// A request that never ends its header keeps the server from finishing.
	slow := must.Get(net.Dial("tcp", address)).Or(t)
	defer slow.Close()
	must.Get(io.WriteString(slow, "GET / HTTP/1.1\r\nHost: "+address+"\r\n")).Or(t)
	s.get("/healthz") // by now the server has accepted the slow one too
	s.signal(syscall.SIGTERM)
	eventually(t, "the server accepts no more", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	return s.wait()
}

// Log collectors parse each line as one JSON document, of either stream and from any library.
func TestServe_logsInOneFormat(t *testing.T) {
	t.Parallel()
	s := &served{t: t, dir: t.TempDir(), ended: make(chan error, 1)}
	pair := newPairFiles(t)
	pair.write(1)
	s.cmd = exec.Command("outboxweb", "serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug", "--tls-cert", pair.cert, "--tls-key", pair.key)
	s.cmd.Dir, s.cmd.Stderr = s.dir, &s.stderr
	first := s.start()
	_, address, found := strings.Cut(first, "listening on https://")
	if !found {
		t.Fatalf("it says %q; %s", first, s.stderr.String())
	}
	conn := must.Get(net.Dial("tcp", strings.TrimSuffix(address, `"}`))).Or(t)
	defer conn.Close()
	if _, err := io.WriteString(conn, "no TLS at all\r\n\r\n"); err != nil { // net/http writes to its own log
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	s.signal(syscall.SIGTERM)
	must.OK(t, s.wait())
	said := map[string]map[string]any{}
	for line := range strings.Lines(first + "\n" + s.stderr.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil || r["time"] == nil || r["level"] == nil || r["msg"] == nil {
			t.Errorf("%v: %q", err, line)
		}
		text, _ := r["msg"].(string)
		said[text] = r
	}
	if r := said["started"]; r["version"] == nil || r["listen"] != "https://"+strings.TrimSuffix(address, `"}`) || r["journal_db"] != "sqlite:data/journal.db" || r["mode"] != "outbox_apply_only" {
		t.Errorf("started: %v", r)
	}
	if r := said["stopping"]; r["why"] != "SIGTERM" {
		t.Errorf("stopping: %v", r)
	}
	if r := said["stopped"]; r["draining_seconds"] == nil {
		t.Errorf("stopped: %v", r)
	}
	if !strings.Contains(s.stderr.String(), "http: TLS handshake error") {
		t.Errorf("net/http's own log is lost: %s", s.stderr.String())
	}
}

func TestServe_saysInItsFormatWhyItCannotStart(t *testing.T) {
	t.Parallel()
	_, stderr, code := runIn(t, t.TempDir(), "serve", "--log-format", "json", "--journal-db", "postgres://ana:hunterdeux@127.0.0.1:1/x", "--no-migrate")
	var r map[string]any
	if err := json.Unmarshal([]byte(stderr), &r); err != nil || code == 0 || r["level"] != "ERROR" || r["error"] == nil || strings.Contains(stderr, "hunterdeux") {
		t.Errorf("exit %d, %v: %s", code, err, stderr)
	}
}

func TestServe_logsFromTheLevelOn(t *testing.T) {
	t.Parallel()
	for level, lines := range map[string][]string{"info": {"started", "msg=request", "stopped"}, "warn": nil} {
		s := serve(t, "--log-level", level)
		s.get("/")
		s.get("/healthz")
		s.signal(syscall.SIGTERM)
		must.OK(t, s.wait())
		for _, line := range lines {
			if !strings.Contains(s.stderr.String(), line) {
				t.Errorf("--log-level %s lacks %q: %s", level, line, s.stderr.String())
			}
		}
		if strings.Contains(s.stderr.String(), "healthz") || lines == nil && s.stderr.Len() > 0 {
			t.Errorf("--log-level %s: %s", level, s.stderr.String())
		}
	}
}
