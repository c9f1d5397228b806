package store

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// SkipColumns are the columns that ScanSkip reads.
const SkipColumns = `id, campaign_id, seq, event_type, error, skipped_at, skipped_by, reason, applied_at, undone_at, undone_by, undone_reason`

// ScanSkip reads a skip.
func ScanSkip(row sqldb.Row) (k event.Skip, err error) {
	err = row.Scan(&k.ID, &k.CampaignID, &k.Seq, &k.EventType, &k.Error, sqldb.ScanTime(&k.SkippedAt), &k.SkippedBy, &k.Reason,
		sqldb.ScanTimeOrNil(&k.AppliedAt), sqldb.ScanTimeOrNil(&k.UndoneAt), &k.UndoneBy, &k.UndoneReason)
	return k, err
}

const activeSkipsInRange = `
select ` + SkipColumns + `
from skips
where campaign_id = $1
  and seq between $2 and $3
  and undone_at is null
order by seq`

// ActiveSkips returns the active skips of a campaign between two seqs.
func (t *Tx) ActiveSkips(campaign string, first, last int64) ([]event.Skip, error) {
	skips, err := sqldb.All(t, ScanSkip, activeSkipsInRange, campaign, first, last)
	return skips, sqldb.Wrapf(err, "read skips of campaign %q", campaign)
}

// ActiveSkips returns the active skips of a campaign's events up to a seq, in order of seq.
func (s *Store) ActiveSkips(ctx context.Context, campaign string, until int64) ([]event.Skip, error) {
	return Reading(ctx, s, "", func(t *Tx) ([]event.Skip, error) { return t.ActiveSkips(campaign, 1, until) })
}

// readSkips marks those of consecutive events of one campaign that are skipped.
func (t *Tx) readSkips(events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	skips, err := t.ActiveSkips(events[0].CampaignID, events[0].Seq, events[len(events)-1].Seq)
	markSkipped(events, skips)
	return err
}

func markSkipped(events []event.Event, skips []event.Skip) {
	for i := range events {
		for j := range skips {
			if skips[j].Seq == events[i].Seq && skips[j].CampaignID == events[i].CampaignID {
				events[i].Skipped = &skips[j]
			}
		}
	}
}

// skippableEvent reads an event, marked if it is skipped. A missing one is event.ErrNotFound.
func (t *Tx) skippableEvent(campaign string, seq int64) (event.Event, error) {
	events, err := t.events(campaign, seq, seq)
	if err == nil && len(events) == 0 {
		err = t.MissingEvent(campaign, seq)
	}
	if err != nil {
		return event.Event{}, err
	}
	return events[0], nil
}

// skipsOfCampaign pages through the skips of a campaign.
var skipsOfCampaign = sqldb.BothWays(`
select ` + SkipColumns + `
from skips
where id {>} $1
  and campaign_id = $2
order by id{desc}
limit $3`)

// Skips pages through a campaign's skips, newest first. An unknown campaign is
// event.ErrNotFound.
func (s *Store) Skips(ctx context.Context, f event.SkipFilter) (event.Page[event.Skip], error) {
	l := sqldb.Newest("skips", skipsOfCampaign, ScanSkip, func(k event.Skip) int64 { return k.ID }, f.CampaignID)
	return Reading(ctx, s, fmt.Sprintf("list skips of campaign %q", f.CampaignID), func(t *Tx) (page event.Page[event.Skip], err error) {
		if _, err = t.ExistingCampaign(f.CampaignID); err == nil {
			page, err = l.Page(t, f.Cursor, f.Limit)
		}
		return page, err
	})
}
