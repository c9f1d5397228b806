package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// The examples of docs/intake.md are run as they are written, each in a program of its language, that in
// TypeScript in a soak, and their events come to the journal in their order.
func TestPostgresIntake_examplesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	shop := newPostgres(t).url
	psql(t, shop, mustCommand(t, d, nil, "intake", "schema", "postgres", "--notify")+`
create table orders (id text primary key, status text);
insert into orders values ('order-17', 'open');`)
	examples := examplesOf(t, "../docs/intake.md")
	want := []string{"e-sql-1"}
	psql(t, shop, examples["sql"])
	if python(t, shop, examples["python"]) {
		want = append(want, "e-python-1")
	}
	if size.Soak() && typeScript(t, shop, examples["typescript"]) {
		want = append(want, "e-typescript-1")
	}
	s := start(t, d, d.config(t, fmt.Sprintf("sources:\n  shop: {url: %q}\n", shop))...)
	eventually(t, patience, "the events are in the journal", func() (bool, string) {
		got := lists(t, d.journal(), `select campaign_id as campaign, event_id as event from events order by seq`)["order-17"]
		return slices.Equal(got, want), fmt.Sprint(got)
	})
	t.Logf("note: %v", want)
	eventually(t, patience, "the rows are counted", func() (bool, string) { // after they are in the journal
		moved := s.metric(t, `outboxweb_intake_rows_total{source="shop"}`)
		return int(moved) == len(want), fmt.Sprint(moved)
	})
	must.Equal(t, scalar[string](t, shop, `select status from orders`), "paid", "the order")
}

// The example for SQLite is run with Python's standard library.
func TestIntake_exampleForSQLite(t *testing.T) {
	t.Parallel()
	const program = "/usr/bin/python3"
	if out, err := exec.CommandContext(t.Context(), program, "-c", "import sqlite3").CombinedOutput(); err != nil {
		t.Skipf("there is no Python with sqlite3: %v: %s", err, out)
	}
	d := newDatabases(t)
	place := filepath.Join(t.TempDir(), "shop.db")
	shop := must.Get(sql.Open("sqlite", "file:"+place+"?_pragma=journal_mode(wal)")).Or(t)
	defer shop.Close()
	must.Get(shop.Exec(mustCommand(t, d, nil, "intake", "schema", "sqlite") + `
create table orders (id text primary key, status text);
insert into orders values ('order-17', 'open');`)).Or(t)
	run(t, ".", program, "-c", fmt.Sprintf("import json, sqlite3\nconn = sqlite3.connect(%q, timeout=5)\n%s", place, examplesOf(t, "../docs/intake.md")["python sqlite"]))
	start(t, d, d.config(t, "sources:\n  shop: {url: \"sqlite:"+place+"\"}\n")...)
	eventually(t, patience, "the event is in the journal", func() (bool, string) {
		got := lists(t, d.journal(), `select campaign_id as campaign, event_id as event from events order by seq`)["order-17"]
		return slices.Equal(got, []string{"e-python-2"}), fmt.Sprint(got)
	})
	must.Equal(t, scalar[string](t, place, `select status from orders`), "paid", "the order")
}

// examplesOf are the last blocks of code of each language in a document.
func examplesOf(t *testing.T, name string) map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile(name)).Or(t)
	all := map[string]string{}
	for i, part := range strings.Split(string(text), "\n```") {
		if language, code, found := strings.Cut(part, "\n"); i%2 == 1 && found {
			all[language] = code
		}
	}
	return all
}

func psql(t *testing.T, place, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "psql", "-v", "ON_ERROR_STOP=1", "-q", place)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "psql: %v: %s", err, out)
}

// python runs an example with Debian's Python, if that has psycopg2.
func python(t *testing.T, place, example string) bool {
	t.Helper()
	const program = "/usr/bin/python3"
	if out, err := exec.CommandContext(t.Context(), program, "-c", "import psycopg2").CombinedOutput(); err != nil {
		must.Need(t, os.Getenv("CI") == "", "there is no psycopg2: %v: %s", err, out)
		t.Logf("note: without psycopg2 the example in Python is not run: %v: %s", err, out)
		return false
	}
	run(t, ".", program, "-c", fmt.Sprintf("import json, psycopg2\nconn = psycopg2.connect(%q)\n%s", place, example))
	return true
}

// typeScript runs an example with pg, if npm has it or can fetch it.
func typeScript(t *testing.T, place, example string) bool {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.CopyFS(dir, os.DirFS("intake")))
	main := fmt.Sprintf("import pg from \"pg\";\nconst client = new pg.Client({ connectionString: %q });\nawait client.connect();\n%s\nawait client.end();\n", place, example)
	must.OK(t, os.WriteFile(filepath.Join(dir, "main.ts"), []byte(main), 0o600))
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Logf("note: without npm's packages the example in TypeScript is not run: %v: %s", err, out)
		return false
	}
	run(t, dir, filepath.Join(dir, "node_modules", ".bin", "tsc"))
	run(t, dir, "node", filepath.Join(dir, "main.js"))
	return true
}
