package publishing_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func customSubscription(tb testing.TB, f destination.Functions) destination.Subscription {
	tb.Helper()
	s := subscriptionOf("everything", "custom", everyEvent)
	s.Pause = outbox.Retry{Base: 20 * time.Millisecond, Max: 20 * time.Millisecond}
	s.MaxErrors, s.FailedRetry, s.Timeout = 3, 20*time.Millisecond, 50*time.Millisecond
	s, err := destination.Custom(s, f, destination.Settings{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// A publisher made in Go panics, fails and recovers as a configured one does, and keeps its position.
func TestRelay_deliversByAGoFunction(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(notes("c-1", 3)...)
	var mu sync.Mutex
	var got []int64
	var broken atomic.Bool
	broken.Store(true)
	sub := customSubscription(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
		if broken.Load() {
			panic("no such region")
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			got = append(got, e.Position)
		}
		return len(events), nil
	}})
	c := receivers{}.config(f, "one", sub)
	c.Open = nil
	deliver(t, f, c)
	storetest.Eventually(t, "failed", func() bool { return f.publisher(sub.SubscriptionName).Status == outbox.PublisherFailed })
	if p := f.publisher(sub.SubscriptionName); p.Position != 0 || p.LastError != "the function panicked: no such region" || p.ErrorKind != outbox.UnknownError || p.Settings.MaxErrors != 3 || p.Healthy != nil {
		t.Errorf("%+v", p)
	}
	broken.Store(false)
	f.mustStandAt(t, sub.SubscriptionName, 3)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(got, upTo(3)) {
		t.Errorf("got %v", got)
	}
}

// The next attempt of a failed publisher is the next poll while errors last; once it is resumed it
// polls at once.
func TestRelay_nextPollIsNextAttemptAfterAnError(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	hold := make(chan struct{})
	var held atomic.Bool
	sub := customSubscription(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
		if held.Load() {
			<-hold
			return len(events), nil
		}
		return 0, errors.New("no quota")
	}})
	defer close(hold)
	sub.FailedRetry = time.Hour
	c := receivers{}.config(f, "one", sub)
	c.Open, c.Lease = nil, 2*time.Second
	deliver(t, f, c)
	storetest.Eventually(t, "failed", func() bool { return f.publisher(sub.SubscriptionName).Status == outbox.PublisherFailed })
	expires := f.publisher(sub.SubscriptionName).Lease.ExpiresAt
	storetest.Eventually(t, "the lease is renewed", func() bool { return f.publisher(sub.SubscriptionName).Lease.ExpiresAt.After(expires) })
	if p := f.publisher(sub.SubscriptionName); p.NextPollAt == nil || !p.NextPollAt.Equal(*p.RetryAt) {
		t.Errorf("next poll %v, next attempt %v", p.NextPollAt, p.RetryAt)
	}
	held.Store(true)
	if p, err := f.progress.Resume(t.Context(), ana("quota bought"), sub.SubscriptionName); err != nil || p.NextPollAt != nil {
		t.Errorf("resumed, it polls at %v, %v", p.NextPollAt, err)
	}
}

// A call that does not return is no word of Healthy, whose last one keeps its time; it is shown until
// it returns.
func TestRelay_tellsAHangingCallFromHealth(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	hang := make(chan struct{})
	sub := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) { <-hang; return len(events), nil },
		Healthy: func(context.Context) error { return nil },
	})
	c := receivers{}.config(f, "one", sub)
	c.Open = nil
	deliver(t, f, c)
	storetest.Eventually(t, "failed", func() bool { return f.publisher(sub.SubscriptionName).Status == outbox.PublisherFailed })
	storetest.Eventually(t, "it hangs", func() bool { return f.publisher(sub.SubscriptionName).HangingSince != nil })
	p := f.publisher(sub.SubscriptionName)
	if p.Healthy == nil || !*p.Healthy || p.HealthAt == nil || p.HealthAt.After(*p.HangingSince) || p.ErrorKind != outbox.UnknownError {
		t.Errorf("%+v", p)
	}
	close(hang)
	storetest.Eventually(t, "it does not hang any more", func() bool { return f.publisher(sub.SubscriptionName).HangingSince == nil })
	f.mustStandAt(t, sub.SubscriptionName, 1)
}

// A process whose call does not return gives the publisher to another one, and takes it back neither by
// asking nor while the other has it.
func TestRelay_handsOverAPublisherWhoseCallHangs(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	hang := make(chan struct{})
	stuck := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) { <-hang; return len(events), nil },
	})
	one := receivers{}.config(f, "one", stuck)
	one.Open = nil
	stop := deliver(t, f, one)
	storetest.Eventually(t, "it hangs", func() bool { return f.publisher(stuck.SubscriptionName).HangingSince != nil })
	var delivered atomic.Int64
	well := customSubscription(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
		delivered.Add(int64(len(events)))
		return len(events), nil
	}})
	two := receivers{}.config(f.beside(live), "two", well)
	two.Open = nil
	deliver(t, f, two)
	f.mustStandAt(t, stuck.SubscriptionName, 1)
	if p := f.publisher(stuck.SubscriptionName); p.Lease == nil || p.Lease.Owner != "two" || p.HangingSince != nil || delivered.Load() != 1 {
		t.Errorf("%d delivered: %+v", delivered.Load(), p)
	}
	stop() // though its call has not returned
	close(hang)
}

// An unhealthy publisher gets no events, and says why; what it last said ends with its lease.
func TestRelay_givesNothingToAnUnhealthyPublisher(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(notes("c-1", 3)...)
	var healthy atomic.Bool
	var calls atomic.Int64
	sub := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
			calls.Add(1)
			return len(events), nil
		},
		Healthy: func(context.Context) error {
			if healthy.Load() {
				return nil
			}
			return errors.New("no quota")
		},
	})
	c := receivers{}.config(f, "one", sub)
	c.Open = nil
	stop := deliver(t, f, c)
	storetest.Eventually(t, "failed", func() bool { return f.publisher(sub.SubscriptionName).Status == outbox.PublisherFailed })
	p := f.publisher(sub.SubscriptionName)
	if p.Healthy == nil || *p.Healthy || p.HealthMessage != "no quota" || p.LastError != "the publisher is not healthy: no quota" || calls.Load() != 0 {
		t.Errorf("it is healthy: %v (%q), last error %q, after %d calls", p.Healthy, p.HealthMessage, p.LastError, calls.Load())
	}
	healthy.Store(true)
	f.mustStandAt(t, sub.SubscriptionName, 3)
	if p := f.publisher(sub.SubscriptionName); p.Healthy == nil || !*p.Healthy || p.HealthMessage != "" {
		t.Errorf("it is healthy: %v (%q)", p.Healthy, p.HealthMessage)
	}
	stop()
	var said any
	if err := f.JournalDB.QueryRow(`select healthy from publisher_progress`).Scan(&said); err != nil || said != nil {
		t.Errorf("without a lease it is healthy: %v, %v", said, err)
	}
}
