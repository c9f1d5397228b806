package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// openInline opens an engine whose appends are applied on the request path.
func openInline(tb testing.TB, definitions ...string) *enginetest.Engine {
	return enginetest.Open(tb, enginetest.Define(tb, definitions...), enginetest.InMode(outbox.ModeInline))
}

// appendInline appends and applies as a server does in inline mode.
func appendInline(tb testing.TB, b *enginetest.Engine, events ...outbox.Event) error {
	b.MustAppend(events...)
	return b.Worker.ApplyInline(context.Background(), events[0].CampaignID)
}

func pauseCampaign(tb testing.TB, b *enginetest.Engine, id string) {
	must.Get(b.PauseCampaign(context.Background(), enginetest.Operator, id)).Or(tb)
}

func resumeCampaign(tb testing.TB, b *enginetest.Engine, id string) {
	must.Get(b.ResumeCampaign(context.Background(), enginetest.Operator, id)).Or(tb)
}

func TestApplyInline_appliesBeforeItReturns(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(outbox.ModeInline), enginetest.BatchSize(2))
	for n := 1; n <= 20; n += 5 {
		must.OK(t, appendInline(t, b, enginetest.Notes("a", 5)...))
		b.MustHaveApplied("a", n+4)
	}
	must.Equal(t, storetest.Column[int](t, b.JournalDB, `select count(*) from projection_apply_outbox`)[0], 0, "the rows that inline mode left")
	if c := b.MustCampaign("a"); c.State() != outbox.StateCurrent || c.Lease != nil {
		t.Errorf("state %s, lease %v; want current and free", c.State(), c.Lease)
	}
	must.Equal(t, b.Worker.Counted(), store.Settled{Applied: 20}, "counted")
	b.Sound()
}

// appendConcurrently appends through several engines at once, each caller one event after another, and checks that answered events are applied.
func appendConcurrently(t *testing.T, callers, each int, benches ...*enginetest.Engine) {
	t.Helper()
	var appending sync.WaitGroup
	for i := range callers {
		b := benches[i%len(benches)]
		appending.Go(func() {
			for range each {
				appended, err := b.Append(context.Background(), store.Append{Events: enginetest.Notes("a", 1)})
				for err == nil {
					// It gives up when it waits for others for too long.
					if err = b.Worker.ApplyInline(context.Background(), "a"); !errors.Is(err, outbox.ErrNotYet) {
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
	benches[0].MustHaveApplied("a", callers*each)
	benches[0].Sound()
}

func TestRun_catchesUpInlineWithWhatAnEarlierProcessLeft(t *testing.T) {
	t.Parallel()
	a := openInline(t, enginetest.Ledger, enginetest.Accounts)
	a.MustAppend(enginetest.Notes("a", 5)...)
	a.MustAppend(enginetest.Opened("b", 1), enginetest.Spent("b", 2), enginetest.Noted("b"))
	a.MustAppend(enginetest.Notes("c", 5)...)

	b := a.Beside(enginetest.InMode(outbox.ModeInline))
	b.Start()
	b.MustWait("a", 5)
	b.MustWait("c", 5)
	b.MustWait("b", 1)
	b.MustHaveApplied("b", 1)
	b.Sound()
}

// Call sites where the store reads the time, at which tests intervene.
const (
	whenClaiming = "store.(*Store).claim.func1"  // in the transaction
	whenApplying = "readmodel.(*Database).Apply" // before the transaction
	whenSettling = "store.(*Store).settleWave"   // in the transaction
	whenIdle     = "store.(*Store).UntilDue"     // on PostgreSQL, when nothing was due
)

// once calls f the first time that the store of this option reads the time at that call site.
func once(there string, f func()) enginetest.Option {
	return func(o *enginetest.Options) {
		var done atomic.Bool
		now := o.Now
		o.Now = func() time.Time {
			if enginetest.CalledFrom(there) && done.CompareAndSwap(false, true) {
				f()
			}
			return now()
		}
	}
}

func TestApplyInline_startsAgainWhenItsLeaseWasTakenOver(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	var a *enginetest.Engine
	takeOverAndDie := func() {
		now.Advance(time.Hour)
		claim, hold, err := a.ClaimInline(context.Background(), store.Worker{ID: "died"}, "a", store.ClaimLimits{Rows: 10, Lease: time.Second})
		if err == nil && hold != outbox.BlockerNone {
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
		must.Hold(t, err == nil, "%v", err)
		now.Advance(time.Hour)
	}
	a = enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(outbox.ModeInline), enginetest.At(now), once(whenApplying, takeOverAndDie))
	must.OK(t, appendInline(t, a, enginetest.Notes("a", 3)...))
	a.MustHaveApplied("a", 3)
	a.Sound()
}
