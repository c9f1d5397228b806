package e2e

import (
	"slices"
	"strings"
	"testing"
)

// refusedWith is the condition that a form tells why it was refused and has kept its fields, by their
// selectors; without scripts a page tells that, and what was typed.
func (b *tab) refusedWith(form, why string, fields map[string]string) string {
	all := telling(form+" "+marked("refusal"), why)
	if !b.scripts {
		all = telling("main", why)
	}
	for field, typed := range fields {
		if b.scripts {
			all += " && document.querySelector(" + js(field) + ").value === " + js(typed)
		} else {
			all += " && " + telling(marked("typed"), typed)
		}
	}
	return all
}

// Input in a form survives a server that is down and a role that was revoked meanwhile, and the
// page says so without a line in the console.
func TestBrowser_aFormOutlivesItsServer(t *testing.T) {
	t.Parallel()
	d, flags := newDatabases(t), slices.Concat(quickDeath, writeProjections(t, seatProjections))
	s := start(t, d, flags...)
	appendTo(t, s, "", "poisoned", seats("ana", "ana", "cem"))
	awaitCounts(t, s, "", 1, 0, 1)
	b := openTab(t, s)
	b.expect("net::ERR_CONNECTION_REFUSED") // the browser's own line, which no page can suppress
	b.open("/campaigns/poisoned/events/2")
	if code := s.stop(t); code != 0 {
		t.Fatalf("the server ends with %d", code)
	}
	b.await("the page says that it is old", telling("[data-stale]", "The server cannot be reached"))
	b.typeInto("input[name=reason]", "ana left")
	b.click(marked("requeue"))
	b.await("the form says what is wrong", telling("#row-form #refusal", "The server cannot be reached")+` && document.activeElement.id === "refusal"`)
	b.sound("a form without its server")

	s = start(t, d, append(flags, "--listen", strings.TrimPrefix(s.url, "http://"))...)
	b.await("what was typed is there still", `document.querySelector("input[name=reason]").value === "ana left"`)
	change(t, d.projections(), freeSeat, "poisoned", "ana")
	b.click(marked("requeue"))
	b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign poisoned")+` && !document.querySelector("#refusal")`)
	b.await("the page goes on", telling(".rowstate", "Applied. All events up to"))
	s.awaitSettled(t)
}

// A success message disappears when its row has died again.
func TestBrowser_aSuccessThatDoesNotLast(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			appendTo(t, s, "", "poisoned", seats("ana", "ana", "cem"))
			awaitCounts(t, s, "", 1, 0, 1)
			b := kind.open(t, s)
			b.open("/campaigns/poisoned/events/2")
			b.click(marked("requeue"))
			b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign poisoned"))
			awaitCounts(t, s, "", 1, 0, 1)
			b.lookUntil("it is dead again, and no success stands above it", telling(".rowstate", "dead")+` && !document.querySelector(".flash:not(.warn)")`)
			if b.scripts {
				b.await("it says so", telling(marked("flash"), "It failed again"))
			}
		})
	}
}
