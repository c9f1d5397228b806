package runs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// dropped is an engine with three projections that has lost a table of each, and whose campaigns have cursors of every kind.
func dropped(t *testing.T) *enginetest.Engine {
	t.Helper()
	track := strings.ReplaceAll(enginetest.Trail, "trail", "track")
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Ledger, track, enginetest.LenientAccounts), enginetest.MaxAttempts(1))
	b.Feed(append(append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...), enginetest.Opened("q", 1), enginetest.Spent("q", 100))...)
	b.PauseProjection("track", "b")
	if b.Beside(); len(b.SetAsideCursors()) != 2 {
		t.Fatal("a start changes something though nothing is missing")
	}
	for _, table := range []string{"ledger_history", "track", "accounts"} {
		b.ExecProjections("drop table " + table)
	}
	return b
}

func mustBeWhole(t *testing.T, b *enginetest.Engine) {
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Counts.Drifted+run.Counts.Failed == 0 && run.Counts.Matched > 0, "run %+v", run)
	found := behindOf(t, b)
	must.Hold(t, len(found) == 0, "check: %v", found)
}

// Tables dropped by hand are made again at the next start, and a replay that starts by itself fills them in
// every campaign; also where one of several tables of a projection is gone.
func TestInstall_makesDroppedTablesAgainAndOwesAReplay(t *testing.T) {
	t.Parallel()
	b := dropped(t).Beside()
	b.MustHaveCursors("a accounts 0 behind", "a ledger 0 behind", "a track 0 behind", "b accounts 0 behind", "b ledger 0 behind", "b track 0 paused",
		"q accounts 0 behind", "q ledger 0 behind", "q track 0 behind")
	b.Feed(enginetest.Notes("a", 1)...)
	must.Get(b.Maintenance.Reconcile(t.Context())).Or(t)
	b.StepRuns()
	cursors := b.SetAsideCursors()
	must.Hold(t, slices.Contains(cursors, "a ledger 4 live") && slices.Contains(cursors, "b track 0 paused") && slices.Contains(cursors, "q accounts 1 quarantined"), "after the replay the cursors are %v", cursors)
	b.ResumeProjection("track", "b")
	b.StepRuns()
	mustBeWhole(t, b)
}

func TestWork_makesDroppedTablesAgain(t *testing.T) {
	t.Parallel()
	b := dropped(t)
	b.ResumeProjection("track", "b")
	told := func() (kinds []outbox.FaultKind) {
		for _, f := range b.ReadModel().Faults() {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	}
	must.OK(t, b.RunWorker.RestoreTables(t.Context()))
	kinds := told()
	must.Hold(t, slices.Contains(kinds, outbox.FaultTable), "told %v", kinds)
	b.StepRuns()
	mustBeWhole(t, b)
	must.OK(t, b.RunWorker.RestoreTables(t.Context()))
	kinds = told()
	must.Hold(t, len(kinds) <= 0, "told %v though no table is missing", kinds)
}

// A running server finds a dropped table when it verifies, and says what helps: a rebuild, which makes it again.
func TestVerify_saysThatATableIsMissing(t *testing.T) {
	t.Parallel()
	b := dropped(t)
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Counts.Failed == 3 && !strings.Contains(run.Error, "internal"), "run %+v", run)
	const says = "table ledger_history of projection ledger is missing; a running worker makes its tables again within half a minute, and a replay fills them"
	r := b.RunResult(run, "a")
	must.Hold(t, r.Outcome == outbox.OutcomeFailed && r.Error == says && r.Unsound == 0, "result %+v, want %q", r, says)
	b.ResumeProjection("track", "b")
	rebuilt := b.RunToEnd(outbox.RunRequest{Kind: outbox.RunRebuild, All: true})
	if rebuilt.Counts.Drifted != 2 || rebuilt.Counts.Failed != 1 { // q has an event that cannot be applied
		t.Errorf("run %+v", rebuilt)
	}
	b.StepRuns()
	mustBeWhole(t, b)
}

func TestVerify_saysThatATableHasChanged(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Accounts))
	b.Feed(enginetest.Opened("a", 5), enginetest.Spent("a", 1))
	b.ExecProjections("alter table accounts drop column spent")
	run := b.RunToEnd(enginetest.Everything)
	const says = "table accounts of projection accounts is not as its file makes it; drop it, and start a rebuild of the projection: its tables are made again and filled"
	r := b.RunResult(run, "a")
	must.Hold(t, (r.Outcome == outbox.OutcomeFailed || r.Outcome == outbox.OutcomeDrift) && (r.Error == "" || r.Error == says), "result %+v, want drift or %q", r, says)
	failed := b.RunToEnd(outbox.RunRequest{Kind: outbox.RunRebuild, All: true, Projections: []string{"accounts"}})
	must.Hold(t, strings.Contains(failed.Error, "drop"), "run %+v", failed)
	b.ExecProjections("drop table accounts")
	b.RunToEnd(outbox.RunRequest{Kind: outbox.RunRebuild, All: true, Projections: []string{"accounts"}})
	mustBeWhole(t, b)
}

// A campaign that advances while a projection's file is away has events that the projection lacks. It is
// behind there once it is loaded again, and caught up by itself; elsewhere it is live and whole.
func TestUnloaded_projectionIsBehindWhereEventsWereAppliedWithoutIt(t *testing.T) {
	t.Parallel()
	track := strings.ReplaceAll(enginetest.Trail, "trail", "track")
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, track))
	b.Feed(append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	without := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail))
	if err := without.Leave(t.Context(), []string{"trail"}); err != nil { // as a worker that starts
		t.Fatal(err)
	}
	without.Feed(enginetest.Notes("a", 2)...)
	without.MustHaveCursors("a track 3 behind")
	summary, err := without.Summary(t.Context())
	must.Hold(t, err == nil && len(summary.Held) == 1 && summary.Held[0].NotLoaded && summary.Held[0].Behind == 1 && summary.Held[0].RunID == 0, "held are %+v, %v", summary.Held, err)
	const lacks = "Everything is applied, but projection track is not loaded, 2 events behind"
	cursors, err := without.Runs.Cursors(t.Context(), "a", without.Infos)
	must.Hold(t, err == nil && len(cursors) == 2 && cursors[1].NotLoaded && cursors[1].LagEvents == 2, "cursors without it are %+v, %v", cursors, err)
	held, err := without.Runs.Held(t.Context(), without.Infos, "a", "b")
	says := without.MustCampaign("a").Explain(time.Now(), outbox.Surroundings{}).WithHeldProjections(held["a"]).Why
	must.Hold(t, err == nil && says == lacks && len(held["b"]) == 0, "the campaign says %q, want %q; held are %+v (%v)", says, lacks, held, err)
	if _, err := without.Maintenance.Reconcile(t.Context()); err != nil { // nobody could catch it up
		t.Fatal(err)
	}

	back := b.Beside()
	cursors, err = back.Runs.Cursors(t.Context(), "a", back.Infos)
	must.Hold(t, err == nil && cursors[1].State == outbox.CursorBehind && cursors[1].AppliedSeq == 3 && cursors[1].LagEvents == 2, "cursors are %+v, %v", cursors, err)
	for _, c := range cursors {
		must.Hold(t, !c.BuiltByOtherVersion, "rows of %s count as built by another version: %+v", c.Projection, c.RowsBuilt)
	}
	back.Feed(enginetest.Notes("a", 1)...)
	back.MustHaveCursors("a track 3 behind")
	must.Get(back.Maintenance.Reconcile(t.Context())).Or(t)
	back.StepRuns()
	back.MustHaveCursors("a track 6 live")
	run := back.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Verdict == outbox.VerdictMatch && run.Counts.Matched == 2, "run %+v after the replay, want two matches", run)
}

func TestUnloaded_projectionStaysQuarantinedUntilItIsReplayed(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.LenientAccounts), enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 1), enginetest.Opened("q", 1), enginetest.Spent("q", 100))
	without := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail))
	if err := without.Leave(t.Context(), []string{"trail"}); err != nil { // as a worker that starts
		t.Fatal(err)
	}
	without.Feed(append(enginetest.Notes("a", 2), enginetest.Notes("q", 1)...)...)
	known := must.Get(without.Runs.WithUnloaded(t.Context(), without.Infos)).Or(t)
	described, err := without.Runs.DescribeProjections(t.Context(), known)
	must.Need(t, err == nil && len(described) == 2 && !described[0].NotLoaded && described[1].NotLoaded && described[1].Behind == 1 && described[1].Quarantined == 1, "described are %+v, %v", described, err)
	page, err := without.Runs.ProjectionCursors(t.Context(), outbox.CursorFilter{Projection: "accounts"}, known)
	c := page.Items
	must.Hold(t, err == nil && len(c) == 2 && c[0].NotLoaded && c[0].LagEvents == 2 && c[1].State == outbox.CursorQuarantined && c[1].LagEvents == 2, "cursors are %+v, %v", c, err)
	h := described[1].Held()
	must.Equal(t, h.AdvancedWithout(), " Events were applied without it in 2 campaigns; it is quarantined in 1 of them.", "it says")
	got, want := h.OnceLoaded(), "Once it is loaded again, a replay starts by itself and catches it up, except where it is quarantined: it stays quarantined there until you start a replay of it."
	must.Hold(t, got == want, "it says %q, want %q", got, want)
	h.Paused = &outbox.Pause{By: "ana"} // for all campaigns: it is caught up nowhere
	got, want = h.OnceLoaded(), "Once it is loaded again and resumed, a replay starts by itself"
	must.Hold(t, strings.HasPrefix(got, want), "paused for all it says %q, want %q", got, want)

	fixed := strings.Replace(enginetest.LenientAccounts, "balance - :payload.amount!", "balance - 1", 1)
	back := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail, fixed), enginetest.MaxAttempts(1))
	must.Get(back.Maintenance.Reconcile(t.Context())).Or(t)
	back.StepRuns()
	back.MustHaveCursors("a accounts 3 live", "q accounts 1 quarantined")
	back.RunToEnd(outbox.RunRequest{Kind: outbox.RunReplay, All: true, Projections: []string{"accounts"}})
	back.MustHaveCursors("a accounts 3 live", "q accounts 3 live")
}
