package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// Clients generated from the document compile, and their calls return the server's answers.
func TestAPI_isUsedThroughGeneratedClients(t *testing.T) {
	t.Parallel()
	fullOnly(t, "generating and compiling clients takes long")
	readSources()
	for _, language := range []struct {
		name  string
		build func(t *testing.T, dir string) (program []string)
	}{{"Go", buildGoClient}, {"TypeScript", buildTypeScriptClient}} {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			if language.name == "TypeScript" {
				soakOnly(t, "it installs a compiler")
			}
			dir := t.TempDir()
			must.OK(t, os.CopyFS(dir, os.DirFS("client")))
			useAPI(t, language.build(t, dir))
		})
	}
}

func useAPI(t *testing.T, program []string) {
	t.Helper()
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
	t.Helper()
	must.OK(t, os.Mkdir(filepath.Join(dir, "api"), 0o755))
	run(t, ".", "go", "tool", "-modfile=../tools/go.mod", "oapi-codegen", "-generate", "types,client", "-package", "api",
		"-o", filepath.Join(dir, "api", "api.go"), apiDocument)
	run(t, dir, "go", "build", "-o", "program", ".")
	return []string{filepath.Join(dir, "program")}
}

// buildTypeScriptClient makes the program of main.ts with the types of
// openapi-typescript. It needs npm and what npm has cached or can fetch, which
// no other test does.
func buildTypeScriptClient(t *testing.T, dir string) (program []string) {
	t.Helper()
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("without npm's packages there is no TypeScript: %v: %s", err, out)
	}
	document := must.Get(filepath.Abs(apiDocument)).Or(t)
	bin := filepath.Join(dir, "node_modules", ".bin")
	run(t, dir, filepath.Join(bin, "openapi-typescript"), document, "-o", "api.d.ts")
	run(t, dir, filepath.Join(bin, "tsc"))
	return []string{"node", filepath.Join(dir, "main.js")}
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "%s %v: %v: %s", program, args, err, out)
	return string(out)
}
