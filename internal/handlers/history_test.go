package handlers

import (
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestEventHistory_tellsWhatTheEventWentThrough(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "campaign.created", poison)
	s.work()
	s.post("/api/v1/rows/requeue", `{"reason":"mended"}`).want(t, 200)
	h := decodeAs[outbox.EventHistory](t, s.get("/api/v1/campaigns/c-1/events/2/history").want(t, 200))
	kinds := []outbox.StepKind{}
	for _, step := range h.Steps {
		kinds = append(kinds, step.Kind)
	}
	if want := []outbox.StepKind{outbox.StepAppended, outbox.StepFailed, outbox.StepDied, outbox.StepActed}; !slices.Equal(kinds, want) {
		t.Fatalf("the steps are %v, want %v", kinds, want)
	}
	if act := h.Steps[3].AuditEntry; act == nil || act.Action != outbox.ActionRequeueMany || act.Reason != "mended" {
		t.Errorf("the act is %+v", act)
	}
	h = decodeAs[outbox.EventHistory](t, s.get("/api/v1/campaigns/c-1/events/1/history").want(t, 200))
	if last := h.Steps[len(h.Steps)-1]; last.Kind != outbox.StepApplied || last.Span == nil || last.Span.Worker != testWorker.ID {
		t.Errorf("the last step is %+v", last)
	}
	s.get("/campaigns/c-1/events/2").want(t, 200, "What happened", "Failed 2 times with the same error, now dead", "Requeued 1 dead row", "mended").
		lacks(t, "No actions here", "on record")
	s.get("/campaigns/c-1/events/1").want(t, 200, "What happened", "Applied", testWorker.ID).lacks(t, "on record")
	s.get("/campaigns/c-1").want(t, 200).lacks(t, "No actions here")
}

// An event that a paused projection does not have was not applied to all of them.
func TestEventHistory_saysWhichProjectionsLackTheEvent(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.post("/api/v1/projections/campaigns/pause", `{"campaign_id":"c-1"}`).want(t, 200)
	s.seed("c-1", "campaign.renamed")
	s.work()
	s.get("/campaigns/c-1/events/3").want(t, 200, "<strong>Applied").lacks(t, "Applied without", "Not applied everywhere")
	s.get("/campaigns/c-1/events/4").want(t, 200, "<strong>Applied without projection campaigns", "Not applied everywhere yet: projection campaigns is paused, 1 event behind.")
}
