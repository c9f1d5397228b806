package store

import (
	"context"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// stuckWindow is the number of campaigns that are examined for being stuck: those that wait
// longest.
const stuckWindow = 50

var (
	selectDiverged = SelectCampaigns + `
where diverged <> ''
order by campaign_id
limit $1`

	selectWaiting = SelectCampaigns + `
where ` + waiting + `
  and coalesce(head_status, '') not in ('dead', 'failed')
  and paused_at is null
  and diverged = ''
order by oldest_enqueued_at, campaign_id
limit $1`
)

// StuckWithoutError lists campaigns that no error of their own keeps from advancing: diverged ones
// first, then those that wait longest of the others, as far as they are among the 50 that wait
// longest.
func (s *Store) StuckWithoutError(ctx context.Context, around campaign.Surroundings, limit int) ([]campaign.Campaign, error) {
	now := sqldb.At(s.Now())
	return Reading(ctx, s, "list campaigns that are stuck", func(t *Tx) ([]campaign.Campaign, error) {
		diverged, err := sqldb.All(t, scanView, selectDiverged, sqldb.PageLimit(limit, event.MaxPage))
		if err != nil {
			return nil, err
		}
		waiting, err := sqldb.All(t, scanView, selectWaiting, stuckWindow)
		stuck := slices.DeleteFunc(append(diverged, waiting...), func(c campaign.Campaign) bool { return !c.StuckWithoutError(now, around) })
		return stuck[:min(limit, len(stuck))], err
	})
}
