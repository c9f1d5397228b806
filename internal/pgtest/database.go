package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxweb/outboxweb/internal/must"
)

// mine begins the names of this process's databases on a server that it may share with others.
var mine = "test_" + strings.ToLower(rand.Text()[:10])

var template = mine + "_template"

// idle is how many connections exec leaves for later statements.
const idle = 4

var clonesMade atomic.Int64

// CreateDatabase creates an empty database.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
}

// Template creates the database that Database copies: prepare gets its URL, fills it and closes
// its connections. After that it refuses connections. A process has one template; a second call
// is an error.
func (s *Server) Template(ctx context.Context, prepare func(url string) error) error {
	if err := s.CreateDatabase(ctx, template); err != nil {
		return err
	}
	if err := prepare(s.URL(template)); err != nil {
		return fmt.Errorf("prepare the database %s: %w", template, err)
	}
	return s.exec(ctx, "alter database "+template+" with is_template true allow_connections false")
}

// Database returns the URL of a new copy of the template. It is dropped when the test ends, even
// with open connections.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	return s.copyOf(tb, template)
}

// Empty is Database without the template.
func (s *Server) Empty(tb testing.TB) string {
	tb.Helper()
	return s.copyOf(tb, "template1")
}

func (s *Server) copyOf(tb testing.TB, of string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), must.Patience)
	defer cancel()
	name := mine + "_" + strconv.FormatInt(clonesMade.Add(1), 10)
	// Without fsync, copying files takes 23 ms and copying through the log 55 ms (40 tables). The
	// option exists since PostgreSQL 15.
	if err := s.exec(ctx, "create database "+name+" template "+of+" strategy file_copy"); err != nil {
		tb.Fatalf("make a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), must.Patience)
		defer cancel()
		if err := s.exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return s.URL(name)
}

// exec runs one statement in the database postgres, on a connection that an earlier statement left
// if there is one: a new one takes 10 ms of a processor.
func (s *Server) exec(ctx context.Context, statement string) error {
	if _, err := s.admin.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// open prepares the connections of exec, each of which is asked before it is used again: a test may
// have ended it.
func (s *Server) open() {
	config, err := pgx.ParseConfig(s.URL("postgres"))
	if err != nil {
		panic(err)
	}
	s.admin = stdlib.OpenDB(*config, stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return true }))
	s.admin.SetMaxIdleConns(idle)
}

// hangUp closes the connections that exec has left. The caller holds mu, and the server is about to
// end.
func (s *Server) hangUp() {
	s.admin.SetMaxIdleConns(0)
	s.admin.SetMaxIdleConns(idle)
}
