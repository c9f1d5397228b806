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
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// TestMain runs the tests twice, in a short form the second time only those that use newReplay.
func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, "^Test(Postgres|BuiltinCampaigns_makes|Traces_haveTheExpected|Compare_(counts|finds)|Digests_cover)", func(dbtest.Pair) error { return nil }))
}

// expected is the tables of projections, and events applied to them: a Scratch, or on PostgreSQL the tables that workers fill.
type expected interface {
	Queryer
	Apply(ctx context.Context, e *outbox.Event) error
	Reset(ctx context.Context) error
	Digests(ctx context.Context, campaignID string, only ...string) (digests map[string]string, full string, err error)
}

// newReplay loads projections for the database that the tests currently run on, and creates their tables.
func newReplay(t testing.TB, sources ...string) expected {
	if !dbtest.Postgres() {
		return newScratch(t, mustLoad(t, sources...))
	}
	l := newLive(t, sources...)
	must.OK(t, l.install(t.Context()))
	return l
}

func replayText(t testing.TB, content string) expected {
	return newReplay(t, writeFiles(t, "test.sql", content))
}

// live is a replay on PostgreSQL, in a schema of its own: a database would take many times as long.
type live struct {
	set             *Set
	writing, digest *sql.DB
}

// lives is how many there are.
var lives atomic.Int64

func newLive(t testing.TB, sources ...string) *live {
	set := must.Get(Load("postgres", sources...)).Or(t)
	schema := fmt.Sprint("p", lives.Add(1))
	url := dbtest.InSchema(dbtest.Server().URL("postgres"), schema)
	l := &live{set: set, writing: dbtest.Open(t, url)}
	must.Get(l.writing.Exec("create schema " + schema)).Or(t)
	config := must.Get(pgx.ParseConfig(url)).Or(t)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // as digests are read behind a proxy
	l.digest = stdlib.OpenDB(*config)
	t.Cleanup(func() { l.digest.Close() })
	return l
}

// install makes the tables and prepares every statement, as a starting process does.
func (l *live) install(ctx context.Context) error {
	for _, st := range l.set.schema() {
		for range 2 { // creating existing tables changes nothing
			if _, err := l.writing.ExecContext(ctx, st.SQL); err != nil {
				return st.Refuse(err)
			}
		}
	}
	return CheckPrepared(ctx, l.set, l.prepare)
}

func (l *live) prepare(query string) error {
	stmt, err := l.writing.Prepare(query)
	if err != nil {
		return err
	}
	return stmt.Close()
}

func (l *live) Apply(ctx context.Context, e *outbox.Event) error {
	tx, err := l.writing.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := l.set.Apply(ctx, liveTx{tx: tx}, e, nil); err != nil {
		return err
	}
	return tx.Commit()
}

type liveTx struct {
	Tx
	tx *sql.Tx
}

// Exec sends every argument as text, as workers do, which the database parses as the type that the statement requires.
func (t liveTx) Exec(ctx context.Context, query string, args []any) error {
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

func (l *live) Reset(ctx context.Context) error {
	for _, p := range l.set.projections {
		for _, t := range p.tables {
			if _, err := l.writing.ExecContext(ctx, "delete from "+quoteName(t.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *live) Digests(ctx context.Context, campaignID string, only ...string) (digests map[string]string, full string, err error) {
	return l.set.Digests(ctx, l.digest, campaignID, only...)
}

func (l *live) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.writing.QueryContext(ctx, query, args...)
}
