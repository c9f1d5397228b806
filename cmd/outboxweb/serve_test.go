package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// served is a server in its own process.
type served struct {
	t        testing.TB
	cmd      *exec.Cmd
	url, dir string
	stderr   bytes.Buffer
	ended    chan error
}

// serve starts the program on databases in a fresh directory and waits until it prints its address.
func serve(t testing.TB, flags ...string) *served {
	dir := t.TempDir()
	newPair(t, filepath.Join(dir, "data"))
	cmd := exec.Command("outboxweb", append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Dir = dir
	s, first := launch(t, cmd)
	url, found := strings.CutPrefix(first, "listening on ")
	if !found {
		s.cmd.Process.Kill()
		s.wait()
		must.Need(t, false, "stdout %q; stderr: %s", first, s.stderr.String())
	}
	s.url = url
	return s
}

// launch starts a server's process and returns its first line, empty when there is none.
func launch(t testing.TB, cmd *exec.Cmd) (s *served, first string) {
	s = &served{t: t, cmd: cmd, dir: cmd.Dir, ended: make(chan error, 1)}
	cmd.Stderr = &s.stderr
	stdout := must.Get(cmd.StdoutPipe()).Or(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	must.Need(t, err == nil || err == io.EOF, "%v", err)
	go func() {
		io.Copy(io.Discard, lines)
		s.ended <- cmd.Wait()
	}()
	return s, strings.TrimSpace(first)
}

func (s *served) wait() error {
	return must.Receive(s.t, s.ended, "the server did not end; stderr: %s", &s.stderr)
}

func (s *served) signal(sig syscall.Signal) { must.OK(s.t, s.cmd.Process.Signal(sig)) }

func (s *served) stop() {
	s.signal(syscall.SIGTERM)
	err := s.wait()
	must.Hold(s.t, err == nil, "after SIGTERM: %v; stderr: %s", err, s.stderr.String())
}

func (s *served) summary() campaign.Summary {
	_, body := s.ask("/api/v1/summary")
	var summary campaign.Summary
	must.OK(s.t, json.Unmarshal([]byte(body), &summary))
	return summary
}

func runIn(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	return runWith(t, dir, nil, args...)
}

func runWith(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	ctx, stop := context.WithTimeout(t.Context(), must.Patience)
	defer stop()
	cmd := exec.CommandContext(ctx, "outboxweb", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		must.Need(t, ok, "%v", err)
		code = exit.ExitCode()
	}
	return out.String(), errs.String(), code
}

func TestServe_sampleShowsItsDeadHeadsAndLeavesAJournalThatHasEventsAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sample", "--max-attempts", "2", "--retry-base", "1ms", "--poll-interval", "20ms")
	s.answers(http.StatusOK, "", "/readyz")
	must.Eventually(t, "three dead heads and everything else applied", func() bool {
		now := s.summary()
		return now.Counts.Dead == 3 && now.Campaigns.Lagging == 3 && now.Campaigns.Total == 40
	})
	s.answers(http.StatusOK, "<html", "/")
	first := s.summary()
	s.signal(syscall.SIGINT)
	err := s.wait()
	must.Need(t, err == nil, "after SIGINT: %v", err)
	out, errs, code := runIn(t, s.dir, "check")
	must.Equal(t, code, exitDone, "check", out, errs)
	again := serve(t, "--sample", "--worker=false",
		"--journal-db", "sqlite:"+filepath.Join(s.dir, "data/journal.db"), "--projections-db", "sqlite:"+filepath.Join(s.dir, "data/projections.db"))
	second := again.summary()
	must.Equal(t, second.Counts, first.Counts, "a second start changed the journal")
	must.Hold(t, !second.Worker.Running, "with --worker=false: %+v", second.Worker)
}

func TestServe_secondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	address := strings.TrimPrefix(s.url, "http://")
	// A request that never ends its header keeps the server from finishing.
	slow := must.Get(net.Dial("tcp", address)).Or(t)
	defer slow.Close()
	must.Get(io.WriteString(slow, "GET / HTTP/1.1\r\nHost: "+address+"\r\n")).Or(t)
	s.ask("/healthz") // by now the server has accepted the slow one too
	s.signal(syscall.SIGTERM)
	must.Eventually(t, "the server accepts no more", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	must.Eventually(t, "another signal ends it", func() bool { return s.cmd.Process.Signal(syscall.SIGTERM) != nil })
	ended := s.wait()
	exit, ok := errors.AsType[*exec.ExitError](ended)
	must.Hold(t, ok && exit.Sys().(syscall.WaitStatus).Signaled(), "ended with %v, want the signal", ended)
}

// Log collectors parse each line as one JSON document, of either stream and from any library.
func TestServe_logsInOneFormat(t *testing.T) {
	t.Parallel()
	pair := newPairFiles(t)
	pair.write(1)
	cmd := exec.Command("outboxweb", "serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug", "--tls-cert", pair.cert, "--tls-key", pair.key)
	cmd.Dir = t.TempDir()
	s, first := launch(t, cmd)
	_, address, found := strings.Cut(first, "listening on https://")
	must.Need(t, found, "it says %q; %s", first, s.stderr.String())
	conn := must.Get(net.Dial("tcp", strings.TrimSuffix(address, `"}`))).Or(t)
	defer conn.Close()
	must.Get(io.WriteString(conn, "no TLS at all\r\n\r\n")).Or(t) // net/http writes to its own log
	_, err := io.ReadAll(conn)
	must.Need(t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
	s.stop()
	said := map[string]map[string]any{}
	for line := range strings.Lines(first + "\n" + s.stderr.String()) {
		var r map[string]any
		err := json.Unmarshal([]byte(line), &r)
		must.Hold(t, err == nil && r["time"] != nil && r["level"] != nil && r["msg"] != nil, "%v: %q", err, line)
		text, _ := r["msg"].(string)
		said[text] = r
	}
	r := said["started"]
	must.Hold(t, r["version"] != nil && r["listen"] == "https://"+strings.TrimSuffix(address, `"}`) && r["journal_db"] == "sqlite:data/journal.db" && r["mode"] == "outbox_apply_only", "started: %v", r)
	must.Equal(t, said["stopping"]["why"], "SIGTERM", "stopping")
	must.Hold(t, said["stopped"]["draining_seconds"] != nil, "stopped: %v", said["stopped"])
	must.Hold(t, strings.Contains(s.stderr.String(), "http: TLS handshake error"), "net/http's own log is lost: %s", s.stderr.String())
}

func TestServe_saysInItsFormatWhyItCannotStart(t *testing.T) {
	t.Parallel()
	_, stderr, code := runIn(t, t.TempDir(), "serve", "--log-format", "json", "--journal-db", "postgres://ana:hunterdeux@127.0.0.1:1/x", "--no-migrate")
	var r map[string]any
	err := json.Unmarshal([]byte(stderr), &r)
	must.Hold(t, err == nil && code != 0 && r["level"] == "ERROR" && r["error"] != nil && !strings.Contains(stderr, "hunterdeux"), "exit %d, %v: %s", code, err, stderr)
}

func TestServe_logsFromTheLevelOn(t *testing.T) {
	t.Parallel()
	for level, lines := range map[string][]string{"info": {"started", "msg=request", "stopped"}, "warn": nil} {
		s := serve(t, "--log-level", level)
		s.ask("/")
		s.ask("/healthz")
		s.stop()
		log := s.stderr.String()
		for _, line := range lines {
			must.Hold(t, strings.Contains(log, line), "--log-level %s lacks %q: %s", level, line, log)
		}
		must.Hold(t, !strings.Contains(log, "healthz") && (lines != nil || log == ""), "--log-level %s: %s", level, log)
	}
}

// A publisher hangs in a write to a log that nobody reads; the process ends nevertheless, and names it.
func TestServer_endsThoughAPartOfItDoesNot(t *testing.T) {
	d := newDesk(t)
	d.has("c", "{}")
	sub := must.Get(destination.Custom(destination.Subscription{SubscriptionName: operator.SubscriptionName{Topic: "all", Publisher: "p"}, Match: subscription.Match{EventTypes: []string{"*"}}},
		destination.Functions{Deliver: func(context.Context, []*destination.Event) (int, error) { return 0, errors.New("no quota") }}, destination.Settings{})).Or(t)
	unread, stuck := io.Pipe()
	p := engine.New(engine.Config{Engine: d.st, Set: d.set, Metrics: engine.NewMetrics(d.st, "v", ""), Logger: slog.New(slog.NewTextHandler(stuck, nil)), Version: "v", Subscriptions: []destination.Subscription{sub}, Alerts: alerts.New(d.st.Store, alerts.Options{})})
	var log bytes.Buffer
	codes := make(chan int, 1)
	s := &server{process: p, http: &http.Server{}, log: slog.New(slog.NewTextHandler(&log, nil)), limit: 50 * time.Millisecond, exit: func(code int) { codes <- code }}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, listener) }()
	must.Get(unread.Read(make([]byte, 1))).Or(t) // it has begun to write
	stop()
	must.Equal(t, must.Receive(t, codes, "it does not end"), exitFailed, "exit code")
	go func() { _, _ = io.Copy(io.Discard, unread) }()
	must.OK(t, <-ended)
	text := log.String()
	_, running, found := strings.Cut(text, "the process ends though not all of it has") // on a busy machine others may not have ended, either
	_, running, _ = strings.Cut(running, "running=")
	must.Hold(t, found && strings.Contains(running, "publishers"), "the log says\n%s", text)
}

// wantHealth runs health with an environment, and compares its exit code and its one sentence.
func wantHealth(t *testing.T, code int, sentence string, env []string, args ...string) {
	command := append([]string{"health"}, args...)
	if !slices.Contains(args, "--timeout") {
		command = append(command, "--timeout", "1m") // the machine may be busy
	}
	out, errs, got := here(t.Context(), command...)
	if env != nil {
		out, errs, got = runWith(t, t.TempDir(), env, command...)
	}
	text := out + errs
	must.Hold(t, got == code && strings.Contains(text, sentence) && strings.Count(text, "\n") == 1, "health %v with %v: exit %d, %q", args, env, got, text)
}

// A probe beside the server needs only the server's own environment or configuration file.
func TestHealth_findsTheServerWhereItListens(t *testing.T) {
	t.Parallel()
	s := serve(t, "--base-path", "/ops/outbox")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
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
	answering := func(with http.HandlerFunc) string {
		s := httptest.NewServer(with)
		t.Cleanup(s.Close)
		return s.URL
	}
	answer := func(status int, body string) string {
		return answering(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	wantHealth(t, 1, "/readyz: the disk is full; the worker is stalled", nil, "--url", answer(503, `{"ready":false,"reasons":["the disk is full","the worker is stalled"]}`))
	wantHealth(t, 1, "not alive: ", nil, "--live", "--url", answer(502, "no"))
	wantHealth(t, 1, "the answer is 307 Temporary Redirect", nil, "--url", answer(307, ""))
	wantHealth(t, 1, "connection refused", nil, "--listen", "127.0.0.1:1")
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer silent.Close()
	wantHealth(t, 1, "no answer within 50ms", nil, "--timeout", "50ms", "--url", "http://"+silent.Addr().String())
	switching := answering(func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"))
		}
	})
	wantHealth(t, 1, "the answer is 101 Switching Protocols", nil, "--url", switching)
	for _, args := range [][]string{{"--listen", "systemd"}, {"--listen", "127.0.0.1:0"}, {"--listen", "nowhere"}, {"--url", "ops.example"}, {"--timeout", "0s"}} {
		wantHealth(t, 2, args[0], nil, args...)
	}
}

// under runs the program in a directory with a umask.
func under(t *testing.T, umask, dir string, args ...string) *exec.Cmd {
	program := must.Get(exec.LookPath("outboxweb")).Or(t)
	cmd := exec.Command("sh", append([]string{"-c", `umask "$0" && exec "$@"`, umask, program}, args...)...)
	cmd.Dir = dir
	return cmd
}

const publishToFile = `
topics:
  all:
    match: {event_types: ["*"]}
    publishers:
      out: {url: "file:DIR/published.ndjson"}
`

const threeEvents = `{"campaign_id":"c","event_type":"campaign.created","payload":{"name":"x"}}
{"campaign_id":"c","event_type":"note.added","payload":{}}
`

// Whatever the umask, no other user can read the files that the program creates: databases with
// their companion files, backups, restored and published files.
func TestFiles_areTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	for _, umask := range size.Of([]string{"000"}, []string{"000", "022", "077"}, []string{"000", "022", "077"}) {
		t.Run(umask, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			given := filepath.Join(dir, "given") // a directory that others may read
			must.OK(t, os.Mkdir(given, 0o755))
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				must.OK(t, os.WriteFile(path, []byte(text), 0o600))
				return path
			}
			databases := []string{"--journal-db", "sqlite:deep/journal.db", "--projections-db", "sqlite:new/projections.db"}
			config := write("config.yaml", strings.ReplaceAll(publishToFile, "DIR", given))
			serving, _ := launch(t, under(t, umask, dir, append([]string{"serve", "--listen", "127.0.0.1:0", "--config", config}, databases...)...))
			run := func(args ...string) {
				out, err := under(t, umask, dir, args...).CombinedOutput()
				must.Need(t, err == nil, "%v: %v\n%s", args, err, out)
			}
			run(append([]string{"append", write("events.jsonl", threeEvents)}, databases...)...)
			must.Eventually(t, "the events are published", func() bool {
				text, err := os.ReadFile(filepath.Join(given, "published.ndjson"))
				return err == nil && strings.Count(string(text), "\n") == 2
			})
			run(append([]string{"backup", "saved"}, databases...)...)
			must.OK(t, os.Mkdir(filepath.Join(given, "empty"), 0o755))
			run(append([]string{"backup", "given/empty"}, databases...)...)
			run("restore", "saved", "--journal-db", "sqlite:back/here/journal.db", "--projections-db", "sqlite:back/projections.db")
			wantPrivate(t, dir, []string{".", "given", "given/empty"}, []string{
				"deep/journal.db", "deep/journal.db-wal", "deep/journal.db-shm", "new/projections.db", "new/projections.db-wal", "new/projections.db-shm",
				"saved/journal.db", "saved/projections.db", "given/empty/journal.db", "given/empty/projections.db",
				"back/here/journal.db", "back/projections.db", "given/published.ndjson"})
			serving.stop()
		})
	}
}

// wantPrivate checks everything below dir except existing directories: these files must be among
// it.
func wantPrivate(t *testing.T, dir string, there, files []string) {
	var seen []string
	must.OK(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || slices.Contains(there, name) {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		must.Equal(t, mode(t, path), want, name, "has the mode")
		seen = append(seen, name)
		return nil
	}))
	for _, name := range files {
		must.Hold(t, slices.Contains(seen, name), "there is no %s: %v", name, seen)
	}
}

// A database opened to a group was opened on purpose.
func TestFiles_thatExistKeepTheirMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := under(t, "022", dir, "migrate").CombinedOutput()
	must.Need(t, err == nil, "%v: %s", err, out)
	data, journal := filepath.Join(dir, "data"), filepath.Join(dir, "data", "journal.db")
	for path, mode := range map[string]os.FileMode{data: 0o750, journal: 0o640} {
		must.OK(t, os.Chmod(path, mode))
	}
	launch(t, under(t, "077", dir, "serve", "--listen", "127.0.0.1:0"))
	for path, want := range map[string]os.FileMode{data: 0o750, journal: 0o640, journal + "-wal": 0o640, filepath.Join(data, "projections.db"): 0o600} {
		must.Equal(t, mode(t, path), want, path, "has the mode")
	}
}
