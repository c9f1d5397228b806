package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// ahead opens another process on the same databases whose clock is ahead.
func (f *fixture) ahead(by time.Duration) *fixture {
	return f.beside(func(o *store.Options) { o.Now = func() time.Time { return f.Clock.Now().Add(by) } })
}

// A process whose clock is ahead leaves times that the start of another, or its self-check, sets right.
func TestFuture_isSetRight(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(f *fixture){
		"start":      func(f *fixture) { f.MustReconcile(campaign.Repaired{Campaigns: 1}) },
		"self-check": func(f *fixture) { f.SelfCheckOne("a") },
	} {
		for event, story := range map[string]func(t *testing.T, f *fixture){
			"an append is due now": func(t *testing.T, f *fixture) {
				f.ahead(24*time.Hour).AppendN("a", 3)
				e := f.Explained("a")
				must.Hold(t, e.Blocker == campaign.BlockerUnqueued && e.ClaimableAt != nil && e.ClaimableAt.Equal(began.Add(24*time.Hour)) && strings.Contains(e.Why, "clock"), "explained as %+v", e)
				f.NoClaim(one)
				repair(f)
				f.Claims(one, 3, "a 1-3 under 1")
			},
			"a retry waits no longer than the settings allow": func(t *testing.T, f *fixture) {
				fast := f.ahead(10 * time.Minute)
				fast.Failing("boom", "a", 3)
				repair(f)
				e := f.Explained("a")
				must.Hold(t, e.Blocker == campaign.BlockerBackoff && e.Why == "Event 1 failed and will be retried in 1 s", "explained as %+v", e)
				f.NoClaim(one)
				f.Clock.Advance(time.Second)
				f.Claims(one, 3, "a 1-3 under 2, after 1")
			},
			"a lease of the dead ends as soon as the settings allow": func(t *testing.T, f *fixture) {
				fast := f.ahead(10 * time.Minute)
				fast.AppendN("a", 3)
				lost := fast.ClaimOne(two, 3)
				repair(f)
				f.Exact("a")
				e := f.Explained("a")
				must.Hold(t, e.Blocker == campaign.BlockerLease && e.ClaimableAt.Equal(began.Add(lease)), "explained as %+v", e)
				f.NoClaim(one)
				f.Clock.Advance(lease)
				c := f.ClaimOne(one, 3)
				fast.MustApply(lost, 3) // nothing was applied under the new lease yet
				must.Equal(t, fast.MustSettle(two, outbox.Result{Claim: lost, Applied: 3}).Fenced, 1, "the worker that had lost it settled")
				f.MustSettle(one, outbox.Result{Claim: c, Applied: 3})
			},
		} {
			t.Run(name+": "+event, func(t *testing.T) {
				f := own(t)
				story(t, f)
				f.Exact("a")
				f.Sound()
			})
		}
	}
}

func TestFuture_ofASecondIsNoError(t *testing.T) {
	f := own(t)
	f.ahead(time.Second).AppendN("a", 1)
	f.SelfCheckIsCalm()
	f.MustBeReconciled()
}

// clockOf is an instance as seen by a process that has just read it again.
func (f *fixture) clockOf(id string) campaign.InstanceState {
	all := must.Get(f.Instances(f.Ctx)).Or(f.TB)
	i := slices.IndexFunc(all, func(i campaign.InstanceState) bool { return i.ID == id })
	must.Need(f.TB, i >= 0, "instance %s is not among %+v", id, all)
	return all[i]
}

func TestInstances_nameClocksThatDiffer(t *testing.T) {
	type given struct {
		by        time.Duration
		from, til time.Duration // accepted range of the offset
	}
	storetest.Each(t, own, map[string]given{
		"ten minutes ahead":  {10 * time.Minute, 10*time.Minute - 2*time.Second, 10 * time.Minute},
		"two seconds ahead":  {2 * time.Second, time.Second, 2 * time.Second},
		"ten minutes behind": {-10 * time.Minute, -10 * time.Minute, 2*time.Second - 10*time.Minute},
		"half a second off":  {500 * time.Millisecond, 0, 0},
		"right":              {0, 0, 0},
	}, func(t *testing.T, f *fixture, scene given) {
		other := f.ahead(scene.by)
		for range 5 {
			f.Clock.Advance(1500 * time.Millisecond)
			other.beat("other")
			f.beat("self")
			f.Clock.Advance(500 * time.Millisecond)
			got := f.clockOf("self")
			must.Need(t, got.ClockAhead == 0, "its own clock is %s ahead", got.ClockAhead)
			f.clockOf("other")
		}
		got := f.clockOf("other")
		must.Hold(t, got.ClockAhead >= scene.from && got.ClockAhead <= scene.til && got.State(f.Clock.Now()) == campaign.InstanceRunning, "its clock is %s ahead and it is %s, want %s to %s and running", got.ClockAhead, got.State(f.Clock.Now()), scene.from, scene.til)
		told := facts.Facts{Summary: campaign.Summary{Instances: []campaign.InstanceState{got}}}.Judged(f.Clock.Now()).Findings.Of(campaign.FindsClock)
		must.Hold(t, (len(told) > 0) == (scene.from != 0 || scene.til != 0), "told %+v", told)
		// The clock is corrected.
		for range 40 {
			f.Clock.Advance(2 * time.Second)
			f.beat("other")
			f.clockOf("other")
		}
		must.Equal(t, f.clockOf("other").ClockAhead, 0, "how far its clock is ahead, once it was set right")
	})
}

func TestInstances_ofADeadOneWithAClockAheadFallSilent(t *testing.T) {
	f := own(t)
	f.ahead(10 * time.Minute).beat("other")
	for _, want := range []campaign.Condition{campaign.InstanceRunning, campaign.InstanceSilent} {
		must.Equal(t, f.clockOf("other").State(f.Clock.Now()), want, "it")
		f.Clock.Advance(10 * time.Second)
	}
}
