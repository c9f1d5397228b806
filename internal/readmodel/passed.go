package readmodel

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// SkipMarks are the events that the projections of a campaign skipped over: the id of the skip
// by seq.
type SkipMarks map[int64]int64

const selectMarks = `
select campaign_id, seq, skip_id
from watermark_skips
where campaign_id between $1 and $2`

// marksBetween reads the marks of the campaigns from id first to id last.
func marksBetween(t sqldb.Reader, first, last string) (map[string]SkipMarks, error) {
	all := make(map[string]SkipMarks)
	err := t.Each(func(row sqldb.Row) error {
		var campaign string
		var seq, id int64
		err := row.Scan(&campaign, &seq, &id)
		if all[campaign] == nil {
			all[campaign] = make(SkipMarks)
		}
		all[campaign][seq] = id
		return err
	}, selectMarks, first, last)
	if err != nil {
		return nil, fmt.Errorf("read what the projections passed over: %w", err)
	}
	return all, nil
}

// Position reads a campaign's watermark and marks in one snapshot.
func (d *Database) Position(ctx context.Context, campaign string) (w Watermark, marks SkipMarks, err error) {
	err = d.Read(ctx, func(t *sqldb.Tx) error {
		if w, _, err = sqldb.First(t, ScanWatermark, SelectWatermark, campaign); err != nil {
			return err
		}
		all, err := marksBetween(t, campaign, campaign)
		marks = all[campaign]
		return err
	})
	return w, marks, err
}

// PassedOver reads the skip marks of the campaigns from id first to id last.
func (d *Database) PassedOver(ctx context.Context, first, last string) (map[string]SkipMarks, error) {
	return sqldb.Reading(ctx, d, "", func(t *sqldb.Tx) (map[string]SkipMarks, error) { return marksBetween(t, first, last) })
}

const insertMark = `
insert into watermark_skips (campaign_id, seq, skip_id, at)
values ($1, $2, $3, $4)
on conflict (campaign_id, seq) do update
set skip_id = excluded.skip_id, at = excluded.at`

// PassOver records that the watermark advances over e without applying it, because of the skip
// in e.
func (a *ApplyTx) PassOver(e *event.Event) error {
	return a.do(nil, insertMark, e.CampaignID, e.Seq, e.Skipped.ID, a.now)
}

// ChainHashes are the hashes of the event that a watermark is set back from, and of the one
// before it.
type ChainHashes struct{ Before, Own string }

const (
	setBackWatermark = `
update projection_watermarks
set applied_seq = $3, applied_hash = $4, updated_at = $6
where campaign_id = $1
  and applied_seq = $2
  and applied_hash = $5
  and fence_epoch = $7`

	// Projections quarantined or paused at the event have skipped over it too.
	setBackCursors = `
update projection_cursors
set applied_seq = $3
where campaign_id = $1
  and applied_seq = $2
  and state || '' <> 'live'`

	deleteMark = `
delete from watermark_skips
where campaign_id = $1
  and seq = $2
  and skip_id = $3`
)

// SetBack moves the watermark from a skipped event to the one before. It refuses when the event
// has no mark, since it was applied then.
func (a *ApplyTx) SetBack(skip event.Skip, hashes ChainHashes, epoch int64) error {
	n, err := a.t.Exec(setBackWatermark, skip.CampaignID, skip.Seq, skip.Seq-1, hashes.Before, hashes.Own, a.now, epoch)
	if err == nil && n == 0 {
		err = event.Conflict("the projections of campaign %q were built from a different event %d than the journal's; run outboxweb check", skip.CampaignID, skip.Seq)
	}
	if err != nil {
		return err
	}
	if _, err = a.t.Exec(setBackCursors, skip.CampaignID, skip.Seq, skip.Seq-1); err != nil {
		return err
	}
	n, err = a.t.Exec(deleteMark, skip.CampaignID, skip.Seq, skip.ID)
	if err == nil && n == 0 {
		err = event.Conflict("the projections of campaign %q have no record that event %d was skipped; run outboxweb check", skip.CampaignID, skip.Seq)
	}
	return err
}
