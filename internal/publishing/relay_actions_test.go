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
			if _, err := elsewhere.progress.Pause(context.Background(), ana("mended"), sub.SubscriptionName); err != nil {
				t.Error(err)
			}
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
	if got := r["one"].got(); !slices.Equal(got, upTo(20)) {
		t.Errorf("it got %v, want the two batches before the pause", got)
	}
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
	if _, err := elsewhere.progress.Pause(t.Context(), ana("mended"), sub.SubscriptionName); err != nil {
		t.Fatal(err)
	}
	f.appendAll(noted("c-1"))
	storetest.Eventually(t, "the pair is given back", func() bool {
		_, _, _, _, owner := f.subscriptionState(t, sub.SubscriptionName)
		return owner == ""
	})
	if got := r["one"].got(); !slices.Equal(got, upTo(1)) {
		t.Errorf("it got %v, want what came before the pause", got)
	}
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
	if took := time.Since(began); took > storetest.Patience {
		t.Errorf("it took %s to stop", took)
	}
	if status, position, _, count, owner := f.subscriptionState(t, sub.SubscriptionName); status != "active" || position != 0 || count != 0 || owner != "" {
		t.Errorf("the pair is %s at %d with %d errors, held by %q", status, position, count, owner)
	}
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
	if took := time.Since(began); took > storetest.Patience {
		t.Errorf("it took %s to stop", took)
	}
	f.Exec(`alter table away rename to publisher_progress`)
	if _, position, _, _, _ := f.subscriptionState(t, sub.SubscriptionName); position != 0 {
		t.Errorf("the pair stands at %d", position)
	}
}

// failing makes a subscription that waits an hour until it is retried, and whose destination
// accepts everything after its first error.
func failing(t *testing.T, f *fixture) (destination.Subscription, *receiver, publishing.RelayConfig) {
	t.Helper()
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

func mustHaveFailed(t *testing.T, f *fixture, sub destination.Subscription) {
	t.Helper()
	storetest.Eventually(t, "the pair has failed", func() bool {
		status, _, _, _, _ := f.subscriptionState(t, sub.SubscriptionName)
		return status == "failed"
	})
}

// Actions of other processes are noticed at the next check, also by a waiting subscription.
func TestRelay_aSubscriptionThatWaitsIsResumedElsewhere(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	sub, r, c := failing(t, f)
	deliver(t, f, c)
	mustHaveFailed(t, f, sub)
	if _, err := f.beside(live).progress.Resume(t.Context(), ana("mended"), sub.SubscriptionName); err != nil {
		t.Fatal(err)
	}
	f.mustStandAt(t, sub.SubscriptionName, 3)
	if got := r.got(); !slices.Equal(got, upTo(3)) {
		t.Errorf("it got %v", got)
	}
}

func TestRelay_aSubscriptionThatWaitsIsMovedElsewhere(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	sub, r, c := failing(t, f)
	deliver(t, f, c)
	mustHaveFailed(t, f, sub)
	order, two := outbox.Command{By: ana("").By, Reason: "they were wrong", Confirm: "skip 1 events"}, int64(2)
	if _, err := f.beside(live).progress.Seek(t.Context(), order, sub.SubscriptionName, outbox.SeekTarget{Position: &two}, nil); err != nil {
		t.Fatal(err)
	}
	f.mustStandAt(t, sub.SubscriptionName, 3)
	if got := r.got(); !slices.Equal(got, []int64{3}) {
		t.Errorf("it got %v, want what comes after the position", got)
	}
}

// An idle subscription stays leased. A process suspended for longer than its lease loses it; if
// that happens to this one, the test retries with a longer lease.
func TestRelay_renewsTheLeaseOfAnIdleSubscription(t *testing.T) {
	t.Parallel()
	for lease := 3 * time.Second; ; lease *= 3 {
		times := timesTaken(t, lease)
		if times == 1 {
			return
		}
		if lease > 20*time.Second {
			t.Fatalf("it was taken %d times", times)
		}
	}
}

// timesTaken is how many times an idle subscription is claimed until its lease has been renewed
// past its first expiry.
func timesTaken(t *testing.T, long time.Duration) int64 {
	t.Helper()
	f := open(t, live)
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.PollInterval = time.Hour
	c := receivers{"one": {}}.config(f, "one", sub)
	c.Lease = long
	stop := deliver(t, f, c)
	lease := func() (expires, epoch int64) {
		if err := f.JournalDB.QueryRow(`select lease_expires_at, lease_epoch from publisher_progress`).Scan(&expires, &epoch); err != nil {
			t.Fatal(err)
		}
		return expires, epoch
	}
	storetest.Eventually(t, "the pair is held", func() bool { expires, _ := lease(); return expires > 0 })
	first, epoch := lease()
	storetest.Eventually(t, "the lease was renewed past its end", func() bool {
		expires, _ := lease()
		return expires > first+c.Lease.Microseconds()
	})
	_, now := lease()
	stop()
	return now - epoch + 1
}
