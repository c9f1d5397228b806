//go:build shots

package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	shotsDir    = flag.String("shots", "", "a directory that gets a picture of every page, in each state, size and theme")
	shotsOnly   = flag.String("only", "", "a regular expression: only pictures whose names, such as trouble-rows-360-dark, it matches")
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
//	go test ./e2e -tags shots -run TestShots -args -shots DIR [-only REGEXP]
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
	t.Run("intake", func(t *testing.T) {
		t.Parallel()
		s := rejecting(t)
		shoot(t, s, map[string]string{
			"overview": "/", "sources": "/intake", "source": "/intake/shop", "source-down": "/intake/billing", "source-well": "/intake/warehouse",
			"publishers": "/publishers", "publisher-topics": "/publishers/orders/partner", "publisher-statistics": "/publishers/orders/counts", "audit": "/audit",
		})
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
	only, err := regexp.Compile(*shotsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range pages {
		for _, size := range []viewport{broad, wide, narrow} {
			for _, theme := range []string{"light", "dark"} {
				if size == broad && theme == "dark" {
					continue // it shows how width is used, not colours
				}
				file := fmt.Sprintf("%s-%s-%d-%s", filepath.Base(t.Name()), name, size.width, theme)
				if !only.MatchString(file) {
					continue
				}
				b.size(size)
				b.theme(theme)
				b.open(path)
				picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
				if err != nil {
					t.Fatalf("take a picture of %s: %v", path, err)
				}
				if err := os.WriteFile(filepath.Join(*shotsDir, file+".png"), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// rejecting starts a server with three sources: one with rejected rows in each state, one that
// cannot be read, and one that is caught up. A publisher of one name serves two topics.
func rejecting(t *testing.T) *server {
	t.Helper()
	d := newDatabases(t)
	shop, warehouse := filepath.Join(d.dir, "shop.db"), filepath.Join(d.dir, "warehouse.db")
	prepareShop(t, "sqlite", "sqlite:"+shop)
	prepareShop(t, "sqlite", "sqlite:"+warehouse)
	s := start(t, d, d.config(t, fmt.Sprintf(`
sources:
  shop: {url: %q}
  warehouse: {url: %q}
  billing: {url: "postgres://outboxweb:secret@127.0.0.1:1/billing"}
topics:
  orders:
    match: {event_types: ["order.*"]}
    publishers:
      partner: {url: "log:"}
      counts: {url: "statistics:", tags: [region], interval: 1m}
  refunds:
    match: {event_types: ["refund.*"]}
    publishers:
      partner: {url: "log:", batch_size: 10}
`, "sqlite:"+shop, "sqlite:"+warehouse))...)
	write := func(place, campaign, id, kind, payload string) {
		t.Helper()
		change(t, place, `insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ($1, $2, $3, $4)`, campaign, id, kind, payload)
	}
	for i := range 12 {
		write(warehouse, "pallet-7", fmt.Sprintf("pallet-7-%d", i), "pallet.moved", `{"to": "aisle 4"}`)
		write(shop, "order-17", fmt.Sprintf("order-17-%d", i), "order.changed", `{"amount": 1250}`)
	}
	write(shop, "order-18", "order-18-1", "order.paid", `{"amount": 1250`)
	write(shop, "order-18", "order-18-2", "order.shipped", `{"carrier": "DHL"}`)
	write(shop, "order-17", "order-17-3", "order.paid", `{"amount": 99, "customer": {"name": "Maximiliane Mustermann", "address": {"street": "Hauptstraße 1", "city": "Neustadt an der Weinstraße"}}}`)
	write(shop, "order-with-a-name-that-goes-on-and-on-because-the-service-joins-its-tenant-and-its-region-and-its-number", "id-1", "order.paid", `[]`)
	write(shop, "order-20", "order-20-1", "order.paid", `"paid"`)
	rejections := func(what string, done func(text string) bool) {
		t.Helper()
		eventually(t, patience, what, func() (bool, string) {
			text := string(do(t, s, http.MethodGet, "/api/v1/intake/shop/rejections", nil).body)
			return done(text), text
		})
	}
	rejections("four rows are rejected", func(text string) bool { return strings.Count(text, `"row_key"`) == 4 })
	s.post(t, http.StatusOK, "/api/v1/intake/shop/rejections/4/discard", map[string]any{"reason": "a test order", "confirm": "discard shop 4"})
	s.post(t, http.StatusOK, "/api/v1/intake/shop/rejections/1/retry", map[string]any{"reason": "the writer was fixed"})
	rejections("both actions are done", func(text string) bool {
		return strings.Contains(text, `"discarded"`) && strings.Contains(text, `"attempts":2`)
	})
	return s
}
