package store

import (
	"database/sql"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// CampaignRow is a row of campaigns as the store's own statements see it. Every change is load,
// modify, save in one transaction, so that the row stays exact and due_at has one definition.
type CampaignRow struct {
	ID          string
	HighWater   int64
	ChainHash   string
	Applied     int64
	Head        sql.NullInt64
	HeadStatus  sql.NullString
	HeadNext    sql.NullInt64
	Oldest      sql.NullInt64 // append time of event applied+1
	Due         sql.NullInt64
	Counts      campaign.Counts
	LeaseOwner  string
	LeaseEpoch  int64
	LeaseExpiry int64
	Crashes     int64
	Suspect     int64
	PausedAt    sql.NullInt64
	PausedBy    string
	PausedWhy   string
	Diverged    string
	Skips       int64  // active ones
	span        string // the events applied last, see type span
	CreatedAt   int64
	UpdatedAt   int64
	unsaved     bool // it has no row yet
}

// CampaignColumns are the columns that Dest scans.
const CampaignColumns = `campaign_id, high_water_seq, chain_hash, applied_seq, head_seq, head_status, head_next_attempt_at,
  oldest_enqueued_at, due_at, pending, processing, failed, dead, lease_owner, lease_epoch, lease_expires_at,
  crashes, suspect_seq, paused_at, paused_by, paused_reason, diverged, skips, created_at, updated_at`

// SelectCampaigns begins a query for rows of campaigns.
const SelectCampaigns = "\nselect " + CampaignColumns + "\nfrom campaigns"

// SelectWithSpans is SelectCampaigns for DestWithSpan.
const SelectWithSpans = "\nselect " + CampaignColumns + ", applied_span\nfrom campaigns"

// CampaignColumnsOf is CampaignColumns qualified with a table alias.
func CampaignColumnsOf(alias string) string {
	names := strings.Split(CampaignColumns, ",")
	for i, name := range names {
		names[i] = alias + "." + strings.TrimSpace(name)
	}
	return strings.Join(names, ", ")
}

// Dest is the scan destination for CampaignColumns.
func (c *CampaignRow) Dest() []any {
	return []any{&c.ID, &c.HighWater, &c.ChainHash, &c.Applied, &c.Head, &c.HeadStatus, &c.HeadNext,
		&c.Oldest, &c.Due, &c.Counts.Pending, &c.Counts.Processing, &c.Counts.Failed, &c.Counts.Dead,
		&c.LeaseOwner, &c.LeaseEpoch, &c.LeaseExpiry, &c.Crashes, &c.Suspect,
		&c.PausedAt, &c.PausedBy, &c.PausedWhy, &c.Diverged, &c.Skips, &c.CreatedAt, &c.UpdatedAt}
}

const selectCampaign = SelectWithSpans + `
where campaign_id = $1`

// DestWithSpan is the scan destination for SelectWithSpans.
func (c *CampaignRow) DestWithSpan() []any { return append(c.Dest(), &c.span) }

// Campaign reads a campaign's row, locked for update in this transaction; false when there is
// none.
func (t *Tx) Campaign(id string) (*CampaignRow, bool, error) {
	var c CampaignRow
	found, err := t.One(c.DestWithSpan(), selectCampaign+t.ForUpdate, id)
	return &c, found, sqldb.Wrapf(err, "read campaign %q", id)
}

// Campaigns reads the rows of several campaigns, locked for update in this transaction. Rows
// are locked in order of id, so that transactions cannot deadlock. Unknown ids are left out.
func (t *Tx) Campaigns(ids []string) (map[string]*CampaignRow, error) {
	rows := make(map[string]*CampaignRow, len(ids))
	var b sqldb.Batch
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		b.Each(func(row sqldb.Row) error {
			c := new(CampaignRow)
			rows[id] = c
			return row.Scan(c.DestWithSpan()...)
		}, selectCampaign+t.ForUpdate, id)
	}
	return rows, sqldb.Wrapf(t.RunAll(&b), "read campaigns")
}

// ExistingCampaign is Campaign, but refuses a missing one with UnknownCampaign.
func (t *Tx) ExistingCampaign(id string) (*CampaignRow, error) {
	c, found, err := t.Campaign(id)
	if err == nil && !found {
		err = UnknownCampaign(id)
	}
	return c, err
}

// UnknownCampaign is the refusal of a request for a campaign without events.
func UnknownCampaign(id string) error {
	return event.NotFound("there is no campaign %q: nothing has been appended to it", id)
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

// SaveInto adds the statement that writes the row to a batch. It does not write the span; see
// SaveAppliedInto.
func (c *CampaignRow) SaveInto(b *sqldb.Batch, now int64) {
	b.Exec(nil, updateCampaign, c.values(now)...)
}

// SaveAppliedInto is SaveInto after a process applied the events after from, up to the applied seq:
// it records the span, which claims neither read nor write.
func (c *CampaignRow) SaveAppliedInto(b *sqldb.Batch, from int64, by Applier, now int64) {
	if closed := c.recordSpan(from, by, now); closed != nil {
		closed.insertInto(b, c.ID)
	}
	b.Exec(nil, updateApplied, append(c.values(now), c.span)...)
}

const updateClaimed = `
update campaigns
set head_status = $2, due_at = $3, pending = $4, processing = $5, failed = $6, lease_owner = $7, lease_epoch = $8, lease_expires_at = $9, updated_at = $10
where campaign_id = $1`

// SaveClaimInto is SaveInto for a row of which only a claim changed something: columns that are not
// written leave their indexes alone.
func (c *CampaignRow) SaveClaimInto(b *sqldb.Batch, now int64) {
	c.UpdatedAt = now
	b.Exec(nil, updateClaimed, c.ID, c.HeadStatus, c.Due, c.Counts.Pending, c.Counts.Processing, c.Counts.Failed, c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry, now)
}

const (
	updateAppended = `
update campaigns
set high_water_seq = $2, chain_hash = $3, head_seq = $4, head_status = $5, head_next_attempt_at = $6, oldest_enqueued_at = $7, due_at = $8, pending = $9, updated_at = $10
where campaign_id = $1`

	insertAppended = `
insert into campaigns (campaign_id, high_water_seq, chain_hash, head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at, pending, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)`
)

// saveAppendedInto is SaveInto for a row of which only an append changed something, or that it begins.
func (c *CampaignRow) saveAppendedInto(b *sqldb.Batch, now int64) {
	query := updateAppended
	if c.unsaved {
		query = insertAppended
	}
	b.Exec(nil, query, c.ID, c.HighWater, c.ChainHash, c.Head, c.HeadStatus, c.HeadNext, c.Oldest, c.Due, c.Counts.Pending, now)
}

func (c *CampaignRow) values(now int64) []any {
	c.UpdatedAt = now
	return []any{c.ID, c.HighWater, c.ChainHash, c.Applied, c.Head, c.HeadStatus, c.HeadNext,
		c.Oldest, c.Due, c.Counts.Pending, c.Counts.Processing, c.Counts.Failed, c.Counts.Dead,
		c.LeaseOwner, c.LeaseEpoch, c.LeaseExpiry, c.Crashes, c.Suspect,
		c.PausedAt, c.PausedBy, c.PausedWhy, c.Diverged, c.Skips, now}
}

// Save writes the row of a campaign, without the span.
func (t *Tx) Save(c *CampaignRow, now int64) error {
	var b sqldb.Batch
	c.SaveInto(&b, now)
	return sqldb.Wrapf(t.RunAll(&b), "update campaign %q", c.ID)
}

// Schedule sets due_at: the earliest time at which a worker may claim the campaign by the rule
// of campaign.ClaimFacts, or null when waiting alone never makes it claimable. While a lease
// lasts it is the lease's end, so that one index answers every claim. A campaign that becomes
// ready queues behind those that were ready before.
func (c *CampaignRow) Schedule(now int64) {
	if c.LeaseOwner != "" { // expired leases too are found by their end
		now = min(now, c.LeaseExpiry-1)
	}
	_, until := c.ClaimFacts().Blocker(now)
	c.Due = sql.NullInt64{Int64: until, Valid: until > 0}
}

// Bare reports whether events are unapplied and none has a row: the request that appended them
// is applying them, or it died.
func (c *CampaignRow) Bare() bool { return !c.Head.Valid && c.HighWater > c.Applied }

// Mistimed reports whether due_at is later than the time at which the campaign may be claimed,
// or null.
func (c *CampaignRow) Mistimed(now int64) bool {
	_, until := c.ClaimFacts().Blocker(now)
	return until > 0 && (!c.Due.Valid || c.Due.Int64 > until)
}

// ClaimFacts are the facts that decide whether a worker may claim the campaign.
func (c *CampaignRow) ClaimFacts() campaign.ClaimFacts {
	return campaign.ClaimFacts{Diverged: c.Diverged != "", Paused: c.PausedAt.Valid, Head: event.Status(c.HeadStatus.String),
		NextAttempt: c.HeadNext.Int64, Bare: c.Bare(), Leased: c.LeaseOwner != "", LeaseEnds: c.LeaseExpiry}
}

// SelectAppended reads when an event was appended.
const SelectAppended = `
select recorded_at
from events
where campaign_id = $1
  and seq = $2`

// The next event to apply is looked up only when it has no row.
const selectHead = `
select seq, status, next_attempt_at, case when seq = $3 then enqueued_at else (select recorded_at from events where campaign_id = $1 and seq = $3) end
from projection_apply_outbox
where campaign_id = $1
  and seq >= $2
order by seq
limit 1`

// RefreshHead reads into c the campaign's lowest row and the append time of its oldest
// unapplied event.
func (t *Tx) RefreshHead(c *CampaignRow) error {
	var b sqldb.Batch
	c.HeadInto(&b, 0)
	return sqldb.Wrapf(t.RunAll(&b), "read the head of campaign %q", c.ID)
}

// HeadInto adds the query of RefreshHead to a batch. The caller guarantees that there is no row
// below from: on PostgreSQL the scan would otherwise pass over deleted rows.
func (c *CampaignRow) HeadInto(b *sqldb.Batch, from int64) {
	c.Head, c.HeadStatus, c.HeadNext, c.Oldest = sql.NullInt64{}, sql.NullString{}, sql.NullInt64{}, sql.NullInt64{}
	switch next := c.Applied + 1; {
	case c.Counts.Total() > 0:
		b.Each(func(row sqldb.Row) error { return row.Scan(&c.Head, &c.HeadStatus, &c.HeadNext, &c.Oldest) }, selectHead, c.ID, from, next)
	case next <= c.HighWater:
		b.Each(func(row sqldb.Row) error { return row.Scan(&c.Oldest) }, SelectAppended, c.ID, next)
	}
}

// SaveFromHead re-reads the head of a campaign whose rows were changed, reschedules and saves
// it.
func (t *Tx) SaveFromHead(c *CampaignRow, now int64) error {
	if err := t.RefreshHead(c); err != nil {
		return err
	}
	c.Schedule(now)
	return t.Save(c, now)
}

// Count returns a pointer to the counter of a status.
func (c *CampaignRow) Count(status string) *int64 {
	switch event.Status(status) {
	case event.Pending:
		return &c.Counts.Pending
	case event.Processing:
		return &c.Counts.Processing
	case event.Failed:
		return &c.Counts.Failed
	default:
		return &c.Counts.Dead
	}
}

// Requeued counts rows of a status that an operator made pending and due at once. The campaign
// is no longer a suspect.
func (c *CampaignRow) Requeued(from event.Status, rows int64) {
	*c.Count(string(from)) -= rows
	c.Counts.Pending += rows
	c.Unsuspect()
}

// Unsuspect clears the count of processes that died while they held the campaign.
func (c *CampaignRow) Unsuspect() { c.Crashes, c.Suspect = 0, 0 }

// View converts the row to the domain type.
func (c *CampaignRow) View() campaign.Campaign {
	v := campaign.Campaign{
		CampaignID: c.ID, HighWaterSeq: c.HighWater, AppliedSeq: c.Applied,
		HeadSeq: c.Head.Int64, HeadStatus: event.Status(c.HeadStatus.String), HeadNextAttempt: sqldb.At(c.HeadNext.Int64),
		DueAt: sqldb.At(c.Due.Int64), Unqueued: !c.Due.Valid,
		Counts: c.Counts, OldestEnqueuedAt: sqldb.At(c.Oldest.Int64), Diverged: c.Diverged, Skips: c.Skips, UpdatedAt: sqldb.At(c.UpdatedAt),
	}
	if c.LeaseOwner != "" {
		v.Lease = &campaign.Lease{Owner: c.LeaseOwner, Epoch: c.LeaseEpoch, ExpiresAt: sqldb.At(c.LeaseExpiry)}
	}
	if c.PausedAt.Valid {
		v.Paused = &campaign.Pause{By: c.PausedBy, At: sqldb.At(c.PausedAt.Int64), Reason: c.PausedWhy}
	}
	return v
}

// ScanCampaign reads CampaignColumns.
func ScanCampaign(row sqldb.Row) (*CampaignRow, error) {
	c := new(CampaignRow)
	return c, row.Scan(c.Dest()...)
}

// scanView reads CampaignColumns as the domain type.
func scanView(row sqldb.Row) (campaign.Campaign, error) {
	c, err := ScanCampaign(row)
	return c.View(), err
}

// Recount sets the counts of a campaign from its rows.
func (t *Tx) Recount(c *CampaignRow) error {
	c.Counts = campaign.Counts{}
	err := t.Each(func(rows sqldb.Row) error {
		var status string
		var n int64
		err := rows.Scan(&status, &n)
		*c.Count(status) += n
		return err
	}, `select status, count(*) from projection_apply_outbox where campaign_id = $1 group by status`, c.ID)
	return sqldb.Wrapf(err, "count the rows of campaign %q", c.ID)
}

// SelectChainHash reads the chain hash of an event.
const SelectChainHash = `
select chain_hash
from events
where campaign_id = $1
  and seq = $2`

// SelectLastEvent reads the last event of a campaign.
const SelectLastEvent = `
select seq, chain_hash
from events
where campaign_id = $1
order by seq desc
limit 1`

// InsertMissingRows inserts a row, due at the third argument, for each event after a seq that has none.
const InsertMissingRows = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
select e.campaign_id, e.seq, e.event_type, $3, e.recorded_at, $3
from events e
where e.campaign_id = $1
  and e.seq > $2
  and not exists (select 1 from projection_apply_outbox o where o.campaign_id = e.campaign_id and o.seq = e.seq)`
