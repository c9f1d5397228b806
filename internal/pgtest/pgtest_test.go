package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/outboxweb/outboxweb/internal/must"
)

// abandonEnv makes this binary start a server, print its directory and wait to be killed.
const abandonEnv = "PGTEST_ABANDON"

var shared *Server

func TestMain(m *testing.M) {
	if os.Getenv(abandonEnv) != "" {
		fmt.Fprintln(os.Stderr, abandon())
		os.Exit(1)
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	var err error
	if shared, err = Start(); err != nil {
		return 0, err
	}
	if err := shared.Template(context.Background(), fillTemplate); err != nil {
		return 0, errors.Join(err, shared.Stop())
	}
	code := m.Run()
	return code, errors.Join(shared.Stop(), goleak.Find())
}

func fillTemplate(url string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create table marks (mark text primary key)")
	return errors.Join(err, conn.Close(ctx))
}

func abandon() error {
	s, err := Start()
	if err != nil {
		return err
	}
	fmt.Println(s.janitor.dir)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestDatabase_isDroppedUnderItsConnections(t *testing.T) {
	t.Parallel()
	var address string
	t.Run("uses it", func(t *testing.T) {
		address = shared.Database(t)
		conn := must.Get(pgx.Connect(t.Context(), address)).Or(t)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	})
	_, err := pgx.Connect(t.Context(), address)
	must.Hold(t, code(err) == "3D000", "connecting after the test: %v, want an unknown database", err)
}

func TestServer_restartsRecoversAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := must.Get(Start("max_connections=20")).Or(t)
	t.Cleanup(func() {
		pid := postmaster(t, s.janitor.dir)
		for range 2 {
			err := s.Stop()
			must.Hold(t, err == nil, "%v", err)
		}
		must.Hold(t, gone(s.janitor.dir, pid), "%s or process %d is left", s.janitor.dir, pid)
	})
	must.OK(t, s.Template(t.Context(), fillTemplate))
	database := s.Database(t)
	awaitBroken(t, s, database, func() error { return s.Restart(t.Context()) })

	conn := connect(t, database)
	run(t, conn, "insert into marks values ('before the crash')")
	must.OK(t, s.Crash())
	_, err := pgx.Connect(t.Context(), database)
	must.Hold(t, err != nil, "a crashed server accepts connections")
	must.OK(t, s.Launch(t.Context()))
	must.Equal(t, marks(t, connect(t, database)), 1, "marks after the crash")
	must.Equal(t, marks(t, connect(t, s.Database(t))), 0, "marks in a database made after the crash")
}

// awaitBroken checks that stop ends a running statement with the code of a server restart.
func awaitBroken(t *testing.T, s *Server, database string, stop func() error) {
	sleeper, watcher := connect(t, database), connect(t, s.URL("postgres"))
	broken := make(chan error, 1)
	go func() { _, err := sleeper.Exec(context.Background(), "select pg_sleep(600)"); broken <- err }()
	await(t, "the statement to run", func() bool {
		var n int
		err := watcher.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event = 'PgSleep'").Scan(&n)
		return err == nil && n == 1
	})
	must.OK(t, stop())
	must.Equal(t, code(<-broken), "57P01", "statement under a restart")
}

func TestStart_endsWithKilledProcess(t *testing.T) {
	t.Parallel()
	dir, kill := abandoned(t)
	pid := postmaster(t, dir)
	kill()
	await(t, "the server of a killed process to go", func() bool { return gone(dir, pid) })
}

// abandoned runs this binary until it has printed its directory. The function it returns kills
// it.
func abandoned(t *testing.T) (dir string, kill func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), abandonEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin := must.Get(cmd.StdinPipe()).Or(t)
	t.Cleanup(func() { _ = stdin.Close() })
	stdout := must.Get(cmd.StdoutPipe()).Or(t)
	must.OK(t, cmd.Start())
	line := must.Get(bufio.NewReader(stdout).ReadString('\n')).Or(t)
	return strings.TrimSpace(line), func() {
		must.OK(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}
}

func TestPooler_movesClientBetweenConnections(t *testing.T) {
	t.Parallel()
	database := shared.Database(t)
	pooled := shared.Pooler(t)(database)
	config := must.Get(pgx.ParseConfig(pooled)).Or(t)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn := must.Get(pgx.ConnectConfig(t.Context(), config)).Or(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	backends := map[int]bool{}
	await(t, "a second backend", func() bool {
		var backend, again int
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			return errors.Join(
				tx.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&backend),
				tx.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&again))
		})
		must.OK(t, err)
		must.Need(t, backend == again, "one transaction ran in the backends %d and %d", backend, again)
		backends[backend] = true
		return len(backends) > 1
	})
}

func connect(t *testing.T, url string) *pgx.Conn {
	conn := must.Get(pgx.Connect(t.Context(), url)).Or(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, statement string) {
	must.Get(conn.Exec(t.Context(), statement)).Or(t)
}

func marks(t *testing.T, conn *pgx.Conn) (n int) {
	must.OK(t, conn.QueryRow(t.Context(), "select count(*) from marks").Scan(&n))
	return n
}

// code returns the SQLSTATE of an error, or "".
func code(err error) string {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

// postmaster returns the process id of the server that runs in dir.
func postmaster(t *testing.T, dir string) int {
	text := must.Get(os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))).Or(t)
	first, _, _ := strings.Cut(string(text), "\n")
	return must.Get(strconv.Atoi(first)).Or(t)
}

// gone reports whether neither the directory nor the process exists.
func gone(dir string, pid int) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist) && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// await waits until a condition holds, for half a minute at most.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
