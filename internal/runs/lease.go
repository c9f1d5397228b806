package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Lease is the right to work on a run until the lease expires. Every call with an outdated epoch
// returns event.ErrLeaseLost and changes nothing: the caller must discard its result.
type Lease struct {
	Run   replay.Run // as of the claim
	Owner string
	Epoch int64 // the fencing number
}

const (
	// runTries is how often a run is claimed whose processes die.
	runTries = 3
	// versionsWait is how long a run that has not begun waits for a process that has its
	// projections in the versions it was started with.
	versionsWait = 10 * time.Minute
	// claimableRuns is how many runs a claim considers.
	claimableRuns = 100
)

const selectClaimable = selectRuns + `
where finished_at is null
  and (lease_owner = '' or lease_owner = $2 or lease_expires_at <= $1)
order by id
limit $3`

// claimable reads the runs that no process works on, oldest first. One that is leased to the caller and
// not among those it works on is as if released: the answer to its claim was lost, or it could not be
// released or ended, since the database was away.
func (rs *Runs) claimable(t *tx, w outbox.Worker, now int64) ([]*runRow, error) {
	all, err := sqldb.All(t, scanRunRow, selectClaimable+t.SkipLocked, now, w.ID, claimableRuns)
	return slices.DeleteFunc(all, func(r *runRow) bool {
		if r.owner != w.ID || r.expires <= now {
			return false
		}
		r.Attempts--
		return rs.working[r.ID] != 0
	}), err
}

// nextStep is what to do with an unleased run.
type nextStep int

const (
	runWaits nextStep = iota // another process may have its projections
	runGoesOn
	runEnds
)

// nextStep returns what a process that has projections in versions should do with an unleased run,
// and, if the run ends, its status and reason. A process in shadow mode leaves runs that change
// rows to others.
func (r *runRow) nextStep(versions map[string]string, mode campaign.Mode, now int64) (nextStep, replay.RunStatus, string) {
	mine := true
	for _, name := range r.Projections {
		mine = mine && versions[name] == r.Versions[name] && versions[name] != ""
	}
	switch {
	case r.Status == replay.RunCancelling:
		return runEnds, replay.RunCancelled, ""
	case mode == campaign.ModeShadow && !r.Kind.ReadsOnly():
		return runWaits, "", ""
	case !mine && r.StartedAt != nil && r.Status != replay.RunQueued:
		return runEnds, replay.RunInterrupted, "the projection files have changed since it began; start a new run"
	case !mine && now-r.UpdatedAt.UnixMicro() >= versionsWait.Microseconds():
		return runEnds, replay.RunInterrupted, "no process has the projection files it was started with; start a new run"
	case !mine:
		return runWaits, "", ""
	case r.Attempts >= runTries:
		return runEnds, replay.RunInterrupted, "its process died three times during the run; resume it to try again"
	}
	return runGoesOn, "", ""
}

// Claim claims the oldest unleased run, queued or left by a dead process, whose projections are the
// caller's in the same versions, by name. False means there is none. It also ends runs that no
// process can continue: those that were cancelled, whose projections have changed, or whose
// processes have died three times.
//
// A run that was claimed before continues: Run.Events.Done of the lease counts the events of
// campaigns that have their result.
func (rs *Runs) Claim(ctx context.Context, w outbox.Worker, versions map[string]string, lease time.Duration) (Lease, bool, error) {
	rs.claiming.Lock() // of two claims, the second knows what the first has
	defer rs.claiming.Unlock()
	if idle, err := rs.noRunFor(ctx, w, versions); err != nil || idle {
		return Lease{}, false, err
	}
	var claimed Lease
	ok := false
	err := rs.admitting(ctx, func(t *tx) error {
		now := rs.core.Now()
		runs, err := rs.claimable(t, w, now)
		if err != nil {
			return err
		}
		for _, r := range runs {
			switch is, status, reason := r.nextStep(versions, rs.core.Mode(), now); is {
			case runEnds:
				if err := rs.queue.EndRunClaims(t.Tx, r.ID, now); err != nil {
					return err
				}
				if err := rs.endRun(t, r, status, reason, now); err != nil {
					return err
				}
			case runGoesOn:
				if err := t.leaseRun(r, w, lease, now); err != nil {
					return err
				}
				claimed, ok = Lease{Run: r.view(now), Owner: r.owner, Epoch: r.epoch}, true
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return Lease{}, false, fmt.Errorf("claim a run: %w", err)
	}
	if ok {
		rs.working[claimed.Run.ID] = claimed.Epoch
	}
	return claimed, ok, nil
}

// left notes that this process works on a run no more, whether or not it could release it. It may have
// claimed the run again meanwhile, such as once the database has gone back to a state without the lease.
func (rs *Runs) left(l Lease) {
	rs.claiming.Lock()
	defer rs.claiming.Unlock()
	if rs.working[l.Run.ID] == l.Epoch {
		delete(rs.working, l.Run.ID)
	}
}

// noRunFor checks whether any run needs work, so that an idle worker takes no write lock.
func (rs *Runs) noRunFor(ctx context.Context, w outbox.Worker, versions map[string]string) (bool, error) {
	return reading(ctx, rs, "look for runs", func(t *tx) (bool, error) {
		now := rs.core.Now()
		runs, err := rs.claimable(t, w, now)
		works := func(r *runRow) bool {
			is, _, _ := r.nextStep(versions, rs.core.Mode(), now)
			return is != runWaits
		}
		return !slices.ContainsFunc(runs, works), err
	})
}

func (t *tx) leaseRun(r *runRow, w outbox.Worker, lease time.Duration, now int64) error {
	if r.StartedAt == nil {
		when := sqldb.At(now)
		r.StartedAt = &when
		if err := t.totalRun(r); err != nil {
			return err
		}
	} else if err := t.countRun(r); err != nil {
		return err
	}
	r.Status = replay.RunRunning
	r.Attempts++
	r.owner, r.epoch, r.expires, r.pace = w.ID, r.epoch+1, now+lease.Microseconds(), 0
	return t.saveRun(r, now)
}

const (
	// reachedByRun is how far a verify or a rebuild gets in a campaign, $1 = 0, or a replay, which looks
	// for unapplied events up to the end of the journal.
	reachedByRun = `case when cast($1 as bigint) = 1 or high_water_seq < applied_seq then high_water_seq else applied_seq end`

	totalOfAll = `
select count(*), coalesce(sum(` + reachedByRun + `), 0), count(*) filter (where diverged <> '')
from campaigns`

	totalOfOne = `
select ` + reachedByRun + `, case when diverged <> '' then 1 else 0 end
from campaigns
where campaign_id = $2`
)

// totalRun counts the run's current scope.
func (t *tx) totalRun(r *runRow) error {
	toEnd := sqldb.Truth(r.Kind == replay.RunReplay)
	if r.All {
		_, err := t.One([]any{&r.Campaigns.Total, &r.Events.Total, &r.diverged}, totalOfAll, toEnd)
		return err
	}
	r.Campaigns.Total, r.Events.Total, r.diverged = int64(len(r.CampaignIDs)), 0, 0
	var b sqldb.Batch
	for _, id := range r.CampaignIDs {
		b.Each(func(row sqldb.Row) error {
			var events, diverged int64
			err := row.Scan(&events, &diverged)
			r.Events.Total += events
			r.diverged += diverged
			return err
		}, totalOfOne, toEnd, id)
	}
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("count the events of run %d: %w", r.ID, err)
	}
	if r.UntilSeq > 0 {
		r.Events.Total = r.UntilSeq
	}
	if r.Kind == replay.RunRehearse { // few of their events are replayed
		r.Events.Total = 0
	}
	return nil
}

// leasedRun reads the run of a lease and locks it for a change in this transaction.
func (t *tx) leasedRun(l Lease) (*runRow, error) {
	r, err := t.existingRun(l.Run.ID)
	if errors.Is(err, event.ErrNotFound) || err == nil && (r.owner != l.Owner || r.epoch != l.Epoch) {
		return nil, event.ErrLeaseLost
	}
	return r, err
}

// Campaign is a campaign that a run has not done yet.
type Campaign struct {
	CampaignID   string
	HighWaterSeq int64
	// AppliedSeq is the applied seq in the journal database. The watermark may be slightly further.
	AppliedSeq int64
}

const (
	selectScope = `
select c.campaign_id, c.high_water_seq, c.applied_seq
from campaigns c
where not exists (
    select 1
    from run_results r
    where r.run_id = $1
      and r.campaign_id = c.campaign_id)`

	scopeOfAll = selectScope + `
  and c.campaign_id > $2
order by c.campaign_id
limit $3`

	scopeOfOne = selectScope + `
  and c.campaign_id = $2`
)

// Scope lists campaigns of the run's scope without a result, by id after the given one, at most
// limit. For a run over all campaigns it includes campaigns created after the run began.
func (rs *Runs) Scope(ctx context.Context, l Lease, after string, limit int) ([]Campaign, error) {
	var scope []Campaign
	collect := sqldb.Collect(&scope, func(row sqldb.Row) (c Campaign, err error) {
		err = row.Scan(&c.CampaignID, &c.HighWaterSeq, &c.AppliedSeq)
		return c, err
	})
	err := rs.read(ctx, func(t *tx) error {
		r, err := t.leasedRun(l)
		if err != nil {
			return err
		}
		if r.All {
			return t.Each(collect, scopeOfAll, r.ID, after, limit)
		}
		from, found := slices.BinarySearch(r.CampaignIDs, after)
		if found {
			from++
		}
		for ids := range slices.Chunk(r.CampaignIDs[from:], max(1, limit)) {
			var b sqldb.Batch
			for _, id := range ids {
				b.Each(collect, scopeOfOne, r.ID, id)
			}
			if err := t.RunAll(&b); err != nil || len(scope) >= limit {
				scope = scope[:min(len(scope), limit)]
				return err
			}
		}
		return nil
	})
	return scope, sqldb.Wrapf(err, "read the scope of run %d", l.Run.ID)
}

// Finish ends a leased run as completed, failed, cancelled or interrupted; why is a sentence that
// failed and interrupted runs require. A run with a failed campaign is failed even if called
// completed. Only a cancelling run can be cancelled.
func (rs *Runs) Finish(ctx context.Context, l Lease, status replay.RunStatus, why string) (replay.Run, error) {
	var run replay.Run
	err := rs.admitting(ctx, func(t *tx) error {
		now := rs.core.Now()
		r, err := t.leasedRun(l)
		if err != nil {
			return err
		}
		end, why, err := runEnding(r, status, why)
		if err != nil {
			return err
		}
		if err := rs.endRun(t, r, end, sqldb.Storable(why), now); err != nil {
			return err
		}
		run = r.view(now)
		return nil
	})
	return run, sqldb.Wrapf(err, "finish run %d as %s", l.Run.ID, status)
}

// runEnding checks the status with which a worker ends a run.
func runEnding(r *runRow, status replay.RunStatus, why string) (replay.RunStatus, string, error) {
	switch {
	case status == "" || status.Active():
		return "", "", fmt.Errorf("%q is no end", status)
	case status == replay.RunCancelled && r.Status != replay.RunCancelling:
		return "", "", errors.New("it has not been cancelled")
	case status == replay.RunCompleted && r.FailedCampaigns() > 0:
		status = replay.RunFailed
	}
	if status == replay.RunFailed && why == "" && r.FailedCampaigns() > 0 {
		why = fmt.Sprintf("%s of %s failed; fix the cause and resume the run", event.Number(r.FailedCampaigns()), event.Count(r.Campaigns.Done, "campaign", "campaigns"))
	}
	if why == "" && (status == replay.RunFailed || status == replay.RunInterrupted) {
		return "", "", errors.New("it needs a reason")
	}
	return status, why, nil
}

// Release releases a leased run, so that another process continues it at once. It does not count as
// an attempt.
func (rs *Runs) Release(ctx context.Context, l Lease) error {
	err := rs.write(ctx, func(t *tx) error {
		r, err := t.leasedRun(l)
		if err != nil {
			return err
		}
		r.owner, r.expires, r.pace = "", 0, 0
		r.Attempts--
		return t.saveRun(r, rs.core.Now())
	})
	return sqldb.Wrapf(err, "release run %d", l.Run.ID)
}
