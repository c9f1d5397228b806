package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// failedInline is an engine in inline mode whose campaign a has a failed event 2.
func failedInline(tb testing.TB, options ...enginetest.Option) *enginetest.Engine {
	tb.Helper()
	b := enginetest.Open(tb, enginetest.Define(tb, enginetest.Ledger, enginetest.Accounts), append(options, enginetest.InMode(outbox.ModeInline))...)
	err := appendInline(tb, b, enginetest.Opened("a", 10), enginetest.Spent("a", 100))
	must.Need(tb, errors.Is(err, outbox.ErrConflict) && strings.Contains(err.Error(), "event 2 of campaign \"a\" is in the journal but cannot be applied: projection accounts"), "an event that cannot be applied is answered with %v", err)
	return b
}

func fund(tb testing.TB, b *enginetest.Engine) {
	b.ExecProjections(`update accounts set balance = 1000`)
}

func mustHaveNoRows(tb testing.TB, b *enginetest.Engine) {
	must.Equal(tb, storetest.Column[int](tb, b.JournalDB, `select count(*) from projection_apply_outbox`)[0], 0, "rows are left")
}

func TestApplyInline_givesWhatFailedARow(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := failedInline(t, enginetest.At(now))
	b.MustStand("a", 2, outbox.Failed, 1)
	r := b.MustRow("a", 2).Row
	must.Hold(t, strings.HasPrefix(r.LastError, "projection accounts") && r.NextAttemptAt == now.Now().Add(time.Second), "the row is %+v", r)
	c := b.MustCampaign("a")
	must.Hold(t, c.State() == outbox.StateFailing && c.Counts == (outbox.Counts{Failed: 1}) && c.Gap() == 0 && c.Lease == nil, "the campaign is %+v", c)
	s, err := b.Summary(t.Context())
	must.Hold(t, err == nil && s.Counts.Failed == 1 && s.Campaigns.Lagging == 1 && s.Lag.Events == 1 && s.Oldest != nil && s.Oldest.Seq == 2, "the summary is %+v (%v)", s, err)
	must.Equal(t, b.Worker.Counted(), store.Settled{Applied: 1, Failed: 1}, "counted")
	b.Sound()

	must.Hold(t, !b.MustPass(), "the worker tried again before the row was due")
	fund(t, b)
	now.Advance(time.Second)
	b.Drain()
	b.MustHaveApplied("a", 2)
	mustHaveNoRows(t, b)
	b.Sound()
}

// The unapplied event of a dead request is queued together with the others, since the campaign is paused.
func TestAppend_inlineToAPausedCampaignQueuesWhatIsBefore(t *testing.T) {
	t.Parallel()
	b := openInline(t, enginetest.Ledger)
	b.MustAppend(enginetest.Notes("a", 2)...)
	pauseCampaign(t, b, "a")
	b.MustAppend(enginetest.Notes("a", 2)...)
	c := b.MustCampaign("a")
	must.Hold(t, c.HeadSeq == 1 && c.Counts == (outbox.Counts{Pending: 4}), "the campaign is %+v, want all four queued", c)
	b.Sound()
	resumeCampaign(t, b, "a")
	b.Drain()
	b.MustHaveApplied("a", 4)
	mustHaveNoRows(t, b)
	b.Sound()
}

func TestApplyInline_countsAttemptsUntilTheRowIsDead(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := failedInline(t, enginetest.At(now), enginetest.MaxAttempts(3))
	now.Advance(time.Minute)
	if err := appendInline(t, b, enginetest.Noted("a")); !errors.Is(err, outbox.ErrConflict) { // due, and tried
		t.Errorf("error = %v, want that event 2 cannot be applied", err)
	}
	now.Advance(time.Minute)
	b.Drain()
	b.MustStand("a", 2, outbox.Dead, 3)
	storetest.Refused(t, appendInline(t, b, enginetest.Noted("a")), outbox.ErrNotYet, "Event 2 has been dead")
	c := b.MustCampaign("a")
	must.Hold(t, c.State() == outbox.StateBlocked && c.BlockedBehind() == 2, "the campaign is %+v, want 2 rows behind its dead head", c)
	b.Sound()

	fund(t, b)
	b.MustRequeue("a", 2)
	b.Drain()
	b.MustHaveApplied("a", 4)
	mustHaveNoRows(t, b)
	b.Sound()
}

func TestInline_rowsOfAnotherModeAreAppliedByBothPaths(t *testing.T) {
	t.Parallel()
	earlier := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	earlier.MustAppend(append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b := earlier.Beside(enginetest.InMode(outbox.ModeInline), enginetest.BatchSize(2))
	must.OK(t, appendInline(t, b, enginetest.Notes("a", 2)...))
	b.MustHaveApplied("a", 5)
	b.Drain()
	b.MustHaveApplied("b", 3)
	mustHaveNoRows(t, b)
	b.Sound()

	// And the reverse: the rows of inline mode are ordinary outbox rows.
	pauseCampaign(t, b, "a")
	err := appendInline(t, b, enginetest.Noted("a"))
	must.Hold(t, err != nil, "a paused campaign was applied")
	resumeCampaign(t, b, "a")
	earlier.Feed(enginetest.Noted("a"))
	earlier.MustHaveApplied("a", 7)
	earlier.Sound()
}

func TestApplyInline_ofAuditOnlyEvents(t *testing.T) {
	t.Parallel()
	b := failedInline(t)
	must.OK(t, b.RegisterEventTypes(t.Context(), map[string]outbox.Intent{"spent": outbox.IntentAuditOnly}))
	must.Get(b.RetryRow(context.Background(), enginetest.Operator, "a", 2)).Or(t)
	must.OK(t, appendInline(t, b, enginetest.Spent("a", 500)))
	must.Equal(t, must.Get(b.AppliedSeq(t.Context(), "a")).Or(t), 3, "the last event applied")
	mustHaveNoRows(t, b)
	b.Sound()
}

// Requests, workers and repairs may meet at the same events: each is applied once, in order, before its request is answered.
func TestApplyInline_besideWorkersAndRepairs(t *testing.T) {
	t.Parallel()
	callers, each := size.Of(4, 5, 8), size.Of(5, 8, 20)
	a := openInline(t, enginetest.Ledger)
	b := a.Beside(enginetest.InMode(outbox.ModeInline), enginetest.Polling(time.Millisecond))
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
	appendConcurrently(t, callers, each, a, b)
	close(done)
	must.OK(t, <-ended)
	storetest.Eventually(t, "no row is left", func() bool { return a.MustCampaign("a").Counts.Total() == 0 })
}
