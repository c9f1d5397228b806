package e2e

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

var markup = regexp.MustCompile(`<[^>]*>`)

// shows waits until a page has texts in what it says, or in its markup.
func (s *server) shows(t *testing.T, path string, texts ...string) {
	eventually(t, path+" shows all of it", func() (bool, string) {
		page := string(fetch(t, s, path).body)
		said := html.UnescapeString(markup.ReplaceAllString(page, ""))
		for _, text := range texts {
			if !strings.Contains(said, text) && !strings.Contains(page, text) {
				return false, "no " + text + " in\n" + tail(said, 2000)
			}
		}
		return true, ""
	})
}

// A bad deploy, from the message that it broke campaigns to the one that it is over.
func TestBadDeploy_fromMessageToAllClear(t *testing.T) {
	size.Full(t, "what it leads through is tested step by step elsewhere")
	t.Parallel()
	const all, broken = 9, 6
	d, p := newDatabases(t), newPartner(t, always(0))
	alerts := d.config(t, fmt.Sprintf("alerts: {receivers: {pager: {url: %q, allow_private: true}}, to: [pager], rules: {dead_rows: {over: 0, for: 0}}}", p.url))
	came := func(s *server) {
		for i := range all {
			one := guest("guest.came")
			if i >= broken {
				one.Payload["nick"] = "ana"
			}
			appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{one, one})
		}
	}
	deploy := func(name string) (*server, []string) {
		loaded := writeProjections(t, guestProjections(name))
		return start(t, d, slices.Concat(quickDeath, alerts, loaded, []string{"--public-origin", "https://ops.example"})...), loaded
	}
	s, _ := deploy(":payload.name!")
	came(s)
	s.awaitSettled(t)
	s.stop(t)

	s, _ = deploy(":payload.nick!")
	came(s)
	awaitCounts(t, s, "", broken, 0, broken)
	version := versionOf(t, s)
	p.hears(t, `"kind":"firing"`, `"rule":"dead_rows"`, `"projection_version":"`+version, "payload.nick is required", `"console_url":"https://ops.example/failures`)
	since := "after projection guests changed to " + version[:8]
	s.shows(t, "/", since, "6 campaigns blocked, 12 events waiting", "See the failing statement", `data-testid="guide"`)
	s.shows(t, "/failures", since, `data-testid="rehearse"`)
	const fixed = "coalesce(:payload.nick, :payload.name!)"
	s.post(t, http.StatusAccepted, "/api/v1/rehearsals", map[string]any{"files": []map[string]string{{"name": "guests.sql", "text": guestProjections(fixed)["guests.sql"]}}})
	awaitEnd(t, s, 1)
	s.shows(t, "/runs/1", "6 of 6 blocked campaigns would pass", `data-testid="rehearsal-not-loaded"`)
	s.stop(t)

	s, loaded := deploy(fixed)
	s.shows(t, "/", "every blocked campaign passed rehearsal 1: requeue with a canary", "rehearsal=1", "No verify has compared all campaigns lately")
	s.shows(t, "/runs/1", `data-testid="rehearsal-canary"`)
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"filter": map[string]any{}, "rehearsal": 1, "canary": true, "reason": "the fix is loaded"})
	o := awaitOperation(t, s, 1)
	must.Hold(t, o.Status == "done" && o.Totals.Done == broken, "the operation is %+v", o)
	s.shows(t, "/operations/1", `data-testid="verify-next"`)
	s.shows(t, "/", "has rows that another version of its definition built.")
	awaitEnd(t, s, startRun(t, s, map[string]any{"kind": "verify", "all_campaigns": true}).ID)
	s.shows(t, "/runs/2", "The live rows of 9 campaigns match the journal")
	s.shows(t, "/", "All 9 campaigns are current.")
	p.hears(t, `"kind":"resolved"`, "no row is dead")
	s.stop(t)
	checkClean(t, d, loaded...)
}
