package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"outboxweb/internal/outbox"
)

// snapshotAge is how old a summary may be: twenty open pages cost what one
// costs.
const snapshotAge = time.Second

type snapshotCache struct {
	mu      sync.Mutex
	summary outbox.Summary
	taken   time.Time
}

// Summary is the state of the whole system, at most a second old. Callers
// share it and must not change what it points to.
func (s *Store) Summary(ctx context.Context) (outbox.Summary, error) {
	s.snapshot.mu.Lock()
	defer s.snapshot.mu.Unlock()
	if time.Since(s.snapshot.taken) < snapshotAge {
		return s.snapshot.summary, nil
	}
	summary, err := s.summarize(context.WithoutCancel(ctx))
	if err != nil {
		return outbox.Summary{}, fmt.Errorf("summarize: %w", err)
	}
	s.snapshot.summary, s.snapshot.taken = summary, time.Now()
	return summary, nil
}

const selectTotals = `
select count(*),
  coalesce(sum(pending), 0), coalesce(sum(processing), 0), coalesce(sum(failed), 0), coalesce(sum(dead), 0),
  count(*) filter (where high_water_seq > applied_seq),
  count(*) filter (where head_status = 'dead'),
  count(*) filter (where paused_at is not null),
  count(*) filter (where diverged <> ''),
  count(*) filter (where lease_owner <> '' and lease_expires_at > $1),
  coalesce(sum(high_water_seq - applied_seq), 0),
  min(oldest_enqueued_at)
from campaigns`

func (s *Store) summarize(ctx context.Context) (outbox.Summary, error) {
	now := s.now()
	sum := outbox.Summary{Mode: s.options.Mode, AsOf: at(now), Drift: s.drift.Load()}
	err := s.journal.read(ctx, func(t *tx) error {
		var oldest sql.NullInt64
		_, err := t.one([]any{&sum.Campaigns.Total,
			&sum.Counts.Pending, &sum.Counts.Processing, &sum.Counts.Failed, &sum.Counts.Dead,
			&sum.Campaigns.Lagging, &sum.Campaigns.Blocked, &sum.Campaigns.Paused, &sum.Campaigns.Diverged, &sum.Campaigns.Leased,
			&sum.Lag.Events, &oldest}, selectTotals, now)
		if err != nil {
			return err
		}
		if oldest.Valid {
			if err := t.oldest(&sum, oldest.Int64, now); err != nil {
				return err
			}
		}
		sum.Instances, err = t.instances()
		return err
	})
	describeWorkers(&sum, now)
	return sum, err
}

func (t *tx) oldest(sum *outbox.Summary, enqueued, now int64) error {
	o := outbox.Oldest{EnqueuedAt: at(enqueued), AgeSeconds: max(0, float64(now-enqueued)/1e6)}
	_, err := t.one([]any{&o.CampaignID, &o.Seq}, `select campaign_id, head_seq from campaigns where `+ageKey+` = $1 limit 1`, enqueued)
	sum.Oldest, sum.Lag.MaxSeconds = &o, o.AgeSeconds
	return err
}

// rateAge is how long after its last sign of life an instance's rates count.
const rateAge = 15 * time.Second

func describeWorkers(sum *outbox.Summary, now int64) {
	for _, i := range sum.Instances {
		sum.Worker.Applied += i.Applied
		sum.Worker.Failed += i.Failed
		sum.Worker.Fenced += i.Fenced
		if i.StoppedAt == nil {
			sum.Worker.Running = true
		}
		if sum.Worker.LastSeen == nil || i.LastSeen.After(*sum.Worker.LastSeen) {
			seen := i.LastSeen
			sum.Worker.LastSeen = &seen
		}
		if at(now).Sub(i.LastSeen) < rateAge {
			sum.Throughput.AppliedPerSecond += i.Rates.AppliedPerSecond
			sum.Throughput.FailedPerSecond += i.Rates.FailedPerSecond
		}
	}
}
