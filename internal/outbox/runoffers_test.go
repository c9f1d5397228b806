package outbox

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

var runNoon = time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)

func TestRun_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []Action
	}{
		{"a run", Run{Status: RunRunning}.Actions(runNoon), []Action{ActionRunCancel}},
		{"a run that its holder ends", Run{Status: RunCancelling, Lease: &Lease{ExpiresAt: runNoon.Add(1)}}.Actions(runNoon), nil},
		{"a run whose holder died before it ended it", Run{Status: RunCancelling, Lease: &Lease{ExpiresAt: runNoon}}.Actions(runNoon), []Action{ActionRunCancel}},
		{"a failed run", Run{Status: RunFailed}.Actions(runNoon), []Action{ActionRunResume, ActionRunStart}},
		{"a run that is done", Run{Status: RunCompleted}.Actions(runNoon), []Action{ActionRunStart}},
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
		{"a queued run is cancelled", Run{Status: RunQueued}.Cancellable(runNoon), true},
		{"a run that goes on is cancelled", Run{Status: RunRunning, Lease: &Lease{ExpiresAt: runNoon.Add(1)}}.Cancellable(runNoon), true},
		{"a run that nobody holds is cancelled", Run{Status: RunCancelling}.Cancellable(runNoon), true},
		{"an interrupted run is resumed", Run{Status: RunInterrupted}.Resumable(), true},
		{"a cancelled run is resumed", Run{Status: RunCancelled}.Resumable(), false},
		{"a verify that found nothing", Run{Kind: RunVerify, Status: RunCompleted}.Succeeded(), true},
		{"a verify that found a drift", Run{Kind: RunVerify, Status: RunCompleted, Verdict: VerdictDrift}.Succeeded(), false},
		{"a rebuild that mended a drift", Run{Kind: RunRebuild, Status: RunCompleted, Verdict: VerdictDrift}.Succeeded(), true},
		{"a cancelled run", Run{Kind: RunReplay, Status: RunCancelled}.Succeeded(), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
}
