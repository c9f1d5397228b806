package runs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// A campaign that advances while a projection's file is away has events that the projection lacks. It is
// behind there once it is loaded again, and caught up by itself; elsewhere it is live and whole.
func TestUnloaded_projectionIsBehindWhereEventsWereAppliedWithoutIt(t *testing.T) {
	t.Parallel()
	track := strings.ReplaceAll(enginetest.Trail, "trail", "track")
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, track))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b.Drain(t)
	without := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail))
	if err := without.Leave(t.Context(), []string{"trail"}); err != nil { // as a worker that starts
		t.Fatal(err)
	}
	without.MustAppend(t, enginetest.Notes("a", 2)...)
	without.Drain(t)
	without.MustHaveCursors(t, "a track 3 behind")
	summary, err := without.Summary(t.Context())
	if err != nil || len(summary.Held) != 1 || !summary.Held[0].NotLoaded || summary.Held[0].Behind != 1 || summary.Held[0].RunID != 0 {
		t.Errorf("held are %+v, %v", summary.Held, err)
	}
	const lacks = "Everything is applied, but projection track is not loaded, 2 events behind"
	cursors, err := without.Runs.Cursors(t.Context(), "a", without.Infos())
	if err != nil || len(cursors) != 2 || !cursors[1].NotLoaded || cursors[1].LagEvents != 2 {
		t.Errorf("cursors without it are %+v, %v", cursors, err)
	}
	held, err := without.Runs.Held(t.Context(), without.Infos(), "a", "b")
	if says := without.MustCampaign(t, "a").Explain(time.Now(), outbox.Surroundings{}).WithHeldProjections(held["a"]).Why; err != nil || says != lacks || len(held["b"]) > 0 {
		t.Errorf("the campaign says %q, want %q; held are %+v (%v)", says, lacks, held, err)
	}
	if _, err := without.Maintenance.Reconcile(t.Context()); err != nil { // nobody could catch it up
		t.Fatal(err)
	}

	back := b.Beside(t)
	cursors, err = back.Runs.Cursors(t.Context(), "a", back.Infos())
	if err != nil || cursors[1].State != outbox.CursorBehind || cursors[1].AppliedSeq != 3 || cursors[1].LagEvents != 2 {
		t.Errorf("cursors are %+v, %v", cursors, err)
	}
	for _, c := range cursors {
		if c.BuiltByOtherVersion {
			t.Errorf("rows of %s count as built by another version: %+v", c.Projection, c.RowsBuilt)
		}
	}
	back.MustAppend(t, enginetest.Notes("a", 1)...)
	back.Drain(t)
	back.MustHaveCursors(t, "a track 3 behind")
	if _, err := back.Maintenance.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	back.StepRuns(t)
	back.MustHaveCursors(t, "a track 6 live")
	if run := back.MustRun(t, enginetest.Everything); run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v after the replay, want two matches", run)
	}
}

// Where the projection is quarantined as well, it stays so until an operator replays it.
func TestUnloaded_projectionStaysQuarantinedUntilItIsReplayed(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.LenientAccounts), enginetest.MaxAttempts(1))
	b.MustAppend(t, enginetest.Opened("a", 1), enginetest.Opened("q", 1), enginetest.Spent("q", 100))
	b.Drain(t)
	without := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail))
	if err := without.Leave(t.Context(), []string{"trail"}); err != nil { // as a worker that starts
		t.Fatal(err)
	}
	without.MustAppend(t, append(enginetest.Notes("a", 2), enginetest.Notes("q", 1)...)...)
	without.Drain(t)
	known, err := without.Runs.WithUnloaded(t.Context(), without.Infos())
	if err != nil {
		t.Fatal(err)
	}
	described, err := without.Runs.DescribeProjections(t.Context(), known)
	if err != nil || len(described) != 2 || described[0].NotLoaded || !described[1].NotLoaded || described[1].Behind != 1 || described[1].Quarantined != 1 {
		t.Fatalf("described are %+v, %v", described, err)
	}
	page, err := without.Runs.ProjectionCursors(t.Context(), outbox.CursorFilter{Projection: "accounts"}, known)
	if c := page.Items; err != nil || len(c) != 2 || !c[0].NotLoaded || c[0].LagEvents != 2 || c[1].State != outbox.CursorQuarantined || c[1].LagEvents != 2 {
		t.Errorf("cursors are %+v, %v", c, err)
	}
	h := described[1].Held()
	if got, want := h.AdvancedWithout(), " Events were applied without it in 2 campaigns; it is quarantined in 1 of them."; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got, want := h.OnceLoaded(), "Once it is loaded again, a replay starts by itself and catches it up, except where it is quarantined: it stays quarantined there until you start a replay of it."; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	h.Paused = &outbox.Pause{By: "ana"} // for all campaigns: it is caught up nowhere
	if got, want := h.OnceLoaded(), "Once it is loaded again and resumed, a replay starts by itself"; !strings.HasPrefix(got, want) {
		t.Errorf("paused for all it says %q, want %q", got, want)
	}

	fixed := strings.Replace(enginetest.LenientAccounts, "balance - :payload.amount!", "balance - 1", 1)
	back := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail, fixed), enginetest.MaxAttempts(1))
	if _, err := back.Maintenance.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	back.StepRuns(t)
	back.MustHaveCursors(t, "a accounts 3 live", "q accounts 1 quarantined")
	back.MustRun(t, outbox.RunRequest{Kind: outbox.RunReplay, All: true, Projections: []string{"accounts"}})
	back.MustHaveCursors(t, "a accounts 3 live", "q accounts 3 live")
}
