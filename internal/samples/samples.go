// Package samples keeps what charts show: each minute a sample of the state and of the campaigns that
// are the furthest behind, and what each process counted. Its tables are samples, campaign_samples and
// series_samples, in the journal database.
package samples

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const (
	sampleInterval = time.Minute
	// The campaigns that are the longest behind are sampled too, if it is for more than SampledBehind.
	lateSampled         = 100
	campaignSamplesKept = MinutesKept
)

// Samples writes and reads the samples of a store. It is safe for concurrent use, also by several
// processes.
type Samples struct {
	first     atomic.Int64 // the minute of the first sample; minus the second in which there was none
	core      *store.Store
	histories historyCache
	pace      store.Snapshot[float64]
	tally     tally
}

// New must be called once per store, before the store is used.
func New(core *store.Store) *Samples {
	s := &Samples{core: core}
	core.OnChange(s.histories.forget)
	return s
}

// Sample writes the current state, at most once a minute across all processes, and only when
// something has changed since the last sample, so that an idle system does not write. It does
// the same for each publisher. It does not use the shared summary, which may belong to the
// minute before.
func (s *Samples) Sample(ctx context.Context) error {
	sum, err := s.core.Summarize(ctx)
	if err != nil {
		return err
	}
	now := sampleOf(sum, sum.AsOf.Truncate(sampleInterval))
	last, err := s.last(ctx, now.At)
	late := sum.Oldest != nil && sum.AsOf.Sub(sum.Oldest.EnqueuedAt) > SampledBehind
	if err == nil && now.At.After(last.At) && (differ(now, last) || late) {
		err = s.writeSample(ctx, last, now)
	}
	if err == nil {
		err = s.flushCounts(ctx, now.At.UnixMicro())
	}
	if err == nil {
		err = s.core.SampleBesides(ctx, now.At.UnixMicro())
	}
	return sqldb.Wrapf(err, "sample")
}

// SampleLeft writes what earlier processes left as a sample at the end of the minute in which the last
// of them was seen, so that what they did after their last sample is not counted for the minute in
// which the next process samples. The caller must not have changed anything before.
func (s *Samples) SampleLeft(ctx context.Context, earlier []campaign.InstanceState) error {
	minute := leftAt(earlier)
	if minute.IsZero() || minute.After(sqldb.At(s.core.Now())) {
		return nil // the next regular sample is in time
	}
	sum, err := s.core.Summarize(ctx)
	if err != nil {
		return err
	}
	left := sampleOf(sum, minute)
	last, err := s.last(ctx, sum.AsOf)
	if err != nil || !last.At.Before(left.At) {
		return err
	}
	err = s.core.Journal().Write(ctx, func(t *store.Tx) error {
		var b sqldb.Batch
		if err := addSample(t, &b, left); err != nil {
			return err
		}
		addLate(&b, left.At.UnixMicro())
		return t.Finish(&b)
	})
	if err == nil {
		err = s.core.SampleBesides(ctx, left.At.UnixMicro())
	}
	return err
}

// leftAt is the end of the minute in which the last of the instances was seen; zero without any.
func leftAt(instances []campaign.InstanceState) time.Time {
	var seen time.Time
	for _, i := range instances {
		if i.LastSeen.After(seen) {
			seen = i.LastSeen
		}
	}
	if seen.IsZero() {
		return seen
	}
	return seen.Truncate(sampleInterval).Add(sampleInterval)
}

func sampleOf(sum campaign.Summary, at time.Time) Sample {
	x := Sample{At: at, Counts: sum.Counts, LagEvents: sum.Lag.Events, Blocked: sum.Campaigns.Blocked, Applied: sum.Worker.Applied, Failed: sum.Worker.Failed}
	if sum.Oldest != nil {
		x.OldestEnqueuedAt = sum.Oldest.EnqueuedAt
	}
	return x
}

// differ reports whether samples differ in more than their time.
func differ(a, b Sample) bool {
	a.At = b.At
	return a != b
}

const sampleColumns = `minute, pending, processing, failed, dead, lag_events, blocked, oldest_enqueued_at, applied_total, failed_total`

func scanSample(row sqldb.Row) (x Sample, err error) {
	c := &x.Counts
	err = row.Scan(sqldb.ScanTime(&x.At), &c.Pending, &c.Processing, &c.Failed, &c.Dead, &x.LagEvents, &x.Blocked, sqldb.ScanTime(&x.OldestEnqueuedAt), &x.Applied, &x.Failed)
	return x, err
}

// last is the last sample up to a time, and empty without one.
func (s *Samples) last(ctx context.Context, at time.Time) (Sample, error) {
	return store.Reading(ctx, s.core, "", func(t *store.Tx) (Sample, error) {
		last, _, err := sqldb.First(t, scanSample, `select `+sampleColumns+` from samples where minute <= $1 order by minute desc limit 1`, at.UnixMicro())
		return last, err
	})
}

const insertSample = `
insert into samples (` + sampleColumns + `)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (minute) do nothing`

// Another process may already have taken this minute's sample.
const insertLate = `
insert into campaign_samples (campaign_id, minute, lag_events, oldest_enqueued_at)
select campaign_id, cast($1 as bigint), high_water_seq - applied_seq, oldest_enqueued_at
from campaigns
where oldest_enqueued_at < $2
order by oldest_enqueued_at, campaign_id
limit $3
on conflict (campaign_id, minute) do nothing`

// writeSample writes a sample. The last one is kept however old it is: the totals of the next are
// counted from it.
func (s *Samples) writeSample(ctx context.Context, last, x Sample) error {
	minute := x.At.UnixMicro()
	return s.core.Journal().Write(ctx, func(t *store.Tx) error {
		var b sqldb.Batch
		if differ(x, last) {
			if err := addSample(t, &b, x); err != nil {
				return err
			}
		}
		addLate(&b, minute)
		pruneSeries(&b, minute)
		for table, before := range map[string]int64{
			"samples":          min(sqldb.Micros(last.At), minute-store.SamplesKept.Microseconds()),
			"campaign_samples": minute - campaignSamplesKept.Microseconds(),
		} {
			b.Exec(nil, `delete from `+table+` where minute < $1`, before)
			b.Exec(nil, `delete from `+table+` where minute > $1`, minute+store.SamplesAhead.Microseconds())
		}
		return t.Finish(&b)
	})
}

func addSample(t *store.Tx, b *sqldb.Batch, x Sample) error {
	minute, c := x.At.UnixMicro(), x.Counts
	b.Exec(nil, insertSample, minute, c.Pending, c.Processing, c.Failed, c.Dead, x.LagEvents, x.Blocked, sqldb.MicrosOrNull(x.OldestEnqueuedAt), x.Applied, x.Failed)
	return writeBacklog(t, b, minute)
}

// addLate samples the campaigns that are the longest behind.
func addLate(b *sqldb.Batch, minute int64) {
	b.Exec(nil, insertLate, minute, minute-SampledBehind.Microseconds(), lateSampled)
	for _, series := range seriesSteps {
		b.Exec(nil, insertBehind, seconds(series.step), floor(minute, series.step), minute-SampledBehind.Microseconds(), lateSampled)
	}
}

// The samples of a window, and the one before it.
const selectSamples = `
select ` + sampleColumns + `
from samples
where minute >= coalesce((select max(minute) from samples where minute <= $1), 0)
  and minute <= $2
order by minute`

// historiesKept is how many ranges have a cached history.
const historiesKept = 16

// historyCache has the recent history of each range that is read.
type historyCache struct {
	mu     sync.Mutex
	ranges map[Range]*store.Snapshot[History]
}

func (c *historyCache) of(r Range) *store.Snapshot[History] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ranges == nil || c.ranges[r] == nil && len(c.ranges) >= historiesKept {
		c.ranges = make(map[Range]*store.Snapshot[History])
	}
	if c.ranges[r] == nil {
		c.ranges[r] = new(store.Snapshot[History])
	}
	return c.ranges[r]
}

func (c *historyCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranges = nil
}

// History is the data of charts over a range, at most a second old. Callers share it and must
// not change it.
func (s *Samples) History(ctx context.Context, r Range) (History, error) {
	return s.histories.of(r).Get(ctx, func() (History, error) { return s.readHistory(context.WithoutCancel(ctx), r) })
}

const selectFirst = `
select coalesce(min(minute), 0)
from samples`

// Begun is a range that knows when the first sample began; now if there is none yet. The first one is read once: where
// it is pruned since, the range begins earlier than what is kept.
func (s *Samples) Begun(ctx context.Context, r Range) (Range, error) {
	first, second := s.first.Load(), s.core.Now()/1e6
	if first <= 0 && first != -second {
		err := s.core.Journal().Read(ctx, func(t *store.Tx) error {
			_, err := t.One([]any{&first}, selectFirst)
			return err
		})
		if err != nil {
			return r, fmt.Errorf("find the first sample: %w", err)
		}
		if first == 0 {
			first = -second
		}
		s.first.Store(first)
	}
	if r.Begun = sqldb.At(first); first <= 0 {
		r.Begun = sqldb.At(s.core.Now()).Truncate(time.Minute).Add(time.Microsecond)
	}
	r.Begun = r.Begun.Add(-1) // a sample is of the step that ends with it
	return r, nil
}

// A sample is taken each minute in which something changed. The last one before the time is what the
// first one after it is counted from.
const selectAppliedTotals = `
select minute, applied_total
from samples
where minute >= coalesce((select max(minute) from samples where minute <= $1), 0)
order by minute desc`

// Pace is the rate that estimates of time assume, from the samples of a day; see campaign.Pace. It is
// shared and at most a second old.
func (s *Samples) Pace(ctx context.Context) (float64, error) {
	summary, err := s.core.Summary(ctx)
	if err != nil {
		return 0, err
	}
	return s.pace.Get(ctx, func() (float64, error) {
		totals, first := []int64{summary.Worker.Applied}, int64(0)
		since := sqldb.At(s.core.Now()).Add(-24 * time.Hour).UnixMicro()
		err := s.core.Journal().Read(context.WithoutCancel(ctx), func(t *store.Tx) error {
			return t.Each(func(row sqldb.Row) error {
				var total int64
				err := row.Scan(&first, &total)
				totals = append(totals, total)
				return err
			}, selectAppliedTotals, since)
		})
		if err != nil {
			return 0, fmt.Errorf("read the samples: %w", err)
		}
		if first > since {
			totals = append(totals, 0) // until the first sample there was nothing to count
		}
		return campaign.Pace(max(summary.Throughput.AppliedPerSecond, summary.BusyPace()), totals), nil
	})
}

func (s *Samples) readHistory(ctx context.Context, r Range) (History, error) {
	sum, err := s.core.Summary(ctx) // the running step
	if err != nil {
		return History{}, err
	}
	w := r.Window(sqldb.At(s.core.Now()))
	h := History{Range: r.Label(), Span: r.Span(), From: w.From, To: w.To, StepSeconds: w.Step.Seconds(), Window: w}
	err = s.core.Journal().Read(ctx, func(t *store.Tx) error {
		instances, err := t.RecentInstances(w.From)
		if err != nil {
			return err
		}
		samples, err := sqldb.All(t, scanSample, selectSamples, w.From.UnixMicro(), w.To.UnixMicro())
		if err != nil {
			return err
		}
		atWork := AtWork(instances, w.Now)
		if w.To.After(w.Now) {
			live := sampleOf(sum, w.Now)
			samples = append(samples, live)
			over := !slices.ContainsFunc(atWork, func(x Interval) bool { return x.To.After(w.Now) })
			if left := leftAt(instances); over && left.Before(w.Now) && (len(samples) == 1 || samples[len(samples)-2].At.Before(left)) {
				live.At = left // what the next start will sample
				samples = slices.Insert(samples, len(samples)-1, live)
			}
		}
		lost := LostInstances(instances, w.Now)
		h.Points = Points(samples, w, atWork, lost)
		if err := readSeries(t, &h, &s.tally); err != nil {
			return err
		}
		h.Markers, h.MarkersCapped, err = markers(t, w, instances, lost)
		return err
	})
	return h, sqldb.Wrapf(err, "read the history")
}

const (
	selectCampaignMinutes = `
select minute, lag_events, oldest_enqueued_at
from campaign_samples
where campaign_id = $1
  and minute >= $2
  and minute < $3
order by minute`

	selectCampaignQuarters = `
select at, value, at
from series_samples
where label = $1
  and at >= $2
  and at < $3
  and kind = 'behind'
  and step = $4
order by at`
)

// CampaignHistory lists how far behind a campaign was over a range, in order: at each minute, or
// at most in each quarter of an hour where that is the range's resolution, without the age of the
// oldest event. Without a point it was behind for less than SampledBehind, or a hundred
// campaigns were for longer.
func (s *Samples) CampaignHistory(ctx context.Context, id string, r Range) ([]CampaignPoint, error) {
	w := r.Window(sqldb.At(s.core.Now()))
	query, args := selectCampaignMinutes, []any{id, w.From.UnixMicro(), w.To.UnixMicro()}
	if storedStep(w) == CoarseStep {
		query, args = selectCampaignQuarters, append(args, seconds(CoarseStep))
	}
	return store.Reading(ctx, s.core, fmt.Sprintf("read the history of campaign %q", id), func(t *store.Tx) ([]CampaignPoint, error) {
		return sqldb.All(t, func(row sqldb.Row) (p CampaignPoint, err error) {
			var minute, oldest int64
			err = row.Scan(&minute, &p.LagEvents, &oldest)
			p.At, p.LagSeconds = sqldb.At(minute), max(0, float64(minute-oldest)/1e6)
			return p, err
		}, query, args...)
	})
}
