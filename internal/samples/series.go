package samples

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const selectCounted = `
select kind, label, source, (at - cast($1 as bigint)) / cast($2 as bigint) as bucket, sum(value)
from series_samples
where kind = $3
  and step = $4
  and at >= $1
  and at < $5
group by kind, label, source, bucket`

// storedStep is the step in which the series of a window are read.
func storedStep(w Window) time.Duration {
	if w.Step%CoarseStep == 0 {
		return CoarseStep
	}
	return sampleInterval
}

// readSeries reads the series of a history, with what this process counted and has not written.
func readSeries(t *store.Tx, h *History, counting *tally) (err error) {
	w, recorded := h.Window, h.Recorded()
	h.Counted, h.Series = map[SeriesKind]Counted{}, []Series{}
	if storedStep(w) < CoarseStep && w.Now.Sub(w.From) > MinutesKept {
		return nil // of a range beside another: what is left of it is no record
	}
	delays := make([]*[DelayBuckets]int64, w.Buckets())
	add := func(key seriesKey, source string, bucket int, n int64) {
		switch key.kind {
		case SeriesDelay:
			if b, err := strconv.Atoi(key.label); err == nil && b >= 0 && b < DelayBuckets {
				if delays[bucket] == nil {
					delays[bucket] = new([DelayBuckets]int64)
				}
				delays[bucket][b] += n
			}
		case SeriesApplied:
			h.Counted[key.kind].Add(source, bucket, float64(n))
		default:
			h.Counted[key.kind].Add(key.label, bucket, float64(n))
		}
	}
	for _, kind := range CountedSeries {
		h.Counted[kind] = Counted{}
		err := t.Each(func(row sqldb.Row) error {
			var key seriesKey
			var source string
			var bucket int
			var n int64
			err := row.Scan(&key.kind, &key.label, &source, &bucket, &n)
			if err == nil {
				add(key, source, bucket, n)
			}
			return err
		}, selectCounted, w.From.UnixMicro(), w.Step.Microseconds(), string(kind), seconds(storedStep(w)), w.To.UnixMicro())
		if err != nil {
			return err
		}
	}
	counting.each(func(at int64, source string, key seriesKey, n int64) {
		if bucket, within := w.Index(sqldb.At(at)); within {
			add(key, source, bucket, n)
		}
	})
	h.Series = Latency(delays)
	h.Counted[SeriesBacklog], err = readBacklog(t, w, recorded)
	for _, kind := range append(CountedSeries, SeriesBacklog) {
		h.Series = append(h.Series, h.Counted[kind].Top(kind, recorded)...)
	}
	return err
}

const selectBacklogs = `
select at, label, value
from series_samples
where kind = 'backlog'
  and step = $1
  and at >= coalesce((select max(at) from series_samples where kind = 'backlog' and step = $1 and at <= $2), 0)
  and at < $3
order by at`

// readBacklog reads the backlog by event type at the sample of each step, its beginning included, at which
// it was largest, as the chart of all does. Without a sample it is as at the sample before.
func readBacklog(t *store.Tx, w Window, recorded []bool) (Counted, error) {
	sets := map[int64]map[string]float64{}
	var order []int64
	err := t.Each(func(row sqldb.Row) error {
		var at int64
		var label string
		var n float64
		err := row.Scan(&at, &label, &n)
		if sets[at] == nil {
			sets[at] = map[string]float64{}
			order = append(order, at)
		}
		if label != "" {
			sets[at][label] = n
		}
		return err
	}, selectBacklogs, seconds(storedStep(w)), w.From.UnixMicro(), w.To.UnixMicro())
	if err != nil {
		return nil, err
	}
	stored := storedStep(w)
	lag := stored - sampleInterval // a quarter's sample is of its last minute
	counted, next := Counted{}, 0
	var current map[string]float64
	for i := range w.Buckets() {
		peak := current
		for ; next < len(order) && order[next] <= w.Start(i+1).Add(-lag).UnixMicro(); next++ {
			if current = sets[order[next]]; total(current) >= total(peak) {
				peak = current
			}
		}
		for label, n := range peak {
			if recorded[i] {
				counted.Add(label, i, n)
			}
		}
	}
	return counted, nil
}

func total(set map[string]float64) (n float64) {
	for _, v := range set {
		n += v
	}
	return n
}

const (
	selectWorst = `
select label, max(value)
from series_samples
where kind = 'behind'
  and step = $1
  and at >= $2
  and at < $3
group by label
order by max(value) desc, label
limit $4`

	// A minute's sample between two steps is of both, until $6; a quarter's is of the time after it.
	selectCells = `
select (at - cast($2 as bigint)) / cast($4 as bigint) as bucket, max(value)
from series_samples
where kind = 'behind'
  and step = $1
  and at >= $2
  and at < $3
  and label = $5
group by bucket
union all
select (at - cast($2 as bigint) - 1) / cast($4 as bigint) as bucket, max(value)
from series_samples
where kind = 'behind'
  and step = $1
  and at > $2
  and at <= $6
  and label = $5
group by bucket`
)

// Heatmap returns how far the campaigns were behind that were the furthest behind in a range. Only
// campaigns that are behind for SampledBehind are sampled, at most a hundred at a time.
func (s *Samples) Heatmap(ctx context.Context, r Range) (Heatmap, error) {
	w := r.Window(sqldb.At(s.core.Now()))
	h := Heatmap{From: w.From, To: w.To, StepSeconds: w.Step.Seconds(), Campaigns: []HeatmapRow{}, Window: w}
	step, until := seconds(storedStep(w)), w.To
	if storedStep(w) == CoarseStep {
		until = w.From
	}
	err := s.core.Journal().Read(ctx, func(t *store.Tx) error {
		err := t.Each(func(row sqldb.Row) error {
			x := HeatmapRow{LagEvents: make([]int64, w.Buckets())}
			err := row.Scan(&x.CampaignID, &x.Worst)
			h.Campaigns = append(h.Campaigns, x)
			return err
		}, selectWorst, step, w.From.UnixMicro(), w.To.UnixMicro(), HeatmapRows)
		for i := range h.Campaigns {
			if err != nil {
				return err
			}
			x := &h.Campaigns[i]
			err = t.Each(func(row sqldb.Row) error {
				var bucket int
				var n int64
				err := row.Scan(&bucket, &n)
				if err == nil {
					x.LagEvents[bucket] = max(x.LagEvents[bucket], n)
				}
				return err
			}, selectCells, step, w.From.UnixMicro(), w.To.UnixMicro(), w.Step.Microseconds(), x.CampaignID, until.UnixMicro())
		}
		return err
	})
	return h, sqldb.Wrapf(err, "read the heatmap")
}

// markersSearched is the maximum number of audit entries searched for markers, the latest first.
const markersSearched = 200

// markers are the markers of a window, oldest first.
func markers(t *store.Tx, w Window, instances []campaign.InstanceState, lost []Marker) (all []Marker, capped bool, err error) {
	acts, err := store.AuditList(operator.AuditFilter{Outcome: operator.AuditDone, Since: w.From, Until: w.To}).Read(t, sqldb.Place{}, markersSearched)
	if err != nil {
		return nil, false, err
	}
	all = make([]Marker, 0, len(acts.Items))
	for _, a := range acts.Items {
		if m, marked := MarkerOf(a); marked {
			all = append(all, m)
		}
	}
	for _, m := range append(Deploys(instances), lost...) {
		if _, within := w.Index(m.At); within {
			all = append(all, m)
		}
	}
	loads, err := t.VersionLoads(w.From.UnixMicro(), w.To.UnixMicro())
	for _, l := range loads {
		all = append(all, Marker{Kind: MarkerVersion, Subject: l.Projection, At: l.At, Version: l.Version, Previous: l.Previous, Host: l.Host})
	}
	slices.SortStableFunc(all, func(a, b Marker) int { return a.At.Compare(b.At) })
	return all, acts.Ending != sqldb.AtEnd, err
}
