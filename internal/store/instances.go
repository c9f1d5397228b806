package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const upsertInstance = `
insert into instances (` + instanceColumns + `)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
on conflict (id) do update
set last_seen = excluded.last_seen, stopped_at = excluded.stopped_at,
  applied = excluded.applied, failed = excluded.failed, fenced = excluded.fenced,
  applied_per_second = excluded.applied_per_second, failed_per_second = excluded.failed_per_second,
  appended_per_second = excluded.appended_per_second,
  trouble = excluded.trouble, stalled = excluded.stalled,
  busy_share = excluded.busy_share, spent = excluded.spent`

// Heartbeat writes an instance's heartbeat. Instances that stopped or were last seen more than
// a week ago are deleted.
func (s *Store) Heartbeat(ctx context.Context, i campaign.InstanceState) error {
	err := s.journal.Write(ctx, func(t *Tx) error {
		now := s.Now()
		seen := now
		if i.StoppedAt != nil {
			seen = max(seen, i.StoppedAt.UnixMicro())
			if !i.LastSeen.IsZero() { // another process detected that it was gone
				seen = i.LastSeen.UnixMicro()
			}
		}
		_, err := t.Exec(upsertInstance, i.ID, i.Host, i.PID, i.Version, string(i.Mode), i.StartedAt.UnixMicro(), seen, sqldb.MicrosIfAny(i.StoppedAt),
			i.BeatEvery.Microseconds(), i.Applied, i.Failed, i.Fenced, i.Rates.AppliedPerSecond, i.Rates.FailedPerSecond,
			sqldb.Clip(i.Trouble, LastErrorLimit), sqldb.Truth(i.Stalled), sqldb.JSON(i.Campaigns), i.Rates.AppendedPerSecond,
			i.Rates.BusyShare, sqldb.JSON(i.Spent))
		if err != nil {
			return err
		}
		_, err = t.Exec(`delete from instances where last_seen < $1`, now-7*24*3600*1e6)
		return err
	})
	if err == nil && s.Shared() {
		_, err = s.Processes(ctx) // to learn their clock offsets
	}
	return sqldb.Wrapf(err, "heartbeat")
}

// Processes is Instances without the leases held, and without lease owners that have no record.
func (s *Store) Processes(ctx context.Context) ([]campaign.InstanceState, error) {
	began := s.Now()
	all, err := Reading(ctx, s, "", (*Tx).instances)
	s.clocks.correct(all, began, s.Now())
	return all, err
}

// Instances lists the processes that are or were recently at work with the leases they hold, in
// the order of campaign.SortInstances. Lease owners without a record of their own are included.
// Held leases are at most a second old. Callers share the result and must not change what it
// points to.
func (s *Store) Instances(ctx context.Context) ([]campaign.InstanceState, error) {
	holdings, err := s.holdings.Get(ctx, func() (map[string]campaign.HeldLeases, error) {
		return s.readHoldings(context.WithoutCancel(ctx))
	})
	if err != nil {
		return nil, fmt.Errorf("read who holds what: %w", err)
	}
	began := s.Now()
	all, err := Reading(ctx, s, "list instances", func(t *Tx) ([]campaign.InstanceState, error) {
		all, err := t.instances()
		if err != nil {
			return nil, err
		}
		return t.withOwners(all, holdings)
	})
	s.clocks.correct(all, began, s.Now())
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Leases = holdings[all[i].ID]
		all[i].Here = all[i].ID == s.here()
	}
	campaign.SortInstances(all, sqldb.At(s.Now()))
	return all, nil
}

// withOwners adds the lease owners that are not listed yet.
func (t *Tx) withOwners(all []campaign.InstanceState, holdings map[string]campaign.HeldLeases) ([]campaign.InstanceState, error) {
	listed := make(map[string]bool, len(all))
	for _, i := range all {
		listed[i.ID] = true
	}
	for owner := range holdings {
		if listed[owner] {
			continue
		}
		found, err := t.readInstances(selectInstance, owner)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			found = []campaign.InstanceState{{ID: owner}}
		}
		all = append(all, found...)
	}
	return all, nil
}

const instanceColumns = `id, host, pid, version, mode, started_at, last_seen, stopped_at, beat_every, applied, failed, fenced,
  applied_per_second, failed_per_second, trouble, stalled, campaigns, appended_per_second, busy_share, spent`

const selectProcesses = "\nselect " + instanceColumns + "\nfrom instances"

const selectInstance = selectProcesses + `
where id = $1`

// Live instances come first, so that many short-lived ones cannot push them out of the limit.
const selectInstances = selectProcesses + `
order by last_seen desc, started_at desc, id
limit 100`

const selectRecentInstances = selectProcesses + `
where last_seen >= $1
  or stopped_at is null
order by started_at desc
limit 1000`

// instances lists the processes that are or were recently at work, without their leases.
func (t *Tx) instances() ([]campaign.InstanceState, error) { return t.readInstances(selectInstances) }

// RecentInstances lists those that were at work since a time, and those that have not ended.
func (t *Tx) RecentInstances(since time.Time) ([]campaign.InstanceState, error) {
	return t.readInstances(selectRecentInstances, since.UnixMicro())
}

func (t *Tx) readInstances(query string, args ...any) ([]campaign.InstanceState, error) {
	all := []campaign.InstanceState{}
	err := t.Each(func(rows sqldb.Row) error {
		var i campaign.InstanceState
		var beatEvery int64
		err := rows.Scan(&i.ID, &i.Host, &i.PID, &i.Version, &i.Mode, sqldb.ScanTime(&i.StartedAt), sqldb.ScanTime(&i.LastSeen), sqldb.ScanTimeOrNil(&i.StoppedAt), &beatEvery,
			&i.Applied, &i.Failed, &i.Fenced, &i.Rates.AppliedPerSecond, &i.Rates.FailedPerSecond, &i.Trouble, sqldb.ScanTruth(&i.Stalled), sqldb.ScanJSON(&i.Campaigns), &i.Rates.AppendedPerSecond,
			&i.Rates.BusyShare, sqldb.ScanJSON(&i.Spent))
		i.BeatEvery = time.Duration(beatEvery) * time.Microsecond
		switch {
		case i.StoppedAt == nil:
			i.Process = processOf(i)
		case i.LastSeen.Before(*i.StoppedAt): // one that stops is seen doing so
			i.Process = campaign.ProcessGone
		}
		all = append(all, i)
		return err
	}, query, args...)
	for n := range all {
		if i := &all[n]; err == nil && i.StoppedAt == nil && i.Process == campaign.ProcessGone && i.BeatEvery == 0 {
			err = t.seeLast(i)
		}
	}
	return all, sqldb.Wrapf(err, "read instances")
}

const (
	selectLastTrace = `
select max(at)
from (
  select max(at) as at
  from attempts
  where at > $1
    and worker = $2
  union all
  select max(ended_at)
  from applied_spans
  where ended_at > $1
    and worker = $3
) as traces`

	selectLatestSpans = `
select applied_span
from campaigns
where updated_at > $1`
)

// seeLast corrects when a process was last seen that is gone and promised no heartbeats: what it did
// after a pause, before its next heartbeat, is in the journal.
func (t *Tx) seeLast(i *campaign.InstanceState) error {
	seen, who := i.LastSeen.UnixMicro(), spanWorker(i.ID)
	var trace sql.NullInt64
	if _, err := t.One([]any{&trace}, selectLastTrace, seen, i.ID, who); err != nil {
		return err
	}
	last := max(seen, trace.Int64)
	err := t.Each(func(row sqldb.Row) error {
		var text string
		err := row.Scan(&text)
		if p, found := parseSpan(text); found && p.by.Worker == who {
			last = max(last, p.ended)
		}
		return err
	}, selectLatestSpans, seen)
	i.LastSeen = sqldb.At(last)
	return err
}

const selectHeld = `
select lease_owner, campaign_id, lease_epoch, coalesce(head_seq, 0), processing, lease_expires_at, paused_at is not null or diverged <> ''
from campaigns
where lease_owner <> ''
order by lease_expires_at, campaign_id`

const selectHeldPublishers = `
select lease_owner, topic, publisher
from publisher_progress
where lease_owner <> ''
  and lease_expires_at > $1
order by topic, publisher`

func (s *Store) readHoldings(ctx context.Context) (map[string]campaign.HeldLeases, error) {
	return Reading(ctx, s, "", func(t *Tx) (map[string]campaign.HeldLeases, error) {
		holdings := make(map[string]campaign.HeldLeases)
		err := t.Each(func(rows sqldb.Row) error {
			var owner string
			var c campaign.HeldLease
			err := rows.Scan(&owner, &c.CampaignID, &c.Epoch, &c.HeadSeq, &c.Rows, sqldb.ScanTime(&c.ExpiresAt), &c.Withheld)
			h := holdings[owner]
			h.Add(c)
			holdings[owner] = h
			return err
		}, selectHeld)
		if err != nil {
			return nil, err
		}
		err = t.Each(func(rows sqldb.Row) error {
			var owner string
			var name operator.SubscriptionName
			err := rows.Scan(&owner, &name.Topic, &name.Publisher)
			h := holdings[owner]
			h.Publishers = append(h.Publishers, name.String())
			holdings[owner] = h
			return err
		}, selectHeldPublishers, s.Now())
		return holdings, err
	})
}
