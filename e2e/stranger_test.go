package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// Another module requires this one with a plain require, and the excludes and replaces of our go.mod
// do not reach it: it is tidied, vetted, built and run all the same.
func TestPackage_isImportedByAnotherModule(t *testing.T) {
	t.Parallel()
	size.Full(t, "tidying and compiling a module takes long")
	readSources()
	here := must.Get(filepath.Abs("..")).Or(t)
	dir := t.TempDir()
	must.OK(t, os.CopyFS(dir, os.DirFS("testdata/stranger")))
	module := "module example.com/stranger\n\ngo 1.26.0\n\nrequire github.com/outboxweb/outboxweb v0.0.0\n\nreplace github.com/outboxweb/outboxweb => " + here + "\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o644))
	service := filepath.Join(dir, "service")
	documented := must.Get(os.ReadFile("../docs/embedding.md")).Or(t)
	_, program, _ := strings.Cut(string(documented), "```go\npackage main\n")
	program, _, _ = strings.Cut(program, "```")
	must.OK(t, os.Mkdir(service, 0o755))
	must.OK(t, os.WriteFile(filepath.Join(service, "main.go"), []byte("package main\n"+program), 0o644))
	run(t, dir, "go", "mod", "tidy")
	run(t, dir, "go", "vet", "./...")
	run(t, dir, "go", "build", "-ldflags", withoutSymbols, "-o", dir+"/built/", "./...")
	tidied := must.Get(os.ReadFile(filepath.Join(dir, "go.mod"))).Or(t)
	for _, unwanted := range []string{"exclude", "nats-server", "chromedp", "kong", "rapid"} { // tests and the command alone need them
		must.Hold(t, !strings.Contains(string(tidied), unwanted), "the other module's go.mod has %s:\n%s", unwanted, tidied)
	}
	said := run(t, dir, "built/stranger")
	must.Hold(t, strings.Contains(said, `"applied_seq":1`) && strings.HasSuffix(said, "<nil>\n"), "it says %s", said)
	serveOrders(t, filepath.Join(dir, "built"))
}

// serveOrders runs the program of the documentation, from an order to its read model.
func serveOrders(t *testing.T, dir string) {
	addr := portOfOurs(t)
	cmd := exec.Command("./service")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "ADDR="+addr)
	ended := listens(t, cmd, addr)
	s := &server{url: "http://" + addr, client: http.DefaultClient}
	for _, want := range []int{http.StatusOK, http.StatusInternalServerError} { // the second is the same order
		s.post(t, want, "/orders/17?item=tea", nil)
	}
	s.awaitAnswer(t, http.MethodGet, "/orders/17", nil, http.StatusOK, "tea\n")
	s.awaitAnswer(t, http.MethodGet, "/admin/api/v1/campaigns/17", nil, http.StatusOK, `"high_water_seq":1,"applied_seq":1`)
	must.OK(t, cmd.Process.Signal(os.Interrupt))
	<-ended
	must.Equal(t, cmd.ProcessState.ExitCode(), 0, "it ended with")
}

// Clients generated from the document compile, and their calls return the server's answers.
func TestAPI_isUsedThroughGeneratedClients(t *testing.T) {
	t.Parallel()
	size.Full(t, "generating and compiling clients takes long")
	readSources()
	for _, language := range []struct {
		name  string
		build func(t *testing.T, dir string) (program []string)
	}{{"Go", buildGoClient}, {"TypeScript", buildTypeScriptClient}} {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			if language.name == "TypeScript" && !size.Soak() {
				t.Skip("only in a soak: it installs a compiler")
			}
			dir := t.TempDir()
			must.OK(t, os.CopyFS(dir, os.DirFS("client")))
			useAPI(t, language.build(t, dir))
		})
	}
}

func useAPI(t *testing.T, program []string) {
	s, _ := startSeats(t, quickDeath...)
	appendTo(t, s, "", "a/b", seats("ana", "ben", "ana", "dee"))
	awaitCounts(t, s, "", 1, 0, 1)

	said := run(t, ".", program[0], append(program[1:], s.url+"/api/v1", "a/b", "3")...)
	want := `appended a/b 5
appended a/b 5
blocked a/b at 3
dead after 2 attempts: map[seat:seat-3 user:ana]
pending again, attempts 0
urn:outboxweb:not-found
`
	must.Equal(t, said, want, "the client says")
}

const apiDocument = "../internal/handlers/openapi.json"

func buildGoClient(t *testing.T, dir string) (program []string) {
	must.OK(t, os.Mkdir(filepath.Join(dir, "api"), 0o755))
	run(t, ".", "go", "tool", "-modfile=../tools/go.mod", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", filepath.Join(dir, "api", "api.go"), apiDocument)
	run(t, dir, "go", "build", "-trimpath", "-ldflags", withoutSymbols, "-o", "program", ".") // without its path the cache has it the next time
	return []string{filepath.Join(dir, "program")}
}

// buildTypeScriptClient makes the program of main.ts with the types of openapi-typescript. It needs npm and what npm
// has cached or can fetch, which no other test does.
func buildTypeScriptClient(t *testing.T, dir string) (program []string) {
	if !npm(t, dir) {
		t.Skip("without npm's packages there is no TypeScript")
	}
	document := must.Get(filepath.Abs(apiDocument)).Or(t)
	bin := filepath.Join(dir, "node_modules", ".bin")
	run(t, dir, filepath.Join(bin, "openapi-typescript"), document, "-o", "api.d.ts")
	run(t, dir, filepath.Join(bin, "tsc"))
	return []string{"node", filepath.Join(dir, "main.js")}
}

// npm installs what the package in a directory needs, and reports whether it could.
func npm(t *testing.T, dir string) bool {
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = dir
	out, err := install.CombinedOutput()
	if err != nil {
		t.Logf("note: without npm's packages there is no TypeScript: %v: %s", err, out)
	}
	return err == nil
}

func run(t *testing.T, dir, program string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "%s %v: %v: %s", program, args, err, out)
	return string(out)
}

// The examples of docs/intake.md are run as they are written, each in a program of its language, that in
// TypeScript in a soak, and their events come to the journal in their order.
func TestPostgresIntake_examplesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	shop := newPostgres(t).url
	psql(t, shop, mustCommand(t, d, nil, "intake", "schema", "postgres", "--notify")+`
create table orders (id text primary key, status text);
insert into orders values ('order-17', 'open');`)
	examples, want := examplesOf(t, "../docs/intake.md"), []string{"e-sql-1"}
	psql(t, shop, examples["sql"])
	if python(t, shop, examples["python"]) {
		want = append(want, "e-python-1")
	}
	if size.Soak() && typeScript(t, shop, examples["typescript"]) {
		want = append(want, "e-typescript-1")
	}
	s := start(t, d, d.config(t, fmt.Sprintf("sources:\n  shop: {url: %q}\n", shop))...)
	awaitEqual(t, "the events are in the journal", fmt.Sprint(want), func() string { return fmt.Sprint(d.eventsOf(t, "order-17")) })
	t.Logf("note: %v", want)
	awaitEqual(t, "the rows are counted", len(want), func() int { return int(s.metric(t, `outboxweb_intake_rows_total{source="shop"}`)) }) // after they are in the journal
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
	awaitEqual(t, "the event is in the journal", "[e-python-2]", func() string { return fmt.Sprint(d.eventsOf(t, "order-17")) })
	must.Equal(t, scalar[string](t, place, `select status from orders`), "paid", "the order")
}

func (d databases) eventsOf(t *testing.T, campaign string) []string {
	return lists(t, d.journal(), `select campaign_id as campaign, event_id as event from events order by seq`)[campaign]
}

// examplesOf are the last blocks of code of each language in a document.
func examplesOf(t *testing.T, name string) map[string]string {
	text, all := must.Get(os.ReadFile(name)).Or(t), map[string]string{}
	for i, part := range strings.Split(string(text), "\n```") {
		if language, code, found := strings.Cut(part, "\n"); i%2 == 1 && found {
			all[language] = code
		}
	}
	return all
}

func psql(t *testing.T, place, text string) {
	cmd := exec.CommandContext(t.Context(), "psql", "-v", "ON_ERROR_STOP=1", "-q", place)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "psql: %v: %s", err, out)
}

// python runs an example with Debian's Python, if that has psycopg2.
func python(t *testing.T, place, example string) bool {
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
	dir := t.TempDir()
	must.OK(t, os.CopyFS(dir, os.DirFS("intake")))
	main := fmt.Sprintf("import pg from \"pg\";\nconst client = new pg.Client({ connectionString: %q });\nawait client.connect();\n%s\nawait client.end();\n", place, example)
	must.OK(t, os.WriteFile(filepath.Join(dir, "main.ts"), []byte(main), 0o600))
	if !npm(t, dir) {
		return false
	}
	run(t, dir, filepath.Join(dir, "node_modules", ".bin", "tsc"))
	run(t, dir, "node", filepath.Join(dir, "main.js"))
	return true
}
