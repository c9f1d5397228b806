package maintenance

import (
	"context"
	"math"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// skipSuspects returns the campaigns of a page, in order of id, whose skips and projections
// disagree.
func (m *Maintenance) skipSuspects(ctx context.Context, page []*store.CampaignRow, marks map[string]readmodel.Watermark) (map[string]bool, error) {
	first, last := page[0].ID, page[len(page)-1].ID
	standing, err := sqldb.Reading(ctx, m.core.Journal(), "read skips", func(t *store.Tx) (map[string][]event.Skip, error) {
		standing := make(map[string][]event.Skip)
		return standing, t.Each(func(row sqldb.Row) error {
			k, err := store.ScanSkip(row)
			standing[k.CampaignID] = append(standing[k.CampaignID], k)
			return err
		}, `
select `+store.SkipColumns+`
from skips
where campaign_id between $1 and $2
  and undone_at is null`, first, last)
	})
	if err != nil {
		return nil, err
	}
	passed, err := m.core.ReadModel().PassedOver(ctx, first, last)
	suspects := make(map[string]bool)
	for _, c := range page {
		applied := marks[c.ID].AppliedSeq
		suspects[c.ID] = int64(len(standing[c.ID])) != c.Skips || outbox.Contradiction(standing[c.ID], passed[c.ID], applied) != "" || outbox.Unsettled(standing[c.ID], applied)
	}
	return suspects, err
}

// checkSkips compares a campaign's skips with the events that its projections skipped over and
// with the count in its row.
func checkSkips(t *store.Tx, f *finding, c *store.CampaignRow, w readmodel.Watermark, marks readmodel.SkipMarks) error {
	standing, err := t.ActiveSkips(c.ID, 1, math.MaxInt64)
	if err != nil {
		return err
	}
	f.skips = int64(len(standing))
	outbox.Contradictions(standing, marks, w.AppliedSeq, func(seq int64, what string) { f.add(campaign.InvariantSkips, seq, "%s", what) })
	for _, k := range standing {
		if k.AppliedAt != nil && k.Seq > w.AppliedSeq {
			f.add(campaign.InvariantSkips, k.Seq, "the skip says that it is applied; the watermark stands at %d", w.AppliedSeq)
		}
	}
	if f.skips != c.Skips {
		f.add(campaign.InvariantCampaignRow, 0, "the campaign's row counts %s, not %d", event.Count(c.Skips, "skipped event", "skipped events"), f.skips)
	}
	return nil
}
