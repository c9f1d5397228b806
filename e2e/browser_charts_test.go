package e2e

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
)

func (b *tab) openCharts(path string) {
	b.t.Helper()
	b.open(path)
	b.await("the charts can be focused", `document.querySelector(".plot").tabIndex === 0`)
}

const crosses = `[...document.querySelectorAll(".plot .cross")].filter(l => l.getAttribute("visibility") === "visible").length`

// The crosshair follows keys in every chart of the page, says what it points at, and goes away.
func (b *tab) chartsAreReadByKeys() {
	b.openCharts("/charts")
	b.await("no crosshair at first", crosses+` === 0`)
	press := func(key string) {
		b.t.Helper()
		b.run(`document.querySelector(".plot").focus()
			document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "` + key + `", bubbles: true, cancelable: true}))`)
	}
	press("End")
	b.await("a crosshair in every chart", crosses+` > 3 && `+crosses+` === document.querySelectorAll(".plot").length`)
	b.await("the reading is announced", telling("[data-chart-said]", "pending"))
	press("Home")
	b.await("the first step has no record", telling("[data-chart-said]", "no record"))
	press("Escape")
	b.await("the crosshair is gone", crosses+` === 0`)
}

// plotAt is a place in the first chart of the page, at a share of its width.
func (b *tab) plotAt(share float64) point {
	b.t.Helper()
	b.placeOf(".plot .area")
	return value[point](b, fmt.Sprintf(`(r => ({x: r.x + r.width * %g, y: r.y + r.height / 2}))(document.querySelector(".plot .area").getBoundingClientRect())`, share))
}

// A line's readings, which the script takes from its path, are the values of its table.
func (b *tab) chartsAreReadByMouse() {
	b.open("/charts?table=true")
	rows := value[[][]string](b, `[...document.querySelectorAll("div.numbers tr")].map(r => [...r.cells].map(c => c.textContent.trim()))`)
	column := slices.Index(rows[0], "Append to applied: p99")
	must.Need(b.t, column >= 0, "the columns are %q", rows[0])
	values := map[string]string{}
	for _, row := range rows[1:] {
		if row[column] != "–" {
			values[row[0][len(row[0])-5:]] = row[column]
		}
	}
	b.openCharts("/charts")
	readings := value[[]string](b, `(() => {
		const area = document.querySelector(".plot .area"), r = area.getBoundingClientRect()
		const chart = [...document.querySelectorAll(".chart")].find(c => c.textContent.includes("Append to applied"))
		return [...Array(60).keys()].map(i => {
			area.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: r.x + r.width * (i + .5) / 60, clientY: r.y + 5}))
			return chart.querySelector(".readout").textContent
		})
	})()`)
	seen := 0
	for _, text := range readings {
		clock, _, _ := strings.Cut(text, "–")
		if p99 := values[clock]; p99 != "" {
			seen++
			must.Hold(b.t, strings.HasSuffix(text, "p99 "+p99), "the reading is %q, want a p99 of %s", text, p99)
		}
	}
	must.Hold(b.t, seen != 0, "no step with a latency was read: %q", readings)
	b.mouse(chromedp.MouseMoved, point{1, 1})
	b.await("the crosshair is gone", crosses+" === 0")
}

func (b *tab) aDragSelectsARange() {
	b.openCharts("/charts?range=6h")
	from, to := b.plotAt(.25), b.plotAt(.75)
	want := value[[]float64](b, `(a => [Number(a.from) + 15 * a.step, Number(a.from) + 45 * a.step])(document.querySelector("svg.axes").dataset)`)
	b.mouse(chromedp.MousePressed, from)
	b.mouse(chromedp.MouseMoved, to)
	b.await("the selection is marked", `parseFloat(document.querySelector(".plot .selected").getAttribute("width")) > 49`)
	b.mouse(chromedp.MouseReleased, to)
	b.await("the range is in the address", fmt.Sprintf(`(() => {
		const q = new URLSearchParams(location.search), at = n => Date.parse(q.get(n)) / 1000
		return !q.has("range") && Math.abs(at("from") - %f) <= 360 && Math.abs(at("to") - %f) <= 360 && document.querySelector(".free summary[aria-current]") !== null
	})()`, want[0], want[1]))
	b.click(`.crumbs a`)
	b.await("a link carries it on", `location.pathname === "/" && location.search.includes("from=")`)
	b.click(`.ranges a[href$="range=6h"]`)
	b.await("another is chosen", `location.search === "?range=6h" && document.querySelector(".ranges [aria-current]").textContent === "last 6 h"`)
}

func (b *tab) aCellOpensItsCampaign() {
	b.openCharts("/charts")
	cell := func() point {
		b.placeOf(".heat")
		return value[point](b, `(r => ({x: r.x + r.width * .3, y: r.y + r.height / 2}))(document.querySelector(".heat").getBoundingClientRect())`)
	}
	b.mouse(chromedp.MouseMoved, cell())
	const read = `document.querySelectorAll(".cell-mark").length === 1 && document.querySelector(".heat-readout").textContent.includes("record")`
	b.await("the cell is read", read)
	b.refreshed()
	b.await("the refreshed page still reads it", read)
	at := cell() // a refresh may have moved it
	campaign := value[string](b, `new URL(document.querySelector(".heat").previousElementSibling.href).pathname`)
	b.do("click the cell", chromedp.MouseClickXY(at.X, at.Y))
	b.await("the list starts at that time", `location.pathname === `+js(campaign)+` && new URLSearchParams(location.search).has("from")`)
}
