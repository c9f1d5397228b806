package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// sound fails the test unless the open page is complete and, in a full run, accessible: axe-core
// takes half a second of a processor. Browser complaints are detected separately.
func (b *tab) sound(where string) {
	b.t.Helper()
	if !b.scripts {
		return // what measures is a script; the same page is measured where scripts run
	}
	if !testing.Short() {
		b.loadAxe()
	}
	checkInspection(b.t, where, value[inspection](b, inspect))
}

// figures are what the API says of the counts on the overview.
type figures struct {
	Counts    struct{ Pending, Processing, Failed, Dead int64 }
	Campaigns struct{ Total, Lagging, Blocked, Paused, Diverged, Drifted int64 }
	Lag       struct{ Events int64 }
}

// agrees waits until the overview and the API say the same.
func (b *tab) agrees() {
	b.t.Helper()
	eventually(b.t, patience, "page and API agree", func() (bool, string) {
		var f figures
		b.s.get(b.t, "/api/v1/summary", &f)
		want := fmt.Sprint(f.Lag.Events, f.Counts.Pending, f.Counts.Processing, f.Counts.Failed, f.Counts.Dead, f.Campaigns.Blocked, f.Campaigns.Paused, f.Campaigns.Diverged, f.Campaigns.Drifted)
		shown, err := read[string](b, `[document.querySelector(".hero .number"), ...[...document.querySelectorAll(".statuses .number")].slice(0, 8)].map(e => e.textContent.replaceAll(",", "")).join(" ")`)
		if err == nil && shown != want && !b.scripts {
			b.lookAgain()
		}
		return err == nil && shown == want, fmt.Sprintf("the page shows %s, the API has %s (%v)", shown, want, err)
	})
}

// In the morning, one line tells that all is well, and when it was updated; every count is there
// and links on.
func TestBrowser_morningGlance(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t)
			for i := range 12 {
				appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ben", "cem"))
			}
			s.awaitSettled(t)
			b := kind.open(t, s)
			b.open("/")
			b.lookUntil("all is well", saying(".health .sentence", "All 12 campaigns are current."))
			b.await("it says when it looked", `/^(Updated (now|\d+ s ago)|As of \d\d:\d\d:\d\d UTC)/.test(document.querySelector(".looked").innerText)`)
			b.await("every count is shown and leads on", `document.querySelectorAll(".hero a[href]").length === 3 && document.querySelectorAll(".statuses a[href]").length === 10`)
			b.await("there are four charts", `document.querySelectorAll("figure.chart").length === 4`)
			b.await("nothing is in trouble or off", telling("#live", "No campaign is blocked or failing")+" && "+telling("#live", "Nothing is paused or disabled"))
			b.agrees()
			b.sound("the overview when all is well")
			b.click(`.spans a[href="/?range=24h"]`)
			b.await("the charts are of a day", `location.search === "?range=24h" && `+saying(".spans [aria-current]", "last 24 h"))
			b.sound("the overview of a day")
			b.click(marked("count-dead"))
			b.at("/rows")
			b.await("zero dead rows are no row", telling("#live", "No rows match"))
		})
	}
}

// A forgotten pause is on the overview with who, when and why, until it is ended.
func TestBrowser_pauseAndForget(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t)
			appendTo(t, s, "", "table", seats("ana", "ben"))
			s.awaitSettled(t)
			b := kind.open(t, s)
			b.open("/campaigns/table")
			b.typeInto("#pause-reason", "seats are counted by hand")
			b.click(marked("pause"))
			b.await("the pause is confirmed", telling(marked("flash"), "Paused campaign table."))
			b.sound("a paused campaign")
			appendTo(t, s, "", "table", seats("", "", "cem")[2:])
			b.open("/")
			b.lookUntil("the overview says what is off", telling("#live", "1 of 1 campaign is paused")+" && "+telling("#live .pair", "seats are counted by hand"))
			b.agrees()
			b.sound("the overview with a pause")
			var c struct{ State, Why, Blocker string }
			s.get(t, "/api/v1/campaigns/table", &c)
			if c.State != "paused" || c.Blocker != "paused" || !strings.Contains(c.Why, "seats are counted by hand") {
				t.Errorf("the API says %+v", c)
			}
			b.click(`.pair a[href="/campaigns/table"]`)
			b.at("/campaigns/table")
			b.await("what was appended waits", telling("#live", "2 of 3")+" && "+telling("#live", "paused"))
			b.typeInto("#resume-reason", "they are all there")
			b.click(marked("resume"))
			b.await("it goes on", telling(marked("flash"), "Resumed campaign table."))
			b.lookUntil("all is applied", telling("#live", "3 of 3")+" && "+telling("#live", "current"))
			b.await("both acts are listed", telling("#live", "seats are counted by hand")+" && "+telling("#live", "they are all there"))
			b.open("/")
			b.lookUntil("nothing is off any more", telling("#live", "Nothing is paused or disabled"))
		})
	}
}

// An alert fires because a campaign is blocked. The operator sees which and why, fixes the cause,
// requeues the head, and watches the alert end.
func TestBrowser_fromAlarmToDrained(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t, quickDeath...)
	appendTo(t, s, "", "healthy", seats("ana", "ben"))
	appendTo(t, s, "", "stuck", seats("ana", "ben", "ana", "dee", "eve"))
	awaitCounts(t, s, "", 2, 0, 1)
	eventually(t, patience, "the alarm goes off", func() (bool, string) {
		n := s.metric(t, "outboxweb_blocked_campaigns")
		return n == 1, fmt.Sprint(n)
	})

	b := openTab(t, s)
	b.open("/")
	b.lookUntil("the overview says what is wrong", saying(".health .sentence", "1 of 2 campaigns is blocked by a permanently failed event.")+" && "+saying(marked("count-dead"), "1"))
	b.agrees()
	b.sound("the overview in trouble")
	b.await("the cause says what waits", telling(marked("cause"), "1 campaign blocked, 3 events waiting"))
	b.click(marked("campaign-stuck") + " a")
	b.at("/campaigns/stuck")
	b.await("it says why it stands", telling("#live", "Event 3 has been dead for")+" && "+telling("#live", "2 rows wait behind it"))
	b.await("the timeline shows where", `document.querySelector(".timeline .head")?.textContent.includes("3") && document.querySelectorAll(".timeline li").length === 5`)
	b.sound("a blocked campaign")
	b.click(`.timeline .head a`)
	b.at("/campaigns/stuck/events/3")
	b.sound("the event at fault")

	change(t, d.projections(), freeSeat, "stuck", "ana")
	b.open("/campaigns/stuck")
	b.typeInto("#head-reason", "ana left her first seat")
	b.click(marked("requeue"))
	b.await("the act is confirmed", telling(marked("flash"), "Requeued event 3 of campaign stuck"))
	b.lookUntil("the campaign is drained", telling("#live", "5 of 5")+" && "+telling("#live", "Everything is applied"))
	eventually(t, patience, "the alarm ends", func() (bool, string) {
		n := s.metric(t, "outboxweb_blocked_campaigns")
		return n == 0, fmt.Sprint(n)
	})
	b.open("/")
	b.lookUntil("the overview is calm and remembers who did it", `!!document.querySelector(".health.h-ok")`+" && "+telling(".pair", "ana left her first seat"))
	b.agrees()
}

// Starting an operation affects the rows that the page showed, or none: a filter that selects other
// rows by now, and one that selects far more, are both refused.
func TestBrowser_wrongFilterGuard(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			for i := range 2 {
				appendTo(t, s, "", fmt.Sprintf("c-%d", i), seats("ana", "ana", "cem"))
			}
			awaitCounts(t, s, "", 2, 0, 2)
			b := kind.open(t, s)
			b.open("/rows?status=dead&campaign=c-1")
			b.click(marked("requeue-all"))
			b.at("/operations/new")
			b.await("the filter is kept", telling("main", "1 dead row of 1 campaign")+" && "+telling("main", "c-1"))
			b.sound("an operation before it starts")

			b.open("/operations/new")
			b.await("without a filter it is both", telling("main", "2 dead rows of 2 campaigns"))
			appendTo(t, s, "", "c-2", seats("ana", "ana", "cem"))
			awaitCounts(t, s, "", 3, 0, 3)
			b.typeInto("input[name=reason]", "two campaigns, as shown")
			b.expectRefusal("409")
			b.click(marked("requeue-confirm"))
			b.await("it is refused", b.refusedWith("form", "3 dead rows are selected now, not 2", map[string]string{"input[name=reason]": "two campaigns, as shown"}))
			b.open("/operations/new")
			b.await("the page says what it would be now", telling("main", "3 dead rows of 3 campaigns"))
			var list struct{ Items []struct{ ID int64 } }
			s.get(t, "/api/v1/operations", &list)
			if len(list.Items) != 0 {
				t.Errorf("%d operations were started", len(list.Items))
			}
			awaitCounts(t, s, "", 3, 0, 3)
		})
	}
}

// A problem is one click away from its runbook section.
func TestBrowser_troubleLeadsToTheRunbook(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			appendTo(t, s, "", "table", seats("ana", "ana", "cem"))
			awaitCounts(t, s, "", 1, 0, 1)
			b := kind.open(t, s)
			for _, page := range []string{"/", "/campaigns/table", "/failures"} {
				b.open(page)
				b.click(marked("guide"))
				b.at("/docs/operating")
				b.await("the section that applies is in sight", `location.hash === "#dead-heads-grow" && Math.abs(document.getElementById("dead-heads-grow").getBoundingClientRect().top) < innerHeight / 2`)
			}
			b.await("its commands are for this server", telling(".runbook", `curl -fsS "`+s.url+`/api/v1/failures/groups"`))
			b.sound("the runbook")
			b.click(`.runbook p a[href="/failures"]`)
			b.at("/failures")
		})
	}
}

// A button that is pressed twice in haste acts once, and says so.
func TestBrowser_pressedTwiceActsOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		for _, page := range []string{"/campaigns/table/events/2", "/campaigns/table"} {
			t.Run(kind.name+" on "+page, func(t *testing.T) {
				t.Parallel()
				s, d := startSeats(t, quickDeath...)
				appendTo(t, s, "", "table", seats("ana", "ana", "cem"))
				awaitCounts(t, s, "", 1, 0, 1)
				change(t, d.projections(), freeSeat, "table", "ana")
				b := kind.open(t, s)
				b.open(page)
				b.lookUntil("the row can be requeued", `!!document.querySelector(`+js(marked("requeue"))+`)`)
				b.clickTwice(marked("requeue"))
				b.await("it is confirmed", telling(marked("flash"), "Requeued event 2 of campaign table"))
				s.awaitSettled(t)
				var audit struct{ Items []struct{ Action string } }
				s.get(t, "/api/v1/audit?action=requeue&outcome=done", &audit)
				if len(audit.Items) != 1 {
					t.Errorf("the audit has %d requeues, want one", len(audit.Items))
				}
			})
		}
	}
}
