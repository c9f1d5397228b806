package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
)

const (
	sampleInterval = time.Minute
	SamplesKept    = 8 * 24 * time.Hour
	// The campaigns that are the furthest behind are sampled too, if it is by more than lateAfter.
	lateSampled         = 100
	lateAfter           = time.Minute
	campaignSamplesKept = 25 * time.Hour
	// SamplesAhead is the largest accepted difference between the clocks of several processes. A
	// sample further in the future was taken before a clock was set back.
	SamplesAhead = time.Hour
)

// sampled is a sample as stored.
type sampled struct {
	minute int64
	fields sampleFields
}

// sampleFields are the compared fields of a sample: all but its time.
type sampleFields struct {
	counts       outbox.Counts
	lag, blocked int64
	oldest       sql.NullInt64
	applied      int64
	failed       int64
}

// Sample writes the current state, at most once a minute across all processes, and only when
// something has changed since the last sample, so that an idle system does not write. It does
// the same for each publisher. It does not use the shared summary, which may belong to the
// minute before.
func (s *Store) Sample(ctx context.Context) error {
	sum, err := s.summarize(ctx)
	if err != nil {
		return err
	}
	now := sampled{minute: sum.AsOf.Truncate(sampleInterval).UnixMicro(), fields: fieldsOf(sum)}
	var last sampled
	err = s.journal.Read(ctx, func(t *Tx) (err error) {
		last, err = t.lastSample(now.minute)
		return err
	})
	late := sum.Oldest != nil && sum.AsOf.Sub(sum.Oldest.EnqueuedAt) > lateAfter
	if err == nil && now.minute > last.minute && (now.fields != last.fields || late) {
		err = s.writeSample(ctx, now, now.fields != last.fields)
	}
	for _, sample := range s.onSample {
		if err == nil {
			err = sample(ctx, now.minute)
		}
	}
	if err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	return nil
}

func fieldsOf(sum outbox.Summary) sampleFields {
	f := sampleFields{counts: sum.Counts, lag: sum.Lag.Events, blocked: sum.Campaigns.Blocked, applied: sum.Worker.Applied, failed: sum.Worker.Failed}
	if sum.Oldest != nil {
		f.oldest = sql.NullInt64{Int64: sum.Oldest.EnqueuedAt.UnixMicro(), Valid: true}
	}
	return f
}

const sampleColumns = `minute, pending, processing, failed, dead, lag_events, blocked, oldest_enqueued_at, applied_total, failed_total`

func (x *sampled) dest() []any {
	f := &x.fields
	return []any{&x.minute, &f.counts.Pending, &f.counts.Processing, &f.counts.Failed, &f.counts.Dead, &f.lag, &f.blocked, &f.oldest, &f.applied, &f.failed}
}

// lastSample is the latest sample up to a minute.
func (t *Tx) lastSample(minute int64) (sampled, error) {
	var last sampled
	_, err := t.One(last.dest(), `select `+sampleColumns+` from samples where minute <= $1 order by minute desc limit 1`, minute)
	return last, err
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
where ` + ageKey + ` < $2
order by ` + ageKey + `, campaign_id
limit $3
on conflict (campaign_id, minute) do nothing`

func (s *Store) writeSample(ctx context.Context, x sampled, changed bool) error {
	return s.journal.Write(ctx, func(t *Tx) error {
		var b sqldb.Batch
		if f := x.fields; changed {
			b.Exec(nil, insertSample, x.minute, f.counts.Pending, f.counts.Processing, f.counts.Failed, f.counts.Dead, f.lag, f.blocked, f.oldest, f.applied, f.failed)
		}
		b.Exec(nil, insertLate, x.minute, x.minute-lateAfter.Microseconds(), lateSampled)
		for table, kept := range map[string]time.Duration{"samples": SamplesKept, "campaign_samples": campaignSamplesKept} {
			b.Exec(nil, `delete from `+table+` where minute < $1`, x.minute-kept.Microseconds())
			b.Exec(nil, `delete from `+table+` where minute > $1`, x.minute+SamplesAhead.Microseconds())
		}
		return t.Finish(&b)
	})
}

const selectSamples = `
select ` + sampleColumns + `
from samples
where minute >= coalesce((select max(minute) from samples where minute <= $1), 0)
order by minute`

// History is the series of samples over a span that ends now, at most a second old. Callers
// share it and must not change it.
func (s *Store) History(ctx context.Context, span outbox.Span) (outbox.History, error) {
	cache := &s.histories[0]
	if span == outbox.SpanDay {
		cache = &s.histories[1]
	}
	return cache.Get(ctx, func() (outbox.History, error) { return s.readHistory(context.WithoutCancel(ctx), span) })
}

// Pace is the highest recent rate in events per second, now or averaged over a minute of the
// last day; 0 when nothing was applied. Samples are means, so a short burst may have been
// faster.
func (s *Store) Pace(ctx context.Context) (float64, error) {
	summary, err := s.Summary(ctx)
	if err != nil {
		return 0, err
	}
	pace := summary.Throughput.AppliedPerSecond
	for _, span := range outbox.Spans {
		history, err := s.History(ctx, span)
		if err != nil {
			return 0, err
		}
		for _, p := range history.Points {
			pace = max(pace, p.AppliedPerSecond)
		}
	}
	return pace, nil
}

func (s *Store) readHistory(ctx context.Context, span outbox.Span) (outbox.History, error) {
	end := sqldb.At(s.Now())
	from := end.Truncate(span.Step()).Add(-time.Duration(span.Points()) * span.Step())
	var samples []outbox.Sample
	err := s.journal.Read(ctx, func(t *Tx) error {
		return t.Each(func(row sqldb.Row) error {
			var x sampled
			err := row.Scan(x.dest()...)
			samples = append(samples, x.view())
			return err
		}, selectSamples, from.UnixMicro())
	})
	if err != nil {
		return outbox.History{}, fmt.Errorf("read the history: %w", err)
	}
	return outbox.Series(samples, span, end), nil
}

func (x sampled) view() outbox.Sample {
	f := x.fields
	v := outbox.Sample{At: sqldb.At(x.minute), Counts: f.counts, LagEvents: f.lag, Blocked: f.blocked, Applied: f.applied, Failed: f.failed}
	if f.oldest.Valid {
		v.OldestEnqueuedAt = sqldb.At(f.oldest.Int64)
	}
	return v
}

// CampaignHistory lists how far behind a campaign was at each minute since a time, in order. A
// minute without a point means less than a minute behind, or at least a hundred campaigns
// further behind.
func (s *Store) CampaignHistory(ctx context.Context, id string, since time.Time) ([]outbox.CampaignPoint, error) {
	points := []outbox.CampaignPoint{}
	err := s.journal.Read(ctx, func(t *Tx) error {
		return t.Each(func(row sqldb.Row) error {
			var p outbox.CampaignPoint
			var minute, oldest int64
			err := row.Scan(&minute, &p.LagEvents, &oldest)
			p.At, p.LagSeconds = sqldb.At(minute), max(0, float64(minute-oldest)/1e6)
			points = append(points, p)
			return err
		}, `select minute, lag_events, oldest_enqueued_at from campaign_samples where campaign_id = $1 and minute >= $2 order by minute`, id, since.UnixMicro())
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of campaign %q: %w", id, err)
	}
	return points, nil
}
