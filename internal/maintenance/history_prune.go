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
	limit := before.UnixMicro()
	return m.prune(ctx, "the history of events", []statement{{selectOldAttempts, []any{limit, 1}}, {selectOldSpans, []any{limit, 1}}}, func(t *tx) (bool, error) {
		attempts, err := t.Exec(deleteAttempts, limit, pruneHistory)
		if err != nil {
			return false, err
		}
		spans, err := t.Exec(deleteSpans, limit, pruneHistory)
		return attempts >= pruneHistory || spans >= pruneHistory, err
	})
}

// statement is a query with its arguments.
type statement struct {
	query string
	args  []any
}

// prune deletes what one of the queries finds, in one transaction and only where there is something. It
// returns what remove does: whether there may be more.
func (m *Maintenance) prune(ctx context.Context, what string, old []statement, remove func(*tx) (bool, error)) (more bool, err error) {
	if err := m.core.Refuse(); err != nil {
		return false, err
	}
	found := false
	err = m.read(ctx, func(t *tx) error {
		for _, s := range old {
			err := t.Each(func(sqldb.Row) error {
				found = true
				return sqldb.ErrEnough
			}, s.query, s.args...)
			if err != nil || found {
				return err
			}
		}
		return nil
	})
	if err == nil && found {
		err = m.write(ctx, func(t *tx) error {
			more, err = remove(t)
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("prune %s: %w", what, err)
	}
	return more, nil
}
