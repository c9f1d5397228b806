package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// RunClaim is a run's lease on one campaign: while it lasts no event is applied to the
// campaign, and no other run swaps in rows. It holds no outbox rows: First is the seq after the
// watermark, Last the watermark's.
type RunClaim struct {
	Claim
	Watermark readmodel.Watermark // as it was when the fence was raised
}

const (
	// workerPatience is how long ClaimForRun waits before it revokes a worker's lease. It leaves a
	// campaign to another run after store.Options.Patience.
	workerPatience = 200 * time.Millisecond
	runPoll        = 20 * time.Millisecond
)

// ClaimForRun takes the leases of campaigns for a run, also of paused, blocked or diverged
// ones, and fences off their previous owners. It waits briefly for a campaign that a worker
// holds, and then revokes the lease: the worker's rows go back to pending, its attempt does not
// count, and what it has not committed by then never happens. Unknown campaigns are left out,
// and so are those that another run keeps; the caller tries them again later.
//
// The owner of the leases is w.ID, which is an campaign.RunOwner. Leases that another process
// holds for the same run are taken over at once. holds is called first, in the same
// transaction, and returns an error when the process no longer holds the run; ClaimForRun
// returns that error.
func (q *Queue) ClaimForRun(ctx context.Context, holds func(*store.Tx) error, w Worker, campaigns []string, lease time.Duration) ([]RunClaim, error) {
	if err := q.Refuse(); err != nil {
		return nil, err
	}
	var claims []RunClaim
	began := time.Now()
	poll := time.NewTicker(runPoll)
	defer poll.Stop()
	for {
		waited := time.Since(began)
		taken, held, err := q.leaseForRun(ctx, holds, w, campaigns, lease, waited >= workerPatience)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("claim for a run: %w", err), q.dropRunClaims(w, claims))
		}
		claims = append(claims, taken...)
		if campaigns = held; len(held) == 0 || waited >= q.Patience() {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), q.dropRunClaims(w, claims))
		}
	}
	fenced, err := q.fenceForRun(ctx, claims)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fence for a run: %w", err), q.dropRunClaims(w, claims))
	}
	return fenced, nil
}

// dropRunClaims releases claims that cannot be used.
func (q *Queue) dropRunClaims(w Worker, claims []RunClaim) error {
	if len(claims) == 0 {
		return nil
	}
	_, err := q.ReleaseForRun(context.Background(), w, claims)
	return err
}

// leaseForRun takes leases in the journal, with epochs above every fence. It returns the
// campaigns held by others; campaigns held by workers are among them only when not impatient.
func (q *Queue) leaseForRun(ctx context.Context, holds func(*store.Tx) error, w Worker, ids []string, lease time.Duration, impatient bool) (claims []RunClaim, held []string, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	// A restored journal may have lower epochs than the projections have seen.
	marks, err := q.ReadModel().Watermarks(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	err = q.Journal().Write(ctx, func(t *store.Tx) error {
		claims, held = nil, nil
		if err := holds(t); err != nil {
			return err
		}
		now := q.Now()
		rows, err := t.Campaigns(ids)
		if err != nil {
			return err
		}
		var saves sqldb.Batch
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			c := rows[id]
			if c == nil {
				continue
			}
			if leasedByOther(c, w, now) && !(impatient && !campaign.IsRun(c.LeaseOwner)) {
				held = append(held, id)
				continue
			}
			if err := q.seize(t, c, w, now); err != nil {
				return err
			}
			c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry = w.ID, max(c.LeaseEpoch, marks[id].FenceEpoch)+1, now+lease.Microseconds()
			c.Schedule(now)
			c.SaveInto(&saves, now)
			claims = append(claims, RunClaim{Claim: Claim{CampaignID: id, Epoch: c.LeaseEpoch, Unskipped: c.Skips == 0}})
		}
		return t.Finish(&saves)
	})
	return claims, held, err
}

// leasedByOther reports whether another owner has an unexpired lease. Another process working
// on the same run does not count, since it was given up.
func leasedByOther(c *store.CampaignRow, w Worker, now int64) bool {
	return c.LeaseOwner != "" && c.LeaseOwner != w.ID && c.LeaseExpiry > now && !campaign.SameRun(c.LeaseOwner, w.ID)
}

// seize ends the lease of a campaign, if there is one. An expired lease counts as a crash on
// the rows it held; a revoked one does not: its rows are as if released untried.
func (q *Queue) seize(t *store.Tx, c *store.CampaignRow, w Worker, now int64) error {
	held := c.Counts.Processing
	if c.LeaseOwner == "" || held == 0 {
		return nil
	}
	if c.LeaseExpiry <= now {
		return q.takeOver(t, c, w, now)
	}
	if suspected(c) { // the attempt was counted before it began
		if _, err := t.Exec(countAttempt, c.ID, c.Head.Int64, -1); err != nil {
			return fmt.Errorf("take back an attempt at campaign %q: %w", c.ID, err)
		}
	}
	back, err := t.Exec(unmarkRows, c.ID, c.Head.Int64, c.Head.Int64+held-1, c.LeaseEpoch, now)
	if err != nil {
		return fmt.Errorf("take rows of campaign %q away: %w", c.ID, err)
	}
	c.Counts.Pending, c.Counts.Processing = c.Counts.Pending+back, held-back
	if back != held {
		if err := dropLease(t, c, now); err != nil {
			return err
		}
	}
	return t.RefreshHead(c)
}

// fenceForRun raises the fences to the epochs of the claims and reads the watermarks, which
// then no longer move. A campaign whose fence is higher by now is left out.
func (q *Queue) fenceForRun(ctx context.Context, claims []RunClaim) (fenced []RunClaim, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	epochs := make(map[string]int64, len(claims))
	for _, c := range claims {
		epochs[c.CampaignID] = c.Epoch
	}
	marks, err := q.ReadModel().RaiseFences(ctx, epochs)
	for _, c := range claims {
		mark, raised := marks[c.CampaignID]
		if !raised {
			continue
		}
		c.Watermark = mark
		c.First, c.Last = mark.AppliedSeq+1, mark.AppliedSeq
		fenced = append(fenced, c)
	}
	return fenced, err
}

// RenewForRun extends the leases of a run and returns the campaigns whose lease is no longer
// held. The others are still extended.
func (q *Queue) RenewForRun(ctx context.Context, w Worker, claims []RunClaim, lease time.Duration) (lost []string, err error) {
	plain := make([]Claim, len(claims))
	for i, c := range claims {
		plain[i] = c.Claim
	}
	lost, err = q.renew(ctx, w, plain, lease)
	return lost, sqldb.Wrapf(err, "renew the leases of a run")
}

// ReleaseForRun releases the leases of a run, with rows and counts updated to the current
// watermarks. A campaign that no longer contradicts its journal is not diverged any more. It
// returns the campaigns whose lease was no longer held, which it does not change.
//
// It must not be cut short: the caller passes a context that outlives a shutdown.
func (q *Queue) ReleaseForRun(ctx context.Context, w Worker, claims []RunClaim) (lost []string, err error) {
	results := make([]Result, len(claims))
	ids := make([]string, len(claims))
	for i, c := range claims {
		results[i], ids[i] = Result{Claim: c.Claim}, c.CampaignID
	}
	marks, err := q.ReadModel().Watermarks(ctx, ids) // they do not move while the leases last
	if err != nil {
		return nil, fmt.Errorf("release what a run held: %w", err)
	}
	wake := false
	err = q.Journal().Write(ctx, func(t *store.Tx) error {
		now := q.Now()
		wake = false
		held, err := stillHeld(t, results, w)
		if err != nil {
			return err
		}
		lost = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			return slices.ContainsFunc(held, func(h *settling) bool { return h.c.ID == id })
		})
		var saves sqldb.Batch
		for _, h := range held {
			if err := q.releaseFromRun(t, h.c, marks[h.c.ID], now); err != nil {
				return fmt.Errorf("campaign %q: %w", h.c.ID, err)
			}
			h.c.Schedule(now)
			h.c.SaveInto(&saves, now)
			wake = wake || h.c.Due.Valid
		}
		return t.Finish(&saves)
	})
	if err != nil {
		return nil, fmt.Errorf("release what a run held: %w", err)
	}
	if wake {
		q.WakeUp()
	}
	return lost, nil
}

// releaseFromRun ends a run's lease. Most campaigns are unchanged since the claim; one that a
// worker applied to before it was fenced off, or that the run has changed, is repaired.
func (q *Queue) releaseFromRun(t *store.Tx, c *store.CampaignRow, w readmodel.Watermark, now int64) error {
	c.LeaseOwner, c.LeaseExpiry = "", 0
	if c.Diverged == "" && c.Applied == w.AppliedSeq && c.Counts.Processing == 0 && !c.Bare() {
		return nil
	}
	if c.Counts.Processing > 0 {
		if err := dropLease(t, c, now); err != nil {
			return err
		}
	}
	if _, err := q.RepairCampaign(t, c, now); err != nil {
		return err
	}
	if c.Applied >= c.Suspect {
		c.Unsuspect()
	}
	return nil
}

const selectRunsCampaigns = `
select campaign_id
from campaigns
where lease_owner <> ''
  and substr(lease_owner, 1, length($1)) = $1
order by campaign_id`

// EndRunClaims ends the leases of a run that no process works on any more, and fences off its
// former process.
func (q *Queue) EndRunClaims(t *store.Tx, run, now int64) error {
	ids, err := sqldb.All(t, sqldb.Column[string], selectRunsCampaigns, campaign.RunOwner(run, ""))
	if err != nil || len(ids) == 0 {
		return err
	}
	campaigns, err := t.Campaigns(ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		c := campaigns[id]
		if c == nil {
			continue
		}
		if err := q.endLease(t, c, now); err != nil {
			return err
		}
		c.Schedule(now)
		if err := t.Save(c, now); err != nil {
			return err
		}
	}
	return nil
}
