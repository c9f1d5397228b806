package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// Another module requires this one with a plain require, and the excludes and replaces of our go.mod
// do not reach it: it is tidied, vetted, built and run all the same.
func TestPackage_isImportedByAnotherModule(t *testing.T) {
	t.Parallel()
	fullOnly(t, "tidying and compiling a module takes long")
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
	t.Helper()
	addr := freePort(t)
	cmd := exec.CommandContext(t.Context(), "./service")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "ADDR="+addr)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must.OK(t, cmd.Start())
	ask := func(method, path, body string) (int, string) {
		r := must.Get(http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))).Or(t)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer a.Body.Close()
		text, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(text)
	}
	eventually(t, patience, "the service serves", func() (bool, string) {
		status, text := ask(http.MethodGet, "/orders/17", "")
		return status == http.StatusOK, text
	})
	for _, want := range []int{http.StatusOK, http.StatusInternalServerError} { // the second is the same order
		status, text := ask(http.MethodPost, "/orders/17", "item=tea")
		must.Hold(t, status == want, "the order is answered with %d %s, want %d", status, text, want)
	}
	eventually(t, patience, "the order is in the read model", func() (bool, string) {
		_, item := ask(http.MethodGet, "/orders/17", "")
		return item == "tea\n", item
	})
	status, text := ask(http.MethodGet, "/admin/api/v1/campaigns/17", "")
	must.Hold(t, status == http.StatusOK && strings.Contains(text, `"high_water_seq":1,"applied_seq":1`), "the console says %d %s", status, text)
	must.OK(t, cmd.Process.Signal(os.Interrupt))
	err := cmd.Wait()
	must.Hold(t, err == nil, "it ends with %v:\n%s", err, &said)
}
