package runs_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// kinds are all actions on runs and projections.
var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.Beside() }, All: []storetest.Kind[*fixture]{
	{Action: "run_start", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.Runs.Start(f.Ctx, o, enginetest.Rebuild("a"), enginetest.LoadedRuns)
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from run_scopes`) == 0 }},
	{Action: "run_cancel", Scene: queuedRun,
		Do:     func(f *fixture, o outbox.Command) (any, error) { return f.Runs.Cancel(f.Ctx, o, 1) },
		Undone: func(f *fixture) bool { return f.MustRun(1).Status == outbox.RunQueued }},
	{Action: "run_resume", Scene: interruptedRun,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.Runs.Resume(f.Ctx, o, 1, enginetest.LoadedRuns)
		},
		Undone: func(f *fixture) bool { return f.MustRun(1).Status == outbox.RunInterrupted }},
	{Action: "rehearse", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			set, err := projection.Load(storetest.DialectOf(f.Pair), enginetest.Define(f.TB, enginetest.Accounts)...)
			if err != nil {
				return nil, err
			}
			return f.Runs.Rehearse(f.Ctx, o, outbox.RehearsalRequest{Files: changedTo(fixed)}, set)
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from run_rehearsals`) == 0 }},
	// A pause is written to the projections before its record is.
	{Action: "projection_pause", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.Runs.PauseProjection(f.Ctx, o, enginetest.LoadedRuns[0].Name, "a", enginetest.LoadedRuns)
		}},
	{Action: "projection_resume", Scene: func(f *fixture) {
		f.DeadHead()
		must.Get(f.Runs.PauseProjection(f.Ctx, storetest.Ben, enginetest.LoadedRuns[0].Name, "a", enginetest.LoadedRuns)).Or(f.TB)
	},
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.Runs.ResumeProjection(f.Ctx, o, enginetest.LoadedRuns[0].Name, "a", enginetest.LoadedRuns)
		}},
}}

func queuedRun(f *fixture) {
	f.DeadHead()
	must.Get(f.Runs.Start(f.Ctx, storetest.Ben, enginetest.Rebuild("a"), enginetest.LoadedRuns)).Or(f.TB)
}

func interruptedRun(f *fixture) {
	queuedRun(f)
	f.FinishRun(f.ClaimRun(one), outbox.RunInterrupted, "its process is gone")
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a outbox.Action) bool {
		return a == outbox.ActionRehearse || strings.HasPrefix(string(a), "run_") || strings.HasPrefix(string(a), "projection_")
	})
}
