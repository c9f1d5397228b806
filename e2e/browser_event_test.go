package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// An event's page says why the event fails and has its parts in tabs, with and without scripts.
func TestBrowser_anEventIsExplainedAndHasTabs(t *testing.T) {
	t.Parallel()
	d, projections := newDatabases(t), writeProjections(t, seatProjections)
	s := start(t, d, append(quickDeath, projections...)...)
	appendTo(t, s, "", "c-1", seats("ana", "ana", "cem"))
	awaitCounts(t, s, "", 1, 0, 1)
	text := mustCommand(t, d, nil, append([]string{"failures", "explain", "c-1", "2"}, projections...)...)
	for _, want := range []string{"A row with this key (campaign_id, user_id) exists already in seats.", "seats.sql:15 of projection seats", ">   15  insert into seats", `:payload.user`, `"ana" (refused)`, "THE ROW THAT IS THERE, BY EVENT 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the command lacks %q in\n%s", want, text)
		}
	}
	var api, cli struct{ Failures []json.RawMessage }
	s.get(t, "/api/v1/campaigns/c-1/events/2/explanation", &api)
	if err := json.Unmarshal([]byte(mustCommand(t, d, nil, append([]string{"failures", "explain", "--json", "c-1", "2"}, projections...)...)), &cli); err != nil {
		t.Fatal(err)
	}
	if a, c := fmt.Sprintf("%s", api.Failures), compacted(t, cli.Failures); len(api.Failures) != 1 || a != c {
		t.Errorf("the API says\n%s\nand the command\n%s", a, c)
	}
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			b := kind.open(t, s)
			b.open("/rows/c-1/2")
			b.at("/campaigns/c-1/events/2")
			b.await("the reason is in a sentence", telling(marked("explained"), "exists already in"))
			b.await("the failing lines are marked", `document.querySelectorAll(".source .failed").length > 0 && document.querySelectorAll(".source .line").length > document.querySelectorAll(".source .failed").length`)
			b.await("the row that is there is beside the values", telling(marked("values"), "The row that is there")+" && "+telling(marked("values"), `"ana"`)+` && document.querySelectorAll(".values .refused").length === 2`)
			b.await("the event that made it is named", telling(marked("existing"), "set by event 1"))
			b.size(narrow)
			b.await("on a phone the payload comes before the actions", `document.querySelector('[data-testid="preview"]').getBoundingClientRect().bottom <= document.querySelector("#row-form").getBoundingClientRect().top`)
			b.await("the way forward is on the first screen", `(r => r.height > 0 && r.bottom < 740)(document.querySelector(".jump").getBoundingClientRect())`)
			b.sound("a failing event on a phone")
			b.size(wide)
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

// compacted writes documents as a list, without their spaces.
func compacted(t *testing.T, documents []json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	for _, d := range documents {
		if err := json.Compact(&b, d); err != nil {
			t.Fatal(err)
		}
	}
	return "[" + b.String() + "]"
}
