package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// stalestWindow is how many campaigns Stalest examines.
const stalestWindow = 500

const selectStalest = `
select c.campaign_id, c.high_water_seq, c.applied_seq, coalesce((
  select min(v.at)
  from verifications v
  where v.campaign_id = c.campaign_id), 0)
from campaigns c
where c.campaign_id > $1
  and (c.campaign_id <= $2 or $2 = '')
order by c.campaign_id
limit $3`

// Stalest chooses campaigns to verify in the background: among the next 500
// after a campaign id, going on with the first ones after the last, those that
// were never verified, or not for the longest time, at most limit. Campaigns of
// which nothing was applied are not among them. The caller passes next as after
// the next time, so that each call costs the same however many campaigns there
// are.
func (rs *Runs) Stalest(ctx context.Context, after string, limit int) (stalest []Campaign, next string, err error) {
	type candidate struct {
		Campaign
		at int64
	}
	var found []candidate
	read := 0
	collect := func(row sqldb.Row) error {
		var c candidate
		err := row.Scan(&c.CampaignID, &c.HighWaterSeq, &c.AppliedSeq, &c.at)
		read++
		next = c.CampaignID
		if c.AppliedSeq > 0 {
			found = append(found, c)
		}
		return err
	}
	err = rs.read(ctx, func(t *tx) error {
		err := t.Each(collect, selectStalest, after, "", stalestWindow)
		if err == nil && after != "" && read < stalestWindow {
			err = t.Each(collect, selectStalest, "", after, stalestWindow-read)
		}
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("look for campaigns to verify: %w", err)
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.at, b.at) })
	for _, c := range found[:min(max(0, limit), len(found))] {
		stalest = append(stalest, c.Campaign)
	}
	return stalest, next, nil
}
