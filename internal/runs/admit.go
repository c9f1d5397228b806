package runs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Start queues a run over a scope of the loaded projections for workers. It returns
// event.ErrInvalid for an invalid request, and for a rebuild of all campaigns without a reason or its
// phrase, event.ErrNotFound for an unknown campaign, and event.ErrConflict if another active run has
// part of its scope, or where the mode does not permit changes.
func (rs *Runs) Start(ctx context.Context, o operator.Command, order replay.RunRequest, loaded []campaign.ProjectionInfo) (replay.Run, error) {
	order.Campaigns = slices.Compact(slices.Sorted(slices.Values(order.Campaigns)))
	asked := auditTarget(order)
	a := &store.Change{Command: o, Action: operator.ActionRunStart, Before: asked, Asked: asked}
	if len(order.Campaigns) == 1 {
		a.CampaignID = order.Campaigns[0] // of a refusal as well
	}
	with, err := rs.keptVersion(ctx, order, loaded)
	if err != nil {
		return replay.Run{}, rs.core.Refused(ctx, a, err)
	}
	return rs.start(ctx, a, func(t *tx, now int64) (replay.Run, error) { return rs.admitRun(t, o, order, with, loaded, now) })
}

// keptVersion reads the version of a projection's file that a verify is to compare with; nil if it is the
// loaded one.
func (rs *Runs) keptVersion(ctx context.Context, order replay.RunRequest, loaded []campaign.ProjectionInfo) (*rehearsalRow, error) {
	if order.WithVersion == "" {
		return nil, nil
	}
	if order.Kind != replay.RunVerify || len(order.Projections) != 1 {
		return nil, event.Invalid("with_version", "with_version is for a verify of one projection")
	}
	d, err := rs.core.KeptDefinition(ctx, order.Projections[0], order.WithVersion)
	if err != nil || slices.ContainsFunc(loaded, func(p campaign.ProjectionInfo) bool { return p.Name == d.Projection && p.Version == d.Version }) {
		return nil, err
	}
	return &rehearsalRow{versions: map[string]string{d.Projection: d.Version}, files: []campaign.RehearsalFile{d.File}}, nil
}

// start performs the action that admits a run, and wakes workers for it.
func (rs *Runs) start(ctx context.Context, a *store.Change, admit func(*tx, int64) (replay.Run, error)) (replay.Run, error) {
	run, err := perform(ctx, rs, a, func(t *tx, now int64) (replay.Run, error) {
		run, err := admit(t, now)
		if err == nil {
			started(a, run)
		}
		return run, err
	})
	if err == nil {
		rs.wakeWorker()
	}
	return run, err
}

// started adds the run to the record of the action that started it. The campaign of the record is
// that of the request, by which a repeat is known: a rehearsal may find one that was not named.
func started(a *store.Change, run replay.Run) {
	a.Target, a.After = operator.RunTarget(run.ID), map[string]any{"run_id": run.ID, "scope": run.Scope()}
}

// auditTarget describes a request for its audit record. Campaigns named one by one are recorded as
// their number and a digest.
func auditTarget(order replay.RunRequest) map[string]any {
	asked := map[string]any{"kind": order.Kind, "all_campaigns": order.All, "campaigns_named": len(order.Campaigns),
		"projections": slices.Compact(slices.Sorted(slices.Values(order.Projections))), "until_seq": order.UntilSeq, "rate": order.Rate, "with_version": order.WithVersion}
	if len(order.Campaigns) > 0 {
		digest := sha256.New()
		for _, id := range order.Campaigns {
			fmt.Fprintln(digest, id)
		}
		asked["campaigns_digest"] = hex.EncodeToString(digest.Sum(nil)[:12])
	}
	return asked
}

// admitRun queues a run, with other files than the loaded ones or nil, within an action. The caller must wake
// workers once the action is committed.
func (rs *Runs) admitRun(t *tx, o operator.Command, order replay.RunRequest, with *rehearsalRow, loaded []campaign.ProjectionInfo, now int64) (replay.Run, error) {
	r, err := rs.requested(order, loaded)
	if err != nil {
		return replay.Run{}, err
	}
	r.queue(o, now)
	if err := t.knownCampaigns(r); err != nil {
		return replay.Run{}, err
	}
	if err := rs.core.Require(o, 0); err != nil {
		return replay.Run{}, err
	}
	if err := t.confirmRebuild(o, *r); err != nil {
		return replay.Run{}, err
	}
	if err := t.lockAdmission(); err != nil {
		return replay.Run{}, err
	}
	err = rs.takeScope(t, r, now, func() error {
		if with != nil {
			return t.insertRehearsal(r, *with, now)
		}
		return t.insertRun(r, now)
	})
	return r.view(now), err
}

// requested makes a run of a request that is sound by itself, over projections that are loaded.
func (rs *Runs) requested(order replay.RunRequest, loaded []campaign.ProjectionInfo) (*runRow, error) {
	r := &runRow{Run: replay.Run{Kind: order.Kind, All: order.All, UntilSeq: order.UntilSeq, Rate: order.Rate}}
	r.cover(slices.Compact(slices.Sorted(slices.Values(order.Campaigns))))
	if err := rs.soundRun(r); err != nil {
		return nil, err
	}
	return r, r.chooseProjections(order.Projections, loaded)
}

// cover sets the campaigns that are named, in order of id.
func (r *runRow) cover(campaigns []string) {
	r.CampaignIDs = orEmpty(campaigns)
	if len(r.CampaignIDs) == 1 {
		r.CampaignID = r.CampaignIDs[0]
	}
}

// queue makes the run one that a command asked for and no process has begun.
func (r *runRow) queue(o operator.Command, now int64) {
	r.Status, r.RequestedAt, r.UpdatedAt = replay.RunQueued, sqldb.At(now), sqldb.At(now)
	r.Reason, r.RequestedBy, r.Via, r.RequestID = o.Reason, o.By.Name, o.By.Via, o.RequestID
}

// confirmRebuild refuses a rebuild of all campaigns without a reason or its phrase.
func (t *tx) confirmRebuild(o operator.Command, r runRow) error {
	if r.Kind != replay.RunRebuild || !r.All {
		return nil
	}
	if err := t.totalRun(&r); err != nil {
		return err
	}
	if r.Campaigns.Total > 0 && strings.TrimSpace(o.Reason) == "" {
		return event.Invalid("reason", "a rebuild of all campaigns requires a reason")
	}
	return operator.ActionRunStart.Confirm(o.Confirm, r.reach())
}

// reach is what the confirmation of the run depends on, once its campaigns are counted.
func (r *runRow) reach() (reach operator.Reach) {
	if r.Kind == replay.RunRebuild && r.All {
		reach.Rebuilt = r.Campaigns.Total
	}
	return reach
}

// soundRun refuses a request that is invalid by itself.
func (rs *Runs) soundRun(r *runRow) error {
	switch {
	case !slices.Contains(replay.RunKinds, r.Kind):
		return event.Invalid("kind", "kind %q is unknown; use replay, verify or rebuild", string(r.Kind))
	case r.Kind == replay.RunRehearse && !r.admitted():
		return event.Invalid("kind", "a rehearsal needs changed projection files; start it at /rehearsals")
	case r.All && len(r.CampaignIDs) > 0:
		return event.Invalid("campaign_ids", "name campaigns or choose all, not both")
	case !r.All && len(r.CampaignIDs) == 0:
		return event.Invalid("campaign_ids", "name the campaigns, or choose all")
	case len(r.CampaignIDs) > event.MaxRunCampaigns:
		return event.Invalid("campaign_ids", "%d campaigns are named; the limit is %d: choose all campaigns instead", len(r.CampaignIDs), event.MaxRunCampaigns)
	case r.UntilSeq < 0:
		return event.Invalid("until_seq", "until_seq must be 1 or more; omit it to go as far as the live rows")
	case r.UntilSeq > 0 && (r.Kind != replay.RunVerify || r.CampaignID == ""):
		return event.Invalid("until_seq", "until_seq is for a verify run over one campaign")
	case r.Rate < 0:
		return event.Invalid("rate", "rate is a number of events per second, or 0 for no limit")
	case !r.Kind.ReadsOnly() && rs.core.Mode() == campaign.ModeShadow:
		return event.Conflict("the mode is %s, which changes no read models: a %s needs another mode; a verify is possible", rs.core.Mode(), r.Kind)
	}
	return nil
}

// admitted reports whether the run is stored.
func (r *runRow) admitted() bool { return r.ID > 0 }

// chooseProjections sets the projections of the run, in load order, and their versions. No names
// mean all.
func (r *runRow) chooseProjections(named []string, loaded []campaign.ProjectionInfo) error {
	var known []string
	for _, p := range loaded {
		known = append(known, p.Name)
		if len(named) == 0 || slices.Contains(named, p.Name) {
			r.Projections = append(r.Projections, p.Name)
		}
	}
	r.Versions = versionsOf(loaded, r.Projections...)
	for _, name := range named {
		if !slices.Contains(known, name) {
			return event.Invalid("projections", "projection %q is not loaded; use one of: %s", name, strings.Join(known, ", "))
		}
	}
	if len(r.Projections) == 0 {
		return event.Conflict("no projection is loaded, so there is nothing to %s", r.Kind)
	}
	return nil
}

// lockRuns is the class of the lock on the admission of runs.
const lockRuns = 0x6f757472

const selectHighWater = `select high_water_seq from campaigns where campaign_id = $1`

// knownCampaigns refuses a run over unknown campaigns, or up to an unknown event.
func (t *tx) knownCampaigns(r *runRow) error {
	highest := make([]int64, len(r.CampaignIDs))
	var b sqldb.Batch
	for i, id := range r.CampaignIDs {
		highest[i] = -1
		b.Each(func(row sqldb.Row) error { return row.Scan(&highest[i]) }, selectHighWater, id)
	}
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("look for the campaigns of a run: %w", err)
	}
	for i, high := range highest {
		if high < 0 {
			return store.UnknownCampaign(r.CampaignIDs[i])
		}
		if r.UntilSeq > high {
			return event.Invalid("until_seq", "until_seq is %d, and campaign %q has %s", r.UntilSeq, r.CampaignIDs[i], event.Count(high, "event", "events"))
		}
	}
	return nil
}

// lockAdmission serializes the admission of runs. A run over all campaigns and one over a single
// campaign have no common row on which two transactions could conflict, so an index cannot detect
// the overlap. SQLite has a single writer anyway.
func (t *tx) lockAdmission() error {
	return sqldb.Wrapf(t.Lock(lockRuns, ""), "wait for the admission of other runs")
}

// admitting changes runs in a transaction that has locked their admission.
func (rs *Runs) admitting(ctx context.Context, change func(*tx) error) error {
	return rs.write(ctx, func(t *tx) error {
		if err := t.lockAdmission(); err != nil {
			return err
		}
		return change(t)
	})
}

const (
	selectTaken = `
select run_id
from run_scopes
where active = 1
  and projection = $1`

	scopeTaken = selectTaken + `
  and campaign_id = $2`

	scopeTakenAnywhere = selectTaken + `
order by campaign_id
limit 1`
)

// takeScope takes the scope of a run with take. It refuses a run while another active run has part of
// it; verifies that no process works on give way: they end as interrupted.
func (rs *Runs) takeScope(t *tx, r *runRow, now int64, take func() error) error {
	gaveWay := false
	for {
		other, err := t.runInTheWay(r)
		if err != nil {
			return err
		}
		if other == nil {
			break
		}
		if !other.givesWay(now) {
			return blockedBy(other, now)
		}
		gaveWay = true
		if err := t.endRun(other, replay.RunInterrupted, "no process worked on it, and another run over its campaigns was started; resume it when that one has ended", now); err != nil {
			return err
		}
	}
	if err := take(); err != nil || !gaveWay {
		return err
	}
	return rs.startBlocked(t, now)
}

// givesWay reports whether the run ends where another one is to have its scope: it changes no row, and
// its process has stopped or died.
func (r *runRow) givesWay(now int64) bool {
	return r.Kind == replay.RunVerify && r.Status == replay.RunRunning && !r.leased(now)
}

// runInTheWay returns the oldest active run that has part of the scope, or nil. A rehearsal has no
// part that another run could not have as well.
func (t *tx) runInTheWay(r *runRow) (*runRow, error) {
	if r.Kind == replay.RunRehearse {
		return nil, nil
	}
	var taken []int64
	collect := sqldb.Collect(&taken, sqldb.Column[int64])
	var b sqldb.Batch
	for _, projection := range r.Projections {
		if r.All {
			b.Each(collect, scopeTakenAnywhere, projection)
			continue
		}
		b.Each(collect, scopeTaken, projection, "")
		for _, campaign := range r.CampaignIDs {
			b.Each(collect, scopeTaken, projection, campaign)
		}
	}
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("look for conflicting runs: %w", err)
	}
	if len(taken) == 0 {
		return nil, nil
	}
	return t.existingRun(slices.Min(taken))
}

func blockedBy(other *runRow, now int64) error {
	run, silent := other.view(now), ""
	if at := sqldb.At(now); run.Silent(at) {
		silent = fmt.Sprintf("; its process last reported %s ago, and if it is dead its lease ends in %s", event.Age(at.Sub(run.UpdatedAt)), event.Age(run.Lease.ExpiresAt.Sub(at)))
	}
	refusal := event.Conflict("blocked by run %d: a %s of %s, %s, started by %s %s ago%s; wait until it has ended, or cancel it",
		other.ID, other.Kind, other.Scope(), other.Status, other.RequestedBy, event.Age(sqldb.At(now).Sub(other.RequestedAt)), silent)
	refusal.Run = other.ID
	return refusal
}

const (
	insertRun = `
insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, until_seq, rate, reason, requested_by, via, request_id, requested_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)
returning id`

	insertScope = `
insert into run_scopes (run_id, campaign_id, projection, active)
values ($1, $2, $3, $4)
on conflict (projection, campaign_id) where active = 1 do nothing`
)

func (t *tx) insertRun(r *runRow, now int64) error {
	scope := r.CampaignIDs
	if r.All {
		scope = []string{""}
	}
	_, err := t.One([]any{&r.ID}, insertRun, string(r.Kind), string(r.Status), sqldb.JSON(r.CampaignIDs), sqldb.Truth(r.All), sqldb.JSON(r.Projections), sqldb.JSON(r.Versions),
		r.UntilSeq, r.Rate, r.Reason, r.RequestedBy, r.Via, r.RequestID, now)
	if err != nil {
		return fmt.Errorf("start a run: %w", err)
	}
	free := true
	var b sqldb.Batch
	for _, campaign := range scope {
		for _, projection := range r.Projections {
			b.Exec(func(n int64) error { free = free && n == 1; return nil }, insertScope, r.ID, campaign, projection, sqldb.Truth(r.Kind != replay.RunRehearse))
		}
	}
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("take the scope of run %d: %w", r.ID, err)
	}
	if !free {
		return event.Conflict("another run over part of this scope has just been started; see the active runs")
	}
	return nil
}

// Cancel ends a run: at once if no process works on it, otherwise as soon as its holder notices;
// until then it is cancelling. Campaigns already done stay as they are; all others are unchanged. A
// run that has ended, or is being ended by its holder, is event.ErrConflict.
func (rs *Runs) Cancel(ctx context.Context, o operator.Command, id int64) (replay.Run, error) {
	return rs.changeRun(ctx, o, operator.ActionRunCancel, id, func(t *tx, r *runRow, now int64) error {
		switch {
		case r.view(now).Cancellable(sqldb.At(now)):
		case !r.Status.Active():
			return event.Conflict("run %d is already %s; it ended %s ago", id, r.Status, event.Age(sqldb.At(now).Sub(*r.FinishedAt)))
		default:
			return event.Conflict("run %d is already being cancelled, by %s; it ends once %s notices", id, r.CancelledBy, r.owner)
		}
		if r.CancelledBy == "" {
			r.CancelledBy = o.By.Name
		}
		if r.Status == replay.RunQueued || !r.leased(now) {
			if err := rs.queue.EndRunClaims(t.Tx, id, now); err != nil {
				return err
			}
			return rs.endRun(t, r, replay.RunCancelled, "", now)
		}
		r.Status = replay.RunCancelling
		return t.saveRun(r, now)
	})
}

// Interrupt ends an active run as interrupted, unless a process works on it; why is a sentence.
func (rs *Runs) Interrupt(ctx context.Context, id int64, why string) (replay.Run, error) {
	var run replay.Run
	err := rs.admitting(ctx, func(t *tx) error {
		now := rs.core.Now()
		r, err := t.existingRun(id)
		if err == nil && r.Status.Active() && !r.leased(now) {
			err = errors.Join(rs.queue.EndRunClaims(t.Tx, id, now), rs.endRun(t, r, replay.RunInterrupted, why, now))
		}
		if err == nil {
			run = r.view(now)
		}
		return err
	})
	return run, err
}

const (
	deleteFailed = `delete from run_results where run_id = $1 and outcome = 'failed'`

	sumResults = `
select outcome, count(*), sum(events)
from run_results
where run_id = $1
group by outcome`
)

// Resume requeues an interrupted or failed run. It continues where it stopped: campaigns that are
// done stay done, failed ones are retried. It returns event.ErrConflict for any other run, and for
// one whose projections have changed meanwhile, or whose scope another run has.
func (rs *Runs) Resume(ctx context.Context, o operator.Command, id int64, loaded []campaign.ProjectionInfo) (replay.Run, error) {
	return rs.changeRun(ctx, o, operator.ActionRunResume, id, func(t *tx, r *runRow, now int64) error {
		if !r.Resumable() {
			return event.Conflict("run %d is %s; only interrupted or failed runs can be resumed", id, r.Status)
		}
		if !maps.Equal(versionsOf(loaded, r.Projections...), r.Versions) {
			return event.Conflict("the projection files of run %d have changed since it began; start a new run", id)
		}
		if err := rs.soundRun(r); err != nil { // the mode may have changed
			return err
		}
		err := rs.takeScope(t, r, now, func() error {
			if r.Kind == replay.RunRehearse {
				return nil
			}
			_, err := t.Exec(`update run_scopes set active = 1 where run_id = $1`, id)
			return sqldb.Wrapf(err, "take the scope of run %d again", id)
		})
		if err != nil {
			return err
		}
		if _, err := t.Exec(deleteFailed, id); err != nil {
			return fmt.Errorf("forget the failures of run %d: %w", id, err)
		}
		r.Status, r.Attempts, r.FinishedAt, r.Verdict, r.Error, r.CancelledBy = replay.RunQueued, 0, nil, "", "", ""
		r.Digests, r.Before, r.Seq = nil, nil, 0
		if err := t.countRun(r); err != nil {
			return err
		}
		return t.saveRun(r, now)
	})
}

// versionsOf are the versions of some of the loaded projections, by name. No names mean all.
func versionsOf(loaded []campaign.ProjectionInfo, names ...string) map[string]string {
	versions := map[string]string{}
	for _, p := range loaded {
		if len(names) == 0 || slices.Contains(names, p.Name) {
			versions[p.Name] = p.Version
		}
	}
	return versions
}

// countRun sets the run's counts from the results.
func (t *tx) countRun(r *runRow) error {
	r.Counts, r.Events.Done = replay.RunCounts{}, 0
	err := t.Each(func(row sqldb.Row) error {
		var outcome string
		var campaigns, events int64
		err := row.Scan(&outcome, &campaigns, &events)
		r.count(outcome, campaigns)
		r.Events.Done += events
		return err
	}, sumResults, r.ID)
	return sqldb.Wrapf(err, "count the results of run %d", r.ID)
}

func (r *runRow) count(outcome string, n int64) {
	r.Counts.Add(outcome, n)
	r.Campaigns.Done = r.Counts.Sum()
}

func (rs *Runs) changeRun(ctx context.Context, o operator.Command, action operator.Action, id int64, change func(*tx, *runRow, int64) error) (replay.Run, error) {
	of, err := rs.Get(ctx, id)
	if err != nil && !errors.Is(err, event.ErrNotFound) { // a missing run is refused later
		return replay.Run{}, err
	}
	a := &store.Change{Command: o, Action: action, CampaignID: of.CampaignID, Target: operator.RunTarget(id)}
	run, err := perform(ctx, rs, a, func(t *tx, now int64) (replay.Run, error) {
		if err := t.lockAdmission(); err != nil {
			return replay.Run{}, err
		}
		r, err := t.existingRun(id)
		if err != nil {
			return replay.Run{}, err
		}
		if err := rs.core.Require(o, 0); err != nil {
			return replay.Run{}, err
		}
		a.Before = map[string]any{"run_id": id, "status": r.Status}
		if err := change(t, r, now); err != nil {
			return replay.Run{}, err
		}
		a.After = map[string]any{"run_id": id, "status": r.Status, "campaigns": r.Campaigns}
		return r.view(now), nil
	})
	if err == nil && run.ID != id {
		return replay.Run{}, rs.core.Refused(ctx, a, event.Conflict("this Idempotency-Key was used for run %d", run.ID))
	}
	if err == nil {
		rs.wakeWorker()
	}
	return run, err
}
