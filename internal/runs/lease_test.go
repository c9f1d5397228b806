package runs_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestClaimRun_takesTheOldestOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.AppendN("b", 4)
	f.Exec(allApplied)
	f.NoRun(one)
	first, second := f.StartRun(enginetest.Rebuild("a")), f.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"b"}, UntilSeq: 2})
	f.Clock.Advance(time.Second)
	l := f.ClaimRun(one)
	now := f.Clock.Now()
	if l.Run.ID != first.ID || l.Owner != one.ID || l.Epoch != 1 || l.Run.Status != outbox.RunRunning || !l.Run.StartedAt.Equal(now) || l.Run.Attempts != 1 ||
		l.Run.Campaigns.Total != 1 || l.Run.Events.Total != 3 || l.Run.Lease == nil || !l.Run.Lease.ExpiresAt.Equal(now.Add(lease)) {
		t.Errorf("lease is %+v", l)
	}
	l = f.ClaimRun(one)
	must.Hold(t, l.Run.ID == second.ID && l.Run.Events.Total == 2, "lease is %+v, want run %d", l, second.ID)
	f.NoRun(two)
}

func TestClaimRun_byManyAtOnceGivesEachRunOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 8 {
		id := fmt.Sprint("c-", i)
		f.AppendN(id, 1)
		f.StartRun(enginetest.Rebuild(id))
	}
	stores := []*fixture{f, f.Beside()}
	var mu sync.Mutex
	taken := map[int64]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				l, ok, err := stores[i%2].Runs.Claim(f.Ctx, store.Worker{ID: fmt.Sprint("w-", i)}, enginetest.VersionsRuns, lease)
				must.Hold(t, err == nil, "%v", err)
				if ok {
					mu.Lock()
					taken[l.Run.ID]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	must.Equal(t, len(taken), 8, "runs taken")
	for id, n := range taken {
		must.Equal(t, n, 1, "how often was taken run", id)
	}
}

func TestClaimRun_takesOverWhereAnotherStopped(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.AppendN("b", 4)
	f.StartRun(enginetest.VerifyAll())
	f.Exec(allApplied)
	l := f.ClaimRun(one)
	f.ReportRun(l, 5, result("a", outbox.OutcomeMatch, 3)) // and two events of b
	f.Clock.Advance(lease - 1)
	f.NoRun(two)
	f.Clock.Advance(time.Second)
	next := f.ClaimRun(two)
	must.Hold(t, next.Epoch == 2 && next.Run.Campaigns.Total == 2 && next.Run.Events.Total == 7 && next.Run.Attempts == 2 && next.Run.Events.Done == 3 && next.Run.Campaigns.Done == 1 && next.Run.StartedAt.Equal(began), "lease is %+v, want the events of what is done and no more", next)
	f.Unchanged(func() {
		_, err := f.Runs.Report(f.Ctx, l, runs.Progress{Results: []outbox.RunResult{result("b", outbox.OutcomeDrift, 4)}, Lease: lease})
		_, err2 := f.Runs.Finish(f.Ctx, l, outbox.RunCompleted, "")
		_, err3 := f.Runs.Scope(f.Ctx, l, "", 10)
		for _, err := range []error{err, err2, err3, f.Runs.Release(f.Ctx, l)} {
			must.Hold(t, errors.Is(err, outbox.ErrLeaseLost), "the former holder got %v", err)
		}
	})
	f.Clock.Advance(lease)
	f.ClaimRun(two)
	_, err := f.Runs.Report(f.Ctx, next, runs.Progress{Lease: lease})
	must.Hold(t, errors.Is(err, outbox.ErrLeaseLost), "with its former epoch the same worker got %v", err)
}

func TestEndRunLeases_letsAnotherTakeOverAtOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.StartRun(enginetest.VerifyAll())
	f.ClaimRun(one)
	must.OK(t, f.Runs.EndLeases(f.Ctx, two.ID))
	f.NoRun(two)
	must.OK(t, f.Runs.EndLeases(f.Ctx, one.ID))
	f.ClaimRun(two)
	must.OK(t, f.Runs.EndLeases(f.Ctx, ""))
	f.ClaimRun(one)
}

func TestReleaseRun_isNoAttempt(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.StartRun(enginetest.VerifyAll())
	for range 5 {
		must.OK(t, f.Runs.Release(f.Ctx, f.ClaimRun(one)))
		got := f.MustRun(run.ID)
		must.Hold(t, got.Status == outbox.RunRunning && got.Lease == nil && got.Attempts == 0, "released run is %+v", got)
	}
}

func TestClaimRun_givesUpARunThatTookThreeProcessesDown(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.StartRun(enginetest.VerifyAll())
	for range 3 {
		f.ClaimRun(one)
		f.Clock.Advance(lease)
	}
	f.NoRun(one)
	got := f.MustRun(run.ID)
	must.Hold(t, got.Status == outbox.RunInterrupted && got.Error == "its process died three times during the run; resume it to try again" && got.FinishedAt != nil && got.Lease == nil && got.Verdict == "", "run is %+v", got)
	f.StartRun(enginetest.VerifyAll()) // its scope is free
}

func TestClaimRun_leavesProjectionsOfOtherVersionsAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	waiting := f.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, All: true, Projections: []string{"history"}})
	others := map[string]string{"roster": "v1", "history": "v3"}
	claim := func(versions map[string]string) (runs.Lease, bool) {
		l, ok, err := f.Runs.Claim(f.Ctx, two, versions, lease)
		must.OK(t, err)
		return l, ok
	}
	f.Unchanged(func() {
		for _, versions := range []map[string]string{others, nil, {"roster": "v1"}} {
			_, ok := claim(versions)
			must.Hold(t, !ok, "a process with %v took the run", versions)
		}
	})
	behind := f.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, All: true, Projections: []string{"roster"}})
	l, ok := claim(others)
	must.Hold(t, ok && l.Run.ID == behind.ID, "claimed %+v, want the run behind", l)
	must.Equal(t, f.ClaimRun(one).Run.ID, waiting.ID, "claimed")
	f.Clock.Advance(lease)
	// It was begun, and no process may ever have its projections again.
	for _, id := range []int64{waiting.ID, behind.ID} {
		claim(map[string]string{"history": "v3"})
		got := f.MustRun(id)
		must.Hold(t, got.Status == outbox.RunInterrupted && got.Error == "the projection files have changed since it began; start a new run", "run is %+v", got)
	}
}

func TestClaimRun_doesNotLeaveARunWaitingForEverForItsProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.StartRun(enginetest.VerifyAll())
	f.Clock.Advance(10 * time.Minute)
	if _, ok, err := f.Runs.Claim(f.Ctx, one, map[string]string{"roster": "v9"}, lease); ok || err != nil {
		t.Fatal(ok, err)
	}
	got := f.MustRun(run.ID)
	must.Hold(t, got.Status == outbox.RunInterrupted && strings.Contains(got.Error, "start a new run"), "run is %+v", got)
}

func TestRunScope_walksWhatHasNoResultYet(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		f.AppendN(id, 2)
	}
	for _, order := range []outbox.RunRequest{enginetest.VerifyAll(), enginetest.Rebuild("e", "a", "b", "d", "c")} {
		run := f.StartRun(order)
		l := f.ClaimRun(one)
		f.ReportRun(l, 0, result("b", outbox.OutcomeMatch, 2), result("d", outbox.OutcomeFailed, 2))
		var got []string
		after := ""
		for range 5 {
			scope := must.Get(f.Runs.Scope(f.Ctx, l, after, 2)).Or(t)
			if len(scope) == 0 {
				break
			}
			for _, c := range scope {
				must.Hold(t, c.HighWaterSeq == 2 && c.AppliedSeq == 0, "campaign is %+v", c)
				got = append(got, c.CampaignID)
			}
			after = scope[len(scope)-1].CampaignID
		}
		must.Equal(t, got, []string{"a", "c", "e"}, "scope")
		f.FinishRun(l, outbox.RunInterrupted, "enough")
		must.Equal(t, f.MustRun(run.ID).Status, outbox.RunInterrupted)
	}
}

func TestLocks_ofRunsAreTakenInOneOrderToo(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		f.AppendN(id, 1)
	}
	orders := []outbox.RunRequest{enginetest.VerifyAll(), enginetest.Rebuild("a", "b"), enginetest.Rebuild("c"), enginetest.Rebuild("b", "c")}
	unless := func(err error, kinds ...error) error {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return nil
			}
		}
		return err
	}
	newest := func(s *fixture) int64 {
		page, err := s.Runs.List(s.Ctx, outbox.RunFilter{Limit: 1})
		if err != nil || len(page.Items) == 0 {
			return 1
		}
		return page.Items[0].ID
	}
	storetest.Everybody(t, []*fixture{f, f.Beside()}, 60, map[string]func(*fixture, int) error{
		"start": func(s *fixture, i int) error {
			_, err := s.Runs.Start(s.Ctx, ana(""), orders[i%len(orders)], enginetest.LoadedRuns)
			return unless(err, outbox.ErrConflict)
		},
		"cancel": func(s *fixture, i int) error {
			_, err := s.Runs.Cancel(s.Ctx, ana(""), newest(s))
			return unless(err, outbox.ErrConflict, outbox.ErrNotFound)
		},
		"resume": func(s *fixture, i int) error {
			_, err := s.Runs.Resume(s.Ctx, ana(""), max(1, newest(s)-int64(i%3)), enginetest.LoadedRuns)
			return unless(err, outbox.ErrConflict, outbox.ErrNotFound)
		},
		"work": func(s *fixture, i int) error {
			l, ok, err := s.Runs.Claim(s.Ctx, one, enginetest.VersionsRuns, lease)
			if err != nil || !ok {
				return err
			}
			var results []outbox.RunResult
			for _, id := range storetest.Shuffled(ids) {
				r := result(id, outbox.OutcomeMatch, 1)
				for _, p := range storetest.Shuffled([]string{"roster", "history"}) {
					r.Projections = append(r.Projections, outbox.ProjectionResult{Projection: p, Verdict: outbox.VerdictMatch})
				}
				results = append(results, r)
			}
			if _, err = s.Runs.Report(s.Ctx, l, runs.Progress{Results: results, Lease: lease}); err == nil {
				_, err = s.Runs.Finish(s.Ctx, l, []outbox.RunStatus{outbox.RunCompleted, outbox.RunFailed, outbox.RunInterrupted}[i%3], "so it goes")
			}
			return unless(err, outbox.ErrLeaseLost)
		},
		"note": func(s *fixture, _ int) error {
			var notes []outbox.Verification
			for _, id := range storetest.Shuffled(ids) {
				notes = append(notes, outbox.Verification{CampaignID: id, Projection: "roster", Verdict: outbox.VerdictDrift})
			}
			return s.RecordVerifications(s.Ctx, notes)
		},
		"end leases": func(s *fixture, _ int) error { return s.Runs.EndLeases(s.Ctx, one.ID) },
	})
	active := f.Number(`select count(*) from run_scopes where active = 1 and run_id in (select id from runs where finished_at is not null)`)
	must.Equal(t, active, 0, "scopes of runs that have ended keep others out")
}
