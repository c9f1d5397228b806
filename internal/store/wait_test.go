package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// soon is a context for calls that must return at once.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// waits has a caller wait, and returns where its result comes.
func (f *fixture) waits(ctx context.Context, campaign string, seq int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- storetest.No(f.WaitApplied(ctx, campaign, seq)) }()
	return done
}

func TestWaitApplied_returnsOnceItIsAppliedHereOrElsewhere(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	var all []<-chan error
	for _, s := range []*fixture{f, f, f.beside()} {
		all = append(all, s.waits(soon(t), "a", int64(1+len(all)%2)))
	}
	f.MustApply(f.ClaimOne(one, 2), 2)
	for _, done := range all {
		must.OK(t, <-done)
	}
	must.Equal(t, must.Get(f.WaitApplied(soon(t), "a", 1)).Or(t), 2, "what is applied already needs no wait")
}

func TestWaitApplied_isNotFooledByWhatIsRolledBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	ctx, cancel := context.WithTimeout(f.Ctx, 150*time.Millisecond)
	defer cancel()
	done := f.waits(ctx, "a", 2)
	advance := func(tx *readmodel.ApplyTx) error {
		return errors.Join(storetest.No(tx.Watermark("a")), tx.Savepoint(), tx.Advance("a", 1, 0, 2, "h"))
	}
	must.OK(t, f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return errors.Join(advance(tx), tx.RollbackTo()) }))
	must.OK(t, f.Rehearse(f.Ctx, advance))
	refused(t, <-done, outbox.ErrNotYet)
}

func TestWaitApplied_saysWhatIsMissingAtTheDeadline(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Works(one, f.ClaimOne(one, 1), 1)
	f.AppendN("dead", 2)
	f.MustPause("a")
	f.Kill("dead")
	wait := func(campaign string, seq int64) (int64, error) {
		ctx, cancel := context.WithTimeout(f.Ctx, 10*time.Millisecond)
		defer cancel()
		return f.WaitApplied(ctx, campaign, seq)
	}
	applied, err := wait("a", 3)
	refused(t, err, outbox.ErrNotYet, `campaign "a" are at event 1 and not yet at event 3`, "Paused by scene")
	must.Equal(t, applied, 1, "applied")
	refused(t, storetest.No(wait("dead", 1)), outbox.ErrNotYet, "Event 1 has been dead for")
	refused(t, storetest.No(wait("a", 9)), outbox.ErrNotYet, "has no event 9 yet; its last one is 3")
	refused(t, storetest.No(wait("unknown", 1)), outbox.ErrNotFound, `"unknown"`)
}

// However many callers wait, the watermarks are polled for all of them together.
func TestWaitApplied_waitersShareTheirLooks(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	const waiters = 40
	var cost outbox.Cost
	ctx := outbox.WithCost(soon(t), &cost)
	var all []<-chan error
	for i := range waiters {
		all = append(all, f.waits(ctx, []string{"a", "b"}[i%2], 1))
	}
	storetest.Eventually(f.TB, "all to wait", func() bool { return f.Waiting() == waiters })
	looks := f.Looks()
	storetest.Eventually(f.TB, "ten looks", func() bool { return f.Looks() >= looks+10 })
	f.Drain()
	for _, done := range all {
		must.OK(t, <-done)
	}
	if n := cost.Report().Statements; n > 3*waiters { // one for the campaign's existence, one for its divergence
		t.Errorf("%d waiters ran %d statements of their own during ten looks", waiters, n)
	}
	storetest.Eventually(f.TB, "watching to end", func() bool { return !f.Watching() })
}

func TestWaitApplied_endsWithTheStore(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	s := f.beside()
	done := s.waits(soon(t), "a", 1)
	storetest.Eventually(f.TB, "it to wait", func() bool { return s.Waiting() == 1 })
	s.Close()
	err := <-done
	must.Hold(t, err != nil, "it has waited for a store that is closed")
}
