package storetest

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
)

// Dump is the whole content of both databases for comparison, except records of refused
// actions. It leaves out the counter of positions, since a repeated append consumes one.
func (f *Fixture) Dump() string {
	f.TB.Helper()
	records := `select * from audit_log where outcome <> 'refused'`
	return DumpExcept(f.TB, f.JournalDB, "audit_log") + dumpQuery(f.TB, f.JournalDB, "audit_log", records) + DumpExcept(f.TB, f.ProjectionsDB)
}

// DumpExcept is the content of a database without some tables, one line per row.
func DumpExcept(tb testing.TB, db *sql.DB, tables ...string) string {
	tb.Helper()
	var all strings.Builder
	for _, table := range dbtest.Tables(tb, db) {
		if !slices.Contains(tables, table) {
			all.WriteString(dumpQuery(tb, db, table, `select * from "`+table+`"`))
		}
	}
	return all.String()
}

// dumpQuery is the result of a query in lines, in order.
func dumpQuery(tb testing.TB, db *sql.DB, name, query string) string {
	tb.Helper()
	rows := must.Get(db.Query(query)).Or(tb)
	defer rows.Close()
	columns, _ := rows.Columns()
	var lines []string
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		must.OK(tb, rows.Scan(dest...))
		lines = append(lines, fmt.Sprintf("%s %v\n", name, values))
	}
	must.OK(tb, rows.Err())
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Unchanged fails when act changes either database.
func (f *Fixture) Unchanged(act func()) {
	f.TB.Helper()
	before := f.Dump()
	act()
	must.Equal(f.TB, f.Dump(), before, "an act")
}

// Modified says when either database was last written; see Written.
func (f *Fixture) Modified() string {
	f.TB.Helper()
	return Written(f.TB, f.Pair, f.JournalDB, f.ProjectionsDB)
}

// Written is a value that changes with every write to either database: on SQLite the files'
// sizes and times, on PostgreSQL the youngest transaction and the number of rows in each table,
// without some tables.
func Written(tb testing.TB, p dbtest.Pair, journal, projections *sql.DB, except ...string) string {
	tb.Helper()
	var b strings.Builder
	if !strings.HasPrefix(p.Projections, "sqlite:") {
		for _, db := range []*sql.DB{journal, projections} {
			for _, table := range dbtest.Tables(tb, db) {
				if !slices.Contains(except, table) {
					fmt.Fprintln(&b, table, Texts(tb, db, `select concat(max(cast(cast(xmin as text) as bigint)), ' ', count(*)) from "`+table+`"`))
				}
			}
		}
		return b.String()
	}
	for _, name := range []string{"journal.db", "journal.db-wal", "projections.db", "projections.db-wal"} {
		info, err := os.Stat(filepath.Join(p.Dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			tb.Fatal(err)
		}
		if err == nil {
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
