package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// historyRuns is how many of the latest replays, and of the latest rebuilds, an event's history tells of.
const historyRuns = 50

const selectAdvanced = `
select r.id, r.kind, x.projections, x.at
from (
  select id, kind
  from runs
  where kind = $2
  order by id desc
  limit $3
) as r
join run_results x on x.run_id = r.id and x.campaign_id = $1`

// EventHistory is that of the store, with the projections that got the event later by a replay or a
// rebuild, as far as the results of runs are kept.
func (rs *Runs) EventHistory(ctx context.Context, campaignID string, seq int64) (campaign.EventHistory, error) {
	h, err := rs.core.EventHistory(ctx, campaignID, seq)
	if err != nil || slices.ContainsFunc(h.Steps, func(s campaign.EventStep) bool { return s.Kind == campaign.StepPassedOver }) {
		return h, err
	}
	err = rs.read(ctx, func(t *tx) error {
		for _, kind := range []replay.RunKind{replay.RunReplay, replay.RunRebuild} {
			err := t.Each(func(row sqldb.Row) error {
				var run campaign.Replayed
				var results []replay.ProjectionResult
				var at time.Time
				if err := row.Scan(&run.RunID, &run.Kind, sqldb.ScanJSON(&results), sqldb.ScanTime(&at)); err != nil {
					return fmt.Errorf("result of run %d: %w", run.RunID, err)
				}
				for _, p := range results {
					if p.From != nil && *p.From < seq && seq <= p.Seq {
						step := run
						step.Projection = p.Projection
						h.Steps = append(h.Steps, campaign.EventStep{Kind: campaign.StepReplayed, At: at, Replay: &step})
					}
				}
				return nil
			}, selectAdvanced, campaignID, string(kind), historyRuns)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return h, fmt.Errorf("read which runs applied campaign %q seq %d: %w", campaignID, seq, err)
	}
	campaign.SortSteps(h.Steps)
	return h, nil
}
