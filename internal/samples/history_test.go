package samples_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/samples"
)

var chartNoon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestPoints_carryOnWhatDidNotChangeAndLeaveGaps(t *testing.T) {
	t.Parallel()
	at := func(min int) time.Time { return chartNoon.Add(time.Duration(min) * time.Minute) }
	s := []samples.Sample{
		{At: at(-90), Counts: campaign.Counts{Pending: 1}, Applied: 10},
		{At: at(-30), Counts: campaign.Counts{Dead: 2}, Applied: 70, Failed: 60, OldestEnqueuedAt: at(-40)},
		{At: at(-25), Applied: 40}, // a process's record was removed, and with it its applied events
		{At: chartNoon.Add(20 * time.Second), Applied: 47},
	}
	w := samples.Range{}.Window(chartNoon.Add(20 * time.Second))
	points := samples.Points(s, w, []samples.Interval{{From: at(-120), To: at(-20).Add(30 * time.Second)}, {From: at(-10), To: at(1)}},
		[]samples.Marker{{At: at(-40).Add(-time.Second)}, {At: at(-5).Add(30 * time.Second)}, {At: chartNoon.Add(25 * time.Second)}})
	byStart := map[time.Time]samples.Point{}
	for _, p := range points {
		byStart[p.From] = p
	}
	must.Equal(t, len(points), 50, "points")
	_, found := byStart[at(-15)]
	must.Hold(t, !found, "there is a point while nothing ran")
	p := byStart[at(-32)]
	must.Hold(t, p.Counts.Pending == 1 && p.Applied == 0, "before: %+v", p)
	p = byStart[at(-31)]
	must.Hold(t, p.Counts.Dead == 2 && p.Applied == 60 && p.Failed == 60 && p.AppliedPerSecond == 1 && p.OldestAgeSeconds == 600 && p.CountsPeak.Dead == 2, "then: %+v", p)
	p = byStart[at(-26)]
	must.Hold(t, p.Applied == 0 && p.OldestAgeSeconds == 0 && p.OldestAgePeak == 14*60, "when totals shrink: %+v", p)
	var least []time.Time
	for _, p := range points {
		if p.LowerBound {
			least = append(least, p.From)
		}
	}
	must.Equal(t, least, []time.Time{at(-41), at(-40), at(-5), at(0)}, "lower bounds from")
	p = byStart[at(0)]
	must.Hold(t, p.Incomplete && p.Applied == 7 && p.At.Equal(chartNoon.Add(20*time.Second)), "the running minute: %+v", p)
}

// Every range counts each event once, and knows its peak minute.
func TestPoints_countAsANaiveRecountDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		const minutes = 3 * 1440
		start := chartNoon.Add(-minutes * time.Minute)
		counts := make([]int64, minutes)
		var sam []samples.Sample
		total := int64(0)
		sam = append(sam, samples.Sample{At: start, Applied: total})
		for i := range counts {
			if r.IntN(3) == 0 {
				counts[i] = int64(r.IntN(500))
				total += counts[i]
				sam = append(sam, samples.Sample{At: start.Add(time.Duration(i+1) * time.Minute), Applied: total})
			}
		}
		from := start.Add(time.Duration(r.IntN(minutes/2)) * time.Minute)
		free := must.Get(samples.FreeRange(from, from.Add(time.Duration(5+r.IntN(minutes/2))*time.Minute), chartNoon)).Or(t)
		for _, over := range []samples.Range{{}, {Name: samples.RangeSix}, {Name: samples.RangeDay}, {Name: samples.RangeWeek}, free} {
			w := over.Window(chartNoon)
			first, _ := slices.BinarySearchFunc(sam, w.From, func(s samples.Sample, at time.Time) int { return s.At.Compare(at) })
			for _, p := range samples.Points(sam[max(0, first-1):], w, []samples.Interval{{From: start, To: w.To}}, nil) {
				var sum, most int64
				for at := p.From; at.Before(p.From.Add(w.Step)); at = at.Add(time.Minute) {
					if i := int(at.Sub(start) / time.Minute); i >= 0 && i < minutes && !at.Before(start) {
						sum, most = sum+counts[i], max(most, counts[i])
					}
				}
				must.Need(t, p.Applied == sum && p.AppliedPeak == most, "seed %d, %s at %s: %d applied and %d in the peak minute, want %d and %d", seed, over.Label(), p.From, p.Applied, p.AppliedPeak, sum, most)
			}
		}
	}
}

func TestRange_windows(t *testing.T) {
	t.Parallel()
	now := chartNoon.Add(7*time.Minute + 33*time.Second)
	free := func(from, to time.Duration) samples.Range {
		return must.Get(samples.FreeRange(now.Add(-from), now.Add(-to), now)).Or(t)
	}
	for name, c := range map[string]struct {
		over    samples.Range
		step    time.Duration
		buckets int
		running bool
	}{
		"1h":                      {samples.Range{}, time.Minute, 60, true},
		"6h":                      {samples.Range{Name: samples.RangeSix}, 6 * time.Minute, 60, true},
		"24h":                     {samples.Range{Name: samples.RangeDay}, 30 * time.Minute, 48, true},
		"7d":                      {samples.Range{Name: samples.RangeWeek}, 3 * time.Hour, 56, true},
		"five minutes":            {free(20*time.Minute, 15*time.Minute), time.Minute, 6, false},
		"90 minutes, to now":      {free(90*time.Minute, 0), 2 * time.Minute, 46, true},
		"six hours, two days ago": {free(54*time.Hour, 48*time.Hour), 15 * time.Minute, 25, false},
		"eight days":              {free(8*24*time.Hour, 0), 4 * time.Hour, 49, true},
	} {
		w := c.over.Window(now)
		must.Hold(t, w.Step == c.step && w.Buckets() == c.buckets && w.Incomplete(w.Buckets()-1) == c.running, "%s: %d steps of %s, running %v", name, w.Buckets(), w.Step, w.Incomplete(w.Buckets()-1))
	}
	for name, c := range map[string][2]time.Time{
		"too short": {now.Add(-4 * time.Minute), now}, "too long": {now.Add(-9 * 24 * time.Hour), now}, "no start": {{}, now},
		"backwards": {now, now.Add(-time.Hour)}, "in the future": {now.Add(time.Hour), now.Add(2 * time.Hour)},
	} {
		_, err := samples.FreeRange(c[0], c[1], now)
		must.Hold(t, err != nil, "%s is accepted", name)
	}
}

func TestDelayQuantile_isNearTheExactOne(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	var counts [samples.DelayBuckets]int64
	_, found := samples.DelayQuantile(&counts, .5)
	must.Hold(t, !found, "there is a quantile of nothing")
	var all []float64
	for range 5000 {
		seconds := math.Exp(r.NormFloat64()*2 - 3)
		all = append(all, seconds)
		counts[samples.DelayBucket(time.Duration(seconds*float64(time.Second)))]++
	}
	slices.Sort(all)
	for _, q := range []float64{.5, .9, .99} {
		got, found := samples.DelayQuantile(&counts, q)
		exact := all[int(q*float64(len(all)))-1]
		must.Hold(t, found && got <= exact*1.1 && got >= exact/1.1, "p%g is %g, want about %g", q*100, got, exact)
	}
	for d, bucket := range map[time.Duration]int{0: 0, -time.Hour: 0, time.Millisecond / 2: 2, time.Millisecond: 4, 2 * time.Millisecond: 12, 1000 * time.Hour: samples.DelayBuckets - 1} {
		must.Equal(t, samples.DelayBucket(d), bucket, d, "is in bucket")
	}
}

func TestDeploys_areStartsWithAnotherBuild(t *testing.T) {
	t.Parallel()
	start := func(min int, id, host, version string) campaign.InstanceState {
		return campaign.InstanceState{ID: id, Host: host, Version: version, StartedAt: chartNoon.Add(time.Duration(min) * time.Minute)}
	}
	var got []string
	for _, m := range samples.Deploys([]campaign.InstanceState{
		start(9, "f", "pod-3", "v3"), start(0, "a", "one", "v1"), start(1, "b", "one", "v1"), start(2, "c", "one", "v2"),
		start(3, "d", "two", "v2"), start(4, "e", "one", "v1"), start(8, "g", "pod-2", "v1"),
	}) {
		got = append(got, m.Subject+" "+m.Version)
	}
	must.Equal(t, got, []string{"c v2", "e v1", "f v3"})
}

func TestCluster_putsNearMarkersTogether(t *testing.T) {
	t.Parallel()
	var markers []samples.Marker
	for _, second := range []int{0, 10, 59, 60, 200, 259, 261} {
		markers = append(markers, samples.Marker{At: chartNoon.Add(time.Duration(second) * time.Second)})
	}
	var sizes []int
	for _, g := range samples.Cluster(markers, time.Minute) {
		sizes = append(sizes, len(g.Markers))
	}
	must.Equal(t, sizes, []int{3, 1, 2, 1})
}

func TestCounted_tellsTheMostApart(t *testing.T) {
	t.Parallel()
	c := samples.Counted{}
	for i, label := range []string{"a", "b", "c", "d", "e", "f", "g", "h", samples.Other} {
		c.Add(label, 1, float64(i+1))
	}
	all := c.Top(samples.SeriesFailure, []bool{true, true, false})
	must.Hold(t, len(all) == samples.SeriesShown+1 && all[0].Label == "h" && all[6].Label == samples.Other && *all[6].Values[1] == 1+2+9, "%+v", all)
	v := all[0].Values
	must.Hold(t, *v[0] == 0 && *v[1] == 8 && v[2] == nil, "the values are %v", v)
}

func TestShade_hasFiveLevels(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int{0: 0, 1: 1, 1000: 5} {
		must.Equal(t, samples.Shade(n, 1000), want, "of 1000 has level")
	}
	for n := int64(1); n < 1000; n++ {
		must.Need(t, samples.Shade(n, 1000) <= samples.Shade(n+1, 1000), "%d is darker than %d", n, n+1)
	}
}
