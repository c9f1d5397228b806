package runs

import (
	"context"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// RestOn refuses an operation that is to rest on a rehearsal that did not run with what is loaded; 0 is
// none. A missing run, or one of another kind, is event.ErrNotFound.
func (rs *Runs) RestOn(ctx context.Context, id int64, loaded []campaign.ProjectionInfo) error {
	if id == 0 {
		return nil
	}
	d, err := rs.answered(ctx, id, loaded)
	switch {
	case err != nil || d.Loaded:
		return err
	case d.Outdated():
		return event.Conflict("rehearsal %d %s", id, d.Others[0].Ran())
	}
	return event.Conflict("the files of rehearsal %d are not loaded yet; load them and restart first", id)
}

// rehearsedAmong is how many of the latest rehearsals are looked at for those with the loaded files.
const rehearsedAmong = 5

// ofLoaded returns the recent rehearsals that ran with the files that are loaded, the latest first.
func (rs *Runs) ofLoaded(ctx context.Context, loaded []campaign.ProjectionInfo) (all []replay.FixRehearsal, err error) {
	recent, err := rs.List(ctx, replay.RunFilter{Kind: replay.RunRehearse, Status: replay.RunCompleted, Limit: rehearsedAmong})
	if err != nil {
		return nil, err
	}
	for _, run := range recent.Items {
		d, err := rs.answered(ctx, run.ID, loaded)
		if err != nil {
			return nil, err
		}
		if d.Loaded {
			all = append(all, d)
		}
	}
	return all, nil
}

// A row that was retried since the rehearsal has a later time.
const selectTried = `
select r.rehearsed, r.outcome, o.seq, o.fingerprint
from run_results r
join campaigns c on c.campaign_id = r.campaign_id
join projection_apply_outbox o on o.campaign_id = c.campaign_id and o.seq = c.head_seq
where r.run_id = $1
  and r.outcome in ('replayed', 'failed')
  and o.status = 'dead'
  and o.updated_at <= $2`

// triedHeads counts the dead heads that a rehearsal tried and that were not retried since, by
// fingerprint.
func (rs *Runs) triedHeads(ctx context.Context, run replay.Run) (map[string]campaign.HeadsTried, error) {
	heads := map[string]campaign.HeadsTried{}
	err := rs.read(ctx, func(t *tx) error {
		return t.Each(func(row sqldb.Row) error {
			var outcome, fingerprint string
			var seq int64
			var at replay.Rehearsed
			err := row.Scan(sqldb.ScanJSON(&at), &outcome, &seq, &fingerprint)
			n := heads[fingerprint]
			switch {
			case at.Head != seq:
				return err
			case outcome == replay.OutcomeReplayed:
				n.Passed++
			case at.FailedSeq > at.Head:
				n.Later++
			default:
				n.Failed++
			}
			heads[fingerprint] = n
			return err
		}, selectTried, run.ID, run.RequestedAt.UnixMicro())
	})
	return heads, sqldb.Wrapf(err, "read what rehearsal %d tried", run.ID)
}

// rehearsed is a rehearsal that ran with the files that are loaded, and what became of the dead heads
// that it tried, by fingerprint.
type rehearsed struct {
	replay.FixRehearsal
	heads map[string]campaign.HeadsTried
}

// rehearsed returns the recent rehearsals that ran with the files that are loaded, the latest first.
func (rs *Runs) rehearsed(ctx context.Context, loaded []campaign.ProjectionInfo) ([]rehearsed, error) {
	recent, err := rs.ofLoaded(ctx, loaded)
	all := make([]rehearsed, len(recent))
	for i, d := range recent {
		all[i].FixRehearsal = d
		if all[i].heads, err = rs.triedHeads(ctx, d.Run); err != nil {
			return nil, err
		}
	}
	return all, err
}

// ofMost returns the rehearsal that tried most of the campaigns that a cause blocks, the latest of
// several, and what became of them; nil if none tried any.
func ofMost(all []rehearsed, fingerprint string) (d *replay.FixRehearsal, heads campaign.HeadsTried) {
	for i := range all {
		if n := all[i].heads[fingerprint]; n.All() > heads.All() {
			d, heads = &all[i].FixRehearsal, n
		}
	}
	return d, heads
}

// RehearsalOf returns a recent rehearsal that ran with the files that are loaded and tried campaigns
// which a cause blocks; nil if there is none.
func (rs *Runs) RehearsalOf(ctx context.Context, fingerprint string, loaded []campaign.ProjectionInfo) (*replay.FixRehearsal, error) {
	all, err := rs.rehearsed(ctx, loaded)
	d, _ := ofMost(all, fingerprint)
	return d, err
}

// RestOnRehearsals adds to errors of which nothing was retried with the loaded files what a rehearsal
// of these files showed.
func (rs *Runs) RestOnRehearsals(ctx context.Context, groups []campaign.AssessedGroup, loaded []campaign.ProjectionInfo) error {
	if !slices.ContainsFunc(groups, campaign.AssessedGroup.Untried) {
		return nil
	}
	all, err := rs.rehearsed(ctx, loaded)
	for i := range groups {
		if g := &groups[i]; g.Untried() {
			if d, heads := ofMost(all, g.Fingerprint); d != nil {
				g.RestOn(d.Run.ID, heads)
			}
		}
	}
	return err
}

const selectPassed = `
select campaign_id, rehearsed
from run_results
where run_id = $1
  and outcome = 'replayed'
order by campaign_id`

// QuarantinesPassed says, by projection, which recent rehearsal that ran with the files that are loaded
// passed most campaigns in which a projection is quarantined still, the latest of several. It counts no
// campaign in which the event failed again since.
func (rs *Runs) QuarantinesPassed(ctx context.Context, loaded []campaign.ProjectionInfo) (map[string]replay.QuarantinePassed, error) {
	best := map[string]replay.QuarantinePassed{}
	all, err := rs.ofLoaded(ctx, loaded)
	for _, d := range all {
		if err != nil || d.Tried.Replayed == 0 {
			continue
		}
		var passed map[string]int64
		passed, err = rs.quarantinesPassed(ctx, d.Run)
		for name, n := range passed {
			if n > best[name].Campaigns {
				best[name] = replay.QuarantinePassed{Rehearsal: d.Run.ID, Campaigns: n}
			}
		}
	}
	return best, err
}

// quarantinesPassed counts the campaigns of a rehearsal in which a projection would pass the event at
// which it is quarantined still, by projection.
func (rs *Runs) quarantinesPassed(ctx context.Context, run replay.Run) (map[string]int64, error) {
	var spans []readmodel.Span
	var projections []string
	err := rs.read(ctx, func(t *tx) error {
		return t.Each(func(row sqldb.Row) error {
			var campaign string
			var at replay.Rehearsed
			err := row.Scan(&campaign, sqldb.ScanJSON(&at))
			if at.Quarantined != "" {
				at.Also = append(at.Also, replay.TriedQuarantine{Projection: at.Quarantined, Head: at.Head})
			}
			for _, q := range at.Also {
				spans, projections = append(spans, readmodel.Span{CampaignID: campaign, From: q.Head, To: q.Head}), append(projections, q.Projection)
			}
			return err
		}, selectPassed, run.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("read what passed rehearsal %d: %w", run.ID, err)
	}
	still, err := rs.core.ReadModel().QuarantinedIn(ctx, spans)
	passed := map[string]int64{}
	for i, f := range still {
		if f != nil && f.Projection == projections[i] && !f.LastAt.After(run.RequestedAt) {
			passed[f.Projection]++
		}
	}
	return passed, err
}
