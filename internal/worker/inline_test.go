package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// appendInline appends and applies as a server does in inline mode.
func appendInline(tb testing.TB, b *enginetest.Engine, events ...event.Event) error {
	b.MustAppend(events...)
	return b.Worker.ApplyInline(context.Background(), events[0].CampaignID)
}

func TestApplyInline_appliesBeforeItReturns(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(campaign.ModeInline), enginetest.BatchSize(2))
	for n := 1; n <= 20; n += 5 {
		must.OK(t, appendInline(t, b, enginetest.Notes("a", 5)...))
		b.MustHaveApplied("a", n+4)
	}
	mustHaveNoRows(t, b)
	c := b.MustCampaign("a")
	must.Hold(t, c.State() == campaign.StateCurrent && c.Lease == nil, "state %s, lease %v; want current and free", c.State(), c.Lease)
	must.Equal(t, b.Worker.Counted(), outbox.Settled{Applied: 20}, "counted")
	b.Sound()
}

func TestRun_catchesUpInlineWithWhatAnEarlierProcessLeft(t *testing.T) {
	a := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.InMode(campaign.ModeInline))
	a.MustAppend(enginetest.Notes("a", 5)...)
	a.MustAppend(enginetest.Opened("b", 1), enginetest.Spent("b", 2), enginetest.Noted("b"))
	a.MustAppend(enginetest.Notes("c", 5)...)

	b := a.Beside(enginetest.InMode(campaign.ModeInline))
	b.Start()
	b.MustWait("a", 5).MustWait("c", 5).MustWait("b", 1).MustHaveApplied("b", 1)
	b.Sound()
}

// Call sites where the store reads the time, at which tests intervene.
const (
	whenClaiming = "outbox.(*Queue).claim.func1" // in the transaction
	whenApplying = "readmodel.(*Database).Apply" // before the transaction
	whenSettling = "outbox.(*Queue).settleWave"  // in the transaction
	whenIdle     = "outbox.(*Queue).UntilDue"    // on PostgreSQL, when nothing was due
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
	now := storetest.NewClock()
	var a *enginetest.Engine
	takeOverAndDie := func() {
		now.Advance(time.Hour)
		claim, hold, err := a.ClaimInline(context.Background(), outbox.Worker{ID: "died"}, "a", outbox.ClaimLimits{Rows: 10, Lease: time.Second})
		if err == nil && hold != campaign.BlockerNone {
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
	a = enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(campaign.ModeInline), enginetest.At(now), once(whenApplying, takeOverAndDie))
	must.OK(t, appendInline(t, a, enginetest.Notes("a", 3)...))
	a.MustHaveApplied("a", 3).Sound()
}

// failedInline is an engine in inline mode whose campaign a has a failed event 2.
func failedInline(t *testing.T, options ...enginetest.Option) *enginetest.Engine {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, append(options, enginetest.InMode(campaign.ModeInline))...)
	err := appendInline(t, b, enginetest.Opened("a", 10), enginetest.Spent("a", 100))
	must.Need(t, errors.Is(err, event.ErrConflict) && strings.Contains(err.Error(), "event 2 of campaign \"a\" is in the journal but cannot be applied: projection accounts"), "an event that cannot be applied is answered with %v", err)
	return b
}

func mustHaveNoRows(tb testing.TB, b *enginetest.Engine) {
	must.Equal(tb, storetest.Column[int](tb, b.JournalDB, `select count(*) from projection_apply_outbox`)[0], 0, "rows are left")
}

func TestApplyInline_givesWhatFailedARowAndCountsItsAttempts(t *testing.T) {
	b := failedInline(t, enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(3))
	b.MustStand("a", 2, event.Failed, 1)
	r := b.MustRow("a", 2).Row
	must.Hold(t, strings.HasPrefix(r.LastError, "projection accounts") && r.NextAttemptAt == b.Clock.Now().Add(time.Second), "the row is %+v", r)
	c := b.MustCampaign("a")
	must.Hold(t, c.State() == campaign.StateFailing && c.Counts == (campaign.Counts{Failed: 1}) && c.Gap() == 0 && c.Lease == nil, "the campaign is %+v", c)
	s, err := b.Summary(t.Context())
	must.Hold(t, err == nil && s.Counts.Failed == 1 && s.Campaigns.Lagging == 1 && s.Lag.Events == 1 && s.Oldest != nil && s.Oldest.Seq == 2, "the summary is %+v (%v)", s, err)
	must.Equal(t, b.Worker.Counted(), outbox.Settled{Applied: 1, Failed: 1}, "counted")
	b.Sound()

	must.Hold(t, !b.MustPass(), "the worker tried again before the row was due")
	b.Clock.Advance(time.Minute)
	if err := appendInline(t, b, enginetest.Noted("a")); !errors.Is(err, event.ErrConflict) { // due, and tried
		t.Errorf("error = %v, want that event 2 cannot be applied", err)
	}
	b.Clock.Advance(time.Minute)
	b.Drain().MustStand("a", 2, event.Dead, 3)
	storetest.Refused(t, appendInline(t, b, enginetest.Noted("a")), event.ErrNotYet, "Event 2 has been dead")
	c = b.MustCampaign("a")
	must.Hold(t, c.State() == campaign.StateBlocked && c.BlockedBehind() == 2, "the campaign is %+v, want 2 rows behind its dead head", c)
	b.Sound()

	b.ExecProjections(`update accounts set balance = 1000`)
	b.MustRequeue("a", 2)
	b.Drain().MustHaveApplied("a", 4)
	mustHaveNoRows(t, b)
	b.Sound()
}

// The unapplied event of a dead request is queued together with the others, since the campaign is paused.
func TestAppend_inlineToAPausedCampaignQueuesWhatIsBefore(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(campaign.ModeInline))
	b.MustAppend(enginetest.Notes("a", 2)...)
	b.MustPause("a")
	b.MustAppend(enginetest.Notes("a", 2)...)
	c := b.MustCampaign("a")
	must.Hold(t, c.HeadSeq == 1 && c.Counts == (campaign.Counts{Pending: 4}), "the campaign is %+v, want all four queued", c)
	b.Sound()
	b.MustResume("a")
	b.Drain().MustHaveApplied("a", 4)
	mustHaveNoRows(t, b)
	b.Sound()
}

func TestInline_rowsOfAnotherModeAreAppliedByBothPaths(t *testing.T) {
	earlier := enginetest.Own(t, []string{enginetest.Ledger})
	earlier.MustAppend(enginetest.Notes("a b", 3)...)
	b := earlier.Beside(enginetest.InMode(campaign.ModeInline), enginetest.BatchSize(2))
	must.OK(t, appendInline(t, b, enginetest.Notes("a", 2)...))
	b.MustHaveApplied("a", 5)
	b.Drain().MustHaveApplied("b", 3)
	mustHaveNoRows(t, b)
	b.Sound()

	// And the reverse: the rows of inline mode are ordinary outbox rows.
	b.MustPause("a")
	err := appendInline(t, b, enginetest.Noted("a"))
	must.Hold(t, err != nil, "a paused campaign was applied")
	b.MustResume("a")
	earlier.Feed(enginetest.Noted("a"))
	earlier.MustHaveApplied("a", 7)
	earlier.Sound()
}

func TestApplyInline_ofAuditOnlyEvents(t *testing.T) {
	b := failedInline(t)
	must.OK(t, b.RegisterEventTypes(t.Context(), map[string]event.Intent{"spent": event.IntentAuditOnly}))
	must.Get(b.RetryRow(context.Background(), enginetest.Operator, "a", 2)).Or(t)
	must.OK(t, appendInline(t, b, enginetest.Spent("a", 500)))
	must.Equal(t, must.Get(b.AppliedSeq(t.Context(), "a")).Or(t), 3, "the last event applied")
	mustHaveNoRows(t, b)
	b.Sound()
}

// Requests, workers and repairs may meet at the same events: each is applied once, in order, before its request is answered.
func TestApplyInline_besideWorkersAndRepairs(t *testing.T) {
	callers, each := size.Of(4, 5, 8), size.Of(5, 8, 20)
	a := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(campaign.ModeInline))
	b := a.Beside(enginetest.InMode(campaign.ModeInline), enginetest.Polling(time.Millisecond))
	b.Start()
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-done:
				ended <- nil
				return
			default:
			}
			if _, err := b.Reconcile(context.Background()); err != nil {
				ended <- err
				return
			}
		}
	}()
	var appending sync.WaitGroup
	for i := range callers {
		b := []*enginetest.Engine{a, b}[i%2]
		appending.Go(func() {
			for range each {
				appended := must.Get(b.Append(context.Background(), store.Append{Events: enginetest.Notes("a", 1)})).Or(t)
				err := event.ErrNotYet
				for errors.Is(err, event.ErrNotYet) { // it gives up when it waits for others for too long
					err = b.Worker.ApplyInline(context.Background(), "a")
				}
				applied := must.Get(b.AppliedSeq(context.Background(), "a")).Or(t)
				must.Hold(t, err == nil && applied >= appended[0].Seq, "event %d was answered with %v and %d is applied", appended[0].Seq, err, applied)
			}
		})
	}
	appending.Wait()
	a.MustHaveApplied("a", callers*each).Sound()
	close(done)
	must.OK(t, <-ended)
	must.Eventually(t, "no row is left", func() bool { return a.MustCampaign("a").Counts.Total() == 0 })
}
