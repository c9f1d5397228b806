package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Two instances count at random, and the series of every range are what a naive recount says.
func TestSeries_sumUpInstancesOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := f.beside()
	r := rand.New(rand.NewPCG(3, 3))
	type counted struct {
		at     time.Time
		source string
		label  string
		n      int64
	}
	var all []counted
	for range 70 {
		for i, st := range []*fixture{f, other} {
			var c store.Counts
			for _, label := range []string{"a", "b"}[:1+r.IntN(2)] {
				x := counted{f.Clock.Now(), fmt.Sprintf("w-%d", i), label, int64(1 + r.IntN(50))}
				c.Add(outbox.SeriesFailure, label, x.n)
				c.Add(outbox.SeriesApplied, "", x.n)
				all = append(all, x)
			}
			st.Count(fmt.Sprintf("w-%d", i), &c)
		}
		f.Clock.Advance(time.Duration(20+r.IntN(200)) * time.Second)
		f.AppendN("a", 1) // so that there is a record
		for _, st := range []*fixture{f, other} {
			must.OK(t, st.Sample(f.Ctx))
		}
	}
	for _, name := range outbox.RangeNames {
		h := must.Get(f.beside().History(f.Ctx, outbox.Range{Name: name})).Or(t)
		for _, s := range h.Series {
			want := map[int]float64{}
			for _, x := range all {
				if i, within := h.Window.Index(x.at); within && (s.Kind == outbox.SeriesFailure && x.label == s.Label || s.Kind == outbox.SeriesApplied && x.source == s.Label) {
					want[i] += float64(x.n)
				}
			}
			if s.Kind != outbox.SeriesFailure && s.Kind != outbox.SeriesApplied {
				continue
			}
			for i, v := range s.Values {
				got := -1.0
				if v != nil {
					got = *v
				}
				if got != want[i] && (v != nil || want[i] != 0) {
					t.Errorf("%s, %s %s, step %d: %g, want %g", name, s.Kind, s.Label, i, got, want[i])
				}
			}
		}
		must.Hold(t, len(h.Series) >= 6, "%s: only %d series", name, len(h.Series))
	}
	must.Equal(t, f.Number(`select count(*) from series_samples where at > $1`, f.Clock.Now().UnixMicro()), 0, "values are of the future")
	f.Clock.Advance(9 * 24 * time.Hour)
	f.AppendN("a", 1)
	f.MustSample()
	must.Equal(t, f.Number(`select count(*) from series_samples where at < $1`, f.Clock.Now().Add(-time.Hour).UnixMicro()), 0, "values are kept for longer than eight days")
}

func TestSeries_keepTheBacklogByType(t *testing.T) {
	t.Parallel()
	f := open(t)
	must.OK(t, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: "w", StartedAt: f.Clock.Now()}))
	f.AppendN("a", 3)
	f.MustSample()
	f.Clock.Advance(10 * time.Minute)
	f.Drain()
	f.MustSample()
	f.Clock.Advance(5 * time.Minute)
	h := must.Get(f.beside().History(f.Ctx, outbox.Range{})).Or(t)
	for _, s := range h.Series {
		if s.Kind != outbox.SeriesBacklog {
			continue
		}
		var got []float64
		for _, v := range s.Values {
			if v != nil {
				got = append(got, *v)
			}
		}
		must.Hold(t, got[0] == 3 && got[len(got)-1] == 0, "the backlog is %v, want 3 at first and 0 at last", got)
		for _, p := range h.Points {
			if i, _ := h.Window.Index(p.From); *s.Values[i] != float64(p.CountsPeak.Total()) {
				t.Errorf("from %v on %v wait of all types, and %v by type", p.From, p.CountsPeak.Total(), *s.Values[i])
			}
		}
		return
	}
	t.Error("there is no backlog by type")
}

func TestHistory_marksDeploysVersionsAndActions(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	beat := func(id, version string) {
		must.OK(t, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: id, Host: "h", Version: version, StartedAt: f.Clock.Now()}))
		for range 2 { // a second time nothing is new
			must.OK(t, f.Loaded(f.Ctx, outbox.InstanceState{ID: id, Host: "h"}, []outbox.Definition{{Projection: "orders", Version: version}}))
		}
	}
	beat("one", "v1")
	f.Clock.Advance(5 * time.Minute)
	beat("two", "v2")
	f.Clock.Advance(5 * time.Minute)
	f.MustPause("a")
	h := must.Get(f.beside().History(f.Ctx, outbox.Range{})).Or(t)
	var got []string
	for _, m := range h.Markers {
		got = append(got, fmt.Sprintf("%s %s %s%s", m.Kind, m.Subject, m.Previous, m.Version))
	}
	want := fmt.Sprint([]string{"deploy two v1v2", "version orders v1v2", "pause a "})
	must.Hold(t, fmt.Sprint(got) == want && !h.MarkersCapped, "marked are %v, want %v", got, want)
}

func TestSeqBefore_findsEventsByTheirTime(t *testing.T) {
	t.Parallel()
	f := open(t)
	var times []time.Time
	for range 9 {
		f.AppendN("a", 1)
		times = append(times, f.Clock.Now())
		f.Clock.Advance(time.Minute)
	}
	c := f.MustCampaign("a")
	for i, at := range times {
		for _, x := range []struct {
			at   time.Time
			want int
		}{{at, i}, {at.Add(time.Second), i + 1}} {
			must.Equal(t, must.Get(f.SeqBefore(f.Ctx, c, x.at)).Or(t), int64(x.want), "before", x.at, "seq")
		}
	}
}

// What a process counted in the running minute is in its charts before it is written, and once.
func TestSeries_haveTheRunningMinute(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.MustSample()
	var c store.Counts
	for range 100 {
		c.Delay(30 * time.Second)
	}
	for _, label := range []string{"a", "b", "c", "d", "e", "f", "g", "last"} {
		c.Add(outbox.SeriesFollowed, label, int64(len(label)))
	}
	f.Count("w", &c)
	for range 2 {
		h := must.Get(f.History(f.Ctx, outbox.Range{Name: outbox.RangeDay})).Or(t)
		end := h.Window.Buckets() - 1
		p50, last := h.Of(outbox.SeriesLatency, "p50"), h.Of(outbox.SeriesFollowed, "g")
		must.Hold(t, len(p50) == 1 && p50[0].Values[end] != nil && *p50[0].Values[end] >= 27 && *p50[0].Values[end] <= 33, "the latency is %+v", p50)
		must.Hold(t, len(last) == 1 && *last[0].Values[end] == 1 && len(h.Of(outbox.SeriesFollowed, "")) == outbox.SeriesShown+1, "beyond those with the most: %+v", last)
		f.Clock.Advance(2 * time.Minute)
		f.AppendN("a", 1)
		f.MustSample() // writes it
	}
}
