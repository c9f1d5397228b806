package e2e

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

type inspection struct {
	Title      string
	Headings   int
	Overflow   float64 // by how many pixels the page is wider than the window
	Widest     string  // the element that reaches furthest to the right
	Styled     []string
	Keyless    []string // buttons of forms without one idempotency key
	Violations []struct {
		ID, Help string
		Nodes    []string
	}
}

// inspect measures a page and has axe-core, if it is loaded, judge it.
const inspect = `(async () => {
	const root = document.documentElement
	const widest = [...document.body.querySelectorAll("*")].reduce((a, e) => e.getBoundingClientRect().right > a.getBoundingClientRect().right ? e : a, document.body)
	const found = window.axe ? await axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa"]}) : {violations: []}
	const acts = b => (b.formMethod || b.form.getAttribute("method")) === "post" && !/\/(views|login)\b/.test(b.getAttribute("formaction") ?? b.form.getAttribute("action"))
	return {
		title: document.title, headings: document.querySelectorAll("h1").length,
		overflow: root.scrollWidth - innerWidth, widest: widest.outerHTML.slice(0, 200),
		styled: [...document.querySelectorAll("[style]")].map(e => e.outerHTML.slice(0, 200)),
		keyless: [...document.querySelectorAll("form button:not([type=button])")].filter(b => acts(b) && new FormData(b.form, b).getAll("idempotency_key").length !== 1).map(b => b.outerHTML),
		violations: found.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.map(n => n.html.slice(0, 200) + " " + n.failureSummary)})),
	}
})()`

// Every page is complete and accessible in each size, in light and in dark. What readers do that
// changes nothing is done on the same server.
func TestBrowser_pages(t *testing.T) {
	t.Parallel()
	s, campaign, seq := troubled(t)
	event := fmt.Sprintf("/campaigns/%s/events/%d", campaign, seq)
	for name, read := range map[string]func(*tab){
		"are accessible":       func(b *tab) { b.crawl(troubledPages(campaign, seq), size.Of(6, 1, 1)) },
		"are opened by keys":   (*tab).keysOpenPages,
		"move by keys":         func(b *tab) { b.keysMoveIn(event, seq) },
		"suggest by a search":  func(b *tab) { b.searchSuggests(campaign) },
		"are left and found":   (*tab).placeIsKept,
		"copy":                 func(b *tab) { b.copies(event) },
		"read large documents": func(b *tab) { b.readLarge(); b.readMissing() },
		"chart by keys":        (*tab).chartsAreReadByKeys,
		"chart by mouse":       (*tab).chartsAreReadByMouse,
		"select by a drag":     (*tab).aDragSelectsARange,
		"open a heated cell":   (*tab).aCellOpensItsCampaign,
		"forbid inline code":   (*tab).inlineCodeIsForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read(openTab(t, s))
		})
	}
}

func TestBrowser_emptyPages(t *testing.T) {
	t.Parallel()
	openTab(t, start(t, newDatabases(t))).crawl(emptyPages, size.Of(6, 3, 1))
}

// inlineCodeIsForbidden makes sure that what a text might inject does not run.
func (b *tab) inlineCodeIsForbidden() {
	b.expect("script-src", "style-src", "Content Security Policy", "contentSecurityPolicyIssue")
	b.open("/")
	b.run(`const script = document.createElement("script"), style = document.createElement("style")
		script.textContent = "window.injected = true"
		style.textContent = "body { display: none }"
		document.body.append(script, style)`)
	b.await("neither script nor style is taken", `!window.injected && getComputedStyle(document.body).display !== "none"`)
}

var shots = flag.String("shots", "", "a directory that gets a picture of every page inspected, in each size and theme")

// crawl inspects every step-th page, from one that is drawn.
func (b *tab) crawl(pages map[string]string, step int) {
	b.expect("404", "422")
	first := rand.IntN(step)
	for i, name := range slices.Sorted(maps.Keys(pages)) {
		if i%step == first || *shots != "" {
			b.open(pages[name]).inspectAll(name, i/step)
		}
	}
}

// inspectAll measures the open page, the number-th, and has axe-core check it in the three main sizes. A soak
// has every other combination of size and theme, a full run one of the main sizes and one between them, with
// axe-core for every third page, a short one any one, with axe-core for every fifth.
func (b *tab) inspectAll(name string, number int) {
	if number%size.Of(5, 3, 1) == 0 {
		b.loadAxe()
	}
	for i, window := range []viewport{narrow, wide, broad, {480, 900}, {780, 900}, {1030, 900}} {
		script := inspect
		if i > 2 { // between the sizes, another layout may hold
			script = strings.Replace(inspect, "window.axe ?", "false ?", 1)
		}
		for j, theme := range []string{"light", "dark"} {
			due := size.Of(i == number%6 && j == number/6%2, i%3 == number%3 && (number/3+i/3+j)%2 == 0, (number+i+j)%2 == 0)
			if !due && *shots == "" {
				continue
			}
			b.size(window).theme(theme)
			where := fmt.Sprintf("%s-%s-%d-%s", path.Base(b.t.Name()), name, window.width, theme)
			checkInspection(b.t, where, value[inspection](b, script))
			if *shots != "" {
				b.shoot(filepath.Join(*shots, where+".png"))
			}
		}
	}
}

func (b *tab) shoot(file string) {
	must.OK(b.t, os.WriteFile(file, must.Get(chromedp.Run(b.ctx, chromedp.FullScreenshot(100))).Or(b.t), 0o644))
}

// sound fails the test unless the open page is complete and, in a full run, accessible: axe-core
// takes half a second of a processor. Browser complaints are detected separately.
func (b *tab) sound(where string) *tab {
	if !b.scripts {
		return b // what measures is a script; the same page is measured where scripts run
	}
	if !size.Little() {
		b.loadAxe()
	}
	checkInspection(b.t, where, value[inspection](b, inspect))
	return b
}

var axeSource = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("testdata/axe/axe.min.js") })

func (b *tab) loadAxe() {
	axe := must.Get(axeSource()).Or(b.t)
	value[bool](b, string(axe)+"; true")
}

func checkInspection(t *testing.T, where string, got inspection) {
	must.Hold(t, strings.HasSuffix(got.Title, " · outboxweb"), "%s: the title is %q", where, got.Title)
	must.Equal(t, got.Headings, 1, where, "elements h1")
	must.Hold(t, got.Overflow <= 0, "%s: %v pixels wider than the window; furthest right is %s", where, got.Overflow, got.Widest)
	must.Hold(t, len(got.Styled) <= 0, "%s: inline styles: %v", where, got.Styled)
	must.Hold(t, len(got.Keyless) <= 0, "%s: without an idempotency key: %v", where, got.Keyless)
	for _, v := range got.Violations {
		t.Errorf("%s: %s: %s:\n%s", where, v.ID, v.Help, strings.Join(v.Nodes, "\n"))
	}
}
