package e2e

import "testing"

// On a phone the button of the menu says where the reader is, the menu opens without scripts, and
// every page of a section is two taps away.
func TestBrowser_menuOfAPhone(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			appendTo(t, s, "", "poisoned", seats("ana", "ana"))
			awaitCounts(t, s, "", 0, 0, 1)
			b := kind.open(t, s)
			b.size(narrow)
			for _, step := range []struct{ here, link, there string }{
				{"Overview", "/rows?status=dead", "Problems · Dead rows"},
				{"Problems · Dead rows", "/runs", "Jobs · Runs"},
				{"Jobs · Runs", "/audit", "System · Audit log"},
				{"System · Audit log", "/docs/operating", "System · Runbook"},
			} {
				if step.here == "Overview" {
					b.open("/")
				}
				b.await("the button says where one is", saying(".menu", step.here))
				b.await("the menu is closed", `!document.querySelector("#menu").checkVisibility()`)
				b.click(".menu")
				b.await("the menu has eight sections", `document.querySelector("#menu").checkVisibility() && document.querySelectorAll("#menu > ul > li").length === 8`)
				b.await("and marks one page", `document.querySelectorAll('#menu [aria-current="page"]').length === 1`)
				b.sound("the open menu at " + step.here)
				b.click(`#menu ul ul a[href="` + step.link + `"]`)
				b.await("the page is there", saying(".menu", step.there))
			}
		})
	}
}
