package queue

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// ClaimInline claims one campaign for a request that applies the events it appended: the rows
// as a worker does, or the events themselves where they have none. BlockerNone means claimed,
// BlockerEmpty that everything is applied, and BlockerLease that another process works on the
// campaign right now. A campaign that may not be applied now is an outbox.ErrNotYet refusal. A
// claim returned with an error may or may not be held.
func (q *Queue) ClaimInline(ctx context.Context, w Worker, id string, limits ClaimLimits) (claim Claim, hold outbox.Blocker, err error) {
	err = q.Journal().Write(ctx, func(t *store.Tx) error {
		now := q.Now()
		c, err := t.ExistingCampaign(id)
		if err != nil {
			return err
		}
		claim, hold, err = q.claimInline(t, c, w, limits, now)
		return err
	})
	return claim, hold, err
}

func (q *Queue) claimInline(t *store.Tx, c *store.CampaignRow, w Worker, limits ClaimLimits, now int64) (claim Claim, hold outbox.Blocker, err error) {
	waits := func(why string) error {
		return &outbox.Refusal{Err: outbox.ErrNotYet, Detail: "the event is appended but not yet applied" + why}
	}
	hold, _ = c.ClaimFacts().Blocker(now)
	switch {
	case !w.Serves.Includes(c.ID) && (hold == outbox.BlockerNone || hold == outbox.BlockerEmpty && c.Bare()):
		err = waits(fmt.Sprintf(" by another instance: this one serves only campaigns that match %s", w.Serves))
	case hold == outbox.BlockerNone && suspected(c):
		err = waits(": processes died while they applied this campaign, and a worker tries its events one at a time")
	case hold == outbox.BlockerNone:
		if claim, err = q.claimRows(t, c, w, limits, now); claim.Epoch == 0 {
			hold = outbox.BlockerLease // the state has changed; try again
		}
	case hold == outbox.BlockerEmpty && c.Bare():
		claim, hold = leaseBare(c, w, limits, now), outbox.BlockerNone
		err = t.Save(c, now)
	case hold == outbox.BlockerPaused && c.Applied == c.HighWater:
		hold = outbox.BlockerEmpty
	case hold != outbox.BlockerEmpty && hold != outbox.BlockerLease:
		err = waits(": " + c.View().Why(sqldb.At(now), outbox.Surroundings{Mode: q.Mode()}))
	}
	return claim, hold, err
}

// claimRows is Claim for one due campaign. The claim is empty when it turns out not to be due.
func (q *Queue) claimRows(t *store.Tx, c *store.CampaignRow, w Worker, limits ClaimLimits, now int64) (Claim, error) {
	claims, err := q.take(t, []*store.CampaignRow{c}, w, limits, now)
	if len(claims) == 0 {
		return Claim{}, err
	}
	return claims[0], err
}

// leaseBare leases a campaign whose events have no rows to a worker.
func leaseBare(c *store.CampaignRow, w Worker, limits ClaimLimits, now int64) Claim {
	c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry = w.ID, c.LeaseEpoch+1, now+limits.Lease.Microseconds()
	c.Schedule(now)
	return Claim{CampaignID: c.ID, Epoch: c.LeaseEpoch, First: c.Applied + 1, Last: min(c.HighWater, c.Applied+int64(limits.Rows)),
		Bare: true, Unskipped: c.Skips == 0}
}
