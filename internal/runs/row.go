package runs

import (
	"context"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// runRow is a row of runs as this package's statements use it. Every change is a locked read,
// change and save in one transaction.
type runRow struct {
	replay.Run
	owner   string
	epoch   int64 // the fencing number; it only grows
	expires int64
	// diverged is the number of diverged campaigns of its scope, as last counted.
	diverged int64
	pace     float64 // events per second, as last reported
}

const runColumns = `id, kind, status, campaign_ids, all_campaigns, projections, versions, until_seq, rate,
  reason, requested_by, via, request_id, requested_at, started_at, updated_at, finished_at,
  campaigns_done, campaigns_total, events_done, events_total, matched, drifted, replayed, failed, events_per_second,
  digests, digests_before, seq, verdict, error, cancelled_by, attempts, lease_owner, lease_epoch, lease_expires_at,
  coalesce((select run_rehearsals.versions from run_rehearsals where run_id = id), '')`

const selectRuns = "\nselect " + runColumns + "\nfrom runs"

func scanRunRow(row sqldb.Row) (*runRow, error) {
	var r runRow
	n := &r.Counts
	err := row.Scan(&r.ID, &r.Kind, &r.Status, sqldb.ScanJSON(&r.CampaignIDs), sqldb.ScanTruth(&r.All), sqldb.ScanJSON(&r.Projections), sqldb.ScanJSON(&r.Versions), &r.UntilSeq, &r.Rate,
		&r.Reason, &r.RequestedBy, &r.Via, &r.RequestID, sqldb.ScanTime(&r.RequestedAt), sqldb.ScanTimeOrNil(&r.StartedAt), sqldb.ScanTime(&r.UpdatedAt), sqldb.ScanTimeOrNil(&r.FinishedAt),
		&r.Campaigns.Done, &r.Campaigns.Total, &r.Events.Done, &r.Events.Total, &n.Matched, &n.Drifted, &n.Replayed, &n.Failed, &r.pace,
		sqldb.ScanJSON(&r.Digests), sqldb.ScanJSON(&r.Before), &r.Seq, &r.Verdict, &r.Error, &r.CancelledBy, &r.Attempts, &r.owner, &r.epoch, &r.expires, sqldb.ScanJSON(&r.With))
	if err != nil {
		return nil, fmt.Errorf("run %d: %w", r.ID, err)
	}
	n.NotCompared = r.Campaigns.Done - n.Matched - n.Drifted - n.Replayed - n.Failed // every done campaign has one of these outcomes
	r.cover(r.CampaignIDs)
	r.Projections = orEmpty(r.Projections)
	return &r, nil
}

// leased reports whether a process has leased the run.
func (r *runRow) leased(now int64) bool { return r.owner != "" && r.expires > now }

// view returns the run as callers see it.
func (r *runRow) view(now int64) replay.Run {
	run := r.Run
	if r.owner != "" {
		run.Lease = &campaign.Lease{Owner: r.owner, Epoch: r.epoch, ExpiresAt: sqldb.At(r.expires)}
	}
	for _, versions := range []*map[string]string{&run.Digests, &run.Before, &run.With} {
		if *versions == nil {
			*versions = map[string]string{}
		}
	}
	if run.Status != replay.RunRunning || !r.leased(now) || run.Silent(sqldb.At(now)) {
		return run
	}
	run.EventsPerSecond = r.pace
	if r.pace > 0 && run.Events.Total > 0 {
		left := float64(max(0, run.Events.Total-run.Events.Done)) / r.pace
		run.SecondsLeft = &left
	}
	return run
}

// scanRun returns a scan function for lists, with runs as of the given time.
func scanRun(now int64) func(sqldb.Row) (replay.Run, error) {
	return func(row sqldb.Row) (replay.Run, error) {
		r, err := scanRunRow(row)
		if err != nil {
			return replay.Run{}, err
		}
		return r.view(now), nil
	}
}

const selectRun = selectRuns + `
where id = $1`

// existingRun reads a run and locks it for a change in this transaction. A missing one is
// event.ErrNotFound.
func (t *tx) existingRun(id int64) (*runRow, error) {
	r, found, err := sqldb.First(t, scanRunRow, selectRun+t.ForUpdate, id)
	if err == nil && !found {
		return nil, event.NotFound("there is no run %d", id)
	}
	return r, sqldb.Wrapf(err, "read run %d", id)
}

const updateRun = `
update runs
set status = $2, started_at = $3, updated_at = $4, finished_at = $5,
  campaigns_done = $6, campaigns_total = $7, events_done = $8, events_total = $9, matched = $10, drifted = $11, replayed = $12, failed = $13,
  events_per_second = $14, digests = $15, digests_before = $16, seq = $17, verdict = $18, error = $19, cancelled_by = $20, attempts = $21,
  lease_owner = $22, lease_epoch = $23, lease_expires_at = $24
where id = $1`

// saveRun writes the row of a run that this transaction has locked.
func (t *tx) saveRun(r *runRow, now int64) error {
	r.UpdatedAt = sqldb.At(now)
	n := r.Counts
	_, err := t.Exec(updateRun, r.ID, string(r.Status), sqldb.MicrosIfAny(r.StartedAt), now, sqldb.MicrosIfAny(r.FinishedAt),
		r.Campaigns.Done, r.Campaigns.Total, r.Events.Done, r.Events.Total, n.Matched, n.Drifted, n.Replayed, n.Failed,
		r.pace, sqldb.JSON(r.Digests), sqldb.JSON(r.Before), r.Seq, string(r.Verdict), r.Error, r.CancelledBy, r.Attempts, r.owner, r.epoch, r.expires)
	return sqldb.Wrapf(err, "update run %d", r.ID)
}

// endRun ends an active run: it releases its lease and its scope.
func (t *tx) endRun(r *runRow, status replay.RunStatus, reason string, now int64) error {
	when := sqldb.At(now)
	r.Status, r.Error, r.FinishedAt = status, reason, &when
	r.owner, r.expires, r.pace = "", 0, 0
	if judges := r.Kind == replay.RunVerify || r.Kind == replay.RunRebuild; judges && r.Counts.Drifted > 0 {
		r.Verdict = campaign.VerdictDrift
	} else if judges && status == replay.RunCompleted && r.Counts.NotCompared == 0 && r.Campaigns.Done > 0 {
		r.Verdict = campaign.VerdictMatch
	}
	if err := t.digestsOfRun(r); err != nil {
		return err
	}
	if _, err := t.Exec(`update run_scopes set active = 0 where run_id = $1`, r.ID); err != nil {
		return fmt.Errorf("free the scope of run %d: %w", r.ID, err)
	}
	return t.saveRun(r, now)
}

// digestsOfRun sets the digests of a run over one campaign from its result. If nothing was
// compared, since the live rows are of another event, it has no verdict.
func (t *tx) digestsOfRun(r *runRow) error {
	if r.CampaignID == "" || r.Kind == replay.RunRehearse {
		return nil
	}
	result, found, err := t.runResult(r.ID, r.CampaignID)
	if err != nil || !found || result.Outcome == replay.OutcomeFailed {
		return err
	}
	r.Seq, r.Digests, r.Before = result.Seq, map[string]string{}, map[string]string{}
	compared := false
	var before []string
	for _, p := range result.Projections {
		compared = compared || p.Verdict != ""
		if p.Digest != "" {
			r.Digests[p.Projection] = p.Digest
		}
		if p.Before != "" {
			r.Before[p.Projection] = p.Before
			before = append(before, p.Before)
		}
	}
	if len(before) > 0 && len(before) == len(result.Projections) {
		r.Before[replay.FullDigest] = projection.FullDigestOf(before)
	}
	if result.Full != "" {
		r.Digests[replay.FullDigest] = result.Full
	}
	if r.UntilSeq > 0 && !compared {
		r.Verdict = ""
	}
	return nil
}

// workerLoops is how many runs a process works on concurrently, so that a short run need not wait
// for a long one.
const workerLoops = 2

// wakeWorker makes this process check for runs now. Other processes find them at their next poll.
func (rs *Runs) wakeWorker() {
	for range workerLoops {
		rs.started.Raise()
	}
}

// Get reads a run. A missing one is event.ErrNotFound.
func (rs *Runs) Get(ctx context.Context, id int64) (replay.Run, error) {
	return reading(ctx, rs, "", func(t *tx) (replay.Run, error) {
		r, err := t.existingRun(id)
		if err != nil {
			return replay.Run{}, err
		}
		return r.view(rs.core.Now()), nil
	})
}

// runsBy selects runs. A campaign's runs are those over all campaigns too.
var runsBy = sqldb.FilterOf(map[string]sqldb.Condition[replay.RunFilter, replay.Run]{
	"campaign": {SQL: `exists (
    select 1
    from run_scopes s
    where s.run_id = r.id
      and s.campaign_id in (?, ''))`},
})

var runsAll = sqldb.BothWays(`
select ` + runColumns + `
from runs r
where id {>} $1
  and ` + runsBy.SQL(1) + `
order by id{desc}
limit ` + runsBy.After(1))

// List pages through runs, newest first.
func (rs *Runs) List(ctx context.Context, f replay.RunFilter) (event.Page[replay.Run], error) {
	l := sqldb.Newest("runs", runsAll, scanRun(rs.core.Now()), func(r replay.Run) int64 { return r.ID }, runsBy.Args(f)...)
	return reading(ctx, rs, "list runs", func(t *tx) (event.Page[replay.Run], error) { return l.Page(t, f.Cursor, f.Limit) })
}

// verifiedAmong is how many of the latest verifies LastVerified looks at.
const verifiedAmong = 10

const (
	selectVerifies = selectRuns + `
where id in (
    select id
    from runs
    where kind = 'verify'
      and status = 'completed'
    order by id desc
    limit $1)
  and all_campaigns = 1
  and campaigns_done > 0
order by id desc`

	selectSinceLost = selectRuns + `
where id >= (
  select min(id)
  from (
    select id, status
    from runs
    order by id desc
    limit $1) as latest
  where status in ('failed', 'interrupted'))
order by id desc`

	selectActive = selectRuns + `
where finished_at is null
order by id
limit $1`
)

// LastVerified returns the last verify that compared all campaigns that there were, in all loaded
// projections, to their end; nil if none of the latest did.
func (rs *Runs) LastVerified(ctx context.Context, loaded []campaign.ProjectionInfo) (*replay.Run, error) {
	latest, err := rs.list(ctx, "list verifies", selectVerifies, verifiedAmong)
	for _, r := range latest {
		missing := func(p campaign.ProjectionInfo) bool { return !slices.Contains(r.Projections, p.Name) }
		if r.OfLoaded() && !slices.ContainsFunc(loaded, missing) {
			return &r, err
		}
	}
	return nil, err
}

// Compared lists the latest verifies of all campaigns, completed, that compared with other versions than the
// loaded ones, newest first.
func (rs *Runs) Compared(ctx context.Context) ([]replay.Run, error) {
	latest, err := rs.list(ctx, "list verifies", selectVerifies, verifiedAmong)
	return slices.DeleteFunc(latest, replay.Run.OfLoaded), err
}

// SinceLost lists the runs, newest first, back to the oldest that failed or was interrupted among so many of
// the latest.
func (rs *Runs) SinceLost(ctx context.Context, among int) ([]replay.Run, error) {
	return rs.list(ctx, "list runs since one was lost", selectSinceLost, among)
}

// activeShown is how many active runs Active lists.
const activeShown = 50

// Active lists the runs that have not ended, oldest first, at most 50.
func (rs *Runs) Active(ctx context.Context) ([]replay.Run, error) {
	return rs.list(ctx, "list active runs", selectActive, activeShown)
}

func (rs *Runs) list(ctx context.Context, what, query string, limit int) ([]replay.Run, error) {
	return reading(ctx, rs, what, func(t *tx) ([]replay.Run, error) { return sqldb.All(t, scanRun(rs.core.Now()), query, limit) })
}

// Tallies counts the runs by kind and status.
func (rs *Runs) Tallies(ctx context.Context) ([]replay.RunTally, error) {
	return reading(ctx, rs, "count runs", func(t *tx) ([]replay.RunTally, error) {
		return sqldb.All(t, func(row sqldb.Row) (n replay.RunTally, err error) {
			err = row.Scan(&n.Kind, &n.Status, &n.Runs)
			return n, err
		}, `select kind, status, count(*) from runs group by kind, status`)
	})
}
