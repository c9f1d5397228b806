package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// takeOver ends an expired lease. Its processing rows go back to pending. When that happens
// twice in the same stretch, the campaign is a suspect, since its events there may have killed
// the process: from then on they are tried one by one, each attempt counted before it starts.
func (q *Queue) takeOver(t *store.Tx, c *store.CampaignRow, w Worker, now int64) error {
	held := c.Counts.Processing
	if held > 0 {
		counted := suspected(c)
		c.Crashes++
		c.Suspect = max(c.Suspect, c.Head.Int64+held-1)
		if _, err := t.Exec(unmarkRows, c.ID, c.Head.Int64, c.Head.Int64+held-1, c.LeaseEpoch, now); err != nil {
			return fmt.Errorf("take over rows of campaign %q: %w", c.ID, err)
		}
		c.Counts.Pending, c.Counts.Processing = c.Counts.Pending+held, 0
		c.HeadStatus.String = string(event.Pending)
		if counted {
			if err := q.recordCrash(t, c, w, now); err != nil {
				return err
			}
		}
	}
	c.LeaseOwner, c.LeaseExpiry = "", 0
	if c.Bare() { // left by the request that should have applied them
		_, err := enqueueMissing(t, c, now)
		return err
	}
	return nil
}

// recordCrash records a failed attempt of the head, whose process died while applying it,
// unless the event was applied before the process died.
func (q *Queue) recordCrash(t *store.Tx, c *store.CampaignRow, w Worker, now int64) error {
	mark, err := q.WatermarkOf(context.Background(), c.ID)
	if err != nil || mark.AppliedSeq >= c.Head.Int64 {
		return err
	}
	failure := readmodel.Failure{Message: "the process died or stopped answering while it applied this event (worker " + c.LeaseOwner + ")"}
	failure.Fingerprint = "the process died while it applied this event"
	if err := q.recordFailure(t, failed{failure, c, c.Head.Int64, w, true}, now); err != nil {
		return err
	}
	c.Counts.Pending--
	*c.Count(c.HeadStatus.String)++
	return nil
}

const renewLease = `
update campaigns
set lease_expires_at = $4, due_at = case when due_at is null then null else cast($4 as bigint) end
where campaign_id = $1
  and lease_owner = $2
  and lease_epoch = $3`

// Renew extends the leases of a long wave. It returns event.ErrLeaseLost when one of them is
// no longer held; the others are still extended.
func (q *Queue) Renew(ctx context.Context, w Worker, claims []Claim, lease time.Duration) error {
	lost, err := q.renew(ctx, w, claims, lease)
	if err != nil {
		return fmt.Errorf("renew leases: %w", err)
	}
	if len(lost) > 0 {
		return event.ErrLeaseLost
	}
	return nil
}

// renew extends leases and returns the campaigns whose lease is no longer held.
func (q *Queue) renew(ctx context.Context, w Worker, claims []Claim, lease time.Duration) (lost []string, err error) {
	err = q.Journal().Write(ctx, func(t *store.Tx) error {
		lost = nil
		expires := q.Now() + lease.Microseconds()
		var b sqldb.Batch
		inOrder := func(a, b Claim) int { return strings.Compare(a.CampaignID, b.CampaignID) } // to avoid deadlocks
		for _, c := range slices.SortedFunc(slices.Values(claims), inOrder) {
			b.Exec(func(n int64) error {
				if n == 0 {
					lost = append(lost, c.CampaignID)
				}
				return nil
			}, renewLease, c.CampaignID, w.ID, c.Epoch, expires)
		}
		return t.RunAll(&b)
	})
	return lost, err
}
