package runs

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// Preview returns what a run would cover if it were started now. It refuses what Start refuses,
// except that the preview names a blocking run.
func (rs *Runs) Preview(ctx context.Context, order replay.RunRequest, loaded []campaign.ProjectionInfo) (replay.RunPreview, error) {
	r, err := rs.requested(order, loaded)
	if err != nil {
		return replay.RunPreview{}, err
	}
	with, err := rs.keptVersion(ctx, order, loaded)
	if err != nil {
		return replay.RunPreview{}, err
	}
	return reading(ctx, rs, "", func(t *tx) (p replay.RunPreview, err error) {
		if err := t.knownCampaigns(r); err != nil {
			return p, err
		}
		if err := t.totalRun(r); err != nil {
			return p, err
		}
		other, err := t.runInTheWay(r)
		if err != nil {
			return p, err
		}
		p = replay.RunPreview{Kind: r.Kind, Projections: r.Projections, Campaigns: r.Campaigns.Total, Diverged: r.diverged, Events: r.Events.Total,
			Confirm: operator.ActionRunStart.Phrase(r.reach())}
		if with != nil {
			p.With = with.versions
		}
		if now := rs.core.Now(); other != nil && !other.givesWay(now) {
			run := other.view(now)
			p.BlockingRun = &run
		}
		return p, nil
	})
}
