package runs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// owedPoll is the interval at which checkBehind reads again.
const owedPoll = 100 * time.Millisecond

// behindCursor is a projection that was resumed at an event before a campaign's watermark, or that was
// not loaded while the campaign advanced, and that gets no events until a replay has caught it up.
// Projections that are paused for all campaigns or not loaded are excluded.
type behindCursor struct {
	projection, campaign string
	seq                  int64
	since                int64 // when it was resumed, or an event was applied without it
	version              string
}

const selectBehind = `
select campaign_id, applied_seq, updated_at
from projection_cursors
where projection = $1
  and state <> 'live'
  and state = 'behind'
order by campaign_id
limit $2`

// behind lists the cursors that are behind, ordered by projection, at most asideWindow of each.
func (rs *Runs) behind(ctx context.Context) (all []behindCursor, err error) {
	err = rs.readModel(ctx, func(t *sqldb.Tx) error {
		versions := make(map[string]readmodel.Version)
		if err := t.Each(readmodel.CollectVersions(versions), readmodel.SelectVersions); err != nil {
			return err
		}
		var b sqldb.Batch
		for _, name := range slices.Sorted(maps.Keys(versions)) {
			if versions[name].Pause != nil || versions[name].Version == "" {
				continue
			}
			b.Each(collectBehind(&all, name, versions[name].Version), selectBehind, name, asideWindow)
		}
		return t.RunAll(&b)
	})
	return all, sqldb.Wrapf(err, "look for projections that are behind")
}

func collectBehind(into *[]behindCursor, projection, version string) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		c := behindCursor{projection: projection, version: version}
		err := row.Scan(&c.campaign, &c.seq, &c.since)
		*into = append(*into, c)
		return err
	}
}

// alone returns the cursors that no active run covers: the others are checked again when their run
// ends.
func (t *tx) alone(all []behindCursor) ([]behindCursor, error) {
	holders, err := t.holders(all)
	return slices.DeleteFunc(slices.Clone(all), func(c behindCursor) bool {
		_, held := holders[c.projection].holder(c.campaign)
		return held
	}), err
}

const selectLastReplay = `
select r.id, r.status, r.versions, r.requested_at
from run_scopes s
join runs r on r.id = s.run_id
where s.campaign_id = $1
  and s.projection = $2
  and r.kind = 'replay'
order by s.run_id desc
limit 1`

// untried returns the cursors of campaigns in the journal that are to be replayed automatically: no
// replay was started since they fell behind. After a replay an operator decides, unless it ended
// because the projection has another version now.
func (t *tx) untried(all []behindCursor) (untried []behindCursor, err error) {
	last, known := make([]replay.Run, len(all)), make([]bool, len(all))
	var b sqldb.Batch
	for i, c := range all {
		newest := func(row sqldb.Row) error {
			var r replay.Run
			err := row.Scan(&r.ID, &r.Status, sqldb.ScanJSON(&r.Versions), sqldb.ScanTime(&r.RequestedAt))
			if r.ID > last[i].ID {
				last[i] = r
			}
			return err
		}
		b.Each(func(row sqldb.Row) error {
			known[i] = true
			return row.Scan(new(int64))
		}, selectHighWater, c.campaign)
		b.Each(newest, selectLastReplay, c.campaign, c.projection)
		b.Each(newest, selectLastReplay, "", c.projection)
	}
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("look for replays of what is behind: %w", err)
	}
	for i, c := range all {
		tried := last[i].ID > 0 && last[i].RequestedAt.UnixMicro() >= c.since
		if tried && last[i].Status != replay.RunCancelled {
			tried = last[i].Versions[c.projection] == c.version
		}
		if known[i] && !tried {
			untried = append(untried, c)
		}
	}
	return untried, nil
}

// owed lists the cursors that are behind and to be replayed.
func (t *tx) owed(behind []behindCursor) ([]behindCursor, error) {
	if len(behind) == 0 {
		return nil, nil
	}
	alone, err := t.alone(behind)
	if err != nil || len(alone) == 0 {
		return nil, err
	}
	return t.untried(alone)
}

// admitOwed queues replays for the cursors that are behind and were not replayed since, in a
// transaction that has locked the admission of runs. It returns the number of replays.
func (rs *Runs) admitOwed(t *tx, now int64) (replays int, err error) {
	if rs.core.Mode() == campaign.ModeShadow || rs.core.ReadOnly() {
		return 0, nil
	}
	behind, err := rs.behind(context.Background())
	if err != nil {
		return 0, err
	}
	owed, err := t.owed(behind)
	for from := 0; err == nil && from < len(owed); replays++ {
		until := from
		for until < len(owed) && owed[until].projection == owed[from].projection {
			until++
		}
		err = rs.admitReplay(t, owed[from:until], now)
		from = until
	}
	return replays, err
}

// admitReplay queues a replay of one projection. If there are more campaigns than a run may name,
// it covers all campaigns or, if other runs have some, the first ones.
func (rs *Runs) admitReplay(t *tx, owed []behindCursor, now int64) error {
	order := replay.RunRequest{Kind: replay.RunReplay, Projections: []string{owed[0].projection}}
	if len(owed) > event.MaxRunCampaigns {
		order.All = true
		err := t.Each(func(sqldb.Row) error { order.All = false; return sqldb.ErrEnough }, scopeTakenAnywhere, owed[0].projection)
		if err != nil {
			return fmt.Errorf("look for runs of projection %q: %w", owed[0].projection, err)
		}
		owed = owed[:event.MaxRunCampaigns]
	}
	for _, c := range owed {
		if now = max(now, c.since); !order.All { // a process whose clock is ahead finds the replay later than the resume
			order.Campaigns = append(order.Campaigns, c.campaign)
		}
	}
	run, err := rs.admitRun(t, byItself, order, nil, []campaign.ProjectionInfo{{Name: owed[0].projection, Version: owed[0].version}}, now)
	if err == nil {
		err = t.recordReplay(run, order, now)
	}
	return sqldb.Wrapf(err, "start a replay of projection %q", owed[0].projection)
}

// byItself is the actor of automatic actions.
var byItself = operator.ByItself("catch up after a resume, after events were applied while it was not loaded, or after its tables were made again")

// recordReplay writes the audit record of an automatic replay. It has no key and no request: those
// belong to the action that caused it.
func (t *tx) recordReplay(run replay.Run, order replay.RunRequest, now int64) error {
	a := &store.Change{Command: byItself, Action: operator.ActionRunStart, CampaignID: run.CampaignID, Before: auditTarget(order)}
	started(a, run)
	return t.Record(a, run, now)
}

// startOwed is admitOwed in its own transaction. It writes nothing if nothing is owed.
func (rs *Runs) startOwed(ctx context.Context) error {
	behind, err := rs.behind(ctx)
	if err != nil || len(behind) == 0 || rs.core.Mode() == campaign.ModeShadow {
		return err
	}
	owed, err := reading(ctx, rs, "", func(t *tx) ([]behindCursor, error) { return t.owed(behind) })
	if err != nil || len(owed) == 0 {
		return err
	}
	replays := 0
	err = rs.admitting(ctx, func(t *tx) (err error) {
		replays, err = rs.admitOwed(t, rs.core.Now())
		return err
	})
	if replays > 0 {
		rs.core.Changed() // a summary from before says that no run catches up
		rs.wakeWorker()
	}
	return err
}

// endRun is t.endRun in a transaction that has locked the admission of runs. It also starts the
// replays that the run has blocked; if the projections database is down, Reconcile does so later.
func (rs *Runs) endRun(t *tx, r *runRow, status replay.RunStatus, reason string, now int64) error {
	if err := t.endRun(r, status, reason, now); err != nil {
		return err
	}
	return rs.startBlocked(t, now)
}

// startBlocked starts the replays that runs which have ended had blocked.
func (rs *Runs) startBlocked(t *tx, now int64) error {
	_, err := rs.admitOwed(t, now)
	if rs.core.ReadModel().Away(err) && t.Err() == nil {
		return nil
	}
	return err
}

// behindAlone lists the projections that are behind the watermark and that no run catches
// up, at most 10,000 of each. It reads the journal after the projections, the order in which a
// resume writes them.
func (rs *Runs) behindAlone(ctx context.Context) (found []behindCursor, err error) {
	err = rs.eachBehind(ctx, func(c behindCursor, by catchUpRun) {
		if by == (catchUpRun{}) {
			found = append(found, c)
		}
	})
	return found, err
}

// checkBehind reports cursors that no run catches up. A projection being resumed has no run for a
// moment, so only persistent findings count.
func (rs *Runs) checkBehind(ctx context.Context, report *campaign.CheckReport) error {
	found, err := rs.behindAlone(ctx)
	deadline := time.NewTimer(rs.owedWait)
	defer deadline.Stop()
	poll := time.NewTicker(owedPoll)
	defer poll.Stop()
	for waiting := true; err == nil && len(found) > 0 && waiting; {
		select {
		case <-poll.C:
		case <-deadline.C:
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		}
		var again []behindCursor
		again, err = rs.behindAlone(ctx)
		found = slices.DeleteFunc(found, func(c behindCursor) bool { return !slices.Contains(again, c) })
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(found, func(a, b behindCursor) int { return cmp.Compare(a.campaign, b.campaign) })
	for _, c := range found {
		report.Add(campaign.InvariantReplayOwed, c.campaign, c.seq, "projection %q is behind since event %d, and no run is catching it up; start a replay", c.projection, c.seq)
	}
	return nil
}
