package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// snapshotAge is the maximum age of a snapshot: twenty open pages cost as much as one.
const snapshotAge = time.Second

// snapshotRest is the wait before a snapshot is read again, as a multiple of the time that
// reading took, so that reading costs a twentieth of a processor. The wait is never longer than
// snapshotOldest.
const (
	snapshotRest   = 20
	snapshotOldest = 10 * time.Second
	snapshotSlow   = 200 * time.Millisecond
)

// Snapshot caches an expensive read for all callers for snapshotAge, or longer when reading
// takes long. The zero value is ready for use.
type Snapshot[T any] struct {
	stale atomic.Bool // forgotten since the last read began
	mu    sync.Mutex  // held while reading
	last  atomic.Pointer[snapshot[T]]
}

type snapshot[T any] struct {
	value  T
	err    error
	due    time.Time // when the next one is read
	spared time.Time // until when others need not wait for that
	slow   bool      // none need
}

// Get returns the cached value, or calls take when that is too old. Callers share the value and
// must not change what it points to. As long as nobody forgot it and it is not much too old, they get it while
// one of them calls take, and at once where that takes long. Otherwise they wait for take, so it must not use the
// context of the one that happened to call it. An error is shared likewise: otherwise the
// callers would each wait for an unreachable database, one after the other.
func (c *Snapshot[T]) Get(ctx context.Context, take func() (T, error)) (T, error) {
	stale := c.stale.Load() // before what was forgotten
	last, now := c.last.Load(), time.Now()
	if stale || last == nil || now.After(last.spared) {
		c.mu.Lock()
	} else if now.Before(last.due) || !c.mu.TryLock() {
		database.CostOf(ctx).Snapshot(true)
		return last.value, last.err
	} else if last.slow {
		go func() {
			defer func() {
				if recover() != nil {
					c.last.Store(nil) // the next caller meets it itself
				}
			}()
			c.read(context.Background(), take)
		}()
		return last.value, last.err
	}
	last = c.read(ctx, take)
	return last.value, last.err
}

// read is the last value, or a new one if that is too old. It unlocks what its caller locked.
func (c *Snapshot[T]) read(ctx context.Context, take func() (T, error)) *snapshot[T] {
	defer c.mu.Unlock()
	if c.stale.Load() {
		c.last.Store(nil)
		c.stale.Store(false)
	}
	last, began := c.last.Load(), time.Now()
	kept := last != nil && began.Before(last.due)
	database.CostOf(ctx).Snapshot(kept)
	if kept {
		return last
	}
	last = new(snapshot[T])
	last.value, last.err = take()
	took := time.Since(began)
	rest := min(snapshotRest*took, snapshotOldest)
	if last.err != nil {
		rest = 0
	}
	last.due = began.Add(took + max(snapshotAge, rest))
	last.spared, last.slow = last.due.Add(rest), took > snapshotSlow
	c.last.Store(last)
	return last
}

// Forget invalidates the cached value, and one that is being read. It never blocks.
func (c *Snapshot[T]) Forget() { c.stale.Store(true) }

// Summary is the state of the whole system, at most a second old unless very many campaigns are behind. The
// numbers of campaigns, events and skips are older from 50,000 campaigns on. Callers share it and must not
// change what it points to.
func (s *Store) Summary(ctx context.Context) (campaign.Summary, error) {
	summary, err := s.summary.Get(ctx, func() (campaign.Summary, error) {
		return s.Summarize(context.WithoutCancel(ctx))
	})
	if err != nil {
		return campaign.Summary{}, fmt.Errorf("summarize: %w", err)
	}
	return summary, nil
}

// totals is what takes a look at every campaign.
type totals struct{ campaigns, events, skips, held int64 }

const selectTotals = `
select count(*), coalesce(sum(high_water_seq), 0), coalesce(sum(skips), 0),
  count(*) filter (where lease_owner <> '' and lease_expires_at > $1 and oldest_enqueued_at is null and diverged = '')
from campaigns`

// totalsKept is from how many campaigns on totals are kept, until totalsRest times the time has passed that
// reading them took; of fewer they are read anew.
const (
	totalsKept = 50_000
	totalsRest = 50
)

// keptTotals are the totals of many campaigns.
type keptTotals struct {
	mu    sync.Mutex
	value totals
	until time.Time
}

// read reads the totals, or returns those that were read lately.
func (k *keptTotals) read(t *Tx, now int64) (totals, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	began := time.Now()
	if began.Before(k.until) {
		return k.value, nil
	}
	v := &k.value
	_, err := t.One([]any{&v.campaigns, &v.events, &v.skips, &v.held}, selectTotals, now)
	if err == nil && v.campaigns >= totalsKept {
		done := time.Now()
		k.until = done.Add(totalsRest * done.Sub(began))
	}
	return *v, err
}

// selectBehind selects what is to be said of the campaigns that are behind or diverged; served is the condition
// of serving.
func selectBehind(served string) string {
	return `
select coalesce(sum(pending), 0), coalesce(sum(processing), 0), coalesce(sum(failed), 0), coalesce(sum(dead), 0),
  count(*) filter (where high_water_seq > applied_seq),
  count(*) filter (where head_status = 'dead'),
  (select count(*) from campaigns where paused_at is not null),
  count(*) filter (where diverged <> ''),
  count(*) filter (where lease_owner <> '' and lease_expires_at > $1),
  coalesce(sum(high_water_seq - applied_seq), 0),
  coalesce(sum(high_water_seq - applied_seq) filter (where ` + retryable + served + `), 0),
  min(oldest_enqueued_at),
  min(oldest_enqueued_at) filter (where ` + retryable + served + `),
  min(coalesce(due_at, oldest_enqueued_at)) filter (where oldest_enqueued_at is not null and ` + retryable + served + `),
  count(*) filter (where due_at <= $1 - ` + strconv.FormatInt(campaign.SilentAfter.Microseconds(), 10) + ` and not (1 = 1` + served + `))
from (
  select * from campaigns where oldest_enqueued_at is not null
  union all
  select * from campaigns where oldest_enqueued_at is null and diverged <> ''
) as behind`
}

// countDrifted counts the drifted campaigns, and those of them that differ from a version which is
// loaded now.
const countDrifted = `
select count(distinct campaign_id), count(distinct case when ` + outdated + ` = 0 then campaign_id end)
from verifications v
where verdict = 'drift'`

const countUnverifiable = `
select count(distinct campaign_id)
from verifications
where verdict = 'failed'`

// countMismatched counts campaigns once that drifted in one projection and are unverifiable in another.
const countMismatched = `
select count(*)
from (select campaign_id from verifications where verdict in ('drift', 'failed')
      union select campaign_id from campaigns where diverged <> '') as mismatched`

// retryable selects campaigns whose next event workers retry without an operator, if a running
// instance serves them.
const retryable = `coalesce(head_status, '') <> 'dead' and paused_at is null and diverged = ''`

const (
	selectOldest = `
select campaign_id, applied_seq + 1
from campaigns
where oldest_enqueued_at = $1`

	selectOldestRetryable = selectOldest + `
  and ` + retryable
)

// Summarize is Summary as of now, shared with nobody.
func (s *Store) Summarize(ctx context.Context) (campaign.Summary, error) {
	now := s.Now()
	sum := campaign.Summary{Mode: s.options.Mode, AsOf: sqldb.At(now), Drift: s.drift.Load(), Faults: s.faults()}
	var additions []func(*Tx, *campaign.Summary) error
	for _, prepare := range s.onSummary {
		additions = append(additions, prepare(ctx, &sum))
	}
	err := s.journal.Read(ctx, func(t *Tx) error {
		var oldest, retryable, due sql.NullInt64
		var waiting int64
		var err error
		if sum.Instances, err = t.instances(); err != nil {
			return err
		}
		if err := t.addWentBack(&sum, now); err != nil {
			return err
		}
		s.clocks.correct(sum.Instances, now, s.Now())
		describeWorkers(&sum, now)
		sum.Worker.Starting = s.starting(sum.Instances)
		served, args := Serving(sum.Worker.Campaigns, now)
		all, err := s.totals.read(t, now)
		if err != nil {
			return err
		}
		sum.Campaigns.Total, sum.Events, sum.Campaigns.Skips = all.campaigns, all.events, all.skips
		_, err = t.One([]any{&sum.Counts.Pending, &sum.Counts.Processing, &sum.Counts.Failed, &sum.Counts.Dead,
			&sum.Campaigns.Lagging, &sum.Campaigns.Blocked, &sum.Campaigns.Paused, &sum.Campaigns.Diverged, &sum.Campaigns.Leased,
			&sum.Lag.Events, &waiting, &oldest, &retryable, &due, &sum.Campaigns.Unserved}, selectBehind(served), args...)
		if err != nil {
			return err
		}
		sum.Campaigns.Leased += all.held
		sum.DueSince = sqldb.AtOrNil(due)
		var driftedNow int64
		if _, err := t.One([]any{&sum.Campaigns.Drifted, &driftedNow}, countDrifted); err != nil {
			return err
		}
		sum.Campaigns.OutdatedDrift = sum.Campaigns.Drifted - driftedNow
		if _, err := t.One([]any{&sum.Campaigns.Unverifiable}, countUnverifiable); err != nil {
			return err
		}
		if _, err := t.One([]any{&sum.Campaigns.Mismatched}, countMismatched); err != nil {
			return err
		}
		if sum.Oldest, sum.Lag.MaxSeconds, err = t.oldest(selectOldest, oldest, []any{now}); err != nil {
			return err
		}
		if sum.OldestRetryable, sum.Lag.RetryableSeconds, err = t.oldest(selectOldestRetryable+served, retryable, args); err != nil {
			return err
		}
		sum.Outlook = sum.OutlookOf(waiting)
		if sum.PauseEnds, err = t.pauseEnds(lastPosition); err != nil {
			return err
		}
		for _, add := range additions {
			if err := add(t, &sum); err != nil {
				return err
			}
		}
		return nil
	})
	sum.OtherJournal = sum.Campaigns.Diverged > 0
	if err == nil && !sum.OtherJournal && (sum.Events == 0 || !s.fits.Load()) {
		sum.OtherJournal, err = s.foreignProjections(context.Background())
		s.fits.Store(err == nil && !sum.OtherJournal)
	}
	return sum, err
}

// oldest finds the event with the given append time, and returns its age too. The arguments of the
// query follow now, in whose place it takes the append time.
func (t *Tx) oldest(query string, enqueued sql.NullInt64, args []any) (*campaign.Oldest, float64, error) {
	if !enqueued.Valid {
		return nil, 0, nil
	}
	now := args[0].(int64)
	o := campaign.Oldest{EnqueuedAt: sqldb.At(enqueued.Int64), AgeSeconds: max(0, float64(now-enqueued.Int64)/1e6)}
	args = append([]any{enqueued.Int64}, args[1:]...)
	_, err := t.One([]any{&o.CampaignID, &o.Seq}, query+" limit 1", args...)
	return &o, o.AgeSeconds, err
}

func describeWorkers(sum *campaign.Summary, now int64) {
	var served []campaign.Scope
	for _, i := range sum.Instances {
		sum.Worker.Applied += i.Applied
		sum.Worker.Failed += i.Failed
		sum.Worker.Fenced += i.Fenced
		if state := i.State(sqldb.At(now)); state == campaign.InstanceRunning || state == campaign.InstanceIdle {
			if !sum.Worker.Running || i.Here {
				sum.Mode = cmp.Or(i.Mode, sum.Mode)
			}
			sum.Worker.Running = true
			served = append(served, i.Campaigns)
		}
		if sum.Worker.LastSeen == nil || i.LastSeen.After(*sum.Worker.LastSeen) {
			seen := i.LastSeen
			sum.Worker.LastSeen = &seen
		}
		if sqldb.At(now).Sub(i.LastSeen) < campaign.Recent {
			sum.Throughput.AppliedPerSecond += i.Rates.AppliedPerSecond
			sum.Throughput.FailedPerSecond += i.Rates.FailedPerSecond
			sum.Throughput.AppendedPerSecond = max(sum.Throughput.AppendedPerSecond, i.Rates.AppendedPerSecond)
			sum.Throughput.BusyShare = max(sum.Throughput.BusyShare, i.Rates.BusyShare)
		}
	}
	sum.Worker.Campaigns = campaign.Together(served...)
}
