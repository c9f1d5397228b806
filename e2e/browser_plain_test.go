package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Everything works without scripts: a dead head is found and fixed, rows are chosen and requeued, an event is
// skipped, lists lead on and back, a search is kept, and a read model is shown as of an event.
func TestBrowser_withoutScripts(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t, quickDeath...)
	const dead = 7
	for i := range dead {
		appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ana", "cem"))
		awaitCounts(t, s, "", int64(i+1), 0, int64(i+1)) // so that they die in this order
	}
	b := openTabWithoutScripts(t, s)
	b.open("/")
	b.await("it says when it looked", `/^As of \d\d:\d\d:\d\d UTC/.test(document.querySelector(".looked").innerText)`)
	b.lookUntil("the overview counts the dead", saying(marked("count-dead"), fmt.Sprint(dead)))
	b.await("the cause says what waits", telling(marked("cause"), "7 campaigns blocked"))
	b.listsLeadOnAndBack()
	b.deadHeadIsMended(d)
	b.staleFormIsRefused()
	b.rowsAreChosen()
	b.eventIsSkipped()
	b.searchIsKept()
	b.open("/campaigns/table-01/events/2")
	b.await("there is something to copy", `!!document.querySelector(".copy")`)
	if n := value[int](b, `[...document.querySelectorAll(".copy, [data-pause], [data-notify], [data-times]")].filter(e => e.getClientRects().length > 0).length`); n > 0 {
		t.Errorf("%d buttons promise what only scripts can do", n)
	}
	b.open("/campaigns/table-00/read-model")
	b.do("choose an event by keyboard", chromedp.Focus("#seq"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	b.click(marked("go"))
	b.await("the rows are those after it", telling(marked("as-of-seq"), "Event 1 of 3"))
}

func (b *tab) deadHeadIsMended(d databases) {
	b.open("/")
	b.click(marked("campaign-table-00") + ` a[href*="/events/"]`)
	b.at("/campaigns/table-00/events/2")
	b.await("the row's error is shown", telling(marked("explained"), "UNIQUE constraint failed: seats.campaign_id, seats.user_id")+" && "+count(".attempts li", 2))
	change(b.t, d.projections(), freeSeat, "table-00", "ana")
	b.typeInto("input[name=reason]", "ana left her first seat")
	b.clickTwice(marked("requeue"))
	b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign table-00"))
	b.lookUntil("the row is applied", telling(".rowstate", "Applied. All events up to"))
	b.open("/audit")
	b.await("the audit has the act once", telling("tbody tr", "Requeued event 2 of campaign table-00")+" && "+telling("tbody tr", "ana left her first seat")+
		` && [...document.querySelectorAll("tbody tr")].filter(e => e.innerText.includes("Requeued")).length === 1`)
}

func (b *tab) staleFormIsRefused() {
	b.open("/campaigns/table-01/events/2")
	b.typeInto("input[name=reason]", "seat freed")
	b.s.post(b.t, http.StatusOK, "/api/v1/campaigns/table-01/pause", map[string]any{"reason": "for the test"})
	b.s.post(b.t, http.StatusOK, "/api/v1/rows/table-01/2/requeue", map[string]any{"reason": "by a script"})
	b.expect("409")
	b.click(marked("requeue"))
	b.await("the refusal says what has changed, and keeps what was typed", telling("main", "has changed since this page was loaded: status is pending, not dead")+" && "+telling("main", "seat freed"))
	b.s.post(b.t, http.StatusOK, "/api/v1/campaigns/table-01/resume", map[string]any{"reason": "for the test"})
	awaitCounts(b.t, b.s, "", 6, 0, 6)
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

func (b *tab) eventIsSkipped() {
	b.open("/campaigns/table-06/events/2")
	b.click(marked("skip-open"))
	b.typeInto("#skip-reason", "ana cannot sit twice")
	b.typeInto("#skip-confirm", "skip table-06 2")
	b.click(marked("skip"))
	b.await("the act is confirmed", telling(marked("flash"), "Skipped event 2 of campaign table-06"))
	b.lookUntil("the row is gone", telling("main", "Skipped: no projection applied it")+" && "+telling(marked("skipped"), "ana cannot sit twice"))
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

func (b *tab) listsLeadOnAndBack() {
	const one = `document.querySelectorAll("table[data-list] tbody tr").length === 1`
	b.open("/rows?status=dead&limit=3")
	first := value[[]string](b, shownRows)
	b.await("the total is told", telling(marked("shown"), "3 of 7 shown"))
	b.click(marked("next-page"))
	b.await("the second page follows", `!(`+has(shownRows, first)+`) && !(`+one+`)`)
	second := value[[]string](b, shownRows)
	b.click(marked("next-page"))
	b.await("the third ends the list", one)
	b.click(marked("prev-page"))
	b.await("back is the second page", has(shownRows, second))
	b.click(marked("prev-page"))
	b.await("back again is the first, and nothing comes before it", has(shownRows, first)+` && !document.querySelector('[data-testid="prev-page"]')`)
	b.click(`th[aria-sort="ascending"] a`)
	b.await("the list can be turned", `document.querySelector("th[aria-sort]").getAttribute("aria-sort") === "descending" && `+shownRows+`[0] === "row-table-06-2"`)
}
