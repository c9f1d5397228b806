package store

import (
	"context"
	"errors"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// PausedUntil keeps when the pause of a command ends, in the place of an earlier one of the same; resume is the
// action that ends it.
func (t *Tx) PausedUntil(o operator.Command, resume operator.Action, campaignID, target string, now int64) error {
	if err := t.Resumed(o, resume, campaignID, target); err != nil {
		return err
	}
	end := o.Lasts.End(sqldb.At(now))
	if end.IsZero() {
		return nil
	}
	_, err := t.Exec(`insert into pause_ends (resume, campaign_id, target, paused_by, ends_at) values ($1, $2, $3, $4, $5)`, string(resume), campaignID, target, o.By.Name, end.UnixMicro())
	return err
}

// Resumed forgets when a pause ends. For a command that ends one at its time it is event.ErrConflict if there is
// another by now.
func (t *Tx) Resumed(o operator.Command, resume operator.Action, campaignID, target string) error {
	n, err := t.Exec(`delete from pause_ends where resume = $1 and campaign_id = $2 and target = $3 and (cast($4 as bigint) = 0 or ends_at = cast($4 as bigint))`, string(resume), campaignID, target, sqldb.Micros(o.Ends))
	if err == nil && n == 0 && !o.Ends.IsZero() {
		return event.Conflict("the pause that was to end at %s has been ended, or is another by now", o.Ends.UTC().Format("15:04:05 UTC"))
	}
	return err
}

// pauseEndsRead is how many pauses a summary has, and how many are ended at a time.
const pauseEndsRead = 1000

// pauseEnds reads the pauses that end up to a time.
func (t *Tx) pauseEnds(until int64) (campaign.PauseEnds, error) {
	return sqldb.All(t, func(row sqldb.Row) (e campaign.PauseEnd, err error) {
		err = row.Scan(&e.Resume, &e.CampaignID, &e.Target, &e.By, sqldb.ScanTime(&e.Until))
		return e, err
	}, `select resume, campaign_id, target, paused_by, ends_at from pause_ends where ends_at <= $1 order by ends_at, campaign_id, target, resume limit $2`, until, pauseEndsRead)
}

// PausesOver are the pauses whose time is over, and which resume is to end.
func (s *Store) PausesOver(ctx context.Context) (campaign.PauseEnds, error) {
	return Reading(ctx, s, "read ends of pauses", func(t *Tx) (campaign.PauseEnds, error) { return t.pauseEnds(s.Now()) })
}

// ForgetPause forgets the end of a pause that is no more.
func (s *Store) ForgetPause(ctx context.Context, e campaign.PauseEnd) error {
	err := s.journal.Write(ctx, func(t *Tx) error {
		return t.Resumed(operator.Command{Ends: e.Until}, e.Resume, e.CampaignID, e.Target)
	})
	if errors.Is(err, event.ErrConflict) {
		return nil
	}
	return err
}
