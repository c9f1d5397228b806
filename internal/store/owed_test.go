package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
)

// behind brings campaigns about in which a projection was paused at event 2 and
// is resumed at event 5. It returns the replay that catches it up.
func (f *fixture) behind(loaded []outbox.ProjectionInfo, projection string, campaigns ...string) (run int64) {
	f.tb.Helper()
	for _, id := range campaigns {
		f.append(id, 2)
		f.drain()
		if _, err := f.runs.PauseProjection(f.ctx, ana("later"), projection, id, loaded); err != nil {
			f.tb.Fatal(err)
		}
		f.append(id, 3)
		f.drain()
		h, err := f.runs.ResumeProjection(f.ctx, ana(""), projection, id, loaded)
		if err != nil || h.State != outbox.CursorBehind {
			f.tb.Fatalf("resumed as %+v, %v", h, err)
		}
		run = h.RunID
	}
	return run
}

func (f *fixture) reconciled() {
	f.tb.Helper()
	if _, err := f.Reconcile(f.ctx); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fixture) behindAlone(want int64) {
	f.tb.Helper()
	if n, err := f.runs.Behind(f.ctx); n.Alone != want || err != nil {
		f.tb.Errorf("%+v projections are behind (%v), want %d without a run", n, err, want)
	}
}

func (f *fixture) active() []outbox.Run {
	f.tb.Helper()
	runs, err := f.runs.Active(f.ctx)
	if err != nil {
		f.tb.Fatal(err)
	}
	return runs
}

func claimAs(f *fixture, loaded []outbox.ProjectionInfo) runs.Lease {
	f.tb.Helper()
	versions := map[string]string{}
	for _, p := range loaded {
		versions[p.Name] = p.Version
	}
	l, ok, err := f.runs.Claim(f.ctx, one, versions, lease)
	if err != nil || !ok {
		f.tb.Fatalf("claimed %v, %v", ok, err)
	}
	return l
}

// Whoever cancels a replay, or looks at why it failed, decides what is next.
func TestReconcile_startsNoReplayAgainThatWasTried(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture, []outbox.ProjectionInfo, int64){
		"cancelled": func(f *fixture, _ []outbox.ProjectionInfo, id int64) {
			if _, err := f.runs.Cancel(f.ctx, ana(""), id); err != nil {
				f.tb.Fatal(err)
			}
		},
		"failed": func(f *fixture, loaded []outbox.ProjectionInfo, _ int64) {
			f.finish(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
		},
		"interrupted": func(f *fixture, loaded []outbox.ProjectionInfo, _ int64) {
			f.finish(claimAs(f, loaded), outbox.RunInterrupted, "three processes died")
		},
		"completed": func(f *fixture, loaded []outbox.ProjectionInfo, _ int64) {
			f.finish(claimAs(f, loaded), outbox.RunCompleted, "")
		},
	} {
		f := open(t)
		loaded := f.withProjections("roster")
		end(f, loaded, f.behind(loaded, "roster", "a"))
		f.clock.advance(24 * time.Hour)
		f.unchanged(f.reconciled)
		if runs := f.active(); len(runs) > 0 {
			t.Errorf("%s: runs %+v are active", name, runs)
		}
		f.behindAlone(1)
	}
}

func TestReconcile_startsAReplayAgain(t *testing.T) {
	t.Parallel()
	resumedLater := func(f *fixture) {
		f.clock.advance(time.Hour)
		f.rawProjections(`update projection_cursors set updated_at = $1`, f.clock.now().UnixMicro())
	}
	for name, end := range map[string]func(f *fixture, loaded []outbox.ProjectionInfo){
		"that was of another version of the projection": func(f *fixture, loaded []outbox.ProjectionInfo) {
			f.finish(claimAs(f, loaded), outbox.RunInterrupted, "the file has changed")
			if err := f.Install(f.ctx, []readmodel.Projection{{Name: "roster", Version: "w"}}); err != nil {
				f.tb.Fatal(err)
			}
		},
		"that failed before it was resumed again": func(f *fixture, loaded []outbox.ProjectionInfo) {
			f.finish(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
			resumedLater(f)
		},
		"that began before it was resumed again": func(f *fixture, loaded []outbox.ProjectionInfo) {
			l := claimAs(f, loaded)
			resumedLater(f)
			f.finish(l, outbox.RunCompleted, "")
		},
	} {
		f := open(t)
		loaded := f.withProjections("roster")
		first := f.behind(loaded, "roster", "a")
		end(f, loaded)
		f.reconciled()
		if runs := f.active(); len(runs) != 1 || runs[0].ID == first || runs[0].CampaignID != "a" || runs[0].Kind != outbox.RunReplay || runs[0].Reason == "" {
			t.Errorf("%s: runs %+v are active, want a replay", name, runs)
		}
		f.behindAlone(0)
		f.unchanged(f.reconciled)
	}
}

// A clock that is ahead must not make the same replay start for ever.
func TestFinishRun_endsAReplayOfAResumeInTheFuture(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.withProjections("roster")
	f.behind(loaded, "roster", "a")
	f.rawProjections(`update projection_cursors set updated_at = $1`, f.clock.now().Add(time.Hour).UnixMicro())
	for range 2 { // the second one is that of the future
		f.finish(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
	}
	if runs := f.active(); len(runs) > 0 {
		t.Errorf("runs %+v are active", runs)
	}
}

func TestFinishRun_startsOneReplayForEachProjectionThatIsBehind(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.ReasonFrom = 1 })
	loaded := f.withProjections("roster", "history")
	f.append("c", 1)
	f.drain()
	verify, err := f.runs.Start(f.ctx, ana("looks odd"), verifyAll(), loaded)
	if err != nil {
		t.Fatal(err)
	}
	for _, projection := range []string{"roster", "history"} {
		for _, id := range []string{"a", "b"} {
			f.append(id, 2)
			f.drain()
			for _, step := range []func() error{
				func() error {
					_, err := f.runs.PauseProjection(f.ctx, ana("later"), projection, id, loaded)
					return err
				},
				func() error {
					f.append(id, 3)
					f.drain()
					h, err := f.runs.ResumeProjection(f.ctx, ana("now"), projection, id, loaded)
					if h.BlockedByRun != verify.ID {
						t.Errorf("resumed as %+v", h)
					}
					return err
				},
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	f.behindAlone(0)
	f.sound()
	f.finish(claimAs(f, loaded), outbox.RunCompleted, "")
	var scopes []string
	for _, r := range f.active() {
		scopes = append(scopes, fmt.Sprint(r.Kind, r.Projections, r.CampaignIDs))
	}
	if fmt.Sprint(scopes) != "[replay[history] [a b] replay[roster] [a b]]" {
		t.Errorf("active are %q", scopes)
	}
	f.sound()
}

// The operator's resume has one record, and so has each replay that starts by itself.
func TestReplaysThatStartByThemselves_areRecorded(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.withProjections("roster")
	atOnce := f.behind(loaded, "roster", "a")
	f.mustHaveStarted(atOnce)
	f.rawProjections(`update projection_cursors set updated_at = updated_at + 1`) // resumed again
	f.finish(claimAs(f, loaded), outbox.RunCompleted, "")
	later := f.active()[0].ID
	f.mustHaveStarted(later, atOnce)
	if acts := f.actsOf("projection_resume"); len(acts) != 1 || acts[0].Actor != "ana" {
		t.Errorf("resumes are %+v", acts)
	}
}

// mustHaveStarted makes sure that runs which outboxweb started have a record each,
// the last first.
func (f *fixture) mustHaveStarted(runs ...int64) {
	f.tb.Helper()
	var got []int64
	for _, a := range f.actsOf("run_start") {
		var after struct {
			RunID int64 `json:"run_id"`
		}
		if err := json.Unmarshal(a.After, &after); err != nil || a.Actor != "outboxweb" || a.Via != "system" || a.CampaignID != "a" || a.Reason == "" || a.Target != outbox.RunTarget(after.RunID) {
			f.tb.Errorf("the record is %+v (%v)", a, err)
		}
		got = append(got, after.RunID)
	}
	if !cmp.Equal(got, runs) {
		f.tb.Errorf("runs %v have a record, want %v", got, runs)
	}
}

// What waits for a run is behind all the same.
func TestBehind_countsWhatWaitsForTheEndOfARun(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.withProjections("roster")
	f.append("a", 2)
	f.drain()
	if _, err := f.runs.PauseProjection(f.ctx, ana("later"), "roster", "a", loaded); err != nil {
		t.Fatal(err)
	}
	f.append("a", 3)
	f.drain()
	verify, err := f.runs.Start(f.ctx, ana("looks odd"), verifyAll(), loaded)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.runs.ResumeProjection(f.ctx, ana("now"), "roster", "a", loaded); err != nil {
		t.Fatal(err)
	}
	f.mustTellHeld(outbox.BehindCounts{Waiting: 1}, outbox.HeldProjection{Projection: "roster", Behind: 1, BlockedByRun: verify.ID})
	f.finish(claimAs(f, loaded), outbox.RunCompleted, "")
	replay := f.active()[0].ID
	f.mustTellHeld(outbox.BehindCounts{CatchUps: 1}, outbox.HeldProjection{Projection: "roster", Behind: 1, RunID: replay})
	f.finish(claimAs(f, loaded), outbox.RunFailed, "the disk is broken")
	f.mustTellHeld(outbox.BehindCounts{Alone: 1}, outbox.HeldProjection{Projection: "roster", Behind: 1})
}

// mustTellHeld compares what is behind, and what the summary says of projections that
// are paused or behind.
func (f *fixture) mustTellHeld(behind outbox.BehindCounts, held ...outbox.HeldProjection) {
	f.tb.Helper()
	if n, err := f.runs.Behind(f.ctx); n != behind || err != nil {
		f.tb.Errorf("behind are %+v (%v), want %+v", n, err, behind)
	}
	f.clock.advance(time.Minute)
	s := f.beside(func(*store.Options) {})
	if sum, err := s.Summary(f.ctx); err != nil || !cmp.Equal(sum.Held, held) {
		f.tb.Errorf("the summary holds %+v (%v), want %+v", sum.Held, err, held)
	}
}

// Campaigns whose part another run has wait for that one; the rest do not.
func TestReconcile_startsAReplayOfWhatIsFree(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.withProjections("roster")
	f.behind(loaded, "roster", "a", "b")
	f.rawProjections(`update projection_cursors set updated_at = updated_at + 1`)
	f.finish(claimAs(f, loaded), outbox.RunCompleted, "") // of a, while that of b is queued
	if runs := f.active(); len(runs) != 2 || runs[0].CampaignID != "b" || runs[1].CampaignID != "a" {
		t.Errorf("active are %+v", runs)
	}
}

func TestReconcile_leavesAProjectionBehindThatIsPausedForAll(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.withProjections("roster")
	run := f.behind(loaded, "roster", "a")
	if _, err := f.runs.PauseProjection(f.ctx, ana("all"), "roster", "", loaded); err != nil {
		t.Fatal(err)
	}
	f.finish(claimAs(f, loaded), outbox.RunCompleted, "")
	f.unchanged(f.reconciled)
	f.behindAlone(0)
	f.sound()
	f.append("b", 1)
	verify, err := f.runs.Start(f.ctx, ana(""), outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"b"}}, loaded)
	if err != nil {
		t.Fatal(err)
	}
	f.clock.advance(time.Second)
	h, err := f.runs.ResumeProjection(f.ctx, ana(""), "roster", "", loaded)
	if err != nil || h.RunID != 0 || h.BlockedByRun != verify.ID {
		t.Errorf("resumed as %+v, %v", h, err)
	}
	f.finish(claimAs(f, loaded), outbox.RunCompleted, "")
	if runs := f.active(); len(runs) != 1 || runs[0].ID == run || runs[0].CampaignID != "a" {
		t.Errorf("active are %+v, want a replay of what was behind before the pause", runs)
	}
}

func TestReconcile_inShadowModeStartsNoReplay(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.withProjections("roster")
	if _, err := f.runs.Cancel(f.ctx, ana(""), f.behind(loaded, "roster", "a")); err != nil {
		t.Fatal(err)
	}
	f.rawProjections(`update projection_cursors set updated_at = updated_at + 1`)
	shadow := f.beside(mode(outbox.ModeShadow))
	f.unchanged(shadow.reconciled)
	f.reconciled()
	if runs := f.active(); len(runs) != 1 {
		t.Errorf("active are %+v", runs)
	}
}
