// Package e2e tests outboxweb from outside: it builds the program, runs it as processes, talks to them over HTTP,
// signals and the command line, and reads their databases past the program. Of the repository's packages it imports
// only those for tests, such as a PostgreSQL server (pgtest), and the one that services use (intake).
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/outboxweb/outboxweb/internal/apitest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
)

var binary string

// withoutSymbols are linker flags that leave out what is for debuggers, which is a third of the linker's work.
const withoutSymbols = "-s -w"

func TestMain(m *testing.M) {
	if place := os.Getenv(writerPlace); place != "" {
		os.Exit(writeIntake(place))
	}
	flag.Parse()
	chooseTexts()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outboxweb-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	defer stopChromium()
	binary = filepath.Join(dir, "outboxweb")
	build := exec.Command("go", "build", "-ldflags", withoutSymbols, "-o", binary, "github.com/outboxweb/outboxweb/cmd/outboxweb")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build the program:", err)
		return 1
	}
	code := m.Run()
	if err := stopPostgres(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	return code
}

// readSources reads every directory of the program, once a test runs, since go test records from then on which files
// its cached result depends on. It cannot detect them otherwise: the program's packages are not imported here.
var readSources = sync.OnceFunc(func() {
	for _, root := range []string{"../cmd", "../internal", "../web", "../intake", "../examples"} {
		err := filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			panic(err)
		}
	}
})

// eventually waits until done reports true. done also returns the current state for the message of a test that fails.
func eventually(t *testing.T, what string, done func() (bool, string)) {
	last, ok := attain(done)
	must.Need(t, ok, "not within %s: %s; at last: %s", must.Patience, what, last)
}

// awaitEqual waits until what is read is what is wanted.
func awaitEqual[T comparable](t *testing.T, what string, want T, read func() T) {
	eventually(t, what, func() (bool, string) {
		got := read()
		return got == want, fmt.Sprint(got)
	})
}

// attain is eventually for something that may also not happen. It tries less and less often, since
// most conditions hold at once or after a while.
func attain(done func() (bool, string)) (last string, ok bool) {
	began := time.Now()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, max(100*time.Millisecond, time.Since(began)/20)) {
		if ok, last = done(); ok || time.Since(began) > must.Patience {
			return last, ok
		}
		<-time.After(pause)
	}
}

// databases is the pair of databases of a test: two files in a directory of
// their own, or two schemas of a PostgreSQL database.
type databases struct {
	dir string // where the program's processes run, and the files lie
	url string // of the PostgreSQL database; empty on SQLite
	// pooled is the URL of the journal's database through a pooler; empty without one.
	pooled string
}

func newDatabases(t *testing.T) databases { return databases{dir: t.TempDir()} }

func (d databases) journal() string     { return d.place("journal") }
func (d databases) projections() string { return d.place("projections") }

func (d databases) place(name string) string {
	if d.url == "" {
		return filepath.Join(d.dir, name+".db")
	}
	if name == "journal" && d.pooled != "" {
		return d.pooled + "&search_path=" + name
	}
	return d.url + "&search_path=" + name
}

func (d databases) flags() []string {
	scheme := ""
	if d.url == "" {
		scheme = "sqlite:"
	}
	return []string{"--journal-db", scheme + d.journal(), "--projections-db", scheme + d.projections()}
}

// openReader opens a database for reading, a file for nothing else.
func openReader(t *testing.T, place string) *sql.DB { return connect(t, place, "mode=ro") }

// connect opens a database directly; option is one for files. It is closed at the end of the test.
func connect(t *testing.T, place, option string) *sql.DB {
	driver, source := "sqlite", "file:"+place+"?_pragma=busy_timeout(10000)&"+option
	if strings.HasPrefix(place, "postgres:") {
		driver, source = "pgx", place
	}
	db := must.Get(sql.Open(driver, source)).Or(t)
	t.Cleanup(func() { db.Close() })
	return db
}

func scalar[T any](t *testing.T, place, query string, args ...any) T {
	db := openReader(t, place)
	defer db.Close()
	var v T
	must.OK(t, db.QueryRow(query, args...).Scan(&v))
	return v
}

// each reads the rows of a query from a database, a map from column to value for each.
func each(t *testing.T, place, query string, visit func(row map[string]any)) {
	db := openReader(t, place)
	defer db.Close()
	rows := must.Get(db.Query(query)).Or(t)
	defer rows.Close()
	names := must.Get(rows.Columns()).Or(t)
	for rows.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		must.OK(t, rows.Scan(into...))
		row := make(map[string]any, len(names))
		for i, name := range names {
			row[name] = values[i]
		}
		visit(row)
	}
	must.OK(t, rows.Err())
}

// output collects what a process writes; it may be read meanwhile.
type output struct {
	mu     sync.Mutex
	text   bytes.Buffer
	closed bool // its pipe is, at the next write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, io.ErrClosedPipe
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program prepares a process of the program in the directory of its databases, without the settings
// of the user who runs the tests.
func program(d databases, args ...string) *exec.Cmd {
	readSources()
	cmd := exec.Command(binary, args...)
	cmd.Dir = d.dir
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "OUTBOXWEB_") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	cmd.SysProcAttr = dieWithParent()
	return cmd
}

type result struct {
	stdout, stderr string
	code           int
}

// command runs a command on the databases to its end, whatever its exit code.
func command(t *testing.T, d databases, stdin io.Reader, args ...string) result {
	cmd := program(d, append(args, d.flags()...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	must.Need(t, err == nil || errors.As(err, &exit), "outboxweb %s: %v", strings.Join(args, " "), err)
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func mustCommand(t *testing.T, d databases, stdin io.Reader, args ...string) string {
	r := command(t, d, stdin, args...)
	must.Need(t, r.code == 0, "outboxweb %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	return r.stdout
}

// server is a running `outboxweb serve`.
type server struct {
	url    string // set once it listens
	cmd    *exec.Cmd
	stderr *output
	client *http.Client
	strict func(error)   // is told of every answer of the API that is not as its document says; may be nil
	up     chan struct{} // closed once it listens
	exited chan struct{} // closed once it ended; code is set then
	code   int           // -1 when a signal ended it
}

// launch starts a server on a free port and does not wait for it. It is
// killed at the end of the test; its log is printed when the test failed.
func launch(t *testing.T, d databases, args ...string) *server {
	s := attended(t, program(d, append([]string{"serve", "--listen", "127.0.0.1:0"}, append(args, d.flags()...)...)...))
	s.strict = func(err error) { t.Error(err) }
	return s
}

func attended(t *testing.T, cmd *exec.Cmd) *server {
	s := &server{cmd: cmd, stderr: new(output), client: &http.Client{Timeout: 2 * must.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		up: make(chan struct{}), exited: make(chan struct{})}
	cmd.Stderr = s.stderr
	stdout := must.Get(cmd.StdoutPipe()).Or(t)
	must.OK(t, cmd.Start())
	go s.attend(stdout)
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("note: log of server %d (%s), which ended with %s:\n%s", s.pid(), cmd, cmd.ProcessState, tail(requestLines.ReplaceAllString(s.stderr.String(), ""), 4000))
		}
	})
	return s
}

// attend reads the server's stdout to its end and then waits for the process.
func (s *server) attend(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if _, url, found := strings.Cut(lines.Text(), "listening on "); found && s.url == "" {
			s.url = strings.TrimSuffix(url, `"}`) // with --log-format json
			close(s.up)
		}
	}
	_ = s.cmd.Wait() // how it ended is in the process state
	s.code = s.cmd.ProcessState.ExitCode()
	s.client.CloseIdleConnections()
	close(s.exited)
}

// requestLines are those of a log that tell of requests.
var requestLines = regexp.MustCompile(`(?m)^.*msg=request .*\n`)

func tail(text string, most int) string {
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

func start(t *testing.T, d databases, args ...string) *server {
	s := launch(t, d, args...)
	s.awaitListening(t)
	return s
}

func (s *server) awaitListening(t *testing.T) {
	select {
	case <-s.up:
	case <-s.exited:
		must.Need(t, false, "the server ended before it listened: %s\n%s", s.cmd.ProcessState, s.stderr)
	case <-time.After(must.Patience):
		must.Need(t, false, "the server does not listen after %s\n%s", must.Patience, s.stderr)
	}
}

func (s *server) pid() int { return s.cmd.Process.Pid }

func (s *server) signal(t *testing.T, sig os.Signal) { must.OK(t, s.cmd.Process.Signal(sig)) }

// kill ends the process at once, as a crash would, and waits for its end.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.exited
}

func (s *server) stop(t *testing.T) int {
	s.signal(t, syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(must.Patience):
		s.signal(t, syscall.SIGQUIT) // it says what it is doing
		<-s.exited
		must.Need(t, false, "the server does not end within %s of SIGTERM\n%s", must.Patience, s.stderr)
	}
	return s.code
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) decode(t *testing.T, v any) {
	err := json.Unmarshal(a.body, v)
	must.Need(t, err == nil, "%v in the answer %d %s", err, a.status, a.body)
}

// do sends a request; a body that is not nil is sent as JSON. Errors are those of the connection.
func (s *server) do(ctx context.Context, method, path string, body any) (answer, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, content)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return s.send(r)
}

func (s *server) send(r *http.Request) (answer, error) {
	res, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && s.strict != nil {
		s.checkDocumented(r, res, text)
	}
	return answer{res.StatusCode, res.Header, text}, err
}

func (s *server) get(t *testing.T, path string, v any) { fetch(t, s, path).decode(t, v) }

func (s *server) post(t *testing.T, status int, path string, body any) answer {
	a := must.Get(s.do(t.Context(), http.MethodPost, path, body)).Or(t)
	must.Need(t, a.status == status, "POST %s: %d %s, want status %d", path, a.status, a.body, status)
	return a
}

// awaitAnswer asks until the answer has a status and contains a text.
func (s *server) awaitAnswer(t *testing.T, method, path string, body any, status int, text string) {
	eventually(t, fmt.Sprintf("%s %s is answered with %d and %q", method, path, status, text), func() (bool, string) {
		a := do(t, s, method, path, body)
		return a.status == status && strings.Contains(string(a.body), text), fmt.Sprintf("%d %s", a.status, a.body)
	})
}

// item is what the tests read of the items of any list.
type item struct {
	ID                        any
	CampaignID                string `json:"campaign_id"`
	Fingerprint, Version, Why string
	Seq, Dead                 int64
	PID                       int
}

// items reads a list, or its first page.
func (s *server) items(t *testing.T, path string) []item {
	var list struct{ Items []item }
	s.get(t, path, &list)
	return list.Items
}

func (s *server) summary(t *testing.T, base string) (sum summary) {
	s.get(t, base+"/api/v1/summary", &sum)
	return sum
}

type summary struct {
	AsOf      time.Time `json:"as_of"`
	Counts    struct{ Pending, Processing, Failed, Dead int64 }
	Campaigns struct{ Total, Lagging, Blocked, Leased, Paused, Diverged, Drifted int64 }
	Lag       struct{ Events int64 }
}

// settled reports whether the worker has nothing left to do: everything is
// applied, but for campaigns with a dead head.
func (s summary) settled() bool {
	return s.Counts.Pending+s.Counts.Processing+s.Counts.Failed+s.Campaigns.Leased == 0
}

func (s *server) awaitSettled(t *testing.T) summary {
	return s.awaitSummary(t, "everything is applied", summary.settled)
}

// awaitSummary waits until a summary is as wanted. One read before the call does not count: the
// server shares a summary for a second.
func (s *server) awaitSummary(t *testing.T, what string, wanted func(summary) bool) summary {
	var sum summary
	began := time.Now()
	eventually(t, what, func() (bool, string) {
		sum = s.summary(t, "")
		return sum.AsOf.After(began) && wanted(sum), fmt.Sprintf("%+v", sum)
	})
	return sum
}

// metric is the value of a series of /metrics, and -1 if there is no such series, or not yet.
func (s *server) metric(t *testing.T, series string) (value float64) {
	a := must.Get(s.do(t.Context(), http.MethodGet, "/metrics", nil)).Or(t)
	for line := range strings.Lines(string(a.body)) {
		if text, found := strings.CutPrefix(line, series+" "); found {
			must.Get(fmt.Sscan(text, &value)).Or(t)
			return value
		}
	}
	return -1
}

func checkClean(t *testing.T, d databases, flags ...string) {
	var report struct {
		OK         bool
		Violations []any
	}
	text := mustCommand(t, d, nil, append([]string{"check", "--json"}, flags...)...)
	must.OK(t, json.Unmarshal([]byte(text), &report))
	must.Need(t, report.OK && len(report.Violations) == 0, "check finds %s", text)
}

var document = sync.OnceValues(func() (*apitest.Document, error) {
	text, err := os.ReadFile(apiDocument)
	if err != nil {
		return nil, err
	}
	return apitest.Parse(text, "/api/v1")
})

// checkDocumented tells strict unless the API answers, and takes, what its document says.
func (s *server) checkDocumented(r *http.Request, res *http.Response, body []byte) {
	doc, err := document()
	if err == nil {
		asked := *r
		asked.Body = nil
		if r.GetBody != nil {
			asked.Body, _ = r.GetBody()
		}
		_, err = doc.Check(&asked, res.StatusCode, res.Header, body)
	}
	if err != nil {
		s.strict(err)
	}
}

func do(t *testing.T, s *server, method, path string, body any) answer {
	return must.Get(s.do(t.Context(), method, path, body)).Or(t)
}

func fetch(t *testing.T, s *server, path string) answer {
	a := do(t, s, http.MethodGet, path, nil)
	must.Need(t, a.status == http.StatusOK, "GET %s: %d %s", path, a.status, a.body)
	return a
}

// stopPostgres ends the use of the shared server, if a test has taken it.
var stopPostgres = func() error { return nil }

// postgres is the PostgreSQL server shared by all tests except those that restart theirs.
var postgres = sync.OnceValues(func() (*pgtest.Server, error) {
	server, err := pgtest.Shared()
	if err == nil {
		stopPostgres = server.Stop
	}
	return server, err
})

func postgresServer(t *testing.T) *pgtest.Server { return must.Get(postgres()).Or(t) }

func newPostgres(t *testing.T) databases {
	return databases{dir: t.TempDir(), url: postgresServer(t).Empty(t)}
}
