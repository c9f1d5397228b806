package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// ReplayCampaign inserts the missing row of every unapplied event of the campaign, due now, and
// removes rows of events that are applied already.
//
// It waits briefly for a running wave of the campaign; when that takes longer it is an
// event.ErrConflict that names the worker.
func (q *Queue) ReplayCampaign(ctx context.Context, o operator.Command, id string) (campaign.Repaired, error) {
	a := &store.Change{Command: o, Action: operator.ActionReplay, CampaignID: id}
	replay := func(t *store.Tx, now int64) (campaign.Repaired, error) {
		c, err := q.campaignForChange(t, a, now)
		if err != nil {
			return campaign.Repaired{}, err
		}
		if err := free(c, now); err != nil {
			return campaign.Repaired{}, err
		}
		result, err := q.RepairCampaign(t, c, now)
		a.After = result
		return result, err
	}
	repaired, err := WhenFree(ctx, q, func() (campaign.Repaired, error) { return store.Perform(ctx, q.Store, a, replay) })
	return repaired, q.Refused(ctx, a, err)
}

// free refuses while another owner holds the campaign's lease.
func free(c *store.CampaignRow, now int64) error {
	if c.LeaseOwner == "" || c.LeaseExpiry <= now {
		return nil
	}
	refusal := event.Conflict("worker %s is applying events of campaign %q; try again in a moment", c.LeaseOwner, c.ID)
	if campaign.IsRun(c.LeaseOwner) {
		refusal = event.Conflict("%s is working on campaign %q; try again in a moment", c.LeaseOwner, c.ID)
	}
	refusal.Err = fmt.Errorf("%w: %w", event.ErrConflict, store.ErrHeld)
	return refusal
}

// heldPoll is how often an action tries to get a campaign that is leased.
const heldPoll = 10 * time.Millisecond

// WhenFree retries an action until the campaign's lease is free, for at most store.Options.Patience.
func WhenFree[R any](ctx context.Context, q *Queue, try func() (R, error)) (R, error) {
	deadline := time.NewTimer(q.Patience())
	defer deadline.Stop()
	poll := time.NewTicker(heldPoll)
	defer poll.Stop()
	for {
		result, err := try()
		if !errors.Is(err, store.ErrHeld) {
			return result, err
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			return result, err
		case <-ctx.Done():
			return result, err
		}
	}
}

// Found is a campaign that did not match its rows or its watermark, and the repair.
type Found struct {
	CampaignID string
	Repaired   campaign.Repaired
	// Drifted is true unless a dead worker or a wrong clock explains the mismatch.
	Drifted bool
	// Mistimed is true when a lease or wait was longer than the settings allow, because a clock was
	// ahead of this one.
	Mistimed bool
}

// ReconcileCampaign is Reconcile for one campaign.
func (q *Queue) ReconcileCampaign(ctx context.Context, id string) (campaign.Repaired, error) {
	f, err := q.RepairFree(ctx, id)
	if errors.Is(err, store.ErrHeld) {
		err = nil // its worker will settle it
	}
	return f.Repaired, err
}

// RepairFree repairs a campaign without a lease. For a leased one it corrects only the times,
// and also returns ErrHeld.
func (q *Queue) RepairFree(ctx context.Context, id string) (f Found, err error) {
	var held error
	err = q.Journal().Write(ctx, func(t *store.Tx) error {
		now := q.Now()
		c, err := t.ExistingCampaign(id)
		if err != nil {
			return err
		}
		before := *c
		f = Found{CampaignID: id}
		if err := q.shorten(t, c, now); err != nil {
			return err
		}
		f.Mistimed = *c != before || c.Due.Valid && c.Mistimed(now+store.ClockTolerance)
		f.Drifted = !c.Due.Valid && c.Mistimed(now)
		if held = free(c, now); held == nil {
			f.Repaired, err = q.RepairCampaign(t, c, now)
			f.Drifted = f.Drifted || !q.leftBehind(before, f.Repaired) && (f.Repaired.Campaigns > 0 || drifted(c, before))
		}
		if !f.Drifted && !f.Mistimed || err != nil {
			return err
		}
		f.Repaired.Campaigns = 1
		c.Schedule(now)
		return t.Save(c, now)
	})
	return f, cmp.Or(err, held)
}

// leftBehind reports whether the repaired state is what a dying process leaves: a lease, inline
// events, or rows of events that it applied and did not settle.
func (q *Queue) leftBehind(before store.CampaignRow, r campaign.Repaired) bool {
	arriving := q.Mode() == campaign.ModeInline && before.Bare()
	unsettled := before.Crashes > 0 && r.Removed > 0 && r.Inserted == 0 && r.Diverged == 0
	return before.LeaseOwner != "" || arriving || unsettled
}

// Overdrawn reports whether a lease or the wait of a failed head ends later than the settings
// allow from now.
func (q *Queue) Overdrawn(c *store.CampaignRow, now int64) (lease, wait bool) {
	now += store.ClockTolerance
	return c.LeaseOwner != "" && c.LeaseExpiry > now+q.Lease().Microseconds(),
		event.Status(c.HeadStatus.String) == event.Failed && c.HeadNext.Int64 > now+q.Retry().Longest().Microseconds()
}

const waitRow = `
update projection_apply_outbox
set next_attempt_at = $3, updated_at = $4
where campaign_id = $1
  and seq = $2`

// shorten cuts a lease and the wait of a failed head to what the settings allow from now, when
// a clock that was ahead made them longer.
func (q *Queue) shorten(t *store.Tx, c *store.CampaignRow, now int64) error {
	lease, wait := q.Overdrawn(c, now)
	if lease {
		c.LeaseExpiry = now + q.Lease().Microseconds()
	}
	if wait {
		var attempts int
		if _, err := t.One([]any{&attempts}, `select attempt_count from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.ID, c.Head.Int64); err != nil {
			return err
		}
		c.HeadNext.Int64 = now + q.Retry().Delay(attempts).Microseconds()
		if _, err := t.Exec(waitRow, c.ID, c.Head.Int64, c.HeadNext.Int64, now); err != nil {
			return err
		}
	}
	return nil
}

// drifted reports whether the campaign's row before the repair disagreed with its rows or with
// the end of the journal.
func drifted(c *store.CampaignRow, before store.CampaignRow) bool {
	return c.HighWater != before.HighWater || c.Counts != before.Counts || c.Head != before.Head || c.HeadStatus != before.HeadStatus ||
		c.HeadNext != before.HeadNext || c.Oldest != before.Oldest || c.Skips != before.Skips
}

// InlineWait is the most time that a request spends applying what it appended.
const InlineWait = 10 * time.Second

const (
	deleteRows = `
delete from projection_apply_outbox
where campaign_id = $1`

	deleteStaleRows = deleteRows + `
  and seq <= $2`

	deleteStrayRows = deleteRows + `
  and seq > $2`

	resetProcessing = `
update projection_apply_outbox
set status = 'pending', updated_at = $2
where campaign_id = $1
  and status = 'processing'`
)

// RepairCampaign makes rows and counts match the watermark of a campaign without a lease: the
// watermark cannot move while this transaction prevents every claim. An expired lease is ended
// first, in both databases, so that its holder cannot change anything if it wakes.
func (q *Queue) RepairCampaign(t *store.Tx, c *store.CampaignRow, now int64) (campaign.Repaired, error) {
	var r campaign.Repaired
	before := *c
	if c.LeaseOwner != "" || c.Counts.Processing > 0 {
		if err := q.endLease(t, c, now); err != nil {
			return r, err
		}
	}
	w, reason, err := q.divergence(t, c)
	if err != nil {
		return r, err
	}
	// A journal with a lower epoch than the projections would be fenced off until it has caught up.
	c.LeaseEpoch = max(c.LeaseEpoch, w.FenceEpoch)
	if reason == "" {
		r, err = q.repairRows(t, c, w, now)
	} else {
		if c.Diverged == "" {
			r = campaign.Repaired{Campaigns: 1, Diverged: 1}
		}
		err = recountWithHead(t, c)
	}
	if err != nil {
		return r, err
	}
	c.Diverged = reason
	if before.Diverged != "" && reason == "" {
		r.Campaigns = 1
	}
	if *c == before {
		return r, nil
	}
	c.Schedule(now)
	return r, t.Save(c, now)
}

// divergence reads a campaign's watermark and how it contradicts the journal; reason is empty
// when it does not. It recounts the campaign's skips, which claims rely on.
func (q *Queue) divergence(t *store.Tx, c *store.CampaignRow) (w readmodel.Watermark, reason string, err error) {
	w, marks, err := q.ReadModel().Position(context.Background(), c.ID)
	if err != nil {
		return w, "", err
	}
	if w.AppliedSeq > c.HighWater {
		err = endAtLastEvent(t, c)
	}
	if err == nil {
		reason, err = t.Divergence(c, w)
	}
	if err != nil {
		return w, "", err
	}
	if reason == "" {
		if w, marks, err = q.finishUnskips(t, c, w, marks); err != nil {
			return w, "", err
		}
	}
	standing, err := t.ActiveSkips(c.ID, 1, math.MaxInt64)
	if err != nil {
		return w, "", err
	}
	c.Skips = int64(len(standing))
	return w, cmp.Or(reason, Contradiction(standing, marks, w.AppliedSeq)), nil
}

// endAtLastEvent corrects the high-water seq in the campaign's row when the journal has later
// events.
func endAtLastEvent(t *store.Tx, c *store.CampaignRow) error {
	var seq int64
	var hash string
	if _, err := t.One([]any{&seq, &hash}, store.SelectLastEvent, c.ID); err != nil || seq <= c.HighWater {
		return err
	}
	c.HighWater, c.ChainHash = seq, hash
	return nil
}

// endLease ends an expired lease, returns its rows to pending and raises the fence above it.
func (q *Queue) endLease(t *store.Tx, c *store.CampaignRow, now int64) error {
	err := q.raiseFence(c, func(*readmodel.ApplyTx, readmodel.Watermark) error { return nil })
	if err != nil {
		return fmt.Errorf("end the lease of campaign %q: %w", c.ID, err)
	}
	return dropLease(t, c, now)
}

// dropLease ends the lease and returns its rows to pending; the caller must fence off its
// holder.
func dropLease(t *store.Tx, c *store.CampaignRow, now int64) error {
	c.LeaseOwner, c.LeaseExpiry = "", 0
	_, err := t.Exec(resetProcessing, c.ID, now)
	if err == nil {
		err = recountWithHead(t, c)
	}
	return sqldb.Wrapf(err, "end the lease of campaign %q", c.ID)
}

func (q *Queue) repairRows(t *store.Tx, c *store.CampaignRow, w readmodel.Watermark, now int64) (r campaign.Repaired, err error) {
	if r.Removed, err = t.Exec(deleteStaleRows, c.ID, w.AppliedSeq); err != nil {
		return r, fmt.Errorf("remove applied rows of campaign %q: %w", c.ID, err)
	}
	stray, err := t.Exec(deleteStrayRows, c.ID, c.HighWater)
	if err != nil {
		return r, fmt.Errorf("remove rows without an event of campaign %q: %w", c.ID, err)
	}
	r.Removed += stray
	if r.Inserted, err = t.Exec(store.InsertMissingRows, c.ID, w.AppliedSeq, now); err != nil {
		return r, fmt.Errorf("insert missing rows of campaign %q: %w", c.ID, err)
	}
	resettled, err := repairSkips(t, c, w, now)
	if err != nil {
		return r, err
	}
	if r.Inserted+r.Removed > 0 || resettled {
		r.Campaigns = 1
	}
	c.Applied = w.AppliedSeq
	return r, recountWithHead(t, c)
}

// EnqueueMissing inserts a row, due now, for each event of a campaign that is neither applied
// nor has one, even while the campaign is leased. An unknown campaign has none.
func (q *Queue) EnqueueMissing(ctx context.Context, id string) error {
	inserted := int64(0)
	err := q.Journal().Write(ctx, func(t *store.Tx) error {
		now := q.Now()
		c, found, err := t.Campaign(id)
		if err != nil || !found || c.Counts.Total() >= c.HighWater-c.Applied {
			return err
		}
		if inserted, err = enqueueMissing(t, c, now); err != nil {
			return err
		}
		c.Schedule(now)
		return t.Save(c, now)
	})
	if err != nil {
		return fmt.Errorf("give events that are not applied their rows: %w", err)
	}
	if inserted > 0 {
		q.WakeUp()
	}
	return nil
}

// enqueueMissing inserts a row, due now, for each unapplied event without one.
func enqueueMissing(t *store.Tx, c *store.CampaignRow, now int64) (inserted int64, err error) {
	if inserted, err = t.Exec(store.InsertMissingRows, c.ID, c.Applied, now); err != nil {
		return 0, fmt.Errorf("insert missing rows of campaign %q: %w", c.ID, err)
	}
	if err := t.Recount(c); err != nil {
		return 0, err
	}
	return inserted, t.RefreshHead(c)
}
