package e2e

import (
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// On a phone the first screen says how it is, a canary is one tap away, and the menu works without scripts, too.
func TestBrowser_phone(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, quickDeath...)
	for i := range 8 {
		appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ana", "cem"))
	}
	for i := range 4 {
		appendTo(t, s, "", fmt.Sprintf("well-%02d", i), seats("ana", "ben"))
	}
	awaitCounts(t, s, "", 8, 0, 8)
	for _, open := range []func(*testing.T, *server) *tab{openTab, openTabWithoutScripts} {
		b := open(t, s)
		b.size(narrow)
		b.menuLeadsOn()
	}

	b := openTab(t, s)
	b.size(narrow)
	b.open("/")
	b.firstScreen()
	b.open("/failures")
	b.sound("the failures on a phone")
	b.click(marked("requeue-group"))
	b.at("/operations/new")
	b.await("it is about all of them, with a canary", telling("main", "8 dead rows of 8 campaigns")+` && document.querySelector("#canary").checked`)
	b.await("its button is on the first screen", `(r => r.top > 0 && r.bottom <= 740)(document.querySelector(`+js(marked("requeue-confirm"))+`).getBoundingClientRect())`)
	b.sound("the canary before it starts")
}

// menuLeadsOn opens the menu: its button says where the reader is, and every page of a section is two taps
// away.
func (b *tab) menuLeadsOn() {
	b.open("/")
	for _, step := range []struct{ here, link, there string }{
		{"Overview", "/rows?status=dead", "Problems · Dead rows"},
		{"Problems · Dead rows", "/runs", "Jobs · Runs"},
		{"Jobs · Runs", "/docs/operating", "System · Runbook"},
	} {
		b.await("the button says where one is", saying(".menu", step.here))
		b.await("the menu is closed", `!document.querySelector("#menu").checkVisibility()`)
		b.click(".menu")
		b.await("the menu has eight sections", `document.querySelector("#menu").checkVisibility() && `+count("#menu > ul > li", 8))
		b.await("and marks one page", count(`#menu [aria-current="page"]`, 1))
		b.sound("the open menu at " + step.here)
		b.click(`#menu ul ul a[href="` + step.link + `"]`)
		b.await("the page is there", saying(".menu", step.there))
	}
}

func (b *tab) firstScreen() {
	b.t.Helper()
	b.await("one cause", telling(marked("cause"), "8 campaigns blocked, 16 events waiting")+" && "+saying(marked("failing-causes"), "1"))
	for _, selector := range []string{".health .sentence", ".hero li", `[data-testid="cause"] h3`, `[data-testid="cause"] .reach`} {
		ok, _ := b.holds(`(all => all.length > 0 && all.every(r => r.top >= 0 && r.bottom <= 740 && r.width > 0 && r.right <= 360))([...document.querySelectorAll(` + js(selector) + `)].map(e => e.getBoundingClientRect()))`)
		must.Hold(b.t, ok, "%s is not on the first screen", selector)
	}
	b.await("the numbers are in one row", `new Set([...document.querySelectorAll(".hero li")].map(e => e.getBoundingClientRect().top)).size === 1`)
	b.await("charts come after the cause", `document.querySelector(".history").getBoundingClientRect().top > document.querySelector('[data-testid="cause"]').getBoundingClientRect().bottom`)
	b.sound("a bad deploy on a phone")
	b.open("/campaigns/table-00/events/2")
	b.await("the payload comes before the actions", `document.querySelector('[data-testid="preview"]').getBoundingClientRect().bottom <= document.querySelector("#row-form").getBoundingClientRect().top`)
	b.await("the way forward is on the first screen", `(r => r.height > 0 && r.bottom < 740)(document.querySelector(".jump").getBoundingClientRect())`)
	b.sound("a failing event on a phone")
}
