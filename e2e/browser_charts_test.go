package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// The charts of one server are read in every way.
func TestBrowser_charts(t *testing.T) {
	t.Parallel()
	s, _, _ := troubled(t)
	for name, test := range map[string]func(*testing.T, *server){
		"are read by keys":               chartsAreReadByKeys,
		"are read by the mouse":          chartsAreReadByMouse,
		"follow the range":               chartsFollowTheRange,
		"select a range that is dragged": aDragOverAChartSelectsItsRange,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// The crosshair follows keys in every chart of the page, says what it points at, and goes away.
func chartsAreReadByKeys(t *testing.T, s *server) {
	b := openTab(t, s)
	b.open("/charts")
	crosses := `[...document.querySelectorAll(".plot .cross")].filter(l => l.getAttribute("visibility") === "visible").length`
	plots := `document.querySelectorAll(".plot").length`
	b.await("the charts can be focused", `document.querySelector(".plot").tabIndex === 0`)
	b.await("no crosshair at first", crosses+` === 0`)
	b.await("focus", `(document.querySelector(".plot").focus(), document.activeElement.matches(".plot"))`)
	press := func(key string) {
		b.t.Helper()
		value[bool](b, `(document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "`+key+`", bubbles: true, cancelable: true})), true)`)
	}
	press("End")
	b.await("a crosshair in every chart", crosses+` > 3 && `+crosses+` === `+plots)
	b.await("the reading is announced", `document.querySelector("[data-chart-said]").textContent.includes("pending")`)
	press("Home")
	b.await("the first step has no record", `document.querySelector("[data-chart-said]").textContent.includes("no record")`)
	press("Escape")
	b.await("the crosshair is gone", crosses+` === 0`)
}

func chartsFollowTheRange(t *testing.T, s *server) {
	b := openTab(t, s)
	b.open("/")
	b.click(`.ranges a[href$="range=6h"]`)
	b.await("the range is in the address", `location.search === "?range=6h" && document.querySelector(".ranges [aria-current]").textContent === "last 6 h"`)
	b.click(`.ranges a[href*="/charts?range"]`)
	b.await("the range is kept", `location.pathname.endsWith("/charts") && location.search === "?range=6h"`)
	plain := openTabWithoutScripts(t, s)
	plain.open("/charts?table=true")
	plain.open("/charts?range=7d")
}

// plotAt is a place in the first chart of the page, at a share of its width.
func (b *tab) plotAt(share float64) point {
	b.t.Helper()
	b.placeOf(".plot .area")
	return value[point](b, fmt.Sprintf(`(() => {
		const r = document.querySelector(".plot .area").getBoundingClientRect()
		return {x: r.x + r.width * %g, y: r.y + r.height / 2}
	})()`, share))
}

func (b *tab) mouse(typ input.DispatchMouseEventType, at point, options ...chromedp.MouseOption) {
	b.t.Helper()
	b.do("move the mouse", chromedp.MouseEvent(typ, at.X, at.Y, options...))
}

// A line's readings, which the script takes from its path, are the values of its table.
func chartsAreReadByMouse(t *testing.T, s *server) {
	b := openTab(t, s)
	b.open("/charts?table=true")
	rows := value[[][]string](b, `[...document.querySelectorAll("div.numbers tr")].map(r => [...r.cells].map(c => c.textContent.trim()))`)
	column := slices.Index(rows[0], "Append to applied: p99")
	if column < 0 {
		t.Fatalf("the columns are %q", rows[0])
	}
	values := map[string]string{}
	for _, row := range rows[1:] {
		if row[column] != "–" {
			values[row[0][len(row[0])-5:]] = row[column]
		}
	}
	if len(values) == 0 {
		t.Fatal("no step has a latency")
	}
	b.open("/charts")
	b.await("the script is ready", `document.querySelector(".plot").tabIndex === 0`)
	reading := `[...document.querySelectorAll(".chart")].find(c => c.textContent.includes("Append to applied")).querySelector(".readout").textContent`
	seen := 0
	for step := range 60 {
		b.mouse(chromedp.MouseMoved, b.plotAt((float64(step)+.5)/60))
		text := value[string](b, reading)
		clock, _, _ := strings.Cut(text, "–")
		if p99 := values[clock]; p99 != "" {
			seen++
			if !strings.HasSuffix(text, "p99 "+p99) {
				t.Errorf("the reading is %q, want a p99 of %s", text, p99)
			}
		}
	}
	if seen == 0 {
		t.Error("no step with a latency was read")
	}
	b.mouse(chromedp.MouseMoved, point{1, 1})
	b.await("the crosshair is gone", `!document.querySelector('.cross[visibility="visible"]')`)
}

func aDragOverAChartSelectsItsRange(t *testing.T, s *server) {
	b := openTab(t, s)
	b.open("/charts?range=6h")
	b.await("the script is ready", `document.querySelector(".plot").tabIndex === 0`)
	from, to := b.plotAt(.25), b.plotAt(.75)
	want := value[[]float64](b, `(() => {
		const a = document.querySelector("svg.axes").dataset
		return [Number(a.from) + 15 * a.step, Number(a.from) + 45 * a.step]
	})()`)
	b.mouse(chromedp.MousePressed, from, chromedp.Button("left"))
	b.mouse(chromedp.MouseMoved, to)
	b.await("the selection is marked", `parseFloat(document.querySelector(".plot .selected").getAttribute("width")) > 49`)
	b.mouse(chromedp.MouseReleased, to, chromedp.Button("left"))
	b.await("the range is in the address", fmt.Sprintf(`(() => {
		const q = new URLSearchParams(location.search), at = n => Date.parse(q.get(n)) / 1000
		return !q.has("range") && Math.abs(at("from") - %f) <= 360 && Math.abs(at("to") - %f) <= 360 && document.querySelector(".free summary[aria-current]") !== null
	})()`, want[0], want[1]))
	b.click(`.crumbs a`)
	b.await("a link carries it on", `location.pathname === "/" && location.search.includes("from=")`)
}

// A cell of the heatmap opens its campaign with the events of its time.
func TestBrowser_aCellOfTheHeatmapFiltersTheList(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	s := start(t, d, "--poll-interval", "100ms")
	for range 30 {
		appendTo(t, s, "", "late", seats("ana"))
	}
	s.awaitSettled(t)
	at := time.Now().UTC().Truncate(time.Minute).Add(-30 * time.Minute).UnixMicro()
	if _, err := connect(t, d.journal(), "mode=rw").Exec(`
insert into series_samples (kind, step, at, label, source, value) values ('behind', 60, $1, 'late', '', 7)`, at); err != nil {
		t.Fatal(err)
	}
	b := openTab(t, s)
	b.open("/campaigns/late")
	first := `document.querySelector("[aria-labelledby=events] tbody tr").id`
	b.await("the page shows the last events", first+` === "event-11"`)
	b.open("/charts")
	b.await("the script is ready", `document.querySelector(".heat").tabIndex === 0`)
	b.placeOf(".heat")
	read := `document.querySelector(".heat-readout").textContent.includes(": 7 events behind") && document.querySelectorAll(".cell-mark").length === 1`
	var cell point
	eventually(t, patience, "the cell is read", func() (bool, string) { // it moves when a minute ends
		cell = value[point](b, fmt.Sprintf(`(() => {
			const r = document.querySelector(".heat").getBoundingClientRect(), a = document.querySelector("svg.axes").dataset
			return {x: r.x + r.width * ((%d - a.from) / a.step + .5) / a.steps, y: r.y + r.height / 2}
		})()`, at/1e6))
		b.mouse(chromedp.MouseMoved, cell)
		return value[bool](b, read), ""
	})
	value[bool](b, `document.addEventListener("htmx:afterSwap", () => window.refreshed = true) === undefined`)
	appendTo(t, s, "", "late", seats("bo"))
	b.await("the refreshed page still reads it", "window.refreshed && "+read)
	b.do("click the cell", chromedp.MouseClickXY(cell.X, cell.Y))
	b.await("the list starts at that time", `location.pathname === "/campaigns/late" && new URLSearchParams(location.search).has("from") && `+first+` === "event-1"`)
}
