package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// checkTries is how often a campaign is checked again before a finding counts, since a worker
// may be between its two transactions.
const (
	checkTries = 20
	stillPoll  = 10 * time.Millisecond // between two reads
)

// Check tests the invariants of every campaign against both databases: the hash chain, dense
// seqs, every event either applied or with a row, each row matching its event, an exact
// campaign row, nothing applied behind a failed or dead head, epochs that only grow, exactly
// the skipped events skipped over, correct counts of excluded projections and open failures, a
// replay for every projection that is behind, the same campaigns in both databases, the tag index
// against the events, and the sequences of PostgreSQL against their rows. It only reads and may run beside a server; a campaign that keeps
// moving is counted as skipped. Unreadable data is a violation, and the check continues with
// the rest.
//
// The time at which an event was recorded is not part of its hash. It is compared with the
// event's row while there is one, and afterwards with the neighbouring events, so that a change
// by less than an hour is not found. Some data cannot be compared with anything: the errors and
// attempts of rows, who paused a campaign, and audit records. The database itself must refuse
// changes to events and audit records.
func (m *Maintenance) Check(ctx context.Context, progress func(done, total int64)) (campaign.CheckReport, error) {
	report := campaign.CheckReport{Checked: map[string]int64{"campaigns": 0, "events": 0, "rows": 0, "skips": 0, "tags": 0, "skipped": 0}, Violations: []campaign.Violation{}, NotCompared: []campaign.NotCompared{}}
	summary, err := m.core.Summary(ctx)
	if err != nil && !errors.Is(err, event.ErrDamaged) {
		return report, err
	}
	err = m.eachCampaignPage(ctx, func(page []*store.CampaignRow, _ map[string]readmodel.Watermark) error {
		for _, c := range page {
			if err := m.checkUntilStill(ctx, c.ID, &report); errors.Is(err, event.ErrDamaged) {
				unreadable(&report, "", &outbox.CampaignError{CampaignID: c.ID, Err: err})
			} else if err != nil {
				return err
			}
			report.Checked["campaigns"]++
			progress(report.Checked["campaigns"], summary.Campaigns.Total)
		}
		return nil
	})
	steps := slices.Concat([]store.CheckStep{
		{About: "the table of campaigns", Check: func(context.Context, *campaign.CheckReport) error { return err }},
		{About: "what the projections know", Check: m.checkStrays},
	}, m.core.Checks(), []store.CheckStep{
		{About: "the index of tags", Check: m.checkTags},
		{About: "the sequences", Check: m.checkSequences},
		{About: "the pages of the journal", Check: func(ctx context.Context, r *campaign.CheckReport) error {
			return checkPages(ctx, m.core.Journal().DB, r)
		}},
		{About: "the pages of the projections", Check: func(ctx context.Context, r *campaign.CheckReport) error {
			return checkPages(ctx, m.core.ReadModel().DB, r)
		}},
	})
	for _, step := range steps {
		if err := step.Check(ctx, &report); errors.Is(err, event.ErrDamaged) {
			unreadable(&report, step.About, err)
		} else if err != nil {
			return report, fmt.Errorf("check: %w", err)
		}
	}
	report.OK = len(report.Violations) == 0
	return report, nil
}

// checkSequences finds sequences below numbers of their tables' rows.
func (m *Maintenance) checkSequences(ctx context.Context, r *campaign.CheckReport) error {
	for _, d := range []*sqldb.DB{m.core.Journal().DB, m.core.ReadModel().DB} {
		err := d.Read(ctx, func(t *sqldb.Tx) error {
			behind, err := t.BehindIdentities()
			for _, i := range behind {
				r.Add(campaign.InvariantSequence, "", 0, "the sequence of %s.%s in the %s database is at %d, below %d, as after a copy of the table; restart the servers, or run: %s", i.Table, i.Column, d.Name, i.Drawn, i.Highest, i.Raise())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unreadable adds a violation for each error joined in err.
func unreadable(r *campaign.CheckReport, about string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			unreadable(r, about, err)
		}
		return
	}
	if one, ok := errors.AsType[*outbox.CampaignError](err); ok {
		r.Add(campaign.InvariantReadable, one.CampaignID, 0, "cannot be read: %v", one.Err)
		return
	}
	r.Add(campaign.InvariantReadable, "", 0, "%s cannot be read: %v", about, err)
}

// checkPages lists the damaged pages of a database file. A PostgreSQL server detects its own
// when it reads them.
func checkPages(ctx context.Context, d *sqldb.DB, report *campaign.CheckReport) error {
	found, err := d.DamagedPages(ctx)
	for _, line := range found {
		if line != "ok" && !strings.HasPrefix(line, "***") {
			report.Add(campaign.InvariantReadable, "", 0, "the %s database: %s", d.Name, line)
			if errors.Is(err, event.ErrDamaged) {
				err = nil // the line says where
			}
		}
	}
	return err
}

// checkUntilStill checks one campaign until the watermarks read before and after one snapshot
// of the journal agree.
func (m *Maintenance) checkUntilStill(ctx context.Context, id string, report *campaign.CheckReport) error {
	poll := time.NewTicker(stillPoll)
	defer poll.Stop()
	for try := range checkTries {
		if try > 1 { // an action may be between its two transactions
			select {
			case <-poll.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		before, marks, err := m.core.ReadModel().Position(ctx, id)
		if err != nil {
			return err
		}
		found, leased, err := m.checkCampaign(ctx, id, before, marks)
		if err != nil {
			return err
		}
		if err := m.checkCounts(ctx, found, before); err != nil {
			return err
		}
		after, err := m.core.WatermarkOf(ctx, id)
		if err != nil {
			return err
		}
		// A fence above the campaign's epoch belongs to an action that has yet to commit, or never
		// did.
		moving := leased || before.FenceEpoch > found.epoch
		if after == before && (!moving || len(found.report.Violations) == 0) || try == checkTries-1 && !leased {
			report.Checked["events"] += found.events
			report.Checked["rows"] += found.rows
			report.Checked["skips"] += found.skips
			report.Violations = append(report.Violations, found.report.Violations...)
			return nil
		}
	}
	report.Checked["skipped"]++
	return nil
}

// finding collects the violations of one campaign.
type finding struct {
	campaign     string
	events, rows int64
	skips, epoch int64
	report       campaign.CheckReport
}

func (f *finding) add(invariant campaign.Invariant, seq int64, format string, args ...any) {
	f.report.Add(invariant, f.campaign, seq, format, args...)
}

func (m *Maintenance) checkCampaign(ctx context.Context, id string, w readmodel.Watermark, marks readmodel.SkipMarks) (*finding, bool, error) {
	f := &finding{campaign: id}
	leased := false
	err := m.core.Journal().Read(ctx, func(t *store.Tx) error {
		c, err := t.ExistingCampaign(id)
		if err != nil {
			return err
		}
		leased = c.LeaseOwner != "" && c.LeaseExpiry > m.core.Now()
		f.epoch = c.LeaseEpoch
		if err := checkJournal(t, f, c, w); err != nil {
			return err
		}
		if err := checkSkips(t, f, c, w, marks); err != nil {
			return err
		}
		if err := m.checkRows(t, f, c, w); err != nil {
			return err
		}
		if err := checkRowEvents(t, f); err != nil {
			return err
		}
		f.checkEpochs(c, w)
		f.checkApplied(c, w)
		return nil
	})
	return f, leased, err
}

const (
	countSetAside = `
select count(*)
from projection_cursors
where campaign_id = $1
  and state || '' <> 'live'`

	countOpenOf = `
select count(*)
from failures
where campaign_id = $1
  and status = 'open'`
)

const selectOddCursors = `
select projection, applied_seq, state
from projection_cursors
where campaign_id = $1
  and (state not in ('live', 'quarantined', 'paused', 'behind') or applied_seq < 0
    or applied_seq > coalesce((select applied_seq from projection_watermarks where campaign_id = $1), 0))
order by projection`

// checkCounts compares the counts and projection positions of the watermark with the actual
// ones.
func (m *Maintenance) checkCounts(ctx context.Context, f *finding, w readmodel.Watermark) error {
	var aside, open int64
	err := m.core.ReadModel().Read(ctx, func(t *sqldb.Tx) error {
		err := t.Each(func(row sqldb.Row) error {
			var name, state string
			var seq int64
			err := row.Scan(&name, &seq, &state)
			f.add(campaign.InvariantCursor, seq, "the cursor of projection %s says %s at event %d; the watermark is at %d", name, state, seq, w.AppliedSeq)
			return err
		}, selectOddCursors, f.campaign)
		if err != nil {
			return err
		}
		if _, err := t.One([]any{&aside}, countSetAside, f.campaign); err != nil {
			return err
		}
		_, err = t.One([]any{&open}, countOpenOf, f.campaign)
		return err
	})
	if err != nil {
		return err
	}
	if aside != w.SetAside {
		f.add(campaign.InvariantSetAside, w.AppliedSeq, "the watermark counts %d quarantined or paused projections; there are %d", w.SetAside, aside)
	}
	if open != w.OpenFailures {
		f.add(campaign.InvariantOpenFailures, w.AppliedSeq, "the watermark counts %d open failures; there are %d", w.OpenFailures, open)
	}
	return nil
}

// checkJournal checks the campaign's events: dense seqs, hashes, the chain.
func checkJournal(t *store.Tx, f *finding, c *store.CampaignRow, w readmodel.Watermark) error {
	chain, position := "", int64(0)
	last := int64(0) // the seq of the previous event
	times := recordings{finding: f, before: sqldb.At(c.CreatedAt)}
	err := t.Each(func(rows sqldb.Row) error {
		e, err := store.ScanEvent(rows)
		if err != nil {
			return err
		}
		if e.Position <= position {
			f.add(campaign.InvariantJournalPosition, e.Seq, "position %d follows position %d", e.Position, position)
		}
		position = e.Position
		times.next(e.Seq, e.RecordedAt)
		f.events++
		if e.Seq != last+1 {
			f.add(campaign.InvariantJournalDense, e.Seq, "seq %d follows seq %d", e.Seq, last)
		}
		last = e.Seq
		if e.ContentHash() != e.EventHash {
			f.add(campaign.InvariantJournalHash, e.Seq, "the content of the event does not match its hash")
		}
		if chain = event.NextChainHash(chain, e.Seq, e.EventHash); chain != e.ChainHash {
			f.add(campaign.InvariantJournalChain, e.Seq, "the chain of hashes is broken here")
			chain = e.ChainHash
		}
		if e.Seq == w.AppliedSeq && e.ChainHash != w.AppliedHash {
			f.add(campaign.InvariantWatermarkHash, e.Seq, "the projections were built from another event")
		}
		return nil
	}, store.SelectEvent+` where campaign_id = $1 order by seq`, c.ID)
	if err != nil {
		return err
	}
	times.checkEvent(sqldb.At(c.UpdatedAt)) // the last event is before the campaign's last change
	if c.HighWater != last || c.ChainHash != chain {
		f.add(campaign.InvariantCampaignRow, c.HighWater, "the campaign's row says the journal ends at %d; it ends at %d", c.HighWater, last)
	}
	switch {
	case w.AppliedSeq > last && last == 0:
		f.add(campaign.InvariantWatermarkBound, w.AppliedSeq, "the projections have a campaign that is not in the journal")
	case w.AppliedSeq > last:
		f.add(campaign.InvariantWatermarkBound, w.AppliedSeq, "the watermark is above the journal's end at %d", last)
	}
	return nil
}
