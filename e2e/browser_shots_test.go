//go:build shots

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	shotsDir    = flag.String("shots", "", "a directory that gets a picture of every page, in each state, size and theme")
	picturesDir = flag.String("pictures", "", "the directory that gets the README's pictures")
)

// broad is a window as wide as a large screen.
var broad = viewport{1920, 1080}

// TestPictures makes the README's pictures, from the sample journal; make
// screenshots runs it. Only times differ from one run to the next.
func TestPictures(t *testing.T) {
	if *picturesDir == "" {
		t.Fatal("-pictures must name a directory for the pictures")
	}
	s := start(t, newDatabases(t), "--sample", "--max-attempts", "3", "--retry-base", "100ms", "--poll-interval", "100ms")
	awaitStandstill(t, s)
	awaitFigures(t, s)
	var dead struct{ Items []campaignName }
	s.get(t, "/api/v1/rows?status=dead&limit=1", &dead)
	b := openTab(t, s)
	picture(b, "overview", "/", "light", 920)
	picture(b, "campaign", "/campaigns/"+dead.Items[0].ID, "dark", 920)
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"filter": map[string]any{}, "canary": true, "reason": "the seat maps were corrected"})
	if o := awaitOperation(t, s, 1); o.Status != "stopped" {
		t.Fatalf("the operation is %+v", o)
	}
	picture(b, "operation", "/operations/1", "light", 920)
}

// picture takes a picture of the upper part of a page.
func picture(b *tab, name, path, theme string, height int64) {
	b.t.Helper()
	b.size(viewport{wide.width, height})
	b.theme(theme)
	b.open(path)
	content := tell(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	if err := os.WriteFile(filepath.Join(*picturesDir, name+".png"), content.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// awaitFigures waits until the worker has reported its work.
func awaitFigures(t *testing.T, s *server) {
	t.Helper()
	eventually(t, patience, "the worker has told what it did", func() (bool, string) {
		var sum struct {
			Worker struct {
				Applied int64 `json:"applied_total"`
			}
		}
		s.get(t, "/api/v1/summary", &sum)
		return sum.Worker.Applied > 0, ""
	})
}

// TestShots makes pictures for review; they show what no assertion does:
//
//	go test ./e2e -tags shots -run TestShots -args -shots DIR
func TestShots(t *testing.T) {
	if *shotsDir == "" {
		t.Fatal("-shots must name a directory for the pictures")
	}
	t.Parallel()
	t.Run("trouble", func(t *testing.T) {
		t.Parallel()
		s, campaign, seq := troubled(t)
		shoot(t, s, troubledPages(campaign, seq))
	})
	t.Run("healthy", func(t *testing.T) {
		t.Parallel()
		s, _ := startSeats(t)
		for i := range 12 {
			appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ben", "cem", "dee"))
		}
		s.awaitSettled(t)
		pages := map[string]string{"campaign": "/campaigns/table-03", "event": "/campaigns/table-03/events/2"}
		for name, path := range emptyPages {
			pages[name] = path
		}
		shoot(t, s, pages)
	})
	t.Run("skipped", func(t *testing.T) {
		t.Parallel()
		s, pages := skippedPages(t)
		shoot(t, s, pages)
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		shoot(t, start(t, newDatabases(t)), emptyPages)
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		s, _ := oneSilent(t)
		shoot(t, s, map[string]string{"instances": "/instances", "overview": "/"})
	})
	t.Run("roles", func(t *testing.T) {
		t.Parallel()
		s, row := startBehindProxy(t)
		for _, group := range []string{"watchers", "ops", "admins"} {
			t.Run(group, func(t *testing.T) {
				b := openTab(t, s)
				b.signIn("maximiliane.mustermann@operations.example.org", group)
				shootIn(b, map[string]string{"row": row})
			})
		}
	})
	t.Run("sample", func(t *testing.T) {
		t.Parallel()
		s := start(t, newDatabases(t), "--sample", "--max-attempts", "3", "--retry-base", "100ms")
		awaitStandstill(t, s)
		awaitFigures(t, s)
		shoot(t, s, map[string]string{"overview": "/"})
	})
}

// shoot takes pictures of pages, named after the state that the test is called.
func shoot(t *testing.T, s *server, pages map[string]string) {
	t.Helper()
	shootIn(openTab(t, s), pages)
}

// shootIn is shoot in a tab that is open.
func shootIn(b *tab, pages map[string]string) {
	t := b.t
	t.Helper()
	b.expect("404")
	b.expect("422")
	for name, path := range pages {
		for _, size := range []viewport{broad, wide, narrow} {
			for _, theme := range []string{"light", "dark"} {
				if size == broad && theme == "dark" {
					continue // it shows how width is used, not colours
				}
				b.size(size)
				b.theme(theme)
				b.open(path)
				picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
				if err != nil {
					t.Fatalf("take a picture of %s: %v", path, err)
				}
				file := fmt.Sprintf("%s-%s-%d-%s.png", filepath.Base(t.Name()), name, size.width, theme)
				if err := os.WriteFile(filepath.Join(*shotsDir, file), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
