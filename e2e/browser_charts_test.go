package e2e

import (
	"testing"
)

// The crosshair follows keys in every chart of the page, says what it points at, and goes away.
func TestBrowser_chartsAreReadByKeys(t *testing.T) {
	t.Parallel()
	s, _, _ := troubled(t)
	b := openTab(t, s)
	b.open("/charts")
	crosses := `[...document.querySelectorAll(".plot .cross")].filter(l => l.getAttribute("visibility") === "visible").length`
	plots := `document.querySelectorAll(".plot[data-chart]").length`
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

func TestBrowser_chartsFollowTheRange(t *testing.T) {
	t.Parallel()
	s, _, _ := troubled(t)
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
