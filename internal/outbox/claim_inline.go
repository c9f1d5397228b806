package outbox

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// ClaimInline claims one campaign for a request that applies the events it appended: the rows
// as a worker does, or the events themselves where they have none. BlockerNone means claimed,
// BlockerEmpty that everything is applied, and BlockerLease that another process works on the
// campaign right now. A campaign that may not be applied now is an event.ErrNotYet refusal. A
// claim returned with an error may or may not be held.
func (q *Queue) ClaimInline(ctx context.Context, w Worker, id string, limits ClaimLimits) (claim Claim, hold campaign.Blocker, err error) {
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

func (q *Queue) claimInline(t *store.Tx, c *store.CampaignRow, w Worker, limits ClaimLimits, now int64) (claim Claim, hold campaign.Blocker, err error) {
	waits := func(why string) error {
		return &event.Refusal{Err: event.ErrNotYet, Detail: "the event is appended but not yet applied" + why}
	}
	hold, _ = c.ClaimFacts().Blocker(now)
	switch {
	case !w.Serves.Includes(c.ID) && (hold == campaign.BlockerNone || hold == campaign.BlockerEmpty && c.Bare()):
		err = waits(fmt.Sprintf(" by another instance: this one serves only campaigns that match %s", w.Serves))
	case hold == campaign.BlockerNone && suspected(c):
		err = waits(": processes died while they applied this campaign, and a worker tries its events one at a time")
	case hold == campaign.BlockerNone:
		if claim, err = q.claimRows(t, c, w, limits, now); claim.Epoch == 0 {
			hold = campaign.BlockerLease // the state has changed; try again
		}
	case hold == campaign.BlockerEmpty && c.Bare():
		claim, hold = leaseBare(c, w, limits, now), campaign.BlockerNone
		err = t.Save(c, now)
	case hold == campaign.BlockerPaused && c.Applied == c.HighWater:
		hold = campaign.BlockerEmpty
	case hold != campaign.BlockerEmpty && hold != campaign.BlockerLease:
		err = waits(": " + c.View().Why(sqldb.At(now), campaign.Surroundings{Mode: q.Mode()}))
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
