package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// notices is THIRD_PARTY_NOTICES.md: the modules in the program, each with the text of its licence.
func notices(t *testing.T) string {
	t.Helper()
	type module struct{ Path, Version, Dir string }
	dirs := map[string]module{}
	dec := json.NewDecoder(strings.NewReader(string(goTool(t, "list", "-deps", "-json=Module", "./cmd/outboxweb"))))
	for {
		var p struct{ Module *module }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Module != nil && p.Module.Version != "" {
			dirs[p.Module.Path] = *p.Module
		}
	}
	var paths []string
	for path := range dirs {
		paths = append(paths, path)
	}
	sort.Strings(paths)
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

// licence is the text of a module's licence file.
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
