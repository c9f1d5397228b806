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
)

// Dump is the whole content of both databases for comparison, except records of refused
// actions. It leaves out the counter of positions, since a repeated append consumes one.
func (f *Fixture) Dump() string {
	f.TB.Helper()
	return dumpBut(f.TB, f.JournalDB, "audit_log where outcome = 'refused'") + Dump(f.TB, f.ProjectionsDB)
}

// Dump is the whole content of a database, one line per row.
func Dump(tb testing.TB, db *sql.DB) string {
	tb.Helper()
	return dumpBut(tb, db, "")
}

// dumpBut leaves out the rows of one table that match a condition, written as
// TABLE where CONDITION.
func dumpBut(tb testing.TB, db *sql.DB, but string) string {
	tb.Helper()
	but, condition, _ := strings.Cut(but, " where ")
	var lines []string
	for _, table := range dbtest.Tables(tb, db) {
		query := `select * from "` + table + `"`
		if table == but {
			query += ` where not (` + condition + `)`
		}
		rows, err := db.Query(query)
		if err != nil {
			tb.Fatal(err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values, dest := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			if err := rows.Scan(dest...); err != nil {
				tb.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %v\n", table, values))
		}
		if err := rows.Err(); err != nil {
			tb.Fatal(err)
		}
		rows.Close()
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Unchanged fails when act changes either database.
func (f *Fixture) Unchanged(act func()) {
	f.TB.Helper()
	before := f.Dump()
	act()
	if after := f.Dump(); after != before {
		f.TB.Errorf("the databases changed:\n%s", LineDiff(before, after))
	}
}

// LineDiff lists the lines that only one of two texts has.
func LineDiff(before, after string) string {
	var b strings.Builder
	had, has := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range had {
		if !slices.Contains(has, line) {
			fmt.Fprintln(&b, "-", line)
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			fmt.Fprintln(&b, "+", line)
		}
	}
	return b.String()
}

// Modified says when either database was last written: the times and sizes of SQLite's files,
// the youngest transaction in each of PostgreSQL's tables.
func (f *Fixture) Modified() string {
	f.TB.Helper()
	var b strings.Builder
	if dbtest.Postgres() {
		for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
			for _, table := range dbtest.Tables(f.TB, db) {
				var last string
				if err := db.QueryRow(`select concat(max(cast(cast(xmin as text) as bigint)), ' ', count(*)) from "` + table + `"`).Scan(&last); err != nil {
					f.TB.Fatal(err)
				}
				fmt.Fprintln(&b, table, last)
			}
		}
		return b.String()
	}
	for _, name := range []string{"journal.db", "journal.db-wal", "projections.db", "projections.db-wal"} {
		info, err := os.Stat(filepath.Join(f.Pair.Dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			f.TB.Fatal(err)
		}
		if err == nil {
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
