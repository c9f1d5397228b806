package runs

import (
	"context"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// prunePage is how many runs are examined together.
const prunePage = 500

const (
	// keptRuns is the number of ended runs of each kind whose results are all kept. Of older ones
	// only results of campaigns that drifted or failed are.
	keptRuns   = 10
	pruneChunk = 1000 // maximum results deleted in one transaction
)

const (
	selectEndedRuns = `
select id
from runs
where kind = $1
  and finished_at is not null
order by id desc
limit $2`

	selectOldRuns = `
select id
from runs
where kind = $1
  and id > $2
  and id < $3
  and finished_at is not null
order by id
limit $4`

	selectPrunable = `
select run_id
from run_results
where run_id = $1
  and outcome = $2
limit 1`

	pruneResults = `
delete from run_results
where run_id = $1
  and outcome = $2
  and campaign_id in (
    select campaign_id
    from run_results
    where run_id = $1
      and outcome = $2
    limit $3)`
)

// prunable are the outcomes whose results expire.
var prunable = []string{replay.OutcomeMatch, replay.OutcomeReplayed, replay.OutcomeNotCompared}

// Prune deletes results of campaigns without findings, of all but the latest ten ended runs of each
// kind: nightly verifies would otherwise fill the disk. It works in small steps, and returns true
// while there is more to delete. It writes nothing if there is nothing to delete.
func (rs *Runs) Prune(ctx context.Context) (more bool, err error) {
	for _, kind := range replay.RunKinds {
		if kind.ReadsOnly() { // the others have none
			if err := rs.pruneFiles(ctx, kind); err != nil {
				return false, err
			}
		}
		id, err := rs.runToPrune(ctx, kind)
		if err != nil {
			return false, fmt.Errorf("look for results of runs to prune: %w", err)
		}
		if id == 0 {
			continue
		}
		more = true
		err = rs.write(ctx, func(t *tx) error {
			var b sqldb.Batch
			for _, outcome := range prunable {
				b.Exec(nil, pruneResults, id, outcome, pruneChunk)
			}
			return t.Finish(&b)
		})
		if err != nil {
			return false, fmt.Errorf("prune the results of run %d: %w", id, err)
		}
	}
	return more, nil
}

// runToPrune returns the oldest run of a kind that has results to delete; 0 if there is none.
func (rs *Runs) runToPrune(ctx context.Context, kind replay.RunKind) (found int64, err error) {
	err = rs.read(ctx, func(t *tx) error {
		found = 0
		oldest, err := t.oldestKept(kind)
		for after := int64(0); err == nil && found == 0; {
			var page, with []int64
			if err = t.Each(sqldb.Collect(&page, sqldb.Column[int64]), selectOldRuns, kind, after, oldest, prunePage); err != nil || len(page) == 0 {
				return err
			}
			after = page[len(page)-1]
			var b sqldb.Batch
			for _, id := range page {
				for _, outcome := range prunable {
					b.Each(sqldb.Collect(&with, sqldb.Column[int64]), selectPrunable, id, outcome)
				}
			}
			if err = t.RunAll(&b); len(with) > 0 {
				found = slices.Min(with)
			}
		}
		return err
	})
	return found, err
}

// oldestKept returns the oldest run of a kind whose results are all kept; 0 if there are no older
// ones.
func (t *tx) oldestKept(kind replay.RunKind) (int64, error) {
	latest, err := sqldb.All(t, sqldb.Column[int64], selectEndedRuns, kind, keptRuns+1)
	if len(latest) <= keptRuns {
		return 0, err
	}
	return latest[keptRuns-1], err
}
