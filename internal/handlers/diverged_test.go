package handlers

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// diverged makes the projections of c-1 those of a journal with two more events than this one, and
// appends one.
func (s *site) diverged() *site {
	s.t.Helper()
	for _, id := range []string{"c-1", "c-2", "c-3"} {
		s.seed(id, "noted", "noted", "noted")
	}
	s.work()
	s.changeProjections(`update projection_watermarks set applied_seq = 5, applied_hash = 'other' where campaign_id = 'c-1'`)
	must.Get(s.srv.maintenance.Reconcile(s.t.Context())).Or(s.t)
	s.seed("c-1", "noted")
	return s
}

func TestDiverged_isShownWithNumbersOfNow(t *testing.T) {
	s := ownSite(t).diverged()
	s.get("/campaigns/c-1").want(t, 200, "Journal", "4 events", "Projections", "up to event 5 of another journal", "Waiting", "1 event &#32;not in any projection",
		"an event 5 that the journal does not have, and 1 event waits", "The watermark is at 5 of another journal").lacks(t, "5 of 4", "0 events", "ends at 3")
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"high_water_seq":4`, `"applied_seq":3`, `"projections_seq":5`, `"lag_events":1`, `"pending":1`, "an event 5 that the journal does not have")
	s.get("/api/v1/campaigns?state=diverged").want(t, 200, `"high_water_seq":4`, `"applied_seq":3`, `"lag_events":1`, "an event 5 that the journal does not have").lacks(t, "projections_seq")
	s.get("/api/v1/campaigns/c-2").want(t, 200, `"applied_seq":3`, `"state":"current"`).lacks(t, "projections_seq")
	s.get("/api/v1/summary").want(t, 200, `"other_journal":true`, `"lag":{"events":1,`)
	s.get("/readyz").want(t, 200)
}

// A rebuild from the wrong journal destroys correct read models.
func TestDiverged_asksForTheRightJournalBeforeARebuild(t *testing.T) {
	s := ownSite(t).diverged()
	for _, at := range []string{"/", "/campaigns", "/campaigns/c-1", "/runs/new?kind=rebuild&campaigns=c-1", "/runs/new?kind=rebuild&all=1", "/api/v1/campaigns/c-1", "/api/v1/campaigns"} {
		body := s.get(at).body
		body = body[max(0, strings.Index(body, "<main")):]
		right, rebuild := strings.Index(body, "restore the right"), strings.Index(body, "only if")
		if rebuild < 0 {
			rebuild = strings.Index(body, "Rebuild only if")
		}
		if only := strings.Index(body, "Rebuild only if it is lost"); rebuild < 0 || only >= 0 && only < rebuild {
			rebuild = only
		}
		if right < 0 || rebuild < right || !strings.Contains(body, " URL") {
			t.Errorf("%s says at %d to restore the right journal and at %d to rebuild", at, right, rebuild)
		}
	}
	s.get("/campaigns/c-1").want(t, 200, `data-testid="right-journal-first"`)
	s.get("/campaigns/c-2").want(t, 200).lacks(t, `data-testid="right-journal-first"`)
	s.get("/runs/new?kind=rebuild&campaigns=c-2").want(t, 200).lacks(t, "the journal is the right one")
}
