package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/sqldb"
)

// CheckReport is what Check found.
type CheckReport struct {
	OK         bool               `json:"ok"`
	Checked    map[string]int64   `json:"checked"` // campaigns, events, rows, skips, tags; and skipped: campaigns that kept moving
	Violations []outbox.Violation `json:"violations"`
	// NotCompared are events that projections which are paused, quarantined or
	// behind were not told of, and that no fold was compared with.
	NotCompared []outbox.NotCompared `json:"not_compared"`
}

// checkTries is how often a campaign is looked at again before a finding
// counts: a worker may be between its two databases.
const checkTries = 20

// Check tests the invariants of every campaign against both databases: the
// hash chain, dense seqs, every event applied or with a row, each row of its
// event, the campaign's row exact, nothing applied behind a failed or dead head,
// epochs that only grow, exactly what is skipped passed over, set aside and open
// failures counted right; a replay for every projection that is behind; that both
// databases know the same campaigns; and the index of tags against the events. It
// reads only and may run beside a server; a campaign that keeps moving is counted
// as skipped. What cannot be read is a violation, and the rest is checked all the
// same.
//
// When an event was recorded is in no hash. It is compared with the event's row
// while it waits, and afterwards with the events around it, so that a change by
// less than an hour is not found. Nothing can be compared with what a row failed
// with, how often it was tried, who paused a campaign, or audit records: that
// nobody changes events and audit records is for the database to refuse.
func (s *Store) Check(ctx context.Context, progress func(done, total int64)) (CheckReport, error) {
	report := CheckReport{Checked: map[string]int64{"campaigns": 0, "events": 0, "rows": 0, "skips": 0, "tags": 0, "skipped": 0}, Violations: []outbox.Violation{}, NotCompared: []outbox.NotCompared{}}
	summary, err := s.Summary(ctx)
	if err != nil && !errors.Is(err, outbox.ErrDamaged) {
		return report, err
	}
	err = s.eachCampaignPage(ctx, func(page []*CampaignRow, _ map[string]readmodel.Watermark) error {
		for _, c := range page {
			if err := s.checkUntilStill(ctx, c.ID, &report); errors.Is(err, outbox.ErrDamaged) {
				report.unreadable("", &CampaignError{c.ID, err})
			} else if err != nil {
				return err
			}
			report.Checked["campaigns"]++
			progress(report.Checked["campaigns"], summary.Campaigns.Total)
		}
		return nil
	})
	steps := slices.Concat([]checkStep{
		{"the table of campaigns", func(context.Context, *CheckReport) error { return err }},
		{"what the projections know", s.checkStrays},
	}, s.onCheck, []checkStep{
		{"the index of tags", s.checkTags},
		{"the pages of the journal", s.journal.checkPages},
		{"the pages of the projections", s.projections.checkPages},
	})
	for _, step := range steps {
		if err := step.check(ctx, &report); errors.Is(err, outbox.ErrDamaged) {
			report.unreadable(step.about, err)
		} else if err != nil {
			return report, fmt.Errorf("check: %w", err)
		}
	}
	report.OK = len(report.Violations) == 0
	return report, nil
}

// checkStep is a part of a check that is not of one campaign.
type checkStep struct {
	about string
	check func(context.Context, *CheckReport) error
}

// OnCheck registers what a check looks for besides; about says what it reads, where
// that cannot be read. It must not be called once the store is in use.
func (s *Store) OnCheck(about string, check func(context.Context, *CheckReport) error) {
	s.onCheck = append(s.onCheck, checkStep{about, check})
}

// unreadable adds a violation for each error that err joins.
func (r *CheckReport) unreadable(about string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			r.unreadable(about, err)
		}
		return
	}
	v := outbox.Violation{Invariant: "readable", Detail: about + " cannot be read: " + err.Error()}
	if one, ok := errors.AsType[*CampaignError](err); ok {
		v.CampaignID, v.Detail = one.CampaignID, "cannot be read: "+one.Err.Error()
	}
	r.Violations = append(r.Violations, v)
}

// checkPages lists the damaged pages of a database file. A server finds its own
// when it reads them.
func (d *Database) checkPages(ctx context.Context, report *CheckReport) error {
	found, err := d.DamagedPages(ctx)
	for _, line := range found {
		if line != "ok" && !strings.HasPrefix(line, "***") {
			report.Violations = append(report.Violations, outbox.Violation{Invariant: "readable", Detail: fmt.Sprintf("the %s database: %s", d.Name, line)})
			if errors.Is(err, outbox.ErrDamaged) {
				err = nil // it says where
			}
		}
	}
	return err
}

// checkUntilStill checks one campaign until two looks at the watermark, around
// one snapshot of the journal, agree.
func (s *Store) checkUntilStill(ctx context.Context, id string, report *CheckReport) error {
	poll := time.NewTicker(heldPoll)
	defer poll.Stop()
	for try := range checkTries {
		if try > 1 { // an act may be between its two databases
			select {
			case <-poll.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		before, marks, err := s.readmodel.Standing(ctx, id)
		if err != nil {
			return err
		}
		found, leased, err := s.checkCampaign(ctx, id, before, marks)
		if err != nil {
			return err
		}
		if err := s.checkCounts(ctx, found, before); err != nil {
			return err
		}
		after, err := s.watermarkOf(ctx, id)
		if err != nil {
			return err
		}
		// A fence above the campaign's epoch belongs to an act that has still to
		// commit, or to one that never did.
		moving := leased || before.FenceEpoch > found.epoch
		if after == before && (!moving || len(found.violations) == 0) || try == checkTries-1 && !leased {
			report.Checked["events"] += found.events
			report.Checked["rows"] += found.rows
			report.Checked["skips"] += found.skips
			report.Violations = append(report.Violations, found.violations...)
			return nil
		}
	}
	report.Checked["skipped"]++
	return nil
}

// finding collects what is wrong with one campaign.
type finding struct {
	campaign     string
	events, rows int64
	skips, epoch int64
	violations   []outbox.Violation
}

func (f *finding) add(invariant string, seq int64, format string, args ...any) {
	f.violations = append(f.violations, outbox.Violation{Invariant: invariant, CampaignID: f.campaign, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

func (s *Store) checkCampaign(ctx context.Context, id string, w readmodel.Watermark, marks readmodel.SkipMarks) (*finding, bool, error) {
	f := &finding{campaign: id}
	leased := false
	err := s.journal.Read(ctx, func(t *Tx) error {
		c, err := t.ExistingCampaign(id)
		if err != nil {
			return err
		}
		leased = c.LeaseOwner != "" && c.LeaseExpiry > s.Now()
		f.epoch = c.LeaseEpoch
		if err := t.checkJournal(f, c, w); err != nil {
			return err
		}
		if err := t.checkSkips(f, c, w, marks); err != nil {
			return err
		}
		if err := s.checkRows(t, f, c, w); err != nil {
			return err
		}
		if err := t.checkRowEvents(f); err != nil {
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

// checkCounts compares what the watermark counts, and how far its projections
// are, with what there is.
func (s *Store) checkCounts(ctx context.Context, f *finding, w readmodel.Watermark) error {
	var aside, open int64
	err := s.projections.Read(ctx, func(t *Tx) error {
		err := t.Each(func(row sqldb.Row) error {
			var name, state string
			var seq int64
			err := row.Scan(&name, &seq, &state)
			f.add("cursor", seq, "the cursor of projection %s says %s at event %d; the watermark is at %d", name, state, seq, w.AppliedSeq)
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
		f.add("set_aside", w.AppliedSeq, "the watermark says that %d projections are set aside; %d are", w.SetAside, aside)
	}
	if open != w.OpenFailures {
		f.add("open_failures", w.AppliedSeq, "the watermark says that %d failures are open; %d are", w.OpenFailures, open)
	}
	return nil
}

// checkJournal walks the campaign's events: dense seqs, hashes, the chain.
func (t *Tx) checkJournal(f *finding, c *CampaignRow, w readmodel.Watermark) error {
	chain, position := "", int64(0)
	times := recordings{finding: f, before: sqldb.At(c.CreatedAt)}
	err := t.Each(func(rows sqldb.Row) error {
		e, err := scanEvent(rows)
		if err != nil {
			return err
		}
		if e.Position <= position {
			f.add("journal_position", e.Seq, "position %d follows position %d", e.Position, position)
		}
		position = e.Position
		times.next(e.Seq, e.RecordedAt)
		f.events++
		if e.Seq != f.events {
			f.add("journal_dense", e.Seq, "seq %d follows seq %d", e.Seq, f.events-1)
			f.events = e.Seq
		}
		if e.ContentHash() != e.EventHash {
			f.add("journal_hash", e.Seq, "the content of the event does not match its hash")
		}
		if chain = outbox.NextChainHash(chain, e.Seq, e.EventHash); chain != e.ChainHash {
			f.add("journal_chain", e.Seq, "the chain of hashes is broken here")
			chain = e.ChainHash
		}
		if e.Seq == w.AppliedSeq && e.ChainHash != w.AppliedHash {
			f.add("watermark_hash", e.Seq, "the projections were built from another event")
		}
		return nil
	}, selectEvent+` where campaign_id = $1 order by seq`, c.ID)
	if err != nil {
		return err
	}
	times.end(sqldb.At(c.UpdatedAt))
	if c.HighWater != f.events || c.ChainHash != chain {
		f.add("campaign_row", c.HighWater, "the campaign's row says the journal ends at %d; it ends at %d", c.HighWater, f.events)
	}
	switch {
	case w.AppliedSeq > f.events && f.events == 0:
		f.add("watermark_bound", w.AppliedSeq, "the projections have a campaign the journal does not know")
	case w.AppliedSeq > f.events:
		f.add("watermark_bound", w.AppliedSeq, "the watermark is above the journal's end at %d", f.events)
	}
	return nil
}

// recountLimit is the number of rows up to which the self-check recounts a
// campaign; counting more would hold a snapshot for too long.
const recountLimit = 50_000

// Round is where a self-check stands. The zero value begins one.
type Round struct {
	Campaign string // compared last; empty at the end of a round
	lag      int64  // of the campaign that was looked at last among those that lag
	lagging  string // and its id; empty at the end
	rested   time.Time
}

// laggingChecked is how many of the campaigns that lag are looked at in a step of
// the self-check, and laggingRest how many times as long as that took none are:
// without an index it takes 40 ms where there are 100,000 campaigns.
const (
	laggingChecked = 2000
	laggingRest    = 100
)

// SelfCheck is Reconcile for the next few campaigns of a round, except that it
// does not count very many rows; and it repairs, of the next many that lag, those
// whose own row shows that they would wait for ever or too long. It returns where
// to go on and what was wrong. What drifted adds to the drift that Summary
// reports.
func (s *Store) SelfCheck(ctx context.Context, at Round, campaigns int) (next Round, found []Found, err error) {
	next = at
	next.Campaign, found, err = s.reconcilePage(ctx, at.Campaign, campaigns, (*Tx).tallySmall)
	if err == nil || errors.Is(err, outbox.ErrDamaged) {
		more, laggingErr := s.checkLagging(ctx, &next)
		found, err = append(found, more...), cmp.Or(laggingErr, s.shortenWaits(ctx), err)
	}
	for _, f := range found {
		if f.Drifted {
			s.drift.Add(1)
		}
	}
	if err != nil && !errors.Is(err, outbox.ErrDamaged) {
		next = Round{}
	}
	if err != nil {
		err = fmt.Errorf("check campaigns: %w", err)
	}
	return next, found, err
}

func (s *Store) checkLagging(ctx context.Context, at *Round) ([]Found, error) {
	began := time.Now()
	if began.Before(at.rested) {
		return nil, nil
	}
	if at.lagging == "" {
		at.lag = sqldb.FarPast
	}
	var amiss []*CampaignRow
	seen := 0
	err := s.journal.Read(ctx, func(t *Tx) error {
		return t.Each(func(rows sqldb.Row) error {
			c, _, _, err := scanFound(rows)
			if err != nil {
				return err
			}
			at.lag, at.lagging, seen = c.Applied-c.HighWater, c.ID, seen+1
			if at.lag >= 0 {
				return sqldb.ErrEnough
			}
			if s.amiss(c) {
				amiss = append(amiss, c)
			}
			return nil
		}, campaignsByLag.Up, at.lag, at.lagging, "", laggingChecked)
	})
	if err != nil {
		return nil, err
	}
	if at.lag >= 0 || seen < laggingChecked {
		at.lagging = ""
	}
	at.rested = time.Now().Add(laggingRest * time.Since(began))
	return s.repairEach(ctx, amiss)
}
