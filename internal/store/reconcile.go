package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/sqldb"
)

// ReplayCampaign gives every unapplied event of the campaign its row back, due
// now, and removes rows of events that are applied already.
//
// A wave that is being applied to the campaign is waited for, for a moment; one
// that takes longer is an outbox.ErrConflict that names the worker.
func (s *Store) ReplayCampaign(ctx context.Context, o outbox.Order, id string) (outbox.Repaired, error) {
	a := &Act{Order: o, Action: outbox.ActReplay, CampaignID: id}
	repaired, err := whenFree(ctx, func() (outbox.Repaired, error) { return s.replayCampaign(ctx, a) })
	return repaired, s.Refused(ctx, a, err)
}

func (s *Store) replayCampaign(ctx context.Context, a *Act) (outbox.Repaired, error) {
	return Perform(ctx, s, a, func(t *Tx, now int64) (outbox.Repaired, error) {
		c, err := t.ExistingCampaign(a.CampaignID)
		if err != nil {
			return outbox.Repaired{}, err
		}
		if err := t.expectCampaign(a.Order, c, now); err != nil {
			return outbox.Repaired{}, err
		}
		if err := s.Require(a.Order, 0); err != nil {
			return outbox.Repaired{}, err
		}
		if err := c.free(now); err != nil {
			return outbox.Repaired{}, err
		}
		result, err := s.repairCampaign(t, c, now)
		a.After = result
		return result, err
	})
}

// errHeld marks the refusal of what needs a campaign that nobody works on.
var errHeld = errors.New("lease held")

// free refuses while another holds the campaign's lease.
func (c *CampaignRow) free(now int64) error {
	if c.LeaseOwner == "" || c.LeaseExpiry <= now {
		return nil
	}
	refusal := outbox.Conflict("worker %s is applying events of campaign %q right now; try again in a moment", c.LeaseOwner, c.ID)
	if outbox.IsRun(c.LeaseOwner) {
		refusal = outbox.Conflict("%s works on campaign %q right now; try again in a moment", c.LeaseOwner, c.ID)
	}
	refusal.Err = fmt.Errorf("%w: %w", outbox.ErrConflict, errHeld)
	return refusal
}

// How long, and how often, an act asks for a campaign that is being worked on.
const (
	heldWait = 2 * time.Second
	heldPoll = 10 * time.Millisecond
)

// whenFree tries an act until the campaign's lease is free, for at most
// heldWait.
func whenFree[R any](ctx context.Context, try func() (R, error)) (R, error) {
	deadline := time.NewTimer(heldWait)
	defer deadline.Stop()
	poll := time.NewTicker(heldPoll)
	defer poll.Stop()
	for {
		result, err := try()
		if !errors.Is(err, errHeld) {
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

// RepairGaps is ReplayCampaign for every campaign that needs it, each in a
// transaction of its own, with one audit record for all.
func (s *Store) RepairGaps(ctx context.Context, o outbox.Order) (outbox.Repaired, error) {
	a := &Act{Order: o, Action: outbox.ActRepairGaps}
	repaired, err := s.repairGaps(ctx, a)
	return repaired, s.Refused(ctx, a, err)
}

func (s *Store) repairGaps(ctx context.Context, a *Act) (outbox.Repaired, error) {
	if err := s.Admit(a.Order); err != nil {
		return outbox.Repaired{}, err
	}
	if err := s.Require(a.Order, 0); err != nil {
		return outbox.Repaired{}, err
	}
	var done outbox.Repaired
	repeated := false
	err := s.journal.Read(ctx, func(t *Tx) (err error) {
		repeated, err = t.RepeatedAct(a, &done)
		return err
	})
	if err != nil || repeated {
		return done, err
	}
	done, err = s.repairAll(ctx)
	if err != nil && done == (outbox.Repaired{}) {
		return done, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime) // campaigns are repaired, whoever has gone meanwhile
	defer cancel()
	if err != nil {
		return done, errors.Join(err, s.recordPart(ctx, a, done, err))
	}
	a.After = done
	return Perform(ctx, s, a, func(*Tx, int64) (outbox.Repaired, error) { return done, nil })
}

// recordPart leaves the record of a repair that did not come to its end. The
// order's idempotency key stays free, since there is more to do.
func (s *Store) recordPart(ctx context.Context, a *Act, done outbox.Repaired, why error) error {
	type part struct {
		outbox.Repaired
		Stopped string `json:"stopped"`
	}
	a.After, a.Order.IdempotencyKey = part{done, kept(why.Error(), maxRefusal)}, ""
	_, err := Perform(ctx, s, a, func(*Tx, int64) (outbox.Repaired, error) { return done, nil })
	return err
}

// repairAll also returns what it did before an error.
func (s *Store) repairAll(ctx context.Context) (outbox.Repaired, error) {
	total, err := s.Reconcile(ctx)
	if err != nil {
		return total, err
	}
	// Reconcile leaves campaigns that are worked on alone; an operator who asks
	// for a repair wants those looked at, too.
	gaps, err := s.Gaps(ctx)
	if err != nil {
		return total, err
	}
	for _, g := range gaps {
		f, err := whenFree(ctx, func() (Found, error) { return s.repairFree(ctx, g.CampaignID) })
		if err != nil && !errors.Is(err, errHeld) {
			return total, err
		}
		total.Add(f.Repaired)
	}
	return total, nil
}

// Reconcile compares every campaign with its rows, its events and its watermark,
// and every watermark with its campaign: events above it without a row get one,
// rows of applied events are removed, counts are set right, and a campaign whose
// watermark contradicts the journal, or that the journal does not know, is marked
// as diverged; one that no longer contradicts it is not. A campaign that lost its
// row gets it back. Projections that are behind without a replay get one. Campaigns
// under a lease are left to their worker, and events that requests of this process
// may be about to apply to those. A second call finds nothing to do and writes
// nothing. Campaigns of which something cannot be read are passed over; the error
// is outbox.ErrDamaged then and names each.
func (s *Store) Reconcile(ctx context.Context) (outbox.Repaired, error) {
	total, _, err := s.ReconcileNaming(ctx, 0)
	return total, err
}

// ReconcileNaming is Reconcile that names the first campaigns that it changed, at
// most so many.
func (s *Store) ReconcileNaming(ctx context.Context, most int) (total outbox.Repaired, named []string, err error) {
	var damaged []error
	note := func(id string) {
		if len(named) < most {
			named = append(named, id)
		}
	}
	for after := ""; ; {
		last, found, err := s.reconcilePage(ctx, after, campaignPage, (*Tx).tallyPage)
		for _, f := range found {
			total.Add(f.Repaired)
			note(f.CampaignID)
		}
		if errors.Is(err, outbox.ErrDamaged) {
			damaged = append(damaged, err)
		} else if err != nil {
			return total, named, fmt.Errorf("reconcile: %w", err)
		}
		if after = last; after == "" {
			break
		}
	}
	err = s.adoptStrays(ctx, &total, note)
	for _, besides := range s.onReconcile {
		if err == nil {
			err = besides(ctx)
		}
	}
	if err == nil {
		err = s.shortenWaits(ctx)
	}
	if total.Diverged > 0 {
		s.changed()
	}
	if err = cmp.Or(err, errors.Join(damaged...)); err != nil {
		return total, named, fmt.Errorf("reconcile: %w", err)
	}
	return total, named, nil
}

// Found is a campaign that did not fit its rows or its watermark, and what was
// done about it.
type Found struct {
	CampaignID string
	Repaired   outbox.Repaired
	// Drifted is true unless a worker that died, or a wrong clock, left the
	// campaign like this.
	Drifted bool
	// Mistimed is true when something was to happen later than the settings
	// allow, since a clock was ahead of this one.
	Mistimed bool
}

// reconcilePage is Reconcile for the next campaigns after an id, with their rows
// counted by count. It returns the id to go on from, empty at the end, and also
// what it did before an error. One that is outbox.ErrDamaged concerns single campaigns,
// which are passed over.
func (s *Store) reconcilePage(ctx context.Context, after string, limit int, count counting) (last string, found []Found, err error) {
	last, found, err = s.reconcileTogether(ctx, after, limit, count)
	if errors.Is(err, outbox.ErrDamaged) {
		last, err = s.oneByOne(ctx, after, limit, func(after string) (string, error) {
			id, more, err := s.reconcileTogether(ctx, after, 1, count)
			found = append(found, more...)
			return id, err
		})
	}
	return last, found, err
}

func (s *Store) reconcileTogether(ctx context.Context, after string, limit int, count counting) (last string, found []Found, err error) {
	p, err := s.readPage(ctx, after, limit, count)
	if err != nil || len(p.rows) == 0 {
		return "", nil, err
	}
	suspects, err := s.suspects(ctx, p)
	if err != nil {
		return "", nil, err
	}
	if found, err = s.repairEach(ctx, suspects); err != nil {
		return "", found, err
	}
	return p.rows[len(p.rows)-1].ID, found, ctx.Err()
}

// repairEach repairs campaigns, except those that turn out to be held or sound.
func (s *Store) repairEach(ctx context.Context, suspects []*CampaignRow) (found []Found, err error) {
	for _, c := range suspects {
		f, err := s.repairFree(ctx, c.ID)
		if err != nil && !errors.Is(err, errHeld) { // a worker that holds it will notice
			return found, err
		}
		if f.Repaired.Campaigns > 0 {
			found = append(found, f)
		}
	}
	if len(found) > 0 {
		s.WakeUp()
	}
	return found, nil
}

// ReconcileCampaign is Reconcile for one campaign.
func (s *Store) ReconcileCampaign(ctx context.Context, id string) (outbox.Repaired, error) {
	f, err := s.repairFree(ctx, id)
	if errors.Is(err, errHeld) {
		err = nil // its worker will notice
	}
	return f.Repaired, err
}

// repairFree repairs a campaign that nobody holds. Of one that somebody holds only
// the times are corrected, and errHeld comes back beside that.
func (s *Store) repairFree(ctx context.Context, id string) (f Found, err error) {
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
		f.Mistimed = *c != before || c.Due.Valid && c.mistimed(now+clockTolerance)
		f.Drifted = !c.Due.Valid && c.mistimed(now)
		if held = c.free(now); held == nil {
			f.Repaired, err = s.repairCampaign(t, c, now)
			f.Drifted = f.Drifted || !s.leftBehind(before, f.Repaired) && (f.Repaired.Campaigns > 0 || c.drifted(before))
		}
		if !f.Drifted && !f.Mistimed || err != nil {
			return err
		}
		f.Repaired.Campaigns = 1
		c.Schedule(now)
		return t.save(c, now)
	})
	return f, cmp.Or(err, held)
}

// leftBehind reports whether what was repaired is what a process leaves that
// dies: a lease, inline events, or rows of events that it applied and did not come
// to settle.
func (s *Store) leftBehind(before CampaignRow, r outbox.Repaired) bool {
	arriving := s.options.Mode == outbox.ModeInline && before.bare()
	unsettled := before.Crashes > 0 && r.Removed > 0 && r.Inserted == 0 && r.Diverged == 0
	return before.LeaseOwner != "" || arriving || unsettled
}

// clockTolerance is how far, in microseconds, the clocks of instances may be
// apart without anybody minding.
const clockTolerance = 1_000_000

// overdrawn reports whether a lease or the wait of a failed head ends later than
// the settings allow from now.
func (s *Store) overdrawn(c *CampaignRow, now int64) (lease, wait bool) {
	now += clockTolerance
	return c.LeaseOwner != "" && c.LeaseExpiry > now+s.options.Lease.Microseconds(),
		outbox.Status(c.HeadStatus.String) == outbox.Failed && c.HeadNext.Int64 > now+s.options.Retry.Longest().Microseconds()
}

const waitRow = `
update projection_apply_outbox
set next_attempt_at = $3, updated_at = $4
where campaign_id = $1
  and seq = $2`

// shorten makes a lease and the wait of a failed head as long as the settings
// allow from now, when a clock that was ahead made them longer.
func (s *Store) shorten(t *Tx, c *CampaignRow, now int64) error {
	lease, wait := s.overdrawn(c, now)
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

// amiss reports whether the campaign's row alone shows that something is wrong:
// it waits longer than it may, or has fewer or more rows than events to apply.
func (s *Store) amiss(c *CampaignRow) bool {
	now := s.Now()
	lease, wait := s.overdrawn(c, now)
	return lease || wait || c.mistimed(now+clockTolerance) ||
		c.LeaseOwner == "" && c.Diverged == "" &&
			(c.Oldest.Valid != (c.HighWater > c.Applied) || s.options.Mode.Enqueues() && c.Counts.Total() != c.HighWater-c.Applied)
}

func (s *Store) watermarkOf(ctx context.Context, id string) (readmodel.Watermark, error) {
	marks, err := s.readmodel.Watermarks(ctx, []string{id})
	return marks[id], err
}

// tally is what the rows of a campaign are.
type tally struct {
	counts      outbox.Counts
	first, last int64 // the lowest and the highest seq; 0 when there is no row
}

// page is some consecutive campaigns: what their rows in campaigns say and what
// was counted, in one snapshot, and their watermarks at a later moment.
type page struct {
	rows    []*CampaignRow
	tallies map[string]*tally // of those that were counted
	marks   map[string]readmodel.Watermark
}

// counting counts the rows of campaigns into p.tallies.
type counting func(t *Tx, p *page) error

func (s *Store) readPage(ctx context.Context, after string, limit int, count counting) (*page, error) {
	p := &page{tallies: make(map[string]*tally)}
	err := s.journal.Read(ctx, func(t *Tx) (err error) {
		if p.rows, err = t.campaignPage(after, limit); err != nil || len(p.rows) == 0 {
			return err
		}
		if err := count(t, p); err != nil {
			return fmt.Errorf("count rows: %w", err)
		}
		return nil
	})
	if err != nil || len(p.rows) == 0 {
		return p, err
	}
	ids := make([]string, len(p.rows))
	for i, c := range p.rows {
		ids[i] = c.ID
	}
	p.marks, err = s.readmodel.Watermarks(ctx, ids)
	return p, err
}

// drifted reports whether a campaign's row is not what was counted.
func (p *page) drifted(c *CampaignRow) bool {
	k := p.tallies[c.ID]
	return k != nil && (k.counts != c.Counts || k.first != c.Head.Int64 || k.last > c.HighWater)
}

// drifted reports whether a repair found that the campaign's row, as it was
// before, did not tell what its rows are, or where the journal ends.
func (c *CampaignRow) drifted(before CampaignRow) bool {
	return c.HighWater != before.HighWater || c.Counts != before.Counts || c.Head != before.Head || c.HeadStatus != before.HeadStatus ||
		c.HeadNext != before.HeadNext || c.Oldest != before.Oldest || c.Skips != before.Skips
}

const (
	selectTallies = `
select campaign_id,
  count(*) filter (where status = 'pending'), count(*) filter (where status = 'processing'),
  count(*) filter (where status = 'failed'), count(*) filter (where status = 'dead'),
  min(seq), max(seq)
from projection_apply_outbox
where campaign_id `

	talliesBetween = selectTallies + `between $1 and $2
group by campaign_id`

	tallyOf = selectTallies + `= $1
group by campaign_id`
)

// tallyPage counts the rows of all campaigns of the page.
func (t *Tx) tallyPage(p *page) error {
	for _, c := range p.rows {
		p.tallies[c.ID] = new(tally)
	}
	return t.Each(p.addTally, talliesBetween, p.rows[0].ID, p.rows[len(p.rows)-1].ID)
}

// tallySmall counts the rows of the campaigns that have at most recountLimit.
func (t *Tx) tallySmall(p *page) error {
	var b sqldb.Batch
	for _, c := range p.rows {
		if c.Counts.Total() <= recountLimit {
			p.tallies[c.ID] = new(tally)
			b.Each(p.addTally, tallyOf, c.ID)
		}
	}
	return t.RunAll(&b)
}

func (p *page) addTally(row sqldb.Row) error {
	var id string
	var k tally
	err := row.Scan(&id, &k.counts.Pending, &k.counts.Processing, &k.counts.Failed, &k.counts.Dead, &k.first, &k.last)
	if p.tallies[id] != nil {
		p.tallies[id] = &k
	}
	return err
}

const campaignPage = 500

const selectCampaignPage = `
select ` + campaignColumns + `
from campaigns
where campaign_id > $1
order by campaign_id
limit $2`

// campaignPage reads the next campaigns after an id, in the order of ids.
func (t *Tx) campaignPage(after string, limit int) (page []*CampaignRow, err error) {
	err = t.Each(func(rows sqldb.Row) error {
		c := new(CampaignRow)
		err := rows.Scan(c.Dest()...)
		page = append(page, c)
		return err
	}, selectCampaignPage, after, limit)
	return page, err
}

// eachCampaignPage walks all campaigns in pages with their watermarks. The
// journal is read first: a watermark may be ahead of what its page says, and
// never behind. Campaigns that cannot be read are passed over; the error is
// Damaged then, and names each.
func (s *Store) eachCampaignPage(ctx context.Context, visit func([]*CampaignRow, map[string]readmodel.Watermark) error) error {
	var failed error // to visit
	page := func(after string, limit int) (last string, err error) {
		p, err := s.readPage(ctx, after, limit, func(*Tx, *page) error { return nil })
		if err != nil || len(p.rows) == 0 {
			return "", err
		}
		if failed = cmp.Or(visit(p.rows, p.marks), ctx.Err()); failed != nil {
			return "", sqldb.ErrEnough
		}
		return p.rows[len(p.rows)-1].ID, nil
	}
	var damaged []error
	for after := ""; ; {
		last, err := page(after, campaignPage)
		if errors.Is(err, outbox.ErrDamaged) {
			last, err = s.oneByOne(ctx, after, campaignPage, func(after string) (string, error) { return page(after, 1) })
		}
		switch {
		case failed != nil:
			return failed
		case errors.Is(err, outbox.ErrDamaged):
			damaged = append(damaged, err)
		case err != nil:
			return err
		}
		if after = last; after == "" {
			return errors.Join(damaged...)
		}
	}
}

// suspects lists the campaigns of a page whose row, rows and watermark do not
// add up. It reads little and locks nothing.
func (s *Store) suspects(ctx context.Context, p *page) ([]*CampaignRow, error) {
	odd, err := s.skipSuspects(ctx, p.rows, p.marks)
	if err != nil {
		return nil, err
	}
	var found []*CampaignRow
	var b sqldb.Batch
	for _, c := range p.rows {
		w := p.marks[c.ID]
		switch {
		case s.arriving(c):
		case s.amiss(c):
			found = append(found, c)
		case c.LeaseOwner != "" && c.LeaseExpiry > s.Now():
		case p.drifted(c):
			found = append(found, c)
		case c.Diverged == strange(w) && w.AppliedSeq > c.HighWater:
		case c.Diverged != "" && w.AppliedSeq == 0, c.Diverged == "" && (odd[c.ID] || s.disagrees(c, w)):
			found = append(found, c)
		case w.AppliedSeq > 0:
			at := len(found)
			found = append(found, c)
			b.Each(func(row sqldb.Row) error {
				var hash string
				err := row.Scan(&hash)
				if hash == w.AppliedHash && c.Diverged == "" || hash != w.AppliedHash && c.Diverged == strange(w) {
					found[at] = nil // built from the event that the journal has, or still not
				}
				return err
			}, selectChainHash, c.ID, w.AppliedSeq)
		}
	}
	err = s.journal.Read(ctx, func(t *Tx) error { return t.RunAll(&b) })
	return slices.DeleteFunc(found, func(c *CampaignRow) bool { return c == nil }), err
}

// InlineWait is how long a request applies what it has appended at the most.
const InlineWait = 10 * time.Second

// arriving reports whether the requests that appended what the campaign owes may
// still be about to apply it: those of a process that was there before are not.
func (s *Store) arriving(c *CampaignRow) bool {
	age := s.Now() - c.Oldest.Int64
	return s.options.Mode == outbox.ModeInline && c.bare() && c.Oldest.Int64 > s.opened &&
		age > -clockTolerance && age < InlineWait.Microseconds()
}

// disagrees reports whether a campaign's row says something else than its
// watermark.
func (s *Store) disagrees(c *CampaignRow, w readmodel.Watermark) bool {
	waiting := c.HighWater - w.AppliedSeq
	return w.AppliedSeq > c.HighWater || c.Applied != w.AppliedSeq || w.FenceEpoch > c.LeaseEpoch ||
		c.Counts.Total() != waiting ||
		c.Counts.Total() > 0 && c.Head.Int64 != w.AppliedSeq+1
}

const selectChainHash = `
select chain_hash
from events
where campaign_id = $1
  and seq = $2`

// strange says that the journal does not have what the projections have applied.
// It is kept with the campaign, so it is as true after further appends: whether
// the journal ends before that event or has another in its place is not said.
func strange(w readmodel.Watermark) string {
	return fmt.Sprintf("the projections have an event %d that the journal does not have", w.AppliedSeq)
}

// divergence says how a watermark contradicts the journal; empty when it does
// not.
func (t *Tx) divergence(c *CampaignRow, w readmodel.Watermark) (string, error) {
	if w.AppliedSeq == 0 {
		return "", nil
	}
	if w.AppliedSeq > c.HighWater {
		return strange(w), nil
	}
	var hash string
	found, err := t.One([]any{&hash}, selectChainHash, c.ID, w.AppliedSeq)
	if err == nil && (!found || hash != w.AppliedHash) {
		return strange(w), nil
	}
	return "", err
}

// Divergence says how a watermark contradicts the journal; empty when it does
// not. The watermark is read before the call, so that the journal has the events
// that it counts.
func (s *Store) Divergence(ctx context.Context, campaign string, w readmodel.Watermark) (reason string, err error) {
	err = s.journal.Read(ctx, func(t *Tx) error {
		c, _, err := t.campaign(campaign) // one that is unknown ends at 0
		if err != nil {
			return err
		}
		c.ID = campaign
		reason, err = t.divergence(c, w)
		return err
	})
	return reason, err
}

const (
	insertMissingRows = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
select e.campaign_id, e.seq, e.event_type, $3, e.recorded_at, $3
from events e
where e.campaign_id = $1
  and e.seq > $2
  and not exists (select 1 from projection_apply_outbox o where o.campaign_id = e.campaign_id and o.seq = e.seq)`

	deleteStaleRows = `
delete from projection_apply_outbox
where campaign_id = $1
  and seq <= $2`

	deleteStrayRows = `
delete from projection_apply_outbox
where campaign_id = $1
  and seq > $2`

	resetProcessing = `
update projection_apply_outbox
set status = 'pending', updated_at = $2
where campaign_id = $1
  and status = 'processing'`
)

// repairCampaign makes rows and counts fit the watermark while nobody holds
// the lease: the watermark cannot move as long as this transaction keeps
// everybody from claiming. An expired lease is ended first, in both databases,
// so that its holder, should it wake, changes nothing.
func (s *Store) repairCampaign(t *Tx, c *CampaignRow, now int64) (outbox.Repaired, error) {
	var r outbox.Repaired
	before := *c
	if c.LeaseOwner != "" || c.Counts.Processing > 0 {
		if err := s.endLease(t, c, now); err != nil {
			return r, err
		}
	}
	w, reason, err := s.judge(t, c)
	if err != nil {
		return r, err
	}
	// A journal that remembers fewer claims than the projections have seen
	// would be fenced until it has caught up.
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
	return r, t.save(c, now)
}

// judge reads where a campaign's projections are and how that contradicts the
// journal, if it does. It counts the campaign's skips anew, which claims go by.
func (s *Store) judge(t *Tx, c *CampaignRow) (w readmodel.Watermark, reason string, err error) {
	w, marks, err := s.readmodel.Standing(context.Background(), c.ID)
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
	standing, err := t.standingSkips(c.ID, 1, math.MaxInt64)
	if err != nil {
		return w, "", err
	}
	c.Skips = int64(len(standing))
	return w, cmp.Or(reason, contradiction(standing, marks, w.AppliedSeq)), nil
}

// endAtLastEvent sets where a campaign's row says that the journal ends, when there
// are later events.
func (t *Tx) endAtLastEvent(c *CampaignRow) error {
	var seq int64
	var hash string
	if _, err := t.One([]any{&seq, &hash}, selectLastEvent, c.ID); err != nil || seq <= c.HighWater {
		return err
	}
	c.HighWater, c.ChainHash = seq, hash
	return nil
}

// endLease takes an expired lease away, with the rows it held, and raises the
// fence above it.
func (s *Store) endLease(t *Tx, c *CampaignRow, now int64) error {
	err := s.bar(c, func(*readmodel.ApplyTx, readmodel.Watermark) error { return nil })
	if err != nil {
		return fmt.Errorf("end the lease of campaign %q: %w", c.ID, err)
	}
	return t.dropLease(c, now)
}

// dropLease takes the lease away with the rows it held; its holder must be
// fenced off.
func (t *Tx) dropLease(c *CampaignRow, now int64) error {
	c.LeaseOwner, c.LeaseExpiry = "", 0
	_, err := t.Exec(resetProcessing, c.ID, now)
	if err == nil {
		err = t.recountWithHead(c)
	}
	if err != nil {
		return fmt.Errorf("end the lease of campaign %q: %w", c.ID, err)
	}
	return nil
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

// EnqueueMissing gives the events of a campaign that are neither applied nor have
// a row one, due now, whoever holds the campaign. An unknown one has none.
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
		return t.save(c, now)
	})
	if err != nil {
		return fmt.Errorf("give events that are not applied their rows: %w", err)
	}
	if inserted > 0 {
		s.WakeUp()
	}
	return nil
}

// enqueueMissing gives the events that are not applied and have no row one, due
// now.
func (t *Tx) enqueueMissing(c *CampaignRow, now int64) (inserted int64, err error) {
	if inserted, err = t.Exec(insertMissingRows, c.ID, c.Applied, now); err != nil {
		return 0, fmt.Errorf("insert missing rows of campaign %q: %w", c.ID, err)
	}
	if err := t.recount(c); err != nil {
		return 0, err
	}
	return inserted, t.refreshHead(c)
}

// Gaps lists the campaigns with events that have neither been applied nor
// have a row.
func (s *Store) Gaps(ctx context.Context) ([]outbox.Gap, error) {
	gaps := []outbox.Gap{}
	err := s.eachCampaignPage(ctx, func(page []*CampaignRow, marks map[string]readmodel.Watermark) error {
		for _, c := range page {
			applied := marks[c.ID].AppliedSeq
			missing, err := s.missingRows(ctx, c, applied)
			if err != nil {
				return &CampaignError{c.ID, err}
			}
			if missing > 0 {
				gaps = append(gaps, outbox.Gap{CampaignID: c.ID, AppliedSeq: applied, HighWaterSeq: c.HighWater, Missing: missing})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for gaps: %w", err)
	}
	return gaps, nil
}

// missingRows counts the events above applied that have no row. Rows at or
// below it, of a wave that is not settled yet, do not make up for them. A
// worker may apply and settle between the two reads, so a finding counts only
// when the watermark has not moved meanwhile.
func (s *Store) missingRows(ctx context.Context, c *CampaignRow, applied int64) (int64, error) {
	for {
		waiting := c.HighWater - applied
		if waiting <= 0 {
			return 0, nil
		}
		var rows int64
		err := s.journal.Read(ctx, func(t *Tx) error {
			_, err := t.One([]any{&rows}, `select count(*) from projection_apply_outbox where campaign_id = $1 and seq > $2 and seq <= $3`, c.ID, applied, c.HighWater)
			return err
		})
		if err != nil || rows >= waiting {
			return 0, err
		}
		w, err := s.watermarkOf(ctx, c.ID)
		if err != nil || w.AppliedSeq == applied {
			return waiting - rows, err
		}
		applied = w.AppliedSeq
	}
}
