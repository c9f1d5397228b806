package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// pruneHistory is how many attempts, and how many spans, one transaction deletes.
const pruneHistory = 5000

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
	if err := m.core.Refuse(); err != nil {
		return false, err
	}
	limit := before.UnixMicro()
	old := false
	err = m.read(ctx, func(t *tx) error {
		for _, query := range []string{selectOldAttempts, selectOldSpans} {
			err := t.Each(func(sqldb.Row) error {
				old = true
				return sqldb.ErrEnough
			}, query, limit, 1)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && old {
		err = m.write(ctx, func(t *tx) error {
			attempts, err := t.Exec(deleteAttempts, limit, pruneHistory)
			if err != nil {
				return err
			}
			spans, err := t.Exec(deleteSpans, limit, pruneHistory)
			more = attempts >= pruneHistory || spans >= pruneHistory
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("prune the history of events: %w", err)
	}
	return more, nil
}
