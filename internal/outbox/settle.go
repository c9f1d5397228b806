package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Result is the outcome of one claim.
type Result struct {
	Claim       Claim
	Applied     int64              // the projections' highest applied seq
	Failure     *readmodel.Failure // of event Applied+1; nil when nothing failed
	Quarantines []Quarantine
	Diverged    string // why nothing may be applied to the campaign any more; empty when it may
}

// Quarantine is the last failed attempt at an event to which the others were then applied without the
// failed projection.
type Quarantine struct {
	Seq     int64
	Attempt int
	Failure readmodel.Failure
}

// Settled counts the rows that a settlement changed; Fenced counts campaigns.
type Settled struct {
	Applied, Failed, Died, Fenced int64
}

// Settlement is what a settlement changed, with the events that died.
type Settlement struct {
	Settled
	Dead []DeadEvent
}

// DeadEvent is an event that waits for an operator.
type DeadEvent struct {
	CampaignID string
	Seq        int64
	Failure    readmodel.Failure
}

// Settle ends a wave: applied rows are deleted, a failed head is scheduled for retry or marked
// dead, the other rows go back to pending, and every lease is released. A campaign whose lease
// was lost in the meantime is counted as fenced and not changed.
//
// It must not be cut short: the caller passes a context that outlives a shutdown.
func (q *Queue) Settle(ctx context.Context, w Worker, results []Result) (Settlement, error) {
	var settled Settlement
	err := q.Journal().Write(ctx, func(t *store.Tx) error {
		settled = Settlement{}
		return q.settleWave(t, results, w, &settled)
	})
	if err != nil {
		return Settlement{}, fmt.Errorf("settle: %w", err)
	}
	if slices.ContainsFunc(results, Result.untried) { // as at the end of a process
		q.NotifyOthers()
	}
	return settled, nil
}

// untried reports whether claimed rows were released untried, so that others may take them.
func (r Result) untried() bool {
	return r.Failure == nil && r.Diverged == "" && r.Applied < r.Claim.Last
}

// settling is a result whose campaign is still held by the worker.
type settling struct {
	Result
	c    *store.CampaignRow
	from int64 // applied seq before
	gone int64 // rows deleted
}

func (q *Queue) settleWave(t *store.Tx, results []Result, w Worker, settled *Settlement) error {
	now := q.Now()
	results, err := settleWhole(t, results, w, now, settled)
	if err != nil {
		return err
	}
	held, err := stillHeld(t, results, w)
	if err != nil {
		return err
	}
	settled.Fenced += int64(len(results) - len(held))
	if err := deleteSettled(t, held); err != nil {
		return err
	}
	if err := settleSkips(t, held, now); err != nil {
		return err
	}
	for _, h := range held {
		if err := recordQuarantines(t, h, w, now); err != nil {
			return fmt.Errorf("campaign %q: %w", h.c.ID, err)
		}
		settled.Failed += int64(len(h.Quarantines))
		if err := q.settleRows(t, h, w, now, settled); err != nil {
			return fmt.Errorf("campaign %q: %w", h.c.ID, err)
		}
		h.release()
	}
	return saveAllFromHead(t, held, w, now)
}

// whole reports whether all claimed rows were applied, and nothing else happened.
func (r Result) whole() bool {
	return r.Claim.row != nil && !r.Claim.Counted && r.Applied == r.Claim.Last && r.Failure == nil && len(r.Quarantines) == 0 && r.Diverged == ""
}

// settleWhole settles, without reading them again, the campaigns that have no more rows, and returns the
// others.
func settleWhole(t *store.Tx, results []Result, w Worker, now int64, settled *Settlement) (others []Result, err error) {
	var ids []string
	var rows []*store.CampaignRow
	for _, r := range results {
		ids = append(ids, r.Claim.CampaignID)
		if r.whole() {
			rows = append(rows, r.Claim.row)
		}
	}
	if len(rows) == 0 {
		return results, nil
	}
	if err := t.LockInOrder(ids); err != nil {
		return nil, err
	}
	done, err := t.SettleWhole(rows, w.applier(), now)
	if err != nil {
		return nil, err
	}
	var deleted []Claim
	for _, r := range results {
		if done[r.Claim.CampaignID] {
			deleted = append(deleted, r.Claim)
		} else {
			others = append(others, r)
		}
	}
	gone, err := deleteAll(t, deleted)
	if err != nil {
		return nil, err
	}
	for _, held := range deleted {
		settled.Applied += gone[held.CampaignID]
		if gone[held.CampaignID] == held.Last-held.First+1 {
			continue
		}
		c, err := t.ExistingCampaign(held.CampaignID)
		if err == nil {
			err = recountCampaign(t, c, now)
		}
		if err != nil {
			return nil, err
		}
	}
	return others, nil
}

// deleteAll deletes the rows of claims, and returns how many of each campaign it found.
func deleteAll(t *store.Tx, claims []Claim) (map[string]int64, error) {
	gone := make(map[string]int64, len(claims))
	if len(claims) == 0 {
		return gone, nil
	}
	if t.Dialect().OneWriter {
		for _, held := range claims {
			n, err := t.Exec(deleteApplied, held.CampaignID, held.First, held.Last, held.Epoch)
			if err != nil {
				return nil, fmt.Errorf("delete applied rows of campaign %q: %w", held.CampaignID, err)
			}
			gone[held.CampaignID] = n
		}
		return gone, nil
	}
	var ids []string
	var firsts, lasts, epochs []int64
	for _, held := range claims {
		ids, firsts, lasts, epochs = append(ids, held.CampaignID), append(firsts, held.First), append(lasts, held.Last), append(epochs, held.Epoch)
	}
	deleted, err := sqldb.All(t, sqldb.Column[string], deleteSeveral, ids, firsts, lasts, epochs)
	for _, id := range deleted {
		gone[id]++
	}
	return gone, sqldb.Wrapf(err, "delete applied rows")
}

// stillHeld locks the campaigns and returns the results whose lease was not lost in the
// meantime.
func stillHeld(t *store.Tx, results []Result, w Worker) ([]*settling, error) {
	ids := make([]string, len(results))
	for i, r := range results {
		ids[i] = r.Claim.CampaignID
	}
	campaigns, err := t.Campaigns(ids)
	if err != nil {
		return nil, err
	}
	held := make([]*settling, 0, len(results))
	for _, r := range results {
		if c := campaigns[r.Claim.CampaignID]; c != nil && c.LeaseOwner == w.ID && c.LeaseEpoch == r.Claim.Epoch {
			held = append(held, &settling{Result: r, c: c, from: c.Applied})
		}
	}
	return held, nil
}

func deleteSettled(t *store.Tx, held []*settling) error {
	var applied []Claim
	for _, h := range held {
		c := h.Claim
		if c.Last = min(h.Applied, c.Last); c.Last >= c.First && !c.Bare {
			applied = append(applied, c)
		}
	}
	gone, err := deleteAll(t, applied)
	for _, h := range held {
		h.gone = gone[h.c.ID]
	}
	return err
}

// release ends the lease; the epoch stays.
func (h *settling) release() {
	c := h.c
	c.Applied = max(c.Applied, h.Applied)
	if c.Applied >= c.Suspect {
		c.Unsuspect()
	}
	if h.Diverged != "" {
		c.Diverged = h.Diverged
	}
	c.LeaseOwner, c.LeaseExpiry = "", 0
}

// saveAllFromHead is SaveFromHead for a whole wave, and records what was applied.
func saveAllFromHead(t *store.Tx, held []*settling, w Worker, now int64) error {
	var b sqldb.Batch
	for _, h := range held {
		h.c.HeadInto(&b, h.Claim.First)
	}
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("read heads: %w", err)
	}
	for _, h := range held {
		h.c.Schedule(now)
		h.c.SaveAppliedInto(&b, h.from, w.applier(), now)
	}
	return sqldb.Wrapf(t.Finish(&b), "save campaigns")
}

var (
	deleteApplied = deleteClaimed("", "$1", "$2", "$3", "$4")

	// Statements cost PostgreSQL more than rows.
	deleteSeveral = deleteClaimed(`
using unnest(cast($1 as text[]), cast($2 as bigint[]), cast($3 as bigint[]), cast($4 as bigint[])) as k(id, first, last, epoch)`,
		"k.id", "k.first", "k.last", "k.epoch") + `
returning campaign_id`
)

// deleteClaimed is the statement that deletes rows under claims, of which the values are given as SQL.
func deleteClaimed(using, id, first, last, epoch string) string {
	return `
delete from projection_apply_outbox` + using + `
where campaign_id = ` + id + `
  and seq between ` + first + ` and ` + last + `
  and status = 'processing'
  and claim_epoch = ` + epoch
}

// settleRows updates the rows of a claim, and the campaign's counts, to its result. The rows of
// applied events are deleted already.
func (q *Queue) settleRows(t *store.Tx, h *settling, w Worker, now int64, settled *Settlement) error {
	c, r, held, gone := h.c, h.Result, h.Claim, h.gone
	if held.Bare {
		return q.settleBare(t, h, w, now, settled)
	}
	done := min(r.Applied, held.Last)
	settled.Applied += gone
	rest := max(done+1, held.First)
	c.Counts.Processing -= gone
	if r.Failure != nil && rest <= held.Last {
		if err := q.failHead(t, h, rest, w, now, settled); err != nil {
			return err
		}
		rest++
	} else if held.Counted && rest <= held.Last {
		if _, err := t.Exec(countAttempt, c.ID, held.First, -1); err != nil {
			return fmt.Errorf("take back an attempt: %w", err)
		}
	}
	if rest <= held.Last {
		back, err := t.Exec(unmarkRows, c.ID, rest, held.Last, held.Epoch, now)
		if err != nil {
			return fmt.Errorf("give back rows: %w", err)
		}
		c.Counts.Processing -= back
		c.Counts.Pending += back
	}
	if c.Counts.Processing != 0 {
		return t.Recount(c)
	}
	if r.Applied > held.Last { // a worker that was fenced off before it could settle had got further
		return dropApplied(t, c, r.Applied)
	}
	return nil
}

// settleBare settles events that were applied without rows. After a failure, the failed event
// and those after it get rows.
func (q *Queue) settleBare(t *store.Tx, h *settling, w Worker, now int64, settled *Settlement) error {
	c := h.c
	settled.Applied += max(0, h.Applied-c.Applied)
	c.Applied = max(c.Applied, h.Applied)
	if err := dropApplied(t, c, c.Applied); err != nil || h.Failure == nil {
		return err
	}
	if _, err := enqueueMissing(t, c, now); err != nil || c.Head.Int64 != h.Applied+1 {
		return err
	}
	return q.failHead(t, h, h.Applied+1, w, now, settled)
}

// failHead records that the campaign's head failed, in its row and in the counts.
func (q *Queue) failHead(t *store.Tx, h *settling, seq int64, w Worker, now int64, settled *Settlement) error {
	c := h.c
	before := c.HeadStatus.String
	if err := q.recordFailure(t, failed{*h.Failure, c, seq, w, h.Claim.Counted}, now); err != nil {
		return err
	}
	*c.Count(before)--
	*c.Count(c.HeadStatus.String)++
	settled.Failed++
	if c.HeadStatus.String == string(event.Dead) {
		settled.Died++
		settled.Dead = append(settled.Dead, DeadEvent{c.ID, seq, *h.Failure})
	}
	return nil
}

// dropApplied deletes the rows of events that were applied outside the claim that holds them:
// on the request path, when they got rows meanwhile, or under a claim whose lease was lost.
func dropApplied(t *store.Tx, c *store.CampaignRow, applied int64) error {
	if c.Counts.Total() == 0 {
		return nil
	}
	if _, err := t.Exec(deleteStaleRows, c.ID, applied); err != nil {
		return fmt.Errorf("remove applied rows: %w", err)
	}
	return t.Recount(c)
}

const failRow = `
update projection_apply_outbox
set status = $3, attempt_count = $4, next_attempt_at = $5, last_error = $6, fingerprint = $7, updated_at = $8
where campaign_id = $1
  and seq = $2`

const insertAttempt = `
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint, projection, projection_version, permanent, died)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
on conflict (campaign_id, seq, at, attempt) do nothing`

// addAttempt writes a failed attempt to the history.
func addAttempt(t *store.Tx, f failed, at int64, attempt, ended int) error {
	_, err := t.Exec(insertAttempt, f.c.ID, f.seq, at, attempt, f.by.ID, f.by.Build, sqldb.Clip(f.Message, readmodel.ErrorLimit), f.Fingerprint,
		f.Projection, f.Version, sqldb.Truth(f.Permanent), ended)
	return sqldb.Wrapf(err, "record the attempt at seq %d", f.seq)
}

// recordQuarantines writes the attempts that quarantined a projection, each a microsecond before the next
// and before what else the settlement records: of one attempt at an event several projections may fail.
func recordQuarantines(t *store.Tx, h *settling, w Worker, now int64) error {
	for i, q := range h.Quarantines {
		at := now - int64(len(h.Quarantines)-i)
		if err := addAttempt(t, failed{Failure: q.Failure, c: h.c, seq: q.Seq, by: w}, at, q.Attempt, store.AttemptQuarantined); err != nil {
			return err
		}
	}
	return nil
}

const selectTriedBy = `
select projection, count(*)
from attempts
where campaign_id = $1
  and seq = $2
  and at >= (
    select coalesce(max(at), 0)
    from attempts
    where campaign_id = $1
      and seq = $2
      and attempt = 1)
group by projection`

// triedBy counts the failed attempts at an event since the last first one, by the projection that
// failed; an empty one is unknown.
func triedBy(t *store.Tx, campaign string, seq int64) (map[string]int, error) {
	tried := map[string]int{}
	err := t.Each(sqldb.CollectMap(tried), selectTriedBy, campaign, seq)
	return tried, sqldb.Wrapf(err, "count the attempts at seq %d", seq)
}

// failed is a failed attempt at the head of a campaign.
type failed struct {
	readmodel.Failure
	c       *store.CampaignRow
	seq     int64
	by      Worker
	counted bool // before the attempt began
}

// recordFailure writes a failed attempt to the row and the history, and sets the head's new
// status and time in the campaign.
func (q *Queue) recordFailure(t *store.Tx, f failed, now int64) error {
	c, seq, attempts := f.c, f.seq, 0
	_, err := t.One([]any{&attempts}, `select attempt_count from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.ID, seq)
	if err != nil {
		return fmt.Errorf("read attempts of seq %d: %w", seq, err)
	}
	delay := max(q.Retry().Longest(), time.Second)
	switch {
	case !f.Untried && !f.counted:
		attempts++
	case f.Untried && f.counted:
		attempts--
	}
	own := attempts
	if attempts > 1 {
		tried, err := triedBy(t, c.ID, seq)
		if err != nil {
			return err
		}
		own = min(tried[f.Projection]+1, attempts)
	}
	if !f.Untried {
		delay = q.Retry().Delay(own)
	}
	status, ended := event.Failed, store.AttemptFailed
	next := now + delay.Microseconds()
	dies := f.Last(own, q.Retry())
	if !dies && !f.SetAside {
		if dies, err = q.notifyFailed(t, f, now); err != nil {
			return err
		}
	}
	if dies && !f.SetAside {
		status, ended, next = event.Dead, store.AttemptDied, now
	}
	if _, err := t.Exec(failRow, c.ID, seq, string(status), attempts, next, sqldb.Clip(f.Message, store.LastErrorLimit), f.Fingerprint, now); err != nil {
		return fmt.Errorf("record the failure of seq %d: %w", seq, err)
	}
	c.HeadStatus = sql.NullString{String: string(status), Valid: true}
	c.HeadNext = sql.NullInt64{Int64: next, Valid: true}
	if f.Untried && ended == store.AttemptFailed {
		return nil
	}
	return addAttempt(t, f, now, attempts, ended)
}

// notifyFailed calls the OnFailure hooks and reports whether one of them makes the row dead.
func (q *Queue) notifyFailed(t *store.Tx, f failed, now int64) (dies bool, err error) {
	for _, tell := range q.onFailure {
		if dies, err = tell(t, f.c.ID, f.seq, f.Failure, now); dies || err != nil {
			return dies, err
		}
	}
	return false, nil
}

// recountWithHead is Recount, and re-reads the head.
func recountWithHead(t *store.Tx, c *store.CampaignRow) error {
	if err := t.Recount(c); err != nil {
		return err
	}
	return t.RefreshHead(c)
}
