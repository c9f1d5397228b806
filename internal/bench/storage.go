package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/store"
)

// storage is where a run measures: a directory, or the databases that the URLs name. It touches
// nothing there but what it makes.
type storage struct {
	err                  io.Writer
	dialect              string
	dir                  string // on SQLite
	journal, projections server
}

// findStorage returns the storage that the database URLs lead to.
func findStorage(ctx context.Context, c Config) (s *storage, err error) {
	projections := c.ProjectionsDB
	path, isFile := strings.CutPrefix(c.JournalDB, "sqlite:")
	s = &storage{err: c.Err, dialect: engine.DialectOf(c.JournalDB), dir: cmp.Or(c.Dir, filepath.Dir(path))}
	if s.dialect == "postgres" {
		projections = cmp.Or(projections, c.JournalDB)
	}
	switch {
	case projections != "" && s.dialect != engine.DialectOf(projections):
		return nil, event.Setup("--journal-db and --projections-db must both be sqlite:PATH or both postgres://… to run benchmarks")
	case isFile:
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, event.Setup("--dir: cannot create %s: %v", s.dir, event.Cause(err))
		}
		return s, nil
	case s.dialect == "sqlite":
		return nil, event.Setup("--journal-db: %q is not a database URL; use sqlite:PATH or postgres://…", c.JournalDB)
	case c.Dir != "":
		return nil, event.Setup("--dir is for SQLite; on PostgreSQL the benchmarks run in the databases that the URLs name")
	}
	if s.journal, err = findServer(ctx, "--journal-db", c.JournalDB); err == nil {
		s.projections, err = findServer(ctx, "--projections-db", projections)
	}
	return s, err
}

// fresh runs do on two databases that do not exist yet, and removes them.
func (s *storage) fresh(do func(store.Options) error) (err error) {
	if s.dialect == "sqlite" {
		return s.inDir(func(dir string) error {
			return do(store.Options{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db")})
		})
	}
	journal, projections := newSchema(), newSchema()
	defer s.cleanUp(&err, func() error { return errors.Join(s.journal.drop(journal), s.projections.drop(projections)) })
	return do(store.Options{Journal: inSchema(s.journal.url, journal), Projections: inSchema(s.projections.url, projections)})
}

// inDir runs do on a new directory, and removes it.
func (s *storage) inDir(do func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(s.dir, "outboxweb-bench-")
	if err != nil {
		return event.Setup("--dir: cannot write to %s: %v", s.dir, event.Cause(err))
	}
	defer s.cleanUp(&err, func() error { return os.RemoveAll(dir) })
	return do(dir)
}

// cleanUp runs remove. Its error becomes that of the run, or is printed beside it: what is left of an
// interrupted run is to be known.
func (s *storage) cleanUp(err *error, remove func() error) {
	switch left := remove(); {
	case left == nil:
	case *err == nil:
		*err = left
	default:
		fmt.Fprintln(s.err, "outboxweb:", left)
	}
}

// durability fills in how many small durable writes a second the storage manages, and where it is.
func (s *storage) durability(ctx context.Context, r *Result) (err error) {
	if s.dialect == "sqlite" {
		r.Dir = s.dir
		return s.inDir(func(dir string) (err error) {
			r.FsyncPerSecond, err = fsyncRate(ctx, dir)
			return err
		})
	}
	schema := newSchema()
	defer s.cleanUp(&err, func() error { return s.journal.drop(schema) })
	return s.journal.connect(ctx, func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, describeServer).Scan(&r.Server); err != nil {
			return fmt.Errorf("ask the server about itself: %w", err)
		}
		r.CommitsPerSecond, err = commitRate(ctx, conn, schema)
		return err
	})
}

// perSecond returns how many times a second a write is done.
func perSecond(ctx context.Context, write func(n int) error) (float64, error) {
	start, n := time.Now(), 0
	for ; time.Since(start) < time.Second && ctx.Err() == nil; n++ {
		if err := write(n); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), ctx.Err()
}

// fsyncRate returns how many durable writes of 4 KiB per second this disk manages.
func fsyncRate(ctx context.Context, dir string) (rate float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err == nil {
		defer f.Close()
		block := make([]byte, 4096)
		rate, err = perSecond(ctx, func(n int) error {
			_, err := f.WriteAt(block, int64(n%1024)*4096)
			return errors.Join(err, f.Sync())
		})
	}
	if err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	return rate, nil
}

// commitRate returns how many one-row changes the server commits per second.
func commitRate(ctx context.Context, conn *pgx.Conn, schema string) (float64, error) {
	table := schema + ".one"
	_, err := conn.Exec(ctx, "create schema "+schema+"; create table "+table+" (n bigint not null); insert into "+table+" values (0)", pgx.QueryExecModeSimpleProtocol)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return 0, event.Setup("cannot make a schema to measure in: %s", refused.Message)
	}
	if err != nil {
		return 0, fmt.Errorf("make a schema to measure in: %w", err)
	}
	rate, err := perSecond(ctx, func(n int) error {
		_, err := conn.Exec(ctx, "update "+table+" set n = $1", n)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure commits: %w", err)
	}
	return rate, nil
}

// server is one of the two databases on PostgreSQL.
type server struct {
	url    string
	config *pgx.ConnConfig
}

// findServer refuses a URL that leads nowhere.
func findServer(ctx context.Context, flag, url string) (server, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return server{}, event.Setup("%s is not a PostgreSQL URL, such as postgres://USER@HOST:5432/DATABASE", flag)
	}
	delete(config.RuntimeParams, "search_path")         // a pooler may refuse it
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // without prepared statements, which a pooler may lose
	s := server{url, config}
	if err := s.connect(ctx, func(*pgx.Conn) error { return nil }); err != nil {
		says := strings.ReplaceAll(err.Error(), "\n", " ")
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			says = refused.Message
		}
		return s, event.Setup("%s: cannot connect: %s", flag, says)
	}
	return s, nil
}

// connect runs do on a new connection.
func (s server) connect(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, s.config.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(conn)
}

// cleanUpLimit bounds how long dropping a schema may take.
const cleanUpLimit = time.Minute

// drop drops a schema, also after an interrupt.
func (s server) drop(schema string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	err := s.connect(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "drop schema if exists "+schema+" cascade")
		return err
	})
	if err != nil {
		return fmt.Errorf("the schema %s could not be dropped: %w", schema, err)
	}
	return nil
}

// describeServer reads the server's version and the settings that decide its speed.
const describeServer = `
select concat('PostgreSQL ', split_part(current_setting('server_version'), ' ', 1), ', fsync ', current_setting('fsync'),
  ', synchronous_commit ', current_setting('synchronous_commit'), ', shared_buffers ', current_setting('shared_buffers'))`

// newSchema names a schema that no run has made.
func newSchema() string { return "outboxweb_bench_" + strings.ToLower(rand.Text()) }

// inSchema returns the URL with another search_path. The rest of the query stays as written:
// PostgreSQL reads a + in it as a plus.
func inSchema(raw, schema string) string {
	address, query, _ := strings.Cut(raw, "?")
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		return parameter == "" || strings.HasPrefix(parameter, "search_path=")
	})
	return address + "?" + strings.Join(append(kept, "search_path="+schema), "&")
}
