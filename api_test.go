package outboxweb_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

var update = flag.Bool("update", false, "accept the exported names as they are, in api.txt")

// exported lists the exported declarations of the package in a directory, without comments.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(dir, "*.go"))).Or(t)
	var all []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file := must.Get(parser.ParseFile(set, name, nil, parser.SkipObjectResolution)).Or(t)
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				decl.Body = nil
			case *ast.GenDecl:
				if decl.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			must.OK(t, printer.Fprint(&text, set, decl))
			all = append(all, "package "+file.Name.Name+": "+strings.Join(strings.Fields(text.String()), " "))
		}
	}
	slices.Sort(all)
	return all
}

// What other modules rely on changes on purpose only: a declaration that api.txt has and the package
// has not breaks them.
func TestAPI_isTheAcceptedOne(t *testing.T) {
	t.Parallel()
	now := slices.Concat(exported(t, "."), exported(t, "intake"))
	const accepted = "api.txt"
	if *update {
		must.OK(t, os.WriteFile(accepted, []byte(strings.Join(now, "\n")+"\n"), 0o644))
	}
	text := must.Get(os.ReadFile(accepted)).Or(t)
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range before {
		must.Hold(t, slices.Contains(now, line), "incompatible: this is gone or changed; if that is meant, say so in CHANGELOG.md and accept it with make generate:\n%s", line)
	}
	for _, line := range now {
		must.Hold(t, slices.Contains(before, line), "new, accept it with make generate:\n%s", line)
	}
}
