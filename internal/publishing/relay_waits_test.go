package publishing_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

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
	if w := s.next(t); w.long != sub.PollInterval {
		t.Fatalf("it waits %s, want %s", w.long, sub.PollInterval)
	}
	f.mustStandAt(t, sub.SubscriptionName, 3)
}

// mustFail makes a subscription that could not deliver the event at a position.
func mustFail(tb testing.TB, f *fixture, d outbox.PublisherDefinition, position int64) {
	tb.Helper()
	if err := f.progress.Register(tb.Context(), []outbox.PublisherDefinition{d}); err != nil {
		tb.Fatal(err)
	}
	held, ok, err := f.progress.Claim(tb.Context(), "before", d.SubscriptionName, lease)
	if err != nil || !ok {
		tb.Fatalf("claim: %v %v", ok, err)
	}
	failure := publishing.Failure{Kind: outbox.DestinationError, Message: "connection refused", Position: position, Pause: outbox.Retry{Base: time.Second, Max: time.Minute}, FailedRetry: time.Minute}
	_, err = f.progress.Fail(tb.Context(), held, failure)
	if err = errors.Join(err, f.progress.Release(tb.Context(), held)); err != nil {
		tb.Fatal(err)
	}
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
	if w := s.next(t); w.long != sub.PollInterval {
		t.Fatalf("after the first poll, which saves the position, it waits %s, want %s", w.long, sub.PollInterval)
	}
	f.appendAll(noted("c-1"))
	if w := s.next(t); w.long > time.Second {
		t.Fatalf("until the position may be saved again it waits %s", w.long)
	}
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
		if want *= time.Millisecond; w.long != want {
			t.Errorf("wait %d is %s, want %s", i+1, w.long, want)
		}
		if i == 5 {
			f.Exec(`alter table away rename to publisher_progress`)
		}
		s.pass(w)
	}
	f.mustStandAt(t, sub.SubscriptionName, 3)
	if got := r["one"].got(); !slices.Equal(got, upTo(3)) {
		t.Errorf("it got %v", got)
	}
}
