package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const template = "template_outboxweb"

// patience bounds the waits of Database and its cleanup.
const patience = time.Minute

var clonesMade atomic.Int64

// A clone is an unused copy of the template, or the error of making it.
type clone struct {
	database string
	err      error
}

// A stock makes clones ahead of the tests until quit.
type stock struct {
	quit, done chan struct{}
}

// CreateDatabase creates an empty database.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
}

// Template creates the database that Database copies: prepare gets its URL, fills it and closes
// its connections. After that it refuses connections. A server has one template; a second call
// is an error.
func (s *Server) Template(ctx context.Context, prepare func(url string) error) error {
	if err := s.CreateDatabase(ctx, template); err != nil {
		return err
	}
	if err := prepare(s.URL(template)); err != nil {
		return fmt.Errorf("prepare the database %s: %w", template, err)
	}
	if err := s.exec(ctx, "alter database "+template+" with is_template true allow_connections false"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templated = true
	s.openStock()
	return nil
}

// Database returns the URL of a new copy of the template, or of an empty database when there is
// no template. It is dropped when the test ends, even with open connections.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	made := s.clone()
	if made.err != nil {
		tb.Fatalf("make a database for the test: %v", made.err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.exec(ctx, "drop database if exists "+made.database+" with (force)"); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return s.URL(made.database)
}

// clone takes a clone from the stock, or waits for one.
func (s *Server) clone() clone {
	s.mu.Lock()
	templated := s.templated
	s.mu.Unlock()
	if !templated {
		return s.makeClone("template1")
	}
	select {
	case made := <-s.clones:
		return made
	case <-time.After(patience):
		return clone{err: errors.New("no database was made in a minute: is the server running?")}
	}
}

func (s *Server) makeClone(of string) clone {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := "test_" + strconv.FormatInt(clonesMade.Add(1), 10)
	// Without fsync, copying files takes 23 ms and copying through the log 55 ms (40 tables). The
	// option exists since PostgreSQL 15.
	return clone{name, s.exec(ctx, "create database "+name+" template "+of+" strategy file_copy")}
}

// openStock starts making clones when there is a template. The caller holds mu.
func (s *Server) openStock() {
	if !s.templated || s.stock != nil {
		return
	}
	st := &stock{quit: make(chan struct{}), done: make(chan struct{})}
	s.stock = st
	go func() {
		defer close(st.done)
		for {
			made := s.makeClone(template)
			select {
			case s.clones <- made:
			case <-st.quit:
				return
			}
		}
	}()
}

// closeStock waits for the clone that is being made, so that the server does not stop
// meanwhile. The caller holds mu.
func (s *Server) closeStock() {
	if s.stock == nil {
		return
	}
	close(s.stock.quit)
	<-s.stock.done
	s.stock = nil
}

// exec runs one statement in the database postgres, on a connection that an earlier statement left
// if there is one: a new one takes 10 ms of a processor.
func (s *Server) exec(ctx context.Context, statement string) error {
	conn, err := s.connection(ctx)
	if err == nil {
		if _, err = conn.Exec(ctx, statement); !conn.IsClosed() {
			s.leave(ctx, conn)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (s *Server) connection(ctx context.Context) (*pgx.Conn, error) {
	for {
		select {
		case conn := <-s.left:
			if conn.Ping(ctx) == nil { // a test may have ended it
				return conn, nil
			}
			_ = conn.Close(ctx)
		default:
			return pgx.Connect(ctx, s.URL("postgres"))
		}
	}
}

func (s *Server) leave(ctx context.Context, conn *pgx.Conn) {
	select {
	case s.left <- conn:
	default:
		_ = conn.Close(ctx)
	}
}

// hangUp closes the connections that were left. The caller holds mu, and the server is about to
// end.
func (s *Server) hangUp() {
	for {
		select {
		case conn := <-s.left:
			_ = conn.Close(context.Background())
		default:
			return
		}
	}
}
