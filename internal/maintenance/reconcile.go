package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// RepairGaps is ReplayCampaign for every campaign that needs it, each in its own transaction,
// with one audit record for all.
func (m *Maintenance) RepairGaps(ctx context.Context, o operator.Command) (campaign.Repaired, error) {
	a := &store.Change{Command: o, Action: operator.ActionRepairGaps}
	repaired, err := m.repairGaps(ctx, a)
	return repaired, m.core.Refused(ctx, a, err)
}

func (m *Maintenance) repairGaps(ctx context.Context, a *store.Change) (campaign.Repaired, error) {
	if err := m.core.Admit(a.Command); err != nil {
		return campaign.Repaired{}, err
	}
	if err := m.core.Require(a.Command, 0); err != nil {
		return campaign.Repaired{}, err
	}
	var done campaign.Repaired
	repeated := false
	err := m.core.Journal().Read(ctx, func(t *store.Tx) (err error) {
		repeated, err = t.RepeatedChange(a, &done)
		return err
	})
	if err != nil || repeated {
		return done, err
	}
	done, err = m.repairAll(ctx)
	if err != nil && done == (campaign.Repaired{}) {
		return done, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.RecordTime) // record the repair even if the caller is gone
	defer cancel()
	if err != nil {
		return done, errors.Join(err, m.recordPart(ctx, a, done, err))
	}
	a.After = done
	return store.Perform(ctx, m.core, a, func(*store.Tx, int64) (campaign.Repaired, error) { return done, nil })
}

// recordPart records a repair that was interrupted. The command's idempotency key stays free,
// since there is more to do.
func (m *Maintenance) recordPart(ctx context.Context, a *store.Change, done campaign.Repaired, why error) error {
	type part struct {
		campaign.Repaired
		Stopped string `json:"stopped"`
	}
	a.After, a.Command.IdempotencyKey = part{done, store.Kept(why.Error(), store.MaxRefusal)}, ""
	_, err := store.Perform(ctx, m.core, a, func(*store.Tx, int64) (campaign.Repaired, error) { return done, nil })
	return err
}

// repairAll returns the repairs made before an error, too.
func (m *Maintenance) repairAll(ctx context.Context) (campaign.Repaired, error) {
	total, err := m.Reconcile(ctx)
	if err != nil {
		return total, err
	}
	// Reconcile skips campaigns that are being worked on; a repair requested by an operator
	// includes them.
	gaps, err := m.Gaps(ctx)
	if err != nil {
		return total, err
	}
	for _, g := range gaps {
		f, err := outbox.WhenFree(ctx, m.queue, func() (outbox.Found, error) { return m.queue.RepairFree(ctx, g.CampaignID) })
		if err != nil && !errors.Is(err, store.ErrHeld) {
			return total, err
		}
		total.Add(f.Repaired)
	}
	return total, nil
}

// Reconcile compares every campaign with its rows, its events and its watermark, and every
// watermark with its campaign. Events above the watermark without a row get one, rows of
// applied events are removed, and counts are corrected. A campaign whose watermark contradicts
// the journal, or that the journal does not have, is marked as diverged; the mark is removed
// when it no longer applies. A campaign without its row in campaigns gets it back. Projections
// that are behind without a replay get one. Leased campaigns are left to their worker, and
// inline events to the requests of this process that may be about to apply them. A second call
// finds nothing to do and writes nothing. Campaigns with unreadable data are skipped; the error
// then is event.ErrDamaged and names each.
func (m *Maintenance) Reconcile(ctx context.Context) (campaign.Repaired, error) {
	total, _, err := m.ReconcileNaming(ctx, 0, nil)
	return total, err
}

// ReconcileNaming is Reconcile, and returns the names of the first campaigns that it changed,
// at most most. Unless it is nil, passed is called after each page, with the most campaigns that it had.
func (m *Maintenance) ReconcileNaming(ctx context.Context, most int, passed func(campaigns int)) (total campaign.Repaired, named []string, err error) {
	note := func(id string) {
		if len(named) < most {
			named = append(named, id)
		}
	}
	damaged := m.pages(ctx, func(after string, limit int) (string, error) {
		last, found, err := m.reconcileTogether(ctx, after, limit, tallyPage)
		for _, f := range found {
			total.Add(f.Repaired)
			note(f.CampaignID)
		}
		if last != "" && passed != nil {
			passed(limit)
		}
		return last, err
	})
	if damaged != nil && !errors.Is(damaged, event.ErrDamaged) {
		return total, named, fmt.Errorf("reconcile: %w", damaged)
	}
	err = m.adoptStrays(ctx, &total, note)
	if err == nil {
		err = m.core.ReconcileBesides(ctx)
	}
	if err == nil {
		err = m.queue.ShortenWaits(ctx)
	}
	if total.Diverged > 0 {
		m.core.Changed()
	}
	if err = cmp.Or(err, damaged); err != nil {
		return total, named, fmt.Errorf("reconcile: %w", err)
	}
	return total, named, nil
}

// reconcileTogether is Reconcile for the next campaigns after an id, with their rows counted by
// count. It returns the id to continue from, empty at the end, and the repairs made before an
// error, too.
func (m *Maintenance) reconcileTogether(ctx context.Context, after string, limit int, count counting) (last string, found []outbox.Found, err error) {
	p, err := m.readPage(ctx, after, limit, count)
	if err != nil || len(p.rows) == 0 {
		return "", nil, err
	}
	suspects, err := m.suspects(ctx, p)
	if err != nil {
		return "", nil, err
	}
	if found, err = m.repairEach(ctx, suspects); err != nil {
		return "", found, err
	}
	return p.rows[len(p.rows)-1].ID, found, ctx.Err()
}

// repairEach repairs campaigns, except those that turn out to be leased or consistent.
func (m *Maintenance) repairEach(ctx context.Context, suspects []*store.CampaignRow) (found []outbox.Found, err error) {
	for _, c := range suspects {
		f, err := m.queue.RepairFree(ctx, c.ID)
		if err != nil && !errors.Is(err, store.ErrHeld) { // the worker that holds it will settle it
			return found, err
		}
		if f.Repaired.Campaigns > 0 {
			found = append(found, f)
		}
	}
	if len(found) > 0 {
		m.core.WakeUp()
	}
	return found, nil
}

// amiss reports whether the campaign's row alone is inconsistent: it is due later than allowed,
// or has fewer or more rows than events to apply.
func (m *Maintenance) amiss(c *store.CampaignRow) bool {
	now := m.core.Now()
	lease, wait := m.queue.Overdrawn(c, now)
	return lease || wait || c.Mistimed(now+store.ClockTolerance) ||
		c.LeaseOwner == "" && c.Diverged == "" &&
			(c.Oldest.Valid != (c.HighWater > c.Applied) || m.core.Mode().Enqueues() && c.Counts.Total() != c.HighWater-c.Applied)
}

// tally is the counted rows of a campaign.
type tally struct {
	counts      campaign.Counts
	first, last int64 // the lowest and the highest seq; 0 when there is no row
}

// page is some consecutive campaigns: their rows in campaigns and the tallies, from one
// snapshot, and their watermarks, read later.
type page struct {
	rows    []*store.CampaignRow
	tallies map[string]*tally // of the counted ones
	marks   map[string]readmodel.Watermark
}

// counting counts the rows of campaigns into p.tallies.
type counting func(t *store.Tx, p *page) error

func (m *Maintenance) readPage(ctx context.Context, after string, limit int, count counting) (*page, error) {
	p := &page{tallies: make(map[string]*tally)}
	err := m.core.Journal().Read(ctx, func(t *store.Tx) (err error) {
		if p.rows, err = sqldb.All(t, store.ScanCampaign, selectCampaignPage, after, limit); err != nil || len(p.rows) == 0 {
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
	p.marks, err = m.core.ReadModel().Watermarks(ctx, ids)
	return p, err
}

// drifted reports whether a campaign's row disagrees with its tally.
func (p *page) drifted(c *store.CampaignRow) bool {
	k := p.tallies[c.ID]
	return k != nil && (k.counts != c.Counts || k.first != c.Head.Int64 || k.last > c.HighWater)
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
func tallyPage(t *store.Tx, p *page) error {
	for _, c := range p.rows {
		p.tallies[c.ID] = new(tally)
	}
	return t.Each(p.addTally, talliesBetween, p.rows[0].ID, p.rows[len(p.rows)-1].ID)
}

// tallySmall counts the rows of the campaigns that have at most recountLimit.
func tallySmall(t *store.Tx, p *page) error {
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
select ` + store.CampaignColumns + `
from campaigns
where campaign_id > $1
order by campaign_id
limit $2`

// eachCampaignPage walks all campaigns in pages with their watermarks. The journal is read
// first: a watermark may be ahead of its page, and never behind. Unreadable campaigns are
// skipped; the error then is event.ErrDamaged and names each.
func (m *Maintenance) eachCampaignPage(ctx context.Context, visit func([]*store.CampaignRow, map[string]readmodel.Watermark) error) error {
	var failed error // the error of visit
	err := m.pages(ctx, func(after string, limit int) (last string, err error) {
		p, err := m.readPage(ctx, after, limit, func(*store.Tx, *page) error { return nil })
		if err != nil || len(p.rows) == 0 {
			return "", err
		}
		if failed = cmp.Or(visit(p.rows, p.marks), ctx.Err()); failed != nil {
			return "", sqldb.ErrEnough
		}
		return p.rows[len(p.rows)-1].ID, nil
	})
	return cmp.Or(failed, err)
}

// suspects lists the campaigns of a page whose row, rows and watermark disagree. It reads
// little and locks nothing.
func (m *Maintenance) suspects(ctx context.Context, p *page) ([]*store.CampaignRow, error) {
	odd, err := m.skipSuspects(ctx, p.rows, p.marks)
	if err != nil {
		return nil, err
	}
	var found []*store.CampaignRow
	var b sqldb.Batch
	for _, c := range p.rows {
		w := p.marks[c.ID]
		switch {
		case m.arriving(c):
		case m.amiss(c):
			found = append(found, c)
		case c.LeaseOwner != "" && c.LeaseExpiry > m.core.Now():
		case p.drifted(c):
			found = append(found, c)
		case c.Diverged == store.Strange(w) && w.AppliedSeq > c.HighWater:
		case c.Diverged != "" && w.AppliedSeq == 0, c.Diverged == "" && (odd[c.ID] || m.disagrees(c, w)):
			found = append(found, c)
		case w.AppliedSeq > 0:
			at := len(found)
			found = append(found, c)
			b.Each(func(row sqldb.Row) error {
				var hash string
				err := row.Scan(&hash)
				if hash == w.AppliedHash && c.Diverged == "" || hash != w.AppliedHash && c.Diverged == store.Strange(w) {
					found[at] = nil // still consistent, or still diverged
				}
				return err
			}, store.SelectChainHash, c.ID, w.AppliedSeq)
		}
	}
	err = m.core.Journal().Read(ctx, func(t *store.Tx) error { return t.RunAll(&b) })
	return slices.DeleteFunc(found, func(c *store.CampaignRow) bool { return c == nil }), err
}

// arriving reports whether the requests that appended the campaign's unapplied events may still
// be about to apply them. Events from before this process was started are not.
func (m *Maintenance) arriving(c *store.CampaignRow) bool {
	age := m.core.Now() - c.Oldest.Int64
	return m.core.Mode() == campaign.ModeInline && c.Bare() && c.Oldest.Int64 > m.core.Opened() &&
		age > -store.ClockTolerance && age < outbox.InlineWait.Microseconds()
}

// disagrees reports whether a campaign's row contradicts its watermark.
func (m *Maintenance) disagrees(c *store.CampaignRow, w readmodel.Watermark) bool {
	waiting := c.HighWater - w.AppliedSeq
	return w.AppliedSeq > c.HighWater || c.Applied != w.AppliedSeq || w.FenceEpoch > c.LeaseEpoch ||
		c.Counts.Total() != waiting ||
		c.Counts.Total() > 0 && c.Head.Int64 != w.AppliedSeq+1
}

// Gaps lists the campaigns with events that are neither applied nor have a row.
func (m *Maintenance) Gaps(ctx context.Context) ([]campaign.Gap, error) {
	gaps := []campaign.Gap{}
	err := m.eachCampaignPage(ctx, func(page []*store.CampaignRow, marks map[string]readmodel.Watermark) error {
		for _, c := range page {
			applied := marks[c.ID].AppliedSeq
			missing, err := m.missingRows(ctx, c, applied)
			if err != nil {
				return &outbox.CampaignError{CampaignID: c.ID, Err: err}
			}
			if missing > 0 {
				gaps = append(gaps, campaign.Gap{CampaignID: c.ID, AppliedSeq: applied, HighWaterSeq: c.HighWater, Missing: missing})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for gaps: %w", err)
	}
	return gaps, nil
}

// missingRows counts the events above applied that have no row. Rows at or below it, of a wave
// that is not settled yet, do not count. A worker may apply and settle between the two reads,
// so a finding counts only when the watermark has not moved meanwhile.
func (m *Maintenance) missingRows(ctx context.Context, c *store.CampaignRow, applied int64) (int64, error) {
	for {
		waiting := c.HighWater - applied
		if waiting <= 0 {
			return 0, nil
		}
		rows, err := sqldb.Reading(ctx, m.core.Journal(), "", func(t *store.Tx) (rows int64, err error) {
			_, err = t.One([]any{&rows}, `select count(*) from projection_apply_outbox where campaign_id = $1 and seq > $2 and seq <= $3`, c.ID, applied, c.HighWater)
			return rows, err
		})
		if err != nil || rows >= waiting {
			return 0, err
		}
		w, err := m.core.WatermarkOf(ctx, c.ID)
		if err != nil || w.AppliedSeq == applied {
			return waiting - rows, err
		}
		applied = w.AppliedSeq
	}
}
