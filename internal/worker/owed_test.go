package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"outboxweb/internal/enginetest"
	"outboxweb/internal/outbox"
)

// behindOf is what check says about projections that nothing catches up.
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
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, tally))
		b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
		b.Drain(t)
		b.MustPause(t, "tally", campaign)
		b.MustAppend(t, enginetest.Notes("a", 5)...)
		b.Drain(t)
		verify := b.MustStartRun(t, outbox.RunOrder{Kind: outbox.RunVerify, All: true})
		if h := b.MustResume(t, "tally", campaign); h.Behind != 1 || h.RunID != 0 || h.BlockedByRun != verify.ID {
			t.Errorf("resumed as %+v, want that run %d blocks the replay", h, verify.ID)
		}
		b.MustHaveCursors(t, "a tally 3 behind")
		b.MustBeSound(t) // the replay will start by itself

		b.StepRuns(t)
		b.MustHaveCursors(t, "a tally 8 live")
		mustHaveTold(t, b, "tally", "a", 8)
		replays := runsOf(t, b, outbox.RunReplay)
		if len(replays) != 1 || replays[0].Status != outbox.RunCompleted || replays[0].CampaignID != "a" || !slices.Equal(replays[0].Projections, []string{"tally"}) ||
			replays[0].RequestedBy != "outboxweb" || replays[0].Via != "system" {
			t.Errorf("replays are %+v", replays)
		}
		b.MustAppend(t, enginetest.Noted("a"))
		b.Drain(t)
		mustHaveTold(t, b, "tally", "a", 9)
		b.MustBeSound(t)
	}
}

func TestResume_besideAQueuedRunIsCaughtUpWhenThatIsCancelled(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, tally))
	b.MustAppend(t, enginetest.Notes("a", 3)...)
	b.Drain(t)
	b.MustPause(t, "tally", "a")
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	b.Drain(t)
	verify := b.MustStartRun(t, outbox.RunOrder{Kind: outbox.RunVerify, All: true})
	b.MustResume(t, "tally", "a")
	if _, err := b.Runs.Cancel(t.Context(), enginetest.Operator, verify.ID); err != nil {
		t.Fatal(err)
	}
	b.StepRuns(t)
	b.MustHaveCursors(t, "a tally 5 live")
	b.MustBeSound(t)
}

// A process may die when the projection is resumed and the journal does not
// know of it yet.
func TestReconcile_catchesUpAProjectionThatNoRunDoes(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, tally))
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
	mustHaveTold(t, b, "tally", "a", 5)
	b.MustBeSound(t)
}

func TestVerify_comparesNoProjectionThatIsBehind(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b.Drain(t)
	b.MustPause(t, "track", "a")
	b.MustAppend(t, enginetest.Notes("a", 5)...)
	b.Drain(t)
	verify := b.MustStartRun(t, outbox.RunOrder{Kind: outbox.RunVerify, All: true})
	b.MustResume(t, "track", "a")
	b.StepRuns(t)

	run := b.MustReadRun(t, verify.ID)
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Counts != (outbox.RunCounts{Matched: 1, NotCompared: 1}) || run.Campaigns.Done != 2 {
		t.Errorf("run %+v, want one match and one that is no agreement", run)
	}
	result := b.RunResult(t, run, "a")
	if left := result.NotCompared(); result.Error != "" || !slices.Equal(left, []outbox.NotCompared{{CampaignID: "a", Projection: "track", State: outbox.CursorBehind, FromSeq: 1, UntilSeq: 8}}) {
		t.Errorf("result %+v, not compared are %v", result, left)
	}
	for _, p := range result.Projections {
		behind := p.Projection == "track"
		if (p.Verdict == outbox.VerdictMatch) == behind || p.Error != "" || behind && p.Seq != 3 {
			t.Errorf("%+v", p)
		}
	}
	if known, err := b.Verifications(t.Context(), "a"); err != nil || slices.ContainsFunc(known, func(v outbox.Verification) bool { return v.Projection == "track" }) {
		t.Errorf("verifications %+v, %v", known, err)
	}
	b.MustRun(t, enginetest.Everything)
	if run := runsOf(t, b, outbox.RunVerify)[1]; run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v once the replay is done, want two matches", run)
	}
}

// What a paused projection has is compared, and what it lacks is told.
func TestVerify_tellsWhatAPausedProjectionLacks(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b.Drain(t)
	b.MustPause(t, "track", "")
	if run := b.MustRun(t, enginetest.Everything); run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v while nothing is lacking, want two matches", run)
	}
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	b.Drain(t)
	run := b.MustRun(t, enginetest.Everything)
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Counts != (outbox.RunCounts{Matched: 1, NotCompared: 1}) {
		t.Errorf("run %+v, want one match and one that is no agreement", run)
	}
	if left := b.RunResult(t, run, "a").NotCompared(); !slices.Equal(left, []outbox.NotCompared{{CampaignID: "a", Projection: "track", State: outbox.CursorPaused, FromSeq: 4, UntilSeq: 5}}) {
		t.Errorf("not compared are %v", left)
	}
	b.Meddle(t, `update track set seq = 77 where campaign_id = 'a' and place = 2`)
	run = b.MustRun(t, enginetest.Everything)
	if run.Verdict != outbox.VerdictDrift || run.Counts != (outbox.RunCounts{Matched: 1, Drifted: 1}) {
		t.Errorf("run %+v, want a drift among what it has", run)
	}
	if left := b.RunResult(t, run, "a").NotCompared(); len(left) != 1 {
		t.Errorf("beside a drift not compared are %v", left)
	}
}
