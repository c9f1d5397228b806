package runs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// behind creates campaigns in which a projection was paused at event 2 and is resumed at event 5. It returns the replay that is catching it up.
func behind(f *fixture, loaded []outbox.ProjectionInfo, projection string, campaigns ...string) (run int64) {
	for _, id := range campaigns {
		f.AppendN(id, 2)
		f.Drain()
		must.Get(f.Runs.PauseProjection(f.Ctx, ana("later"), projection, id, loaded)).Or(f.TB)
		f.AppendN(id, 3)
		f.Drain()
		h, err := f.Runs.ResumeProjection(f.Ctx, ana(""), projection, id, loaded)
		must.Need(f.TB, err == nil && h.State == outbox.CursorBehind, "resumed as %+v, %v", h, err)
		run = h.RunID
	}
	return run
}

func reconciled(f *fixture) {
	must.Get(f.Reconcile(f.Ctx)).Or(f.TB)
}

func behindAlone(f *fixture, want int64) {
	n, err := f.Runs.Behind(f.Ctx)
	must.Hold(f.TB, n.Alone == want && err == nil, "%+v projections are behind (%v), want %d without a run", n, err, want)
}

func claimAs(f *fixture, loaded []outbox.ProjectionInfo) runs.Lease {
	versions := map[string]string{}
	for _, p := range loaded {
		versions[p.Name] = p.Version
	}
	l, ok, err := f.Runs.Claim(f.Ctx, one, versions, lease)
	must.Need(f.TB, err == nil && ok, "claimed %v, %v", ok, err)
	return l
}

// An operator who cancels a replay, or examines its failure, decides what is next.
func TestReconcile_startsNoReplayAgainThatWasTried(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture, []outbox.ProjectionInfo, int64){
		"cancelled": func(f *fixture, _ []outbox.ProjectionInfo, id int64) {
			must.Get(f.Runs.Cancel(f.Ctx, ana(""), id)).Or(f.TB)
		},
		"failed": func(f *fixture, loaded []outbox.ProjectionInfo, _ int64) {
			f.FinishRun(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
		},
		"interrupted": func(f *fixture, loaded []outbox.ProjectionInfo, _ int64) {
			f.FinishRun(claimAs(f, loaded), outbox.RunInterrupted, "three processes died")
		},
		"completed": func(f *fixture, loaded []outbox.ProjectionInfo, _ int64) {
			f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "")
		},
	} {
		f := open(t)
		loaded := f.WithProjections("roster")
		end(f, loaded, behind(f, loaded, "roster", "a"))
		f.Clock.Advance(24 * time.Hour)
		f.Unchanged(func() { reconciled(f) })
		runs := f.ActiveRuns()
		must.Hold(t, len(runs) == 0, "%s: runs %+v are active", name, runs)
		behindAlone(f, 1)
	}
}

func TestReconcile_startsAReplayAgain(t *testing.T) {
	t.Parallel()
	resumedLater := func(f *fixture) {
		f.Clock.Advance(time.Hour)
		f.ExecProjections(`update projection_cursors set updated_at = $1`, f.Clock.Now().UnixMicro())
	}
	for name, end := range map[string]func(f *fixture, loaded []outbox.ProjectionInfo){
		"that was of another version of the projection": func(f *fixture, loaded []outbox.ProjectionInfo) {
			f.FinishRun(claimAs(f, loaded), outbox.RunInterrupted, "the file has changed")
			must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{{Name: "roster", Version: "w"}}))
		},
		"that failed before it was resumed again": func(f *fixture, loaded []outbox.ProjectionInfo) {
			f.FinishRun(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
			resumedLater(f)
		},
		"that began before it was resumed again": func(f *fixture, loaded []outbox.ProjectionInfo) {
			l := claimAs(f, loaded)
			resumedLater(f)
			f.FinishRun(l, outbox.RunCompleted, "")
		},
	} {
		f := open(t)
		loaded := f.WithProjections("roster")
		first := behind(f, loaded, "roster", "a")
		end(f, loaded)
		if _, err := f.Summary(f.Ctx); err != nil { // it is kept for a while
			t.Fatal(err)
		}
		reconciled(f)
		if sum, err := f.Summary(f.Ctx); err != nil || len(sum.Held) != 1 || sum.Held[0].RunID == 0 {
			t.Errorf("%s: the summary says that the projection%s (%v)", name, sum.Held[0].CatchUp(), err)
		}
		runs := f.ActiveRuns()
		must.Hold(t, len(runs) == 1 && runs[0].ID != first && runs[0].CampaignID == "a" && runs[0].Kind == outbox.RunReplay && runs[0].Reason != "", "%s: runs %+v are active, want a replay", name, runs)
		behindAlone(f, 0)
		f.Unchanged(func() { reconciled(f) })
	}
}

func TestFinishRun_endsAReplayOfAResumeInTheFuture(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster")
	behind(f, loaded, "roster", "a")
	f.ExecProjections(`update projection_cursors set updated_at = $1`, f.Clock.Now().Add(time.Hour).UnixMicro())
	for range 2 { // the second one is that of the future
		f.FinishRun(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
	}
	runs := f.ActiveRuns()
	must.Hold(t, len(runs) == 0, "runs %+v are active", runs)
}

func TestFinishRun_startsOneReplayForEachProjectionThatIsBehind(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.ReasonFrom = 1 })
	loaded := f.WithProjections("roster", "history")
	f.AppendN("c", 1)
	f.Drain()
	verify := must.Get(f.Runs.Start(f.Ctx, ana("looks odd"), enginetest.VerifyAll(), loaded)).Or(t)
	for _, projection := range []string{"roster", "history"} {
		for _, id := range []string{"a", "b"} {
			f.AppendN(id, 2)
			f.Drain()
			for _, step := range []func() error{
				func() error {
					_, err := f.Runs.PauseProjection(f.Ctx, ana("later"), projection, id, loaded)
					return err
				},
				func() error {
					f.AppendN(id, 3)
					f.Drain()
					h, err := f.Runs.ResumeProjection(f.Ctx, ana("now"), projection, id, loaded)
					must.Equal(t, h.BlockedByRun, verify.ID, "resumed as")
					return err
				},
			} {
				must.OK(t, step())
			}
		}
	}
	behindAlone(f, 0)
	f.Sound()
	f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "")
	var scopes []string
	for _, r := range f.ActiveRuns() {
		scopes = append(scopes, fmt.Sprint(r.Kind, r.Projections, r.CampaignIDs))
	}
	must.Equal(t, fmt.Sprint(scopes), "[replay[history] [a b] replay[roster] [a b]]", "active")
	f.Sound()
}

func TestReplaysThatStartByThemselves_areRecorded(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster")
	atOnce := behind(f, loaded, "roster", "a")
	mustHaveStarted(f, atOnce)
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`) // resumed again
	f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "")
	later := f.ActiveRuns()[0].ID
	mustHaveStarted(f, later, atOnce)
	acts := f.ActionsOf("projection_resume")
	must.Hold(t, len(acts) == 1 && acts[0].Actor == "ana", "resumes are %+v", acts)
}

func mustHaveStarted(f *fixture, runs ...int64) {
	f.TB.Helper()
	var got []int64
	for _, a := range f.ActionsOf("run_start") {
		var after struct {
			RunID int64 `json:"run_id"`
		}
		err := json.Unmarshal(a.After, &after)
		must.Hold(f.TB, err == nil && a.Actor == "outboxweb" && a.Via == "system" && a.CampaignID == "a" && a.Reason != "" && a.Target == outbox.RunTarget(after.RunID), "the record is %+v (%v)", a, err)
		got = append(got, after.RunID)
	}
	must.Equal(f.TB, got, runs, "runs", "have a record")
}

func TestBehind_countsWhatWaitsForTheEndOfARun(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster")
	f.AppendN("a", 2)
	f.Drain()
	must.Get(f.Runs.PauseProjection(f.Ctx, ana("later"), "roster", "a", loaded)).Or(t)
	f.AppendN("a", 3)
	f.Drain()
	verify := must.Get(f.Runs.Start(f.Ctx, ana("looks odd"), enginetest.VerifyAll(), loaded)).Or(t)
	must.Get(f.Runs.ResumeProjection(f.Ctx, ana("now"), "roster", "a", loaded)).Or(t)
	mustTellHeld(f, outbox.BehindCounts{Waiting: 1}, outbox.HeldProjection{Projection: "roster", Behind: 1, BlockedByRun: verify.ID})
	f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "")
	replay := f.ActiveRuns()[0].ID
	mustTellHeld(f, outbox.BehindCounts{CatchUps: 1}, outbox.HeldProjection{Projection: "roster", Behind: 1, RunID: replay})
	f.FinishRun(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
	mustTellHeld(f, outbox.BehindCounts{Alone: 1}, outbox.HeldProjection{Projection: "roster", Behind: 1})
}

func mustTellHeld(f *fixture, behind outbox.BehindCounts, held ...outbox.HeldProjection) {
	n, err := f.Runs.Behind(f.Ctx)
	must.Hold(f.TB, n == behind && err == nil, "behind are %+v (%v), want %+v", n, err, behind)
	f.Clock.Advance(time.Minute)
	s := f.Beside(func(*store.Options) {})
	must.Equal(f.TB, must.Get(s.Summary(f.Ctx)).Or(f.TB).Held, held, "the summary holds", ")")
}

func TestReconcile_startsAReplayOfWhatIsFree(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster")
	behind(f, loaded, "roster", "a", "b")
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`)
	f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "") // of a, while that of b is queued
	runs := f.ActiveRuns()
	must.Hold(t, len(runs) == 2 && runs[0].CampaignID == "b" && runs[1].CampaignID == "a", "active are %+v", runs)
}

func TestReconcile_leavesAProjectionBehindThatIsPausedForAll(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster")
	run := behind(f, loaded, "roster", "a")
	must.Get(f.Runs.PauseProjection(f.Ctx, ana("all"), "roster", "", loaded)).Or(t)
	f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "")
	f.Unchanged(func() { reconciled(f) })
	behindAlone(f, 0)
	f.Sound()
	f.AppendN("b", 1)
	verify := must.Get(f.Runs.Start(f.Ctx, ana(""), outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"b"}}, loaded)).Or(t)
	f.Clock.Advance(time.Second)
	h, err := f.Runs.ResumeProjection(f.Ctx, ana(""), "roster", "", loaded)
	must.Hold(t, err == nil && h.RunID == 0 && h.BlockedByRun == verify.ID, "resumed as %+v, %v", h, err)
	f.FinishRun(claimAs(f, loaded), outbox.RunCompleted, "")
	runs := f.ActiveRuns()
	must.Hold(t, len(runs) == 1 && runs[0].ID != run && runs[0].CampaignID == "a", "active are %+v, want a replay of what was behind before the pause", runs)
}

func TestReconcile_inShadowModeStartsNoReplay(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster")
	must.Get(f.Runs.Cancel(f.Ctx, ana(""), behind(f, loaded, "roster", "a"))).Or(t)
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`)
	shadow := f.Beside(storetest.InMode(outbox.ModeShadow))
	f.Unchanged(func() { reconciled(shadow) })
	reconciled(f)
	must.Equal(t, len(f.ActiveRuns()), 1, "active")
}

// behindOf is what check reports about projections that nothing catches up.
func behindOf(tb testing.TB, b *enginetest.Engine) (details []string) {
	report := must.Get(b.Check(context.Background(), func(int64, int64) {})).Or(tb)
	for _, v := range report.Violations {
		must.Equal(tb, v.Invariant, "replay_owed", "check")
		details = append(details, v.CampaignID+": "+v.Detail)
	}
	return details
}

func runsOf(tb testing.TB, b *enginetest.Engine, kind outbox.RunKind) []outbox.Run {
	page := must.Get(b.Runs.List(context.Background(), outbox.RunFilter{Kind: kind})).Or(tb)
	slices.Reverse(page.Items)
	return page.Items
}

func TestResume_besideARunIsCaughtUpOnceThatRunEnds(t *testing.T) {
	t.Parallel()
	for _, campaign := range []string{"a", ""} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally))
		b.Feed(append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
		b.PauseProjection("tally", campaign)
		b.Feed(enginetest.Notes("a", 5)...)
		verify := b.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, All: true})
		h := b.ResumeProjection("tally", campaign)
		must.Hold(t, h.Behind == 1 && h.RunID == 0 && h.BlockedByRun == verify.ID, "resumed as %+v, want that run %d blocks the replay", h, verify.ID)
		b.MustHaveCursors("a tally 3 behind")
		b.Sound() // the replay will start automatically

		b.StepRuns()
		b.MustHaveCursors("a tally 8 live")
		b.MustHaveTold("tally", "a", 8)
		replays := runsOf(t, b, outbox.RunReplay)
		if len(replays) != 1 || replays[0].Status != outbox.RunCompleted || replays[0].CampaignID != "a" || !slices.Equal(replays[0].Projections, []string{"tally"}) ||
			replays[0].RequestedBy != "outboxweb" || replays[0].Via != "system" {
			t.Errorf("replays are %+v", replays)
		}
		b.Feed(enginetest.Noted("a"))
		b.MustHaveTold("tally", "a", 9)
		b.Sound()
		for seq, want := range map[int64]string{3: "", 4: "tally", 8: "tally", 9: ""} {
			h, err := b.Runs.EventHistory(t.Context(), "a", seq)
			got := ""
			if last := h.Steps[len(h.Steps)-1]; last.Kind == outbox.StepReplayed && last.Replay.RunID == replays[0].ID && last.Replay.Kind == outbox.RunReplay {
				got = last.Replay.Projection
			}
			must.Hold(t, err == nil && got == want, "event %d got to %q by the replay, want %q: %+v, %v", seq, got, want, h.Steps, err)
		}
	}
}

func TestResume_besideAQueuedRunIsCaughtUpWhenThatIsCancelled(t *testing.T) {
	t.Parallel()
	b := enginetest.OpenPaused(t)
	b.Feed(enginetest.Notes("a", 2)...)
	verify := b.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, All: true})
	b.ResumeProjection("tally", "a")
	must.Get(b.Runs.Cancel(t.Context(), enginetest.Operator, verify.ID)).Or(t)
	b.StepRuns()
	b.MustHaveCursors("a tally 5 live")
	b.Sound()
}

// A process may die when the projection is resumed and the journal has not recorded it yet.
func TestReconcile_catchesUpAProjectionThatNoRunDoes(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally))
	b.Feed(append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...)...)
	b.PauseProjection("tally", "a")
	b.Feed(enginetest.Notes("a", 2)...)
	b.ExecProjections(`update projection_cursors set state = 'behind', paused_by = '', paused_at = null`)
	b.Runs.WaitForOwed(0) // for a process that died nothing comes
	found := behindOf(t, b)
	must.Hold(t, len(found) == 1 && strings.HasPrefix(found[0], "a: ") && strings.Contains(found[0], `projection "tally"`), "check found %q", found)
	n, err := b.Runs.Behind(t.Context())
	must.Hold(t, n == (outbox.BehindCounts{Alone: 1}) && err == nil, "%+v projections are behind, want 1 without a run; %v", n, err)
	for range 2 { // the second one finds the run
		must.Get(b.Reconcile(t.Context())).Or(t)
	}
	must.Equal(t, len(runsOf(t, b, outbox.RunReplay)), 1, "replays")
	n, err = b.Runs.Behind(t.Context())
	must.Hold(t, n.Alone == 0 && err == nil, "%+v projections are behind, want none without a run; %v", n, err)
	b.Sound()
	b.StepRuns()
	b.MustHaveCursors("a tally 5 live")
	b.MustHaveTold("tally", "a", 5)
	b.Sound()
}
