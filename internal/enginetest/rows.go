package enginetest

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// OnPostgres reports whether the engine's databases are on PostgreSQL; a test there may use others, too.
func (b *Engine) OnPostgres() bool { return DialectOf(b.Pair) == "postgres" }

// DialectOf is the dialect of the pair's projections.
func DialectOf(p dbtest.Pair) string {
	if strings.HasPrefix(p.Projections, "sqlite:") {
		return "sqlite"
	}
	return "postgres"
}

// MustExec runs statements, bypassing the store.
func MustExec(tb testing.TB, db *sql.DB, statements ...string) {
	tb.Helper()
	for _, statement := range statements {
		_, err := db.Exec(statement)
		must.Need(tb, err == nil, "%s: %v", statement, err)
	}
}

// Column reads the first column of a query's result.
func Column[T any](tb testing.TB, db *sql.DB, query string, args ...any) []T {
	tb.Helper()
	return storetest.Column[T](tb, db, query, args...)
}

// Tamper changes the journal as only a user with access to the database can.
func (b *Engine) Tamper(tb testing.TB, statements ...string) {
	tb.Helper()
	storetest.AllowTampering(tb, b.JournalDB, b.OnPostgres())
	MustExec(tb, b.JournalDB, statements...)
}

// Dump is the whole content of both databases except the named tables and the samples, which depend on the clock.
func (b *Engine) Dump(tb testing.TB, except ...string) string {
	tb.Helper()
	except = append(except, "samples", "campaign_samples", "series_samples", "projection_loads")
	return storetest.DumpExcept(tb, b.JournalDB, except...) + storetest.DumpExcept(tb, b.ProjectionsDB, except...)
}

// LastWritten is storetest.Written, without the heartbeats of a worker on PostgreSQL, which keeps writing them.
func (b *Engine) LastWritten(tb testing.TB) string {
	tb.Helper()
	return storetest.Written(tb, b.Pair, b.JournalDB, b.ProjectionsDB, "instances")
}

// LoseRows deletes the first rows of a campaign and updates its row accordingly, as in a database restored from an older copy.
func LoseRows(tb testing.TB, b *Engine, campaign string, first, last int) {
	tb.Helper()
	for _, statement := range []string{
		`delete from projection_apply_outbox where campaign_id = $1 and seq between $2 and $3`,
		`update campaigns
set pending = pending - (cast($3 as bigint) - cast($2 as bigint) + 1),
  head_seq = (select min(seq) from projection_apply_outbox where campaign_id = $1),
  head_status = (select 'pending' where exists (select 1 from projection_apply_outbox where campaign_id = $1)),
  head_next_attempt_at = (select min(next_attempt_at) from projection_apply_outbox where campaign_id = $1)
where campaign_id = $1`,
	} {
		must.Get(b.JournalDB.Exec(statement, campaign, first, last)).Or(tb)
	}
}
