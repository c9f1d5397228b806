package samples_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestSeries_sumUp")) }

func history(f *storetest.Fixture, over samples.RangeName) []samples.Point {
	return must.Get(f.Beside().History(f.Ctx, samples.Range{Name: over})).Or(f.TB).Points
}

func TestSample_oncePerMinuteAndOnlyWhenSomethingChanged(t *testing.T) {
	f := storetest.Own(t)
	count := func() int64 { return f.Number(`select count(*) from samples`) }
	f.Sampled("a", 3)
	f.Clock.Advance(time.Second)
	f.Sampled("a", 1)
	must.Equal(t, count(), 1, "samples of one minute")
	f.Clock.Advance(time.Minute)
	f.MustSample()
	f.Drain()
	f.Clock.Advance(time.Minute)
	f.MustSample()
	must.Equal(t, count(), 3, "samples of three minutes")
	f.Clock.Advance(time.Minute)
	f.Unchanged(f.MustSample)
	f.Clock.Advance(9 * 24 * time.Hour)
	f.Sampled("a", 1)
	must.Equal(t, count(), 2, "samples, of which one is older than eight days")
}

// What is applied before the first sample is counted, and once.
func TestHistory_countsFromTheBeginning(t *testing.T) {
	f := storetest.Own(t)
	beat := campaign.InstanceState{ID: "w", StartedAt: f.Clock.Now()}
	for _, step := range []struct {
		total, want int64
		pause       time.Duration
		best        float64 // in a minute of the last day
	}{{3, 3, 0, 3}, {3, 3, time.Minute, 3}, {8, 8, time.Minute, 5}, {10, 2, 9 * 24 * time.Hour, 2}} {
		f.Clock.Advance(step.pause)
		beat.Applied = step.total
		must.OK(t, f.Heartbeat(f.Ctx, beat))
		f.MustSample()
		applied := int64(0)
		for _, p := range history(f, samples.RangeDay) {
			applied += p.Applied
		}
		must.Equal(t, applied, step.want, "after", step.pause, "and", step.total, "events in all, a day's chart shows")
		must.Equal(t, must.Get(f.Beside().Pace(f.Ctx)).Or(t), step.best/60, "the events per second that estimates assume, after", step.pause, "and", step.total, "events")
	}
}

func TestHistory_tellsWhatStoodAtEachMinute(t *testing.T) {
	f := storetest.Own(t)
	points := history(f, samples.RangeHour)
	must.Need(t, len(points) == 1 && points[0].Incomplete, "without a sample there are points other than of the running minute: %v", points)
	beat := campaign.InstanceState{ID: "w", StartedAt: f.Clock.Now()}
	worked := func(applied, failed int64) {
		beat.Applied, beat.Failed = applied, failed
		must.OK(t, f.Heartbeat(f.Ctx, beat))
	}
	f.AppendN("a", 3)
	worked(0, 0)
	f.MustSample()
	for range 5 { // minutes without a sample
		f.Clock.Advance(time.Minute)
	}
	f.AppendN("b", 1)
	worked(120, 6)
	f.MustSample()
	points = history(f, samples.RangeHour)
	must.Need(t, len(points) == 7, "%d points, want the running minute and one for each since the one that the first sample ended", len(points))
	first, last, running := points[1], points[5], points[6]
	must.Hold(t, first.Counts.Pending == 3 && first.Applied == 0 && first.OldestAgeSeconds == 60, "at first: %+v", first)
	must.Hold(t, last.Counts.Pending == 4 && last.AppliedPerSecond == 2 && last.Applied == 120 && last.Failed == 6 && last.At.Equal(f.Clock.Now()) && !last.Incomplete, "at the end: %+v", last)
	must.Hold(t, running.Incomplete && running.Applied == 0 && running.Counts.Pending == 4, "the running minute: %+v", running)
	f.Clock.Advance(30 * time.Minute)
	day := history(f, samples.RangeDay)
	must.Hold(t, len(day) >= 2 && day[len(day)-1].Counts.Pending == 4 && day[0].Applied+day[1].Applied == 120, "the day: %+v", day)
}

func TestCampaignHistory_keepsThoseThatAreBehindForLong(t *testing.T) {
	f := storetest.Own(t)
	f.Dies("slow", 3)
	f.Clock.Advance(3 * time.Minute)
	f.Sampled("fast", 1)
	f.Drain()
	f.Clock.Advance(time.Minute)
	f.MustSample()
	points, err := f.CampaignHistory(f.Ctx, "slow", samples.Range{})
	must.Hold(t, err == nil && len(points) == 2 && points[1].LagEvents == 3 && points[1].LagSeconds >= 4*60, "%+v, %v", points, err)
	must.Equal(t, len(must.Get(f.CampaignHistory(f.Ctx, "fast", samples.Range{})).Or(t)), 0, "a campaign a moment behind")
	for _, name := range samples.RangeNames {
		h, err := f.Heatmap(f.Ctx, samples.Range{Name: name})
		must.Hold(t, err == nil && len(h.Campaigns) == 1 && h.Campaigns[0].CampaignID == "slow" && h.Campaigns[0].Worst == 3 && slices.Max(h.Campaigns[0].LagEvents) == 3, "heatmap of %s: %+v, %v", name, h, err)
		// Two samples are at the ends of three minutes, as in the charts of all campaigns.
		cells := slices.DeleteFunc(h.Campaigns[0].LagEvents, func(n int64) bool { return n == 0 })
		must.Hold(t, name != samples.RangeHour || len(cells) == 3, "heatmap of an hour has the cells %v", cells)
	}
	points, err = f.CampaignHistory(f.Ctx, "slow", samples.Range{Name: samples.RangeWeek})
	must.Hold(t, err == nil && len(points) != 0 && points[0].LagEvents == 3, "over a week: %+v, %v", points, err)
}

// Blocked from 31 seconds past a minute until 43 seconds past the next one, a campaign has the
// sample between them, as the chart of all waiting rows does.
func TestCampaignHistory_hasWhatBlocksItAtASample(t *testing.T) {
	f := storetest.Own(t)
	minute := f.Clock.Now().Truncate(time.Minute).Add(time.Minute)
	until := func(after time.Duration) { f.Clock.Advance(minute.Add(after).Sub(f.Clock.Now())) }
	until(31 * time.Second)
	f.Dies("a", 95)
	until(time.Minute)
	f.MustSample()
	until(103 * time.Second)
	must.Get(f.RequeueRow(f.Ctx, storetest.Ana("fixed"), "a", 1)).Or(t)
	f.Drain()
	until(2 * time.Minute)
	f.MustSample()
	points, err := f.CampaignHistory(f.Ctx, "a", samples.Range{})
	must.Hold(t, err == nil && len(points) == 1 && points[0].LagEvents == 95 && points[0].At.Equal(minute.Add(time.Minute)), "%+v, %v", points, err)
	h, err := f.Heatmap(f.Ctx, samples.Range{})
	must.Need(t, err == nil && len(h.Campaigns) == 1, "heatmap: %+v, %v", h, err)
	first, _ := h.Window.Index(minute)
	must.Equal(t, h.Campaigns[0].LagEvents[first:first+3], []int64{95, 95, 0}, "the cells of three minutes")
}

// An action is marked in the charts at once: the data that they share are of before it.
func TestHistory_hasAnActionAtOnce(t *testing.T) {
	f := storetest.Own(t)
	f.AppendN("a", 1)
	for _, want := range []int{0, 1} {
		h, err := f.History(f.Ctx, samples.Range{})
		must.Hold(t, err == nil && len(h.Markers) == want, "%d markers (%v), want %d", len(h.Markers), err, want)
		if want == 0 {
			f.MustPause("a")
			f.Changed()
		}
	}
}

// Open pages keep the shared summary fresh; the sample of a new minute must not use the summary of the last.
func TestSample_ofANewMinuteIsNotTheOldMinutesSummary(t *testing.T) {
	f := storetest.Own(t)
	f.AppendN("a", 1)
	for n := range int64(3) {
		must.Get(f.Summary(f.Ctx)).Or(t)
		f.Clock.Advance(time.Minute)
		f.AppendN("a", 1)
		must.OK(t, f.Sample(f.Ctx))
		must.Equal(t, f.Number(`select count(*) from samples`), n+1, "samples")
	}
}

func TestSample_goesOnWhenTheClockIsSetBack(t *testing.T) {
	f := storetest.Own(t)
	f.AppendN("a", 1)
	f.Clock.Advance(48 * time.Hour)
	f.MustSample()
	f.Clock.Advance(-48 * time.Hour)
	f.Sampled("a", 1)
	f.Clock.Advance(time.Minute)
	f.Sampled("a", 1)
	points := history(f, samples.RangeHour)
	must.Hold(t, len(points) == 3 && points[1].Counts.Pending == 3, "after the clock was set back the history is %+v, want the two minutes since and the running one", points)
	must.Equal(t, f.Number(`select count(*) from samples`), 2, "samples are kept")
}

// Two instances count at random, and the series of every range are what a naive recount says.
func TestSeries_sumUpInstancesOnce(t *testing.T) {
	f := storetest.Own(t)
	other := f.Beside()
	r := rand.New(rand.NewPCG(3, 3))
	type counted struct {
		at     time.Time
		source string
		label  string
		n      int64
	}
	var all []counted
	for range 70 {
		for i, st := range []*storetest.Fixture{f, other} {
			var c samples.Counts
			for _, label := range []string{"a", "b"}[:1+r.IntN(2)] {
				x := counted{f.Clock.Now(), fmt.Sprintf("w-%d", i), label, int64(1 + r.IntN(50))}
				c.Add(samples.SeriesFailure, label, x.n)
				c.Add(samples.SeriesApplied, "", x.n)
				all = append(all, x)
			}
			st.Count(fmt.Sprintf("w-%d", i), &c)
		}
		f.Clock.Advance(time.Duration(20+r.IntN(200)) * time.Second)
		f.AppendN("a", 1) // so that there is a record
		for _, st := range []*storetest.Fixture{f, other} {
			must.OK(t, st.Sample(f.Ctx))
		}
	}
	for _, name := range samples.RangeNames {
		h := must.Get(f.Beside().History(f.Ctx, samples.Range{Name: name})).Or(t)
		for _, s := range h.Series {
			want := map[int]float64{}
			for _, x := range all {
				if i, within := h.Window.Index(x.at); within && (s.Kind == samples.SeriesFailure && x.label == s.Label || s.Kind == samples.SeriesApplied && x.source == s.Label) {
					want[i] += float64(x.n)
				}
			}
			if s.Kind != samples.SeriesFailure && s.Kind != samples.SeriesApplied {
				continue
			}
			for i, v := range s.Values {
				got := -1.0
				if v != nil {
					got = *v
				}
				must.Hold(t, got == want[i] || v == nil && want[i] == 0, "%s, %s %s, step %d: %g, want %g", name, s.Kind, s.Label, i, got, want[i])
			}
		}
		must.Hold(t, len(h.Series) >= 6, "%s: only %d series", name, len(h.Series))
	}
	must.Equal(t, f.Number(`select count(*) from series_samples where at > $1`, f.Clock.Now().UnixMicro()), 0, "values are of the future")
	f.Clock.Advance(9 * 24 * time.Hour)
	f.Sampled("a", 1)
	must.Equal(t, f.Number(`select count(*) from series_samples where at < $1`, f.Clock.Now().Add(-time.Hour).UnixMicro()), 0, "values are kept for longer than eight days")
}

func TestSeries_keepTheBacklogByType(t *testing.T) {
	f := storetest.Own(t)
	must.OK(t, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "w", StartedAt: f.Clock.Now()}))
	f.Sampled("a", 3)
	f.Clock.Advance(10 * time.Minute)
	f.Drain()
	f.MustSample()
	f.Clock.Advance(5 * time.Minute)
	h := must.Get(f.Beside().History(f.Ctx, samples.Range{})).Or(t)
	backlog := h.Of(samples.SeriesBacklog, "counted")
	must.Need(t, len(backlog) == 1, "the backlog by type is %+v", backlog)
	var got []float64
	for _, v := range backlog[0].Values {
		if v != nil {
			got = append(got, *v)
		}
	}
	must.Hold(t, got[0] == 3 && got[len(got)-1] == 0, "the backlog is %v, want 3 at first and 0 at last", got)
	for _, p := range h.Points {
		i, _ := h.Window.Index(p.From)
		must.Equal(t, *backlog[0].Values[i], float64(p.CountsPeak.Total()), "from", p.From, "on wait by type")
	}
}

func TestHistory_marksDeploysVersionsAndActions(t *testing.T) {
	f := storetest.Own(t)
	f.AppendN("a", 1)
	beat := func(id, version string) {
		must.OK(t, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: id, Host: "h", Version: version, StartedAt: f.Clock.Now()}))
		for range 2 { // a second time nothing is new
			must.OK(t, f.Loaded(f.Ctx, campaign.InstanceState{ID: id, Host: "h"}, []campaign.Definition{{Projection: "orders", Version: version}}))
		}
	}
	beat("one", "v1")
	f.Clock.Advance(5 * time.Minute)
	beat("two", "v2")
	f.Clock.Advance(5 * time.Minute)
	f.MustPause("a")
	h := must.Get(f.Beside().History(f.Ctx, samples.Range{})).Or(t)
	var got []string
	for _, m := range h.Markers {
		got = append(got, fmt.Sprintf("%s %s %s%s", m.Kind, m.Subject, m.Previous, m.Version))
	}
	want := fmt.Sprint([]string{"deploy two v1v2", "version orders v1v2", "pause a "})
	must.Hold(t, fmt.Sprint(got) == want && !h.MarkersCapped, "marked are %v, want %v", got, want)
}

// What a process counted in the running minute is in its charts before it is written, and once.
func TestSeries_haveTheRunningMinute(t *testing.T) {
	f := storetest.Own(t)
	f.Sampled("a", 1)
	var c samples.Counts
	for range 100 {
		c.Delay(30 * time.Second)
	}
	for _, label := range []string{"a", "b", "c", "d", "e", "f", "g", "last"} {
		c.Add(samples.SeriesFollowed, label, int64(len(label)))
	}
	f.Count("w", &c)
	for range 2 {
		h := must.Get(f.History(f.Ctx, samples.Range{Name: samples.RangeDay})).Or(t)
		end := h.Window.Buckets() - 1
		p50, last := h.Of(samples.SeriesLatency, "p50"), h.Of(samples.SeriesFollowed, "g")
		must.Hold(t, len(p50) == 1 && p50[0].Values[end] != nil && *p50[0].Values[end] >= 27 && *p50[0].Values[end] <= 33, "the latency is %+v", p50)
		must.Hold(t, len(last) == 1 && *last[0].Values[end] == 1 && len(h.Of(samples.SeriesFollowed, "")) == samples.SeriesShown+1, "beyond those with the most: %+v", last)
		f.Clock.Advance(2 * time.Minute)
		f.Sampled("a", 1) // writes it
	}
}
