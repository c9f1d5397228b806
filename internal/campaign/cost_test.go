package campaign_test

import (
	"math"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
)

// A wave takes 9 ms and 1 ms per event, of which 0.5 ms are of statements.
func TestOutlook_saysWhatTwiceTheLoadWouldDo(t *testing.T) {
	t.Parallel()
	measured := func(waves ...float64) (s campaign.Spent) {
		for _, events := range waves {
			s.Of.Add(1, events, 0.009+events/1000)
			s.On = append(s.On, campaign.SpentOn{Events: events, Seconds: events / 2000})
		}
		return s
	}
	for says, c := range map[string]struct {
		rates   campaign.Throughput
		spent   campaign.Spent
		waiting int64
	}{
		"nothing comes in now": {},
		"the load, 10 events/s, takes 10 % of the workers' time; twice of it takes at most 20 %":                                                                               {campaign.Throughput{AppendedPerSecond: 10, AppliedPerSecond: 10, BusyShare: 0.1}, measured(1, 1), 0},
		"the load, 10 events/s, takes 20 % of the workers' time; twice of it takes at most 40 %":                                                                               {campaign.Throughput{AppendedPerSecond: 10, AppliedPerSecond: 50, BusyShare: 1}, measured(1, 1), 1000},
		"the load, 80 events/s, takes 80 % of the workers' time; twice of it is too much, unless larger waves take less per event":                                             {campaign.Throughput{AppendedPerSecond: 80, AppliedPerSecond: 80, BusyShare: 0.8}, campaign.Spent{}, 0},
		"the load, 80 events/s, takes 80 % of the workers' time; twice of it makes waves larger, which take less per event: events wait longer, and the backlog does not grow": {campaign.Throughput{AppendedPerSecond: 80, AppliedPerSecond: 80, BusyShare: 0.8}, measured(1, 2, 5), 0},
		"the load, 600 events/s, takes 90 % of the workers' time; twice of it takes 120 % even in large waves: the backlog may grow by 200 events/s":                           {campaign.Throughput{AppendedPerSecond: 600, AppliedPerSecond: 600, BusyShare: 0.9}, measured(20, 40, 100), 0},
		"the load, 60 events/s, takes 60 % of the workers' time; twice of it is too much, unless larger waves take less per event":                                             {campaign.Throughput{AppendedPerSecond: 60, AppliedPerSecond: 60, BusyShare: 0.6}, measured(1, 1), 0},
	} {
		s := campaign.Summary{Worker: campaign.WorkerSummary{Running: true}, AsOf: time.Now(), Throughput: c.rates, Lag: campaign.Lag{Events: c.waiting},
			Instances: []campaign.InstanceState{{ID: "a", LastSeen: time.Now(), Spent: c.spent}, {ID: "gone", StoppedAt: new(time.Now()), Spent: measured(1, 900)}}}
		must.Equal(t, s.OutlookOf(c.waiting).Doubled, says)
	}
}

// What a backlog takes is told from waves that had little to do, by what one more event takes.
func TestBusyPace_isThatOfLargeWaves(t *testing.T) {
	t.Parallel()
	var spent campaign.Spent
	for _, events := range []float64{1, 1, 2, 5} {
		spent.Of.Add(8, events, 0.009+events/1000)
	}
	s := campaign.Summary{AsOf: time.Now(), Instances: []campaign.InstanceState{{ID: "a", LastSeen: time.Now(), Spent: spent}}}
	must.Equal(t, math.Round(s.BusyPace()), math.Round(100/0.109), "events per second")
	s.Instances[0].Spent = campaign.Spent{}
	must.Equal(t, s.BusyPace(), 0.0, "without a measured wave")
}
