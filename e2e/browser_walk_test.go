package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"
)

// seatProjections is a read model that fails on some journals: no user may hold two seats of a
// campaign.
var seatProjections = map[string]string{"seats.sql": `
-- projection: seats
-- tables: seats

-- schema
create table seats (
  campaign_id text not null,
  seat text not null,
  user_id text not null,
  primary key (campaign_id, seat),
  unique (campaign_id, user_id)
);

-- on: seat.taken
insert into seats (campaign_id, seat, user_id) values (:campaign_id, :payload.seat!, :payload.user!);
`}

// taken is the event that a user takes a seat.
func taken(seat, user string) event {
	return event{EventType: "seat.taken", Payload: map[string]any{"seat": seat, "user": user}}
}

// seats are events of a campaign in which the users take a seat each, in this
// order. A user who is named twice makes the second event poisonous.
func seats(users ...string) []event {
	var events []event
	for i, user := range users {
		events = append(events, taken(fmt.Sprintf("seat-%d", i+1), user))
	}
	return events
}

// appendTo appends events to a campaign.
func appendTo(t *testing.T, s *server, base, campaign string, events []event) {
	t.Helper()
	s.post(t, http.StatusCreated, base+"/api/v1/campaigns/"+url.PathEscape(campaign)+"/events", map[string]any{"events": events})
}

// quickDeath are flags with which a poisonous event is dead soon.
var quickDeath = []string{"--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms"}

// startSeats starts a server for the seats projection.
func startSeats(t *testing.T, flags ...string) (*server, databases) {
	t.Helper()
	d := newDatabases(t)
	return start(t, d, append(flags, writeProjections(t, seatProjections)...)...), d
}

// awaitCounts waits for counts by status and for the campaigns' leases to be released.
func awaitCounts(t *testing.T, s *server, base string, pending, failed, dead int64) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("%d rows are pending, %d failed and %d dead", pending, failed, dead), func() (bool, string) {
		var sum summary
		s.get(t, base+"/api/v1/summary", &sum)
		c := sum.Counts
		return c.Pending == pending && c.Failed == failed && c.Dead == dead && c.Processing == 0 && sum.Campaigns.Leased == 0, fmt.Sprintf("%+v", sum)
	})
}

// change writes to a database behind the server's back, as an operator who fixes something does. It
// fails the test unless it changes a row.
func change(t *testing.T, place, statement string, args ...any) {
	t.Helper()
	db := connect(t, place, "_txlock=immediate")
	defer db.Close()
	result, err := db.Exec(statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s: changed %d rows (%v)", statement, n, err)
	}
}

const freeSeat = "delete from seats where campaign_id = $1 and user_id = $2"

// An operator sees on the overview that a row is dead, follows it to its cause, fixes that,
// requeues, and sees the campaign drain.
func TestBrowser_operatorMendsADeadHead(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, d := startSeats(t, quickDeath...)
			for i := range 5 {
				appendTo(t, s, "", fmt.Sprintf("healthy-%d", i), seats("ana", "ben", "cem"))
			}
			appendTo(t, s, "", "poisoned", seats("ana", "ben", "ana", "dee", "eve", "fay"))
			awaitCounts(t, s, "", 3, 0, 1)

			b := kind.open(t, s)
			b.open("/")
			for id, text := range map[string]string{"count-pending": "3", "count-processing": "0", "count-failed": "0", "count-dead": "1"} {
				b.lookUntil("the overview counts "+id, saying(marked(id), text))
			}
			board := marked("campaign-poisoned")
			b.await("the cause says why", telling(marked("cause"), "UNIQUE constraint failed"))
			b.await("the cause says what waits", telling(board, "4 waiting"))
			b.click(board + ` a[href*="/events/"]`)

			b.at("/campaigns/poisoned/events/3")
			b.await("the row's error is shown", telling(marked("explained"), "UNIQUE constraint failed: seats.campaign_id, seats.user_id"))
			b.await("the row is dead", telling(".rowstate", "dead"))
			b.await("what waits behind is shown", telling(".rowstate", "3 rows"))
			b.await("both attempts are shown", `document.querySelectorAll(".attempts li").length === 2`)

			change(t, d.projections(), freeSeat, "poisoned", "ana")
			b.typeInto("input[name=reason]", "ana left her first seat")
			b.click(marked("requeue"))
			b.await("the act is confirmed", telling(marked("flash"), "Requeued event 3 of campaign poisoned"))
			b.lookUntil("the row is applied", telling(".rowstate", "Applied. All events up to"))

			b.click(`.crumbs a[href="/campaigns/poisoned"]`)
			b.at("/campaigns/poisoned")
			b.lookUntil("the campaign is current", telling("#live", "current")+" && "+telling("#live", "6 of 6"))
			b.click(".brand")
			b.at("/")
			b.lookUntil("nothing is left to do", saying(marked("count-dead"), "0")+" && "+saying(marked("count-pending"), "0")+" && "+saying(marked("count-processing"), "0"))
			b.await("the health says so", `!!document.querySelector(".health.h-ok")`)

			b.click(`nav [data-go="s"]`)
			b.click(`.places a[href="/audit"]`)
			b.at("/audit")
			b.await("the audit has the act", telling("tbody tr", "Requeued event 3 of campaign poisoned")+" && "+telling("tbody tr", "ana left her first seat"))
			b.await("the audit has it once", `document.querySelectorAll("tbody tr").length === 1`)
		})
	}
}

// Requeuing all dead rows asks first, says what it will do, and does exactly that.
func TestBrowser_operatorRequeuesAllDead(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, d := startSeats(t, quickDeath...)
			for i := range 3 {
				appendTo(t, s, "", fmt.Sprintf("c-%d", i), seats("ana", "ana", "cem", "dee"))
			}
			appendTo(t, s, "", "healthy", seats("ana", "ben"))
			awaitCounts(t, s, "", 6, 0, 3)

			b := kind.open(t, s)
			b.open("/rows")
			b.await("the rows are listed", `document.querySelectorAll("tbody tr").length === 9`)
			b.click(`main a[href="/rows?status=dead"]`)
			b.await("only dead rows are listed", `document.querySelectorAll("tbody tr").length === 3 && location.search === "?status=dead"`)
			b.await("a dead row is marked", `!!document.querySelector(`+js(marked("row-c-0-2"))+`)`)
			b.click(marked("requeue-all"))

			b.at("/operations/new")
			b.await("the page says what it will do", telling("main", "3 dead rows of 3 campaigns become pending")+" && "+telling("main", "3 of them are heads")+" && "+telling("main", "6 rows behind are released"))
			b.await("the page names the campaigns", telling("main", "c-0")+" && "+telling("main", "c-1")+" && "+telling("main", "c-2"))
			awaitCounts(t, s, "", 6, 0, 3) // asking changed nothing
			change(t, d.projections(), "delete from seats where user_id = 'ana' and campaign_id like 'c-%'")
			b.click("#canary") // all at once
			b.typeInto("input[name=reason]", "seats freed")
			b.click(marked("requeue-confirm"))

			b.at("/operations/1")
			b.await("the act is confirmed", telling(marked("flash"), "Started operation 1: requeue of 3 dead rows, 3 heads; 6 rows waiting behind them"))
			b.lookUntil("the operation is done", telling(marked("operation-why"), "done")+" && "+telling("#live", "3 rows: 3 done"))
			b.open("/rows")
			b.lookUntil("no row is left", telling("#live", "everything is applied"))
			b.open("/audit")
			b.await("the audit has the act", telling("tbody tr", "Started operation 1")+" && "+telling("tbody tr", "seats freed"))
		})
	}
}

// A failed head whose cause is fixed need not wait for its next attempt.
func TestBrowser_operatorRetriesAFailedHead(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, d := startSeats(t, "--retry-base", "1h", "--retry-max", "1h")
			appendTo(t, s, "", "c-1", seats("ana", "ana", "cem"))
			awaitCounts(t, s, "", 1, 1, 0)
			b := kind.open(t, s)
			b.open("/campaigns/c-1/events/2")
			b.await("the row has failed once", telling(".rowstate", "failed")+` && document.querySelectorAll(".attempts li").length === 1`)
			change(t, d.projections(), freeSeat, "c-1", "ana")
			b.typeInto("input[name=reason]", "seat freed")
			b.click(marked("retry"))
			b.await("the act is confirmed", telling(marked("flash"), "Retried event 2 of campaign c-1"))
			b.lookUntil("the row is applied", telling(".rowstate", "Applied. All events up to 3 are applied."))
			s.awaitSettled(t)
		})
	}
}

// Replay restores the lost rows. The campaign is paused meanwhile, since a worker that meets a gap
// repairs it by itself.
func TestBrowser_operatorRepairsAGap(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, d := startSeats(t, quickDeath...)
			appendTo(t, s, "", "c-1", seats("ana", "ben"))
			s.awaitSettled(t)
			s.post(t, http.StatusOK, "/api/v1/campaigns/c-1/pause", map[string]any{"reason": "for the test"})
			appendTo(t, s, "", "c-1", []event{taken("seat-3", "cem"), taken("seat-4", "dee"), taken("seat-5", "eve")})
			change(t, d.journal(), "delete from projection_apply_outbox where campaign_id = 'c-1' and seq in (3, 4)")

			b := kind.open(t, s)
			b.open("/campaigns/c-1")
			b.await("two of five are applied", telling("#live", "2 of 5"))
			b.click(marked("replay"))
			b.await("the act is confirmed", telling(marked("flash"), "Replayed campaign c-1: 2 events enqueued"))
			b.click(marked("resume"))
			b.await("it is resumed", telling(marked("flash"), "Resumed campaign c-1"))
			b.lookUntil("everything is applied", telling("#live", "5 of 5")+" && "+telling("#live", "current"))
			s.awaitSettled(t)
			if n := scalar[int64](t, d.projections(), "select count(*) from seats"); n != 5 {
				t.Errorf("%d seats are taken, want 5", n)
			}
		})
	}
}

// A campaign may have any name. It is shown unchanged, its links work, and nothing in it is
// executed.
func TestBrowser_oddNames(t *testing.T) {
	t.Parallel()
	const odd = `a/b c%20"<script>alert(1)</script>'&?#;.`
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, _ := startSeats(t, quickDeath...)
			events := seats("ana", "ana", "cem")
			events[2].EventType = "<img/src=x/onerror=alert(1)>"
			appendTo(t, s, "", odd, events)
			awaitCounts(t, s, "", 1, 0, 1)
			escaped := url.PathEscape(odd)
			b := kind.open(t, s)
			b.open("/")
			row := marked("campaign-" + odd)
			b.lookUntil("the overview has it", saying(row+" a", odd))
			b.click(row + " a")
			b.at("/campaigns/" + escaped)
			b.await("its page names it", telling("h1", odd))
			b.click(`#events ~ table th a[href$="/events/3"]`)
			b.await("its event is shown", saying("h1", "Event 3 of "+odd)+" && "+telling("main", `<img/src=x/onerror=alert(1)>`))
			b.click(".crumbs a:last-of-type")
			b.await("back at its page", telling("h1", odd))
			b.click(`a[href$="/campaigns/` + escaped + `/events/2"]`)
			b.await("its row is shown", saying("h1", "Event 2 of "+odd))
			b.typeInto("input[name=reason]", odd)
			b.click(marked("requeue"))
			b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign "+odd))
			b.click(marked("flash") + ` a[href*="/audit"]`)
			b.await("the audit has it", telling("tbody tr", "Requeued event 2 of campaign "+odd)+" && "+saying(`tbody tr [data-label="Reason"]`, odd))
			b.open("/rows?campaign=" + url.QueryEscape(odd))
			b.await("its rows are listed", `document.querySelectorAll("tbody tr").length === 2 && !!document.querySelector(`+js(marked("row-"+odd+"-2"))+`)`)
			if n := value[int](b, `document.querySelectorAll("main script, main img").length`); n != 0 {
				t.Errorf("%d elements came into being from a name", n)
			}
		})
	}
}

// An empty system shows a first event to append, and that event can be applied.
func TestBrowser_firstSteps(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	b := openTab(t, s)
	b.open("/")
	shown := value[string](b, `document.querySelector(".empty pre").innerText`)
	found := regexp.MustCompile(`(?s)-d '(\{.*\})'.* ` + regexp.QuoteMeta(s.url) + `(/api/\S+)`).FindStringSubmatch(shown)
	if found == nil {
		t.Fatalf("there is no event to append in %q", shown)
	}
	s.post(t, http.StatusCreated, found[2]+"?wait=applied&timeout=30s", json.RawMessage(found[1]))
	b.lookUntil("the overview says that all is well", telling("#live", "No campaign is blocked or failing")+` && !!document.querySelector(".health.h-ok")`)
}
