package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	"github.com/outboxweb/outboxweb/internal/operator"
)

const (
	root   = "../.."
	module = "github.com/outboxweb/outboxweb/"
)

// mayImport is the import table: which of our packages each package may import. cmd/outboxweb may
// import all of them.
var mayImport = map[string][]string{
	"internal/finding":      {},
	"internal/event":        {},
	"internal/database":     {"internal/event", "internal/finding"},
	"internal/operator":     {"internal/event"},
	"internal/campaign":     {"internal/event", "internal/finding", "internal/database", "internal/operator"},
	"internal/subscription": {"internal/event", "internal/finding", "internal/operator", "internal/campaign"},
	"internal/inbound":      {"internal/event", "internal/finding", "internal/campaign"},
	"internal/replay":       {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/projection"},
	"internal/request":      {"internal/event", "internal/operator", "internal/campaign", "internal/replay", "internal/operations", "internal/samples"},
	"internal/sqldb":        {"internal/event", "internal/database"},
	"internal/migrations":   {},

	"internal/readmodel":  {"internal/event", "internal/database", "internal/campaign", "internal/sqldb"},
	"internal/store":      {"internal/event", "internal/database", "internal/operator", "internal/campaign", "internal/sqldb", "internal/migrations", "internal/readmodel", "internal/loop"},
	"internal/outbox":     {"internal/event", "internal/operator", "internal/campaign", "internal/sqldb", "internal/readmodel", "internal/store"},
	"internal/samples":    {"internal/event", "internal/operator", "internal/campaign", "internal/sqldb", "internal/readmodel", "internal/store"},
	"internal/projection": {"internal/event", "internal/campaign"},
	"internal/loop":       {"internal/event"},

	"internal/worker":                 {"internal/event", "internal/campaign", "internal/sqldb", "internal/readmodel", "internal/samples", "internal/store", "internal/outbox", "internal/maintenance", "internal/projection", "internal/loop", "internal/metrics", "internal/redact"},
	"internal/maintenance":            {"internal/event", "internal/operator", "internal/campaign", "internal/sqldb", "internal/readmodel", "internal/store", "internal/outbox"},
	"internal/operations":             {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/replay", "internal/sqldb", "internal/readmodel", "internal/samples", "internal/store", "internal/outbox", "internal/loop"},
	"internal/search":                 {"internal/operator", "internal/subscription", "internal/event", "internal/campaign", "internal/sqldb", "internal/store"},
	"internal/tokens":                 {"internal/event", "internal/operator", "internal/sqldb", "internal/store"},
	"internal/runs":                   {"internal/event", "internal/database", "internal/operator", "internal/campaign", "internal/replay", "internal/sqldb", "internal/readmodel", "internal/store", "internal/outbox", "internal/projection", "internal/loop", "internal/search"},
	"internal/timetravel":             {"internal/event", "internal/campaign", "internal/store", "internal/projection", "internal/runs"},
	"internal/publishing":             {"internal/event", "internal/operator", "internal/campaign", "internal/subscription", "internal/sqldb", "internal/store", "internal/loop", "internal/metrics", "internal/publishing/destination", "internal/samples"},
	"internal/publishing/destination": {"internal/event", "internal/operator", "internal/subscription", "internal/outbound"},
	"internal/outbound":               {"internal/event", "internal/operator"},

	"internal/facts":  {"internal/event", "internal/finding", "internal/operator", "internal/sqldb", "internal/campaign", "internal/subscription", "internal/inbound", "internal/replay", "internal/store", "internal/operations", "internal/runs", "internal/publishing", "internal/intake"},
	"internal/alerts": {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/subscription", "internal/inbound", "internal/sqldb", "internal/store", "internal/loop", "internal/metrics", "internal/outbound", "internal/facts"},

	"intake":          {"internal/event", "internal/inbound"},
	"internal/intake": {"internal/event", "internal/operator", "internal/campaign", "internal/inbound", "intake", "internal/sqldb", "internal/store", "internal/loop", "internal/metrics", "internal/outbound", "internal/search"},

	"internal/admission":  {"internal/event", "internal/operator"},
	"internal/appendbody": {"internal/event", "internal/request", "internal/store"},
	"internal/csv":        {},
	"internal/hosts":      {"internal/event"},

	"internal/auth":    {"internal/event", "internal/operator"},
	"internal/metrics": {"internal/event", "internal/finding", "internal/database", "internal/operator", "internal/campaign", "internal/subscription", "internal/inbound", "internal/replay"},
	"internal/redact":  {"internal/event", "internal/projection", "internal/timetravel"},
	"internal/sample":  {"internal/event"},
	"docs":             {},
	"web/static":       {},

	"web/templates/ui":          {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/subscription", "internal/replay", "internal/request", "web/static", "docs", "internal/alerts", "internal/operations", "internal/projection", "internal/samples", "internal/search", "internal/timetravel"},
	"web/templates/charts":      {"internal/event", "internal/operator", "internal/campaign", "web/templates/ui", "internal/publishing", "internal/samples"},
	"web/templates/delivery":    {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/subscription", "internal/inbound", "web/templates/ui", "web/templates/charts", "internal/publishing", "internal/samples", "internal/search"},
	"web/templates/jobs":        {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/replay", "web/templates/ui", "internal/operations", "internal/projection", "internal/timetravel"},
	"web/templates/projections": {"internal/event", "internal/operator", "internal/campaign", "internal/replay", "web/templates/ui", "web/templates/charts", "web/templates/jobs", "internal/samples"},
	"web/templates/campaigns":   {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/replay", "web/templates/ui", "web/templates/charts", "web/templates/jobs", "web/templates/projections", "internal/operations", "internal/projection", "internal/samples", "internal/search", "internal/timetravel"},
	"web/templates/overview":    {"internal/event", "internal/finding", "internal/operator", "internal/campaign", "internal/subscription", "internal/replay", "web/templates/ui", "web/templates/charts", "web/templates/delivery", "web/templates/jobs", "web/templates/projections", "web/templates/campaigns", "internal/operations", "internal/projection", "internal/samples"},
	"web/templates/system":      {"internal/event", "internal/finding", "internal/database", "internal/operator", "internal/campaign", "web/templates/ui", "web/templates/charts", "web/templates/delivery", "docs", "internal/alerts", "internal/samples"},

	"internal/actions":  {"internal/event", "internal/finding", "internal/facts", "internal/operator", "internal/campaign", "internal/subscription", "internal/inbound", "internal/replay", "internal/request", "internal/outbox", "internal/maintenance", "internal/operations", "internal/runs", "internal/publishing", "internal/tokens", "internal/alerts", "internal/intake", "internal/samples"},
	"internal/handlers": {"internal/actions", "internal/event", "internal/finding", "internal/database", "internal/operator", "internal/campaign", "internal/subscription", "internal/inbound", "internal/replay", "internal/admission", "internal/appendbody", "internal/csv", "internal/hosts", "internal/facts", "internal/request", "internal/readmodel", "internal/samples", "internal/store", "internal/outbox", "internal/search", "internal/maintenance", "internal/operations", "internal/runs", "internal/timetravel", "internal/publishing", "internal/tokens", "internal/alerts", "internal/intake", "internal/auth", "internal/metrics", "internal/redact", "web/templates/ui", "web/templates/charts", "web/templates/delivery", "web/templates/jobs", "web/templates/projections", "web/templates/campaigns", "web/templates/overview", "web/templates/system", "web/static", "docs", "internal/projection"},

	"github.com/outboxweb/outboxweb": {"internal/event", "internal/operator", "internal/campaign", "internal/subscription", "internal/alerts", "internal/auth", "internal/engine", "internal/handlers", "internal/hosts", "internal/intake", "internal/projection", "internal/publishing/destination", "internal/store"},
	"examples/shop":                  {"github.com/outboxweb/outboxweb", "intake"},

	"internal/engine": {"internal/event", "internal/operator", "internal/campaign", "internal/subscription", "internal/replay", "internal/facts", "internal/loop", "internal/intake", "internal/samples", "internal/store", "internal/outbox", "internal/search", "internal/maintenance", "internal/operations", "internal/runs", "internal/timetravel", "internal/projection", "internal/publishing", "internal/publishing/destination", "internal/tokens", "internal/alerts", "internal/worker", "internal/metrics", "internal/redact", "internal/handlers"},

	"internal/bench": {"internal/event", "internal/campaign", "internal/engine", "internal/metrics", "internal/projection", "internal/outbox", "internal/store", "internal/worker"},

	"internal/apitest":      {},
	"internal/cputest":      {},
	"internal/must":         {},
	"internal/size":         {},
	"internal/pgtest":       {"internal/must"},
	"internal/pgtest/share": {"internal/pgtest"},
	"internal/dbtest":       {"internal/must", "internal/pgtest", "internal/size"},
	"internal/storetest":    {"internal/event", "internal/operator", "internal/campaign", "internal/readmodel", "internal/samples", "internal/store", "internal/outbox", "internal/maintenance", "internal/dbtest", "internal/must"},
	"internal/enginetest":   {"internal/event", "internal/operator", "internal/campaign", "internal/replay", "internal/store", "internal/outbox", "internal/projection", "internal/operations", "internal/runs", "internal/worker", "internal/dbtest", "internal/must", "internal/size", "internal/storetest"},
	"internal/corpus":       {"internal/event", "internal/sample", "internal/must", "internal/size"},
	"e2e":                   {"intake", "internal/apitest", "internal/pgtest", "internal/must", "internal/size"},
}

type listedPackage struct {
	ImportPath, Dir                             string
	GoFiles, Imports, TestImports, XTestImports []string
}

// golang are the JSON documents that the go command prints.
func golang[T any](args ...string) (all []T, err error) {
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); err == nil && dec.More(); {
		var one T
		err = dec.Decode(&one)
		all = append(all, one)
	}
	return all, err
}

// packages are those of the house.
var packages = sync.OnceValues(func() ([]listedPackage, error) {
	return golang[listedPackage]("list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")
})

func TestHouse_importsFollowTheTable(t *testing.T) {
	t.Parallel()
	for _, p := range must.Get(packages()).Or(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "cmd/outboxweb" {
			continue
		}
		allowed, known := mayImport[name]
		must.Hold(t, known, "package %s is not in the import table", name)
		imports := p.Imports
		if name == "e2e" {
			imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
		for _, imported := range imports {
			ours, isOurs := strings.CutPrefix(imported, module)
			standard := slices.Contains([]string{"intake", "internal/event", "internal/finding", "internal/database", "internal/operator", "internal/campaign", "internal/subscription", "internal/inbound"}, name)
			must.Hold(t, !isOurs || slices.Contains(allowed, ours), "%s imports %s, which the table does not allow", name, ours)
			must.Hold(t, isOurs || !standard || !strings.Contains(imported, "."), "%s imports %s; it may import the standard library only", name, imported)
		}
	}
}

func TestHouse_onlyCommandsReadCommandLineAndEnvironment(t *testing.T) {
	t.Parallel()
	for _, p := range must.Get(packages()).Or(t) {
		if slices.Contains([]string{"cmd/outboxweb", "internal/corpus", "internal/dbtest", "internal/pgtest", "internal/pgtest/share", "internal/size", "internal/enginetest"}, strings.TrimPrefix(p.ImportPath, module)) {
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
				reads := ok && of.Name == "os" && slices.Contains([]string{"Args", "Getenv", "LookupEnv", "Environ", "ExpandEnv"}, selected.Sel.Name)
				must.Hold(t, !reads, "%s uses os.%s; only commands may", set.Position(n.Pos()), selected.Sel.Name)
				return true
			})
		}
	}
}

func requirement(t *testing.T, gomod, of string) string {
	type file struct {
		Require []struct{ Path, Version string }
	}
	for _, r := range must.Get(golang[file]("mod", "edit", "-json", gomod)).Or(t)[0].Require {
		if r.Path == of {
			return r.Version
		}
	}
	must.Need(t, false, "%s does not require %s", gomod, of)
	return ""
}

// modernc.org/sqlite only works with the libc version it was translated for, and templ only warns when generator and
// runtime differ.
func TestHouse_modulesHaveTheVersionThatAnotherNames(t *testing.T) {
	t.Parallel()
	sqlite := must.Get(golang[struct{ GoMod string }]("list", "-m", "-json", "modernc.org/sqlite")).Or(t)[0].GoMod
	for module, gomod := range map[string]string{"modernc.org/libc": sqlite, "github.com/a-h/templ": "tools/go.mod"} {
		must.Equal(t, requirement(t, "go.mod", module), requirement(t, gomod, module), "the version of", module, "which is that of", gomod)
	}
}

// notices is THIRD_PARTY_NOTICES.md: the modules in the program, each with the text of its licence.
func notices(t *testing.T) string {
	type module struct{ Path, Version, Dir string }
	dirs := map[string]module{}
	for _, p := range must.Get(golang[struct{ Module *module }]("list", "-deps", "-json=Module", "./cmd/outboxweb")).Or(t) {
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
	must.Need(t, false, "%s has no licence in %s", path, dir)
	return ""
}

func TestNotices_areOfTheModulesInTheProgram(t *testing.T) {
	t.Parallel()
	mustBe(t, "THIRD_PARTY_NOTICES.md", notices(t))
}

// withoutCommand are the routes that take a POST and have no command, with the
// reason.
var withoutCommand = map[string]string{
	"/campaigns/{campaign}/events/{seq}/reveal": "the command line reads the database itself, with the rights of its user, and hides nothing",
	"/operations/preview":                       "it changes nothing; starting an operation says the same, and asks for its phrase",
}

func TestCommands_doWhatTheAPIDoes(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	must.OK(t, json.Unmarshal([]byte(paper(t, "internal/handlers/openapi.json")), &document))
	commands := map[string]bool{}
	for _, leaf := range newParser(new(cli), streams{}).Model.Leaves(false) {
		name, _, _ := strings.Cut(strings.TrimPrefix(leaf.FullPath(), "outboxweb "), " <")
		commands[strings.TrimSpace(name)] = true
	}
	named := map[string]string{}
	for _, action := range append(operator.AuditedActions(), operator.ActionAppend) {
		named[action.Info().Path] = action.Command()
	}
	for path, methods := range document.Paths {
		if methods["post"] == nil {
			continue
		}
		command, exempt := named[path], withoutCommand[path] != ""
		must.Hold(t, exempt != commands[command], "POST %s is to have the command %q, or a reason to have none: %v", path, command, commands)
	}
	for path := range withoutCommand {
		must.Hold(t, document.Paths[path]["post"] != nil, "there is no POST %s", path)
	}
}
