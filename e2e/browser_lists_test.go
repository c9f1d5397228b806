package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// poisonedTables starts a server with so many campaigns, each with a dead head: table-00, table-01
// and so on, which died in this order.
func poisonedTables(t *testing.T, n int) *server {
	t.Helper()
	s, _ := startSeats(t, quickDeath...)
	for i := range n {
		appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ana"))
	}
	awaitCounts(t, s, "", 0, 0, int64(n))
	return s
}

const (
	shownRows = `[...document.querySelectorAll("table[data-list] tbody tr")].map(r => r.id)`
	ticked    = `[...document.querySelectorAll("input[name=rows]:checked")].map(b => b.value)`
)

// box selects the checkbox of the head of a campaign of poisonedTables.
func box(campaign string) string { return marked("row-"+campaign+"-2") + ` input[name=rows]` }

// has is the condition that a list in the page equals this one.
func has(list string, want []string) string {
	return `JSON.stringify(` + list + `) === ` + js(js(want))
}

// While rows are selected, the list does not refresh and says what would change. A requested
// refresh keeps the selected rows that still exist.
func TestBrowser_choosingRowsHoldsTheListStill(t *testing.T) {
	t.Parallel()
	s := poisonedTables(t, 12)
	b := openTab(t, s)
	b.open("/rows?status=dead&limit=100")
	rows := value[[]string](b, shownRows)
	values := value[[]string](b, `[...document.querySelectorAll("input[name=rows]")].map(b => b.value)`)
	if len(rows) != 12 || len(values) != 12 {
		t.Fatalf("shown are %v", rows)
	}
	campaign := func(i int) string { return strings.TrimSuffix(values[i], "/2") }
	b.await("nothing is chosen", saying(marked("selected"), "0 selected"))

	b.click(box(campaign(2)))
	b.await("one is chosen", saying(marked("selected"), "1 selected"))
	b.click(box(campaign(6)), chromedp.ButtonModifiers(chromedp.ModifierShift))
	b.await("shift chooses a range", has(ticked, values[2:7]))
	b.await("it is counted", saying(marked("selected"), "5 selected"))
	b.click(box(campaign(4)))
	b.await("one is taken out", has(ticked, append(slices.Clone(values[2:4]), values[5:7]...)))
	b.click(box(campaign(4)))

	for _, gone := range []int{3, 9} {
		s.post(t, http.StatusOK, "/api/v1/campaigns/"+campaign(gone)+"/pause", map[string]any{"reason": "for the test"})
		s.post(t, http.StatusOK, "/api/v1/rows/"+campaign(gone)+"/2/requeue", map[string]any{"reason": "for the test"})
	}
	appendTo(t, s, "", "table-zz", seats("ana", "ana"))
	b.await("the page says what has changed", telling("[data-changes]", "3 changed"))
	if got := value[[]string](b, shownRows); !slices.Equal(got, rows) {
		t.Errorf("the list has moved: %v", got)
	}
	b.await("the choice is kept", has(ticked, values[2:7]))

	left := slices.DeleteFunc(slices.Clone(rows), func(r string) bool {
		return r == "row-"+campaign(3)+"-2" || r == "row-"+campaign(9)+"-2"
	})
	b.click(marked("show-changes"))
	b.await("the changes are shown", has(shownRows, append(left, "row-table-zz-2")))
	b.await("what is still there is chosen", has(ticked, append([]string{values[2]}, values[4:7]...)))
	b.await("that is counted", saying(marked("selected"), "4 selected"))
	b.await("nothing is held back", `document.querySelector("[data-changes]").hidden`)

	b.click(marked("select-all"))
	b.await("all are chosen", saying(marked("selected"), "11 selected"))
	b.click(marked("select-all"))
	b.await("none is chosen", saying(marked("selected"), "0 selected"))
	s.post(t, http.StatusOK, "/api/v1/campaigns/table-zz/pause", map[string]any{"reason": "for the test"})
	s.post(t, http.StatusOK, "/api/v1/rows/table-zz/2/requeue", map[string]any{"reason": "for the test"})
	b.await("the list moves on by itself", has(shownRows, left))

	b.click(box(campaign(0)))
	b.click(box(campaign(1)))
	b.click(marked("requeue-selected"))
	b.await("the choice is handed on", `location.pathname === "/operations/new" && JSON.stringify(new URLSearchParams(location.search).getAll("rows")) === `+js(js(values[:2])))
	b.await("the page says what it would do", telling("main", "2 dead rows"))
}

func TestBrowser_choosingRowsWorksWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := poisonedTables(t, 3)
	b := openTabWithoutScripts(t, s)
	b.open("/rows?status=dead")
	b.await("what only scripts can do is not offered", `getComputedStyle(document.querySelector("[data-all]").closest("label")).display === "none"`)
	values := value[[]string](b, `[...document.querySelectorAll("input[name=rows]")].map(b => b.value)`)
	b.expect("422")
	b.click(marked("requeue-selected"))
	b.await("nothing ticked is not everything", telling("main", "No row is selected"))
	b.open("/rows?status=dead")
	b.click(`input[name=rows][value="` + values[1] + `"]`)
	b.click(marked("requeue-selected"))
	b.await("the choice is handed on", `location.pathname === "/operations/new" && location.search.endsWith(`+js("&rows="+url.QueryEscape(values[1]))+`)`)
	b.await("the page says what it would do", telling("main", "1 dead row"))
}

func TestBrowser_keysGoFromRowToRow(t *testing.T) {
	t.Parallel()
	s := poisonedTables(t, 4)
	b := openTab(t, s)
	b.open("/rows?status=dead")
	values := value[[]string](b, `[...document.querySelectorAll("input[name=rows]")].map(b => b.value)`)
	press := func(keys string) { b.do("press "+keys, chromedp.KeyEvent(keys)) }
	under := func(i int) string {
		return `document.activeElement?.closest("tr")?.querySelector("input[name=rows]")?.value === ` + js(values[i])
	}
	press("j")
	b.await("the first row is under the cursor", under(0))
	press("jj")
	b.await("the third row is", under(2))
	press("x")
	b.await("it is chosen", has(ticked, values[2:3]))
	press("kx")
	b.await("the one before is chosen too", has(ticked, values[1:3]))
	press("x")
	b.await("and is not any more", has(ticked, values[2:3]))
	press("jjjj")
	b.await("the last row is the last", under(3))
	b.typeInto("#f-q", "xjk")
	b.await("typing chooses nothing", has(ticked, values[2:3]))
	b.click(box(strings.TrimSuffix(values[0], "/2")))
	press("\r")
	b.at("/campaigns/" + strings.Replace(values[0], "/", "/events/", 1))
}

func TestBrowser_listsLeadOnAndBack(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := poisonedTables(t, 7)
			b := kind.open(t, s)
			b.open("/rows?status=dead&limit=3")
			first := value[[]string](b, shownRows)
			b.await("the total is told", telling(marked("shown"), "3 of 7 shown"))
			b.click(marked("next-page"))
			b.await("the second page follows", `!(`+has(shownRows, first)+`) && document.querySelectorAll("table[data-list] tbody tr").length === 3`)
			second := value[[]string](b, shownRows)
			b.click(marked("next-page"))
			b.await("the third ends the list", `document.querySelectorAll("table[data-list] tbody tr").length === 1`)
			third := value[[]string](b, shownRows)
			appendTo(t, s, "", "table-zz", seats("ana", "ana"))
			s.post(t, http.StatusOK, "/api/v1/campaigns/"+tableOf(first[0])+"/pause", map[string]any{"reason": "for the test"})
			s.post(t, http.StatusOK, "/api/v1/rows/"+tableOf(first[0])+"/2/requeue", map[string]any{"reason": "for the test"})
			b.click(marked("prev-page"))
			b.await("back is the second page", has(shownRows, second))
			b.click(marked("prev-page"))
			b.await("back again is what is left of the first", has(shownRows, first[1:]))
			b.await("nothing comes before it", `!document.querySelector('[data-testid="prev-page"]')`)
			b.click(`th[aria-sort="ascending"] a`)
			b.await("the list can be turned", `document.querySelector("th[aria-sort]").getAttribute("aria-sort") === "descending"`)
			b.lookUntil("the last to die comes first", `JSON.stringify(`+shownRows+`.slice(0, 2)) === `+js(js([]string{"row-table-zz-2", third[0]})))
		})
	}
}

func tableOf(row string) string {
	return strings.TrimSuffix(strings.TrimPrefix(row, "row-"), "-2")
}

// The rows below the screen come after the first paint. A reader who returns to a long list is where
// they left it nevertheless, and sees every row.
func TestBrowser_aLongListIsWhereItWasLeft(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := poisonedTables(t, 1)
			appendTo(t, s, "", "table-0", slices.Repeat(seats("ana"), 60))
			b := kind.open(t, s)
			b.open("/rows")
			const shown = `[...document.querySelectorAll("table[data-list] tbody tr")].filter(e => e.offsetHeight > 0).length`
			b.await("all rows of the page are seen", shown+` === 50`)
			const end = `document.body.scrollHeight - innerHeight - scrollY`
			eventually(t, patience, "it is where it was left", func() (bool, string) { // a busy browser remembers a place only after a while
				value[bool](b, `scrollTo(0, document.body.scrollHeight), true`)
				b.await("its end is seen", end+" < 500")
				b.click("table[data-list] tbody tr:nth-child(49) a")
				b.await("the event is open", `location.pathname.includes("/events/") && `+b.loaded())
				_, _ = read[bool](b, `history.back(), true`) // whose answer may be lost with the page
				b.await("the list is back", `location.pathname === "/rows" && `+b.loaded()+` && `+shown+` === 50`)
				left := value[float64](b, end)
				return left < 500, fmt.Sprintf("%v px above its end", left)
			})
		})
	}
}
