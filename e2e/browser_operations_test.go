package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
)

// guestProjections is a read model with two mistakes: it reads a name from two fields that no event
// has. Events can never succeed with it, so they are dead at once.
func guestProjections(came, left string) map[string]string {
	return map[string]string{"guests.sql": `
-- projection: guests
-- tables: guests

-- schema
create table guests (campaign_id text not null, seq bigint not null, name text not null, primary key (campaign_id, seq));

-- on: guest.came
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.` + came + `);

-- on: guest.left
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.` + left + `!);

-- on: guest.waved
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.name!);
`}
}

func guest(eventType string) event {
	return event{EventType: eventType, Payload: map[string]any{"name": "ana"}}
}

// operationState is the API's state of an operation.
type operationState struct {
	Status string
	Why    string
	Totals struct {
		Chosen, Waiting, Requeued, Done, Skipped, Left int64
		FailedAgain                                    int64 `json:"failed_again"`
	}
	Groups []struct {
		Wave   int64
		Totals struct{ Chosen int64 }
	}
}

// awaitOperation waits until an operation has ended.
func awaitOperation(t *testing.T, s *server, id int64) (o operationState) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("operation %d ends", id), func() (bool, string) {
		s.get(t, fmt.Sprintf("/api/v1/operations/%d", id), &o)
		return o.Status != "running", o.Why
	})
	return o
}

// Two groups of dead rows, of 3 and of 40 campaigns, are tried by their canaries: once with the
// mistakes still there, which costs one more failure per group and touches nothing else, and once
// fixed.
func TestBrowser_operatorTriagesTwoErrorGroups(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabases(t)
			flags := []string{"--max-attempts", "3", "--retry-base", "50ms", "--poll-interval", "100ms"}
			s := start(t, d, append(flags, writeProjections(t, guestProjections("nam", "nick"))...)...)
			for i := range 43 {
				campaign, fatal := fmt.Sprintf("many-%02d", i), "guest.came"
				if i >= 40 {
					campaign, fatal = fmt.Sprintf("few-%d", i-40), "guest.left"
				}
				appendTo(t, s, "", campaign, []event{guest("guest.waved"), guest(fatal), guest("guest.waved"), guest("guest.waved")})
			}
			awaitCounts(t, s, "", 86, 0, 43)
			attempts := func() int64 { return scalar[int64](t, d.journal(), "select count(*) from attempts") }
			before := attempts()

			b := kind.open(t, s)
			b.open("/")
			b.lookUntil("the overview counts the dead", saying(marked("count-dead"), "43"))
			b.open("/rows?status=dead")
			b.click(marked("requeue-all"))
			b.at("/operations/new")
			b.await("the page says what it will do", telling("main", "43 dead rows of 43 campaigns")+" && "+telling("main", "86 rows behind are released"))
			b.await("it names campaigns and groups", telling("main", "few-0")+" && "+telling("main", "and 23 others")+` && document.querySelectorAll(".causes li").length === 2`)
			b.sound("an operation of 43 rows before it starts")
			b.await("the canary is the default", `document.querySelector("#canary").checked`)
			b.typeInto("input[name=reason]", "perhaps mended")
			b.click(marked("requeue-confirm"))

			b.at("/operations/1")
			b.lookUntil("the operation stops by itself", telling(marked("operation-why"), "stopped")+" && "+telling(marked("operation-why"), "2 of 2 error groups stopped"))
			b.await("each group says why", telling(marked("group-1"), "failed again with the same error")+" && "+telling(marked("group-2"), "failed again with the same error"))
			b.await("its rows are counted", telling("#live", "✕ failed again 2")+" && "+telling("#live", "‖ not attempted 41"))
			b.await("nothing else failed", telling("#live", "No other failures"))
			b.sound("an operation that stopped")
			if o := awaitOperation(t, s, 1); o.Totals.FailedAgain != 2 || o.Totals.Left != 41 {
				t.Errorf("the API tells of %+v", o)
			}
			if more := attempts() - before; more != 2 {
				t.Errorf("%d more failures, want one for each group", more)
			}
			if untouched := scalar[int64](t, d.journal(), "select count(*) from (select seq from attempts group by campaign_id, seq having count(*) = 1) as once"); untouched != 41 {
				t.Errorf("%d rows are as they were, want 41", untouched)
			}
			b.click(`.choices a[href="/operations/1?status=failed_again"]`)
			b.await("the rows that failed are listed", `document.querySelectorAll("[data-testid^=result-]").length === 2`)
			b.typeInto("input[name=reason]", "the projection is still wrong")
			b.click(marked("operation-acknowledge"))
			b.await("it is acknowledged", telling(marked("flash"), "Acknowledged operation 1")+` && !document.querySelector(`+js(marked("operation-acknowledge"))+`)`)

			b.do("leave the page, which would miss its server", chromedp.Navigate("about:blank"))
			s.stop(t)
			s = start(t, d, append(flags, writeProjections(t, guestProjections("name", "name"))...)...)
			b.s = s
			b.open("/operations/new")
			b.typeInto("input[name=reason]", "mended")
			b.click(marked("requeue-confirm"))
			b.at("/operations/2")
			b.lookUntil("the operation is done", telling(marked("operation-why"), "done")+" && "+telling("#live", "✓ done 43"))
			if o := awaitOperation(t, s, 2); o.Status != "done" || o.Totals.Done != 43 || len(o.Groups) != 2 || o.Groups[0].Wave != 6 {
				t.Errorf("the API tells of %+v, want all done, the larger group in its sixth wave", o)
			}
			s.awaitSettled(t)
			b.sound("an operation that is done")
			b.open("/")
			b.agrees()
			b.lookUntil("the overview remembers", telling(marked("health"), "All 43 campaigns are current")+" && "+telling("#live", "1 operation has ended and not been acknowledged"))
			b.click(`nav [data-go="j"]`)
			b.at("/operations")
			b.click(`.choices a[href="/operations?acknowledged=false"]`)
			b.await("only the second is open", `!!document.querySelector(`+js(marked("operation-2"))+`) && !document.querySelector(`+js(marked("operation-1"))+`)`)
			checkClean(t, d, writeProjections(t, guestProjections("name", "name"))...)
		})
	}
}

// An operation on a killed server is continued by the next one.
func TestOperation_survivesKill(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	flags := append(writeProjections(t, guestProjections("nam", "name")), "--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms", "--lease", "2s")
	s := start(t, d, flags...)
	for i := range 40 {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{guest("guest.came"), guest("guest.waved")})
	}
	awaitCounts(t, s, "", 40, 0, 40)
	s.stop(t)
	flags = append(writeProjections(t, guestProjections("name", "name")), flags[2:]...)
	s = start(t, d, flags...)
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"filter": map[string]any{}, "canary": true, "reason": "mended"})
	eventually(t, patience, "the operation is half way", func() (bool, string) {
		var o operationState
		s.get(t, "/api/v1/operations/1", &o)
		return o.Totals.Done > 0, o.Why
	})
	s.kill()
	s = start(t, d, flags...)
	if o := awaitOperation(t, s, 1); o.Status != "done" || o.Totals.Done != 40 {
		t.Errorf("the operation is %+v, want all 40 rows done", o)
	}
	s.awaitSettled(t)
}
