package static

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestVendored_filesMatchTheirRecordedSums(t *testing.T) {
	t.Parallel()
	sums := must.Get(files.ReadFile("vendor/SHA256SUMS")).Or(t)
	recorded := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		must.Need(t, ok, "SHA256SUMS has a line that is no sum: %q", line)
		recorded[name] = sum
	}
	for _, e := range must.Get(fs.ReadDir(files, "vendor")).Or(t) {
		if !strings.HasSuffix(e.Name(), ".js") && !strings.HasSuffix(e.Name(), ".woff2") {
			continue
		}
		body := must.Get(files.ReadFile("vendor/" + e.Name())).Or(t)
		sum := sha256.Sum256(body)
		must.Equal(t, hex.EncodeToString(sum[:]), recorded[e.Name()], "the sum in SHA256SUMS of", e.Name())
	}
}

func TestServe_assetsAreImmutableAndUnknownHashesAreNot(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Stylesheet, Start, Script, Icon, IconWarn, IconBad, Sans, SansBold, Mono, HTMX, Idiomorph} {
		rec := httptest.NewRecorder()
		must.Need(t, Serve(rec, httptest.NewRequest("GET", "/", nil), Path(name)), "%s is not served at %s", name, Path(name))
		got := rec.Header().Get("Cache-Control")
		must.Hold(t, strings.Contains(got, "immutable"), "%s has Cache-Control %q", name, got)
		must.Hold(t, rec.Code == http.StatusOK && rec.Body.Len() != 0, "%s answered %d with %d bytes", name, rec.Code, rec.Body.Len())
	}
	must.Hold(t, !Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "0000000000000000/app.css"), "a wrong hash is served")
}
