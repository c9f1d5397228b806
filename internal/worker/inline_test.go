package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

// openInline makes a bench whose appends are applied on the request path.
func openInline(tb testing.TB, definitions ...string) *bench {
	tb.Helper()
	return open(tb, define(tb, definitions...), mode(outbox.ModeInline))
}

// appendInline is what a server does with an append in inline mode.
func (b *bench) appendInline(tb testing.TB, events ...outbox.Event) error {
	tb.Helper()
	b.mustAppend(tb, events...)
	return b.worker.ApplyInline(context.Background(), events[0].CampaignID)
}

func TestApplyInline_appliesBeforeItReturns(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger), mode(outbox.ModeInline), batchSize(2))
	for n := 1; n <= 20; n += 5 {
		if err := b.appendInline(t, notes("a", 5)...); err != nil {
			t.Fatal(err)
		}
		b.mustHaveApplied(t, "a", n+4)
	}
	if rows := column[int](t, b.journal, `select count(*) from projection_apply_outbox`); rows[0] != 0 {
		t.Errorf("inline mode left %d rows", rows[0])
	}
	if c := b.campaign(t, "a"); c.State() != outbox.StateCurrent || c.Lease != nil {
		t.Errorf("state %s, lease %v; want current and free", c.State(), c.Lease)
	}
	if got := b.worker.Counted(); got != (store.Settled{Applied: 20}) {
		t.Errorf("counted %+v, want 20 applied", got)
	}
	b.mustBeSound(t)
}

// appendConcurrently appends through several benches at once, each caller one
// event after another, and makes sure that what was answered is applied.
func appendConcurrently(t *testing.T, callers, each int, benches ...*bench) {
	t.Helper()
	var appending sync.WaitGroup
	for i := range callers {
		b := benches[i%len(benches)]
		appending.Go(func() {
			for range each {
				appended, err := b.Append(context.Background(), store.Append{Events: notes("a", 1)})
				for err == nil {
					// Where it waits for others for too long it says so.
					if err = b.worker.ApplyInline(context.Background(), "a"); !errors.Is(err, outbox.ErrNotYet) {
						break
					}
					err = nil
				}
				if err != nil {
					t.Errorf("append inline: %v", err)
					return
				}
				if applied, err := b.AppliedSeq(context.Background(), "a"); err != nil || applied < appended[0].Seq {
					t.Errorf("event %d was answered and %d is applied (%v)", appended[0].Seq, applied, err)
				}
			}
		})
	}
	appending.Wait()
	benches[0].mustHaveApplied(t, "a", callers*each)
	benches[0].mustBeSound(t)
}

func TestApplyInline_keepsTheOrderUnderConcurrentAppends(t *testing.T) {
	t.Parallel()
	appendConcurrently(t, 16, 10, openInline(t, ledger))
}

func TestApplyInline_appliesOnceUnderTwoProcesses(t *testing.T) {
	t.Parallel()
	a := openInline(t, ledger)
	appendConcurrently(t, 8, 10, a, a.beside(t, mode(outbox.ModeInline)))
}

func TestApplyInline_refusesAnEventThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	b := openInline(t, ledger, accounts)
	err := b.appendInline(t, opened("a", 10), spent("a", 100))
	if !errors.Is(err, outbox.ErrConflict) || !strings.Contains(err.Error(), "event 2 of campaign \"a\" is in the journal but cannot be applied: projection accounts") {
		t.Errorf("error = %v, want a conflict that names event 2 and why", err)
	}
	if err := b.appendInline(t, noted("b")); err != nil {
		t.Errorf("another campaign is held up: %v", err)
	}
	b.mustHaveApplied(t, "a", 1)
	b.mustBeSound(t)
}

func TestApplyInline_refusesAPausedCampaign(t *testing.T) {
	t.Parallel()
	b := openInline(t, ledger)
	if err := b.appendInline(t, noted("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PauseCampaign(t.Context(), operator, "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.appendInline(t, noted("a")); !errors.Is(err, outbox.ErrNotYet) || !strings.Contains(err.Error(), "Paused by ana") {
		t.Errorf("error = %v, want ErrNotYet and who paused it", err)
	}
	b.mustHaveApplied(t, "a", 1)
}

func TestRun_catchesUpInlineWithWhatAnEarlierProcessLeft(t *testing.T) {
	t.Parallel()
	a := openInline(t, ledger, accounts)
	a.mustAppend(t, notes("a", 5)...)
	a.mustAppend(t, opened("b", 1), spent("b", 2), noted("b"))
	a.mustAppend(t, notes("c", 5)...)

	b := a.beside(t, mode(outbox.ModeInline))
	b.start(t)
	b.mustWait(t, "a", 5)
	b.mustWait(t, "c", 5)
	b.mustWait(t, "b", 1)
	b.mustHaveApplied(t, "b", 1)
	b.mustBeSound(t)
}

// Where the store asks for the time, and tests come in between.
const (
	whenClaiming = "store.(*Store).claim.func1" // in the transaction
	whenApplying = "store.(*Store).Apply"       // before the transaction
	whenSettling = "store.(*Store).settleWave"  // in the transaction
	whenIdle     = "store.(*Store).UntilDue"    // on PostgreSQL, when there was nothing to claim
)

// once calls f when the store of this option asks for the time there, the
// first time it does.
func once(there string, f func()) option {
	return func(o *store.Options, _ *worker.Config) {
		var done atomic.Bool
		now := o.Now
		if now == nil {
			now = time.Now
		}
		o.Now = func() time.Time {
			if calledFrom(there) && done.CompareAndSwap(false, true) {
				f()
			}
			return now()
		}
	}
}

func calledFrom(name string) bool {
	callers := make([]uintptr, 8)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

func TestApplyInline_startsAgainWhenItsLeaseWasTakenOver(t *testing.T) {
	t.Parallel()
	now := newClock()
	var a *bench
	takeOverAndDie := func() {
		now.advance(time.Hour)
		claim, hold, err := a.ClaimInline(context.Background(), store.Worker{ID: "died"}, "a", store.ClaimLimits{Rows: 10, Lease: time.Second})
		if err == nil && hold != outbox.HoldNone {
			err = fmt.Errorf("the lease was not taken over: %s", hold)
		}
		if err == nil {
			err = a.Apply(context.Background(), func(tx *readmodel.ApplyTx) error {
				if _, err := tx.Watermark("a"); err != nil {
					return err
				}
				return tx.Fence("a", claim.Epoch)
			})
		}
		if err != nil {
			t.Error(err)
		}
		now.advance(time.Hour)
	}
	a = open(t, define(t, ledger), mode(outbox.ModeInline), at(now), once(whenApplying, takeOverAndDie))
	if err := a.appendInline(t, notes("a", 3)...); err != nil {
		t.Fatal(err)
	}
	a.mustHaveApplied(t, "a", 3)
	a.mustBeSound(t)
}
