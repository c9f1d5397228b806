package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"
)

// troubled starts a server on the sample journal with everything that pages show: dead and failed
// heads, rows behind them, a paused campaign, actions. The row it returns is dead, the head of its
// campaign.
func troubled(t *testing.T) (s *server, campaign string, seq int64) {
	t.Helper()
	return troubledIn(t, newDatabases(t), "")
}

// troubledIn is troubled in these databases, with more configuration and flags.
func troubledIn(t *testing.T, d databases, config string, flags ...string) (s *server, campaign string, seq int64) {
	t.Helper()
	s = start(t, d, slices.Concat(troubledPublishers(t, d, config), []string{"--sample", "--max-attempts", "2", "--retry-base", "1h", "--retry-max", "1h"}, flags)...)
	awaitStandstill(t, s)
	awaitPublishers(t, s)
	var failed struct {
		Items []struct {
			CampaignID string `json:"campaign_id"`
			Seq        int64
		}
	}
	s.get(t, "/api/v1/rows?status=failed", &failed)
	for _, row := range failed.Items[1:] {
		s.post(t, http.StatusOK, fmt.Sprintf("/api/v1/rows/%s/%d/retry", row.CampaignID, row.Seq), map[string]any{"reason": "the seat was freed"})
	}
	awaitStandstill(t, s)
	last := failed.Items[len(failed.Items)-1]
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"rows": []any{map[string]any{"campaign_id": last.CampaignID, "seq": last.Seq}}, "canary": true, "reason": "the seat was freed"})
	awaitOperation(t, s, 1)
	awaitStandstill(t, s)
	var campaigns struct{ Items []campaignName }
	s.get(t, "/api/v1/campaigns?state=current&limit=1", &campaigns)
	s.post(t, http.StatusOK, "/api/v1/campaigns/"+campaigns.Items[0].ID+"/pause", map[string]any{"reason": "waiting for the new seat map"})
	s.post(t, http.StatusConflict, "/api/v1/campaigns/"+campaigns.Items[0].ID+"/pause", map[string]any{"reason": "once more"})
	for _, role := range []string{"viewer", "admin"} {
		mustCommand(t, d, nil, "token", "create", "--role", role, "--note", "scrapes the metrics of the box office")
	}
	s.post(t, http.StatusOK, "/api/v1/tokens/1/revoke", map[string]any{"reason": "it was in a ticket"})
	drift(t, s, d)
	return s, failed.Items[1].CampaignID, failed.Items[1].Seq
}

// awaitStandstill waits until no campaign can change: it is current, or blocked, or its head is
// retried in many minutes.
func awaitStandstill(t *testing.T, s *server) {
	t.Helper()
	eventually(t, 2*patience, "nothing moves", func() (bool, string) {
		var sum summary
		s.get(t, "/api/v1/summary", &sum)
		if sum.Campaigns.Lagging == 0 || sum.Campaigns.Leased > 0 {
			return false, fmt.Sprintf("%+v", sum)
		}
		var due struct{ Items []struct{ Why string } }
		s.get(t, "/api/v1/campaigns?limit=200", &due)
		for _, c := range due.Items {
			if c.Why != "Everything is applied" && !strings.Contains(c.Why, " has been dead ") && !strings.HasSuffix(c.Why, " min") {
				return false, c.Why
			}
		}
		return true, ""
	})
}

type campaignName struct {
	ID string `json:"campaign_id"`
}

// troubledPages are all kinds of pages, by a name for each.
func troubledPages(campaign string, seq int64) map[string]string {
	pages := maps.Clone(publisherPages)
	maps.Copy(pages, map[string]string{
		"overview": "/", "charts": "/charts", "charts-table": "/charts?range=24h&table=true", "rows": "/rows", "rows-dead": "/rows?status=dead", "event-payload": fmt.Sprintf("/campaigns/%s/events/%d?tab=payload", campaign, seq),
		"event-neighbours": fmt.Sprintf("/campaigns/%s/events/%d?tab=neighbours", campaign, seq), "event-details": fmt.Sprintf("/campaigns/%s/events/%d?tab=details", campaign, seq),
		"event-behind": fmt.Sprintf("/campaigns/%s/events/%d", campaign, seq+1), "event-applied": fmt.Sprintf("/campaigns/%s/events/1", campaign),
		"operations": "/operations", "operation": "/operations/1", "operation-new": "/operations/new", "requeue-row": fmt.Sprintf("/rows/%s/%d/requeue", campaign, seq),
		"campaigns": "/campaigns", "campaigns-blocked": "/campaigns?state=blocked&sort=lag", "campaign": "/campaigns/" + campaign,
		"event": fmt.Sprintf("/campaigns/%s/events/%d", campaign, seq), "tree": fmt.Sprintf("/campaigns/%s/events/%d/tree", campaign, seq), "failures": "/failures", "overview-day": "/?span=day", "projections": "/projections", "projection": "/projections/campaigns", "projection-aside": "/projections/campaigns?state=quarantined",
		"failures-all": "/failures?status=all", "instances": "/instances", "alerts": "/alerts",
		"runs": "/runs", "run": "/runs/1", "run-result": "/runs/1/results/" + campaign, "run-rebuild": "/runs/2", "run-new": "/runs/new", "run-asks": "/runs/new?kind=rebuild&all=1", "rehearse": "/rehearsals/new",
		"dry-run": fmt.Sprintf("/rows/%s/%d/dry-run", campaign, seq),
		"events":  "/events", "events-found": "/events?q=session&since=-2h", "search": "/search?q=" + campaign[:4], "search-none": "/search?q=nothing+like+it",
		"read-model": fmt.Sprintf("/campaigns/%s/read-model?seq=%d", campaign, seq-1),
		"audit":      "/audit", "audit-refused": "/audit?outcome=refused", "tokens": "/tokens", "about": "/about", "operating": "/docs/operating", "not-found": "/campaigns/nobody", "invalid": "/rows?status=lost",
	})
	return pages
}

// emptyPages are the pages that have a text for an empty state.
var emptyPages = map[string]string{
	"overview": "/", "charts": "/charts", "charts-table": "/charts?range=24h&table=true", "rows": "/rows", "rows-dead": "/rows?status=dead", "operations": "/operations", "operation-new": "/operations/new", "campaigns": "/campaigns", "runs": "/runs", "run-new": "/runs/new?kind=verify&all=1",
	"campaigns-blocked": "/campaigns?state=blocked", "events": "/events", "search-none": "/search?q=nothing+like+it", "failures": "/failures", "projections": "/projections", "projection": "/projections/seats", "instances": "/instances", "alerts": "/alerts", "audit": "/audit", "tokens": "/tokens", "publishers": "/publishers",
}

// inspection is what inspect finds out about a page.
type inspection struct {
	Title      string
	Headings   int
	Overflow   float64 // by how many pixels the page is wider than the window
	Widest     string  // the element that reaches furthest to the right
	Styled     []string
	Violations []struct {
		ID    string
		Help  string
		Nodes []string
	}
}

// inspect measures a page and has axe-core, if it is loaded, judge it.
const inspect = `(async () => {
	const root = document.documentElement
	const widest = [...document.body.querySelectorAll("*")].reduce((a, e) => e.getBoundingClientRect().right > a.getBoundingClientRect().right ? e : a, document.body)
	const found = window.axe ? await axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa"]}) : {violations: []}
	return {
		title: document.title, headings: document.querySelectorAll("h1").length,
		overflow: root.scrollWidth - innerWidth, widest: widest.outerHTML.slice(0, 200),
		styled: [...document.querySelectorAll("[style]")].map(e => e.outerHTML.slice(0, 200)),
		violations: found.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.map(n => n.html.slice(0, 200) + " " + n.failureSummary)})),
	}
})()`

// Every page is complete and accessible in a small window and a large one, in light and in dark.
func TestBrowser_pages(t *testing.T) {
	t.Parallel()
	t.Run("in trouble", func(t *testing.T) {
		t.Parallel()
		s, campaign, seq := troubled(t)
		pages := troubledPages(campaign, seq)
		run := rehearseComment(t, s)
		pages["rehearsal"], pages["rehearsal-result"] = fmt.Sprintf("/runs/%d", run), fmt.Sprintf("/runs/%d/results/%s", run, campaign)
		inspectPages(t, s, pages)
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		pages := maps.Clone(emptyPages)
		if testing.Short() {
			for i, name := range slices.Sorted(maps.Keys(pages)) {
				if i%2 == 1 {
					delete(pages, name)
				}
			}
		}
		inspectPages(t, start(t, newDatabases(t)), pages)
	})
}

func inspectPages(t *testing.T, s *server, pages map[string]string) {
	t.Helper()
	b := openTab(t, s)
	b.expect("404")
	b.expect("422")
	for i, name := range slices.Sorted(maps.Keys(pages)) {
		path := pages[name]
		b.open(path)
		for n, width := range []int64{480, 780, 1030, 1920} { // between and beyond the sizes below, where another layout holds
			if testing.Short() && i%8 != 2*n { // every other page in one of them
				continue
			}
			b.size(viewport{width, 900})
			if over := value[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("%s (%s) %d wide: %v pixels wider than the window", name, path, width, over)
			}
		}
		b.inspect(fmt.Sprintf("%s (%s)", name, path), i)
	}
}

// inspect has axe-core check the page in both sizes and both themes: the large window in light and
// the small one in dark, or the reverse for every other page, by its number. A short run measures
// the page in one of the four, and has axe-core check every fifth.
func (b *tab) inspect(page string, number int) {
	b.t.Helper()
	if !testing.Short() || number%5 == 0 {
		b.loadAxe()
	}
	for i, size := range []viewport{wide, narrow} {
		for j, theme := range []string{"light", "dark"} {
			due := (number+i+j)%2 == 0
			if testing.Short() {
				due = number%4 == 2*i+j
			}
			if !due {
				continue
			}
			b.size(size)
			b.theme(theme)
			checkInspection(b.t, fmt.Sprintf("%s %d wide, %s", page, size.width, theme), value[inspection](b, inspect))
		}
	}
}

// axeSource is the script of axe-core.
var axeSource = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("testdata/axe/axe.min.js") })

func (b *tab) loadAxe() {
	b.t.Helper()
	axe, err := axeSource()
	if err != nil {
		b.t.Fatal(err)
	}
	value[bool](b, string(axe)+"; true")
}

func checkInspection(t *testing.T, where string, got inspection) {
	t.Helper()
	if !strings.HasSuffix(got.Title, " · outboxweb") {
		t.Errorf("%s: the title is %q", where, got.Title)
	}
	if got.Headings != 1 {
		t.Errorf("%s: %d elements h1, want 1", where, got.Headings)
	}
	if got.Overflow > 0 {
		t.Errorf("%s: %v pixels wider than the window; furthest right is %s", where, got.Overflow, got.Widest)
	}
	if len(got.Styled) > 0 {
		t.Errorf("%s: inline styles: %v", where, got.Styled)
	}
	for _, v := range got.Violations {
		t.Errorf("%s: %s: %s:\n%s", where, v.ID, v.Help, strings.Join(v.Nodes, "\n"))
	}
}

// references are the URLs in a page, resolved, and where they stand.
type references struct {
	Links  []string // what can be opened by a click
	Others []string // forms, assets and requests of scripts
	Text   string
}

// cites reports whether a page of the docs links to a standard named in the docs: the only external
// links.
func cites(page, to string) bool {
	to = strings.TrimSuffix(to, "/")
	return strings.HasSuffix(page, "/docs/publishers") && (to == "https://cloudevents.io" || to == "https://www.standardwebhooks.com")
}

const findReferences = `(() => {
	const absolute = u => new URL(u, document.baseURI).href
	const all = (selector, name) => [...document.querySelectorAll(selector)].map(e => absolute(e.getAttribute(name)))
	const asked = [...document.querySelectorAll("*")].flatMap(e => [...e.attributes])
		.filter(a => /^(data-)?hx-(get|post|put|patch|delete|push-url|replace-url)$/.test(a.name)).map(a => absolute(a.value))
	return {
		links: all("a[href]", "href"), text: document.body.textContent,
		others: [...all("link[href]", "href"), ...all("[src]", "src"), ...all("form", "action"), ...all("[formaction]", "formaction"), ...asked],
	}
})()`

// referencesIn is what findReferences finds in a page before its scripts run.
func referencesIn(t *testing.T, address string, page []byte) (found references) {
	t.Helper()
	base, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	var text strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			text.WriteString(n.Data)
		}
		for _, a := range n.Attr {
			if n.Type != html.ElementNode || !reference.MatchString(a.Key) || strings.HasSuffix(a.Key, "-url") && (a.Val == "true" || a.Val == "false") {
				continue
			}
			to, err := base.Parse(a.Val)
			switch {
			case err != nil:
				t.Errorf("%s refers to %q: %v", address, a.Val, err)
			case n.Data == "a" && a.Key == "href":
				found.Links = append(found.Links, to.String())
			default:
				found.Others = append(found.Others, to.String())
			}
		}
	}
	found.Text = text.String()
	return found
}

// queryShape is pathShape with the names of the parameters.
func queryShape(path string) string {
	_, query, _ := strings.Cut(path, "?")
	values, _ := url.ParseQuery(query)
	return pathShape(path) + "?" + strings.Join(slices.Sorted(maps.Keys(values)), "&")
}

// Behind a proxy the pages are below a path: everything in them stays there, and every link works.
// The browser opens one page of each kind; of others like it, the answer is read. In a short run
// TestBrowser_pages opens the kinds, and this test every fourth.
func TestBrowser_basePath(t *testing.T) {
	t.Parallel()
	const base = "/ops/outbox"
	p := newPartner(t, always(http.StatusServiceUnavailable))
	config := partnerConfig(t, databases{}, p)
	s, _ := startSeats(t, slices.Concat(quickDeath, config, []string{"--base-path", base})...)
	appendTo(t, s, base, "healthy", seats("ana", "ben"))
	appendTo(t, s, base, "poisoned", seats("ana", "ana", "cem"))
	awaitCounts(t, s, base, 1, 0, 1)
	s.post(t, http.StatusOK, base+"/api/v1/campaigns/healthy/pause", map[string]any{"reason": "for the test"})

	b := openTab(t, s)
	b.base = base
	inside := func(from, to string) {
		t.Helper()
		if !strings.HasPrefix(to, s.url+base+"/") && !cites(from, to) {
			t.Errorf("%s refers to %s", from, to)
		}
	}
	seen, shapes, queue := map[string]bool{}, map[string]bool{}, []string{s.url + base + "/"}
	opened := 0
	for len(queue) > 0 {
		address, _, _ := strings.Cut(queue[0], "#")
		queue = queue[1:]
		if seen[address] || !strings.HasPrefix(address, s.url+base+"/") {
			continue
		}
		seen[address] = true
		path := strings.TrimPrefix(address, s.url)
		a := do(t, s, http.MethodGet, path, nil)
		if a.status != http.StatusOK {
			t.Errorf("%s answers %d", path, a.status)
		} else if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			continue
		}
		if testing.Short() && shapes[pathShape(path)] {
			continue // a page like this one was opened
		}
		var found references
		shape := queryShape(path)
		if shapes[shape] || testing.Short() && len(seen)%4 != 1 {
			found = referencesIn(t, address, a.body) // the scripts of a page like this one added only themselves
		} else {
			b.open(strings.TrimPrefix(path, base))
			found = value[references](b, findReferences)
			opened++
		}
		shapes[pathShape(path)], shapes[shape] = true, true
		for _, to := range append(found.Links, found.Others...) {
			inside(path, to)
		}
		for _, rest := range strings.Split(found.Text, s.url)[1:] { // in curl commands
			if !strings.HasPrefix(rest, base+"/") {
				t.Errorf("%s mentions %s", path, s.url+tailless(rest))
			}
		}
		queue = append(queue, found.Links...)
	}
	t.Logf("of %d addresses %d were opened in the browser", len(seen), opened)
	for _, must := range []string{"/rows", "/campaigns/poisoned/events/2", "/operations/new", "/runs", "/runs/new?all=1&kind=verify", "/campaigns/healthy/events/2", "/projections", "/publishers/sales/partner", "/publishers/sales/partner/seek", "/audit", "/docs/operating", "/api/v1/summary", "/metrics"} {
		if !seen[s.url+base+must] {
			t.Errorf("nothing leads to %s", must)
		}
	}

	b.open("/campaigns/poisoned/events/2")
	b.click(marked("requeue"))
	b.await("an act leads back inside", telling(marked("flash"), "Requeued event 2 of campaign poisoned"))
	inside("an act", value[string](b, "location.href"))
}

// tailless is the start of a text, for messages.
func tailless(text string) string {
	if u, err := url.Parse(text); err == nil && len(u.Path) < 80 {
		return u.Path
	}
	return text[:min(len(text), 80)]
}
