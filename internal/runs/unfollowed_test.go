package runs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestVerify_comparesNoProjectionThatIsBehind(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b.Drain(t)
	b.MustPause(t, "track", "a")
	b.MustAppend(t, enginetest.Notes("a", 5)...)
	b.Drain(t)
	verify := b.MustStartRun(t, outbox.RunRequest{Kind: outbox.RunVerify, All: true})
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

// The applied events of a paused projection are compared, and the missing ones reported.
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
