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
		if !ok {
			t.Fatalf("SHA256SUMS has a line that is no sum: %q", line)
		}
		recorded[name] = sum
	}
	for _, e := range must.Get(fs.ReadDir(files, "vendor")).Or(t) {
		if !strings.HasSuffix(e.Name(), ".js") && !strings.HasSuffix(e.Name(), ".woff2") {
			continue
		}
		body := must.Get(files.ReadFile("vendor/" + e.Name())).Or(t)
		sum := sha256.Sum256(body)
		if got := hex.EncodeToString(sum[:]); got != recorded[e.Name()] {
			t.Errorf("%s has sum %s, SHA256SUMS says %q", e.Name(), got, recorded[e.Name()])
		}
	}
}

func TestServe_assetsAreImmutableAndUnknownHashesAreNot(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Stylesheet, Start, Script, Icon, IconWarn, IconBad, Sans, SansBold, Mono, HTMX, Idiomorph} {
		rec := httptest.NewRecorder()
		if !Serve(rec, httptest.NewRequest("GET", "/", nil), Path(name)) {
			t.Fatalf("%s is not served at %s", name, Path(name))
		}
		if got := rec.Header().Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s has Cache-Control %q", name, got)
		}
		if rec.Code != http.StatusOK || rec.Body.Len() == 0 {
			t.Errorf("%s answered %d with %d bytes", name, rec.Code, rec.Body.Len())
		}
	}
	if Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "0000000000000000/app.css") {
		t.Error("a wrong hash is served")
	}
}
