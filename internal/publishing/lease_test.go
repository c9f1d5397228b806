package publishing_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

var subA, subB, subC = operator.SubscriptionName{Topic: "t", Publisher: "a"}, operator.SubscriptionName{Topic: "t", Publisher: "b"}, operator.SubscriptionName{Topic: "t", Publisher: "c"}

func definition(name operator.SubscriptionName) subscription.PublisherDefinition {
	return subscription.PublisherDefinition{SubscriptionName: name, Destination: "log:", Match: subscription.Match{EventTypes: []string{"*"}}, MaxErrors: 3}
}

func (f *fixture) register(names ...operator.SubscriptionName) {
	var all []subscription.PublisherDefinition
	for _, name := range names {
		all = append(all, definition(name))
	}
	must.OK(f.TB, f.progress.Register(f.Ctx, all))
}

func (f *fixture) claimSubscription(owner string, name operator.SubscriptionName) publishing.Lease {
	l, ok, err := f.progress.Claim(f.Ctx, owner, name, lease)
	must.Need(f.TB, err == nil && ok, "claim %s for %s: %v, %v", name, owner, ok, err)
	return l
}

func (f *fixture) prospects(owner string, names ...operator.SubscriptionName) map[operator.SubscriptionName]publishing.Prospect {
	states := must.Get(f.progress.States(f.Ctx, owner, names)).Or(f.TB)
	got := map[operator.SubscriptionName]publishing.Prospect{}
	for _, s := range states {
		got[s.SubscriptionName] = s.Prospect
	}
	return got
}

func (f *fixture) state(name operator.SubscriptionName) publishing.State {
	states, err := f.progress.States(f.Ctx, "nobody", []operator.SubscriptionName{name})
	must.Need(f.TB, err == nil && len(states) == 1, "state of %s: %v, %v", name, states, err)
	return states[0]
}

// lost fails the test unless err says that the lease is lost.
func lost(tb testing.TB, what string, err error) {
	must.Hold(tb, errors.Is(err, event.ErrLeaseLost), "%s: %v, want a lost lease", what, err)
}

func delivered(position int64) publishing.Advance {
	return publishing.Advance{Position: position, LastDelivered: position, Delivered: 1, Lease: lease}
}

func TestRegister_keepsWhereASubscriptionStands(t *testing.T) {
	f := own(t)
	f.AppendN("a", 5)
	atHead := definition(subB)
	atHead.StartAtHead = true
	must.OK(t, f.progress.Register(f.Ctx, []subscription.PublisherDefinition{definition(subA), atHead}))
	a, b := f.state(subA).Position, f.state(subB).Position
	must.Hold(t, a == 0 && b == 5, "new pairs begin at %d and %d, want 0 and 5", a, b)
	l := f.claimSubscription("one", subA)
	must.Get(f.progress.Advance(f.Ctx, &l, delivered(3))).Or(t)
	f.AppendN("a", 2)
	changed := definition(subA)
	changed.Destination, changed.Match = "file:///x", subscription.Match{Campaigns: []string{"c"}}
	must.OK(t, f.progress.Register(f.Ctx, []subscription.PublisherDefinition{changed, atHead}))
	if a, b := f.state(subA), f.state(subB); a.Position != 3 || b.Position != 5 || a.Epoch != l.Epoch {
		t.Errorf("after a restart they stand at %d and %d, epoch %d, want 3 and 5, epoch %d", a.Position, b.Position, a.Epoch, l.Epoch)
	}
	var destination, selects string
	must.OK(t, f.JournalDB.QueryRow(`select destination, selects from publisher_progress where publisher = 'a'`).Scan(&destination, &selects))
	must.Hold(t, destination == "file:///x" && selects == `{"campaigns":["c"]}`, "what is new about it is kept as %s, %s", destination, selects)
}

func TestClaim_oneOfManyWins(t *testing.T) {
	f := own(t)
	f.register(subA)
	storetest.OneWins(t, []*fixture{f, f.beside()}, func(f *fixture) error {
		_, ok, err := f.progress.Claim(f.Ctx, rand.Text(), subA, lease)
		if err == nil && !ok {
			return event.ErrConflict
		}
		return err
	})
}

// After a crash others do not wait for the end of its leases, and it cannot advance any more.
func TestEndLeases_freesWhatAProcessThatIsGoneHas(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	f.register(subA, subB)
	gone := f.claimSubscription("gone", subA)
	f.claimSubscription("other", subB)
	must.OK(t, f.EndLeases(f.Ctx, "gone"))
	f.claimSubscription("next", subA)
	_, ok, err := f.progress.Claim(f.Ctx, "next", subB, lease)
	must.Hold(t, !ok && err == nil, "it takes what another process has: %v, %v", ok, err)
	lost(t, "of the process that is gone", storetest.No(f.progress.Advance(f.Ctx, &gone, delivered(1))))
}

// A position never moves back by itself, and only its holder advances it.
func TestAdvance_onlyUnderTheLeaseAndFromWhereItStands(t *testing.T) {
	f := own(t)
	f.AppendN("a", 10)
	f.register(subA)
	old := f.claimSubscription("one", subA)
	must.Get(f.progress.Advance(f.Ctx, &old, delivered(4))).Or(t)
	twin := old
	must.Get(f.progress.Advance(f.Ctx, &old, delivered(6))).Or(t)
	for what, try := range map[string]func() error{
		"from where it stood before": func() error { return storetest.No(f.progress.Advance(f.Ctx, &twin, delivered(9))) },
		"under another's name": func() error {
			l := old
			l.Owner = "two"
			return storetest.No(f.progress.Advance(f.Ctx, &l, delivered(9)))
		},
		"under an epoch before": func() error {
			l := old
			l.Epoch--
			return storetest.No(f.progress.Advance(f.Ctx, &l, delivered(9)))
		},
		"an error from where it stood before": func() error { return storetest.No(f.progress.Fail(f.Ctx, twin, publishing.Failure{})) },
	} {
		lost(t, what, try())
	}
	_, err := f.progress.Advance(f.Ctx, &old, delivered(5))
	must.Hold(t, err != nil && !errors.Is(err, event.ErrLeaseLost), "backwards: %v, want an error", err)
	f.Clock.Advance(lease)
	heir := f.claimSubscription("two", subA)
	must.Need(t, heir.Epoch > old.Epoch && heir.Position == 6, "the heir has epoch %d at %d", heir.Epoch, heir.Position)
	lost(t, "under the old epoch", storetest.No(f.progress.Advance(f.Ctx, &old, delivered(7))))
	lost(t, "an error under the old epoch", storetest.No(f.progress.Fail(f.Ctx, old, publishing.Failure{})))
	earlier := heir
	earlier.Epoch--
	must.Equal(t, must.Get(f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: old}, {Lease: earlier}, {Lease: heir}}, lease)).Or(t), []operator.SubscriptionName{subA, subA}, "renewing all: lost")
	err = f.progress.Release(f.Ctx, old)
	must.Hold(t, err == nil && f.state(subA).Epoch == heir.Epoch, "the old holder gave the pair away: %v", err)
	must.Equal(t, f.state(subA).Position, 6, "it stands at")
}

// A lease that was taken over writes nothing, even if its process has the subscription again.
func TestLease_takenOverChangesNothing(t *testing.T) {
	f := own(t)
	f.AppendN("a", 10)
	f.register(subA)
	old := f.claimSubscription("one", subA)
	f.Clock.Advance(lease)
	f.claimSubscription("two", subA)
	f.Clock.Advance(lease)
	other := f.claimSubscription("one", subA)
	other.Owner = "two"
	f.Clock.Advance(time.Second)
	for what, l := range map[string]publishing.Lease{"with the epoch of before": old, "under another's name": other} {
		f.Unchanged(func() {
			lost(t, what+" it advances", storetest.No(f.progress.Advance(f.Ctx, &l, delivered(7))))
			lost(t, what+" it fails", storetest.No(f.progress.Fail(f.Ctx, l, publishing.Failure{Message: "refused"})))
			must.Equal(t, must.Get(f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: l}}, lease)).Or(t), []operator.SubscriptionName{subA}, what+" it renews: lost")
			must.OK(t, f.progress.SaveHealth(f.Ctx, l, errors.New("unwell")))
			must.OK(t, f.progress.Release(f.Ctx, l))
		})
	}
}

func TestFail_failsAfterItsErrorsInARow(t *testing.T) {
	f := own(t)
	f.AppendN("a", 10)
	f.register(subA)
	l := f.claimSubscription("one", subA)
	failure := publishing.Failure{Kind: operator.EventError, Message: "422 Unprocessable", Position: 1, Pause: event.Retry{Base: time.Second, Max: time.Minute}, FailedRetry: time.Hour}
	for i, want := range []struct {
		status subscription.PublisherStatus
		wait   time.Duration
	}{{subscription.PublisherActive, time.Second}, {subscription.PublisherActive, 2 * time.Second}, {subscription.PublisherFailed, time.Hour}, {subscription.PublisherFailed, time.Hour}} {
		s := must.Get(f.progress.Fail(f.Ctx, l, failure)).Or(t)
		must.Hold(t, s.Status == want.status && s.ErrorCount == i+1 && s.RetryAt.Sub(f.Clock.Now()) == want.wait && s.Position == 0, "after error %d: %+v, want %s, tried again in %s", i+1, s, want.status, want.wait)
	}
	must.Get(f.progress.Advance(f.Ctx, &l, publishing.Advance{Position: 2, Lease: lease})).Or(t)
	must.Equal(t, f.state(subA).Status, subscription.PublisherFailed, "moving over events of other topics made it")
	must.Get(f.progress.Advance(f.Ctx, &l, delivered(3))).Or(t)
	s := f.state(subA)
	must.Hold(t, s.Status == subscription.PublisherActive && s.ErrorCount == 0 && s.RetryAt.IsZero(), "a delivery made it %+v", s)
	failure.Gone = true
	s, err := f.progress.Fail(f.Ctx, l, failure)
	must.Hold(t, err == nil && s.Status == subscription.PublisherFailed && s.RetryAt.IsZero() && s.Prospect == publishing.ProspectYield, "a destination that is gone: %+v, %v", s, err)
	must.OK(t, f.progress.Release(f.Ctx, l))
	must.Equal(t, f.prospects("two", subA)[subA], publishing.ProspectLeave, "a pair that is stopped may be claimed")
}

func TestStates_leasesSpread(t *testing.T) {
	f := own(t)
	f.register(subA, subB, subC)
	names := []operator.SubscriptionName{subA, subB, subC}
	a := f.claimSubscription("one", subA)
	f.claimSubscription("one", subB)
	type may = map[operator.SubscriptionName]publishing.Prospect
	must.Equal(t, f.prospects("one", names...), may{subA: publishing.ProspectHold, subB: publishing.ProspectHold, subC: publishing.ProspectClaim}, "the holder may")
	must.Equal(t, f.prospects("two", names...), may{subA: publishing.ProspectAsk, subB: publishing.ProspectLeave, subC: publishing.ProspectClaim}, "another may")
	must.Get(f.progress.Pause(f.Ctx, ana(""), subA)).Or(t) // it need not be held then
	must.Equal(t, f.prospects("two", names...)[subA], publishing.ProspectLeave, "another may, while it is paused,")
	must.Get(f.progress.Resume(f.Ctx, ana(""), subA)).Or(t)
	must.OK(t, f.progress.AskFor(f.Ctx, "two", subA))
	must.Equal(t, f.prospects("one", names...)[subA], publishing.ProspectYield, "who is asked may")
	must.OK(t, f.progress.Release(f.Ctx, a))
	one, two := f.prospects("one", subA)[subA], f.prospects("two", subA)[subA]
	must.Hold(t, one == publishing.ProspectLeave && two == publishing.ProspectClaim, "after it is given back the giver may %v and who asked %v", one, two)
	f.Clock.Advance(time.Minute)
	must.Equal(t, f.prospects("one", subA)[subA], publishing.ProspectClaim, "a request that nobody followed keeps the pair from others")
	must.Equal(t, f.prospects("two", subC)[subC], publishing.ProspectClaim, "a free pair")
}

// A holder may be slow to release during a call of a destination. A requested subscription counts
// as handed over: a process that requests more would be asked to give it back.
func TestStates_asksForNoMoreThanItsShare(t *testing.T) {
	f := own(t)
	var names []operator.SubscriptionName
	for i := range 5 {
		names = append(names, operator.SubscriptionName{Topic: "t", Publisher: fmt.Sprint(i)})
	}
	f.register(names...)
	for _, name := range names {
		f.claimSubscription("one", name)
	}
	asked := map[string]int{}
	for range 5 {
		for _, owner := range []string{"two", "three"} {
			for name, is := range f.prospects(owner, names...) {
				if is != publishing.ProspectAsk {
					continue
				}
				asked[owner]++
				must.OK(t, f.progress.AskFor(f.Ctx, owner, name))
			}
		}
	}
	must.Equal(t, asked, map[string]int{"two": 2, "three": 1}, "of 5 pairs that one process has the others ask for")
}

// The next poll is the latest one that the holder announced, and after that one within its longest
// wait; or the next attempt while errors last. While that is being made, it is not known.
func TestNextPoll_isNeverPast(t *testing.T) {
	f := own(t)
	waits := definition(subA)
	waits.Settings = subscription.PublisherSettings{PollSeconds: 1, IdleBackoff: true, IdleLongestSeconds: 8}
	must.OK(t, f.progress.Register(f.Ctx, []subscription.PublisherDefinition{waits}))
	l := f.claimSubscription("one", subA)
	at := func(want time.Duration) {
		p := f.publisher(subA)
		is := p.NextPollAt == nil && want == 0 || p.NextPollAt != nil && p.NextPollAt.Equal(f.Clock.Now().Add(want))
		must.Hold(t, is, "next poll at %v, want in %s from %v", p.NextPollAt, want, f.Clock.Now())
	}
	at(0)
	must.Get(f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: l, NextPoll: f.Clock.Now().Add(40 * time.Second)}}, time.Hour)).Or(t)
	at(40 * time.Second)
	f.Clock.Advance(30 * time.Second)
	at(10 * time.Second)
	f.Clock.Advance(11 * time.Second)
	at(8 * time.Second)
	must.Get(f.progress.Fail(f.Ctx, l, publishing.Failure{Kind: operator.DestinationError, Message: "down", Position: 1, Pause: event.Retry{Base: 5 * time.Second, Max: time.Minute}, FailedRetry: time.Minute})).Or(t)
	at(5 * time.Second)
	must.Get(f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: l, NextPoll: f.Clock.Now().Add(40 * time.Second)}}, time.Hour)).Or(t)
	at(5 * time.Second)
	f.Clock.Advance(5 * time.Second)
	at(0)
	must.Get(f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: l}}, time.Hour)).Or(t) // it polls
	must.Get(f.progress.Resume(f.Ctx, ana("repaired"), subA)).Or(t)
	at(0)
}

// Processes change several subscriptions in one transaction. They lock them in the same order, so
// that they cannot deadlock.
func TestPostgresPublishers_areLockedInTheOrderOfTheirNames(t *testing.T) {
	f := own(t)
	f.register(subA, subB)
	a, b := f.claimSubscription("one", subA), f.claimSubscription("one", subB)
	for what, change := range map[string]func() error{
		"renewing": func() error {
			return storetest.No(f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: b}, {Lease: a}}, time.Minute))
		},
		"registering": func() error {
			return f.progress.Register(f.Ctx, []subscription.PublisherDefinition{definition(subB), definition(subA)})
		},
	} {
		other := storetest.Connect(t, f.Pair.Journal)
		storetest.Run(t, other, `begin`, `select 1 from publisher_progress where publisher = 'a' for update`)
		var free atomic.Bool
		ended := storetest.Begin(func() (err error) { // registering waits for a short time only, since appends wait for it
			for err = event.ErrBusy; errors.Is(err, event.ErrBusy) && !free.Load(); {
				err = change()
			}
			return err
		})
		f.AwaitLockWaits(1)
		_, err := other.Exec(f.Ctx, `select 1 from publisher_progress where publisher = 'b' for update nowait`)
		must.Hold(t, err == nil, "%s has the second pair while it waits for the first: %v", what, err)
		free.Store(true)
		storetest.Run(t, other, `rollback`)
		err = <-ended
		must.Hold(t, err == nil || errors.Is(err, event.ErrBusy), "%s: %v", what, err)
	}
}

func TestFuture_publishersWaitNoLongerThanTheirSettingsAllow(t *testing.T) {
	storetest.Each(t, own, map[string]func(f *fixture){
		"start":      func(f *fixture) { f.MustReconcile(campaign.Repaired{}) }, // which counts campaigns alone
		"self-check": func(f *fixture) { f.SelfCheckAll() },
	}, func(t *testing.T, f *fixture, repair func(f *fixture)) {
		f.AppendN("a", 1)
		f.Drain()
		f.register(subA, subB)
		fast := f.beside(func(o *store.Options) { o.Now = func() time.Time { return f.Clock.Now().Add(10 * time.Minute) } })
		failure := publishing.Failure{Kind: operator.DestinationError, Message: "status 503", Position: 1, RetryAfter: 20 * time.Second}
		for _, s := range []struct {
			f   *fixture
			sub operator.SubscriptionName
		}{{fast, subA}, {f, subB}} {
			must.Get(s.f.progress.Fail(f.Ctx, s.f.claimSubscription("one", s.sub), failure)).Or(t)
		}
		far, near := f.state(subA), f.state(subB)
		must.Need(t, far.RetryAt.Equal(storetest.Began.Add(10*time.Minute+20*time.Second)), "the pair of the fast clock is tried at %s", far.RetryAt)
		f.Clock.Advance(5 * time.Second)
		repair(f)
		is := f.publisher(subA)
		at := is.RetryAt
		must.Hold(t, at != nil && at.Equal(storetest.Began.Add(25*time.Second)) && is.LastErrorAt.Equal(storetest.Began.Add(5*time.Second)) && is.ErrorCount == 1, "it is tried at %v, its error is of %v", is.RetryAt, is.LastErrorAt)
		after := f.state(subA).Actions
		must.Hold(t, after != far.Actions, "its holder is not told")
		must.Equal(t, f.state(subB), near, "the pair of this clock")
		f.MustBeReconciled()
	})
}

// A process whose clock was a day ahead has died while it held a subscription.
func TestSelfCheck_shortensLeasesOfPublishers(t *testing.T) {
	f := own(t)
	f.register(subA)
	f.Clock.Advance(24 * time.Hour)
	f.claimSubscription("one", subA)
	f.Clock.Advance(-24 * time.Hour)
	f.SelfCheckAll()
	f.Clock.Advance(lease + time.Second)
	f.claimSubscription("two", subA)
}
