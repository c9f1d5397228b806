package campaign_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
)

// TestOutlook_isWithinAFactorOfTwo plays loads second by second, and compares what is said with what comes.
func TestOutlook_isWithinAFactorOfTwo(t *testing.T) {
	steady := func(n float64) func(int) float64 { return func(int) float64 { return n } }
	for name, load := range map[string]struct {
		backlog  float64
		come     func(second int) float64
		capacity func(second int) float64
	}{
		"a backlog alone":              {90_000, steady(0), steady(1000)},
		"beside a load":                {60_000, steady(700), steady(1000)},
		"at the limit":                 {60_000, steady(980), steady(1000)},
		"beyond the limit":             {10_000, steady(1100), steady(1000)},
		"bursts":                       {60_000, func(s int) float64 { return map[bool]float64{true: 1000}[s/5%2 == 0] }, steady(1000)},
		"after a kill":                 {0, steady(500), func(s int) float64 { return map[bool]float64{true: 1000}[s >= 100] }},
		"a load that has ended":        {0, func(s int) float64 { return map[bool]float64{true: 3000}[s < 30] }, steady(1000)},
		"little":                       {0, steady(3), steady(1000)},
		"slow":                         {400, steady(0.5), steady(2)},
		"more workers after a minute":  {400_000, steady(200), func(s int) float64 { return map[bool]float64{true: 1000, false: 3000}[s < 60] }},
		"a backlog and nothing at all": {1, steady(0), steady(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			const seconds = 4000
			var waits, in, out [seconds]float64
			for s, waiting := 0, load.backlog; s < seconds; s++ {
				in[s] = load.come(s)
				out[s] = min(waiting+in[s], load.capacity(s))
				waiting += in[s] - out[s]
				waits[s] = waiting
			}
			mean := func(of [seconds]float64, over, at int) (sum float64) {
				for s := at - over + 1; s <= at; s++ {
					sum += of[s] / float64(over)
				}
				return sum
			}
			told := 0
			for _, at := range []int{25, 45, 75, 110, 140, 300} {
				sum := campaign.Summary{Worker: campaign.WorkerSummary{Running: true}}
				sum.Lag.Events = int64(waits[at])
				sum.Throughput = campaign.Throughput{AppliedPerSecond: mean(out, 2, at), AppendedPerSecond: mean(in, 10, at)}
				o := sum.OutlookOf(sum.Lag.Events)
				comes := at
				for comes < seconds && waits[comes] > load.capacity(comes) {
					comes++
				}
				turns := load.capacity(at) != load.capacity(comes%seconds) || load.come(at) > load.capacity(at) && comes < seconds
				switch took := float64(comes - at); {
				case turns: // nobody could know
					continue
				case comes == seconds:
					must.Equal(t, o.Empty, "never", at, o.Says)
				case took < 10:
					must.Hold(t, o.Seconds() < 20, "after %d s: %s, and it took %v s", at, o.Sentence(), took)
				default:
					must.Hold(t, o.Seconds() > took/2 && o.Seconds() < took*2, "after %d s: %s, and it took %v s", at, o.Sentence(), took)
				}
				told++
			}
			must.Hold(t, told > 2, "the load says nothing")
		})
	}
}

func TestOutlook_saysWhy(t *testing.T) {
	now := time.Now()
	for says, s := range map[string]campaign.Summary{
		"now: nothing waits": {},
		"never: 1 event waits for an operator; nothing else waits":             {Lag: campaign.Lag{Events: 1}},
		"never: no worker is running":                                          {Lag: campaign.Lag{Events: 5}, Throughput: campaign.Throughput{AppendedPerSecond: 1}},
		"unknown: workers have applied nothing in the last seconds":            {Lag: campaign.Lag{Events: 5}, Worker: campaign.WorkerSummary{Running: true}},
		"unknown: all of it waits for its next attempt":                        {Lag: campaign.Lag{Events: 5}, Worker: campaign.WorkerSummary{Running: true}, Counts: campaign.Counts{Failed: 5}, AsOf: now, DueSince: new(now.Add(time.Minute))},
		"never: 3 events wait for an operator; the rest: 40 s, at 10 events/s": {Lag: campaign.Lag{Events: 403}, Worker: campaign.WorkerSummary{Running: true}, Throughput: campaign.Throughput{AppliedPerSecond: 15, AppendedPerSecond: 5}},
		"never: 20 events/s come, and 15 are applied":                          {Lag: campaign.Lag{Events: 400}, Worker: campaign.WorkerSummary{Running: true}, Throughput: campaign.Throughput{AppliedPerSecond: 15, AppendedPerSecond: 20}},
	} {
		waiting := s.Lag.Events
		if waiting == 403 {
			waiting -= 3
		} else if waiting == 1 {
			waiting = 0
		}
		must.Equal(t, s.OutlookOf(waiting).Sentence(), says)
	}
}
