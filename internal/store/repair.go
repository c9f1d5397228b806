package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// ReplayCampaign inserts the missing row of every unapplied event of the campaign, due now, and
// removes rows of events that are applied already.
//
// It waits briefly for a running wave of the campaign; when that takes longer it is an
// outbox.ErrConflict that names the worker.
func (s *Store) ReplayCampaign(ctx context.Context, o outbox.Command, id string) (outbox.Repaired, error) {
	a := &Change{Command: o, Action: outbox.ActionReplay, CampaignID: id}
	replay := func(t *Tx, now int64) (outbox.Repaired, error) {
		c, err := s.campaignForChange(t, a, now)
		if err != nil {
			return outbox.Repaired{}, err
		}
		if err := c.free(now); err != nil {
			return outbox.Repaired{}, err
		}
		result, err := s.RepairCampaign(t, c, now)
		a.After = result
		return result, err
	}
	repaired, err := WhenFree(ctx, s, func() (outbox.Repaired, error) { return Perform(ctx, s, a, replay) })
	return repaired, s.Refused(ctx, a, err)
}

// ErrHeld marks the refusal of an action that needs a campaign without a lease.
var ErrHeld = errors.New("lease held")

// free refuses while another owner holds the campaign's lease.
func (c *CampaignRow) free(now int64) error {
	if c.LeaseOwner == "" || c.LeaseExpiry <= now {
		return nil
	}
	refusal := outbox.Conflict("worker %s is applying events of campaign %q; try again in a moment", c.LeaseOwner, c.ID)
	if outbox.IsRun(c.LeaseOwner) {
		refusal = outbox.Conflict("%s is working on campaign %q; try again in a moment", c.LeaseOwner, c.ID)
	}
	refusal.Err = fmt.Errorf("%w: %w", outbox.ErrConflict, ErrHeld)
	return refusal
}

// heldPoll is how often an action tries to get a campaign that is leased.
const heldPoll = 10 * time.Millisecond

// WhenFree retries an action until the campaign's lease is free, for at most Options.Patience.
func WhenFree[R any](ctx context.Context, s *Store, try func() (R, error)) (R, error) {
	deadline := time.NewTimer(s.options.Patience)
	defer deadline.Stop()
	poll := time.NewTicker(heldPoll)
	defer poll.Stop()
	for {
		result, err := try()
		if !errors.Is(err, ErrHeld) {
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
	Repaired   outbox.Repaired
	// Drifted is true unless a dead worker or a wrong clock explains the mismatch.
	Drifted bool
	// Mistimed is true when a lease or wait was longer than the settings allow, because a clock was
	// ahead of this one.
	Mistimed bool
}

// ReconcileCampaign is Reconcile for one campaign.
func (s *Store) ReconcileCampaign(ctx context.Context, id string) (outbox.Repaired, error) {
	f, err := s.RepairFree(ctx, id)
	if errors.Is(err, ErrHeld) {
		err = nil // its worker will settle it
	}
	return f.Repaired, err
}

// RepairFree repairs a campaign without a lease. For a leased one it corrects only the times,
// and also returns ErrHeld.
func (s *Store) RepairFree(ctx context.Context, id string) (f Found, err error) {
	var held error
	err = s.journal.Write(ctx, func(t *Tx) error {
		now := s.Now()
		c, err := t.ExistingCampaign(id)
		if err != nil {
			return err
		}
		before := *c
		f = Found{CampaignID: id}
		if err := s.shorten(t, c, now); err != nil {
			return err
		}
		f.Mistimed = *c != before || c.Due.Valid && c.Mistimed(now+ClockTolerance)
		f.Drifted = !c.Due.Valid && c.Mistimed(now)
		if held = c.free(now); held == nil {
			f.Repaired, err = s.RepairCampaign(t, c, now)
			f.Drifted = f.Drifted || !s.leftBehind(before, f.Repaired) && (f.Repaired.Campaigns > 0 || c.drifted(before))
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
func (s *Store) leftBehind(before CampaignRow, r outbox.Repaired) bool {
	arriving := s.options.Mode == outbox.ModeInline && before.Bare()
	unsettled := before.Crashes > 0 && r.Removed > 0 && r.Inserted == 0 && r.Diverged == 0
	return before.LeaseOwner != "" || arriving || unsettled
}

// ClockTolerance is how far, in microseconds, the clocks of instances may differ without any
// correction.
const ClockTolerance = 1_000_000

// Overdrawn reports whether a lease or the wait of a failed head ends later than the settings
// allow from now.
func (s *Store) Overdrawn(c *CampaignRow, now int64) (lease, wait bool) {
	now += ClockTolerance
	return c.LeaseOwner != "" && c.LeaseExpiry > now+s.options.Lease.Microseconds(),
		outbox.Status(c.HeadStatus.String) == outbox.Failed && c.HeadNext.Int64 > now+s.options.Retry.Longest().Microseconds()
}

const waitRow = `
update projection_apply_outbox
set next_attempt_at = $3, updated_at = $4
where campaign_id = $1
  and seq = $2`

// shorten cuts a lease and the wait of a failed head to what the settings allow from now, when
// a clock that was ahead made them longer.
func (s *Store) shorten(t *Tx, c *CampaignRow, now int64) error {
	lease, wait := s.Overdrawn(c, now)
	if lease {
		c.LeaseExpiry = now + s.options.Lease.Microseconds()
	}
	if wait {
		var attempts int
		if _, err := t.One([]any{&attempts}, `select attempt_count from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.ID, c.Head.Int64); err != nil {
			return err
		}
		c.HeadNext.Int64 = now + s.options.Retry.Delay(attempts).Microseconds()
		if _, err := t.Exec(waitRow, c.ID, c.Head.Int64, c.HeadNext.Int64, now); err != nil {
			return err
		}
	}
	return nil
}

// WatermarkOf reads the watermark of a campaign; the zero value for a campaign without
// projections.
func (s *Store) WatermarkOf(ctx context.Context, id string) (readmodel.Watermark, error) {
	marks, err := s.readmodel.Watermarks(ctx, []string{id})
	return marks[id], err
}

// drifted reports whether the campaign's row before the repair disagreed with its rows or with
// the end of the journal.
func (c *CampaignRow) drifted(before CampaignRow) bool {
	return c.HighWater != before.HighWater || c.Counts != before.Counts || c.Head != before.Head || c.HeadStatus != before.HeadStatus ||
		c.HeadNext != before.HeadNext || c.Oldest != before.Oldest || c.Skips != before.Skips
}

// InlineWait is the most time that a request spends applying what it appended.
const InlineWait = 10 * time.Second

// SelectChainHash reads the chain hash of an event.
const SelectChainHash = `
select chain_hash
from events
where campaign_id = $1
  and seq = $2`

// Strange is the reason for a watermark whose event the journal does not have. It is stored
// with the campaign and must stay true after further appends, so it does not say whether the
// journal ends before that event or has another in its place.
func Strange(w readmodel.Watermark) string {
	return fmt.Sprintf("the projections have an event %d that the journal does not have", w.AppliedSeq)
}

// divergence says how a watermark contradicts the journal; empty when it does not.
func (t *Tx) divergence(c *CampaignRow, w readmodel.Watermark) (string, error) {
	if w.AppliedSeq == 0 {
		return "", nil
	}
	if w.AppliedSeq > c.HighWater {
		return Strange(w), nil
	}
	var hash string
	found, err := t.One([]any{&hash}, SelectChainHash, c.ID, w.AppliedSeq)
	if err == nil && (!found || hash != w.AppliedHash) {
		return Strange(w), nil
	}
	return "", err
}

// Divergence says how a watermark contradicts the journal; empty when it does not. The
// watermark must be read before the call, so that the journal has the events that it counts.
func (s *Store) Divergence(ctx context.Context, campaign string, w readmodel.Watermark) (reason string, err error) {
	return Reading(ctx, s, "", func(t *Tx) (string, error) {
		c, _, err := t.campaign(campaign) // an unknown one ends at 0
		if err != nil {
			return "", err
		}
		c.ID = campaign
		return t.divergence(c, w)
	})
}

const (
	insertMissingRows = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
select e.campaign_id, e.seq, e.event_type, $3, e.recorded_at, $3
from events e
where e.campaign_id = $1
  and e.seq > $2
  and not exists (select 1 from projection_apply_outbox o where o.campaign_id = e.campaign_id and o.seq = e.seq)`

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
func (s *Store) RepairCampaign(t *Tx, c *CampaignRow, now int64) (outbox.Repaired, error) {
	var r outbox.Repaired
	before := *c
	if c.LeaseOwner != "" || c.Counts.Processing > 0 {
		if err := s.endLease(t, c, now); err != nil {
			return r, err
		}
	}
	w, reason, err := s.divergence(t, c)
	if err != nil {
		return r, err
	}
	// A journal with a lower epoch than the projections would be fenced off until it has caught up.
	c.LeaseEpoch = max(c.LeaseEpoch, w.FenceEpoch)
	if reason == "" {
		r, err = s.repairRows(t, c, w, now)
	} else {
		if c.Diverged == "" {
			r = outbox.Repaired{Campaigns: 1, Diverged: 1}
		}
		err = t.recountWithHead(c)
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
func (s *Store) divergence(t *Tx, c *CampaignRow) (w readmodel.Watermark, reason string, err error) {
	w, marks, err := s.readmodel.Position(context.Background(), c.ID)
	if err != nil {
		return w, "", err
	}
	if w.AppliedSeq > c.HighWater {
		err = t.endAtLastEvent(c)
	}
	if err == nil {
		reason, err = t.divergence(c, w)
	}
	if err != nil {
		return w, "", err
	}
	if reason == "" {
		if w, marks, err = s.finishUnskips(t, c, w, marks); err != nil {
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
func (t *Tx) endAtLastEvent(c *CampaignRow) error {
	var seq int64
	var hash string
	if _, err := t.One([]any{&seq, &hash}, SelectLastEvent, c.ID); err != nil || seq <= c.HighWater {
		return err
	}
	c.HighWater, c.ChainHash = seq, hash
	return nil
}

// endLease ends an expired lease, returns its rows to pending and raises the fence above it.
func (s *Store) endLease(t *Tx, c *CampaignRow, now int64) error {
	err := s.raiseFence(c, func(*readmodel.ApplyTx, readmodel.Watermark) error { return nil })
	if err != nil {
		return fmt.Errorf("end the lease of campaign %q: %w", c.ID, err)
	}
	return t.dropLease(c, now)
}

// dropLease ends the lease and returns its rows to pending; the caller must fence off its
// holder.
func (t *Tx) dropLease(c *CampaignRow, now int64) error {
	c.LeaseOwner, c.LeaseExpiry = "", 0
	_, err := t.Exec(resetProcessing, c.ID, now)
	if err == nil {
		err = t.recountWithHead(c)
	}
	return sqldb.Wrapf(err, "end the lease of campaign %q", c.ID)
}

func (s *Store) repairRows(t *Tx, c *CampaignRow, w readmodel.Watermark, now int64) (r outbox.Repaired, err error) {
	if r.Removed, err = t.Exec(deleteStaleRows, c.ID, w.AppliedSeq); err != nil {
		return r, fmt.Errorf("remove applied rows of campaign %q: %w", c.ID, err)
	}
	stray, err := t.Exec(deleteStrayRows, c.ID, c.HighWater)
	if err != nil {
		return r, fmt.Errorf("remove rows without an event of campaign %q: %w", c.ID, err)
	}
	r.Removed += stray
	if r.Inserted, err = t.Exec(insertMissingRows, c.ID, w.AppliedSeq, now); err != nil {
		return r, fmt.Errorf("insert missing rows of campaign %q: %w", c.ID, err)
	}
	resettled, err := t.repairSkips(c, w, now)
	if err != nil {
		return r, err
	}
	if r.Inserted+r.Removed > 0 || resettled {
		r.Campaigns = 1
	}
	c.Applied = w.AppliedSeq
	return r, t.recountWithHead(c)
}

// EnqueueMissing inserts a row, due now, for each event of a campaign that is neither applied
// nor has one, even while the campaign is leased. An unknown campaign has none.
func (s *Store) EnqueueMissing(ctx context.Context, id string) error {
	inserted := int64(0)
	err := s.journal.Write(ctx, func(t *Tx) error {
		now := s.Now()
		c, found, err := t.campaign(id)
		if err != nil || !found || c.Counts.Total() >= c.HighWater-c.Applied {
			return err
		}
		if inserted, err = t.enqueueMissing(c, now); err != nil {
			return err
		}
		c.Schedule(now)
		return t.Save(c, now)
	})
	if err != nil {
		return fmt.Errorf("give events that are not applied their rows: %w", err)
	}
	if inserted > 0 {
		s.WakeUp()
	}
	return nil
}

// enqueueMissing inserts a row, due now, for each unapplied event without one.
func (t *Tx) enqueueMissing(c *CampaignRow, now int64) (inserted int64, err error) {
	if inserted, err = t.Exec(insertMissingRows, c.ID, c.Applied, now); err != nil {
		return 0, fmt.Errorf("insert missing rows of campaign %q: %w", c.ID, err)
	}
	if err := t.Recount(c); err != nil {
		return 0, err
	}
	return inserted, t.refreshHead(c)
}

// SelectLastEvent reads the last event of a campaign.
const SelectLastEvent = `
select seq, chain_hash
from events
where campaign_id = $1
order by seq desc
limit 1`

// strangeProbes is how many watermarks at either end of the table are compared with the
// journal.
const strangeProbes = 3

var probedMarks = sqldb.BothWays(`
select campaign_id, applied_seq, applied_hash
from projection_watermarks
where campaign_id {>} $1
order by campaign_id{desc}
limit $2`)

// foreignProjections reports whether the projections belong to another journal, judged by the
// first and last campaigns: the journal has the last applied event of none of them. It is used
// until a worker has compared every campaign.
func (s *Store) foreignProjections(ctx context.Context) (bool, error) {
	type mark struct {
		id, hash string
		seq      int64
	}
	var marks []mark
	err := s.readmodel.Read(ctx, func(t *sqldb.Tx) error {
		var b sqldb.Batch
		note := func(row sqldb.Row) error {
			var m mark
			err := row.Scan(&m.id, &m.seq, &m.hash)
			if m.seq > 0 {
				marks = append(marks, m)
			}
			return err
		}
		b.Each(note, probedMarks.Up, "", strangeProbes)
		b.Each(note, probedMarks.Down, sqldb.BeyondTexts, strangeProbes)
		return t.RunAll(&b)
	})
	if err != nil || len(marks) == 0 {
		return false, err
	}
	fits := false
	err = s.journal.Read(ctx, func(t *Tx) error {
		for _, m := range marks {
			var hash string
			if _, err := t.One([]any{&hash}, SelectChainHash, m.id, m.seq); err != nil {
				return err
			}
			fits = fits || hash == m.hash
		}
		return nil
	})
	return !fits, err
}
