//go:build shots

package e2e

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/outboxweb/outboxweb/internal/must"
)

var picturesDir = flag.String("pictures", "", "the directory that gets the README's pictures")

// TestPictures makes the README's pictures, from the sample journal; make
// screenshots runs it. Only times differ from one run to the next.
func TestPictures(t *testing.T) {
	must.Need(t, *picturesDir != "", "-pictures must name a directory for the pictures")
	s := start(t, newDatabases(t), "--sample", "--max-attempts", "3", "--retry-base", "100ms", "--poll-interval", "100ms")
	awaitStandstill(t, s)
	awaitEqual(t, "the worker has told what it did", false, func() bool { // or the page has no figures
		return strings.Contains(string(fetch(t, s, "/api/v1/summary").body), `"applied_total":0,`)
	})
	dead := s.items(t, "/api/v1/rows?status=dead&limit=1")
	b := openTab(t, s)
	picture(b, "overview", "/", "light", 920)
	picture(b, "campaign", "/campaigns/"+dead[0].CampaignID, "dark", 920)
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"filter": map[string]any{}, "canary": true, "reason": "the seat maps were corrected"})
	o := awaitOperation(t, s, 1)
	must.Need(t, o.Status == "stopped", "the operation is %+v", o)
	picture(b, "operation", "/operations/1", "light", 920)
}

func picture(b *tab, name, path, theme string, height int64) {
	b.size(viewport{wide.width, height}).theme(theme)
	b.open(path)
	content := tell(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	must.OK(b.t, os.WriteFile(filepath.Join(*picturesDir, name+".png"), content.Data, 0o644))
}
