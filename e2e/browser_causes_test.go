package e2e

import (
	"fmt"
	"testing"
)

// On a phone at night the first screen says how it is, the three numbers, and what fails; one tap
// leads to the canary.
func TestBrowser_badDeployOnAPhone(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			const dead, all = 8, 12
			for i := range all {
				names := seats("ana", "ben", "cem")
				if i < dead {
					names = seats("ana", "ana", "cem")
				}
				appendTo(t, s, "", fmt.Sprintf("table-%02d", i), names)
			}
			awaitCounts(t, s, "", dead, 0, dead)
			b := kind.open(t, s)
			b.size(viewport{360, 740})
			b.open("/")
			b.lookUntil("one cause", telling(marked("cause"), "8 campaigns blocked, 16 events waiting")+" && "+saying(marked("failing-causes"), "1"))
			within := func(what, selector string) {
				t.Helper()
				if ok, _ := b.holds(`[...document.querySelectorAll(` + js(selector) + `)].length > 0 && [...document.querySelectorAll(` + js(selector) + `)].every(e => { const r = e.getBoundingClientRect(); return r.top >= 0 && r.bottom <= 740 && r.width > 0 && r.right <= 360 })`); !ok {
					t.Errorf("%s is not on the first screen", what)
				}
			}
			within("the health", ".health .sentence")
			within("a number", ".hero li")
			within("the error", `[data-testid="cause"] h3`)
			within("the reach", `[data-testid="cause"] .reach`)
			if ok, _ := b.holds(`new Set([...document.querySelectorAll(".hero li")].map(e => e.getBoundingClientRect().top)).size === 1`); !ok {
				t.Error("the numbers are not in one row")
			}
			if ok, _ := b.holds(`document.querySelector(".history").getBoundingClientRect().top > document.querySelector('[data-testid="cause"]').getBoundingClientRect().bottom`); !ok {
				t.Error("charts come before the cause")
			}
			b.sound("a bad deploy on a phone")
			b.click(marked("requeue-group"))
			b.at("/operations/new")
			b.await("it is about all heads of the cause", telling("main", "8 dead rows of 8 campaigns")+` && document.querySelector("#canary").checked`)
		})
	}
}
