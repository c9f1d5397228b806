package store

import (
	"context"
	"database/sql"
	"fmt"

	"outboxweb/internal/outbox"
)

const upsertInstance = `
insert into instances (id, host, pid, version, mode, started_at, last_seen, stopped_at, applied, failed, fenced, applied_per_second, failed_per_second)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
on conflict (id) do update
set last_seen = excluded.last_seen, stopped_at = excluded.stopped_at, applied = excluded.applied, failed = excluded.failed,
  fenced = excluded.fenced, applied_per_second = excluded.applied_per_second, failed_per_second = excluded.failed_per_second`

// Heartbeat writes an instance's sign of life. Instances that stopped, or were
// last seen, more than a week ago are forgotten.
func (s *Store) Heartbeat(ctx context.Context, i outbox.InstanceState) error {
	err := s.journal.write(ctx, func(t *tx) error {
		now := s.now()
		seen := now
		var stopped sql.NullInt64
		if i.StoppedAt != nil {
			stopped = sql.NullInt64{Int64: i.StoppedAt.UnixMicro(), Valid: true}
			if !i.LastSeen.IsZero() { // somebody else found it gone
				seen = i.LastSeen.UnixMicro()
			}
		}
		_, err := t.exec(upsertInstance, i.ID, i.Host, i.PID, i.Version, string(i.Mode), i.StartedAt.UnixMicro(), seen, stopped,
			i.Applied, i.Failed, i.Fenced, i.Rates.AppliedPerSecond, i.Rates.FailedPerSecond)
		if err != nil {
			return err
		}
		_, err = t.exec(`delete from instances where last_seen < $1`, now-7*24*3600*1e6)
		return err
	})
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

// Instances lists the processes that work or worked lately, newest first.
func (s *Store) Instances(ctx context.Context) ([]outbox.InstanceState, error) {
	var all []outbox.InstanceState
	err := s.journal.read(ctx, func(t *tx) (err error) {
		all, err = t.instances()
		return err
	})
	return all, err
}

func (t *tx) instances() ([]outbox.InstanceState, error) {
	all := []outbox.InstanceState{}
	err := t.each(func(rows *sql.Rows) error {
		var i outbox.InstanceState
		var mode string
		var started, seen int64
		var stopped sql.NullInt64
		err := rows.Scan(&i.ID, &i.Host, &i.PID, &i.Version, &mode, &started, &seen, &stopped,
			&i.Applied, &i.Failed, &i.Fenced, &i.Rates.AppliedPerSecond, &i.Rates.FailedPerSecond)
		i.Mode, i.StartedAt, i.LastSeen, i.StoppedAt = outbox.Mode(mode), at(started), at(seen), atOrNil(stopped)
		all = append(all, i)
		return err
	}, `
select id, host, pid, version, mode, started_at, last_seen, stopped_at, applied, failed, fenced, applied_per_second, failed_per_second
from instances
order by started_at desc, id
limit 100`)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return all, nil
}
