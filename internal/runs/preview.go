package runs

import (
	"context"
	"slices"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Preview returns what a run would cover if it were started now. It refuses what Start refuses,
// except that the preview names a blocking run.
func (rs *Runs) Preview(ctx context.Context, order outbox.RunRequest, loaded []outbox.ProjectionInfo) (outbox.RunPreview, error) {
	r := &runRow{Run: outbox.Run{Kind: order.Kind, All: order.All, UntilSeq: order.UntilSeq, Rate: order.Rate, Versions: map[string]string{},
		CampaignIDs: orEmpty(slices.Compact(slices.Sorted(slices.Values(order.Campaigns))))}}
	if len(r.CampaignIDs) == 1 {
		r.CampaignID = r.CampaignIDs[0]
	}
	if err := rs.soundRun(r); err != nil {
		return outbox.RunPreview{}, err
	}
	if err := r.chooseProjections(order.Projections, loaded); err != nil {
		return outbox.RunPreview{}, err
	}
	with, err := rs.keptVersion(ctx, order, loaded)
	if err != nil {
		return outbox.RunPreview{}, err
	}
	var p outbox.RunPreview
	err = rs.read(ctx, func(t *tx) error {
		if err := t.knownCampaigns(r); err != nil {
			return err
		}
		if err := t.totalRun(r); err != nil {
			return err
		}
		other, err := t.runInTheWay(r)
		if err != nil {
			return err
		}
		p = outbox.RunPreview{Kind: r.Kind, Projections: r.Projections, Campaigns: r.Campaigns.Total, Diverged: r.diverged, Events: r.Events.Total,
			Confirm: outbox.ActionRunStart.Phrase(r.reach())}
		if with != nil {
			p.With = with.versions
		}
		if now := rs.core.Now(); other != nil && !other.givesWay(now) {
			run := other.view(now)
			p.BlockingRun = &run
		}
		return nil
	})
	return p, err
}
