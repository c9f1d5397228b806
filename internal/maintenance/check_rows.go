package maintenance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// clockSlack is the tolerated difference between process clocks when checking recording times.
const clockSlack = time.Hour

// recordings follows the recording times of a campaign's events and finds one that is far from
// both its neighbours while they agree with each other. A single step in the times is a clock
// adjustment.
type recordings struct {
	*finding
	seq         int64 // of the event under test; 0 before the first
	before, now time.Time
}

func (r *recordings) next(seq int64, recorded time.Time) {
	r.checkEvent(recorded)
	r.seq, r.now = seq, recorded
}

// checkEvent compares the event under test with those before and after it.
func (r *recordings) checkEvent(after time.Time) {
	if r.seq == 0 {
		return
	}
	early, late := r.before.Sub(r.now) > clockSlack, r.now.Sub(after) > clockSlack
	if r.before.Sub(after) <= clockSlack && (early || late) {
		r.add(campaign.InvariantRecordedAt, r.seq, "the event was recorded at %s, but the events before and after it were recorded between %s and %s",
			r.now.Format(time.RFC3339), r.before.Format(time.RFC3339), after.Format(time.RFC3339))
		return // the previous event stays the reference for the next
	}
	r.before = r.now
}

// checkedRow is a row with the columns that only check reads.
type checkedRow struct {
	campaign.Row
	epoch int64
}

// checkRows compares the campaign's rows with the watermark and the campaign's counts.
func (m *Maintenance) checkRows(t *store.Tx, f *finding, c *store.CampaignRow, w readmodel.Watermark) error {
	var counts store.CampaignRow
	next := w.AppliedSeq + 1
	var head checkedRow
	err := t.Each(func(rows sqldb.Row) error {
		var r checkedRow
		var err error
		if r.Row, err = store.ScanRow(rows, &r.epoch); err != nil {
			return err
		}
		if f.rows++; f.rows == 1 {
			head = r
		}
		*counts.Count(string(r.Status))++
		switch {
		case r.Seq <= w.AppliedSeq && r.Status != event.Processing && r.Seq > c.Suspect:
			// Up to suspect, the rows of a dead worker are reprocessed one by one.
			f.add(campaign.InvariantAppliedAndOwed, r.Seq, "the event is applied and still has a row that is %s", r.Status)
		case r.Seq > w.AppliedSeq && r.Seq != next:
			f.add(campaign.InvariantEventOwed, next, "events %d to %d are neither applied nor have a row", next, r.Seq-1)
			next = r.Seq + 1
		case r.Seq > w.AppliedSeq:
			next++
		}
		f.checkRow(c, head, r)
		return nil
	}, `select `+store.RowColumns+`, o.claim_epoch from projection_apply_outbox o where o.campaign_id = $1 order by o.seq`, c.ID)
	if err != nil {
		return err
	}
	if next <= c.HighWater && m.core.Mode().Enqueues() {
		f.add(campaign.InvariantEventOwed, next, "events %d to %d are neither applied nor have a row", next, c.HighWater)
	}
	if counts.Counts != c.Counts {
		f.add(campaign.InvariantCampaignRow, 0, "the campaign's row counts %+v; its rows are %+v", c.Counts, counts.Counts)
	}
	f.checkHead(c, head.Row)
	return nil
}

// checkRow checks one row by itself and against the head before it.
func (f *finding) checkRow(c *store.CampaignRow, head, r checkedRow) {
	failed := r.Status.Stuck()
	switch {
	case !slices.Contains(event.Statuses, r.Status):
		f.add(campaign.InvariantRowState, r.Seq, "the row has the unknown status %q", r.Status)
	case r.AttemptCount < 0, failed && r.AttemptCount == 0 && r.Seq == head.Seq:
		f.add(campaign.InvariantRowState, r.Seq, "the row is %s after %s", r.Status, event.Count(int64(r.AttemptCount), "attempt", "attempts"))
	case r.Status == event.Processing && (c.LeaseOwner == "" || r.Seq > head.Seq && head.Status != event.Processing):
		f.add(campaign.InvariantBehindHead, r.Seq, "the row is processing although no worker holds the campaign")
	case failed && r.Seq > head.Seq && (r.AttemptCount == 0 || !head.UpdatedAt.After(r.UpdatedAt)):
		// After older projections were restored, the rows before it were inserted after it had
		// failed.
		f.add(campaign.InvariantBehindHead, r.Seq, "the row is %s although event %d before it has not been applied", r.Status, head.Seq)
	}
	if r.epoch > c.LeaseEpoch || r.epoch < 0 {
		f.add(campaign.InvariantEpoch, r.Seq, "the row was claimed under epoch %d, but the campaign's lease is at %d", r.epoch, c.LeaseEpoch)
	}
}

// checkHead compares the head's status and due time in the campaign's row with the head.
func (f *finding) checkHead(c *store.CampaignRow, head campaign.Row) {
	if head.Seq != c.Head.Int64 || string(head.Status) != c.HeadStatus.String {
		f.add(campaign.InvariantCampaignRow, head.Seq, "the campaign's row says the head is event %d (%s)", c.Head.Int64, c.HeadStatus.String)
		return
	}
	if head.Seq > 0 && (!sqldb.At(c.HeadNext.Int64).Equal(head.NextAttemptAt) || !sqldb.At(c.Oldest.Int64).Equal(head.EnqueuedAt)) {
		f.add(campaign.InvariantCampaignRow, head.Seq, "the campaign's row says that the head waits since %s and may be tried at %s; its row says %s and %s",
			moment(c.Oldest.Int64), moment(c.HeadNext.Int64), head.EnqueuedAt.Format(time.RFC3339Nano), head.NextAttemptAt.Format(time.RFC3339Nano))
		return
	}
	least, most := dueBetween(c)
	if c.Due.Valid != (most > 0) || c.Due.Valid && (c.Due.Int64 < least || c.Due.Int64 > most) {
		f.add(campaign.InvariantCampaignRow, head.Seq, "the campaign's row is due at %s; it should be due at %s", moment(c.Due.Int64), moment(most))
	}
}

// dueBetween is the range of due_at values that Schedule can have set by the row's last change;
// 0 when it must be null.
func dueBetween(c *store.CampaignRow) (least, most int64) {
	now := c.UpdatedAt
	if c.LeaseOwner != "" {
		now = min(now, c.LeaseExpiry-1)
	}
	hold, until := c.ClaimFacts().Blocker(now)
	switch {
	case hold != campaign.BlockerNone:
		return until, until
	case event.Status(c.HeadStatus.String) == event.Pending: // any time, since the clock may have been adjusted
		return 1, until
	}
	return min(c.HeadNext.Int64, until), until
}

func moment(micros int64) string {
	if micros == 0 {
		return "no time"
	}
	return sqldb.At(micros).Format(time.RFC3339Nano)
}

const selectOddRows = `
select o.seq, o.event_type, o.enqueued_at, coalesce(e.seq, 0), coalesce(e.event_type, ''), coalesce(e.recorded_at, 0)
from projection_apply_outbox o
left join events e on e.campaign_id = o.campaign_id and e.seq = o.seq
where o.campaign_id = $1
  and (e.seq is null or e.event_type <> o.event_type or e.recorded_at <> o.enqueued_at)
order by o.seq`

func checkRowEvents(t *store.Tx, f *finding) error {
	return t.Each(func(row sqldb.Row) error {
		var seq, enqueued, event, recorded int64
		var says, is string
		if err := row.Scan(&seq, &says, &enqueued, &event, &is, &recorded); err != nil {
			return err
		}
		switch {
		case event == 0:
			f.add(campaign.InvariantRowEvent, seq, "the row belongs to no event in the journal")
		case says != is:
			f.add(campaign.InvariantRowEvent, seq, "the row says that its event is %s; it is %s", says, is)
		default:
			f.add(campaign.InvariantRowEvent, seq, "the row says that its event was recorded at %s; the event says %s", moment(enqueued), moment(recorded))
		}
		return nil
	}, selectOddRows, f.campaign)
}

// checkEpochs compares the epoch of the campaign's lease with that of its fence. A higher lease
// epoch is that of a claim which applied nothing.
func (f *finding) checkEpochs(c *store.CampaignRow, w readmodel.Watermark) {
	switch {
	case c.LeaseEpoch < 0 || w.FenceEpoch > c.LeaseEpoch:
		f.add(campaign.InvariantEpoch, 0, "the fence of the projections is at epoch %d, above the lease's %d, so no worker can apply events", w.FenceEpoch, c.LeaseEpoch)
	case w.AppliedSeq > 0 && w.FenceEpoch <= 0:
		f.add(campaign.InvariantEpoch, 0, "events were applied, but the fence of the projections is at epoch %d", w.FenceEpoch)
	}
}

// checkApplied compares the applied seq of the campaign's row with the watermark. It is lower
// while a worker has yet to settle.
func (f *finding) checkApplied(c *store.CampaignRow, w readmodel.Watermark) {
	if c.Diverged == "" && (c.Applied > w.AppliedSeq || c.Applied < w.AppliedSeq && c.LeaseOwner == "") {
		f.add(campaign.InvariantCampaignRow, w.AppliedSeq, "the campaign's row says that %s applied; the projections have %d", event.Count(c.Applied, "event is", "events are"), w.AppliedSeq)
	}
}

// checkStrays looks for campaigns without a row in campaigns.
func (m *Maintenance) checkStrays(ctx context.Context, report *campaign.CheckReport) error {
	err := m.eachStray(ctx, func(strays []stray) error {
		for _, x := range strays {
			switch {
			case x.events:
				report.Add(campaign.InvariantCampaignRow, x.id, 0, "the campaign has events but no row in campaigns; outboxweb gaps --repair adds one")
			case x.applied:
				report.Add(campaign.InvariantWatermarkBound, x.id, 0, "the projections have a campaign that is not in the journal")
			default:
				report.Add(campaign.InvariantRowEvent, x.id, 0, "there are rows of a campaign that is not in the journal")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.CheckTables(ctx, engineTables, report)
}

// CheckTables looks in tables of the projections database for rows of campaigns that the
// journal does not have, or of which nothing was applied.
func (m *Maintenance) CheckTables(ctx context.Context, tables []string, report *campaign.CheckReport) error {
	for _, table := range tables {
		missing, err := m.core.ReadModel().Missing(ctx, []string{table})
		if missing != "" {
			report.Add(campaign.InvariantReadModelTable, "", 0, "table %s is missing; a running worker makes its projection's tables again within half a minute, and a replay fills them", table)
			continue
		}
		if err != nil {
			return fmt.Errorf("look for table %q: %w", table, err)
		}
		ids, err := sqldb.Reading(ctx, m.core.ReadModel(), fmt.Sprintf("look for campaigns in table %q", table), func(t *sqldb.Tx) ([]string, error) {
			return sqldb.All(t, sqldb.Column[string], `
select distinct r.campaign_id
from `+readmodel.QuoteName(table)+` r
where not exists (select 1 from projection_watermarks w where w.campaign_id = r.campaign_id and w.applied_seq > 0)`)
		})
		if err != nil {
			return err
		}
		slices.SortFunc(ids, strings.Compare)
		if err := m.checkKnown(ctx, table, ids, report); err != nil {
			return err
		}
	}
	return nil
}

// engineTables may have rows of a campaign of which nothing is applied yet.
var engineTables = []string{"projection_cursors", "failures", "watermark_skips"}

func (m *Maintenance) checkKnown(ctx context.Context, table string, ids []string, report *campaign.CheckReport) error {
	for page := range slices.Chunk(ids, campaignPage) {
		known, err := sqldb.Reading(ctx, m.core.Journal(), "", func(t *store.Tx) (map[string]*store.CampaignRow, error) { return t.Campaigns(page) })
		if err != nil {
			return err
		}
		for _, id := range page {
			switch {
			case known[id] == nil:
				report.Add(campaign.InvariantUnknownCampaign, id, 0, "table %s has rows of a campaign that is not in the journal", table)
			case !slices.Contains(engineTables, table):
				report.Add(campaign.InvariantUnknownCampaign, id, 0, "table %s has rows of a campaign of which no event was applied", table)
			}
		}
	}
	return nil
}
