package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const insertSkip = `
insert into skips (campaign_id, seq, event_type, error, skipped_at, skipped_by, reason)
values ($1, $2, $3, $4, $5, $6, $7)`

// SkipEvent lets the watermark of a campaign advance past its head, which has failed or is
// dead, without ever applying it. It requires a reason and the confirmation phrase of
// ActionSkip; without them it is event.ErrInvalid. Any other row, or one not in the expected
// state, is event.ErrConflict; a missing one is event.ErrNotFound.
//
// The skip is committed to the journal before the row can be claimed again, and a worker that
// claimed it before is fenced off first, so that no worker unaware of the skip can apply the
// event while the skip is active. When the journal does not commit, only the fence is higher
// than before, which the next claims exceed.
func (q *Queue) SkipEvent(ctx context.Context, o operator.Command, campaignID string, seq int64) (campaign.Row, error) {
	a := &store.Change{Command: o, Action: operator.ActionSkip, CampaignID: campaignID, Seq: seq}
	row, err := WhenFree(ctx, q, func() (campaign.Row, error) {
		return q.changeRow(ctx, a, func(t *store.Tx, c *store.CampaignRow, row campaign.Row, now int64) error {
			if err := confirmSkip(o, campaignID, seq); err != nil {
				return err
			}
			if err := admitSkip(t, row, c, now); err != nil {
				return err
			}
			if o.Hold && c.PausedAt.Valid {
				return event.Conflict("campaign %q is paused already, so that a resume would not confirm the skip alone; skip without hold, or resume the campaign first", campaignID)
			}
			if err := q.fenceForSkip(c, seq, now); err != nil {
				return err
			}
			return skipRow(t, c, row, o, now)
		})
	})
	return row, q.Refused(ctx, a, err)
}

// admitSkip refuses a row that does not block its campaign, and one whose event is skipped
// already: its error prevents the watermark from advancing past the event, too.
func admitSkip(t *store.Tx, row campaign.Row, c *store.CampaignRow, now int64) error {
	skips, err := t.ActiveSkips(row.CampaignID, row.Seq, row.Seq)
	if err != nil {
		return err
	}
	var standing *event.Skip
	if len(skips) > 0 {
		standing = &skips[0]
	}
	switch {
	case row.Skippable(standing):
		return nil
	case row.Skippable(nil):
		return event.Conflict("event %d of campaign %q is already skipped, by %s; it is not passed over yet because: %s",
			row.Seq, row.CampaignID, standing.SkippedBy, row.LastError)
	}
	return event.Conflict("campaign %q seq %d is %s; only a failed or dead head can be skipped%s", row.CampaignID, row.Seq, placeOf(row, c), t.LastAction(row.CampaignID, row.Seq, now))
}

func confirmSkip(o operator.Command, campaign string, seq int64) error {
	if strings.TrimSpace(o.Reason) == "" {
		return event.Invalid("reason", "skipping an event requires a reason")
	}
	return operator.ActionSkip.Confirm(o.Confirm, operator.Reach{Skipped: event.RowKey{CampaignID: campaign, Seq: seq}})
}

// placeOf describes the position and status of a row that an action cannot be applied to.
func placeOf(row campaign.Row, c *store.CampaignRow) string {
	if row.IsHead {
		return string(row.Status)
	}
	return fmt.Sprintf("%s and waits behind event %d", row.Status, c.Head.Int64)
}

// fenceForSkip fences off every earlier claim of the campaign. It refuses when one of them has
// applied the event.
func (q *Queue) fenceForSkip(c *store.CampaignRow, seq, now int64) error {
	if err := free(c, now); err != nil {
		return err
	}
	err := q.raiseFence(c, func(_ *readmodel.ApplyTx, w readmodel.Watermark) error {
		if w.AppliedSeq >= seq {
			return event.Conflict("event %d of campaign %q is already applied; replay the campaign to remove its leftover row", seq, c.ID)
		}
		return nil
	})
	c.LeaseOwner, c.LeaseExpiry = "", 0
	return err
}

// raiseFence keeps every earlier claim of the campaign, even one whose holder wakes much later,
// from changing the projections: it raises the fence above their epochs. change runs in the
// same transaction, with the watermark locked.
func (q *Queue) raiseFence(c *store.CampaignRow, change func(*readmodel.ApplyTx, readmodel.Watermark) error) error {
	return q.ReadModel().Apply(context.Background(), func(a *readmodel.ApplyTx) error {
		w, err := a.Watermark(c.ID)
		if err != nil {
			return err
		}
		c.LeaseEpoch = max(c.LeaseEpoch, w.FenceEpoch) + 1
		if err := a.Fence(c.ID, c.LeaseEpoch); err != nil {
			return err
		}
		return change(a, w)
	})
}

func skipRow(t *store.Tx, c *store.CampaignRow, row campaign.Row, o operator.Command, now int64) error {
	if _, err := t.Exec(insertSkip, c.ID, row.Seq, row.EventType, row.LastError, now, o.By.Name, o.Reason); err != nil {
		return fmt.Errorf("skip campaign %q seq %d: %w", c.ID, row.Seq, err)
	}
	if _, err := requeue(t, c, row.Status, row.Seq, now); err != nil {
		return err
	}
	c.Skips++
	if err := t.SaveFromHead(c, now); err != nil || !o.Hold {
		return err
	}
	c.PausedAt, c.PausedBy, c.PausedWhy = sql.NullInt64{Int64: now, Valid: true}, o.By.Name, heldSkip(row.Seq)
	c.Schedule(now)
	return t.Save(c, now)
}

// heldSkip is why a campaign is paused behind a skip.
func heldSkip(seq int64) string {
	return fmt.Sprintf("event %d was skipped; a resume confirms that, and an un-skip takes it back", seq)
}

const passSkips = `
update skips
set applied_at = $3
where campaign_id = $1
  and seq <= $2
  and applied_at is null
  and undone_at is null`

// settleSkips marks which skips of the campaigns have been applied.
func settleSkips(t *store.Tx, held []*settling, now int64) error {
	var b sqldb.Batch
	for _, h := range held {
		if h.c.Skips > 0 {
			b.Exec(nil, passSkips, h.c.ID, h.Applied, now)
		}
	}
	return sqldb.Wrapf(t.RunAll(&b), "settle skips")
}

// UnskipEvent reverts a skip: the event is applied like any other. That is possible until a
// later event has been applied or skipped over; after that it is event.ErrConflict, and so is
// an event that is not skipped or a campaign that is not in the expected state.
//
// When the watermark is on the event it is set back by one, and the event's mark is removed,
// before the journal commits. If the process dies between the two, the projections lack an
// event that is still skipped: reconcile inserts its row, the worker skips over it again, and
// the action has had no effect. In the opposite order the watermark would be on an event that
// is not skipped and was never applied.
func (q *Queue) UnskipEvent(ctx context.Context, o operator.Command, campaign string, seq int64) (event.Skip, error) {
	setBack := false
	a := &store.Change{Command: o, Action: operator.ActionUnskip, CampaignID: campaign, Seq: seq}
	skip, err := WhenFree(ctx, q, func() (event.Skip, error) {
		return store.Perform(ctx, q.Store, a, func(t *store.Tx, now int64) (event.Skip, error) {
			c, skip, err := skipToUndo(t, o, campaign, seq, now)
			if err != nil {
				return skip, err
			}
			if setBack, err = q.rewindSkip(t, c, skip, now); err != nil {
				return skip, err
			}
			a.Before = skip
			skip, err = undo(t, c, skip, o, now)
			a.After = skip
			return skip, err
		})
	})
	if err != nil && setBack {
		// Best effort: the journal was unreachable.
		_, _ = q.ReconcileCampaign(context.Background(), campaign)
	}
	return skip, q.Refused(ctx, a, err)
}

// skipToUndo reads the active skip of an event, in a campaign without a lease that is in the
// expected state.
func skipToUndo(t *store.Tx, o operator.Command, campaign string, seq, now int64) (*store.CampaignRow, event.Skip, error) {
	c, err := t.ExistingCampaign(campaign)
	if err != nil {
		return nil, event.Skip{}, err
	}
	if seq < 1 || seq > c.HighWater {
		return nil, event.Skip{}, t.MissingEvent(campaign, seq)
	}
	skips, err := t.ActiveSkips(campaign, seq, seq)
	if err != nil {
		return nil, event.Skip{}, err
	}
	if len(skips) == 0 {
		return nil, event.Skip{}, event.Conflict("event %d of campaign %q is not skipped%s", seq, campaign, t.LastAction(campaign, seq, now))
	}
	if err := t.ExpectCampaign(o, c, now); err != nil {
		return nil, event.Skip{}, err
	}
	return c, skips[0], free(c, now)
}

const giveBackRow = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
select e.campaign_id, e.seq, e.event_type, $3, e.recorded_at, $3
from events e
where e.campaign_id = $1
  and e.seq = $2
on conflict (campaign_id, seq) do update
set status = 'pending', attempt_count = 0, next_attempt_at = excluded.next_attempt_at, updated_at = excluded.updated_at`

// rewindSkip sets the watermark back by one if it is on the skipped event, and inserts the
// event's row. If the next event has failed its attempts start over, since it was tried without
// this one. rewindSkip reports whether it set the watermark back.
func (q *Queue) rewindSkip(t *store.Tx, c *store.CampaignRow, skip event.Skip, now int64) (setBack bool, err error) {
	hashes, err := chainHashes(t, c.ID, skip.Seq)
	if err != nil {
		return false, err
	}
	skipped, err := t.ActiveSkips(c.ID, skip.Seq+1, math.MaxInt64)
	if err != nil {
		return false, err
	}
	err = q.raiseFence(c, func(a *readmodel.ApplyTx, w readmodel.Watermark) error {
		if !skip.Undoable(w.AppliedSeq) {
			return tooLate(skip, w.AppliedSeq, skipped)
		}
		setBack = w.AppliedSeq == skip.Seq
		if !setBack {
			return nil
		}
		return a.SetBack(skip, hashes, c.LeaseEpoch)
	})
	if err != nil {
		return false, err
	}
	if err := dropLease(t, c, now); err != nil {
		return setBack, err
	}
	if !setBack {
		return false, nil
	}
	if _, err := t.Exec(giveBackRow, c.ID, skip.Seq, now); err != nil {
		return true, fmt.Errorf("give campaign %q seq %d its row back: %w", c.ID, skip.Seq, err)
	}
	if head := event.Status(c.HeadStatus.String); head.Stuck() {
		if _, err := requeue(t, c, head, c.Head.Int64, now); err != nil {
			return true, err
		}
	}
	c.Applied = skip.Seq - 1
	return true, t.Recount(c)
}

// chainHashes reads the chain hashes of an event and of the one before it, which is empty for
// the first.
func chainHashes(t *store.Tx, campaign string, seq int64) (hashes readmodel.ChainHashes, err error) {
	if _, err = t.One([]any{&hashes.Before}, store.SelectChainHash, campaign, seq-1); err == nil {
		_, err = t.One([]any{&hashes.Own}, store.SelectChainHash, campaign, seq)
	}
	return hashes, sqldb.Wrapf(err, "read the chain hashes of campaign %q up to seq %d", campaign, seq)
}

// tooLate is the refusal that lists the events after the skipped one, up to the watermark.
func tooLate(skip event.Skip, applied int64, skipped []event.Skip) error {
	later := int64(0)
	for _, k := range skipped {
		if k.Seq <= applied {
			later++
		}
	}
	switch {
	case later == applied-skip.Seq:
		return event.Conflict("event %d of campaign %q, after event %d, is skipped too; un-skip it first", applied, skip.CampaignID, skip.Seq)
	case applied == skip.Seq+1:
		return event.Conflict("event %d of campaign %q was applied after event %d, so it can no longer be applied; append a compensating event", applied, skip.CampaignID, skip.Seq)
	default:
		return event.Conflict("events %d to %d of campaign %q were applied after event %d, so it can no longer be applied; append a compensating event", skip.Seq+1, applied, skip.CampaignID, skip.Seq)
	}
}

const undoSkip = `
update skips
set undone_at = $3, undone_by = $4, undone_reason = $5
where campaign_id = $1
  and seq = $2
  and undone_at is null`

func undo(t *store.Tx, c *store.CampaignRow, skip event.Skip, o operator.Command, now int64) (event.Skip, error) {
	n, err := t.Exec(undoSkip, c.ID, skip.Seq, now, o.By.Name, o.Reason)
	if err != nil {
		return skip, fmt.Errorf("take back the skip of campaign %q seq %d: %w", c.ID, skip.Seq, err)
	}
	c.Skips -= n
	when := sqldb.At(now)
	skip.UndoneAt, skip.UndoneBy, skip.UndoneReason = &when, o.By.Name, o.Reason
	c.Unsuspect()
	if c.PausedWhy == heldSkip(skip.Seq) {
		c.PausedAt, c.PausedBy, c.PausedWhy = sql.NullInt64{}, "", ""
		c.Schedule(now)
		return skip, t.Save(c, now)
	}
	return skip, t.SaveFromHead(c, now)
}
