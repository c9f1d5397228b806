package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"outboxweb/internal/outbox"
)

// behindOf is what check says about projections that nothing catches up.
func (b *bench) behindOf(tb testing.TB) (details []string) {
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
func (b *bench) runsOf(tb testing.TB, kind outbox.RunKind) []outbox.Run {
	tb.Helper()
	page, err := b.runs.List(context.Background(), outbox.RunFilter{Kind: kind})
	if err != nil {
		tb.Fatal(err)
	}
	slices.Reverse(page.Items)
	return page.Items
}

func TestResume_besideARunIsCaughtUpOnceThatRunEnds(t *testing.T) {
	t.Parallel()
	for _, campaign := range []string{"a", ""} {
		b := open(t, define(t, ledger, tally))
		b.mustAppend(t, append(notes("a", 3), notes("b", 3)...)...)
		b.drain(t)
		b.mustPause(t, "tally", campaign)
		b.mustAppend(t, notes("a", 5)...)
		b.drain(t)
		verify := b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunVerify, All: true})
		if h := b.mustResume(t, "tally", campaign); h.Behind != 1 || h.RunID != 0 || h.BlockedByRun != verify.ID {
			t.Errorf("resumed as %+v, want that run %d blocks the replay", h, verify.ID)
		}
		b.mustHaveCursors(t, "a tally 3 behind")
		b.mustBeSound(t) // the replay will start by itself

		b.stepRuns(t)
		b.mustHaveCursors(t, "a tally 8 live")
		b.mustHaveTold(t, "tally", "a", 8)
		replays := b.runsOf(t, outbox.RunReplay)
		if len(replays) != 1 || replays[0].Status != outbox.RunCompleted || replays[0].CampaignID != "a" || !slices.Equal(replays[0].Projections, []string{"tally"}) ||
			replays[0].RequestedBy != "outboxweb" || replays[0].Via != "system" {
			t.Errorf("replays are %+v", replays)
		}
		b.mustAppend(t, noted("a"))
		b.drain(t)
		b.mustHaveTold(t, "tally", "a", 9)
		b.mustBeSound(t)
	}
}

func TestResume_besideAQueuedRunIsCaughtUpWhenThatIsCancelled(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, tally))
	b.mustAppend(t, notes("a", 3)...)
	b.drain(t)
	b.mustPause(t, "tally", "a")
	b.mustAppend(t, notes("a", 2)...)
	b.drain(t)
	verify := b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunVerify, All: true})
	b.mustResume(t, "tally", "a")
	if _, err := b.runs.Cancel(t.Context(), operator, verify.ID); err != nil {
		t.Fatal(err)
	}
	b.stepRuns(t)
	b.mustHaveCursors(t, "a tally 5 live")
	b.mustBeSound(t)
}

// A process may die when the projection is resumed and the journal does not
// know of it yet.
func TestReconcile_catchesUpAProjectionThatNoRunDoes(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, tally))
	b.mustAppend(t, append(notes("a", 3), notes("b", 2)...)...)
	b.drain(t)
	b.mustPause(t, "tally", "a")
	b.mustAppend(t, notes("a", 2)...)
	b.drain(t)
	mustExec(t, b.projections, `update projection_cursors set state = 'behind', paused_by = '', paused_at = null`)
	if found := b.behindOf(t); len(found) != 1 || !strings.HasPrefix(found[0], "a: ") || !strings.Contains(found[0], `projection "tally"`) {
		t.Errorf("check found %q", found)
	}
	if n, err := b.runs.Behind(t.Context()); n != (outbox.BehindCounts{Alone: 1}) || err != nil {
		t.Errorf("%+v projections are behind, want 1 without a run; %v", n, err)
	}
	for range 2 { // the second one finds the run
		if _, err := b.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if replays := b.runsOf(t, outbox.RunReplay); len(replays) != 1 {
		t.Errorf("replays are %+v, want one", replays)
	}
	if n, err := b.runs.Behind(t.Context()); n.Alone != 0 || err != nil {
		t.Errorf("%+v projections are behind, want none without a run; %v", n, err)
	}
	b.mustBeSound(t)
	b.stepRuns(t)
	b.mustHaveCursors(t, "a tally 5 live")
	b.mustHaveTold(t, "tally", "a", 5)
	b.mustBeSound(t)
}

func TestVerify_comparesNoProjectionThatIsBehind(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, strings.ReplaceAll(trail, "trail", "track")))
	b.mustAppend(t, append(notes("a", 3), notes("b", 3)...)...)
	b.drain(t)
	b.mustPause(t, "track", "a")
	b.mustAppend(t, notes("a", 5)...)
	b.drain(t)
	verify := b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunVerify, All: true})
	b.mustResume(t, "track", "a")
	b.stepRuns(t)

	run := b.run(t, verify.ID)
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Counts != (outbox.RunCounts{Matched: 1, NotCompared: 1}) || run.Campaigns.Done != 2 {
		t.Errorf("run %+v, want one match and one that is no agreement", run)
	}
	result := b.result(t, run, "a")
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
	b.mustRun(t, everything)
	if run := b.runsOf(t, outbox.RunVerify)[1]; run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v once the replay is done, want two matches", run)
	}
}

// What a paused projection has is compared, and what it lacks is told.
func TestVerify_tellsWhatAPausedProjectionLacks(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, strings.ReplaceAll(trail, "trail", "track")))
	b.mustAppend(t, append(notes("a", 3), notes("b", 3)...)...)
	b.drain(t)
	b.mustPause(t, "track", "")
	if run := b.mustRun(t, everything); run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v while nothing is lacking, want two matches", run)
	}
	b.mustAppend(t, notes("a", 2)...)
	b.drain(t)
	run := b.mustRun(t, everything)
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Counts != (outbox.RunCounts{Matched: 1, NotCompared: 1}) {
		t.Errorf("run %+v, want one match and one that is no agreement", run)
	}
	if left := b.result(t, run, "a").NotCompared(); !slices.Equal(left, []outbox.NotCompared{{CampaignID: "a", Projection: "track", State: outbox.CursorPaused, FromSeq: 4, UntilSeq: 5}}) {
		t.Errorf("not compared are %v", left)
	}
	b.meddle(t, `update track set seq = 77 where campaign_id = 'a' and place = 2`)
	run = b.mustRun(t, everything)
	if run.Verdict != outbox.VerdictDrift || run.Counts != (outbox.RunCounts{Matched: 1, Drifted: 1}) {
		t.Errorf("run %+v, want a drift among what it has", run)
	}
	if left := b.result(t, run, "a").NotCompared(); len(left) != 1 {
		t.Errorf("beside a drift not compared are %v", left)
	}
}
