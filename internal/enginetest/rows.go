package enginetest

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
)

// OnPostgres reports whether the engine's databases are on PostgreSQL; a test there may use
// others, too.
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
		if _, err := db.Exec(statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// Column reads the first column of a query's result.
func Column[T any](tb testing.TB, db *sql.DB, query string, args ...any) []T {
	tb.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			tb.Fatal(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// Tamper changes the journal as only a user with access to the database can.
func (b *Engine) Tamper(tb testing.TB, statements ...string) {
	tb.Helper()
	of := ""
	if b.OnPostgres() {
		of = ` on events`
	}
	MustExec(tb, b.JournalDB, `drop trigger if exists events_refuse_update`+of, `drop trigger if exists events_refuse_delete`+of)
	MustExec(tb, b.JournalDB, statements...)
}

// Dump is the whole content of both databases except the named tables and the samples, which
// depend on the clock.
func (b *Engine) Dump(tb testing.TB, except ...string) string {
	tb.Helper()
	except = append(except, "samples", "campaign_samples", "series_samples", "projection_loads")
	var out strings.Builder
	for _, db := range []*sql.DB{b.JournalDB, b.ProjectionsDB} {
		for _, table := range dbtest.Tables(tb, db) {
			if slices.Contains(except, table) {
				continue
			}
			fmt.Fprintf(&out, "%s\n", table)
			for _, row := range b.rowsOf(tb, db, table) {
				fmt.Fprintf(&out, "  %s\n", row)
			}
		}
	}
	return out.String()
}

// rowsOf is the rows of a table as texts, in order.
func (b *Engine) rowsOf(tb testing.TB, db *sql.DB, table string) []string {
	tb.Helper()
	row := `cast(t as text)`
	if !b.OnPostgres() {
		var quoted []string
		for _, name := range Column[string](tb, db, `select name from pragma_table_info($1) order by cid`, table) {
			quoted = append(quoted, `quote("`+name+`")`)
		}
		row = `concat_ws(' ', ` + strings.Join(quoted, ", ") + `)`
	}
	return Column[string](tb, db, `select `+row+` from "`+table+`" as t order by 1`)
}

// MustEqual fails with the lines that differ.
func MustEqual(tb testing.TB, what, before, after string) {
	tb.Helper()
	if before == after {
		return
	}
	diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n"))
	tb.Errorf("%s changed something (-before +after):\n%.4000s", what, diff)
}

// LastWritten is a value that changes with every write to either database: on SQLite the data
// version and the files' sizes and times, on PostgreSQL the youngest transaction and the number
// of rows in each table. The table of heartbeats is left out on PostgreSQL, where a worker
// keeps writing to it.
func (b *Engine) LastWritten(tb testing.TB) string {
	tb.Helper()
	var out strings.Builder
	if b.OnPostgres() {
		for _, db := range []*sql.DB{b.JournalDB, b.ProjectionsDB} {
			for _, table := range dbtest.Tables(tb, db) {
				if table == "instances" {
					continue
				}
				fmt.Fprintln(&out, table, Column[string](tb, db, `select concat(max(cast(cast(xmin as text) as bigint)), ' ', count(*)) from "`+table+`"`))
			}
		}
		return out.String()
	}
	fmt.Fprintln(&out, Column[int](tb, b.JournalDB, `pragma data_version`), Column[int](tb, b.ProjectionsDB, `pragma data_version`))
	for _, name := range []string{"journal.db", "journal.db-wal", "projections.db", "projections.db-wal"} {
		info, err := os.Stat(filepath.Join(b.Pair.Dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintln(&out, name, info.Size(), info.ModTime().UnixNano())
	}
	return out.String()
}

// LoseRows deletes the first rows of a campaign and updates its row accordingly, as in a
// database restored from an older copy.
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
		if _, err := b.JournalDB.Exec(statement, campaign, first, last); err != nil {
			tb.Fatal(err)
		}
	}
}
