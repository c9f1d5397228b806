package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/publish"
	"outboxweb/internal/worker"
)

// A pause by another process is noticed after the batch in flight, however
// seldom the holder looks for it, also while there is much to deliver.
func TestPublishing_aPauseElsewhereHoldsAfterTheBatchInFlight(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	elsewhere := b.beside(t)
	b.mustAppend(t, notes("c-1", 50)...)
	pair := pairOf("everything", "one", everyEvent)
	pair.BatchSize = 10
	r := receivers{"one": {answer: func(_ context.Context, events []*publish.Event) (int, error) {
		if events[0].Position == 11 {
			if _, err := elsewhere.PausePublisher(context.Background(), operator, pair.PairName); err != nil {
				t.Error(err)
			}
		}
		return len(events), nil
	}}}
	c := r.config(b, "one", pair)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	deliver(t, b, c)
	eventually(t, "the pair is given back", func() bool {
		status, _, _, _, owner := b.pairState(t, pair.PairName)
		return status == "paused" && owner == ""
	})
	if got := r["one"].got(); !slices.Equal(got, upTo(20)) {
		t.Errorf("it got %v, want the two batches before the pause", got)
	}
}

// What is appended after a pause is not delivered, even where nobody has told
// the holder of the pause yet.
func TestPublishing_nothingAppendedAfterAPauseIsDelivered(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	elsewhere := b.beside(t)
	pair := pairOf("everything", "one", everyEvent)
	r := receivers{"one": {}}
	c := r.config(b, "one", pair)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	b.mustAppend(t, noted("c-1"))
	deliver(t, b, c)
	eventually(t, "the first event is delivered", func() bool {
		_, position, _, _, _ := b.pairState(t, pair.PairName)
		return position == 1
	})
	if _, err := elsewhere.PausePublisher(t.Context(), operator, pair.PairName); err != nil {
		t.Fatal(err)
	}
	b.mustAppend(t, noted("c-1"))
	eventually(t, "the pair is given back", func() bool {
		_, _, _, _, owner := b.pairState(t, pair.PairName)
		return owner == ""
	})
	if got := r["one"].got(); !slices.Equal(got, upTo(1)) {
		t.Errorf("it got %v, want what came before the pause", got)
	}
}

// A call that is cut off since the pair is to be given back is no error of the
// destination.
func TestPublishing_aCallThatIsCutOffIsNoError(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	b.mustAppend(t, noted("c-1"))
	called := make(chan struct{})
	var once sync.Once
	r := receivers{"one": {answer: func(ctx context.Context, _ []*publish.Event) (int, error) {
		once.Do(func() { close(called) })
		<-ctx.Done()
		return 0, ctx.Err()
	}}}
	pair := pairOf("everything", "one", everyEvent)
	c := r.config(b, "one", pair)
	c.Lease = 2 * patience // whose end would cut the call off too
	stop := deliver(t, b, c)
	<-called
	began := time.Now()
	stop()
	if took := time.Since(began); took > patience {
		t.Errorf("it took %s to stop", took)
	}
	if status, position, _, count, owner := b.pairState(t, pair.PairName); status != "active" || position != 0 || count != 0 || owner != "" {
		t.Errorf("the pair is %s at %d with %d errors, held by %q", status, position, count, owner)
	}
}

// A destination that takes nothing and gives no reason has failed.
func TestPublishing_takingNothingIsAnError(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	b.mustAppend(t, noted("c-1"))
	r := receivers{"one": {answer: func(context.Context, []*publish.Event) (int, error) { return 0, nil }}}
	pair := pairOf("everything", "one", everyEvent)
	deliver(t, b, r.config(b, "one", pair))
	eventually(t, "it is noted", func() bool {
		_, _, _, count, _ := b.pairState(t, pair.PairName)
		return count > 0
	})
}

// Stopping does not wait for a database that is away.
func TestPublishing_stopsWhileAPositionCannotBeSaved(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	b.mustAppend(t, noted("c-1"))
	away := make(chan struct{})
	var once sync.Once
	r := receivers{"one": {answer: func(_ context.Context, events []*publish.Event) (int, error) {
		mustExec(t, b.journal, `alter table publisher_progress rename to away`)
		once.Do(func() { close(away) })
		return len(events), nil
	}}}
	pair := pairOf("everything", "one", everyEvent)
	c := r.config(b, "one", pair)
	c.Lease = 2 * patience // whose end would end the tries too
	stop := deliver(t, b, c)
	<-away
	began := time.Now()
	stop()
	if took := time.Since(began); took > patience {
		t.Errorf("it took %s to stop", took)
	}
	mustExec(t, b.journal, `alter table away rename to publisher_progress`)
	if _, position, _, _, _ := b.pairState(t, pair.PairName); position != 0 {
		t.Errorf("the pair stands at %d", position)
	}
}

// failing makes a pair that waits an hour until it is tried again, and whose
// destination takes everything after its first error.
func failing(t *testing.T, b *bench) (publish.Pair, *receiver, worker.PublishingConfig) {
	t.Helper()
	b.mustAppend(t, notes("c-1", 3)...)
	var calls atomic.Int64
	r := &receiver{answer: func(_ context.Context, events []*publish.Event) (int, error) {
		if calls.Add(1) == 1 {
			return 0, errors.New("connection refused")
		}
		return len(events), nil
	}}
	pair := pairOf("everything", "one", everyEvent)
	pair.MaxErrors, pair.FailedRetry = 1, time.Hour
	c := receivers{"one": r}.config(b, "one", pair)
	c.Lease = time.Hour // so that nothing is noticed by renewing it
	return pair, r, c
}

func mustHaveFailed(t *testing.T, b *bench, pair publish.Pair) {
	t.Helper()
	eventually(t, "the pair has failed", func() bool {
		status, _, _, _, _ := b.pairState(t, pair.PairName)
		return status == "failed"
	})
}

// Acts of other processes are noticed at the next look, also by a pair that
// waits.
func TestPublishing_aPairThatWaitsIsResumedElsewhere(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	pair, r, c := failing(t, b)
	deliver(t, b, c)
	mustHaveFailed(t, b, pair)
	if _, err := b.beside(t).ResumePublisher(t.Context(), operator, pair.PairName); err != nil {
		t.Fatal(err)
	}
	b.mustStandAt(t, pair.PairName, 3)
	if got := r.got(); !slices.Equal(got, upTo(3)) {
		t.Errorf("it got %v", got)
	}
}

func TestPublishing_aPairThatWaitsIsMovedElsewhere(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	pair, r, c := failing(t, b)
	deliver(t, b, c)
	mustHaveFailed(t, b, pair)
	order, two := outbox.Order{By: operator.By, Reason: "they were wrong", Confirm: "skip 1 events"}, int64(2)
	if _, err := b.beside(t).SeekPublisher(t.Context(), order, pair.PairName, outbox.SeekTarget{Position: &two}, nil); err != nil {
		t.Fatal(err)
	}
	b.mustStandAt(t, pair.PairName, 3)
	if got := r.got(); !slices.Equal(got, []int64{3}) {
		t.Errorf("it got %v, want what comes after the position", got)
	}
}

// A pair that has nothing to do is held on to. A process that stands still for
// longer than its lease loses it; where that happens to this one, the lease
// becomes longer than that.
func TestPublishing_renewsTheLeaseOfAnIdlePair(t *testing.T) {
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

// timesTaken is how often an idle pair is taken until its lease has been
// renewed past its first end.
func timesTaken(t *testing.T, long time.Duration) int64 {
	t.Helper()
	b := open(t, define(t, ledger))
	pair := pairOf("everything", "one", everyEvent)
	pair.PollInterval = time.Hour
	c := receivers{"one": {}}.config(b, "one", pair)
	c.Lease = long
	stop := deliver(t, b, c)
	lease := func() (expires, epoch int64) {
		if err := b.journal.QueryRow(`select lease_expires_at, lease_epoch from publisher_progress`).Scan(&expires, &epoch); err != nil {
			t.Fatal(err)
		}
		return expires, epoch
	}
	eventually(t, "the pair is held", func() bool { expires, _ := lease(); return expires > 0 })
	first, epoch := lease()
	eventually(t, "the lease was renewed past its end", func() bool {
		expires, _ := lease()
		return expires > first+c.Lease.Microseconds()
	})
	_, now := lease()
	stop()
	return now - epoch + 1
}
