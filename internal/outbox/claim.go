package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Worker identifies the process that claims, fails and settles, for leases and histories.
type Worker struct {
	ID     string         // unique per process start
	Build  string         // version of the program
	Serves campaign.Scope // the campaigns that it may claim
	Loaded string         // digest of its projections' versions, as of campaign.SetOf; may be empty
}

func (w Worker) applier() store.Applier {
	return store.Applier{Worker: w.ID, Build: w.Build, Loaded: w.Loaded}
}

// Claim is the right to apply consecutive rows of one campaign until the lease ends.
type Claim struct {
	CampaignID string
	Epoch      int64 // the fencing number
	First      int64 // seq of the first claimed row
	Last       int64 // seq of the last claimed row
	// Bare is true when the events First to Last have no rows: the request that appended them
	// applies them.
	Bare bool
	// Attempts is the number of failures the first row already has, and TriedBy those of each
	// projection.
	Attempts int
	TriedBy  map[string]int
	// Counted is true when this attempt was counted before it starts, because earlier attempts
	// killed their process.
	Counted bool
	// Slow is true when the first row's last attempt exceeded its deadline.
	Slow bool
	// Unskipped is true when no event of the campaign was skipped at the time of the claim. None
	// can be skipped during the claim.
	Unskipped bool

	row *store.CampaignRow // as the claim left it; nil in claims of other kinds
}

// Range is the range of claimed events.
func (c Claim) Range() store.Range {
	return store.Range{CampaignID: c.CampaignID, First: c.First, Last: c.Last, Unskipped: c.Unskipped}
}

// ClaimLimits bounds one wave.
type ClaimLimits struct {
	Rows  int           // rows in all
	Lease time.Duration // duration of the lease without renewal

	// Except are campaigns not to be claimed.
	Except map[string]bool

	suspect bool // claim one suspect and nothing else
}

// CampaignError is an error of one campaign in work on several.
type CampaignError struct {
	CampaignID string
	Err        error
}

func (e *CampaignError) Error() string { return fmt.Sprintf("campaign %q: %v", e.CampaignID, e.Err) }

func (e *CampaignError) Unwrap() error { return e.Err }

// Claim leases the campaigns that have been due the longest and marks a run of consecutive rows
// of each, from its head on, processing under a new epoch. Campaigns with an expired lease are
// taken over; suspects are left to ClaimSuspect. It returns an empty slice and no error when
// nothing is due. Claims returned with an error may or may not be held, since the answer to the
// commit was lost: the caller settles them with nothing applied.
func (q *Queue) Claim(ctx context.Context, w Worker, limits ClaimLimits) ([]Claim, error) {
	if q.Journal().Dialect.OneWriter {
		// Check without a write lock first, so that an idle worker takes none.
		if wait, any, err := q.UntilDue(ctx, w.Serves); err != nil || !any || wait > 0 {
			return nil, err
		}
	}
	claims, err := q.claim(ctx, w, limits, q.dueCampaigns)
	if errors.Is(err, event.ErrDamaged) {
		claims, err = q.claim(ctx, w, limits, readableDue)
	}
	return claims, err
}

// ClaimSuspect is Claim for one suspect, a campaign that two processes died with: only its
// head, with the attempt counted before it starts. A process may try one suspect at a time and
// nothing beside it, so that the event that kills a process can be told from those that were
// merely loaded.
func (q *Queue) ClaimSuspect(ctx context.Context, w Worker, lease time.Duration) ([]Claim, error) {
	if due, err := q.SuspectDue(ctx, w.Serves); err != nil || !due {
		return nil, err
	}
	return q.claim(ctx, w, ClaimLimits{Rows: 1, Lease: lease, suspect: true}, dueSuspect)
}

func (q *Queue) claim(ctx context.Context, w Worker, limits ClaimLimits, find func(*store.Tx, int64, campaign.Scope, ClaimLimits) ([]*store.CampaignRow, error)) ([]Claim, error) {
	var claims []Claim
	err := q.Journal().Write(ctx, func(t *store.Tx) error {
		now := q.Now()
		due, err := find(t, now, w.Serves, limits)
		if err != nil || len(due) == 0 {
			return err
		}
		claims, err = q.take(t, due, w, limits, now)
		return err
	})
	return claims, sqldb.Wrapf(err, "claim")
}

// take claims due campaigns.
func (q *Queue) take(t *store.Tx, due []*store.CampaignRow, w Worker, limits ClaimLimits, now int64) ([]Claim, error) {
	taken, err := q.markDue(t, due, w, limits, now)
	if err != nil {
		return nil, err
	}
	return leaseMarked(t, taken, w, limits.Lease, now)
}

// taking is a campaign that is being claimed.
type taking struct {
	c      *store.CampaignRow
	claim  Claim
	want   int64 // rows to mark
	marked int64

	expired bool // the lease before
}

// markDue ends expired leases and marks the rows of each campaign to be claimed. Campaigns that
// turn out to be blocked, for example by a head that died with its worker, are left out.
func (q *Queue) markDue(t *store.Tx, due []*store.CampaignRow, w Worker, limits ClaimLimits, now int64) ([]*taking, error) {
	var taken []*taking
	var marks sqldb.Batch
	left := int64(limits.Rows)
	share := int64(max(leastShare(limits.Rows), limits.Rows/len(due)))
	for _, c := range due {
		if left <= 0 {
			break
		}
		expired := c.LeaseOwner != ""
		if expired {
			if err := q.takeOver(t, c, w, now); err != nil {
				return nil, &CampaignError{c.ID, err}
			}
		}
		if hold, _ := c.ClaimFacts().Blocker(now); hold != campaign.BlockerNone || suspected(c) != limits.suspect {
			c.Schedule(now)
			if err := t.Save(c, now); err != nil {
				return nil, err
			}
			continue
		}
		k := newTaking(c, min(share, left))
		k.expired = expired
		marks.Exec(sqldb.Into(&k.marked), markRows, c.ID, k.claim.First, k.claim.Last, k.claim.Epoch, now)
		taken = append(taken, k)
		left -= k.want
	}
	if done, err := t.Run(&marks); err != nil {
		return nil, &CampaignError{taken[min(done, len(taken)-1)].c.ID, fmt.Errorf("mark rows: %w", err)}
	}
	return taken, nil
}

func newTaking(c *store.CampaignRow, limit int64) *taking {
	k := &taking{c: c, claim: Claim{CampaignID: c.ID, Epoch: c.LeaseEpoch + 1, First: c.Head.Int64, Counted: suspected(c), Unskipped: c.Skips == 0}}
	there := c.Counts.Pending
	if k.retried() {
		there++
	}
	k.want = min(limit, there)
	k.claim.Last = k.claim.First + k.want - 1
	return k
}

// retried reports whether the head has failed before and is due again.
func (k *taking) retried() bool { return k.c.HeadStatus.String == string(event.Failed) }

// leaseMarked gives the worker the leases of campaigns whose rows are marked and updates their
// counts accordingly.
func leaseMarked(t *store.Tx, taken []*taking, w Worker, lease time.Duration, now int64) ([]Claim, error) {
	var claims []Claim
	var saves sqldb.Batch
	for _, k := range taken {
		c := k.c
		if err := settleMarks(t, k, now); err != nil {
			return nil, &CampaignError{c.ID, fmt.Errorf("mark rows: %w", err)}
		}
		if k.claim.Last < k.claim.First {
			if err := recountCampaign(t, c, now); err != nil {
				return nil, err
			}
			continue
		}
		c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry = w.ID, k.claim.Epoch, now+lease.Microseconds()
		c.Schedule(now)
		if k.expired {
			c.SaveInto(&saves, now)
		} else {
			c.SaveClaimInto(&saves, now)
		}
		k.claim.row = c
		claims = append(claims, k.claim)
	}
	return claims, sqldb.Wrapf(t.Finish(&saves), "lease campaigns")
}

// recountCampaign corrects a campaign's row that counts rows which do not exist.
func recountCampaign(t *store.Tx, c *store.CampaignRow, now int64) error {
	if err := t.Recount(c); err != nil {
		return err
	}
	return t.SaveFromHead(c, now)
}

const markRows = `
update projection_apply_outbox
set status = 'processing', claim_epoch = $4, updated_at = $5
where campaign_id = $1
  and seq between $2 and $3
  and (status = 'pending' or (seq = $2 and status = 'failed'))`

const countAttempt = `
update projection_apply_outbox
set attempt_count = attempt_count + $3
where campaign_id = $1
  and seq = $2
  and status = 'processing'`

// settleMarks updates the campaign's counts to the rows that were marked and fills in the
// claim's range. A hole or a dead row ends the run.
func settleMarks(t *store.Tx, k *taking, now int64) (err error) {
	c, claim := k.c, &k.claim
	if k.marked != k.want {
		if k.marked, err = unmarkBeyondHole(t, c, claim, now); err != nil {
			return err
		}
	}
	// A head that was claimed and released is pending again, due since its last failure and not
	// since its append.
	if k.retried() || c.Crashes > 0 || c.HeadNext != c.Oldest {
		var last string
		if _, err := t.One([]any{&claim.Attempts, &last}, `select attempt_count, last_error from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.ID, claim.First); err != nil {
			return err
		}
		claim.Slow = strings.HasPrefix(last, event.CutOff)
		if claim.Attempts > 0 {
			if claim.TriedBy, err = triedBy(t, c.ID, claim.First); err != nil {
				return err
			}
		}
	}
	if claim.Counted {
		if _, err := t.Exec(countAttempt, c.ID, claim.First, 1); err != nil {
			return err
		}
	}
	if k.marked == 0 {
		return nil
	}
	if k.retried() {
		c.Counts.Failed--
		c.Counts.Pending++
	}
	c.Counts.Pending -= k.marked
	c.Counts.Processing += k.marked
	c.HeadStatus.String = string(event.Processing)
	return nil
}

const unmarkRows = `
update projection_apply_outbox
set status = 'pending', updated_at = $5
where campaign_id = $1
  and seq between $2 and $3
  and status = 'processing'
  and claim_epoch = $4`

// unmarkBeyondHole returns rows marked beyond the first hole to the queue and returns the
// length of the run that stays marked.
func unmarkBeyondHole(t *store.Tx, c *store.CampaignRow, claim *Claim, now int64) (int64, error) {
	last, next := claim.Last, claim.First
	err := t.Each(func(rows sqldb.Row) error {
		var seq, epoch int64
		var status string
		if err := rows.Scan(&seq, &status, &epoch); err != nil {
			return err
		}
		if seq == next && status == string(event.Processing) && epoch == claim.Epoch {
			next++
		}
		return nil
	}, `select seq, status, claim_epoch from projection_apply_outbox where campaign_id = $1 and seq between $2 and $3 order by seq`, c.ID, claim.First, claim.Last)
	if err != nil {
		return 0, err
	}
	claim.Last = next - 1
	_, err = t.Exec(unmarkRows, c.ID, next, last, claim.Epoch, now)
	return next - claim.First, err
}
