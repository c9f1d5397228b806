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
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// failedInline is an engine in inline mode whose campaign a has a failed event 2.
func failedInline(tb testing.TB, options ...enginetest.Option) *enginetest.Engine {
	tb.Helper()
	b := enginetest.Open(tb, enginetest.Define(tb, enginetest.Ledger, enginetest.Accounts), append(options, enginetest.InMode(outbox.ModeInline))...)
	if err := appendInline(tb, b, enginetest.Opened("a", 10), enginetest.Spent("a", 100)); !errors.Is(err, outbox.ErrConflict) || !strings.Contains(err.Error(), "event 2 of campaign \"a\" is in the journal but cannot be applied: projection accounts") {
		tb.Fatalf("an event that cannot be applied is answered with %v", err)
	}
	return b
}

func fund(tb testing.TB, b *enginetest.Engine) {
	tb.Helper()
	enginetest.MustExec(tb, b.ProjectionsDB, `update accounts set balance = 1000`)
}

// mustHaveNoRows fails unless the queue is empty.
func mustHaveNoRows(tb testing.TB, b *enginetest.Engine) {
	tb.Helper()
	if rows := enginetest.Column[int](tb, b.JournalDB, `select count(*) from projection_apply_outbox`); rows[0] != 0 {
		tb.Errorf("%d rows are left", rows[0])
	}
}

func TestApplyInline_givesWhatFailedARow(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := failedInline(t, enginetest.At(now))
	b.MustStand(t, "a", 2, outbox.Failed, 1)
	if r := b.MustRow(t, "a", 2).Row; !strings.HasPrefix(r.LastError, "projection accounts") || r.NextAttemptAt != now.Now().Add(time.Second) {
		t.Errorf("the row is %+v, want its error and the next attempt in 1 s", r)
	}
	c := b.MustCampaign(t, "a")
	if c.State() != outbox.StateFailing || c.Counts != (outbox.Counts{Failed: 1}) || c.Gap() != 0 || c.Lease != nil {
		t.Errorf("the campaign is %+v", c)
	}
	s, err := b.Summary(t.Context())
	if err != nil || s.Counts.Failed != 1 || s.Campaigns.Lagging != 1 || s.Lag.Events != 1 || s.Oldest == nil || s.Oldest.Seq != 2 {
		t.Errorf("the summary is %+v (%v)", s, err)
	}
	if got := b.Worker.Counted(); got != (store.Settled{Applied: 1, Failed: 1}) {
		t.Errorf("counted %+v, want one applied and one failed", got)
	}
	b.MustBeSound(t)

	if b.MustPass(t) {
		t.Error("the worker tried again before the row was due")
	}
	fund(t, b)
	now.Advance(time.Second)
	b.Drain(t)
	b.MustHaveApplied(t, "a", 2)
	mustHaveNoRows(t, b)
	b.MustBeSound(t)
}

func TestApplyInline_makesTheRestOfABatchWaitBehindItsFailedEvent(t *testing.T) {
	t.Parallel()
	b := openInline(t, enginetest.Ledger, enginetest.Accounts)
	if err := appendInline(t, b, enginetest.Opened("a", 10), enginetest.Spent("a", 100), enginetest.Noted("a"), enginetest.Noted("a")); err == nil {
		t.Fatal("an event that cannot be applied was not refused")
	}
	if c := b.MustCampaign(t, "a"); c.HeadSeq != 2 || c.Counts != (outbox.Counts{Failed: 1, Pending: 2}) || c.AppliedSeq != 1 {
		t.Errorf("the campaign is %+v", c)
	}
	b.MustHaveApplied(t, "a", 1)
	b.MustBeSound(t)
}

// The unapplied event of a dead request is queued together with the others, since the campaign
// is paused.
func TestAppend_inlineToAPausedCampaignQueuesWhatIsBefore(t *testing.T) {
	t.Parallel()
	b := openInline(t, enginetest.Ledger)
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	pauseCampaign(t, b, "a")
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	if c := b.MustCampaign(t, "a"); c.HeadSeq != 1 || c.Counts != (outbox.Counts{Pending: 4}) {
		t.Errorf("the campaign is %+v, want all four queued", c)
	}
	b.MustBeSound(t)
	resumeCampaign(t, b, "a")
	b.Drain(t)
	b.MustHaveApplied(t, "a", 4)
	mustHaveNoRows(t, b)
	b.MustBeSound(t)
}

func TestApplyInline_queuesAnEventBehindAFailedOne(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := failedInline(t, enginetest.At(now))
	err := appendInline(t, b, enginetest.Noted("a"))
	if !errors.Is(err, outbox.ErrNotYet) || !strings.Contains(err.Error(), "Event 2 failed and will be retried in 1 s") {
		t.Errorf("error = %v, want that it waits for event 2", err)
	}
	b.MustStand(t, "a", 2, outbox.Failed, 1)
	b.MustStand(t, "a", 3, outbox.Pending, 0)
	b.MustBeSound(t)

	fund(t, b)
	now.Advance(time.Second)
	must.OK(t, appendInline(t, b, enginetest.Noted("a")))
	b.MustHaveApplied(t, "a", 4)
	mustHaveNoRows(t, b)
	b.MustBeSound(t)
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
	b.Drain(t)
	b.MustStand(t, "a", 2, outbox.Dead, 3)
	if err := appendInline(t, b, enginetest.Noted("a")); !errors.Is(err, outbox.ErrNotYet) || !strings.Contains(err.Error(), "Event 2 has been dead") {
		t.Errorf("error = %v, want that event 2 is dead", err)
	}
	if c := b.MustCampaign(t, "a"); c.State() != outbox.StateBlocked || c.BlockedBehind() != 2 {
		t.Errorf("the campaign is %+v, want 2 rows behind its dead head", c)
	}
	b.MustBeSound(t)

	fund(t, b)
	b.MustRequeue(t, "a", 2)
	b.Drain(t)
	b.MustHaveApplied(t, "a", 4)
	mustHaveNoRows(t, b)
	b.MustBeSound(t)
}

func TestApplyInline_queuesEventsOfAPausedCampaign(t *testing.T) {
	t.Parallel()
	b := openInline(t, enginetest.Ledger)
	must.OK(t, appendInline(t, b, enginetest.Noted("a")))
	pauseCampaign(t, b, "a")
	if err := appendInline(t, b, enginetest.Noted("a")); !errors.Is(err, outbox.ErrNotYet) {
		t.Errorf("error = %v, want that the campaign is paused", err)
	}
	b.MustStand(t, "a", 2, outbox.Pending, 0)
	b.MustBeSound(t)
	resumeCampaign(t, b, "a")
	b.Drain(t)
	b.MustHaveApplied(t, "a", 2)
	b.MustBeSound(t)
}

// Events of a process that died before applying them have no row until a repair.
func TestInline_everyRepairGivesAnEventItsRow(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(t *testing.T, b *enginetest.Engine){
		"repair of gaps": func(t *testing.T, b *enginetest.Engine) {
			if gaps, err := b.Gaps(t.Context()); err != nil || len(gaps) != 1 || gaps[0].Missing != 3 {
				t.Errorf("gaps are %+v (%v), want 3 events", gaps, err)
			}
			if repaired, err := b.RepairGaps(t.Context(), enginetest.Operator); err != nil || repaired.Inserted != 3 {
				t.Errorf("repaired %+v (%v), want 3 rows", repaired, err)
			}
		},
		"replay of the campaign": func(t *testing.T, b *enginetest.Engine) {
			if repaired, err := b.ReplayCampaign(t.Context(), enginetest.Operator, "a"); err != nil || repaired.Inserted != 3 {
				t.Errorf("repaired %+v (%v), want 3 rows", repaired, err)
			}
		},
		"replay run": func(t *testing.T, b *enginetest.Engine) {
			b.MustRun(t, outbox.RunRequest{Kind: outbox.RunReplay, All: true})
		},
		"rebuild run": func(t *testing.T, b *enginetest.Engine) {
			b.MustRun(t, outbox.RunRequest{Kind: outbox.RunRebuild, All: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openInline(t, enginetest.Ledger)
			b.MustAppend(t, enginetest.Notes("a", 3)...)
			repair(t, b)
			b.Drain(t)
			b.MustHaveApplied(t, "a", 3)
			mustHaveNoRows(t, b)
			b.MustBeSound(t)
		})
	}
}

func TestInline_rowsOfAnotherModeAreAppliedByBothPaths(t *testing.T) {
	t.Parallel()
	earlier := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	earlier.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b := earlier.Beside(t, enginetest.InMode(outbox.ModeInline), enginetest.BatchSize(2))
	must.OK(t, appendInline(t, b, enginetest.Notes("a", 2)...))
	b.MustHaveApplied(t, "a", 5)
	b.Drain(t)
	b.MustHaveApplied(t, "b", 3)
	mustHaveNoRows(t, b)
	b.MustBeSound(t)

	// And the reverse: the rows of inline mode are ordinary outbox rows.
	pauseCampaign(t, b, "a")
	if err := appendInline(t, b, enginetest.Noted("a")); err == nil {
		t.Error("a paused campaign was applied")
	}
	resumeCampaign(t, b, "a")
	earlier.MustAppend(t, enginetest.Noted("a"))
	earlier.Drain(t)
	earlier.MustHaveApplied(t, "a", 7)
	earlier.MustBeSound(t)
}

func TestApplyInline_ofAuditOnlyEvents(t *testing.T) {
	t.Parallel()
	b := failedInline(t)
	must.OK(t, b.RegisterEventTypes(t.Context(), map[string]outbox.Intent{"spent": outbox.IntentAuditOnly}))
	must.Get(b.RetryRow(context.Background(), enginetest.Operator, "a", 2)).Or(t)
	must.OK(t, appendInline(t, b, enginetest.Spent("a", 500)))
	if applied, err := b.AppliedSeq(t.Context(), "a"); err != nil || applied != 3 {
		t.Errorf("applied up to %d (%v), want 3", applied, err)
	}
	mustHaveNoRows(t, b)
	b.MustBeSound(t)
}

// Requests, workers and repairs may meet at the same events: each is applied once, in order,
// before its request is answered.
func TestApplyInline_besideWorkersAndRepairs(t *testing.T) {
	t.Parallel()
	callers, each := 8, 20
	if testing.Short() {
		callers, each = 4, 6
	}
	a := openInline(t, enginetest.Ledger)
	b := a.Beside(t, enginetest.InMode(outbox.ModeInline), enginetest.Polling(time.Millisecond))
	b.Start(t)
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
	if err := <-ended; err != nil {
		t.Error(err)
	}
	storetest.Eventually(t, "no row is left", func() bool { return a.MustCampaign(t, "a").Counts.Total() == 0 })
}
