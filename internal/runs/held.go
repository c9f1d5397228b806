package runs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// heldSample is how many campaigns of a projection that is behind are read to find the runs that it
// depends on.
const heldSample = 20

// heldLimit bounds how long a summary or a list waits for the projections database; after that it
// covers only the journal.
const heldLimit = 2 * time.Second

// heldProjections lists the projections that are paused, quarantined or behind, by name, and the
// first campaigns of each that is behind. fillRuns adds the runs those depend on. versions are those of
// all projections.
func (rs *Runs) heldProjections(ctx context.Context) (all []campaign.HeldProjection, sample []behindCursor, versions map[string]readmodel.Version, err error) {
	ctx, cancel := context.WithTimeout(ctx, heldLimit)
	defer cancel()
	all, versions = []campaign.HeldProjection{}, make(map[string]readmodel.Version)
	err = rs.readModel(ctx, func(t *sqldb.Tx) error {
		if err := t.Each(readmodel.CollectVersions(versions), readmodel.SelectVersions); err != nil {
			return err
		}
		names := slices.Sorted(maps.Keys(versions))
		counts := make(map[string]map[string]int64)
		var b sqldb.Batch
		for _, name := range names {
			counts[name] = make(map[string]int64)
			b.Each(sqldb.CollectMap(counts[name]), countAside, name, asideWindow)
		}
		if err := t.RunAll(&b); err != nil {
			return err
		}
		var behind sqldb.Batch
		for _, name := range names {
			n := counts[name]
			h := campaign.HeldProjection{Projection: name, Paused: versions[name].Pause, NotLoaded: versions[name].Version == "", PausedCampaigns: n[campaign.CursorPaused], Behind: n[campaign.CursorBehind],
				Quarantined: n[campaign.CursorQuarantined], CountsCapped: n[campaign.CursorPaused]+n[campaign.CursorBehind]+n[campaign.CursorQuarantined] >= asideWindow}
			if h.Paused != nil {
				h.PausedCampaigns, h.Behind = 0, 0 // it is so in all of them
			}
			if h.Lacks() {
				all = append(all, h)
			}
			if h.Behind > 0 && !h.NotLoaded {
				behind.Each(collectBehind(&sample, name, versions[name].Version), selectBehind, name, heldSample)
			}
		}
		return t.RunAll(&behind)
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("look for projections that are paused, quarantined or behind: %w", err)
	}
	return all, sample, versions, nil
}

// fillRuns sets the runs that projections which are behind depend on.
func (t *tx) fillRuns(held []campaign.HeldProjection, sample []behindCursor) error {
	fates, err := t.catchUpRuns(sample)
	if err != nil {
		return err
	}
	for i, c := range sample {
		at := slices.IndexFunc(held, func(h campaign.HeldProjection) bool { return h.Projection == c.projection })
		if h := &held[at]; h.RunID == 0 {
			h.RunID = fates[i].run
		}
		if h := &held[at]; h.BlockedByRun == 0 {
			h.BlockedByRun = fates[i].blockedBy
		}
	}
	return nil
}

// scopeHolders are the active runs of a projection, by campaign; the empty key means all.
type scopeHolders struct {
	of     map[string]scopeHolder
	oldest int64
}

// holder is the run that has the projection in a campaign.
func (h *scopeHolders) holder(campaign string) (by scopeHolder, has bool) {
	if h == nil {
		return by, false
	}
	if by, has = h.of[campaign]; !has {
		by, has = h.of[""]
	}
	return by, has
}

type scopeHolder struct {
	run  int64
	kind replay.RunKind
}

const selectHolders = `
select campaign_id, run_id, (
  select kind
  from runs
  where id = run_id)
from run_scopes
where active = 1
  and projection = $1`

// holders reads the active runs of the projections of all; projections without any are left out.
func (t *tx) holders(all []behindCursor) (map[string]*scopeHolders, error) {
	holders, asked := make(map[string]*scopeHolders), make(map[string]bool)
	var b sqldb.Batch
	for _, c := range all {
		if asked[c.projection] {
			continue
		}
		asked[c.projection] = true
		b.Each(func(row sqldb.Row) error {
			var campaign string
			var h scopeHolder
			err := row.Scan(&campaign, &h.run, (*string)(&h.kind))
			of := holders[c.projection]
			if of == nil {
				of = &scopeHolders{make(map[string]scopeHolder), h.run}
				holders[c.projection] = of
			}
			of.of[campaign], of.oldest = h, min(of.oldest, h.run)
			return err
		}, selectHolders, c.projection)
	}
	return holders, sqldb.Wrapf(t.RunAll(&b), "read what active runs have")
}

// catchUpRun is the run that catches up a projection which is behind, or the run after which a
// replay will; 0 if there is none.
type catchUpRun struct{ run, blockedBy int64 }

// catchUpRunOf returns the catch-up run of a campaign that is owed a replay: the end of any run of
// a projection starts the replays that it blocked.
func (h *scopeHolders) catchUpRunOf(campaign string) catchUpRun {
	by, has := h.holder(campaign)
	switch {
	case h == nil:
		return catchUpRun{}
	case !has:
		return catchUpRun{blockedBy: h.oldest}
	case by.kind.CatchesUp():
		return catchUpRun{run: by.run}
	}
	return catchUpRun{blockedBy: by.run}
}

func (t *tx) catchUpRuns(all []behindCursor) ([]catchUpRun, error) {
	fates := make([]catchUpRun, len(all))
	holders, err := t.holders(all)
	if err != nil || len(holders) == 0 {
		return fates, err
	}
	var blocked []behindCursor
	for i, c := range all {
		if fates[i] = holders[c.projection].catchUpRunOf(c.campaign); fates[i].blockedBy > 0 {
			blocked = append(blocked, c)
		}
	}
	if len(blocked) == 0 {
		return fates, nil
	}
	owed, err := t.untried(blocked)
	for i, c := range all {
		if fates[i].blockedBy > 0 && !slices.Contains(owed, c) {
			fates[i].blockedBy = 0
		}
	}
	return fates, err
}

// Behind counts the projections that were resumed behind the watermark, at most 10,000 of each
// projection. It reads the journal after the projections, the order in which a resume writes them.
func (rs *Runs) Behind(ctx context.Context) (n campaign.BehindCounts, err error) {
	err = rs.eachBehind(ctx, func(_ behindCursor, by catchUpRun) {
		switch {
		case by.run > 0:
			n.CatchUps++
		case by.blockedBy > 0:
			n.Waiting++
		default:
			n.Alone++
		}
	})
	return n, err
}

// eachBehind visits the projections that are behind, at most 10,000 of each, with what catches them up.
func (rs *Runs) eachBehind(ctx context.Context, visit func(behindCursor, catchUpRun)) error {
	behind, err := rs.behind(ctx)
	if err != nil || len(behind) == 0 {
		return err
	}
	return rs.read(ctx, func(t *tx) error {
		holders, err := t.holders(behind)
		if err != nil {
			return err
		}
		for _, c := range behind {
			visit(c, holders[c.projection].catchUpRunOf(c.campaign))
		}
		return nil
	})
}
