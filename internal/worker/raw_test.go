package worker_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// journal and projections are connections of somebody else to the files.
func (b *bench) journal(tb testing.TB) *sql.DB     { return raw(tb, b.dir, "journal.db") }
func (b *bench) projections(tb testing.TB) *sql.DB { return raw(tb, b.dir, "projections.db") }

func raw(tb testing.TB, dir, file string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, file)+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)")
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { db.Close() })
	return db
}

func mustExec(tb testing.TB, db *sql.DB, statements ...string) {
	tb.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// column reads the first column of a query's answer.
func column[T any](tb testing.TB, db *sql.DB, query string, args ...any) []T {
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

// tamper changes the journal as only somebody with the file in hand can.
func (b *bench) tamper(tb testing.TB, statements ...string) {
	tb.Helper()
	db := b.journal(tb)
	mustExec(tb, db, `drop trigger if exists events_refuse_update`, `drop trigger if exists events_refuse_delete`)
	mustExec(tb, db, statements...)
}

// dump is the whole content of both databases but the tables named.
func (b *bench) dump(tb testing.TB, except ...string) string {
	tb.Helper()
	return dumpDatabase(tb, b.journal(tb), except) + dumpDatabase(tb, b.projections(tb), except)
}

func dumpDatabase(tb testing.TB, db *sql.DB, except []string) string {
	tb.Helper()
	var out strings.Builder
	for _, table := range column[string](tb, db, `select name from sqlite_schema where type = 'table' order by name`) {
		if slices.Contains(except, table) {
			continue
		}
		var quoted []string
		for _, name := range column[string](tb, db, `select name from pragma_table_info($1) order by cid`, table) {
			quoted = append(quoted, `quote("`+name+`")`)
		}
		fmt.Fprintf(&out, "%s\n", table)
		for _, row := range column[string](tb, db, `select concat_ws(' ', `+strings.Join(quoted, ", ")+`) from "`+table+`" order by 1`) {
			fmt.Fprintf(&out, "  %s\n", row)
		}
	}
	return out.String()
}

func mustEqual(tb testing.TB, what, before, after string) {
	tb.Helper()
	if before == after {
		return
	}
	diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n"))
	tb.Errorf("%s changed something (-before +after):\n%.4000s", what, diff)
}

// fileVersion is what SQLite and the file system say about a database's last
// change.
type fileVersion struct {
	version func() int // changes with every commit of another connection
	paths   []string
	number  int
	sizes   []int64
}

func versionOf(tb testing.TB, b *bench, file string) fileVersion {
	tb.Helper()
	db := raw(tb, b.dir, file)
	path := filepath.Join(b.dir, file)
	v := fileVersion{paths: []string{path, path + "-wal"}}
	v.version = func() int { return column[int](tb, db, `pragma data_version`)[0] }
	v.number, v.sizes = v.version(), sizesOf(tb, v.paths)
	return v
}

func sizesOf(tb testing.TB, paths []string) []int64 {
	tb.Helper()
	var sizes []int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			tb.Fatal(err)
		}
		sizes = append(sizes, info.Size(), info.ModTime().UnixNano())
	}
	return sizes
}

func (v fileVersion) mustBeCurrent(tb testing.TB, what string) {
	tb.Helper()
	if now := v.version(); now != v.number {
		tb.Errorf("%s: %s was committed to", what, v.paths[0])
	}
	if now := sizesOf(tb, v.paths); !slices.Equal(now, v.sizes) {
		tb.Errorf("%s: size and time of %v went from %v to %v", what, v.paths, v.sizes, now)
	}
}

// loseRows takes away rows of a campaign whose head they are, and lets the
// campaign's row know, as in a database restored from an older copy.
func loseRows(tb testing.TB, b *bench, campaign string, first, last int) {
	tb.Helper()
	db := b.journal(tb)
	for _, statement := range []string{
		`delete from projection_apply_outbox where campaign_id = $1 and seq between $2 and $3`,
		`update campaigns
set pending = pending - ($3 - $2 + 1),
  head_seq = (select min(seq) from projection_apply_outbox where campaign_id = $1),
  head_status = (select 'pending' where exists (select 1 from projection_apply_outbox where campaign_id = $1)),
  head_next_attempt_at = (select min(next_attempt_at) from projection_apply_outbox where campaign_id = $1)
where campaign_id = $1`,
	} {
		if _, err := db.Exec(statement, campaign, first, last); err != nil {
			tb.Fatal(err)
		}
	}
}
