package store

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
)

// campaignRow is a row of campaigns as the store's own statements see it.
// Every change goes through load, change, save in one transaction, so that
// the row stays exact and due_at has one definition.
type campaignRow struct {
	id          string
	highWater   int64
	chainHash   string
	applied     int64
	head        sql.NullInt64
	headStatus  sql.NullString
	headNext    sql.NullInt64
	oldest      sql.NullInt64 // append time of event applied+1
	due         sql.NullInt64
	counts      outbox.Counts
	leaseOwner  string
	leaseEpoch  int64
	leaseExpiry int64
	crashes     int64
	suspect     int64
	pausedAt    sql.NullInt64
	pausedBy    string
	pausedWhy   string
	diverged    string
	skips       int64  // that stand
	span        string // of the events applied last, see span
	createdAt   int64
	updatedAt   int64
}

const campaignColumns = `campaign_id, high_water_seq, chain_hash, applied_seq, head_seq, head_status, head_next_attempt_at,
  oldest_enqueued_at, due_at, pending, processing, failed, dead, lease_owner, lease_epoch, lease_expires_at,
  crashes, suspect_seq, paused_at, paused_by, paused_reason, diverged, skips, created_at, updated_at`

// campaignColumnsOf is campaignColumns of the table of an alias.
func campaignColumnsOf(alias string) string {
	names := strings.Split(campaignColumns, ",")
	for i, name := range names {
		names[i] = alias + "." + strings.TrimSpace(name)
	}
	return strings.Join(names, ", ")
}

func (c *campaignRow) dest() []any {
	return []any{&c.id, &c.highWater, &c.chainHash, &c.applied, &c.head, &c.headStatus, &c.headNext,
		&c.oldest, &c.due, &c.counts.Pending, &c.counts.Processing, &c.counts.Failed, &c.counts.Dead,
		&c.leaseOwner, &c.leaseEpoch, &c.leaseExpiry, &c.crashes, &c.suspect,
		&c.pausedAt, &c.pausedBy, &c.pausedWhy, &c.diverged, &c.skips, &c.createdAt, &c.updatedAt}
}

const selectCampaign = `
select ` + campaignColumns + `, applied_span
from campaigns
where campaign_id = $1`

// campaign reads a campaign's row, locked for a change in this transaction.
// It is false when there is none.
func (t *Tx) campaign(id string) (*campaignRow, bool, error) {
	var c campaignRow
	found, err := t.One(append(c.dest(), &c.span), selectCampaign+t.ForUpdate, id)
	if err != nil {
		return nil, false, fmt.Errorf("read campaign %q: %w", id, err)
	}
	return &c, found, nil
}

// campaigns reads the rows of several campaigns, locked for a change in this
// transaction, always in the order of their ids, so that transactions that
// want the same ones never wait for each other in a circle. Unknown ones are
// left out.
func (t *Tx) campaigns(ids []string) (map[string]*campaignRow, error) {
	rows := make(map[string]*campaignRow, len(ids))
	var b sqldb.Batch
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		b.Each(func(row sqldb.Row) error {
			c := new(campaignRow)
			rows[id] = c
			return row.Scan(append(c.dest(), &c.span)...)
		}, selectCampaign+t.ForUpdate, id)
	}
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("read campaigns: %w", err)
	}
	return rows, nil
}

// existingCampaign is campaign for callers to whom a missing one is a refusal.
func (t *Tx) existingCampaign(id string) (*campaignRow, error) {
	c, found, err := t.campaign(id)
	if err == nil && !found {
		err = unknownCampaign(id)
	}
	return c, err
}

func unknownCampaign(id string) error {
	return outbox.NotFound("campaign %q is unknown: nothing has been appended to it", id)
}

const insertCampaign = `
insert into campaigns (campaign_id, created_at, updated_at)
values ($1, $2, $2)
on conflict (campaign_id) do nothing`

const (
	updateCampaign = setCampaign + `
where campaign_id = $1`

	updateApplied = setCampaign + `, applied_span = $25
where campaign_id = $1`

	setCampaign = `
update campaigns
set high_water_seq = $2, chain_hash = $3, applied_seq = $4, head_seq = $5, head_status = $6, head_next_attempt_at = $7,
  oldest_enqueued_at = $8, due_at = $9, pending = $10, processing = $11, failed = $12, dead = $13,
  lease_owner = $14, lease_epoch = $15, lease_expires_at = $16, crashes = $17, suspect_seq = $18,
  paused_at = $19, paused_by = $20, paused_reason = $21, diverged = $22, skips = $23, updated_at = $24`
)

// saveInto adds the statement that writes the row to a batch, but for the span,
// see saveAppliedInto.
func (c *campaignRow) saveInto(b *sqldb.Batch, now int64) {
	b.Exec(nil, updateCampaign, c.values(now)...)
}

// saveAppliedInto is saveInto with the span: claims neither read nor write it.
func (c *campaignRow) saveAppliedInto(b *sqldb.Batch, now int64) {
	b.Exec(nil, updateApplied, append(c.values(now), c.span)...)
}

func (c *campaignRow) values(now int64) []any {
	c.updatedAt = now
	return []any{c.id, c.highWater, c.chainHash, c.applied, c.head, c.headStatus, c.headNext,
		c.oldest, c.due, c.counts.Pending, c.counts.Processing, c.counts.Failed, c.counts.Dead,
		c.leaseOwner, c.leaseEpoch, c.leaseExpiry, c.crashes, c.suspect,
		c.pausedAt, c.pausedBy, c.pausedWhy, c.diverged, c.skips, now}
}

func (t *Tx) save(c *campaignRow, now int64) error {
	var b sqldb.Batch
	c.saveInto(&b, now)
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("update campaign %q: %w", c.id, err)
	}
	return nil
}

// schedule sets due_at, the earliest time at which a worker may claim the
// campaign by outbox.Standing's rule, or null when no passing of time makes it
// claimable. While a lease stands that is the lease's end, so one index answers
// every claim. A campaign
// that becomes ready queues behind those that were ready before.
func (c *campaignRow) schedule(now int64) {
	if c.leaseOwner != "" { // also one that ran out is found by its end
		now = min(now, c.leaseExpiry-1)
	}
	_, until := c.standing().Hold(now)
	c.due = sql.NullInt64{Int64: until, Valid: until > 0}
}

// bare reports whether events are owed and none of them has a row: they are
// being applied by the request that appended them, or it died.
func (c *campaignRow) bare() bool { return !c.head.Valid && c.highWater > c.applied }

// mistimed reports whether workers are to look at the campaign later than they
// may take it, or never.
func (c *campaignRow) mistimed(now int64) bool {
	_, until := c.standing().Hold(now)
	return until > 0 && (!c.due.Valid || c.due.Int64 > until)
}

// standing is what decides whether a worker may take the campaign.
func (c *campaignRow) standing() outbox.Standing {
	return outbox.Standing{Diverged: c.diverged != "", Paused: c.pausedAt.Valid, Head: outbox.Status(c.headStatus.String),
		NextAttempt: c.headNext.Int64, Bare: c.bare(), Leased: c.leaseOwner != "", LeaseEnds: c.leaseExpiry}
}

const selectAppended = `
select recorded_at
from events
where campaign_id = $1
  and seq = $2`

// The event that is next to be applied is looked up only when it has no row.
const selectHead = `
select seq, status, next_attempt_at, case when seq = $3 then enqueued_at else (select recorded_at from events where campaign_id = $1 and seq = $3) end
from projection_apply_outbox
where campaign_id = $1
  and seq >= $2
order by seq
limit 1`

// refreshHead reads the lowest row of the campaign, and when its oldest unapplied
// event was appended, into c.
func (t *Tx) refreshHead(c *campaignRow) error {
	var b sqldb.Batch
	c.headInto(&b, 0)
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("read the head of campaign %q: %w", c.id, err)
	}
	return nil
}

// headInto adds the query that refreshHead is to a batch. There is no row below
// from: on PostgreSQL what was deleted there is still to be passed over.
func (c *campaignRow) headInto(b *sqldb.Batch, from int64) {
	c.head, c.headStatus, c.headNext, c.oldest = sql.NullInt64{}, sql.NullString{}, sql.NullInt64{}, sql.NullInt64{}
	switch next := c.applied + 1; {
	case c.counts.Total() > 0:
		b.Each(func(row sqldb.Row) error { return row.Scan(&c.head, &c.headStatus, &c.headNext, &c.oldest) }, selectHead, c.id, from, next)
	case next <= c.highWater:
		b.Each(func(row sqldb.Row) error { return row.Scan(&c.oldest) }, selectAppended, c.id, next)
	}
}

// saveFromHead saves a campaign whose rows were changed: its head is read anew,
// and when it may be claimed follows from that.
func (t *Tx) saveFromHead(c *campaignRow, now int64) error {
	if err := t.refreshHead(c); err != nil {
		return err
	}
	c.schedule(now)
	return t.save(c, now)
}

// count returns the counter of a status, to be changed.
func (c *campaignRow) count(status string) *int64 {
	switch outbox.Status(status) {
	case outbox.Pending:
		return &c.counts.Pending
	case outbox.Processing:
		return &c.counts.Processing
	case outbox.Failed:
		return &c.counts.Failed
	default:
		return &c.counts.Dead
	}
}

// view is the campaign as the rest of the program sees it.
func (c *campaignRow) view() outbox.Campaign {
	v := outbox.Campaign{
		CampaignID: c.id, HighWaterSeq: c.highWater, AppliedSeq: c.applied,
		HeadSeq: c.head.Int64, HeadStatus: outbox.Status(c.headStatus.String), HeadNextAttempt: sqldb.At(c.headNext.Int64),
		DueAt: sqldb.At(c.due.Int64), Unqueued: !c.due.Valid,
		Counts: c.counts, OldestEnqueuedAt: sqldb.At(c.oldest.Int64), Diverged: c.diverged, Skips: c.skips, UpdatedAt: sqldb.At(c.updatedAt),
	}
	if c.leaseOwner != "" {
		v.Lease = &outbox.Lease{Owner: c.leaseOwner, Epoch: c.leaseEpoch, ExpiresAt: sqldb.At(c.leaseExpiry)}
	}
	if c.pausedAt.Valid {
		v.Paused = &outbox.Pause{By: c.pausedBy, At: sqldb.At(c.pausedAt.Int64), Reason: c.pausedWhy}
	}
	return v
}
