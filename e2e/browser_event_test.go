package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// An event's page says why the event fails and has its parts in tabs, with and without scripts.
func TestBrowser_anEventIsExplainedAndHasTabs(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, quickDeath...)
	appendTo(t, s, "", "c-1", seats("ana", "ana", "cem"))
	awaitCounts(t, s, "", 1, 0, 1)
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			b := kind.open(t, s)
			b.open("/rows/c-1/2")
			b.at("/campaigns/c-1/events/2")
			b.await("the reason is in a sentence", telling(marked("explained"), "exists already in"))
			b.await("the failing lines are marked", `document.querySelectorAll(".source .failed").length > 0 && document.querySelectorAll(".source .line").length > document.querySelectorAll(".source .failed").length`)
			b.await("the row that is there is beside the values", telling(marked("values"), "The row that is there")+" && "+telling(marked("values"), `"ana"`)+` && document.querySelectorAll(".values .refused").length === 2`)
			b.await("attempts are folded", telling(marked("happened"), "2 attempts, the same error"))
			b.await("the payload is in sight", telling(marked("preview"), `"user"`))
			for _, tab := range []struct{ name, shows, lacks string }{
				{"payload", marked("tree-payload"), marked("happened")}, {"neighbours", "ol.queue", marked("tree-payload")}, {"details", "#live dl.facts", "ol.queue"},
			} {
				b.click(fmt.Sprintf(`.tabs a[href*="tab=%s"]`, tab.name))
				b.await("the tab "+tab.name, fmt.Sprintf(`!!document.querySelector(%s) && !document.querySelector(%s) && document.querySelector(".tabs [aria-current]").href.includes("tab=%s")`, js(tab.shows), js(tab.lacks), tab.name))
				b.sound("the tab " + tab.name)
			}
			b.click(`.tabs a:first-child`)
			b.await("back", telling(marked("happened"), "now dead"))
			b.sound("what happened")
			b.click(".steps a[rel=next]")
			b.await("the next event waits", telling("h1", "Event 3 of c-1")+" && "+telling(".rowstate", "waits behind event 2"))
		})
	}
	b := openTab(t, s)
	b.open("/campaigns/c-1/events/2")
	press := func(key string) { b.do("press "+key, chromedp.KeyEvent(key)) }
	press("]")
	b.at("/campaigns/c-1/events/3")
	press("[")
	b.at("/campaigns/c-1/events/2")
}
