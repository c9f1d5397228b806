package runs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// dropped is an engine with three projections that has lost a table of each, and whose campaigns have
// cursors of every kind.
func dropped(t *testing.T) *enginetest.Engine {
	t.Helper()
	track := strings.ReplaceAll(enginetest.Trail, "trail", "track")
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Ledger, track, enginetest.LenientAccounts), enginetest.MaxAttempts(1))
	b.MustAppend(t, append(append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...), enginetest.Opened("q", 1), enginetest.Spent("q", 100))...)
	b.Drain(t)
	b.MustPause(t, "track", "b")
	if b.Beside(t); len(b.SetAsideCursors(t)) != 2 {
		t.Fatal("a start changes something though nothing is missing")
	}
	for _, table := range []string{"ledger_history", "track", "accounts"} {
		b.Meddle(t, "drop table "+table)
	}
	return b
}

// mustBeWhole requires that the live rows are those of the journal, and that nothing is owed.
func mustBeWhole(t *testing.T, b *enginetest.Engine) {
	t.Helper()
	if run := b.MustRun(t, enginetest.Everything); run.Counts.Drifted+run.Counts.Failed > 0 || run.Counts.Matched == 0 {
		t.Errorf("run %+v", run)
	}
	if found := behindOf(t, b); len(found) > 0 {
		t.Errorf("check: %v", found)
	}
}

// Tables dropped by hand are made again at the next start, and a replay that starts by itself fills them in
// every campaign; also where one of several tables of a projection is gone.
func TestInstall_makesDroppedTablesAgainAndOwesAReplay(t *testing.T) {
	t.Parallel()
	b := dropped(t).Beside(t)
	b.MustHaveCursors(t, "a accounts 0 behind", "a ledger 0 behind", "a track 0 behind", "b accounts 0 behind", "b ledger 0 behind", "b track 0 paused",
		"q accounts 0 behind", "q ledger 0 behind", "q track 0 behind")
	b.MustAppend(t, enginetest.Notes("a", 1)...)
	b.Drain(t)
	if _, err := b.Maintenance.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.StepRuns(t)
	if cursors := b.SetAsideCursors(t); !slices.Contains(cursors, "a ledger 4 live") || !slices.Contains(cursors, "b track 0 paused") || !slices.Contains(cursors, "q accounts 1 quarantined") {
		t.Errorf("after the replay the cursors are %v", cursors)
	}
	b.MustResume(t, "track", "b")
	b.StepRuns(t)
	mustBeWhole(t, b)
}

// So does a server that runs, which says so.
func TestWork_makesDroppedTablesAgain(t *testing.T) {
	t.Parallel()
	b := dropped(t)
	b.MustResume(t, "track", "b")
	told := func() (kinds []outbox.FaultKind) {
		for _, f := range b.ReadModel().Faults() {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	}
	if err := b.RunWorker.RestoreTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kinds := told(); !slices.Contains(kinds, outbox.FaultTable) {
		t.Errorf("told %v", kinds)
	}
	b.StepRuns(t)
	mustBeWhole(t, b)
	if err := b.RunWorker.RestoreTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kinds := told(); len(kinds) > 0 {
		t.Errorf("told %v though no table is missing", kinds)
	}
}

// A running server finds a dropped table when it verifies, and says what helps: a rebuild, which makes it
// again.
func TestVerify_saysThatATableIsMissing(t *testing.T) {
	t.Parallel()
	b := dropped(t)
	run := b.MustRun(t, enginetest.Everything)
	if run.Counts.Failed != 3 || strings.Contains(run.Error, "internal") {
		t.Errorf("run %+v", run)
	}
	const says = "table ledger_history of projection ledger is missing; a running worker makes its tables again within half a minute, and a replay fills them"
	if r := b.RunResult(t, run, "a"); r.Outcome != outbox.OutcomeFailed || r.Error != says || r.Unsound != 0 {
		t.Errorf("result %+v, want %q", r, says)
	}
	b.MustResume(t, "track", "b")
	rebuilt := b.MustRun(t, outbox.RunRequest{Kind: outbox.RunRebuild, All: true})
	if rebuilt.Counts.Drifted != 2 || rebuilt.Counts.Failed != 1 { // q has an event that cannot be applied
		t.Errorf("run %+v", rebuilt)
	}
	b.StepRuns(t)
	mustBeWhole(t, b)
}

// So it does of a table that was changed by hand; once it is dropped, a rebuild makes it as its file does.
func TestVerify_saysThatATableHasChanged(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Accounts))
	b.MustAppend(t, enginetest.Opened("a", 5), enginetest.Spent("a", 1))
	b.Drain(t)
	b.Meddle(t, "alter table accounts drop column spent")
	run := b.MustRun(t, enginetest.Everything)
	const says = "table accounts of projection accounts is not as its file makes it; drop it, and start a rebuild of the projection: its tables are made again and filled"
	if r := b.RunResult(t, run, "a"); r.Outcome != outbox.OutcomeFailed && r.Outcome != outbox.OutcomeDrift || r.Error != "" && r.Error != says {
		t.Errorf("result %+v, want drift or %q", r, says)
	}
	if failed := b.MustRun(t, outbox.RunRequest{Kind: outbox.RunRebuild, All: true, Projections: []string{"accounts"}}); !strings.Contains(failed.Error, "drop") {
		t.Errorf("run %+v", failed)
	}
	b.Meddle(t, "drop table accounts")
	b.MustRun(t, outbox.RunRequest{Kind: outbox.RunRebuild, All: true, Projections: []string{"accounts"}})
	mustBeWhole(t, b)
}
