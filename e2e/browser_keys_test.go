package e2e

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/outboxweb/outboxweb/internal/must"
)

// keysOpenPages presses the keys that open pages, switch the display of times and show their help;
// text typed into a field stays there.
func (b *tab) keysOpenPages() {
	b.open("/")
	for _, place := range []struct{ keys, path string }{
		{"ge", "/events"}, {"gc", "/campaigns"}, {"gp", "/failures"}, {"gj", "/runs"},
		{"gr", "/projections"}, {"gu", "/publishers"}, {"gs", "/instances"}, {"go", "/"},
	} {
		b.press(place.keys).at(place.path)
	}
	b.press("/").await("the field has the focus", `document.activeElement?.id === "find"`)
	b.press("gr?t") // a name, not commands; the protocol types the slash itself, too
	b.await("the field has what was typed", `document.querySelector("#find").value.endsWith("gr?t") && !document.querySelector("dialog[open]") && location.pathname === "/"`)
	b.press("\r").at("/search")
	b.open("/campaigns").press("?").await("the help is shown", `document.querySelector("#keys").open`)
	b.click("#keys button").await("the help is gone", `!document.querySelector("#keys").open`)

	const shown = `[...document.querySelectorAll("#live time[data-rel]")].map(e => e.textContent)`
	b.await("times are ages", shown+`.length > 0 && `+shown+`.every(t => /^\d+ (s|min|h|d)( ago)?$|^now$/.test(t))`)
	b.press("t").await("times are hours in UTC", shown+`.every(t => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$/.test(t))`)
	b.await("the exact time is in the title", `[...document.querySelectorAll("#live time")].every(e => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(e.title))`)
	b.open("/rows?status=dead").await("the choice is kept", shown+`.length > 0 && `+shown+`.every(t => /Z$/.test(t))`)
	tell(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	b.press("t")
	b.await("times are hours of a zone that is named", saying("[data-times]", "Times: local (Europe/Berlin)")+` && `+shown+`.every(t => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(t))`)
	b.press("t").await("times are ages again", shown+`.every(t => !/Z$/.test(t))`)
}

const (
	shownRows = `[...document.querySelectorAll("table[data-list] tbody tr")].map(r => r.id)`
	offered   = `[...document.querySelectorAll("input[name=rows]")].map(b => b.value)`
	ticked    = `[...document.querySelectorAll("input[name=rows]:checked")].map(b => b.value)`
)

// keysMoveIn moves from row to row of a list, and from an event to those beside it.
func (b *tab) keysMoveIn(event string, seq int64) {
	b.open("/rows?status=dead")
	values := value[[]string](b, offered)
	end := len(values) - 1
	under := func(i int) string {
		return `document.activeElement?.closest("tr")?.querySelector("input[name=rows]")?.value === ` + js(values[i])
	}
	b.press("j").await("the first row is under the cursor", under(0))
	for range end + 2 {
		b.press("j")
	}
	b.await("the last row is the last", under(end))
	b.press("x").await("it is chosen", has(ticked, values[end:]))
	b.press("kx").await("the one before is chosen too", under(end-1)+" && "+has(ticked, values[end-1:]))
	b.press("x").await("and is not any more", has(ticked, values[end:]))
	b.typeInto("#f-q", "xjk").await("typing chooses nothing", has(ticked, values[end:]))
	b.click(fmt.Sprintf("tr:has(input[value=%q]) input", values[0])).press("\r")
	b.await("the row is open", `location.pathname.includes("/events/") && `+b.loaded())

	b.open(event).press("]")
	b.await("the next event is there", `location.pathname.endsWith("/events/`+fmt.Sprint(seq+1)+`") && `+b.loaded())
	b.press("[").at(event)
}

// searchSuggests asks the search box for a campaign and takes a suggestion. The list closes on Escape.
func (b *tab) searchSuggests(campaign string) {
	b.open("/").typeInto("#find", campaign[:6])
	b.await("suggestions are shown", `document.querySelector("#find-options")?.dataset.text === `+js(campaign[:6])+` && document.querySelectorAll("#find-options [role=option]").length > 0 && document.querySelector("#find").getAttribute("aria-expanded") === "true"`)
	b.sound("suggestions")
	b.do("close", chromedp.KeyEvent("\u001b"))
	b.await("they are gone", `document.querySelector("#find-options").hidden && document.querySelector("#find").getAttribute("aria-expanded") === "false"`)
	b.do("go to the first", chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	b.await("it is the active one", `document.querySelector("#find").getAttribute("aria-activedescendant") === "found-option-0" && document.querySelector("#found-option-0").getAttribute("aria-selected") === "true"`)
	leads := value[string](b, `document.querySelector("#found-option-0").dataset.href`)
	b.do("take it", chromedp.KeyEvent("\r"))
	b.await("it is open", b.loaded()+` && location.pathname + location.search === `+js(leads))
}

func (b *tab) copies(event string) {
	b.open(event)
	// The shell has no window in which to ask whether a page may copy.
	tell(b, browser.SetPermission, browser.SetPermissionParams{BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		Permission: &browser.PermissionDescriptor{Name: "clipboard-write"}, Setting: browser.PermissionSettingGranted})
	b.click("#live .twins summary")
	const box = "#live .twins .copyable:nth-of-type(2)"
	command := value[string](b, `document.querySelector(`+js(box+" pre")+`).textContent`)
	b.click(box + " .copy")
	b.await("it is said", saying("#copied", "Copied the command.")+` && document.querySelector("#copied").getAttribute("role") === "status"`)
	b.run(`const e = document.createElement("textarea"); e.id = "pasted"; document.querySelector("main").append(e); e.focus()`)
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Modifiers: 2, Key: "v", Code: "KeyV", Commands: []string{"paste"}})
	}
	b.await("it can be pasted", `document.querySelector("#pasted").value === `+js(command))
}

// placeIsKept leaves a long list at its end, whose rows come after the first paint, and comes back to it.
func (b *tab) placeIsKept() {
	b.open("/rows")
	const shown = `[...document.querySelectorAll("table[data-list] tbody tr")].filter(e => e.offsetHeight > 0).length === 50`
	b.await("all rows of the page are seen", shown)
	const end = `document.body.scrollHeight - innerHeight - scrollY`
	eventually(b.t, "it is where it was left", func() (bool, string) { // a busy browser remembers a place only after a while
		b.run(`scrollTo(0, document.body.scrollHeight)`)
		b.await("its end is seen", end+" < 500")
		b.click("table[data-list] tbody tr:nth-child(49) a")
		b.await("the event is open", `location.pathname.includes("/events/") && `+b.loaded())
		_, _ = read[bool](b, `history.back(), true`) // whose answer may be lost with the page
		b.await("the list is back", `location.pathname === "/rows" && `+b.loaded()+` && `+shown)
		left := value[float64](b, end)
		return left < 500, fmt.Sprintf("%v px above its end", left)
	})
}

func (b *tab) openCharts(path string) {
	b.open(path).await("the charts can be focused", `document.querySelector(".plot").tabIndex === 0`)
}

const crosses = `document.querySelectorAll(".plot .cross").length`

// The crosshair follows keys in every chart of the page, says what it points at, and goes away.
func (b *tab) chartsAreReadByKeys() {
	b.openCharts("/charts?beside=1h")
	b.await("no crosshair at first", crosses+` === 0`)
	press := func(key string) {
		b.run(`document.querySelector(".plot").focus()
			document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "` + key + `", bubbles: true, cancelable: true}))`)
	}
	press("End")
	b.await("a crosshair in every chart", crosses+` > 3 && `+crosses+` === document.querySelectorAll(".plot").length`)
	b.await("the reading is announced", telling("[data-chart-said]", "pending"))
	b.await("so is what was an hour earlier", telling("[data-chart-said]", ", all, an hour earlier no record"))
	press("Home")
	b.await("the axis begins with the first sample", `(said => said.includes("pending") && said.startsWith(document.querySelector("#chart-times text").textContent))(document.querySelector("[data-chart-said]").textContent)`)
	press("Escape")
	b.await("the crosshair is gone", crosses+` === 0`)
}

// placeIn is a place in the first matching element, at a share of its width.
func (b *tab) placeIn(selector string, share float64) point {
	b.placeOf(selector)
	return value[point](b, fmt.Sprintf(`(r => ({x: r.x + r.width * %g, y: r.y + r.height / 2}))(document.querySelector(%s).getBoundingClientRect())`, share, js(selector)))
}

// The readings of a line, which the script takes from its path, are the values of its table.
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
		const steps = Number(document.querySelector("svg.axes").dataset.steps)
		return [...Array(steps).keys()].map(i => {
			area.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: r.x + r.width * (i + .5) / steps, clientY: r.y + 5}))
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
	from, to := b.placeIn(".plot .area", .25), b.placeIn(".plot .area", .75)
	want := value[[]float64](b, `(a => [Number(a.from) + Math.floor(.25 * a.steps) * a.step, Number(a.from) + Math.max(300, Math.ceil(.75 * a.steps) * a.step)])(document.querySelector("svg.axes").dataset)`)
	b.mouse(chromedp.MousePressed, from)
	b.mouse(chromedp.MouseMoved, to)
	b.await("the selection is marked", `parseFloat(document.querySelector(".plot .selected").getAttribute("width")) > 49`)
	b.mouse(chromedp.MouseReleased, to)
	b.await("the range is in the address", fmt.Sprintf(`(() => {
		const q = new URLSearchParams(location.search), at = n => Date.parse(q.get(n)) / 1000
		return !q.has("range") && Math.abs(at("from") - %f) <= 360 && Math.abs(at("to") - %f) <= 360 && document.querySelector(".free summary[aria-current]") !== null
	})()`, want[0], want[1]))
	b.click(`.crumbs a`).await("a link carries it on", `location.pathname === "/" && location.search.includes("from=")`)
	b.click(`.ranges a[href$="range=6h"]`)
	b.await("another is chosen", `location.search === "?range=6h" && document.querySelector(".ranges [aria-current]").textContent === "last 6 h"`)
}

func (b *tab) aCellOpensItsCampaign() {
	b.openCharts("/charts")
	b.mouse(chromedp.MouseMoved, b.placeIn(".heat", .3))
	const read = `document.querySelectorAll(".cell-mark").length === 1 && document.querySelector(".heat-readout").textContent.includes("behind")`
	b.await("the cell is read", read).refreshed()
	b.await("the refreshed page still reads it", read)
	at := b.placeIn(".heat", .3) // a refresh may have moved it
	campaign := value[string](b, `new URL(document.querySelector(".heat").previousElementSibling.href).pathname`)
	b.do("click the cell", chromedp.MouseClickXY(at.X, at.Y))
	b.await("the list starts at that time", `location.pathname === `+js(campaign)+` && new URLSearchParams(location.search).has("from")`)
}
