package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Another module requires this one with a plain require, and the excludes and replaces of our go.mod
// do not reach it: it is tidied, vetted, built and run all the same.
func TestPackage_isImportedByAnotherModule(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("tidying and compiling a module takes long; go test without -short does it")
	}
	readSources()
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/stranger")); err != nil {
		t.Fatal(err)
	}
	module := "module example.com/stranger\n\ngo 1.26.0\n\nrequire github.com/outboxweb/outboxweb v0.0.0\n\nreplace github.com/outboxweb/outboxweb => " + here + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "mod", "tidy")
	run(t, dir, "go", "vet", ".")
	run(t, dir, "go", "build", "-o", "stranger", ".")
	tidied, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"exclude", "nats-server", "chromedp", "kong", "rapid"} { // tests and the command alone need them
		if strings.Contains(string(tidied), unwanted) {
			t.Errorf("the other module's go.mod has %s:\n%s", unwanted, tidied)
		}
	}
	if said := run(t, dir, "./stranger"); !strings.Contains(said, `"applied_seq":1`) || !strings.HasSuffix(said, "<nil>\n") {
		t.Errorf("it says %s", said)
	}
}
