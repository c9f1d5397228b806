package store_test

import (
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// ahead opens another process on the same databases whose clock is ahead.
func (f *fixture) ahead(by time.Duration) *fixture {
	f.tb.Helper()
	return f.beside(func(o *store.Options) { o.Now = func() time.Time { return f.clock.now().Add(by) } })
}

// explained is why a campaign is or is not moving, as a page says it.
func (f *fixture) explained(id string) outbox.Explanation {
	f.tb.Helper()
	return f.campaign(id).Explain(f.clock.now(), outbox.Surroundings{Mode: outbox.ModeOutbox})
}

// repairs are what takes times back that cannot be right.
var repairs = map[string]func(f *fixture){
	"start":      func(f *fixture) { f.reconcile(outbox.Repaired{Campaigns: 1}) },
	"self-check": func(f *fixture) { f.selfChecks("a") },
}

// forEachRepair runs a story in which the others' clock is ahead of the
// fixture's.
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
		fast.append("a", 3)
		if e := f.explained("a"); e.Hold != outbox.HoldUnqueued || e.ClaimableAt == nil || !e.ClaimableAt.Equal(began.Add(24*time.Hour)) || !strings.Contains(e.Why, "clock") {
			t.Errorf("explained as %+v", e)
		}
		f.noClaim(one)
		repair(f)
		if e := f.explained("a"); e.Hold != outbox.HoldNone {
			t.Errorf("then explained as %+v", e)
		}
		f.drain()
		f.sound()
	})
}

func TestFuture_retriesWaitNoLongerThanTheSettingsAllow(t *testing.T) {
	t.Parallel()
	forEachRepair(t, 10*time.Minute, func(t *testing.T, f, fast *fixture, repair func(*fixture)) {
		fast.append("a", 3)
		fast.fail("boom", "a")
		repair(f)
		if e := f.explained("a"); e.Hold != outbox.HoldBackoff || e.Why != "Event 1 failed and is tried again in 1 s" {
			t.Errorf("explained as %+v", e)
		}
		f.noClaim(one)
		f.clock.advance(time.Second)
		f.exact("a")
		if c := f.claimOne(one, 3); c.Attempts != 1 {
			t.Errorf("claim is %+v, want one failure before", c)
		}
	})
}

func TestFuture_leasesOfTheDeadEndAsSoonAsTheSettingsAllow(t *testing.T) {
	t.Parallel()
	forEachRepair(t, 10*time.Minute, func(t *testing.T, f, fast *fixture, repair func(*fixture)) {
		fast.append("a", 3)
		lost := fast.claimOne(two, 3)
		repair(f)
		f.exact("a")
		if e := f.explained("a"); e.Hold != outbox.HoldLease || !e.ClaimableAt.Equal(began.Add(lease)) {
			t.Errorf("explained as %+v", e)
		}
		f.noClaim(one)
		f.clock.advance(lease)
		c := f.claimOne(one, 3)
		if _, err := fast.apply(lost, 3); err != nil {
			t.Fatal(err) // nobody has applied under the new lease yet
		}
		if got := fast.settle(two, store.Result{Claim: lost, Applied: 3}); got.Fenced != 1 {
			t.Errorf("the worker that had lost it settled %+v", got)
		}
		f.settle(one, store.Result{Claim: c, Applied: 3})
		f.sound()
	})
}

func TestFuture_ofASecondIsNoError(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.ahead(time.Second).append("a", 1)
	f.calm()
	f.settledNow()
}
