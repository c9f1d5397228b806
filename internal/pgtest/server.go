// Package pgtest runs a PostgreSQL server for tests, with a database for each of them, and
// pgbouncer in front of it.
//
// A test binary takes one server in TestMain, the one that all packages share where there is one,
// and prepares the template that its tests' databases are copied from, as package dbtest does.
//
// A test that restarts or crashes the server, or changes what is not a database's, starts one of
// its own. Servers do not meet: each listens on a Unix socket in a directory of its own only. A
// server ends and its directory goes even when the process that started it is killed.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// PostgreSQL's shutdown modes, as signals.
const (
	fast      = "INT"
	immediate = "QUIT"
)

// defaults make a server fast. It may lose data when the machine crashes, but not when only the
// server does.
var defaults = []string{
	"listen_addresses=''",
	"port=5432",
	"fsync=off",
	"full_page_writes=off",
	"wal_level=minimal",
	"max_wal_size=1GB",
	"max_wal_senders=0",
	"max_connections=1000",
	"shared_buffers=64MB",
	"autovacuum=off",
	"jit=off",
}

// A Server is a running PostgreSQL server. Its methods may be called concurrently.
type Server struct {
	janitor *janitor
	admin   *sql.DB // the database postgres

	mu sync.Mutex // held while the server starts and ends
}

// sharedEnv names the directory of a server that another process has started for this one and others.
const sharedEnv = "TEST_POSTGRES"

// AsShared is the environment variable that makes Shared of another process this server.
func (s *Server) AsShared() string { return sharedEnv + "=" + s.janitor.dir }

// Shared is the server that this process shares with others, or a new one where there is none. A
// shared one cannot be restarted, and Stop only leaves it.
func Shared() (*Server, error) {
	dir := os.Getenv(sharedEnv)
	if dir == "" {
		return Start()
	}
	s := &Server{janitor: &janitor{dir: dir, ended: true}}
	s.open()
	return s, nil
}

// Start initialises and starts a server in a directory of its own. settings are further lines
// "name=value" of postgresql.conf; they override the defaults, which among others turn fsync
// off.
func Start(settings ...string) (*Server, error) {
	bin, err := serverPrograms()
	if err != nil {
		return nil, err
	}
	j, err := newJanitor(bin, immediate)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s := &Server{janitor: j}
	s.open()
	if err := s.initialise(settings); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) initialise(settings []string) error {
	if err := s.janitor.cluster(); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(s.janitor.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	lines := append(append(defaults[:len(defaults):len(defaults)], "unix_socket_directories='"+s.janitor.dir+"'"), settings...)
	_, err = conf.WriteString("\n" + strings.Join(lines, "\n") + "\n")
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	return s.Launch(context.Background())
}

// URL returns the address of a database on the server, for pgx and for
// PostgreSQL's own programs, as the superuser postgres. The database need not exist.
func (s *Server) URL(database string) string {
	address := url.URL{
		Scheme: "postgres",
		User:   url.User("postgres"),
		Path:   "/" + database,
		// The port overrides PGPORT of the environment. Beside many tests a connection may take longer
		// than the 5 s that the program waits by default.
		RawQuery: "host=" + s.janitor.dir + "&port=5432&sslmode=disable&connect_timeout=60",
	}
	return address.String()
}

// Stop ends the server at once and removes its directory. Further calls do nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.admin.Close(), s.janitor.end()); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}

// Restart restarts the server with its data. Connections break with code 57P01
// (admin_shutdown). The start respects the deadline of ctx.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.halt(fast); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	return s.Launch(ctx)
}

// Keep restarts the server and keeps a copy of its data, as a standby has it that gets nothing more.
func (s *Server) Keep(ctx context.Context) error {
	return s.between(ctx, "rm -rf kept && cp -a data kept")
}

// GoBack restarts the server with the data that Keep has kept, as after the promotion of a standby:
// what was committed since is lost.
func (s *Server) GoBack(ctx context.Context) error {
	return s.between(ctx, "rm -rf data && cp -a kept data")
}

// between runs a shell line while the server is down.
func (s *Server) between(ctx context.Context, line string) error {
	if err := s.halt(fast); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	if err := s.janitor.run(line); err != nil {
		return fmt.Errorf("copy the data of PostgreSQL: %w", err)
	}
	return s.Launch(ctx)
}

// Crash kills the server without a checkpoint: connections break, and the next Launch recovers
// from the write-ahead log.
func (s *Server) Crash() error {
	if err := s.halt(immediate); err != nil {
		return fmt.Errorf("crash PostgreSQL: %w", err)
	}
	return nil
}

func (s *Server) halt(signal string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUp()
	return s.janitor.run("halt " + signal)
}

// Launch starts the server again after Crash and returns once it accepts connections. It
// respects the deadline of ctx.
func (s *Server) Launch(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline, limited := ctx.Deadline()
	if !limited {
		deadline = time.Now().Add(must.Patience)
	}
	if err := s.janitor.run(fmt.Sprintf("launch %d %s postgres -D data", int(time.Until(deadline).Seconds()), running)); err != nil {
		return fmt.Errorf("launch PostgreSQL: %w", err)
	}
	return nil
}

// running is what a line of the janitor says of a server that accepts connections.
const running = `'grep -qs "^$pid$" data/postmaster.pid && grep -qs ^ready data/postmaster.pid'`
