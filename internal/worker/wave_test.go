package worker_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPass_leavesNothingLeasedWhateverTheNumberOfCampaigns(t *testing.T) {
	t.Parallel()
	const each = 3
	for _, c := range []struct{ campaigns, rows int }{{1, 7}, {40, 7}, {10, 1000}, {300, 1000}} {
		now := storetest.NewClock()
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(now), enginetest.BatchSize(c.rows))
		var events []outbox.Event
		for i := range c.campaigns {
			events = append(events, enginetest.Notes(fmt.Sprintf("c%03d", i), each)...)
		}
		b.MustAppend(events...)
		passes, db := 0, b.JournalDB
		for b.MustPass() {
			passes++
			held := storetest.Column[int](t, db, `select (select count(*) from campaigns where lease_owner <> '' or processing > 0) + (select count(*) from projection_apply_outbox where status = 'processing')`)
			if held[0] > 0 {
				t.Fatalf("%+v: %d leases and rows are held after wave %d", c, held[0], passes)
			}
		}
		// Nothing waits for a lease to end: the clock has not moved.
		done := storetest.Column[int](t, db, `select count(*) from campaigns where applied_seq = $1`, each)[0]
		must.Need(t, done == c.campaigns, "%+v: %d campaigns are applied to their end", c, done)
		most := c.campaigns*each/min(c.rows, 256) + c.campaigns + 1
		must.Hold(t, passes <= most, "%+v: %d waves, want at most %d", c, passes, most)
	}
}

// Each event is measured once: from its append, an hour ago by the store's clock, to the end of its wave. A failed one is not applied.
func TestPass_measuresHowLongAppliedEventsWaited(t *testing.T) {
	t.Parallel()
	m := metrics.New(func(context.Context) (outbox.Summary, error) { return outbox.Summary{}, nil })
	appended := func() time.Time { return time.Now().Add(-time.Hour) }
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Accounts), enginetest.BatchSize(2), func(o *enginetest.Options) { o.Now, o.Worker.Metrics = appended, m })
	b.MustAppend(enginetest.Opened("a", 5), enginetest.Opened("b", 5), enginetest.Spent("a", 9), enginetest.Spent("b", 1))
	for b.MustPass() {
	}
	var got dto.Metric
	must.OK(t, m.AppliedAfter.Write(&got))
	h := got.GetHistogram()
	n, mean := h.GetSampleCount(), h.GetSampleSum()/float64(h.GetSampleCount())
	must.Hold(t, n == 3 && mean >= 3600 && mean <= 3600+storetest.Patience.Seconds(), "%d events waited for %v s", n, mean)
}

func TestRun_goesOnAtOnceAfterAFullWave(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.BatchSize(100), enginetest.Polling(time.Hour))
	b.MustAppend(enginetest.Notes("a", 1_000)...)
	b.MustAppend(enginetest.Notes("c", 10)...)
	b.Start()
	b.MustWait("a", 1_000)
	b.MustWait("c", 10)
}

// The worker polls once an hour, so that only being woken makes it work.
func TestRun_isWokenByWhateverMakesARowDue(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.Polling(time.Hour), enginetest.MaxAttempts(2),
		func(o *enginetest.Options) { o.Retry.Base, o.Retry.Max = time.Hour, time.Hour })
	b.OnWork(b.Worker.Wake)
	b.Start()
	ctx := t.Context()

	b.MustAppend(enginetest.Opened("a", 1))
	b.MustWait("a", 1)

	b.MustAppend(enginetest.Spent("a", 2), enginetest.Noted("a"))
	storetest.Eventually(t, "the event fails", func() bool { return b.MustRow("a", 2).Row.Status == outbox.Failed })
	must.Get(b.RetryRow(ctx, enginetest.Operator, "a", 2)).Or(t)
	storetest.Eventually(t, "a retried event is tried at once", func() bool { return b.MustRow("a", 2).Row.Status == outbox.Dead })

	b.ExecProjections(`update accounts set balance = 100`)
	b.MustRequeue("a", 2)
	b.MustWait("a", 3)

	pauseCampaign(t, b, "a")
	b.MustAppend(enginetest.Noted("a"), enginetest.Noted("b"))
	b.MustWait("b", 1)
	must.Equal(t, must.Get(b.AppliedSeq(ctx, "a")).Or(t), 3, "where a paused campaign stands")
	resumeCampaign(t, b, "a")
	b.MustWait("a", 4)
	b.MustHaveApplied("a", 4)
}

func TestRun_isWokenByARepairedGap(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.Polling(time.Hour))
	var deaf atomic.Bool
	b.OnWork(func() {
		if !deaf.Load() {
			b.Worker.Wake()
		}
	})
	b.Start()
	b.MustAppend(enginetest.Notes("a", 2)...)
	b.MustWait("a", 2)
	pauseCampaign(t, b, "a")
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.LoseRows("a", "seq between 3 and 5")
	deaf.Store(true) // or the worker finds and repairs the gap before the operator does
	resumeCampaign(t, b, "a")
	deaf.Store(false)
	if repaired, err := b.ReplayCampaign(t.Context(), enginetest.Operator, "a"); err != nil || repaired.Inserted != 3 && repaired.Inserted != 0 { // the self-check may have been first
		t.Fatalf("repaired %+v (%v), want 3 rows inserted", repaired, err)
	}
	b.MustWait("a", 5)
	b.MustHaveApplied("a", 5)
}

func TestRun_retriesAFailedHeadWhenItIsDueAndNotAtTheNextPoll(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.Polling(time.Hour),
		func(o *enginetest.Options) { o.Retry = quickRetries })
	b.MustAppend(enginetest.Opened("a", 1), enginetest.Spent("a", 2), enginetest.Noted("a"))
	b.Start()
	storetest.Eventually(t, "the event fails", func() bool { return b.MustRow("a", 2).Row.AttemptCount > 0 })
	b.ExecProjections(`update accounts set balance = 100`)
	b.MustWait("a", 3)
	b.MustHaveApplied("a", 3)
}

func TestRun_takesOverWhenALeaseEndsAndNotAtTheNextPoll(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.Polling(time.Hour))
	b.MustAppend(enginetest.Notes("a", 3)...)
	died := store.Worker{ID: "died", Build: "test"}
	must.Get(b.Claim(t.Context(), died, store.ClaimLimits{Rows: 10, Lease: 200 * time.Millisecond})).Or(t)
	b.Start()
	b.MustWait("a", 3)
	b.MustHaveApplied("a", 3)
}

func TestRun_goesOnAtOnceAfterACrashOnTheSameHost(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.Polling(time.Hour))
	b.MustAppend(enginetest.Notes("a", 2)...)
	gone := storetest.Killed(t, "gone", time.Now())
	must.OK(t, b.Heartbeat(t.Context(), gone))
	uncollected := exec.Command("true")
	must.OK(t, uncollected.Start())
	t.Cleanup(func() { _ = uncollected.Wait() })
	gone.ID, gone.PID = "gone, not collected", uncollected.Process.Pid
	must.OK(t, b.Heartbeat(t.Context(), gone))
	storetest.Eventually(t, "a process has ended without being collected", func() bool {
		all, err := b.Processes(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(i outbox.InstanceState) bool { return i.Process != outbox.ProcessGone })
	})
	claims, err := b.Claim(t.Context(), store.Worker{ID: "gone"}, store.ClaimLimits{Rows: 10, Lease: time.Hour})
	must.Need(t, err == nil && len(claims) == 1, "claimed %v, %v", claims, err)
	must.Get(b.Runs.Start(t.Context(), outbox.Command{}, outbox.RunRequest{Kind: outbox.RunVerify, All: true}, []outbox.ProjectionInfo{{Name: "p", Version: "v"}})).Or(t)
	held, ok, err := b.Runs.Claim(t.Context(), store.Worker{ID: "gone"}, map[string]string{"p": "v"}, time.Hour)
	must.Need(t, err == nil && ok, "claimed a run: %v, %v", ok, err)
	b.Start()
	b.MustWait("a", 2)
	b.MustHaveApplied("a", 2)
	run, err := b.Runs.Get(t.Context(), held.Run.ID)
	must.Hold(t, err == nil && (run.Lease == nil || run.Lease.Owner != "gone" || !run.Lease.ExpiresAt.After(time.Now())), "the run of the worker whose process is gone is still its own: %+v, %v", run, err)
	instances := must.Get(b.Instances(t.Context())).Or(t)
	for _, i := range instances {
		here := !strings.HasPrefix(i.ID, "gone")
		must.Hold(t, (i.StoppedAt == nil) == here && (i.State(time.Now()) == outbox.InstanceCrashed) != here && i.Here == here, "instance %s is stopped at %v, and here: %v", i.ID, i.StoppedAt, i.Here)
	}
}

func TestRun_endsCleanlyUnderLoad(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.BatchSize(50))
	b.OnWork(b.Worker.Wake)
	const campaigns, each = 20, 20
	for i := range campaigns {
		b.MustAppend(enginetest.Notes(fmt.Sprint("c", i), each)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var appending sync.WaitGroup
	appending.Go(func() {
		for ctx.Err() == nil {
			b.MustAppend(enginetest.Notes("load", 5)...)
		}
	})
	stop := b.Start()
	b.MustWait("c0", 5)
	stop()
	cancel()
	appending.Wait()

	mustBeUntouched(t, b)
	instances, err := b.Instances(t.Context())
	must.Need(t, err == nil && len(instances) == 1, "instances %+v (%v), want one", instances, err)
	me := instances[0]
	must.Hold(t, me.ID == b.Worker.ID() && me.StoppedAt != nil && me.Applied != 0 && me.Failed+me.Fenced == 0 && me.Rates == (outbox.Throughput{}), "the instance says %+v", me)
	b.Sound()
	b.Drain()
	for i := range campaigns {
		b.MustHaveApplied(fmt.Sprint("c", i), each)
	}
}

func TestRun_writesNothingWhileItIsIdle(t *testing.T) {
	t.Parallel()
	for _, m := range outbox.Modes {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(m))
		b.MustAppend(enginetest.Notes("a", 5)...)
		if m == outbox.ModeInline {
			must.OK(t, b.Worker.ApplyInline(t.Context(), "a"))
		}
		for range 3 { // the work, and the heartbeats that report it
			takeSteps(t, b)
		}
		before := b.Modified("instances")
		for range 5 {
			takeSteps(t, b)
		}
		must.Equal(t, b.Modified("instances"), before, "an idle worker, "+string(m))
	}
}

func takeSteps(t *testing.T, b *enginetest.Engine) {
	t.Helper()
	for _, step := range append(b.Worker.TimedSteps(), b.Operations.Step) {
		for more := true; more; {
			var err error
			more, err = step(t.Context())
			must.Need(t, err == nil, "%v", err)
		}
	}
}
