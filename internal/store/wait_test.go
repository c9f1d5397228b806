package store_test

import (
	"context"
	"testing"
	"time"

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

func TestWaitApplied_returnsOnceAnotherGoroutineHasApplied(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	type answer struct {
		applied int64
		err     error
	}
	answers := make(chan answer)
	for _, seq := range []int64{1, 2, 2} {
		go func() {
			applied, err := f.WaitApplied(soon(t), "a", seq)
			answers <- answer{applied, err}
		}()
	}
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 2)
	for range 3 {
		if a := <-answers; a.err != nil || a.applied != 2 {
			t.Errorf("got %+v, want two applied", a)
		}
	}
	if applied, err := f.WaitApplied(soon(t), "a", 1); err != nil || applied != 2 {
		t.Errorf("what is applied already needs no wait: %d, %v", applied, err)
	}
}

func TestWaitApplied_seesWhatAnotherProcessApplies(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	done := make(chan error)
	go func() {
		_, err := f.beside().WaitApplied(soon(t), "a", 2)
		done <- err
	}()
	f.Drain()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWaitApplied_isNotFooledByWhatIsRolledBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	ctx, cancel := context.WithTimeout(f.Ctx, 150*time.Millisecond)
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := f.WaitApplied(ctx, "a", 2)
		done <- err
	}()
	advance := func(tx *readmodel.ApplyTx) error {
		if _, err := tx.Watermark("a"); err != nil {
			return err
		}
		if err := tx.Savepoint(); err != nil {
			return err
		}
		return tx.Advance("a", 1, 0, 2, "h")
	}
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		if err := advance(tx); err != nil {
			return err
		}
		return tx.RollbackTo()
	})
	if err == nil {
		err = f.Rehearse(f.Ctx, advance)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	if applied != 1 {
		t.Errorf("%d applied, want 1", applied)
	}
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
	const waiters = 60
	var cost outbox.Cost
	ctx := outbox.WithCost(soon(t), &cost)
	done := make(chan error)
	for i := range waiters {
		go func() {
			_, err := f.WaitApplied(ctx, []string{"a", "b"}[i%2], 1)
			done <- err
		}()
	}
	storetest.Eventually(f.TB, "all to wait", func() bool { return f.Waiting() == waiters })
	looks := f.Looks()
	storetest.Eventually(f.TB, "ten looks", func() bool { return f.Looks() >= looks+10 })
	f.Drain()
	for range waiters {
		if err := <-done; err != nil {
			t.Error(err)
		}
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
	done := make(chan error)
	go func() {
		_, err := s.WaitApplied(soon(t), "a", 1)
		done <- err
	}()
	storetest.Eventually(f.TB, "it to wait", func() bool { return s.Waiting() == 1 })
	s.Close()
	if err := <-done; err == nil {
		t.Error("it has waited for a store that is closed")
	}
}
