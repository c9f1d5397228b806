package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// On a phone the first screen says how it is, a canary is one tap away, and the menu leads on. A browser without
// scripts does what forms and links say, which tests without a browser send and follow.
func TestBrowser_onAPhoneAndWithoutScripts(t *testing.T) {
	t.Parallel()
	size.Full(t, "pages in the width of a phone are in every run")
	s, _ := startSeats(t, quickDeath...)
	for i := range 8 {
		appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ana", "cem"))
	}
	for i := range 4 {
		appendTo(t, s, "", fmt.Sprintf("well-%02d", i), seats("ana", "ben", "cem"))
	}
	awaitCounts(t, s, "", 8, 0, 8)
	b, plain := openTab(t, s), openTab(t, s)
	plain.scripts = false
	tell(plain, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for _, b := range []*tab{b, plain} {
		b.size(narrow).menuLeadsOn()
	}
	b.open("/").firstScreen()
	b.open("/failures").sound("the failures on a phone")
	b.click(marked("requeue-group")).at("/operations/new")
	b.await("it is about all of them, with a canary", telling("main", "8 dead rows of 8 campaigns")+` && document.querySelector("#canary").checked`)
	b.await("its button is on the first screen", `(r => r.top > 0 && r.bottom <= 740)(document.querySelector(`+js(marked("requeue-confirm"))+`).getBoundingClientRect())`)
	b.sound("the canary before it starts")
	s.post(t, http.StatusOK, "/api/v1/rows/table-07/2/skip", map[string]any{"reason": "ana cannot sit twice, and nobody knows which of the seats was meant", "confirm": "skip table-07 2"})
	for _, page := range []string{"/campaigns/table-07/events/2", "/campaigns/table-07"} {
		b.open(page).await("the skip is told", telling("main", "nobody knows which of the seats was meant"))
		b.sound("a skip on a phone")
	}
	plain.size(wide)
	plain.rowsAreChosen()
}

// rowsAreChosen chooses a row without scripts, to which what only scripts can do is not offered, and requeues it.
func (b *tab) rowsAreChosen() {
	b.open("/rows?status=dead")
	b.await("what only scripts can do is not offered", `getComputedStyle(document.querySelector("[data-all]").closest("label")).display === "none"`)
	values := value[[]string](b, offered)
	b.click(`input[name=rows][value="` + values[1] + `"]`).click(marked("requeue-selected"))
	b.await("the choice is handed on", `location.pathname === "/operations/new" && location.search.endsWith(`+js("&rows="+url.QueryEscape(values[1]))+`) && `+telling("main", "1 dead row"))
	b.click("#canary") // all at once
	b.typeInto("input[name=reason]", "perhaps it fits now").click(marked("requeue-confirm")).at("/operations/1")
	b.lookUntil("it failed again", telling("#live", "failed again 1"))

	b.open("/campaigns/table-01/events/2").await("there is something to copy", `!!document.querySelector(".copy")`)
	n := value[int](b, `[...document.querySelectorAll(".copy, [data-pause], [data-notify], [data-times]")].filter(e => e.getClientRects().length > 0).length`)
	must.Equal(b.t, n, 0, "how many buttons promise what only scripts can do")
}

// menuLeadsOn opens the menu: its button says where the reader is, and every page of a section is two taps away.
func (b *tab) menuLeadsOn() {
	b.open("/")
	for _, step := range []struct{ here, link, there string }{
		{"Overview", "/rows?status=dead", "Failures · Dead rows"},
		{"Failures · Dead rows", "/runs", "Runs"},
		{"Runs", "/docs/operating", "System · Runbook"},
	} {
		b.await("the button says where one is", saying(".menu", step.here))
		b.await("the menu is closed", `!document.querySelector("#menu").checkVisibility()`)
		b.click(".menu")
		b.await("the menu has eight sections", `document.querySelector("#menu").checkVisibility() && `+count("#menu > ul > li", 8))
		b.await("and marks one page", count(`#menu [aria-current="page"]`, 1)).sound("the open menu at " + step.here)
		b.click(`#menu ul ul a[href="`+step.link+`"]`).await("the page is there", saying(".menu", step.there))
	}
}

func (b *tab) firstScreen() {
	b.await("one cause", telling(marked("cause"), "8 campaigns blocked, 16 events waiting"))
	for _, selector := range []string{".health .sentence", ".hero li", `[data-testid="cause"] h3`, `[data-testid="cause"] .reach`} {
		ok, _ := b.holds(`(all => all.length > 0 && all.every(r => r.top >= 0 && r.bottom <= 740 && r.width > 0 && r.right <= 360))([...document.querySelectorAll(` + js(selector) + `)].map(e => e.getBoundingClientRect()))`)
		must.Hold(b.t, ok, "%s is not on the first screen", selector)
	}
	b.await("the numbers are in two rows", `new Set([...document.querySelectorAll(".hero li")].map(e => e.getBoundingClientRect().top)).size === 2`)
	b.await("charts come after the cause", `document.querySelector(".history").getBoundingClientRect().top > document.querySelector('[data-testid="cause"]').getBoundingClientRect().bottom`)
	b.sound("a bad deploy on a phone")
	b.open("/campaigns/table-00/events/2")
	b.await("the payload comes before the actions", `document.querySelector('[data-testid="preview"]').getBoundingClientRect().bottom <= document.querySelector("#row-form").getBoundingClientRect().top`)
	b.await("the way forward is on the first screen", `(r => r.height > 0 && r.bottom < 740)(document.querySelector(".jump").getBoundingClientRect())`)
	b.sound("a failing event on a phone")
}
