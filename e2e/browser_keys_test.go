package e2e

import (
	"fmt"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// keysOpenPages presses the keys that open pages, switch the display of times and show their help;
// text typed into a field stays there.
func (b *tab) keysOpenPages() {
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
	b.press("\r")
	b.at("/search")
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
	b.press("j")
	b.await("the first row is under the cursor", under(0))
	for range end + 2 {
		b.press("j")
	}
	b.await("the last row is the last", under(end))
	b.press("x")
	b.await("it is chosen", has(ticked, values[end:]))
	b.press("kx")
	b.await("the one before is chosen too", under(end-1)+" && "+has(ticked, values[end-1:]))
	b.press("x")
	b.await("and is not any more", has(ticked, values[end:]))
	b.typeInto("#f-q", "xjk")
	b.await("typing chooses nothing", has(ticked, values[end:]))
	b.click(fmt.Sprintf("tr:has(input[value=%q]) input", values[0]))
	b.press("\r")
	b.await("the row is open", `location.pathname.includes("/events/") && `+b.loaded())

	b.open(event)
	b.press("]")
	b.await("the next event is there", `location.pathname.endsWith("/events/`+fmt.Sprint(seq+1)+`") && `+b.loaded())
	b.press("[")
	b.at(event)
}

// searchSuggests asks the search box for a campaign and takes a suggestion. The list closes on Escape.
func (b *tab) searchSuggests(campaign string) {
	b.open("/")
	b.typeInto("#find", campaign[:6])
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
	eventually(b.t, patience, "it is where it was left", func() (bool, string) { // a busy browser remembers a place only after a while
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
