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

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outboxweb/outboxweb/internal/must"
)

// abandonEnv makes this binary start a server, print its directory and wait to be killed.
const abandonEnv = "PGTEST_ABANDON"

func TestMain(m *testing.M) {
	if os.Getenv(abandonEnv) != "" {
		fmt.Fprintln(os.Stderr, abandon())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
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

func TestServer_restartsRecoversAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := must.Get(Start("max_connections=20")).Or(t)
	t.Cleanup(func() {
		pid := postmaster(t, s.janitor.dir)
		for range 2 {
			must.OK(t, s.Stop())
		}
		must.Hold(t, gone(s.janitor.dir, pid), "%s or process %d is left", s.janitor.dir, pid)
	})
	database := s.Empty(t)
	old := connect(t, database)
	must.Get(old.Exec(t.Context(), "create table marks (mark text primary key)")).Or(t)
	must.OK(t, s.Restart(t.Context()))
	must.Hold(t, old.Ping(t.Context()) != nil, "a connection outlives a restart")

	conn := connect(t, database)
	must.Get(conn.Exec(t.Context(), "insert into marks values ('before the crash')")).Or(t)
	must.OK(t, s.Crash())
	_, err := pgx.Connect(t.Context(), database)
	must.Hold(t, err != nil, "a crashed server accepts connections")
	must.OK(t, s.Launch(t.Context()))
	var marks int
	must.OK(t, connect(t, database).QueryRow(t.Context(), "select count(*) from marks").Scan(&marks))
	must.Equal(t, marks, 1, "marks after the crash")
}

func TestShared_isLeftAsItIs(t *testing.T) {
	s := must.Get(Start()).Or(t)
	t.Cleanup(func() { must.OK(t, s.Stop()) })
	name, value, _ := strings.Cut(s.AsShared(), "=")
	t.Setenv(name, value)
	shared := must.Get(Shared()).Or(t)
	t.Cleanup(func() { must.OK(t, shared.Stop()) })
	must.OK(t, shared.Template(t.Context(), func(url string) error {
		conn := connect(t, url)
		_, err := conn.Exec(t.Context(), "create table marks (mark text primary key)")
		return errors.Join(err, conn.Close(t.Context()))
	}))
	must.Get(connect(t, shared.Database(t)).Exec(t.Context(), "insert into marks values ('in a copy')")).Or(t)
	must.Hold(t, shared.Restart(t.Context()) != nil && shared.Crash() != nil, "another process's server was ended")
	must.Hold(t, s.Empty(t) != "", "it takes no more databases")
}

func TestStart_endsWithKilledProcess(t *testing.T) {
	t.Parallel()
	dir, kill := abandoned(t)
	pid := postmaster(t, dir)
	kill()
	must.Eventually(t, "the server of a killed process to go", func() bool { return gone(dir, pid) })
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
	s := must.Get(Start()).Or(t)
	t.Cleanup(func() { must.OK(t, s.Stop()) })
	config := must.Get(pgx.ParseConfig(s.Pooler(t)(s.Empty(t)))).Or(t)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn := must.Get(pgx.ConnectConfig(t.Context(), config)).Or(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	backends := map[int]bool{}
	must.Eventually(t, "a second backend", func() bool {
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
