package maintenance

import (
	"context"
	"time"

	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// pruneAudit is how many audit records one transaction deletes (or slightly more), and how many
// of the ranges they touched.
const pruneAudit = 5000

const (
	selectOldAct = `
select id
from audit_log
where at < $1
order by at
limit 1`

	moveHorizon = `
update audit_horizon
set removed_before = $1
where id = 1
  and removed_before < $1`

	// Records with the same timestamp are deleted together.
	deleteAudit = `
delete from audit_log
where at <= (
    select max(at)
    from (
      select at
      from audit_log
      where at < $1
      order by at
      limit $2
    ) as oldest)`

	// Ranges of actions without a record are never found any more; they are deleted in portions.
	deleteTargets = `
delete from audit_log_rows
where (entry_id, campaign_id, first_seq) in (
    select entry_id, campaign_id, first_seq
    from audit_log_rows
    where entry_id < (select coalesce(min(id), cast($1 as bigint)) from audit_log)
    order by entry_id, campaign_id, first_seq
    limit $2)`

	selectOldTarget = `
select entry_id
from audit_log_rows
where entry_id < (select coalesce(min(id), cast($1 as bigint)) from audit_log)
order by entry_id
limit 1`

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
	old := []statement{{selectOldAct, []any{limit}}, {selectOldTarget, []any{int64(sqldb.FarFuture)}}}
	return m.prune(ctx, "audit records", old, func(t *tx) (bool, error) {
		if _, err := t.Exec(moveHorizon, limit); err != nil {
			return false, err
		}
		acts, err := t.Exec(deleteAudit, limit, pruneAudit)
		if err != nil {
			return false, err
		}
		targets, err := t.Exec(deleteTargets, int64(sqldb.FarFuture), pruneAudit)
		return acts >= pruneAudit || targets >= pruneAudit, err
	})
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
