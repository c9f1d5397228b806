package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"outboxweb/internal/publish"
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
	stop := deliver(t, b, r.config(b, "one", pair))
	<-called
	began := time.Now()
	stop()
	if took := time.Since(began); took > leaseTime/2 {
		t.Errorf("it took %s to stop", took)
	}
	if status, position, _, errors, owner := b.pairState(t, pair.PairName); status != "active" || position != 0 || errors != 0 || owner != "" {
		t.Errorf("the pair is %s at %d with %d errors, held by %q", status, position, errors, owner)
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
		_, _, _, errors, _ := b.pairState(t, pair.PairName)
		return errors > 0
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
	stop := deliver(t, b, r.config(b, "one", pair))
	<-away
	began := time.Now()
	stop()
	if took := time.Since(began); took > leaseTime/2 {
		t.Errorf("it took %s to stop", took)
	}
	mustExec(t, b.journal, `alter table away rename to publisher_progress`)
	if _, position, _, _, _ := b.pairState(t, pair.PairName); position != 0 {
		t.Errorf("the pair stands at %d", position)
	}
}
