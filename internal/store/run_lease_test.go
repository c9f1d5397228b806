package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
)

func TestClaimRun_takesTheOldestOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 4)
	f.noRun(one)
	first, second := f.startRun(rebuild("a")), f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"b"}, UntilSeq: 2})
	f.clock.advance(time.Second)
	l := f.claimRun(one)
	now := f.clock.now()
	if l.Run.ID != first.ID || l.Owner != one.ID || l.Epoch != 1 || l.Run.Status != outbox.RunRunning || !l.Run.StartedAt.Equal(now) || l.Run.Attempts != 1 ||
		l.Run.Campaigns.Total != 1 || l.Run.Events.Total != 3 || l.Run.Lease == nil || !l.Run.Lease.ExpiresAt.Equal(now.Add(lease)) {
		t.Errorf("lease is %+v", l)
	}
	if l := f.claimRun(one); l.Run.ID != second.ID || l.Run.Events.Total != 2 {
		t.Errorf("lease is %+v, want run %d", l, second.ID)
	}
	f.noRun(two)
}

func TestClaimRun_countsWhatARunOverAllIsAbout(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 4)
	f.startRun(verifyAll())
	if l := f.claimRun(one); l.Run.Campaigns.Total != 2 || l.Run.Events.Total != 7 {
		t.Errorf("totals are %+v and %+v", l.Run.Campaigns, l.Run.Events)
	}
}

func TestClaimRun_byManyAtOnceGivesEachRunOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 8 {
		id := fmt.Sprint("c-", i)
		f.append(id, 1)
		f.startRun(rebuild(id))
	}
	stores := []*fixture{f, f.beside()}
	var mu sync.Mutex
	taken := map[int64]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				l, ok, err := stores[i%2].runs.Claim(f.ctx, store.Worker{ID: fmt.Sprint("w-", i)}, versionsRuns, lease)
				if err != nil {
					t.Error(err)
				}
				if ok {
					mu.Lock()
					taken[l.Run.ID]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if len(taken) != 8 {
		t.Errorf("runs taken: %v, want eight", taken)
	}
	for id, n := range taken {
		if n != 1 {
			t.Errorf("run %d was taken %d times", id, n)
		}
	}
}

func TestClaimRun_takesOverWhereAnotherStopped(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 4)
	f.startRun(verifyAll())
	l := f.claimRun(one)
	f.report(l, 5, result("a", outbox.OutcomeMatch, 3)) // and two events of b
	f.clock.advance(lease - 1)
	f.noRun(two)
	f.clock.advance(time.Second)
	next := f.claimRun(two)
	if next.Epoch != 2 || next.Run.Attempts != 2 || next.Run.Events.Done != 3 || next.Run.Campaigns.Done != 1 || !next.Run.StartedAt.Equal(began) {
		t.Errorf("lease is %+v, want the events of what is done and no more", next)
	}
	f.unchanged(func() {
		_, err := f.runs.Report(f.ctx, l, runs.Progress{Results: []outbox.RunResult{result("b", outbox.OutcomeDrift, 4)}, Lease: lease})
		_, err2 := f.runs.Finish(f.ctx, l, outbox.RunCompleted, "")
		_, err3 := f.runs.Scope(f.ctx, l, "", 10)
		for _, err := range []error{err, err2, err3, f.runs.Release(f.ctx, l)} {
			if !errors.Is(err, outbox.ErrLeaseLost) {
				t.Errorf("the former holder got %v", err)
			}
		}
	})
}

func TestClaimRun_againByTheSameWorkerEndsItsFormerLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.startRun(verifyAll())
	former := f.claimRun(one)
	f.clock.advance(lease)
	f.claimRun(one)
	if _, err := f.runs.Report(f.ctx, former, runs.Progress{Lease: lease}); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("with its former epoch the worker got %v", err)
	}
}

func TestEndRunLeases_letsAnotherTakeOverAtOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.startRun(verifyAll())
	f.claimRun(one)
	if err := f.runs.EndLeases(f.ctx, two.ID); err != nil {
		t.Fatal(err)
	}
	f.noRun(two)
	if err := f.runs.EndLeases(f.ctx, one.ID); err != nil {
		t.Fatal(err)
	}
	f.claimRun(two)
	if err := f.runs.EndLeases(f.ctx, ""); err != nil {
		t.Fatal(err)
	}
	f.claimRun(one)
}

func TestReleaseRun_isNoAttempt(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	for range 5 {
		if err := f.runs.Release(f.ctx, f.claimRun(one)); err != nil {
			t.Fatal(err)
		}
		if got := f.run(run.ID); got.Status != outbox.RunRunning || got.Lease != nil || got.Attempts != 0 {
			t.Errorf("released run is %+v", got)
		}
	}
}

func TestClaimRun_givesUpARunThatTookThreeProcessesDown(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	for range 3 {
		f.claimRun(one)
		f.clock.advance(lease)
	}
	f.noRun(one)
	got := f.run(run.ID)
	if got.Status != outbox.RunInterrupted || got.Error != "its process died three times while working on it; resume it to try again" || got.FinishedAt == nil || got.Lease != nil || got.Verdict != "" {
		t.Errorf("run is %+v", got)
	}
	f.startRun(verifyAll()) // its scope is free
}

func TestClaimRun_leavesProjectionsOfOtherVersionsAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	waiting := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{"history"}})
	others := map[string]string{"roster": "v1", "history": "v3"}
	claim := func(versions map[string]string) (runs.Lease, bool) {
		l, ok, err := f.runs.Claim(f.ctx, two, versions, lease)
		if err != nil {
			t.Fatal(err)
		}
		return l, ok
	}
	f.unchanged(func() {
		for _, versions := range []map[string]string{others, nil, {"roster": "v1"}} {
			if _, ok := claim(versions); ok {
				t.Errorf("a process with %v took the run", versions)
			}
		}
	})
	behind := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{"roster"}})
	if l, ok := claim(others); !ok || l.Run.ID != behind.ID {
		t.Errorf("claimed %+v, want the run behind", l)
	}
	if l := f.claimRun(one); l.Run.ID != waiting.ID {
		t.Errorf("claimed %+v, want the run that waited", l)
	}
	f.clock.advance(lease)
	// It was begun: nobody may ever have its projections again.
	for _, id := range []int64{waiting.ID, behind.ID} {
		claim(map[string]string{"history": "v3"})
		if got := f.run(id); got.Status != outbox.RunInterrupted || got.Error != "the projection files have changed since it began; start a new run" {
			t.Errorf("run is %+v", got)
		}
	}
}

func TestClaimRun_doesNotLeaveARunWaitingForEverForItsProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	f.clock.advance(10 * time.Minute)
	if _, ok, err := f.runs.Claim(f.ctx, one, map[string]string{"roster": "v9"}, lease); ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := f.run(run.ID); got.Status != outbox.RunInterrupted || !strings.Contains(got.Error, "start a new run") {
		t.Errorf("run is %+v", got)
	}
}

func TestRunScope_walksWhatHasNoResultYet(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		f.append(id, 2)
	}
	for _, order := range []outbox.RunOrder{verifyAll(), rebuild("e", "a", "b", "d", "c")} {
		run := f.startRun(order)
		l := f.claimRun(one)
		f.report(l, 0, result("b", outbox.OutcomeMatch, 2), result("d", outbox.OutcomeFailed, 2))
		var got []string
		after := ""
		for range 5 {
			scope, err := f.runs.Scope(f.ctx, l, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(scope) == 0 {
				break
			}
			for _, c := range scope {
				if c.HighWaterSeq != 2 || c.AppliedSeq != 0 {
					t.Errorf("campaign is %+v", c)
				}
				got = append(got, c.CampaignID)
			}
			after = scope[len(scope)-1].CampaignID
		}
		if diff := cmp.Diff([]string{"a", "c", "e"}, got); diff != "" {
			t.Errorf("scope (-want +got): %s", diff)
		}
		f.finish(l, outbox.RunInterrupted, "enough")
		if scope := f.run(run.ID); scope.Status != outbox.RunInterrupted {
			t.Error(scope)
		}
	}
}
