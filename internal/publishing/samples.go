package publishing

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// publisherSample is a sample of a subscription without its name and time. A negative lag n means
// at least -n-1 events: -1 is an unknown lag.
type publisherSample struct {
	delivered int64
	lag       int64
	oldest    sql.NullInt64
	errors    int64
}

func (p *subscriptionState) sample() publisherSample {
	x := publisherSample{delivered: p.delivered, lag: p.waiting.events, oldest: p.oldest, errors: p.errors}
	if p.capped {
		x.lag = -1 - x.lag
	}
	return x
}

func (x publisherSample) view(minute int64) PublisherSample {
	v := PublisherSample{At: sqldb.At(minute), Delivered: x.delivered, LagEvents: x.lag, Errors: int(x.errors)}
	if x.lag < 0 {
		v.LagEvents, v.LagCapped = -1-x.lag, true
	}
	if x.oldest.Valid {
		v.RecordedAt = sqldb.At(x.oldest.Int64)
	}
	return v
}

const (
	selectPublisherSample = `
select delivered, lag_events, oldest_recorded_at, error_count
from publisher_samples
where topic = $1
  and publisher = $2
  and minute <= $3
order by minute desc
limit 1`

	// The first sample with errors after the last one without.
	selectFailing = `
select min(minute)
from publisher_samples
where topic = $1
  and publisher = $2
  and error_count > 0
  and minute > coalesce((select max(minute) from publisher_samples where topic = $1 and publisher = $2 and error_count = 0), 0)`

	// Another process may already have taken this minute's sample.
	insertPublisherSample = `
insert into publisher_samples (topic, publisher, minute, delivered, lag_events, oldest_recorded_at, error_count)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (topic, publisher, minute) do nothing`

	selectPublisherSamples = `
select minute, delivered, lag_events, oldest_recorded_at, error_count
from publisher_samples
where topic = $1
  and publisher = $2
  and minute >= coalesce((select max(minute) from publisher_samples where topic = $1 and publisher = $2 and minute <= $3), 0)
  and minute <= $4
order by minute`
)

// sample writes, once a minute, the state of subscriptions that changed since their last sample.
func (pr *Progress) sample(ctx context.Context, minute int64) error {
	if pr.sampled.Swap(minute) == minute {
		return nil
	}
	changed, err := pr.changedSamples(ctx, minute)
	if err == nil && len(changed) > 0 {
		err = pr.write(ctx, func(t *tx) error {
			var b sqldb.Batch
			names := slices.Collect(maps.Keys(changed))
			for _, name := range byName(names, func(n operator.SubscriptionName) operator.SubscriptionName { return n }) {
				x := changed[name]
				b.Exec(nil, insertPublisherSample, name.Topic, name.Publisher, minute, x.delivered, x.lag, x.oldest, x.errors)
			}
			b.Exec(nil, `delete from publisher_samples where minute < $1`, minute-store.SamplesKept.Microseconds())
			b.Exec(nil, `delete from publisher_samples where minute > $1`, minute+store.SamplesAhead.Microseconds())
			return t.Finish(&b)
		})
	}
	if err != nil {
		pr.sampled.Store(0) // to retry
	}
	return sqldb.Wrapf(err, "sample publishers")
}

func (pr *Progress) changedSamples(ctx context.Context, minute int64) (map[operator.SubscriptionName]publisherSample, error) {
	changed := map[operator.SubscriptionName]publisherSample{}
	err := pr.read(ctx, func(t *tx) error {
		subs, err := t.subscriptionStates()
		if err != nil {
			return err
		}
		for i := range subs {
			var last publisherSample
			p, x := &subs[i], subs[i].sample()
			found, err := t.One([]any{&last.delivered, &last.lag, &last.oldest, &last.errors}, selectPublisherSample, p.Topic, p.Publisher, minute)
			if err != nil {
				return err
			}
			if !found || x != last {
				changed[p.SubscriptionName] = x
			}
		}
		return nil
	})
	return changed, err
}

// LagSeries returns the lag over a range of the publishers that are the furthest behind now.
func (pr *Progress) LagSeries(ctx context.Context, r samples.Range) ([]samples.Series, error) {
	publishers, err := pr.Publishers(ctx)
	if err != nil {
		return nil, err
	}
	worst := slices.SortedStableFunc(slices.Values(publishers), func(a, b subscription.Publisher) int { return cmp.Compare(b.LagEvents, a.LagEvents) })
	var all []samples.Series
	for _, p := range worst[:min(len(worst), samples.SeriesShown)] {
		h, err := pr.history(ctx, p.SubscriptionName, r, false)
		if err != nil {
			return nil, err
		}
		all = append(all, h.Lag())
	}
	return all, nil
}

// History returns a subscription's history over a range, as PublisherPoints does. A missing
// subscription is event.ErrNotFound.
func (pr *Progress) History(ctx context.Context, name operator.SubscriptionName, r samples.Range) (PublisherHistory, error) {
	return pr.history(ctx, name, r, true)
}

// history is History; unless it is to be live, the running step is as of its last sample.
func (pr *Progress) history(ctx context.Context, name operator.SubscriptionName, r samples.Range, live bool) (PublisherHistory, error) {
	w := r.Window(sqldb.At(pr.core.Now()))
	h := PublisherHistory{SubscriptionName: name, Range: r.Label(), Span: r.Span(), From: w.From, To: w.To, StepSeconds: w.Step.Seconds(), Window: w}
	instances, err := pr.core.Processes(ctx)
	if err != nil {
		return h, err
	}
	var s []PublisherSample
	var now []PublisherSample
	var created int64
	err = pr.read(ctx, func(t *tx) error {
		p, err := t.publisher(name)
		if err != nil {
			return err
		}
		created = p.created
		if live && w.To.After(w.Now) {
			states, err := t.stateOf([]*publisherRow{p})
			if err != nil {
				return err
			}
			now = append(now, states[0].sample().view(w.Now.UnixMicro()))
		}
		return t.Each(func(row sqldb.Row) error {
			var minute int64
			var x publisherSample
			err := row.Scan(&minute, &x.delivered, &x.lag, &x.oldest, &x.errors)
			s = append(s, x.view(minute))
			return err
		}, selectPublisherSamples, name.Topic, name.Publisher, w.From.UnixMicro(), w.To.UnixMicro())
	})
	if err != nil {
		return h, fmt.Errorf("read the history of publisher %s: %w", name, err)
	}
	h.Points = PublisherPoints(append(s, now...), w, samples.AtWork(instances, w.Now), sqldb.At(created))
	return h, nil
}
