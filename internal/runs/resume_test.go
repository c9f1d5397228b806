package runs_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// behindOf is what check reports about projections that nothing catches up.
func behindOf(tb testing.TB, b *enginetest.Engine) (details []string) {
	tb.Helper()
	report, err := b.Check(context.Background(), func(int64, int64) {})
	if err != nil {
		tb.Fatal(err)
	}
	for _, v := range report.Violations {
		if v.Invariant != "replay_owed" {
			tb.Errorf("check: %+v", v)
		}
		details = append(details, v.CampaignID+": "+v.Detail)
	}
	return details
}

// runsOf lists the runs of a kind, oldest first.
func runsOf(tb testing.TB, b *enginetest.Engine, kind outbox.RunKind) []outbox.Run {
	tb.Helper()
	page, err := b.Runs.List(context.Background(), outbox.RunFilter{Kind: kind})
	if err != nil {
		tb.Fatal(err)
	}
	slices.Reverse(page.Items)
	return page.Items
}

func TestResume_besideARunIsCaughtUpOnceThatRunEnds(t *testing.T) {
	t.Parallel()
	for _, campaign := range []string{"a", ""} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally))
		b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
		b.Drain(t)
		b.MustPause(t, "tally", campaign)
		b.MustAppend(t, enginetest.Notes("a", 5)...)
		b.Drain(t)
		verify := b.MustStartRun(t, outbox.RunRequest{Kind: outbox.RunVerify, All: true})
		if h := b.MustResume(t, "tally", campaign); h.Behind != 1 || h.RunID != 0 || h.BlockedByRun != verify.ID {
			t.Errorf("resumed as %+v, want that run %d blocks the replay", h, verify.ID)
		}
		b.MustHaveCursors(t, "a tally 3 behind")
		b.MustBeSound(t) // the replay will start automatically

		b.StepRuns(t)
		b.MustHaveCursors(t, "a tally 8 live")
		b.MustHaveTold(t, "tally", "a", 8)
		replays := runsOf(t, b, outbox.RunReplay)
		if len(replays) != 1 || replays[0].Status != outbox.RunCompleted || replays[0].CampaignID != "a" || !slices.Equal(replays[0].Projections, []string{"tally"}) ||
			replays[0].RequestedBy != "outboxweb" || replays[0].Via != "system" {
			t.Errorf("replays are %+v", replays)
		}
		b.MustAppend(t, enginetest.Noted("a"))
		b.Drain(t)
		b.MustHaveTold(t, "tally", "a", 9)
		b.MustBeSound(t)
		for seq, want := range map[int64]string{3: "", 4: "tally", 8: "tally", 9: ""} {
			h, err := b.Runs.EventHistory(t.Context(), "a", seq)
			got := ""
			if last := h.Steps[len(h.Steps)-1]; last.Kind == outbox.StepReplayed && last.Replay.RunID == replays[0].ID && last.Replay.Kind == outbox.RunReplay {
				got = last.Replay.Projection
			}
			if err != nil || got != want {
				t.Errorf("event %d got to %q by the replay, want %q: %+v, %v", seq, got, want, h.Steps, err)
			}
		}
	}
}

func TestResume_besideAQueuedRunIsCaughtUpWhenThatIsCancelled(t *testing.T) {
	t.Parallel()
	b := enginetest.OpenPaused(t)
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	b.Drain(t)
	verify := b.MustStartRun(t, outbox.RunRequest{Kind: outbox.RunVerify, All: true})
	b.MustResume(t, "tally", "a")
	if _, err := b.Runs.Cancel(t.Context(), enginetest.Operator, verify.ID); err != nil {
		t.Fatal(err)
	}
	b.StepRuns(t)
	b.MustHaveCursors(t, "a tally 5 live")
	b.MustBeSound(t)
}

// A process may die when the projection is resumed and the journal has not recorded it yet.
func TestReconcile_catchesUpAProjectionThatNoRunDoes(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...)...)
	b.Drain(t)
	b.MustPause(t, "tally", "a")
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	b.Drain(t)
	enginetest.MustExec(t, b.ProjectionsDB, `update projection_cursors set state = 'behind', paused_by = '', paused_at = null`)
	if found := behindOf(t, b); len(found) != 1 || !strings.HasPrefix(found[0], "a: ") || !strings.Contains(found[0], `projection "tally"`) {
		t.Errorf("check found %q", found)
	}
	if n, err := b.Runs.Behind(t.Context()); n != (outbox.BehindCounts{Alone: 1}) || err != nil {
		t.Errorf("%+v projections are behind, want 1 without a run; %v", n, err)
	}
	for range 2 { // the second one finds the run
		if _, err := b.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if replays := runsOf(t, b, outbox.RunReplay); len(replays) != 1 {
		t.Errorf("replays are %+v, want one", replays)
	}
	if n, err := b.Runs.Behind(t.Context()); n.Alone != 0 || err != nil {
		t.Errorf("%+v projections are behind, want none without a run; %v", n, err)
	}
	b.MustBeSound(t)
	b.StepRuns(t)
	b.MustHaveCursors(t, "a tally 5 live")
	b.MustHaveTold(t, "tally", "a", 5)
	b.MustBeSound(t)
}
