package e2e

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A browser without scripts does what forms and links say, which tests without a browser send and follow: rows
// are chosen and requeued, a search is kept, and a read model is shown as of an event.
func TestBrowser_withoutScripts(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, quickDeath...)
	const dead = 7
	for i := range dead {
		appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ana", "cem"))
	}
	appendTo(t, s, "", "well", seats("ana", "ben", "cem"))
	awaitCounts(t, s, "", dead, 0, dead)
	b := openTabWithoutScripts(t, s)
	b.open("/")
	b.await("it says when it looked", `/^As of \d\d:\d\d:\d\d UTC/.test(document.querySelector(".looked").innerText)`)
	b.lookUntil("the overview counts the dead", saying(marked("count-dead"), fmt.Sprint(dead)))
	b.await("the cause says what waits", telling(marked("cause"), "7 campaigns blocked"))
	b.rowsAreChosen()
	b.searchIsKept()
	b.open("/campaigns/table-01/events/2")
	b.await("there is something to copy", `!!document.querySelector(".copy")`)
	n := value[int](b, `[...document.querySelectorAll(".copy, [data-pause], [data-notify], [data-times]")].filter(e => e.getClientRects().length > 0).length`)
	must.Hold(t, n <= 0, "%d buttons promise what only scripts can do", n)
	b.open("/campaigns/well/read-model")
	b.do("choose an event by keyboard", chromedp.Focus("#seq"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	b.click(marked("go"))
	b.await("the rows are those after it", telling(marked("as-of-seq"), "Event 1 of 3"))
}

func (b *tab) rowsAreChosen() {
	b.open("/rows?status=dead")
	b.await("what only scripts can do is not offered", `getComputedStyle(document.querySelector("[data-all]").closest("label")).display === "none"`)
	values := value[[]string](b, offered)
	b.expect("422")
	b.click(marked("requeue-selected"))
	b.await("nothing ticked is not everything", telling("main", "No row is selected"))
	b.open("/rows?status=dead")
	b.click(`input[name=rows][value="` + values[1] + `"]`)
	b.click(marked("requeue-selected"))
	b.await("the choice is handed on", `location.pathname === "/operations/new" && location.search.endsWith(`+js("&rows="+url.QueryEscape(values[1]))+`)`)
	b.await("the page says what it would do", telling("main", "1 dead row"))
	b.click("#canary") // all at once
	b.typeInto("input[name=reason]", "perhaps it fits now")
	b.click(marked("requeue-confirm"))
	b.at("/operations/1")
	b.lookUntil("it failed again", telling("#live", "failed again 1"))
}

func (b *tab) searchIsKept() {
	b.open("/")
	b.typeInto("#find", "seat.taken today")
	b.do("send the form", chromedp.KeyEvent("\r"))
	b.at("/search")
	b.open("/events?event_type=seat.taken")
	b.click(`.views summary`)
	b.typeInto("#view-name", "seats")
	b.do("keep the view", chromedp.KeyEvent("\r"))
	b.at("/events")
	b.await("the view is listed", says(".views a", "seats"))
}
