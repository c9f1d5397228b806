package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const requeueRow = `
update projection_apply_outbox
set status = 'pending', attempt_count = 0, next_attempt_at = $3, updated_at = $3
where campaign_id = $1
  and seq = $2
  and status = $4`

// Frozen identifies a dead row in a past state.
type Frozen struct {
	event.RowKey
	Updated  int64 // microseconds
	Attempts int64
}

const requeueFrozen = requeueRow + `
  and updated_at = $5
  and attempt_count = $6`

// RequeueFrozen adds to a batch the statement that requeues a dead row if it is unchanged since
// was; done becomes 1, or 0 when it has changed. The caller updates the campaign's row; see
// store.CampaignRow.Requeued.
func RequeueFrozen(b *sqldb.Batch, done *int64, was Frozen, now int64) {
	b.Exec(sqldb.Into(done), requeueFrozen, was.CampaignID, was.Seq, now, string(event.Dead), was.Updated, was.Attempts)
}

// RequeueRow sets one dead row back to pending with no attempts, due now. A row in another
// status, or not in the expected state, is event.ErrConflict; a missing one
// event.ErrNotFound. Of two concurrent callers one succeeds.
func (q *Queue) RequeueRow(ctx context.Context, o operator.Command, campaignID string, seq int64) (campaign.Row, error) {
	a := &store.Change{Command: o, Action: operator.ActionRequeue, CampaignID: campaignID, Seq: seq}
	return q.changeRow(ctx, a, func(t *store.Tx, c *store.CampaignRow, row campaign.Row, now int64) error {
		if !row.Requeueable() {
			return event.Conflict("campaign %q seq %d is %s, not dead; only dead rows can be requeued%s", campaignID, seq, row.Status, t.LastAction(campaignID, seq, now))
		}
		if err := q.Require(o, row.BlockedBehind); err != nil {
			return err
		}
		if _, err := requeue(t, c, event.Dead, seq, now); err != nil {
			return err
		}
		return t.SaveFromHead(c, now)
	})
}

// rowForChange reads a row and its campaign; a missing row is event.ErrNotFound.
func rowForChange(t *store.Tx, campaignID string, seq, now int64) (*store.CampaignRow, campaign.Row, error) {
	c, err := t.ExistingCampaign(campaignID)
	if err != nil {
		return nil, campaign.Row{}, err
	}
	row, found, err := t.Row(campaignID, seq)
	if err != nil {
		return nil, row, err
	}
	if !found {
		if seq >= 1 && seq <= c.Applied {
			return nil, row, event.NotFound("campaign %q seq %d has no row: it is already applied, or was skipped%s", campaignID, seq, t.LastAction(campaignID, seq, now))
		}
		if seq >= 1 && seq <= c.HighWater {
			return nil, row, event.NotFound("campaign %q seq %d is not applied but has no row; replay the campaign to enqueue it", campaignID, seq)
		}
		return nil, row, t.MissingEvent(campaignID, seq)
	}
	describeHead(&row, c)
	return c, row, nil
}

// changeRow is an action on one row in the state that the operator expects. The audit record
// has the row's state before and after.
func (q *Queue) changeRow(ctx context.Context, a *store.Change, change func(*store.Tx, *store.CampaignRow, campaign.Row, int64) error) (campaign.Row, error) {
	return store.Perform(ctx, q.Store, a, func(t *store.Tx, now int64) (campaign.Row, error) {
		c, row, err := rowForChange(t, a.CampaignID, a.Seq, now)
		if err == nil {
			err = t.Expect(a.Command, row, c, now)
		}
		if err != nil {
			return row, err
		}
		a.Before = stateOf(row)
		if err := change(t, c, row, now); err != nil {
			return row, err
		}
		_, row, err = rowForChange(t, a.CampaignID, a.Seq, now)
		a.After = stateOf(row)
		return row, err
	})
}

// campaignForChange reads the campaign of an action that releases no rows, in the state that the operator
// expects.
func (q *Queue) campaignForChange(t *store.Tx, a *store.Change, now int64) (*store.CampaignRow, error) {
	c, err := t.ExistingCampaign(a.CampaignID)
	if err != nil {
		return nil, err
	}
	if err := t.ExpectCampaign(a.Command, c, now); err != nil {
		return nil, err
	}
	return c, q.Require(a.Command, 0)
}

// rowState is the part of a row that an audit record keeps.
type rowState struct {
	Status   event.Status `json:"status"`
	Attempts int          `json:"attempt_count"`
	Due      string       `json:"next_attempt_at,omitempty"`
}

func stateOf(r campaign.Row) rowState {
	return rowState{Status: r.Status, Attempts: r.AttemptCount, Due: r.NextAttemptAt.Format("2006-01-02T15:04:05.999999Z07:00")}
}

// requeue makes a row pending with no attempts. It returns false when its status is no longer
// from.
func requeue(t *store.Tx, c *store.CampaignRow, from event.Status, seq, now int64) (bool, error) {
	n, err := t.Exec(requeueRow, c.ID, seq, now, string(from))
	if err != nil {
		return false, fmt.Errorf("requeue campaign %q seq %d: %w", c.ID, seq, err)
	}
	c.Requeued(from, n)
	return n > 0, nil
}

// RequeueDead requeues the dead rows that match f, in order of next attempt, then seq, in one
// transaction.
func (q *Queue) RequeueDead(ctx context.Context, o operator.Command, f campaign.RequeueFilter) (campaign.Requeued, error) {
	a := &store.Change{Command: o, Action: operator.ActionRequeueMany, CampaignID: f.CampaignID, Before: f, Asked: f}
	return store.Perform(ctx, q.Store, a, func(t *store.Tx, now int64) (campaign.Requeued, error) {
		var result campaign.Requeued
		campaigns, err := changeChosen(t, a, selectDead, f, func(c *store.CampaignRow, seq int64) (bool, error) {
			done, err := requeue(t, c, event.Dead, seq, now)
			if done { // not already by another caller
				result.Requeued++
			}
			if done && c.Head.Int64 == seq {
				result.Heads++
				result.Released += c.Counts.Total() - 1
			}
			return done, err
		})
		if err != nil {
			return campaign.Requeued{}, err
		}
		if err := q.RequireReason(o, result.Released); err != nil {
			return campaign.Requeued{}, err
		}
		if err := a.Action.Confirm(o.Confirm, operator.Reach{Rows: result.Requeued, Released: result.Released}); err != nil {
			return campaign.Requeued{}, err
		}
		for _, c := range campaigns {
			if err := t.SaveFromHead(c, now); err != nil {
				return campaign.Requeued{}, err
			}
		}
		a.After = result
		return result, nil
	})
}

// selectDead walks the index of dead rows, even for one campaign: a campaign may have very many
// rows, and few dead ones.
const (
	selectDead   = selectRowKeys + `where o.status = 'dead'` + tried
	selectFailed = selectRowKeys + `where o.status = 'failed'` + tried

	selectRowKeys = `
select o.campaign_id, o.seq
from projection_apply_outbox o
`
	tried = `
  and o.attempt_count > 0` + SelectedBy

	// SelectedBy ends a query on the outbox, with alias o, for rows that a filter selects; see
	// Tx.Selected.
	SelectedBy = `
  and ($1 = '' or o.event_type = $1)
  and ($2 = '' or o.fingerprint = $2)
  and ($4 = '' or o.campaign_id = $4)
order by o.next_attempt_at, o.seq, o.campaign_id
limit $3`
)

// Selected reads the rows that a filter selects, by a query that ends with SelectedBy. The
// number is the filter's limit, or byDefault. A limit above most is event.ErrInvalid, an
// unknown campaign event.ErrNotFound.
func Selected(t *store.Tx, scan func(sqldb.Row) error, query string, f campaign.RequeueFilter, most, byDefault int) error {
	if f.Limit < 0 || f.Limit > most {
		return event.Invalid("limit", "limit must lie between 1 and %d", most)
	}
	if f.CampaignID != "" {
		if _, err := t.ExistingCampaign(f.CampaignID); err != nil {
			return err
		}
	}
	return t.Each(scan, query, f.EventType, f.Fingerprint, cmp.Or(f.Limit, byDefault), f.CampaignID)
}

// changeChosen changes the rows that a filter selects; change reports whether it did. It returns their campaigns.
func changeChosen(t *store.Tx, a *store.Change, query string, f campaign.RequeueFilter, change func(c *store.CampaignRow, seq int64) (bool, error)) (map[string]*store.CampaignRow, error) {
	var rows []event.RowKey
	var ids []string
	err := Selected(t, func(row sqldb.Row) error {
		var k event.RowKey
		err := row.Scan(&k.CampaignID, &k.Seq)
		rows, ids = append(rows, k), append(ids, k.CampaignID)
		return err
	}, query, f, event.MaxRequeue, event.DefaultRequeue)
	if err != nil {
		return nil, err
	}
	campaigns, err := t.Campaigns(ids)
	if err != nil {
		return nil, err
	}
	a.Touched = nil
	for _, row := range rows {
		changed, err := change(campaigns[row.CampaignID], row.Seq)
		if err != nil {
			return nil, err
		}
		if changed {
			a.Touched = append(a.Touched, row)
		}
	}
	return campaigns, nil
}

// RetryRow makes a failed head due now and keeps its attempts. It needs no confirmation phrase,
// since the row would be retried anyway. A row that is not a failed head is event.ErrConflict.
func (q *Queue) RetryRow(ctx context.Context, o operator.Command, campaignID string, seq int64) (campaign.Row, error) {
	a := &store.Change{Command: o, Action: operator.ActionRetry, CampaignID: campaignID, Seq: seq}
	return q.changeRow(ctx, a, func(t *store.Tx, c *store.CampaignRow, row campaign.Row, now int64) error {
		if !row.Retryable() {
			return event.Conflict("campaign %q seq %d is %s; only a failed head can be retried%s", campaignID, seq, row.Status, t.LastAction(campaignID, seq, now))
		}
		if err := q.Require(o, 0); err != nil {
			return err
		}
		_, err := retryHead(t, c, now)
		return err
	})
}

const retryRow = `
update projection_apply_outbox
set next_attempt_at = $3, updated_at = $3
where campaign_id = $1
  and seq = $2
  and status = 'failed'`

// retryHead makes the head of a campaign due now if it is failed.
func retryHead(t *store.Tx, c *store.CampaignRow, now int64) (bool, error) {
	n, err := t.Exec(retryRow, c.ID, c.Head.Int64, now)
	if err != nil {
		return false, fmt.Errorf("retry campaign %q seq %d: %w", c.ID, c.Head.Int64, err)
	}
	if n == 0 {
		return false, nil
	}
	c.HeadNext.Int64 = now
	c.Schedule(now)
	return true, t.Save(c, now)
}

// RetryFailed makes the failed heads that match f due now, in order of next attempt, in one
// transaction. Their attempts are kept.
func (q *Queue) RetryFailed(ctx context.Context, o operator.Command, f campaign.RequeueFilter) (campaign.Retried, error) {
	a := &store.Change{Command: o, Action: operator.ActionRetryMany, CampaignID: f.CampaignID, Before: f, Asked: f}
	return store.Perform(ctx, q.Store, a, func(t *store.Tx, now int64) (campaign.Retried, error) {
		var result campaign.Retried
		if err := q.Require(o, 0); err != nil {
			return result, err
		}
		_, err := changeChosen(t, a, selectFailed, f, func(c *store.CampaignRow, seq int64) (bool, error) {
			if c.Head.Int64 != seq { // settled since it was selected
				return false, nil
			}
			done, err := retryHead(t, c, now)
			if done {
				result.Retried++
			}
			return done, err
		})
		a.After = result
		return result, err
	})
}

// PauseCampaign pauses a campaign: no worker claims it until it is resumed. A running wave
// completes first. A paused campaign is event.ErrConflict.
func (q *Queue) PauseCampaign(ctx context.Context, o operator.Command, id string) (campaign.Campaign, error) {
	return q.setPaused(ctx, &store.Change{Command: o, Action: operator.ActionPause, CampaignID: id}, func(t *store.Tx, c *store.CampaignRow, now int64) error {
		if c.PausedAt.Valid {
			return event.Conflict("campaign %q is already paused%s", id, t.LastAction(id, 0, now))
		}
		c.PausedAt = sql.NullInt64{Int64: now, Valid: true}
		c.PausedBy, c.PausedWhy = o.By.Name, o.Reason
		return t.PausedUntil(o, operator.ActionResume, id, "", now)
	})
}

// ResumeCampaign resumes a paused campaign. One that is not paused is event.ErrConflict.
func (q *Queue) ResumeCampaign(ctx context.Context, o operator.Command, id string) (campaign.Campaign, error) {
	return q.setPaused(ctx, &store.Change{Command: o, Action: operator.ActionResume, CampaignID: id}, func(t *store.Tx, c *store.CampaignRow, now int64) error {
		if !c.PausedAt.Valid {
			return event.Conflict("campaign %q is not paused%s", id, t.LastAction(id, 0, now))
		}
		c.PausedAt, c.PausedBy, c.PausedWhy = sql.NullInt64{}, "", ""
		return t.Resumed(o, operator.ActionResume, id, "")
	})
}

// setPaused pauses or resumes a campaign in the state that the operator expects.
func (q *Queue) setPaused(ctx context.Context, a *store.Change, change func(*store.Tx, *store.CampaignRow, int64) error) (campaign.Campaign, error) {
	return store.Perform(ctx, q.Store, a, func(t *store.Tx, now int64) (campaign.Campaign, error) {
		c, err := q.campaignForChange(t, a, now)
		if err != nil {
			return campaign.Campaign{}, err
		}
		a.Before = map[string]bool{"paused": c.PausedAt.Valid}
		if err := change(t, c, now); err != nil {
			return campaign.Campaign{}, err
		}
		a.After = map[string]bool{"paused": c.PausedAt.Valid}
		c.Schedule(now)
		return c.View(), t.Save(c, now)
	})
}
