package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// postgresGround is a run's own schemas in the databases that the URLs name. It touches nothing
// else there.
type postgresGround struct {
	journal, projections *benchServer
	made                 int // pairs of schemas
}

func newPostgresGround(ctx context.Context, journal, projections string) (*postgresGround, error) {
	id := make([]byte, 4)
	rand.Read(id)
	run := hex.EncodeToString(id)
	g := new(postgresGround)
	var err error
	if g.journal, err = newBenchServer(ctx, "--journal-db", journal, run); err != nil {
		return nil, err
	}
	if g.projections, err = newBenchServer(ctx, "--projections-db", projections, run); err != nil {
		return nil, errors.Join(err, disconnect(g.journal.conn))
	}
	return g, nil
}

func (g *postgresGround) dialect() string { return "postgres" }

func (g *postgresGround) plan() benchPlan {
	return benchPlan{callers: []int{1, 16}, drains: []drainPlan{
		{"drain_1x100k_1_worker", oneLong, 1, 1},
		{"drain_1x100k_4_workers", oneLong, 1, 4},
		{"drain_100x1k_1_worker", hundred, 1, 1},
		{"drain_100x1k_4_workers", hundred, 1, 4},
		{"drain_100x1k_2_instances", hundred, 2, 2},
		{"drain_10000x10_1_worker", manyShort, 1, 1},
		{"drain_10000x10_4_workers", manyShort, 1, 4},
		{"drain_10000x10_2_instances", manyShort, 2, 2},
	}}
}

func (g *postgresGround) durability(ctx context.Context, r *benchResult) (err error) {
	if r.Server, err = g.journal.describe(ctx); err != nil {
		return fmt.Errorf("ask the server about itself: %w", err)
	}
	if r.CommitsPerSecond, err = g.journal.commitRate(ctx); err != nil {
		return fmt.Errorf("measure commits: %w", err)
	}
	return nil
}

func (g *postgresGround) fresh(ctx context.Context) (d databases, err error) {
	g.made++
	d.number = g.made
	if d.journal, err = g.journal.create(ctx, d.journalSchema(g)); err != nil {
		return d, err
	}
	d.projections, err = g.projections.create(ctx, d.projectionsSchema(g))
	return d, err
}

func (d databases) journalSchema(g *postgresGround) string {
	return fmt.Sprintf("%s_%d_journal", g.journal.prefix, d.number)
}

func (d databases) projectionsSchema(g *postgresGround) string {
	return fmt.Sprintf("%s_%d_projections", g.projections.prefix, d.number)
}

func (g *postgresGround) remove(ctx context.Context, d databases) error {
	return errors.Join(g.journal.drop(ctx, d.journalSchema(g)), g.projections.drop(ctx, d.projectionsSchema(g)))
}

func (g *postgresGround) close() error { return errors.Join(g.journal.close(), g.projections.close()) }

// benchServer is one of the two databases.
type benchServer struct {
	url     string
	config  *pgx.ConnConfig
	conn    *pgx.Conn
	prefix  string          // of the schemas of this run
	schemas map[string]bool // schemas made so far
}

func newBenchServer(ctx context.Context, flag, raw, run string) (*benchServer, error) {
	config, err := pgx.ParseConfig(raw)
	if err != nil {
		return nil, usagef("%s is not a PostgreSQL URL, such as postgres://USER@HOST:5432/DATABASE", flag)
	}
	delete(config.RuntimeParams, "search_path")
	s := &benchServer{url: raw, config: config, prefix: "outboxweb_bench_" + run, schemas: map[string]bool{}}
	if s.conn, err = s.connect(ctx); err != nil {
		return nil, usagef("%s: cannot connect: %v", flag, serverMessage(err))
	}
	if err := s.allowForProxy(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", flag, err), disconnect(s.conn))
	}
	return s, nil
}

// serverMessage returns the server's own message, or the error's text without one.
func serverMessage(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Message
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func (s *benchServer) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, s.config.Copy())
}

func disconnect(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}

// allowForProxy disables named prepared statements behind a connection pooler, which may run them
// on a server connection that has not prepared them.
func (s *benchServer) allowForProxy(ctx context.Context) error {
	var backend uint32
	if err := s.conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&backend); err != nil {
		return err
	}
	if backend != s.conn.PgConn().PID() && !strings.Contains(s.url, "default_query_exec_mode=") {
		s.config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

// describe returns the server's version and the settings that decide its speed.
func (s *benchServer) describe(ctx context.Context) (text string, err error) {
	err = s.conn.QueryRow(ctx, `
select concat('PostgreSQL ', split_part(current_setting('server_version'), ' ', 1), ', fsync ', current_setting('fsync'),
  ', synchronous_commit ', current_setting('synchronous_commit'), ', shared_buffers ', current_setting('shared_buffers'))`,
		pgx.QueryExecModeSimpleProtocol).Scan(&text)
	return text, err
}

// commitRate returns how many one-row changes the server commits per second.
func (s *benchServer) commitRate(ctx context.Context) (perSecond float64, err error) {
	schema := s.prefix + "_commits"
	if _, err := s.create(ctx, schema); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.drop(ctx, schema)) }()
	if _, err := s.conn.Exec(ctx, fmt.Sprintf("create table %s.one (n bigint not null); insert into %s.one values (0)", schema, schema)); err != nil {
		return 0, err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, disconnect(conn)) }()
	update := fmt.Sprintf("update %s.one set n = $1", schema)
	start, n := time.Now(), 0
	for ; time.Since(start) < time.Second; n++ {
		if _, err := conn.Exec(ctx, update, n); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// create makes a schema, which must not exist yet, and returns the URL that leads to it.
func (s *benchServer) create(ctx context.Context, schema string) (string, error) {
	s.schemas[schema] = true
	_, err := s.conn.Exec(ctx, "create schema "+schema)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "", outbox.Setup("cannot make a schema to measure in: %s", refused.Message)
	}
	if err != nil {
		return "", fmt.Errorf("make a schema to measure in: %w", err)
	}
	return inSchema(s.url, schema), nil
}

// inSchema returns the URL with another search_path. The rest of the query stays as written:
// PostgreSQL reads a + in it as a plus.
func inSchema(raw, schema string) string {
	address, query, _ := strings.Cut(raw, "?")
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		return parameter == "" || strings.HasPrefix(parameter, "search_path=")
	})
	return address + "?" + strings.Join(append(kept, "search_path="+schema), "&")
}

func (s *benchServer) drop(ctx context.Context, schema string) error {
	if _, err := s.conn.Exec(ctx, "drop schema if exists "+schema+" cascade"); err != nil {
		return err
	}
	delete(s.schemas, schema)
	return nil
}

// cleanUpLimit bounds the clean-up after a run that ended early.
const cleanUpLimit = time.Minute

// close drops the remaining schemas. It also works after an interrupt, which may have broken the
// connection.
func (s *benchServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	var err error
	if s.conn.IsClosed() && len(s.schemas) > 0 {
		if s.conn, err = s.connect(ctx); err != nil {
			return s.leftOver(err)
		}
	}
	defer disconnect(s.conn)
	for schema := range s.schemas {
		if err := s.drop(ctx, schema); err != nil {
			return s.leftOver(err)
		}
	}
	return nil
}

func (s *benchServer) leftOver(err error) error {
	return fmt.Errorf("the schemas %s_… could not be dropped: %w", s.prefix, err)
}
