package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// ahead opens another process on the same databases whose clock is ahead.
func (f *fixture) ahead(by time.Duration) *fixture {
	f.TB.Helper()
	return f.beside(func(o *store.Options) { o.Now = func() time.Time { return f.Clock.Now().Add(by) } })
}

// repairs are the operations that correct impossible times.
var repairs = map[string]func(f *fixture){
	"start":      func(f *fixture) { f.MustReconcile(outbox.Repaired{Campaigns: 1}) },
	"self-check": func(f *fixture) { f.SelfCheckOne("a") },
}

// forEachRepair runs a test in which the other processes' clock is ahead of the fixture's.
func forEachRepair(t *testing.T, by time.Duration, story func(t *testing.T, f, fast *fixture, repair func(f *fixture))) {
	for name, repair := range repairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			story(t, f, f.ahead(by), repair)
		})
	}
}

func TestFuture_appendsAreDueNow(t *testing.T) {
	t.Parallel()
	forEachRepair(t, 24*time.Hour, func(t *testing.T, f, fast *fixture, repair func(*fixture)) {
		fast.AppendN("a", 3)
		if e := f.Explained("a"); e.Blocker != outbox.BlockerUnqueued || e.ClaimableAt == nil || !e.ClaimableAt.Equal(began.Add(24*time.Hour)) || !strings.Contains(e.Why, "clock") {
			t.Errorf("explained as %+v", e)
		}
		f.NoClaim(one)
		repair(f)
		if e := f.Explained("a"); e.Blocker != outbox.BlockerNone {
			t.Errorf("then explained as %+v", e)
		}
		f.Drain()
		f.Sound()
	})
}

func TestFuture_retriesWaitNoLongerThanTheSettingsAllow(t *testing.T) {
	t.Parallel()
	forEachRepair(t, 10*time.Minute, func(t *testing.T, f, fast *fixture, repair func(*fixture)) {
		fast.AppendN("a", 3)
		fast.Fail("boom", "a")
		repair(f)
		if e := f.Explained("a"); e.Blocker != outbox.BlockerBackoff || e.Why != "Event 1 failed and will be retried in 1 s" {
			t.Errorf("explained as %+v", e)
		}
		f.NoClaim(one)
		f.Clock.Advance(time.Second)
		f.Exact("a")
		if c := f.ClaimOne(one, 3); c.Attempts != 1 {
			t.Errorf("claim is %+v, want one failure before", c)
		}
	})
}

func TestFuture_leasesOfTheDeadEndAsSoonAsTheSettingsAllow(t *testing.T) {
	t.Parallel()
	forEachRepair(t, 10*time.Minute, func(t *testing.T, f, fast *fixture, repair func(*fixture)) {
		fast.AppendN("a", 3)
		lost := fast.ClaimOne(two, 3)
		repair(f)
		f.Exact("a")
		if e := f.Explained("a"); e.Blocker != outbox.BlockerLease || !e.ClaimableAt.Equal(began.Add(lease)) {
			t.Errorf("explained as %+v", e)
		}
		f.NoClaim(one)
		f.Clock.Advance(lease)
		c := f.ClaimOne(one, 3)
		if _, err := fast.ApplyClaim(lost, 3); err != nil {
			t.Fatal(err) // nothing was applied under the new lease yet
		}
		if got := fast.MustSettle(two, store.Result{Claim: lost, Applied: 3}); got.Fenced != 1 {
			t.Errorf("the worker that had lost it settled %+v", got)
		}
		f.MustSettle(one, store.Result{Claim: c, Applied: 3})
		f.Sound()
	})
}

func TestFuture_ofASecondIsNoError(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.ahead(time.Second).AppendN("a", 1)
	f.SelfCheckIsCalm()
	f.MustBeReconciled()
}

// clockOf is an instance as seen by a process that has just read it again.
func (f *fixture) clockOf(id string) outbox.InstanceState {
	f.TB.Helper()
	all := must.Get(f.Instances(f.Ctx)).Or(f.TB)
	for _, i := range all {
		if i.ID == id {
			return i
		}
	}
	f.TB.Fatalf("instance %s is not among %+v", id, all)
	return outbox.InstanceState{}
}

func TestInstances_nameClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		by        time.Duration
		from, til time.Duration // accepted range of the offset
	}{
		"ten minutes ahead":  {10 * time.Minute, 10*time.Minute - 2*time.Second, 10 * time.Minute},
		"two seconds ahead":  {2 * time.Second, time.Second, 2 * time.Second},
		"ten minutes behind": {-10 * time.Minute, -10 * time.Minute, 2*time.Second - 10*time.Minute},
		"half a second off":  {500 * time.Millisecond, 0, 0},
		"right":              {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			other := f.ahead(scene.by)
			for range 5 {
				f.Clock.Advance(1500 * time.Millisecond)
				other.beat("other")
				f.beat("self")
				f.Clock.Advance(500 * time.Millisecond)
				if got := f.clockOf("self"); got.ClockAhead != 0 {
					t.Fatalf("its own clock is %s ahead", got.ClockAhead)
				}
				f.clockOf("other")
			}
			got := f.clockOf("other")
			if got.ClockAhead < scene.from || got.ClockAhead > scene.til || got.State(f.Clock.Now()) != outbox.InstanceRunning {
				t.Errorf("its clock is %s ahead and it is %s, want %s to %s and running", got.ClockAhead, got.State(f.Clock.Now()), scene.from, scene.til)
			}
			if told := outbox.ClocksThatDiffer([]outbox.InstanceState{got}, f.Clock.Now()); (len(told) > 0) != (scene.from != 0 || scene.til != 0) {
				t.Errorf("told %q", told)
			}
			// The clock is corrected.
			for range 40 {
				f.Clock.Advance(2 * time.Second)
				f.beat("other")
				f.clockOf("other")
			}
			if got := f.clockOf("other"); got.ClockAhead != 0 {
				t.Errorf("its clock was set right and is %s ahead", got.ClockAhead)
			}
		})
	}
}

func TestInstances_ofADeadOneWithAClockAheadFallSilent(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.ahead(10 * time.Minute).beat("other")
	if got := f.clockOf("other"); got.State(f.Clock.Now()) != outbox.InstanceRunning {
		t.Errorf("it is %s, want running", got.State(f.Clock.Now()))
	}
	f.Clock.Advance(10 * time.Second)
	if got := f.clockOf("other"); got.State(f.Clock.Now()) != outbox.InstanceSilent {
		t.Errorf("it is %s, want silent", got.State(f.Clock.Now()))
	}
}
