package worker

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/samples"
)

// busyTime is how long one wave or more has run.
type busyTime struct {
	mu      sync.Mutex
	running int
	since   time.Time // what ran until then is counted
	total   time.Duration
}

// enter notes a wave that began at a time.
func (b *busyTime) enter(began time.Time) (leave func()) {
	b.change(1, began)
	return func() { b.change(-1, began) }
}

// change adds to the running waves, and returns the time until now; the first of them began at a time.
func (b *busyTime) change(waves int, began time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.running > 0 {
		b.total += now.Sub(b.since)
		b.since = now
	} else if began.After(b.since) {
		b.since = began
	}
	b.running += waves
	return b.total
}

// One wave of at least so many events is measured of as many. To measure all would make applying about 4 % slower on
// SQLite, and 25 % where the server tells the time of each batched statement.
const (
	measuredOf      = 8
	measuredBatched = 64
)

// measured is how many waves one of so many events stands for if it is measured; 0 if it is not. Small ones are measured
// more often, since it costs by the event.
func (w *Worker) measured(events int) int {
	most := measuredOf
	if w.Queue.Shared() {
		most = measuredBatched
	}
	if !w.metered.Swap(true) {
		return 1 // something is better than nothing
	}
	times := max(1, min(events, most))
	if rand.IntN(times) > 0 {
		return 0
	}
	return times
}

// meter takes the time of each statement of one wave, as the transaction that projections write through. Of a
// statement that is batched that is the time of binding its values, and then of running it, by the server's clock.
type meter struct {
	*readmodel.ApplyTx // of the attempt; nil before the first
	spenders           []campaign.Spender
	wave               samples.Wave
	began              time.Time
	since              time.Duration // when the last lap began
	laps               []lap
}

// lap is the time that a statement took for an event, or noStatement until the first of the next event.
type lap struct {
	statement int
	took      time.Duration
}

const noStatement = -1

// meter returns one for a wave; nil for most.
func (w *Worker) meter(events int) *meter {
	times := w.measures(events)
	if times == 0 || w.Set == nil {
		return nil
	}
	return &meter{spenders: w.spenders, wave: samples.Wave{Counts: times, Events: events}, began: time.Now(), laps: []lap{{statement: noStatement}}}
}

// Step ends the lap of one statement, and begins that of another.
func (m *meter) Step(statement int) {
	now, last := time.Since(m.began), len(m.laps)-1 // cheaper than time.Now
	m.laps[last].took += now - m.since
	m.Stamp(func(d time.Duration) { m.laps[last].took += d })
	m.laps, m.since = append(m.laps, lap{statement: statement}), now
}

// end adds the wave to the costs. One during which a clock was set says nothing.
func (m *meter) end(costs *samples.Costs) {
	if m == nil || m.ApplyTx == nil {
		return
	}
	m.wave.Took = time.Since(m.began) - m.Stamped()
	var all, own time.Duration
	for i, l := range m.laps {
		if l.statement == noStatement {
			continue
		}
		all, own = all+l.took, own+l.took
		on := m.spenders[l.statement]
		m.wave.Laps = append(m.wave.Laps, samples.CostLap{On: on, Took: l.took})
		if next := m.laps[i+1].statement; next == noStatement || m.spenders[next].Projection != on.Projection {
			on.Statement = ""
			m.wave.Laps = append(m.wave.Laps, samples.CostLap{On: on, Took: own})
			own = 0
		}
	}
	if all <= m.wave.Took {
		costs.Add(time.Now(), m.wave)
	}
}
