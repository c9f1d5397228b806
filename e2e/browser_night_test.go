package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func (b *tab) follow(link string) {
	path, ours := strings.CutPrefix(link, b.s.url)
	must.Need(b.t, ours, "the message links to %q, want a page of %s", link, b.s.url)
	b.open(path)
}

// A bad deploy, from the message that it broke campaigns to the one that it is over.
func TestBrowser_badDeployFromMessageToAllClear(t *testing.T) {
	fullOnly(t, "the pages that it leads through are those of other tests")
	t.Parallel()
	const all, broken = 30, 20
	d, p, g := newDatabases(t), pager{newPartner(t, always(0))}, newGate(t)
	came := func(i int) []event {
		payload := map[string]any{"name": "ana"}
		if i >= broken {
			payload["nick"] = "ana"
		}
		return []event{{EventType: "guest.came", Payload: payload}, {EventType: "guest.came", Payload: payload}}
	}
	flags := append(quickDeath, p.config(t, d, "dead_rows")...)
	s := g.start(t, d, append(flags, writeProjections(t, guestProjections(":payload.name!"))...)...)
	for i := range all {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), came(i))
	}
	s.awaitSettled(t)
	s.stop(t)

	s = g.start(t, d, append(flags, writeProjections(t, guestProjections(":payload.nick!"))...)...)
	for i := range all {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), came(i))
	}
	awaitCounts(t, s, "", broken, 0, broken)
	m := p.await(t, "firing", "dead_rows")
	must.Hold(t, m.Version != "" && strings.Contains(m.Error, "nick"), "the message is %+v", m)

	b := openTab(t, s)
	b.open("/")
	cause := func(text string) string { return telling(marked("cause"), text) }
	b.lookUntil("one cause, and whom it blocks", saying(marked("failing-causes"), "1")+" && "+cause("20 campaigns blocked, 40 events waiting"))
	b.await("since which deploy, and what to do", cause(", after projection guests changed to "+m.Version[:8])+" && "+cause("See the failing statement"))
	b.sound("the overview after a bad deploy")
	b.click(marked("guide"))
	b.at("/docs/operating")
	b.await("the section that applies is in sight", `location.hash.length > 1 && Math.abs(document.getElementById(location.hash.slice(1)).getBoundingClientRect().top) < innerHeight / 2`)
	b.follow(m.Console)
	b.await("the message leads to the deploy, the statement, and the way forward", telling(".group", ", after projection guests changed to "+m.Version[:8])+" && "+
		`document.querySelector('.group .primary').matches('[data-testid="rehearse"]') && !!(document.querySelector('[data-testid="source"]').compareDocumentPosition(document.querySelector(".group .blocked")) & Node.DOCUMENT_POSITION_FOLLOWING)`)
	b.sound("where the message leads")
	b.click(marked("rehearse"))
	b.at("/rehearsals/new")
	b.await("the file is there to be edited", `document.querySelector("#text").value.includes(":payload.nick!")`)
	b.sound("the rehearsal of a fix")
	const fixed = "coalesce(:payload.nick, :payload.name!)"
	b.await("the file is changed", `(t => { t.value = t.value.replace(":payload.nick!", `+js(fixed)+`); return true })(document.querySelector("#text"))`)
	b.click(marked("rehearse-start"))
	b.at("/runs/1")
	b.lookUntil("the fix would do", telling(marked("rehearsal-answer"), "20")+` && !!document.querySelector(`+js(marked("rehearsal-not-loaded"))+`)`)
	b.sound("a rehearsal that passed")

	b.away()
	s.stop(t)
	loaded := writeProjections(t, guestProjections(fixed))
	s = g.start(t, d, append(flags, loaded...)...)
	b.open("/")
	b.await("the overview says that the loaded files passed", telling(".cause .verdict", "every blocked campaign passed rehearsal 1: requeue with a canary")+" && "+telling(marked("last-verified"), "No verify has compared all campaigns lately")+
		` && document.querySelector(".cause "+`+js(marked("requeue-group"))+`).href.includes("rehearsal=1")`)
	b.open("/runs/1")
	b.click(marked("rehearsal-canary"))
	b.at("/operations/new")
	b.await("it is about all of them", telling("main", "20 dead rows of 20 campaigns")+` && document.querySelector("#canary").checked`)
	b.click(marked("requeue-confirm"))
	b.at("/operations/1")
	b.lookUntil("the canary and the waves are done", telling(marked("operation-why"), "done")+" && "+telling("#live", "✓ done 20")+" && "+telling(marked("verify-next"), "compare the read models"))
	o := awaitOperation(t, s, 1)
	must.Hold(t, o.Status == "done" && o.Totals.Done == broken && o.Groups[0].Wave >= 4, "the API says %+v", o)
	b.open("/")
	b.lookUntil("rows of two versions are not all clear", telling(".health .sentence", "has rows that another version of its definition built."))
	b.open("/operations/1")
	b.click(marked("verify-next") + " a")
	b.at("/runs/new")
	b.click(marked("run-start"))
	b.at("/runs/2")
	b.lookUntil("the rows match", telling(marked("run-why"), "The live rows of 30 campaigns match the journal"))
	b.open("/")
	b.lookUntil("all clear", saying(".health .sentence", "All 30 campaigns are current."))
	b.sound("the overview when it is over")
	over := p.await(t, "resolved", "dead_rows")
	must.Hold(t, strings.Contains(over.Title, "no row is dead"), "the last message is %+v", over)
	b.away()
	s.stop(t)
	checkClean(t, d, loaded...)
}
