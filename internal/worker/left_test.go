package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// What a killed process did after its last sample belongs to the minute in which it was last seen.
// Of the minutes in which no process ran there is no record.
func TestRun_recordsWhatAKilledProcessLeft(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Accounts), enginetest.At(now), enginetest.MaxAttempts(1))
	b.MustAppend(enginetest.Opened("a", 1))
	gone := storetest.Killed(t, "gone", now.Now().Add(-5*time.Minute))
	must.OK(t, b.Heartbeat(t.Context(), gone))
	must.OK(t, b.Sample(t.Context()))
	now.Advance(80 * time.Second)
	b.Feed(enginetest.Spent("a", 100))
	gone.Applied, gone.Failed = 1, 1
	must.OK(t, b.Heartbeat(t.Context(), gone))
	last := now.Now().Truncate(time.Minute)
	now.Advance(210 * time.Second)
	if !b.OnPostgres() { // where heartbeats say it
		mustBeGone(t, b, now, last)
	}
	b.Beside().Start()
	storetest.Eventually(t, "the next process has started", func() bool {
		all, err := b.Instances(t.Context())
		return err == nil && len(all) == 2 && slices.ContainsFunc(all, func(i outbox.InstanceState) bool {
			return i.ID == "gone" && i.StoppedAt != nil && i.State(now.Now()) == outbox.InstanceCrashed
		})
	})

	points, markers := historyOf(t, b, now)
	must.Hold(t, len(markers) == 1 && markers[0].Kind == outbox.MarkerLost && markers[0].Subject == "gone" && markers[0].At.Truncate(time.Minute).Equal(last), "markers %+v, want one of the instance that was killed", markers)
	p := points[last]
	must.Hold(t, p.Applied == 1 && p.Failed == 1 && p.Counts.Dead == 1 && p.Blocked == 1 && p.LagEvents == 1 && p.LowerBound, "the minute of the crash is %+v, want at least one event applied and one dead", p)
	for _, later := range []time.Duration{time.Minute, 2 * time.Minute} {
		p, found := points[last.Add(later)]
		must.Hold(t, !found, "%s later, while no process ran, there is a record: %+v", later, p)
	}
	p = points[now.Now().Truncate(time.Minute)]
	must.Hold(t, p.Applied+p.Failed == 0 && p.Counts.Dead == 1 && !p.LowerBound, "the minute of the start is %+v, want nothing applied and nothing failed", p)
}

// mustBeGone asserts that, before any process has noticed it, a killed one does not count as running,
// and that nothing is recorded from the minute after the one in which it was last seen.
func mustBeGone(t *testing.T, b *enginetest.Engine, now *storetest.Clock, last time.Time) {
	t.Helper()
	sum, err := b.Summary(t.Context())
	must.Hold(t, err == nil && !sum.Worker.Running && sum.Instances[0].State(sum.AsOf) == outbox.InstanceCrashed, "with a killed process alone, a worker is running: %v; instances are %+v, %v", sum.Worker.Running, sum.Instances, err)
	points, _ := historyOf(t, b, now)
	p := points[last]
	must.Hold(t, p.Applied == 1 && p.Failed == 1 && p.Counts.Dead == 1, "the minute of the crash is %+v, want one event applied and one dead", p)
	p, found := points[last.Add(time.Minute)]
	must.Hold(t, !found, "a minute later there is a record: %+v", p)
	_, found = points[last.Add(-time.Minute)]
	must.Hold(t, found, "there is no record of the minute before")
}

func historyOf(t *testing.T, b *enginetest.Engine, now *storetest.Clock) (map[time.Time]outbox.Point, []outbox.Marker) {
	h := must.Get(b.Beside().History(t.Context(), outbox.Range{})).Or(t)
	points := map[time.Time]outbox.Point{}
	for _, p := range h.Points {
		points[p.From] = p
	}
	return points, h.Markers
}

// While a worker starts, and once it has, no page says that there is none.
func TestRun_isNeverSaidNotToRun(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	b.MustAppend(enginetest.Notes("a", 1)...)
	b.Store.SetHere(b.Worker.ID()) // as Run does first
	sum, err := b.Summary(t.Context())
	must.Hold(t, err == nil && sum.Worker.Starting && !sum.Worker.Absent(), "before its first heartbeat the worker is %+v, %v", sum.Worker, err)
	b.Start()
	b.MustWait("a", 1)
	sum, err = b.Summary(t.Context())
	must.Hold(t, err == nil && sum.Worker.Running && !sum.Worker.Starting, "at work the worker is %+v, %v", sum.Worker, err)
}

// What is counted for the charts is written with the totals, so that a kill loses no minute of it; what could not
// be written then is written later, also by a worker that has nothing to do.
func TestHeartbeat_writesWhatWasCounted(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Accounts), enginetest.MaxAttempts(1))
	written := func(want int) {
		for _, step := range b.Worker.TimedSteps() {
			must.Get(step(t.Context())).Or(t)
		}
		const counts = `select coalesce(sum(value), 0) from series_samples where kind in ('applied', 'failures') and step = 60`
		must.Equal(t, storetest.Column[int](t, b.JournalDB, counts)[0], want, "counts are written")
	}
	b.Feed(enginetest.Opened("a", 1), enginetest.Spent("a", 100))
	written(2)
	var c store.Counts
	c.Add(outbox.SeriesApplied, "", 3)
	b.Store.Count(b.Worker.ID(), &c)
	written(5)
}
