package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
)

// noDesktop records what reaches the desktop that shows notifications, which is outside.
const noDesktop = `window.told = [];
	window.Notification = class { constructor(title, options) { window.told.push(title); window.marks = options } close() {} };
	window.Notification.permission = "granted";
	window.Notification.requestPermission = async () => "granted";`

// An open page follows what happens, below a base path: its title, icon and notifications, the overview
// without moving its reader, a list that is not moved while rows of it are chosen, and what became of an
// action. A paused or hidden page rests.
func TestBrowser_live(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t, append(quickDeath, "--base-path", outside)...)
	appendTo(t, s, outside, "healthy", seats("ana", "ben"))
	awaitCounts(t, s, outside, 0, 0, 0)
	b := openTab(t, s)
	b.base = outside
	b.inject(noDesktop)
	b.alarmStarts()

	const dead = 12
	for i := 1; i < dead; i++ {
		appendTo(t, s, outside, fmt.Sprintf("table-%02d", i), seats("ana", "ana", "cem"))
	}
	s.post(t, http.StatusOK, outside+"/api/v1/campaigns/healthy/pause", map[string]any{"reason": "so that rows wait"})
	awaitCounts(t, s, outside, dead, 0, dead)
	b.overviewFollows(dead)
	b.chosenRowsHoldTheList()
	b.rests()

	b.open("/campaigns/table-05/events/2").click(marked("requeue"))
	b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign table-05"))
	b.await("it is dead again, and no success stands above it", telling(".rowstate", "dead")+` && `+telling(".flash.warn", "It failed again"))

	s.post(t, http.StatusOK, outside+"/api/v1/campaigns/healthy/resume", map[string]any{"reason": "so that all is calm"})
	change(t, d.projections(), "delete from seats where user_id = $1 and campaign_id <> 'healthy'", "ana")
	s.post(t, http.StatusAccepted, outside+"/api/v1/operations", map[string]any{"filter": map[string]any{}, "canary": false, "reason": "the seats are free"})
	b.await("the trouble is over, which is told", `document.title === "Event 2 of table-05 · outboxweb" && document.querySelector("link[rel=icon]").href.endsWith("/icon.svg") && told.includes("outboxweb: no alarm any more")`)
	b.click("[data-notify]").await("the button says off", saying("[data-notify]", "Notifications: off"))
	s.post(t, http.StatusAccepted, outside+"/api/v1/runs", map[string]any{"kind": "verify", "all_campaigns": true})
	b.open("/runs/1").await("the run has ended", `!!document.querySelector("[data-ended]")`)
	before := value[int](b, polls)
	b.polledTwice()
	must.Equal(t, value[int](b, polls), before, "how often the page of a run that has ended asked")
}

func (b *tab) alarmStarts() {
	b.open("/")
	b.await("the title has no alarm", `document.title === "Overview · outboxweb" && document.querySelector("link[rel=icon]").href.endsWith("/icon.svg")`)
	b.click("[data-notify]").await("the button says on", saying("[data-notify]", "Notifications: on"))
	appendTo(b.t, b.s, b.base, "table-00", seats("ana", "ana", "cem"))
	b.await("the title shows trouble", `document.title === "✕ 1 blocked · Overview · outboxweb" && document.querySelector("link[rel=icon]").href.endsWith("/icon-bad.svg")`)
	b.await("a notification was sent, once", `told.filter(t => t === "outboxweb: 1 blocked").length === 1`)
	b.await("it says of which console", `marks.tag === "outboxweb/ops/outbox" && marks.body === location.host + "/ops/outbox"`)
	b.press("t")
	b.await("what the browser keeps is this console's", `Object.keys(localStorage).sort().join() === ["notify", "notify-at", "notify-kind", "times"].map(name => "outboxweb /ops/outbox " + name).join()`)
	b.open("/about")
	b.await("a page that does not refresh shows it, too", `document.title === "✕ 1 blocked · About · outboxweb" && told.length === 0`)
}

// overviewFollows has the overview refresh itself without moving the reader or taking the focus.
func (b *tab) overviewFollows(dead int) {
	b.size(viewport{1280, 400}) // the page is longer than the window
	b.open("/")
	b.await("the overview is up to date", saying(marked("count-dead"), fmt.Sprint(dead))+" && "+saying(marked("count-pending"), fmt.Sprint(dead)))
	b.run(`window.kept = document.querySelector("[data-testid=handover]")
		kept.focus()
		kept.scrollIntoView({block: "center", behavior: "instant"})
		window.place = kept.getBoundingClientRect().top`)
	scrolled := value[float64](b, "scrollY")
	must.Need(b.t, scrolled >= 100, "the page is so short that it scrolls by %v pixels only", scrolled)
	const asOf = `document.querySelector('[data-testid="as-of"]').dateTime`
	looked := value[string](b, asOf)
	// Seven more rows wait, four of them behind a head that is named now.
	const named = `document.querySelector('[data-testid=cause] [data-testid^="campaign-"]').dataset.testid`
	last := map[bool]string{true: "campaign-table-07", false: "campaign-table-08"}[value[string](b, named) != "campaign-table-07"]
	appendTo(b.t, b.s, b.base, "healthy", seats("", "", "cem", "dee", "eve")[2:])
	appendTo(b.t, b.s, b.base, last[len("campaign-"):], seats("", "", "", "eve", "fay", "gus", "hal")[3:])
	b.await("the counts have changed", saying(marked("count-pending"), fmt.Sprint(dead+7)))
	b.await("another campaign is the worst", named+` === `+js(last))
	b.await("the time of looking moves", asOf+` > `+js(looked))
	b.await("nothing has moved, and the focus is kept", `window.kept?.isConnected && document.activeElement === kept && Math.abs(kept.getBoundingClientRect().top - place) < 2`)
	b.run(`document.querySelector("[data-testid=count-pending]").closest("a").focus({preventScroll: true})`)
	appendTo(b.t, b.s, b.base, "healthy", seats("", "", "", "", "", "ivy")[5:])
	b.await("a focused link shows its own number", saying(marked("count-pending"), fmt.Sprint(dead+8))+` && document.activeElement.matches("a") && document.activeElement.innerText.includes("pending")`)
	b.size(wide)
}

func box(campaign string) string { return marked("row-"+campaign+"-2") + ` input[name=rows]` }

// chosenRowsHoldTheList chooses rows of a list: it does not refresh then, and says what would change. A
// requested refresh keeps the chosen rows that still exist.
func (b *tab) chosenRowsHoldTheList() {
	b.open("/rows?status=dead&limit=100")
	rows, values := value[[]string](b, shownRows), value[[]string](b, offered)
	campaign := func(i int) string { return strings.TrimSuffix(values[i], "/2") }
	requeue := func(campaign string) {
		b.s.post(b.t, http.StatusOK, b.base+"/api/v1/campaigns/"+campaign+"/pause", map[string]any{"reason": "for the test"})
		b.s.post(b.t, http.StatusOK, b.base+"/api/v1/rows/"+campaign+"/2/requeue", map[string]any{"reason": "for the test"})
	}
	b.await("nothing is chosen", saying(marked("selected"), "0 selected"))
	b.click(box(campaign(2))).await("one is chosen", saying(marked("selected"), "1 selected"))
	b.click(box(campaign(6)), chromedp.ButtonModifiers(chromedp.ModifierShift))
	b.await("shift chooses a range", has(ticked, values[2:7])+" && "+saying(marked("selected"), "5 selected"))
	b.click(box(campaign(4))).await("one is taken out", has(ticked, slices.Concat(values[2:4], values[5:7])))
	b.click(box(campaign(4)))
	requeue(campaign(3))
	requeue(campaign(9))
	b.await("the page says what has changed", telling("[data-changes]", "2 changed"))
	b.await("the list has not moved, and the choice is kept", has(shownRows, rows)+" && "+has(ticked, values[2:7]))
	left := slices.DeleteFunc(slices.Clone(rows), func(r string) bool { return r == "row-"+campaign(3)+"-2" || r == "row-"+campaign(9)+"-2" })
	b.click(marked("show-changes"))
	b.await("the changes are shown", has(shownRows, left)+` && document.querySelector("[data-changes]").hidden`)
	b.await("what is still there is chosen", has(ticked, append([]string{values[2]}, values[4:7]...))+" && "+saying(marked("selected"), "4 selected"))
	b.click(marked("select-all")).await("all are chosen", saying(marked("selected"), fmt.Sprintf("%d selected", len(left))))
	b.click(marked("select-all")).await("none is chosen", saying(marked("selected"), "0 selected"))
	requeue(campaign(7))
	b.await("the list moves on by itself", has(shownRows, slices.DeleteFunc(left, func(r string) bool { return r == "row-"+campaign(7)+"-2" })))
	b.click(box(campaign(0))).click(box(campaign(1))).click(marked("requeue-selected")).at("/operations/new")
	b.await("the choice is handed on", has(`new URLSearchParams(location.search).getAll("rows")`, values[:2])+" && "+telling("main", "2 dead rows"))
	for _, i := range []int{3, 9, 7} {
		b.s.post(b.t, http.StatusOK, b.base+"/api/v1/campaigns/"+campaign(i)+"/resume", map[string]any{"reason": "for the test"})
	}
	awaitEqual(b.t, "they are dead again", len(values), func() int { return int(b.s.summary(b.t, b.base).Counts.Dead) })
}

// polls is how often the page has read its live part; one with notifications may ask for the alarm.
const polls = `performance.getEntriesByType("resource").filter(e => !e.name.endsWith("/watch")).length`

// rests turns auto-refresh off, and hides the page: it asks for nothing, and is up to date when it is seen again.
func (b *tab) rests() {
	b.open("/")
	pending := value[int](b, `Number(document.querySelector('[data-testid="count-pending"]').innerText)`)
	b.click("[data-pause]").await("the button says so", saying("[data-pause]", "Auto-refresh: off"))
	b.polledTwice() // what was in progress is answered
	before := value[int](b, polls)
	appendTo(b.t, b.s, b.base, "healthy", []event{taken("seat-20", "gus")})
	b.polledTwice()
	b.run(`const real = Date.now; Date.now = () => real() + 20000`)
	b.await("it says that it is old", `document.querySelector(".looked").classList.contains("old")`)
	must.Equal(b.t, value[int](b, polls), before, "how often a paused page asked")
	b.await("it shows what it showed", saying(marked("count-pending"), fmt.Sprint(pending)))
	b.press("p")
	b.await("it is up to date at once", saying(marked("count-pending"), fmt.Sprint(pending+1))+` && !document.querySelector(".looked").classList.contains("old")`)

	b.hide()
	b.polledTwice()
	before = value[int](b, polls)
	appendTo(b.t, b.s, b.base, "healthy", []event{taken("seat-21", "hal")})
	b.polledTwice()
	must.Hold(b.t, value[int](b, polls) <= before, "a hidden page asked")
	b.run(`delete document.hidden`)
	b.seenAgain().await("it is up to date when it is seen again", saying(marked("count-pending"), fmt.Sprint(pending+2)))
}
