package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// A refused form says why at its field, and keeps what was typed: a phrase that is wrong, a row that has changed since,
// a server that is down.
func TestBrowser_aRefusedFormKeepsItsInput(t *testing.T) {
	t.Parallel()
	size.Full(t, "refusals are in every run, in internal/handlers")
	const row = "/campaigns/poisoned/events/2"
	d, flags := poisoned(t)
	s := start(t, d, flags...)
	b := openTab(t, s)
	b.open(row).click(marked("skip-open")).typeInto("#skip-reason", "ana cannot sit twice").typeInto("#skip-confirm", "skip it")
	b.enterDown(false)
	b.await("the phrase is asked for at its field", telling("#skip-form "+marked("refusal"), `skip poisoned 2`)+
		` && document.activeElement.id === "skip-confirm" && document.activeElement.value === "skip it" && document.querySelector("#skip-reason").value === "ana cannot sit twice"`)
	const unsent = `!document.documentElement.hasAttribute("data-sent")`
	b.await("the answer can be read", unsent)
	b.enterDown(true)
	ok, _ := b.holds(unsent)
	must.Hold(t, ok, "a key that is held sends the form again")
	b.enterUp()
	b.sound("a refused skip")

	b.open(row)
	b.typeInto("input[name=reason]", "seat freed") // from here on the page does not refresh
	const ground = `getComputedStyle(document.body).font + getComputedStyle(document.querySelector("header")).backgroundColor`
	styled := value[string](b, ground)
	s.post(t, http.StatusOK, "/api/v1/campaigns/poisoned/pause", map[string]any{"reason": "for the test"})
	s.post(t, http.StatusOK, "/api/v1/rows/poisoned/2/requeue", map[string]any{"reason": "by a script"})
	b.click(marked("requeue"))
	b.await("the refusal is shown", telling("#row-form "+marked("refusal"), "has changed since this page was loaded: status is pending, not dead, it has 0 failed attempts, not 2")+
		` && document.activeElement.id === "refusal" && document.querySelector("#reason").value === "seat freed"`)
	b.await("it says who did it", telling("main", "requeue by local")).await("the page is the same", ground+" === "+js(styled))
	b.sound("a refusal")
	b.click("#refusal a").await("the row is shown as it is", telling(".rowstate", "pending")).at(row)
	must.Equal(t, len(s.items(t, "/api/v1/audit?action=requeue&outcome=done")), 1, "the audit")
	b.away()

	s.post(t, http.StatusOK, "/api/v1/campaigns/poisoned/resume", map[string]any{"reason": "for the test"})
	awaitCounts(t, s, "", 1, 0, 1)
	b.expect("net::ERR_CONNECTION_") // the browser's own line, which no page can suppress
	b.open(row)
	must.Equal(t, s.stop(t), 0, "the server ended with")
	b.await("the page says that it is old", telling("[data-stale]", "The server cannot be reached"))
	b.typeInto("input[name=reason]", "ana left").click(marked("requeue"))
	b.await("the form says what is wrong", telling("#row-form #refusal", "The server cannot be reached")+` && document.activeElement.id === "refusal"`)
	b.sound("a form without its server")

	s = start(t, d, append(flags, "--listen", strings.TrimPrefix(s.url, "http://"))...)
	b.await("what was typed is there still", `document.querySelector("input[name=reason]").value === "ana left"`)
	change(t, d.projections(), freeSeat, "poisoned", "ana")
	b.click(marked("requeue"))
	b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign poisoned")+` && !document.querySelector("#refusal")`)
	b.seenAgain().await("the page goes on", telling(".rowstate", "Applied. All events up to"))
	s.awaitSettled(t)
}

// Scripts that fail to load are asked for once more. A page without them says a time that stays true.
func TestBrowser_scriptsThatFailToLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		says string // about when the page was read
		runs bool
	}{
		{"once", `^Updated (now|\d+ s ago)`, true},
		{"always", `^As of \d\d:\d\d:\d\d UTC`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			asked := map[string]int{} // how often for each script
			g := newGate(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, ".js") || strings.HasSuffix(r.URL.Path, "/start.js") {
						next.ServeHTTP(w, r)
						return
					}
					mu.Lock()
					asked[r.URL.Path]++
					fails := asked[r.URL.Path] == 1 || !c.runs
					mu.Unlock()
					if fails {
						w.Header().Set("Content-Type", "text/javascript")
						w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			b := openTab(t, g.start(t, newDatabases(t)))
			b.expect("503")
			b.scripts = c.runs
			b.open("/")
			eventually(t, "each script was asked for again", func() (bool, string) {
				mu.Lock()
				defer mu.Unlock()
				return len(asked) == map[bool]int{true: 3, false: 1}[c.runs] && !slices.ContainsFunc(slices.Collect(maps.Values(asked)), func(n int) bool { return n != 2 }), fmt.Sprint(asked)
			})
			b.await("the page says when it was read", `new RegExp(`+js(c.says)+`).test(document.querySelector(".looked").innerText)`)
			b.sound("a page whose scripts failed to load")
		})
	}
}
