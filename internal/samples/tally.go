package samples

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Counts are numbers of one wave for the series of charts. A Counts is used by one goroutine.
type Counts struct {
	delays  [DelayBuckets]int64
	labeled map[seriesKey]int64
}

type seriesKey struct {
	kind  SeriesKind
	label string
}

// Delay counts an applied event that waited for a time.
func (c *Counts) Delay(d time.Duration) { c.delays[DelayBucket(d)]++ }

// Add adds a number to a label of a series.
func (c *Counts) Add(kind SeriesKind, label string, n int64) {
	if n == 0 {
		return
	}
	if c.labeled == nil {
		c.labeled = make(map[seriesKey]int64)
	}
	c.labeled[seriesKey{kind, label}] += n
}

// AddFailure adds a failed attempt to the series of its error and of its projection.
func (c *Counts) AddFailure(f readmodel.Failure) {
	c.Add(SeriesFailure, f.Fingerprint, 1)
	c.Add(SeriesFailedIn, f.Projection, 1)
}

// tally keeps what this process counted in each minute until it is written.
type tally struct {
	mu      sync.Mutex
	minutes map[int64]*minuteTally
}

type minuteTally struct {
	source string
	Counts
}

const (
	// tallyLabels is the maximum number of labels counted in a minute; the rest is Other.
	tallyLabels = 200
	// tallyMinutes is the maximum number of minutes kept while the database cannot be written.
	tallyMinutes = 60
)

// Count adds what a process counted to the series of charts. FlushCounts or the next sample writes it.
func (s *Samples) Count(source string, c *Counts) {
	minute := sqldb.At(s.core.Now()).Truncate(sampleInterval).UnixMicro()
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	s.tally.at(minute, source).merge(c)
}

// merge adds other counts to those of a minute.
func (m *minuteTally) merge(other *Counts) {
	for b, n := range other.delays {
		m.delays[b] += n
	}
	for key, n := range other.labeled {
		if _, known := m.labeled[key]; !known && len(m.labeled) >= tallyLabels {
			key.label = Other
		}
		m.labeled[key] += n
	}
}

func (t *tally) at(minute int64, source string) *minuteTally {
	if t.minutes == nil {
		t.minutes = make(map[int64]*minuteTally)
	}
	if m := t.minutes[minute]; m != nil {
		return m
	}
	if len(t.minutes) >= tallyMinutes {
		oldest := minute
		for at := range t.minutes {
			oldest = min(oldest, at)
		}
		delete(t.minutes, oldest)
	}
	m := &minuteTally{source: source, Counts: Counts{labeled: make(map[seriesKey]int64)}}
	t.minutes[minute] = m
	return m
}

// each visits everything counted that is not written.
func (t *tally) each(visit func(at int64, source string, key seriesKey, n int64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, m := range t.minutes {
		for key, n := range m.all() {
			visit(at, m.source, key, n)
		}
	}
}

// take removes and returns the minutes before a time.
func (t *tally) take(before int64) map[int64]*minuteTally {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := make(map[int64]*minuteTally)
	for at, m := range t.minutes {
		if at < before {
			taken[at] = m
			delete(t.minutes, at)
		}
	}
	return taken
}

// giveBack returns minutes that could not be written.
func (t *tally) giveBack(minutes map[int64]*minuteTally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, m := range minutes {
		t.at(at, m.source).merge(&m.Counts)
	}
}

// A process adds to its own rows only, so several together count everything once.
const addSeries = `
insert into series_samples (kind, step, at, label, source, value)
values ($1, $2, $3, $4, $5, $6)
on conflict (kind, step, at, label, source) do update
set value = series_samples.value + excluded.value`

// seriesSteps are the steps of stored series, and how long they are kept.
var seriesSteps = []struct{ step, kept time.Duration }{{sampleInterval, MinutesKept + time.Hour}, {CoarseStep, store.SamplesKept}}

// FlushCounts writes everything counted so far, also of the running minute.
func (s *Samples) FlushCounts(ctx context.Context) error { return s.flushCounts(ctx, sqldb.FarFuture) }

// flushCounts writes what was counted in the minutes before a time.
func (s *Samples) flushCounts(ctx context.Context, before int64) error {
	minutes := s.tally.take(before)
	if len(minutes) == 0 || s.core.ReadOnly() {
		return nil
	}
	err := s.core.Journal().Write(ctx, func(t *store.Tx) error {
		var b sqldb.Batch
		for at, m := range minutes {
			m.insertInto(&b, at)
		}
		return t.Finish(&b)
	})
	if err != nil {
		s.tally.giveBack(minutes)
	}
	return err
}

// all is everything counted in the minute.
func (m *minuteTally) all() map[seriesKey]int64 {
	all := maps.Clone(m.labeled)
	for bucket, n := range m.delays {
		if n > 0 {
			all[seriesKey{SeriesDelay, strconv.Itoa(bucket)}] = n
		}
	}
	return all
}

func (m *minuteTally) insertInto(b *sqldb.Batch, at int64) {
	for _, x := range seriesSteps {
		for key, n := range m.all() {
			b.Exec(nil, addSeries, string(key.kind), seconds(x.step), floor(at, x.step), key.label, m.source, n)
		}
	}
}

func seconds(step time.Duration) int64 { return int64(step / time.Second) }

func floor(at int64, step time.Duration) int64 { return at - at%step.Microseconds() }

const (
	// backlogSearched is the maximum number of rows counted by event type.
	backlogSearched = 20000
	backlogTypes    = 20
)

const selectBacklog = `
select event_type, count(*)
from (
  select event_type
  from projection_apply_outbox
  order by campaign_id, seq
  limit $1
) as seen
group by event_type
order by count(*) desc, event_type
limit $2`

// A sample of the backlog replaces the quarter hour's sample before.
const (
	deleteBacklog = `
delete from series_samples
where kind = 'backlog'
  and step = $1
  and at = $2`

	// Taken twice, by two processes, it is the same.
	setSeries = `
insert into series_samples (kind, step, at, label, source, value)
values ($1, $2, $3, $4, '', $5)
on conflict (kind, step, at, label, source) do update
set value = excluded.value`

	insertBehind = `
insert into series_samples (kind, step, at, label, source, value)
select 'behind', cast($1 as bigint), cast($2 as bigint), campaign_id, '', high_water_seq - applied_seq
from campaigns
where oldest_enqueued_at < $3
order by oldest_enqueued_at, campaign_id
limit $4
on conflict (kind, step, at, label, source) do update
set value = case when series_samples.value > excluded.value then series_samples.value else excluded.value end`
)

// writeBacklog samples the backlog at a minute: the rows waiting by event type, of the first
// backlogSearched.
func writeBacklog(t *store.Tx, b *sqldb.Batch, minute int64) error {
	types := map[string]int64{"": 0} // also an empty backlog has a sample
	if err := t.Each(sqldb.CollectMap(types), selectBacklog, backlogSearched, backlogTypes); err != nil {
		return err
	}
	for _, x := range seriesSteps {
		at := floor(minute, x.step)
		b.Exec(nil, deleteBacklog, seconds(x.step), at)
		for _, eventType := range slices.Sorted(maps.Keys(types)) {
			b.Exec(nil, setSeries, string(SeriesBacklog), seconds(x.step), at, eventType, types[eventType])
		}
	}
	return nil
}

// pruneSeries deletes series that are older than they are kept, and those from before a clock was
// set back.
func pruneSeries(b *sqldb.Batch, minute int64) {
	for _, x := range seriesSteps {
		b.Exec(nil, `delete from series_samples where step = $1 and at < $2`, seconds(x.step), minute-x.kept.Microseconds())
		b.Exec(nil, `delete from series_samples where step = $1 and at > $2`, seconds(x.step), minute+store.SamplesAhead.Microseconds())
	}
}
