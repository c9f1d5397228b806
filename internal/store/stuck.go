package store

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// stuckWindow is the number of campaigns that are examined for being stuck: those that wait
// longest.
const stuckWindow = 50

var (
	selectDiverged = `
select ` + CampaignColumns + `
from campaigns
where diverged <> ''
order by campaign_id
limit $1`

	selectWaiting = `
select ` + CampaignColumns + `
from campaigns
where ` + ageKey + ` < 4611686018427387904
  and coalesce(head_status, '') not in ('dead', 'failed')
  and paused_at is null
  and diverged = ''
order by ` + ageKey + `, campaign_id
limit $1`
)

// StuckWithoutError lists campaigns that no error of their own keeps from advancing: diverged ones
// first, then those that wait longest of the others, as far as they are among the 50 that wait
// longest.
func (s *Store) StuckWithoutError(ctx context.Context, around outbox.Surroundings, limit int) ([]outbox.Campaign, error) {
	stuck := []outbox.Campaign{}
	now := sqldb.At(s.Now())
	add := func(row sqldb.Row) error {
		var c CampaignRow
		err := row.Scan(c.Dest()...)
		if view := c.View(); len(stuck) < limit && view.StuckWithoutError(now, around) {
			stuck = append(stuck, view)
		}
		return err
	}
	err := s.journal.Read(ctx, func(t *Tx) error {
		if err := t.Each(add, selectDiverged, sqldb.PageLimit(limit, outbox.MaxPage)); err != nil {
			return err
		}
		return t.Each(add, selectWaiting, stuckWindow)
	})
	if err != nil {
		return nil, fmt.Errorf("list campaigns that are stuck: %w", err)
	}
	return stuck, nil
}
