package samples

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
)

// Costs keeps what a process spent on applying in its last busy minutes, those in which a wave was measured: with
// each of them what was before counts an eighth less. It is safe for concurrent use.
type Costs struct {
	mu     sync.Mutex
	minute int64
	waves  campaign.WaveSums
	on     map[campaign.Spender]*costTimes
}

// costTimes are times that an event took. They are counted in delay buckets a thousandth as long, in thousandths, to fade.
type costTimes struct {
	seconds float64
	counts  [DelayBuckets]int64
}

const (
	costUnit     = 1000 // of counts, and of the length of their buckets
	costFades    = 0.875
	costReported = 64 // statements
)

// Wave is a wave whose time was taken.
type Wave struct {
	Counts int // how often: it stands for others
	Events int
	Took   time.Duration
	Laps   []CostLap
}

// CostLap is the time that a projection or a statement took for an event.
type CostLap struct {
	On   campaign.Spender
	Took time.Duration
}

// Add adds a wave that ended now.
func (c *Costs) Add(now time.Time, w Wave) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if minute := now.Unix() / 60; minute != c.minute {
		c.minute = minute
		c.fade()
	}
	c.waves.Add(float64(w.Counts), float64(w.Events), w.Took.Seconds())
	for _, lap := range w.Laps {
		t := c.on[lap.On]
		if t == nil {
			t = new(costTimes)
			c.on[lap.On] = t
		}
		t.seconds += float64(w.Counts) * lap.Took.Seconds()
		t.counts[DelayBucket(lap.Took*costUnit)] += int64(w.Counts) * costUnit
	}
}

func (c *Costs) fade() {
	if c.on == nil {
		c.on = map[campaign.Spender]*costTimes{}
	}
	for i := range c.waves {
		c.waves[i] *= costFades
	}
	for _, t := range c.on {
		t.seconds *= costFades
		for b, n := range t.counts {
			t.counts[b] = int64(float64(n) * costFades)
		}
	}
}

// Spent reports it: of all projections, and of the statements that took the most time.
func (c *Costs) Spent() campaign.Spent {
	c.mu.Lock()
	defer c.mu.Unlock()
	spent := campaign.Spent{Of: c.waves}
	var statements []campaign.SpentOn
	for by, t := range c.on {
		p99, found := DelayQuantile(&t.counts, 0.99)
		on := campaign.SpentOn{Spender: by, Seconds: t.seconds, P99: p99 / costUnit}
		for _, n := range t.counts {
			on.Events += float64(n) / costUnit
		}
		if by.Statement != "" {
			statements = append(statements, on)
		} else if found {
			spent.On = append(spent.On, on)
		}
	}
	slices.SortFunc(statements, func(a, b campaign.SpentOn) int { return cmp.Compare(b.Seconds, a.Seconds) })
	spent.On = append(spent.On, statements[:min(len(statements), costReported)]...)
	return spent
}
