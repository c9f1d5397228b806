package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The overview refreshes itself without moving the reader.
func TestBrowser_overviewRefreshes(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, quickDeath...)
	const dead = 20
	for i := range dead {
		appendTo(t, s, "", fmt.Sprintf("poisoned-%02d", i), seats("ana", "ana", "cem"))
	}
	appendTo(t, s, "", "paused", seats("ana"))
	awaitCounts(t, s, "", dead, 0, dead)
	s.post(t, http.StatusOK, "/api/v1/campaigns/paused/pause", map[string]any{"reason": "for the test"})

	b := openTab(t, s)
	b.size(viewport{1280, 400}) // the page is longer than the window
	b.open("/")
	b.lookUntil("the overview is up to date", saying(marked("count-dead"), fmt.Sprint(dead))+" && "+saying(marked("count-pending"), fmt.Sprint(dead)))
	first := value[string](b, `document.querySelector(".blocked li").dataset.testid`)
	value[bool](b, `(() => {
		window.kept = [...document.querySelectorAll(".statuses a")].at(-1)
		kept.focus()
		kept.scrollIntoView({block: "center", behavior: "instant"})
		window.place = kept.getBoundingClientRect().top
		return true
	})()`)
	if scrolled := value[float64](b, "scrollY"); scrolled < 100 {
		t.Fatalf("the page is so short that it scrolls by %v pixels only", scrolled)
	}
	const asOf = `document.querySelector('[data-testid="as-of"]').dateTime`
	looked := value[string](b, asOf)

	// Seven more rows wait, four of them behind the head that was named last and is first now.
	last := value[string](b, `[...document.querySelectorAll(".blocked li")].at(-1).dataset.testid`)
	appendTo(t, s, "", "paused", seats("", "ben", "cem", "dee")[1:])
	appendTo(t, s, "", last[len("campaign-"):], seats("eve", "fay", "gus", "hal"))
	b.await("the counts have changed", saying(marked("count-pending"), fmt.Sprint(dead+7)))
	b.await("the campaigns have a new order", `document.querySelector(".blocked li").dataset.testid === `+js(last))
	if last == first {
		t.Errorf("one campaign only is named, %s", first)
	}
	b.await("the time of looking moves", asOf+` > `+js(looked))
	value[bool](b, `(document.querySelector("[data-testid=count-pending]").closest("a").focus({preventScroll: true}), true)`)
	appendTo(t, s, "", "paused", seats("", "", "", "", "ivy")[4:])
	b.await("a focused link shows its own number", saying(marked("count-pending"), fmt.Sprint(dead+8))+` && document.activeElement.matches("a") && document.activeElement.innerText.includes("pending")`)
	value[bool](b, `(kept.focus({preventScroll: true}), true)`)
	for what, condition := range map[string]string{
		"the page was loaded anew":    `!!window.kept`,
		"the focus was lost":          `document.activeElement === kept && kept.isConnected`,
		"what is looked at has moved": `Math.abs(kept.getBoundingClientRect().top - place) < 2`,
	} {
		if ok, _ := b.holds(condition); !ok {
			t.Error(what)
		}
	}
}

// An action on an outdated page is refused, with what has changed and who changed it.
func TestBrowser_stalePageIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			appendTo(t, s, "", "c-1", seats("ana", "ana", "cem"))
			awaitCounts(t, s, "", 1, 0, 1)
			s.post(t, http.StatusOK, "/api/v1/campaigns/c-1/pause", map[string]any{"reason": "for the test"})

			b := kind.open(t, s)
			b.open("/campaigns/c-1/events/2")
			b.typeInto("input[name=reason]", "seat freed") // from here on the page does not refresh
			const ground = `getComputedStyle(document.body).font + getComputedStyle(document.querySelector("header")).backgroundColor`
			styled := value[string](b, ground)
			s.post(t, http.StatusOK, "/api/v1/rows/c-1/2/requeue", map[string]any{"reason": "by a script"})

			b.expectRefusal("409")
			b.click(marked("requeue"))
			b.await("the refusal is shown, and what was typed is not lost", b.refusedWith("#row-form", "has changed since this page was loaded", map[string]string{"#reason": "seat freed"}))
			b.await("it says what changed", telling("main", "has changed since this page was loaded: status is pending, not dead, it has 0 failed attempts, not 2"))
			b.await("it says who did it", telling("main", "requeue by local"))
			b.await("it looks like the other pages", ground+" === "+js(styled))
			b.sound("a refusal")
			if b.scripts {
				b.await("the refusal has the focus", `document.activeElement.id === "refusal"`)
				b.click("#refusal a")
			} else {
				b.click(marked("back"))
			}
			b.at("/campaigns/c-1/events/2")
			b.await("the row is shown as it is", telling(".rowstate", "pending"))
			var audit struct{ Items []struct{ Action string } }
			s.get(t, "/api/v1/audit?action=requeue&outcome=done", &audit)
			if len(audit.Items) != 1 {
				t.Errorf("the audit has %+v, want the script's requeue alone", audit.Items)
			}
		})
	}
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
			var asked sync.Map // how often for each script
			g := newGate(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, ".js") || strings.HasSuffix(r.URL.Path, "/start.js") {
						next.ServeHTTP(w, r)
						return
					}
					times, _ := asked.LoadOrStore(r.URL.Path, new(atomic.Int32))
					if times.(*atomic.Int32).Add(1) == 1 || !c.runs {
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
			eventually(t, patience, "each script was asked for again", func() (bool, string) {
				all, twice := 0, 0
				asked.Range(func(_, times any) bool {
					all++
					if times.(*atomic.Int32).Load() == 2 {
						twice++
					}
					return true
				})
				return all == map[bool]int{true: 3, false: 1}[c.runs] && twice == all, fmt.Sprint(all, twice)
			})
			b.await("the page says when it was read", `new RegExp(`+js(c.says)+`).test(document.querySelector(".looked").innerText)`)
			b.sound("a page whose scripts failed to load")
		})
	}
}
