package storetest

import (
	"database/sql"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/must"
)

// Exact fails unless the campaign's row matches a recount of its events and rows, made without
// the store.
func (f *Fixture) Exact(id string) {
	f.TB.Helper()
	for _, c := range f.Recount() {
		must.Hold(f.TB, c.ID != id || c.Problem == "", "the row of campaign %s: %s", id, c.Problem)
	}
}

const recount = `
select
  c.high_water_seq = (select coalesce(max(seq), 0) from events e where e.campaign_id = c.campaign_id),
  c.high_water_seq = (select count(*) from events e where e.campaign_id = c.campaign_id),
  c.chain_hash = coalesce((select chain_hash from events e where e.campaign_id = c.campaign_id order by seq desc limit 1), ''),
  c.pending = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'pending'),
  c.processing = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'processing'),
  c.failed = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'failed'),
  c.dead = (select count(*) from projection_apply_outbox o where o.campaign_id = c.campaign_id and status = 'dead'),
  c.head_seq is not distinct from h.seq,
  c.head_status is not distinct from h.status,
  c.head_next_attempt_at is not distinct from h.next_attempt_at,
  c.oldest_enqueued_at is not distinct from (select recorded_at from events e where e.campaign_id = c.campaign_id and e.seq = c.applied_seq + 1),
  c.skips = (select count(*) from skips k where k.campaign_id = c.campaign_id and undone_at is null),
  c.campaign_id, c.lease_epoch, c.due_at, c.head_next_attempt_at, c.paused_at, c.head_status, c.diverged, c.lease_owner, c.lease_expires_at,
  h.seq is null and c.high_water_seq > c.applied_seq
from campaigns c
left join projection_apply_outbox h on h.campaign_id = c.campaign_id
  and h.seq = (select min(seq) from projection_apply_outbox o where o.campaign_id = c.campaign_id)`

var recountedParts = []string{"high water", "density", "chain hash", "pending", "processing", "failed", "dead", "head", "head's status", "head's next attempt", "oldest", "skips"}

// Recounted is the result of recounting one campaign.
type Recounted struct {
	ID      string
	Epoch   int64
	Problem string // empty when the campaign's row is exact

	due, next, paused sql.NullInt64
	status            sql.NullString
	diverged, owner   string
	expiry            int64
	bare              bool // events are unapplied and none has a row
}

// Recount recounts all campaigns, without the store.
func (f *Fixture) Recount() []Recounted {
	f.TB.Helper()
	rows := must.Get(f.JournalDB.Query(recount)).Or(f.TB)
	defer rows.Close()
	var all []Recounted
	for rows.Next() {
		var c Recounted
		right := make([]bool, len(recountedParts))
		var dest []any
		for i := range right {
			dest = append(dest, &right[i])
		}
		must.OK(f.TB, rows.Scan(append(dest, &c.ID, &c.Epoch, &c.due, &c.next, &c.paused, &c.status, &c.diverged, &c.owner, &c.expiry, &c.bare)...))
		if i := slices.Index(right, false); i >= 0 {
			c.Problem = recountedParts[i] + " is wrong"
		} else {
			c.Problem = c.wrongDue(f.Clock.Now().UnixMicro())
		}
		all = append(all, c)
	}
	must.OK(f.TB, rows.Err())
	return all
}

// wrongDue checks due_at against its definition: null for a campaign that waiting alone never
// makes claimable, the lease's end while it is leased, and otherwise the head's next attempt or
// the later time at which it became ready.
func (c *Recounted) wrongDue(now int64) string {
	idle := c.diverged != "" || c.paused.Valid || !c.next.Valid && !(c.bare && c.owner != "") || c.status.String == "dead"
	switch {
	case idle != !c.due.Valid:
		return fmt.Sprintf("due_at is %v, head %v, paused %v", c.due, c.status, c.paused)
	case !idle && c.owner != "" && c.due.Int64 != c.expiry:
		return fmt.Sprintf("due_at is %d, the lease ends at %d", c.due.Int64, c.expiry)
	case !idle && c.owner == "" && c.due != c.next && (c.due.Int64 < c.next.Int64 || c.due.Int64 > now):
		return fmt.Sprintf("due_at is %d, the head's next attempt %d, now %d", c.due.Int64, c.next.Int64, now)
	}
	return ""
}
