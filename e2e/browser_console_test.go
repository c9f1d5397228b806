package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// press types on the page, with the current focus.
func (b *tab) press(keys string) {
	b.t.Helper()
	for _, key := range keys {
		b.do("press "+string(key), chromedp.KeyEvent(string(key)))
	}
}

// Keys open pages, find campaigns, switch the display of times and show their help; text typed into
// a field stays there.
func TestBrowser_keys(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, quickDeath...)
	appendTo(t, s, "", "poisoned", seats("ana", "ana", "cem"))
	awaitCounts(t, s, "", 1, 0, 1)
	b := openTab(t, s)
	b.open("/")
	for _, place := range []struct{ keys, path string }{
		{"ge", "/events"}, {"gc", "/campaigns"}, {"gp", "/failures"}, {"gj", "/operations"},
		{"gr", "/projections"}, {"gu", "/publishers"}, {"gs", "/instances"}, {"go", "/"},
	} {
		b.press(place.keys)
		b.at(place.path)
	}
	b.press("/")
	b.await("the field has the focus", `document.activeElement?.id === "find"`)
	b.press("gr?t") // a name, not commands; the protocol types the slash itself, too
	b.await("the field has what was typed", `document.querySelector("#find").value.endsWith("gr?t") && !document.querySelector("dialog[open]") && location.pathname === "/"`)
	value[bool](b, `(() => { document.querySelector("#find").value = "poi"; return true })()`)
	b.do("send the form", chromedp.KeyEvent("\r"))
	b.at("/search")
	b.await("the campaign is found", `location.search === "?q=poi" && !!document.querySelector('[data-testid="found-campaign"] a[href="/campaigns/poisoned"]')`)
	b.open("/campaigns")

	b.press("?")
	b.await("the help is shown", `document.querySelector("#keys").open`)
	b.click("#keys button")
	b.await("the help is gone", `!document.querySelector("#keys").open`)

	const shown = `[...document.querySelectorAll("#live time[data-rel]")].map(e => e.textContent)`
	b.await("times are ages", shown+`.length > 0 && `+shown+`.every(t => /^\d+ (s|min|h|d)( ago)?$|^now$/.test(t))`)
	b.press("t")
	b.await("times are hours in UTC", shown+`.every(t => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$/.test(t))`)
	b.await("the exact time is in the title", `[...document.querySelectorAll("#live time")].every(e => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(e.title))`)
	b.open("/rows?status=dead")
	b.await("the choice is kept", shown+`.length > 0 && `+shown+`.every(t => /Z$/.test(t))`)
	tell(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	b.press("t")
	b.await("times are hours of a zone that is named", saying("[data-times]", "Times: local (Europe/Berlin)")+` && `+shown+`.every(t => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(t))`)
	b.press("t")
	b.await("times are ages again", shown+`.every(t => !/Z$/.test(t))`)
}

// A page without auto-refresh, or in a hidden tab, sends no requests, shows its age, and resumes
// when it is visible again.
func TestBrowser_pausedPageRests(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t)
	appendTo(t, s, "", "c-1", seats("ana"))
	s.awaitSettled(t)
	s.post(t, http.StatusOK, "/api/v1/campaigns/c-1/pause", map[string]any{"reason": "so that rows wait"})
	b := openTab(t, s)
	b.open("/")
	b.lookUntil("nothing waits", saying(marked("count-pending"), "0"))
	b.click("[data-pause]")
	b.await("the button says so", saying("[data-pause]", "Auto-refresh: off"))
	asked := func() int { return value[int](b, `performance.getEntriesByType("resource").length`) }
	before := asked()
	appendTo(t, s, "", "c-1", seats("", "ben", "cem")[1:])
	b.await("it says that it is old", `document.querySelector(".looked").classList.contains("old")`)
	if n := asked(); n != before {
		t.Errorf("a paused page asked %d times", n-before)
	}
	b.await("it shows what it showed", saying(marked("count-pending"), "0"))
	b.press("p")
	b.await("it is up to date at once", saying(marked("count-pending"), "2")+` && !document.querySelector(".looked").classList.contains("old")`)

	value[bool](b, `(() => { Object.defineProperty(document, "hidden", {configurable: true, get: () => true}); return true })()`)
	before = asked()
	appendTo(t, s, "", "c-1", seats("", "", "", "dee")[3:])
	value[bool](b, `new Promise(done => setTimeout(() => done(true), 5000))`) // the rule is about time: two polls would have happened
	if n := asked(); n > before+1 {                                           // one may have been in progress
		t.Errorf("a hidden page asked %d times", n-before)
	}
	value[bool](b, `(() => { delete document.hidden; document.dispatchEvent(new Event("visibilitychange")); return true })()`)
	b.await("it is up to date when it is seen again", saying(marked("count-pending"), "3"))
}

// An error shared by many rows has a verdict, a note and links to its rows.
func TestBrowser_failures(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			for i := range 3 {
				appendTo(t, s, "", fmt.Sprintf("c-%d", i), seats("ana", "ana", "cem"))
			}
			awaitCounts(t, s, "", 3, 0, 3)
			b := kind.open(t, s)
			b.open("/")
			b.lookUntil("the overview lists the error", telling(marked("cause"), "3 campaigns blocked, 6 events waiting")+" && "+telling(marked("cause"), "retrying will fail again"))
			b.click(".causes a.error")
			b.at("/failures")
			b.await("it is judged", telling(".group", "6 of 6 attempts failed with the same error on one build"))
			b.click(".group details:has(input[name=note]) summary")
			b.typeInto(".group input[name=note]", "waits for Monday's build")
			b.click(marked("note"))
			b.await("the note is pinned", telling(".pinned", "waits for Monday's build")+" && "+telling(marked("flash"), "Note saved"))
			var groups struct {
				Items []struct {
					Dead    int
					Outlook string `json:"retry_outlook"`
					Note    struct{ Note string }
				}
			}
			s.get(t, "/api/v1/failures/groups", &groups)
			if len(groups.Items) != 1 || groups.Items[0].Dead != 3 || groups.Items[0].Outlook != "none" || groups.Items[0].Note.Note != "waits for Monday's build" {
				t.Errorf("the API has %+v", groups.Items)
			}
			b.click(".group .badge")
			b.at("/rows")
			b.await("its rows are listed", `document.querySelectorAll("tbody tr").length === 3`)
		})
	}
}
