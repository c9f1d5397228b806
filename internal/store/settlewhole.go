package store

import (
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// settleCurrent is the statement that settles campaigns of which all events are applied, on condition that
// their rows are as the claims left them. What differs between campaigns is given as SQL.
func settleCurrent(from, id, epoch, highWater, applied, span string) string {
	return `
update campaigns
set applied_seq = high_water_seq, head_seq = null, head_status = null, head_next_attempt_at = null, oldest_enqueued_at = null, due_at = null,
  processing = 0, lease_owner = '', lease_expires_at = 0, applied_span = ` + span + `, updated_at = $2` + from + `
where campaign_id = ` + id + `
  and lease_owner = $1
  and lease_epoch = ` + epoch + `
  and high_water_seq = ` + highWater + `
  and applied_seq = ` + applied + `
  and processing = high_water_seq - applied_seq
  and pending = 0
  and failed = 0
  and dead = 0
  and diverged = ''`
}

var (
	settleOne = settleCurrent("", "$3", "$4", "$5", "$6", "$7")

	// Statements cost PostgreSQL more than rows.
	settleSeveral = settleCurrent(`
from unnest(cast($3 as text[]), cast($4 as bigint[]), cast($5 as bigint[]), cast($6 as bigint[]), cast($7 as text[])) as k(id, epoch, high_water, applied, span)`,
		"k.id", "k.epoch", "k.high_water", "k.applied", "k.span") + `
returning campaign_id`
)

// lockInOrder locks campaigns, in order of id, so that transactions cannot deadlock.
const lockInOrder = `
select campaign_id
from campaigns
where campaign_id = any(cast($1 as text[]))
order by campaign_id
for update`

// wholly is whether the row is that of a claim of all events that the campaign waits for, and nothing
// but their number is to be remembered of it.
func (c *CampaignRow) wholly() bool {
	return c.Counts == campaign.Counts{Processing: c.HighWater - c.Applied} && c.Crashes == 0 && c.Skips == 0 && c.Diverged == ""
}

// SettleWhole settles campaigns under the claims of one worker that the rows are of, once all their events are
// applied, without reading them again. It returns those that it settled. Nothing is done to others, where the
// claim or the campaign is not as it was: events were appended, the lease was lost.
func (t *Tx) SettleWhole(rows []*CampaignRow, by Applier, now int64) (done map[string]bool, err error) {
	done = make(map[string]bool, len(rows))
	closed := make(map[string]*span)
	var ids, spans []string
	var epochs, ends, applied []int64
	for _, row := range rows {
		if !row.wholly() {
			continue
		}
		c := *row
		c.Applied = c.HighWater
		closed[c.ID] = c.recordSpan(row.Applied, by, now)
		if t.Dialect().OneWriter {
			n, err := t.Exec(settleOne, by.Worker, now, c.ID, c.LeaseEpoch, c.HighWater, row.Applied, c.span)
			if err != nil {
				return nil, sqldb.Wrapf(err, "campaign %q", c.ID)
			}
			done[c.ID] = n > 0
			continue
		}
		ids, epochs, ends, applied, spans = append(ids, c.ID), append(epochs, c.LeaseEpoch), append(ends, c.HighWater), append(applied, row.Applied), append(spans, c.span)
	}
	if len(ids) > 0 {
		ids, err = sqldb.All(t, sqldb.Column[string], settleSeveral, by.Worker, now, ids, epochs, ends, applied, spans)
		for _, id := range ids {
			done[id] = true
		}
	}
	var b sqldb.Batch
	for id := range done {
		if p := closed[id]; p != nil && done[id] {
			p.insertInto(&b, id)
		}
	}
	if err == nil {
		err = t.RunAll(&b)
	}
	return done, err
}

// LockInOrder locks campaigns where several transactions write at a time.
func (t *Tx) LockInOrder(ids []string) error {
	if t.Dialect().OneWriter {
		return nil
	}
	return t.Each(func(sqldb.Row) error { return nil }, lockInOrder, ids)
}
