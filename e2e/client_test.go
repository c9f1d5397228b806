package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A client that is generated from the document compiles, and its calls come
// back with what the server answers.
func TestAPI_isUsedThroughAGeneratedClient(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("generating and compiling a client takes long; go test without -short does it")
	}
	readSources()
	client := buildClient(t)
	s, _ := startSeats(t, quickDeath...)
	appendTo(t, s, "", "a/b", seats("ana", "ben", "ana", "dee"))
	awaitCounts(t, s, "", 1, 0, 1)

	out, err := exec.CommandContext(t.Context(), client, s.url+"/api/v1", "a/b", "3").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := `appended a/b 5
appended a/b 5
blocked a/b at 3
dead after 2 attempts: map[seat:seat-3 user:ana]
pending again, attempts 0
urn:outboxweb:not-found
`
	if string(out) != want {
		t.Errorf("the client says\n%s\nwant\n%s", out, want)
	}
}

// buildClient makes a client of the API's document, and the program in client
// with it.
func buildClient(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("client")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "api"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"tool", "-modfile=../tools/go.mod", "oapi-codegen", "-generate", "types,client", "-package", "api",
			"-o", filepath.Join(dir, "api", "api.go"), "../internal/handlers/openapi.json"},
		{"build", "-C", dir, "-o", "program", "."},
	} {
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v: %s", args, err, out)
		}
	}
	return filepath.Join(dir, "program")
}
