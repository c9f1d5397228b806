package replay

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

var noon = time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)

func TestRun_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []operator.Action
	}{
		{"a run", Run{Status: RunRunning}.Actions(noon), []operator.Action{operator.ActionRunCancel}},
		{"a run that its holder ends", Run{Status: RunCancelling, Lease: &campaign.Lease{ExpiresAt: noon.Add(1)}}.Actions(noon), nil},
		{"a run whose holder died before it ended it", Run{Status: RunCancelling, Lease: &campaign.Lease{ExpiresAt: noon}}.Actions(noon), []operator.Action{operator.ActionRunCancel}},
		{"a failed run", Run{Status: RunFailed}.Actions(noon), []operator.Action{operator.ActionRunResume, operator.ActionRunStart}},
		{"a run that is done", Run{Status: RunCompleted}.Actions(noon), []operator.Action{operator.ActionRunStart}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
}

func TestRun_whatMayBeDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"a queued run is cancelled", Run{Status: RunQueued}.Cancellable(noon), true},
		{"a run that goes on is cancelled", Run{Status: RunRunning, Lease: &campaign.Lease{ExpiresAt: noon.Add(1)}}.Cancellable(noon), true},
		{"a run that nobody holds is cancelled", Run{Status: RunCancelling}.Cancellable(noon), true},
		{"an interrupted run is resumed", Run{Status: RunInterrupted}.Resumable(), true},
		{"a cancelled run is resumed", Run{Status: RunCancelled}.Resumable(), false},
		{"a verify that found nothing", Run{Kind: RunVerify, Status: RunCompleted}.Succeeded(), true},
		{"a verify that found a drift", Run{Kind: RunVerify, Status: RunCompleted, Verdict: campaign.VerdictDrift}.Succeeded(), false},
		{"a rebuild that mended a drift", Run{Kind: RunRebuild, Status: RunCompleted, Verdict: campaign.VerdictDrift}.Succeeded(), true},
		{"a cancelled run", Run{Kind: RunReplay, Status: RunCancelled}.Succeeded(), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
}
