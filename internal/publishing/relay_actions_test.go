package publishing_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// A pause by another process is noticed after the batch in flight, however rarely the holder checks
// for it, also with a large backlog.
func TestRelay_aPauseElsewhereHoldsAfterTheBatchInFlight(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	elsewhere := f.beside(live)
	f.appendAll(notes("c-1", 50)...)
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.BatchSize = 10
	r := receivers{"one": {answer: func(_ context.Context, events []*destination.Event) (int, error) {
		if events[0].Position == 11 {
			_, err := elsewhere.progress.Pause(context.Background(), ana("mended"), sub.SubscriptionName)
			must.Hold(t, err == nil, "%v", err)
		}
		return len(events), nil
	}}}
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	deliver(t, f, c)
	storetest.Eventually(t, "the pair is given back", func() bool {
		status, _, _, _, owner := f.subscriptionState(t, sub.SubscriptionName)
		return status == "paused" && owner == ""
	})
	must.Equal(t, r["one"].got(), upTo(20), "it got")
}

// Events appended after a pause are not delivered, even if the holder has not been notified of the
// pause yet.
func TestRelay_nothingAppendedAfterAPauseIsDelivered(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	elsewhere := f.beside(live)
	sub := subscriptionOf("everything", "one", everyEvent)
	r := receivers{"one": {}}
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	f.appendAll(noted("c-1"))
	deliver(t, f, c)
	storetest.Eventually(t, "the first event is delivered", func() bool {
		_, position, _, _, _ := f.subscriptionState(t, sub.SubscriptionName)
		return position == 1
	})
	must.Get(elsewhere.progress.Pause(t.Context(), ana("mended"), sub.SubscriptionName)).Or(t)
	f.appendAll(noted("c-1"))
	storetest.Eventually(t, "the pair is given back", func() bool {
		_, _, _, _, owner := f.subscriptionState(t, sub.SubscriptionName)
		return owner == ""
	})
	must.Equal(t, r["one"].got(), upTo(1), "it got")
}

// A call cancelled because the subscription is being released is no error of the destination.
func TestRelay_aCallThatIsCutOffIsNoError(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	called := make(chan struct{})
	var once sync.Once
	r := receivers{"one": {answer: func(ctx context.Context, _ []*destination.Event) (int, error) {
		once.Do(func() { close(called) })
		<-ctx.Done()
		return 0, ctx.Err()
	}}}
	sub := subscriptionOf("everything", "one", everyEvent)
	c := r.config(f, "one", sub)
	c.Lease = 2 * storetest.Patience // its expiry would cancel the call too
	stop := deliver(t, f, c)
	<-called
	began := time.Now()
	stop()
	took := time.Since(began)
	must.Hold(t, took <= storetest.Patience, "it took %s to stop", took)
	status, position, _, count, owner := f.subscriptionState(t, sub.SubscriptionName)
	must.Hold(t, status == "active" && position == 0 && count == 0 && owner == "", "the pair is %s at %d with %d errors, held by %q", status, position, count, owner)
}

// A destination that accepts nothing and gives no reason has failed.
func TestRelay_takingNothingIsAnError(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	r := receivers{"one": {answer: func(context.Context, []*destination.Event) (int, error) { return 0, nil }}}
	sub := subscriptionOf("everything", "one", everyEvent)
	deliver(t, f, r.config(f, "one", sub))
	storetest.Eventually(t, "it is noted", func() bool {
		_, _, _, count, _ := f.subscriptionState(t, sub.SubscriptionName)
		return count > 0
	})
}

// Stopping does not wait for a database that is down.
func TestRelay_stopsWhileAPositionCannotBeSaved(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	away := make(chan struct{})
	var once sync.Once
	r := receivers{"one": {answer: func(_ context.Context, events []*destination.Event) (int, error) {
		f.Exec(`alter table publisher_progress rename to away`)
		once.Do(func() { close(away) })
		return len(events), nil
	}}}
	sub := subscriptionOf("everything", "one", everyEvent)
	c := r.config(f, "one", sub)
	c.Lease = 2 * storetest.Patience // its expiry would end the retries too
	stop := deliver(t, f, c)
	<-away
	began := time.Now()
	stop()
	took := time.Since(began)
	must.Hold(t, took <= storetest.Patience, "it took %s to stop", took)
	f.Exec(`alter table away rename to publisher_progress`)
	_, position, _, _, _ := f.subscriptionState(t, sub.SubscriptionName)
	must.Hold(t, position == 0, "the pair stands at %d", position)
}

// failing makes a subscription that waits an hour until it is retried, and whose destination
// accepts everything after its first error.
func failing(t *testing.T, f *fixture) (destination.Subscription, *receiver, publishing.RelayConfig) {
	f.appendAll(notes("c-1", 3)...)
	var calls atomic.Int64
	r := &receiver{answer: func(_ context.Context, events []*destination.Event) (int, error) {
		if calls.Add(1) == 1 {
			return 0, errors.New("connection refused")
		}
		return len(events), nil
	}}
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.MaxErrors, sub.FailedRetry = 1, time.Hour
	c := receivers{"one": r}.config(f, "one", sub)
	c.Lease = time.Hour // so that nothing is noticed by renewing it
	return sub, r, c
}

// Actions of other processes are noticed at the next check, also by a waiting subscription.
func TestRelay_aSubscriptionThatWaitsIsActedOnElsewhere(t *testing.T) {
	t.Parallel()
	two := int64(2)
	for name, c := range map[string]struct {
		act func(*publishing.Progress, outbox.SubscriptionName) error
		got []int64
	}{
		"resumed": {func(p *publishing.Progress, name outbox.SubscriptionName) error {
			_, err := p.Resume(t.Context(), ana("mended"), name)
			return err
		}, upTo(3)},
		"moved": {func(p *publishing.Progress, name outbox.SubscriptionName) error {
			_, err := p.Seek(t.Context(), outbox.Command{By: ana("").By, Reason: "they were wrong", Confirm: "skip 1 events"}, name, outbox.SeekTarget{Position: &two}, nil)
			return err
		}, []int64{3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, live)
			sub, r, config := failing(t, f)
			deliver(t, f, config)
			storetest.Eventually(t, "the pair has failed", func() bool {
				status, _, _, _, _ := f.subscriptionState(t, sub.SubscriptionName)
				return status == "failed"
			})
			must.OK(t, c.act(f.beside(live).progress, sub.SubscriptionName))
			f.mustStandAt(t, sub.SubscriptionName, 3)
			must.Equal(t, r.got(), c.got, "it got")
		})
	}
}

func TestRelay_renewsTheLeaseOfAnIdleSubscription(t *testing.T) {
	t.Parallel()
	f := open(t)
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.PollInterval = time.Hour
	deliver(t, f, receivers{"one": {}}.config(f, "one", sub))
	for range 3 {
		storetest.Eventually(t, "the lease is renewed", func() bool {
			held := f.publisher(sub.SubscriptionName).Lease
			return held != nil && held.ExpiresAt.Equal(f.Clock.Now().Add(lease))
		})
		f.Clock.Advance(lease / 2)
	}
	must.Equal(t, f.state(sub.SubscriptionName).Epoch, 1, "it was taken", "times")
}

// The reply to a save may be lost although the save succeeded. The subscription continues at once
// from its stored position, and nothing is delivered again.
func TestPostgresRelay_goesOnWhenItNeverLearnsThatAPositionIsSaved(t *testing.T) {
	t.Parallel()
	s, p := dbtest.Server().Severer(t), dbtest.New(t)
	p.Journal, p.Projections = s.Through(p.Journal), s.Through(p.Projections)
	f := on(storetest.OpenBoth(t, p, storetest.NewClock(), live))
	f.appendAll(notes("c-1", 30)...)
	var once sync.Once
	r := receivers{"one": {answer: func(_ context.Context, events []*destination.Event) (int, error) {
		once.Do(s.Arm)
		return len(events), nil
	}}}
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.BatchSize = 10
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 30)
	must.Equal(t, s.Severed(), 1, "commits were left without an answer")
	must.Equal(t, r["one"].got(), upTo(30), "it got")
}

// A failed subscription may find that its topic no longer selects the event, after a configuration
// change.
func TestRelay_restsWhenTheEventThatFailedIsNotSelectedAnyMore(t *testing.T) {
	t.Parallel()
	f := open(t)
	s := newSteps(f.Clock)
	f.appendAll(notes("c-1", 3)...)
	r := receivers{"one": {}}
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.PollInterval = time.Second
	mustFail(t, f, sub.Definition(), 1)
	s.Advance(time.Hour) // it may be tried again
	sub.Match = outbox.Match{EventTypes: []string{"never"}}
	deliver(t, f, s.on(r.config(f, "one", sub)))
	w := s.next(t)
	must.Need(t, w.long == sub.PollInterval, "it waits %s, want %s", w.long, sub.PollInterval)
	f.mustStandAt(t, sub.SubscriptionName, 3)
}

// mustFail makes a subscription that could not deliver the event at a position.
func mustFail(tb testing.TB, f *fixture, d outbox.PublisherDefinition, position int64) {
	must.OK(tb, f.progress.Register(tb.Context(), []outbox.PublisherDefinition{d}))
	held, ok, err := f.progress.Claim(tb.Context(), "before", d.SubscriptionName, lease)
	must.Need(tb, err == nil && ok, "claim: %v %v", ok, err)
	failure := publishing.Failure{Kind: outbox.DestinationError, Message: "connection refused", Position: position, Pause: outbox.Retry{Base: time.Second, Max: time.Minute}, FailedRetry: time.Minute}
	_, err = f.progress.Fail(tb.Context(), held, failure)
	must.OK(tb, errors.Join(err, f.progress.Release(tb.Context(), held)))
}

// A subscription whose topic selects little waits in two parts, since its position is saved in
// between.
func TestRelay_aWakeUpIsNotLostWhileAPositionIsSaved(t *testing.T) {
	t.Parallel()
	f := open(t)
	s := newSteps(f.Clock)
	f.appendAll(noted("c-1"))
	r := receivers{"one": {}}
	sub := subscriptionOf("opened", "one", outbox.Match{EventTypes: []string{"opened"}})
	sub.PollInterval = time.Hour
	deliver(t, f, s.on(r.config(f, "one", sub)))
	w := s.next(t)
	must.Need(t, w.long == sub.PollInterval, "after the first poll, which saves the position, it waits %s, want %s", w.long, sub.PollInterval)
	f.appendAll(noted("c-1"))
	w = s.next(t)
	must.Need(t, w.long <= time.Second, "until the position may be saved again it waits %s", w.long)
	s.Advance(time.Second) // the wake-up comes when the position is due to be saved anyway
	f.appendAll(opened("c-1"))
	storetest.Eventually(t, "the event arrives", func() bool { return len(r["one"].got()) == 1 })
}

// A single failed read of the journal is retried after a moment, and not at the next poll.
func TestRelay_readsAgainSoonWhenTheJournalCouldNotBeRead(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	r := receivers{"one": {}}
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.PollInterval = time.Hour
	f.appendAll(noted("c-1"))
	failures := 1
	deliver(t, f, r.config(f, "one", sub), func(p *publishing.Relay) {
		p.BeforeReads(func() error {
			if failures--; failures >= 0 {
				return outbox.ErrBusy
			}
			return nil
		})
	})
	f.mustStandAt(t, sub.SubscriptionName, 1)
}

// A position that cannot be saved is saved later, without its batch being delivered again; the
// retries do not overload a database that is down.
func TestRelay_savesAPositionWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	s := newSteps(f.Clock)
	f.appendAll(notes("c-1", 3)...)
	r := receivers{"one": {answer: func(_ context.Context, events []*destination.Event) (int, error) {
		f.Exec(`alter table publisher_progress rename to away`)
		return len(events), nil
	}}}
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.PollInterval = time.Hour
	deliver(t, f, s.on(r.config(f, "one", sub)))
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		w := s.next(t)
		want *= time.Millisecond
		must.Hold(t, w.long == want, "wait %d is %s, want %s", i+1, w.long, want)
		if i == 5 {
			f.Exec(`alter table away rename to publisher_progress`)
		}
		s.pass(w)
	}
	f.mustStandAt(t, sub.SubscriptionName, 3)
	must.Equal(t, r["one"].got(), upTo(3), "it got")
}
