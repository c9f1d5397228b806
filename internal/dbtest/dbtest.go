// Package dbtest runs the tests of a package on both databases: once with
// SQLite files, once with PostgreSQL.
//
//	func TestMain(m *testing.M) {
//		os.Exit(dbtest.Main(m, "^TestClaim", func(p dbtest.Pair) error { … migrate p … }))
//	}
//
//	func TestClaim(t *testing.T) { p := dbtest.New(t); … open p.Journal and p.Projections … }
//
// Tests about one of the databases alone are named TestSQLite… or
// TestPostgres…, and run on that one only. The flag -db, or TEST_DB, picks one database.
// Fuzzing, and listing tests, is on SQLite unless it says otherwise.
//
// A test costs ten times as much on PostgreSQL, most of it for connections. A
// short run (go test -short) is therefore whole on SQLite, and on PostgreSQL
// only what each package names.
package dbtest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/size"
)

// Pair names the two databases of one test.
type Pair struct {
	Journal, Projections string // URLs
	// Dir is the test's own directory; on SQLite it contains journal.db and projections.db.
	Dir string
}

var only = flag.String("db", os.Getenv("TEST_DB"), "run the tests on this database alone: sqlite or postgres")

// What the tests currently run on.
var (
	server *pgtest.Server // nil on SQLite
	empty  string         // directory with a migrated pair of files; empty when there is none
)

// Postgres reports whether the tests currently run on PostgreSQL.
func Postgres() bool { return server != nil }

// Server is the server that the tests run on; nil on SQLite.
func Server() *pgtest.Server { return server }

// Main runs the tests of m on SQLite, then on PostgreSQL, and returns the exit code. Each
// test's databases are copies of the pair that prepare has filled and closed. differs matches
// the names of the tests in which PostgreSQL behaves differently; a short run has only these on it,
// or none, unless -db or -run selects others.
func Main(m *testing.M, differs string, prepare func(Pair) error) int {
	flag.Parse()
	some := testing.Short() && *only == "" && !given("test.run")
	if *only == "" && (given("test.fuzz") || given("test.list")) {
		*only = "sqlite"
	}
	if flag.Lookup("rapid.checks") != nil {
		Checks(size.Of(50, 30, 100)) // in a short run rapid tries a fifth
	}
	code := 0
	for _, run := range []struct {
		name string
		with func(func(Pair) error, func() int) (int, error)
		skip string
	}{{"sqlite", onSQLite, "^TestPostgres"}, {"postgres", onPostgres, "^TestSQLite"}} {
		little := some && run.name == "postgres"
		if *only != "" && *only != run.name || little && differs == "" {
			continue
		}
		set("test.skip", run.skip)
		if little {
			set("test.run", differs)
		}
		one, err := run.with(prepare, m.Run)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", run.name, err)
			one = 1
		}
		if one != 0 {
			fmt.Fprintf(os.Stderr, "FAIL on %s\n", run.name)
		}
		code = cmp.Or(code, one)
	}
	return code
}

// Checks sets how many random histories a test tries on the current database, unless
// -rapid.checks is given. In a short run rapid tries a fifth of them, so fewer than 5 would be
// none.
func Checks(n int) {
	if !checksAsked() {
		if size.Little() && !testing.Short() { // in a short run rapid does it
			n = max(n/5, 1)
		}
		set("rapid.checks", strconv.Itoa(n))
	}
}

// checksAsked reports whether the command line has -rapid.checks. It must be called before
// Checks first sets the flag.
var checksAsked = sync.OnceValue(func() (asked bool) {
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	return asked
})

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}

func given(name string) bool {
	f := flag.Lookup(name)
	return f != nil && f.Value.String() != ""
}

func onSQLite(prepare func(Pair) error, run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "dbtest")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := prepare(Files(dir)); err != nil {
		return 0, err
	}
	empty = dir
	return run(), nil
}

func onPostgres(prepare func(Pair) error, run func() int) (int, error) {
	started, err := pgtest.Shared()
	if err != nil {
		return 0, err
	}
	server = started
	err = server.Template(context.Background(), func(url string) error { return prepare(schemas(url)) })
	code := 0
	if err == nil {
		code = run()
	}
	server = nil
	return code, errors.Join(err, started.Stop())
}

// New creates a migrated, empty pair for one test.
func New(tb testing.TB) Pair {
	tb.Helper()
	if server != nil {
		p := schemas(server.Database(tb))
		p.Dir = tb.TempDir()
		return p
	}
	dir := tb.TempDir()
	for _, name := range []string{"journal.db", "projections.db"} {
		content, err := os.ReadFile(filepath.Join(empty, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return Files(dir)
}

// Fresh creates an empty pair without migrations, for one test.
func Fresh(tb testing.TB) Pair {
	tb.Helper()
	if server == nil {
		return Files(tb.TempDir())
	}
	p := schemas(server.Empty(tb))
	p.Dir = tb.TempDir()
	return p
}

// Files is the pair of SQLite files in a directory.
func Files(dir string) Pair {
	return Pair{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db"), Dir: dir}
}

// schemas is the pair of schemas in one PostgreSQL database.
func schemas(database string) Pair {
	return Pair{Journal: InSchema(database, "journal"), Projections: InSchema(database, "projections")}
}

// InSchema is the URL of a PostgreSQL database with a schema.
func InSchema(database, schema string) string { return With(database, "search_path", schema) }

// With is a URL with a parameter, or without it where the value is empty.
func With(database, name, value string) string {
	u, err := url.Parse(database)
	if err != nil {
		panic(err)
	}
	query := u.Query()
	if query.Set(name, value); value == "" {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Open opens a separate connection to a database of a pair, bypassing the store. It is closed
// at the test's end.
func Open(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	var db *sql.DB
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		var err error
		if db, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)"); err != nil {
			tb.Fatal(err)
		}
	} else {
		config := must.Get(pgx.ParseConfig(url)).Or(tb)
		db = stdlib.OpenDB(*config)
	}
	db.SetMaxOpenConns(2)
	tb.Cleanup(func() { db.Close() })
	return db
}

// Tables lists the tables of a database that Open connected to, by name.
func Tables(tb testing.TB, db *sql.DB) []string {
	tb.Helper()
	query := `select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name`
	if _, ok := db.Driver().(*stdlib.Driver); ok {
		query = `select tablename from pg_tables where schemaname = current_schema() order by tablename collate "C"`
	}
	rows := must.Get(db.Query(query)).Or(tb)
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		must.OK(tb, rows.Scan(&name))
		names = append(names, name)
	}
	must.OK(tb, rows.Err())
	return names
}
