package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

const (
	root   = "../.."
	module = "github.com/outboxweb/outboxweb/"
)

// mayImport is the import table: which of our packages each package may import. cmd/outboxweb may
// import all of them.
var mayImport = map[string][]string{
	"internal/finding":    {},
	"internal/outbox":     {"internal/finding"},
	"internal/request":    {"internal/outbox"},
	"internal/sqldb":      {"internal/outbox"},
	"internal/migrations": {},

	"internal/readmodel":  {"internal/outbox", "internal/sqldb"},
	"internal/store":      {"internal/outbox", "internal/sqldb", "internal/migrations", "internal/readmodel", "internal/loop"},
	"internal/projection": {"internal/outbox"},
	"internal/loop":       {"internal/outbox"},

	"internal/worker":                 {"internal/outbox", "internal/sqldb", "internal/readmodel", "internal/store", "internal/maintenance", "internal/projection", "internal/loop", "internal/metrics", "internal/redact"},
	"internal/maintenance":            {"internal/outbox", "internal/sqldb", "internal/readmodel", "internal/store"},
	"internal/operations":             {"internal/outbox", "internal/sqldb", "internal/readmodel", "internal/store", "internal/loop"},
	"internal/search":                 {"internal/outbox", "internal/sqldb", "internal/store"},
	"internal/tokens":                 {"internal/outbox", "internal/sqldb", "internal/store"},
	"internal/runs":                   {"internal/outbox", "internal/sqldb", "internal/readmodel", "internal/store", "internal/projection", "internal/loop"},
	"internal/timetravel":             {"internal/outbox", "internal/store", "internal/projection", "internal/runs"},
	"internal/publishing":             {"internal/outbox", "internal/sqldb", "internal/store", "internal/loop", "internal/metrics", "internal/publishing/destination"},
	"internal/publishing/destination": {"internal/outbox", "internal/outbound"},
	"internal/outbound":               {"internal/outbox"},

	"internal/facts":  {"internal/outbox", "internal/store", "internal/operations", "internal/runs", "internal/publishing", "internal/intake"},
	"internal/alerts": {"internal/outbox", "internal/sqldb", "internal/store", "internal/loop", "internal/metrics", "internal/outbound"},

	"intake":          {"internal/outbox"},
	"internal/intake": {"intake", "internal/outbox", "internal/sqldb", "internal/store", "internal/loop", "internal/metrics", "internal/outbound"},

	"internal/auth":     {"internal/outbox"},
	"internal/metrics":  {"internal/outbox"},
	"internal/redact":   {"internal/outbox"},
	"internal/sample":   {"internal/outbox"},
	"docs":              {},
	"web/static":        {},
	"web/templates":     {"internal/finding", "internal/outbox", "internal/request", "web/static", "docs"},
	"internal/handlers": {"internal/finding", "internal/facts", "internal/outbox", "internal/request", "internal/readmodel", "internal/store", "internal/search", "internal/maintenance", "internal/operations", "internal/runs", "internal/timetravel", "internal/publishing", "internal/tokens", "internal/alerts", "internal/intake", "internal/auth", "internal/metrics", "internal/redact", "web/templates", "web/static", "docs"},

	"github.com/outboxweb/outboxweb": {"internal/alerts", "internal/auth", "internal/engine", "internal/handlers", "internal/intake", "internal/outbox", "internal/projection", "internal/publishing/destination", "internal/store"},
	"examples/shop":                  {"github.com/outboxweb/outboxweb", "intake"},

	"internal/engine": {"internal/facts", "internal/loop", "internal/outbox", "internal/intake", "internal/store", "internal/search", "internal/maintenance", "internal/operations", "internal/runs", "internal/timetravel", "internal/projection", "internal/publishing", "internal/publishing/destination", "internal/tokens", "internal/alerts", "internal/worker", "internal/metrics", "internal/redact", "internal/handlers"},

	"internal/apitest":    {},
	"internal/cputest":    {},
	"internal/must":       {},
	"internal/size":       {},
	"internal/pgtest":     {"internal/must"},
	"internal/dbtest":     {"internal/must", "internal/pgtest", "internal/size"},
	"internal/storetest":  {"internal/outbox", "internal/readmodel", "internal/store", "internal/maintenance", "internal/dbtest", "internal/must"},
	"internal/enginetest": {"internal/outbox", "internal/store", "internal/projection", "internal/operations", "internal/runs", "internal/worker", "internal/dbtest", "internal/must", "internal/size", "internal/storetest"},
	"internal/corpus":     {"internal/outbox", "internal/sample", "internal/must", "internal/size"},
	"e2e":                 {"intake", "internal/apitest", "internal/pgtest", "internal/must", "internal/size"},
}

type listedPackage struct {
	ImportPath, Dir                             string
	GoFiles, Imports, TestImports, XTestImports []string
}

func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	must.Need(t, err == nil, "go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	return out
}

// listed are the packages of the house, which are listed once.
var listed struct {
	sync.Once
	all []listedPackage
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	listed.Do(func() {
		dec := json.NewDecoder(bytes.NewReader(goTool(t, "list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")))
		for dec.More() {
			var p listedPackage
			must.OK(t, dec.Decode(&p))
			listed.all = append(listed.all, p)
		}
	})
	must.Need(t, len(listed.all) > 0, "no package is listed")
	return listed.all
}

func TestHouse_importsFollowTheTable(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "cmd/outboxweb" {
			continue
		}
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		imports := p.Imports
		if name == "e2e" {
			imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
		for _, imported := range imports {
			ours, isOurs := strings.CutPrefix(imported, module)
			switch {
			case isOurs && !slices.Contains(allowed, ours):
				t.Errorf("%s imports %s, which the table does not allow", name, ours)
			case !isOurs && (name == "internal/finding" || name == "internal/outbox" || name == "intake") && strings.Contains(imported, "."):
				t.Errorf("%s imports %s; it may import the standard library only", name, imported)
			}
		}
	}
}

func TestHouse_onlyCommandsReadCommandLineAndEnvironment(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if slices.Contains([]string{"cmd/outboxweb", "internal/corpus", "internal/dbtest", "internal/size", "internal/enginetest"}, strings.TrimPrefix(p.ImportPath, module)) {
			continue // only used by tests: whether they run in CI, on which database, and whether as a server's probe
		}
		for _, file := range p.GoFiles {
			set := token.NewFileSet()
			tree := must.Get(parser.ParseFile(set, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)).Or(t)
			ast.Inspect(tree, func(n ast.Node) bool {
				selected, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				of, ok := selected.X.(*ast.Ident)
				if ok && of.Name == "os" && slices.Contains([]string{"Args", "Getenv", "LookupEnv", "Environ", "ExpandEnv"}, selected.Sel.Name) {
					t.Errorf("%s uses os.%s; only commands may", set.Position(n.Pos()), selected.Sel.Name)
				}
				return true
			})
		}
	}
}

func requirement(t *testing.T, gomod, of string) string {
	t.Helper()
	var file struct {
		Require []struct{ Path, Version string }
	}
	must.OK(t, json.Unmarshal(goTool(t, "mod", "edit", "-json", gomod), &file))
	for _, r := range file.Require {
		if r.Path == of {
			return r.Version
		}
	}
	t.Fatalf("%s does not require %s", gomod, of)
	return ""
}

// modernc.org/sqlite only works with the libc version it was translated for.
func TestHouse_libcIsTheOneSQLiteNames(t *testing.T) {
	t.Parallel()
	var module struct{ GoMod string }
	must.OK(t, json.Unmarshal(goTool(t, "list", "-m", "-json", "modernc.org/sqlite"), &module))
	ours, theirs := requirement(t, "go.mod", "modernc.org/libc"), requirement(t, module.GoMod, "modernc.org/libc")
	must.Equal(t, ours, theirs, "the version of modernc.org/libc, which is that of modernc.org/sqlite")
}

// templ only warns when generator and runtime differ.
func TestHouse_templGeneratorIsTheRuntimesVersion(t *testing.T) {
	t.Parallel()
	runtime, generator := requirement(t, "go.mod", "github.com/a-h/templ"), requirement(t, "tools/go.mod", "github.com/a-h/templ")
	must.Equal(t, runtime, generator, "the version of templ, which is that of tools/go.mod")
}

// notices is THIRD_PARTY_NOTICES.md: the modules in the program, each with the text of its licence.
func notices(t *testing.T) string {
	t.Helper()
	type module struct{ Path, Version, Dir string }
	dirs := map[string]module{}
	dec := json.NewDecoder(bytes.NewReader(goTool(t, "list", "-deps", "-json=Module", "./cmd/outboxweb")))
	for dec.More() {
		var p struct{ Module *module }
		must.OK(t, dec.Decode(&p))
		if p.Module != nil && p.Module.Version != "" {
			dirs[p.Module.Path] = *p.Module
		}
	}
	paths := slices.Sorted(maps.Keys(dirs))
	var b strings.Builder
	b.WriteString("# Third-party notices\n\noutboxweb is built with these modules, and its pages with htmx, idiomorph and IBM Plex. Their licences follow.\n\n")
	for _, path := range paths {
		b.WriteString("- " + path + "\n")
	}
	for _, path := range append(paths, "htmx", "idiomorph", "plex") {
		b.WriteString("\n## " + path + "\n\n```text\n" + licence(t, path, dirs[path].Dir) + "\n```\n")
	}
	return b.String()
}

func licence(t *testing.T, path, dir string) string {
	t.Helper()
	names := []string{"LICENSE*", "LICENCE*", "COPYING*", "License*"}
	if dir == "" { // of a browser library
		dir, names = filepath.Join(root, "web", "static", "vendor"), []string{"LICENSE." + path}
	}
	for _, name := range names {
		if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) > 0 {
			text := must.Get(os.ReadFile(found[0])).Or(t)
			return strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
		}
	}
	t.Fatalf("%s has no licence in %s", path, dir)
	return ""
}

// With OUTBOXWEB_UPDATE=1 in the environment the test writes the notices instead
// of comparing them.
func TestNotices_areOfTheModulesInTheProgram(t *testing.T) {
	t.Parallel()
	name, want := filepath.Join(root, "THIRD_PARTY_NOTICES.md"), notices(t)
	if os.Getenv("OUTBOXWEB_UPDATE") != "" {
		must.OK(t, os.WriteFile(name, []byte(want), 0o644))
	}
	if have, err := os.ReadFile(name); err != nil || string(have) != want {
		t.Errorf("THIRD_PARTY_NOTICES.md is not of the modules in the program (%v); OUTBOXWEB_UPDATE=1 go test ./cmd/outboxweb -run Notices writes it", err)
	}
}

// otherwise are the commands of routes whose path does not say it.
var otherwise = map[string]string{
	"/campaigns/{campaign}/events":              "append",
	"/campaigns/{campaign}/events/{seq}/unskip": "unskip",
	"/operations":                         "requeue",
	"/runs":                               "runs start",
	"/rehearsals":                         "rehearse",
	"/gaps/repair":                        "gaps",
	"/tokens/{token}/revoke":              "token revoke",
	"/publisher-names/{publisher}/pause":  "publishers pause",
	"/publisher-names/{publisher}/resume": "publishers resume",
}

// actCommand is the command of a route of the API that takes a POST: the first and the last word of its path,
// except for rows, which need no first one.
func actCommand(path string) string {
	words := strings.Split(strings.Trim(path, "/"), "/")
	command := words[0] + " " + words[len(words)-1]
	return cmp.Or(otherwise[path], strings.TrimPrefix(command, "rows "))
}

// withoutCommand are the routes that take a POST and have no command, with the
// reason.
var withoutCommand = map[string]string{
	"/campaigns/{campaign}/events/{seq}/reveal": "the command line reads the database itself, with the rights of its user, and hides nothing",
	"/operations/preview":                       "it changes nothing; starting an operation says the same, and asks for its phrase",
}

func TestCommands_doWhatTheAPIDoes(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "internal/handlers/openapi.json"))).Or(t)
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	must.OK(t, json.Unmarshal(text, &document))
	var c cli
	commands := map[string]bool{}
	for _, leaf := range newParser(&c, streams{}).Model.Leaves(false) {
		name, _, _ := strings.Cut(strings.TrimPrefix(leaf.FullPath(), "outboxweb "), " <")
		commands[strings.TrimSpace(name)] = true
	}
	for path, methods := range document.Paths {
		if methods["post"] == nil {
			continue
		}
		command, exempt := actCommand(path), withoutCommand[path] != ""
		must.Hold(t, exempt != commands[command], "POST %s is to have the command %q, or a reason to have none: %v", path, command, commands)
	}
	for path := range withoutCommand {
		must.Hold(t, document.Paths[path]["post"] != nil, "there is no POST %s", path)
	}
}
