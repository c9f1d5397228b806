package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// orders starts a server whose journal has the events of a few orders.
func orders(t *testing.T) *server {
	t.Helper()
	s, _ := startSeats(t)
	for i := range 20 {
		s.post(t, http.StatusCreated, "/api/v1/campaigns/shop/events", map[string]any{"event_type": "order.placed", "entity_type": "order", "entity_id": fmt.Sprint(i), "payload": map[string]any{"n": i}})
	}
	return s
}

// sentence asks for order 17 around now, as a person would.
func sentence() string {
	now := time.Now().UTC()
	from, to := now.Add(-2*time.Minute), now.Add(2*time.Minute)
	return fmt.Sprintf("order 17 %s %s-%s", from.Format(time.DateOnly), from.Format("15:04"), to.Format("15:04"))
}

// What happened to order 17 in these minutes: ask, take the first suggestion, open the event.
func TestBrowser_whatHappenedToAnOrderTakesThreeSteps(t *testing.T) {
	t.Parallel()
	s := orders(t)
	b := openTab(t, s)
	b.open("/")
	b.click("#find")
	asked := sentence()
	b.typeInto("#find", asked)
	b.await("suggestions are shown", `document.querySelector("#find-options")?.dataset.text === `+js(asked)+` && document.querySelectorAll("#find-options [role=option]").length > 1 && document.querySelector("#find").getAttribute("aria-expanded") === "true"`)
	b.do("go to the first", chromedp.KeyEvent(kb.ArrowDown))
	b.await("it is the active one", `document.querySelector("#find").getAttribute("aria-activedescendant") === "found-option-0" && document.querySelector("#found-option-0").getAttribute("aria-selected") === "true"`)
	b.do("take it", chromedp.KeyEvent("\r"))
	b.at("/events")
	b.await("the one event is shown", `document.querySelectorAll('tr[id^="event-"]').length === 1 && new URLSearchParams(location.search).get("entity_id") === "17"`)
	b.sound("the events that were found")
	api := value[string](b, `"/api/v1/events" + location.search`)
	b.click(`tr[id^="event-"] th a`)
	b.at("/campaigns/shop/events/18")
	b.sound("the event that was found")
	var found struct{ Items []struct{ Seq int64 } }
	s.get(t, api, &found)
	if len(found.Items) != 1 || found.Items[0].Seq != 18 {
		t.Errorf("the API finds %+v, want event 18", found.Items)
	}
}

func TestBrowser_searchWorksWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := orders(t)
	b := openTabWithoutScripts(t, s)
	b.open("/")
	b.typeInto("#find", sentence())
	b.do("send the form", chromedp.KeyEvent("\r"))
	b.at("/search")
	b.click(`[data-testid="found-range"] li:first-child a`)
	b.at("/events")
	b.await("the one event is shown", `document.querySelectorAll('tr[id^="event-"]').length === 1`)
	b.click(`.views summary`)
	b.typeInto("#view-name", "order 17")
	b.do("keep the view", chromedp.KeyEvent("\r"))
	b.at("/events")
	b.await("the view is listed", `[...document.querySelectorAll(".views a")].some(a => a.textContent === "order 17")`)
}

// The list of suggestions closes on Escape, and pages of the search are accessible.
func TestBrowser_searchIsAccessible(t *testing.T) {
	t.Parallel()
	s := orders(t)
	b := openTab(t, s)
	for _, page := range []string{"/events", "/events?q=nowhere", "/search?q=zzz", "/search?q=s+-1d", "/campaigns", "/rows"} {
		b.open(page)
		for _, size := range []viewport{{1280, 900}, {360, 800}} {
			b.size(size)
			b.sound(fmt.Sprintf("%s %d wide", page, size.width))
		}
	}
	b.open("/")
	b.typeInto("#find", "sho")
	b.await("suggestions are shown", `document.querySelector("#find").getAttribute("aria-expanded") === "true"`)
	b.sound("suggestions")
	b.do("close", chromedp.KeyEvent("\u001b"))
	b.await("they are gone", `document.querySelector("#find-options").hidden && document.querySelector("#find").getAttribute("aria-expanded") === "false"`)
}
