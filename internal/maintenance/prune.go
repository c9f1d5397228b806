package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// pruned is how many rows of a table one transaction deletes, or slightly more.
const pruned = 5000

// expired are rows that are pruned. find lists the oldest of them, and remove deletes those; $1 is the
// bound, and $2 how many.
type expired struct {
	find, remove string
	bound        int64
}

const (
	selectOldKeys = `
select at
from append_keys
where at <= $1
order by at
limit $2`

	// Keys with the same timestamp are deleted together.
	deleteKeys = `
delete from append_keys
where at <= (
    select max(at)
    from (` + selectOldKeys + `) as oldest
  )`
)

// PruneAppendKeys deletes expired append keys, in small steps, and returns true while there may
// be more. It writes nothing when there is none.
func (m *Maintenance) PruneAppendKeys(ctx context.Context) (more bool, err error) {
	return m.prune(ctx, "the keys of appends", nil, expired{selectOldKeys, deleteKeys, m.core.Now() - store.AppendKeyLife.Microseconds()})
}

const (
	// Events that still have a row keep their attempts. In this form the planner looks up the row
	// of each attempt and does not read all rows.
	selectOldAttempts = `
select campaign_id, seq, at, attempt
from attempts a
where at < $1
  and (
    select o.seq
    from projection_apply_outbox o
    where o.campaign_id = a.campaign_id
      and o.seq = a.seq) is null
order by at
limit $2`

	deleteAttempts = `
delete from attempts
where (campaign_id, seq, at, attempt) in (` + selectOldAttempts + `)`

	selectOldSpans = `
select campaign_id, first_seq, began_at
from applied_spans
where ended_at < $1
order by ended_at
limit $2`

	deleteSpans = `
delete from applied_spans
where (campaign_id, first_seq, began_at) in (` + selectOldSpans + `)`
)

// PruneHistory deletes history from before a time: the failed attempts of events that have no
// row any more, and the spans in which events were applied. It works in small steps and returns
// true while there may be more. It writes nothing when there is nothing to delete. The last
// span of a campaign stays.
func (m *Maintenance) PruneHistory(ctx context.Context, before time.Time) (more bool, err error) {
	limit := before.UnixMicro()
	return m.prune(ctx, "the history of events", nil, expired{selectOldAttempts, deleteAttempts, limit}, expired{selectOldSpans, deleteSpans, limit})
}

const (
	selectOldActs = `
select at
from audit_log
where at < $1
order by at
limit $2`

	// Records with the same timestamp are deleted together.
	deleteActs = `
delete from audit_log
where at <= (
    select max(at)
    from (` + selectOldActs + `) as oldest)`

	// Ranges of actions without a record are never found any more; they are deleted in portions. Without
	// a record at all they are those below $1.
	selectOldTargets = `
select entry_id, campaign_id, first_seq
from audit_log_rows
where entry_id < (select coalesce(min(id), cast($1 as bigint)) from audit_log)
order by entry_id, campaign_id, first_seq
limit $2`

	deleteTargets = `
delete from audit_log_rows
where (entry_id, campaign_id, first_seq) in (` + selectOldTargets + `)`

	moveHorizon = `
update audit_horizon
set removed_before = $1
where id = 1
  and removed_before < $1`

	selectHorizon = `
select removed_before
from audit_horizon
where id = 1`
)

// PruneAuditLog deletes audit records from before a time, oldest first, in small steps,
// together with the ranges they touched, and returns true while there may be more. With the
// first deletion the time is stored, so that readers know that older records are gone; that
// time never goes back. It writes nothing when there is nothing to delete. An idempotency key
// is deleted with its record: a later command with the same key is executed again.
func (m *Maintenance) PruneAuditLog(ctx context.Context, before time.Time) (more bool, err error) {
	limit := before.UnixMicro()
	move := func(t *store.Tx) error {
		_, err := t.Exec(moveHorizon, limit)
		return err
	}
	return m.prune(ctx, "audit records", move, expired{selectOldActs, deleteActs, limit}, expired{selectOldTargets, deleteTargets, sqldb.FarFuture})
}

// AuditLogRemovedBefore is the time before which audit records were deleted; the zero time when
// none were.
func (m *Maintenance) AuditLogRemovedBefore(ctx context.Context) (time.Time, error) {
	before, err := sqldb.Reading(ctx, m.core.Journal(), "read since when audit records are kept", func(t *store.Tx) (before int64, err error) {
		_, err = t.One([]any{&before}, selectHorizon)
		return before, err
	})
	return sqldb.At(before), err
}

// prune deletes rows in one transaction that begins with first, unless that is nil, and only where there
// are any. It returns whether there may be more.
func (m *Maintenance) prune(ctx context.Context, what string, first func(*store.Tx) error, all ...expired) (more bool, err error) {
	if err := m.core.Refuse(); err != nil {
		return false, err
	}
	found := false
	err = m.core.Journal().Read(ctx, func(t *store.Tx) error {
		for _, e := range all {
			err := t.Each(func(sqldb.Row) error {
				found = true
				return sqldb.ErrEnough
			}, e.find, e.bound, 1)
			if err != nil || found {
				return err
			}
		}
		return nil
	})
	if err == nil && found {
		err = m.core.Journal().Write(ctx, func(t *store.Tx) error {
			if first != nil {
				if err := first(t); err != nil {
					return err
				}
			}
			for _, e := range all {
				n, err := t.Exec(e.remove, e.bound, pruned)
				if err != nil {
					return err
				}
				more = more || n >= pruned
			}
			return nil
		})
	}
	if err != nil {
		return false, fmt.Errorf("prune %s: %w", what, err)
	}
	return more, nil
}
