package projection

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// TestMain runs the tests twice, in a short form the second time only those that use newReplay.
func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, "^Test(Postgres|BuiltinCampaigns_makes|Traces_haveTheExpected|Compare_(counts|finds)|Digests_cover)", func(dbtest.Pair) error { return nil }))
}

// replay is the tables of projections, and events applied to them.
type replay struct {
	set             *Set
	writing, digest *sql.DB
}

// newReplay loads projections for the database that the tests currently run on, and creates their tables.
func newReplay(t testing.TB, sources ...string) *replay {
	if !dbtest.Postgres() {
		return inMemory(t, mustLoad(t, sources...))
	}
	l := onPostgres(t, sources...)
	must.OK(t, l.install(t.Context()))
	return l
}

func replayText(t testing.TB, content string) *replay {
	return newReplay(t, writeFiles(t, "test.sql", content))
}

// inMemory is a replay of a set for SQLite.
func inMemory(t testing.TB, set *Set) *replay {
	db := must.Get(sql.Open("sqlite", "file::memory:?_pragma=foreign_keys(1)")).Or(t)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1) // each connection would open a database of its own
	l := &replay{set: set, writing: db, digest: db}
	must.OK(t, l.install(t.Context()))
	return l
}

// replays is how many there are on PostgreSQL.
var replays atomic.Int64

// onPostgres is a replay in a schema of its own: a database would take many times as long.
func onPostgres(t testing.TB, sources ...string) *replay {
	set := must.Get(Load("postgres", sources...)).Or(t)
	schema := fmt.Sprint("p", replays.Add(1))
	url := dbtest.InSchema(dbtest.Server().URL("postgres"), schema)
	l := &replay{set: set, writing: dbtest.Open(t, url)}
	must.Get(l.writing.Exec("create schema " + schema)).Or(t)
	config := must.Get(pgx.ParseConfig(url)).Or(t)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // as digests are read behind a proxy
	l.digest = stdlib.OpenDB(*config)
	t.Cleanup(func() { l.digest.Close() })
	return l
}

// install makes the tables and prepares every statement, as a starting process does.
func (l *replay) install(ctx context.Context) error {
	for _, st := range l.set.schema() {
		for range 2 { // creating existing tables changes nothing
			if _, err := l.writing.ExecContext(ctx, st.SQL); err != nil {
				return st.Refuse(err)
			}
		}
	}
	return CheckPrepared(ctx, l.set, l.prepare)
}

func (l *replay) prepare(query string) error {
	stmt, err := l.writing.Prepare(query)
	if err != nil {
		return err
	}
	return stmt.Close()
}

func (l *replay) Apply(ctx context.Context, e *event.Event) error {
	tx, err := l.writing.BeginTx(context.WithoutCancel(ctx), nil) // a deadline is of the statements
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := l.set.Apply(ctx, replayTx{typed: l.set.dialect == "postgres", tx: tx}, e, nil); err != nil {
		return err
	}
	return tx.Commit()
}

type replayTx struct {
	Tx
	tx    *sql.Tx
	typed bool
}

// Exec sends every argument to PostgreSQL as text, as workers do, which it parses as the type that the statement requires.
func (t replayTx) Exec(ctx context.Context, query string, args []any) error {
	if !t.typed {
		_, err := t.tx.ExecContext(ctx, query, args...)
		return err
	}
	texts := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			texts[i] = strconv.FormatInt(v, 10)
		case float64:
			texts[i] = floatText(v)
		default:
			texts[i] = v
		}
	}
	_, err := t.tx.ExecContext(ctx, query, texts...)
	return err
}

func floatText(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func (l *replay) Reset(ctx context.Context) error {
	for _, p := range l.set.projections {
		for _, t := range p.tables {
			if _, err := l.writing.ExecContext(ctx, "delete from "+quoteName(t.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *replay) Digests(ctx context.Context, campaignID string, only ...string) (digests map[string]string, full string, err error) {
	return l.set.Digests(ctx, l.digest, campaignID, only...)
}

func (l *replay) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.writing.QueryContext(ctx, query, args...)
}
