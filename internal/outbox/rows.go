package outbox

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

func describeHead(r *campaign.Row, c *store.CampaignRow) {
	r.IsHead = c.Head.Valid && c.Head.Int64 == r.Seq
	if r.IsHead {
		r.BlockedBehind = c.Counts.Total() - 1
	}
}

// Row reads one row with its event, its failed attempts, the actions on it and its neighbours.
// A missing one is event.ErrNotFound, whose message says whether the event was applied.
func (q *Queue) Row(ctx context.Context, campaign string, seq int64) (campaign.RowDetail, error) {
	return q.RowWithin(ctx, campaign, seq, math.MaxInt64)
}

// RowWithin is Row without those documents of the event that are longer than limit bytes.
func (q *Queue) RowWithin(ctx context.Context, campaignID string, seq, limit int64) (campaign.RowDetail, error) {
	return store.Reading(ctx, q.Store, "", func(t *store.Tx) (d campaign.RowDetail, err error) {
		c, row, err := rowForChange(t, campaignID, seq, q.Now())
		if err != nil {
			return d, err
		}
		d.Row, d.Campaign = row, c.View()
		if d.Event, d.Sizes, _, err = t.EventWithin(campaignID, seq, limit); err != nil {
			return d, err
		}
		if d.Attempts, err = t.Attempts(campaignID, seq); err != nil {
			return d, err
		}
		if d.Rehearsal, err = rehearsal(t, campaignID, seq); err != nil {
			return d, err
		}
		if err := neighbours(t, &d, c); err != nil {
			return d, err
		}
		acts, err := store.AuditList(operator.AuditFilter{CampaignID: campaignID, Seq: seq}).Read(t, sqldb.Place{}, 20)
		d.Activity = acts.Items
		return d, err
	})
}

// queueShown is how many rows of the queue, from the head on, are shown with a row.
const queueShown = 6

const (
	rowBefore = `
select coalesce(max(seq), 0)
from projection_apply_outbox
where campaign_id = $1
  and seq < $2`

	rowAfter = `
select coalesce(min(seq), 0)
from projection_apply_outbox
where campaign_id = $1
  and seq > $2`
)

// neighbours reads the rows before and after a row in its campaign.
func neighbours(t *store.Tx, d *campaign.RowDetail, c *store.CampaignRow) error {
	var b sqldb.Batch
	one := func(into *int64, query string) {
		b.Each(func(row sqldb.Row) error { return row.Scan(into) }, query, c.ID, d.Row.Seq)
	}
	one(&d.Previous, rowBefore)
	one(&d.Next, rowAfter)
	d.Queue = []campaign.Row{}
	b.Each(func(row sqldb.Row) error {
		var of store.CampaignRow
		r, err := store.ScanRow(row, &of.Head, &of.Counts.Pending, &of.Counts.Processing, &of.Counts.Failed, &of.Counts.Dead)
		describeHead(&r, c)
		d.Queue = append(d.Queue, r)
		return err
	}, rowsOfCampaign.Up, "", int64(0), c.ID, queueShown)
	return sqldb.Wrapf(t.RunAll(&b), "read the neighbours of campaign %q seq %d", c.ID, d.Row.Seq)
}

// Rows pages through rows, in either direction. Failed and dead rows are in order of next
// attempt, all others by campaign and seq, or by f.Sort. A page scans a bounded number of rows: when few
// match it may end early, with Partial set and a cursor to continue.
func (q *Queue) Rows(ctx context.Context, f campaign.RowFilter) (event.Page[campaign.Row], error) {
	var page event.Page[campaign.Row]
	w := rowList(f)
	err := q.Journal().Read(ctx, func(t *store.Tx) (err error) {
		if page, err = w.Page(t, f.Cursor, f.Limit); err != nil || sqldb.Told(&page) {
			return err
		}
		return countMatching(t, &page, f, w)
	})
	if err == nil && page.Total == nil && !RowsBy.Asks(f, "status") {
		err = q.readTotal(ctx, &page, f.Status)
	}
	return page, sqldb.Wrapf(err, "list rows")
}

// RowsInPages reads all rows that f selects, from its cursor on and regardless of its limit: a
// few hundred at a time, each page in its own transaction. A page may be empty when no scanned
// row matched. An error is the last element.
func (q *Queue) RowsInPages(ctx context.Context, f campaign.RowFilter) iter.Seq2[[]campaign.Row, error] {
	return sqldb.InPages(ctx, q.Journal().DB, rowList(f).List, f.Cursor)
}

// SelectListed begins a query for the rows of lists, on the outbox as o joined with campaigns
// as c. ScanListed reads its rows.
const SelectListed = `
select ` + store.RowColumns + `, c.head_seq, c.pending, c.processing, c.failed, c.dead
from `

// ScanListed reads a row of SelectListed.
func ScanListed(rows sqldb.Row) (campaign.Row, error) {
	var c store.CampaignRow
	r, err := store.ScanRow(rows, &c.Head, &c.Counts.Pending, &c.Counts.Processing, &c.Counts.Failed, &c.Counts.Dead)
	describeHead(&r, &c)
	return r, err
}

var (
	rowsDead   = rowsTried(`o.status = 'dead'`, `$4`)
	rowsFailed = rowsTried(`o.status = 'failed'`, `$4`)
	rowsAlike  = rowsTried(`o.fingerprint = $4`, `$5`) // that failed with an error

	rowsOfCampaign = sqldb.BothWays(SelectListed + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where o.campaign_id = $3
  and o.seq {>} $2
  and o.campaign_id {>=} $1
order by o.seq{desc}
limit $4`)

	// The page is selected first, so that no plan scans the campaigns beside it.
	rowsAll = sqldb.BothWays(SelectListed + `(
  select ` + store.RowColumns + `
  from projection_apply_outbox o
  where (o.campaign_id, o.seq) {>} ($1, $2)
  order by o.campaign_id{desc}, o.seq{desc}
  limit $3
) as o
join campaigns c on c.campaign_id = o.campaign_id
order by o.campaign_id{desc}, o.seq{desc}`)

	// Heads that need attention are those of campaigns of the ranks 0 and 1; see troubleKey.
	rowsByAttention = sqldb.BothWays(SelectListed + `(
  select rank, ` + store.RowColumns + `
  from (
    select h.rank as rank, ` + store.RowColumns + `
    from (
      select campaign_id as id, head_seq as head, ` + store.TroubleKey + ` as rank
      from campaigns
      where ` + store.Troubled + `
        and ` + store.TroubleKey + ` < 2
        and (` + store.TroubleKey + `, campaign_id) {>=} ($1, $2)
      order by ` + store.TroubleKey + `{desc}, campaign_id{desc}
      limit cast($4 as bigint) + 1
    ) as h
    join projection_apply_outbox o on o.campaign_id = h.id and o.seq = h.head
    where (h.rank, o.campaign_id, o.seq) {>} ($1, $2, $3)
    union all
    select rank, ` + store.RowColumns + `
    from (
      select cast(2 as bigint) as rank, ` + store.RowColumns + `
      from projection_apply_outbox o
      where (o.campaign_id, o.seq) {>} (case when $1 < 2 then '' else $2 end, $3)
        and (select case when c.head_seq = o.seq and c.head_status in ('dead', 'failed') then 1 else 0 end from campaigns c where c.campaign_id = o.campaign_id) = 0
      order by o.campaign_id{desc}, o.seq{desc}
      limit $4
    ) as o
  ) as o
  order by rank{desc}, campaign_id{desc}, seq{desc}
  limit $4
) as o
join campaigns c on c.campaign_id = o.campaign_id
order by o.rank{desc}, o.campaign_id{desc}, o.seq{desc}`)

	// Processing rows exist only in campaigns that count them, at their head.
	rowsProcessing = sqldb.BothWays(SelectListed + `campaigns c cross join projection_apply_outbox o
where c.processing > 0
  and c.campaign_id {>=} $1
  and o.campaign_id = c.campaign_id
  and o.seq < c.head_seq + c.processing
  and (o.campaign_id, o.seq) {>} ($1, $2)
order by c.campaign_id{desc}, o.seq{desc}
limit $3`)
)

// rowsTried selects rows by their next attempt. Partial indexes serve only queries that repeat their
// condition verbatim: the status on SQLite, that the row was tried on PostgreSQL.
func rowsTried(condition, limit string) sqldb.Ways {
	return sqldb.BothWays(SelectListed + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where ` + condition + `
  and o.attempt_count > 0
  and (o.next_attempt_at, o.seq, o.campaign_id) {>} ($1, $2, $3)
order by o.next_attempt_at{desc}, o.seq{desc}, o.campaign_id{desc}
limit ` + limit)
}

// RowsBy selects rows. A text is searched in two of their columns.
var RowsBy = sqldb.FilterOf(map[string]sqldb.Condition[campaign.RowFilter, campaign.Row]{
	"q": {SQL: `replace(campaign_id, ?, '') <> campaign_id or replace(last_error, ?, '') <> last_error`, Match: (*campaign.RowFilter).Finds},
})

// rowWalk is a list of rows, and how they are counted.
type rowWalk struct {
	*sqldb.List[campaign.Row]
	by    string // the field of the filter by which both queries select; empty for none
	count string
}

func rowList(f campaign.RowFilter) rowWalk {
	w := rowWalk{count: countAll, List: &sqldb.List[campaign.Row]{
		Name: "seq", Query: rowsAll, Scan: ScanListed, Down: f.Reverse,
		Low: []any{"", int64(sqldb.FarPast)}, High: []any{sqldb.BeyondTexts, int64(sqldb.FarFuture)},
		Key: func(r campaign.Row) []any { return []any{r.CampaignID, r.Seq} },
	}}
	switch {
	case f.CampaignID != "":
		w.by, w.Query, w.count, w.Args = "campaign", rowsOfCampaign, countOfCampaign, []any{f.CampaignID}
		w.Low[0], w.High[0] = f.CampaignID, f.CampaignID
	case f.Fingerprint != "" && (f.Status == event.Dead || f.Status == event.Failed):
		w.by, w.count, w.Args = "fingerprint", countAlike, []any{f.Fingerprint}
		byDue(w.List, rowsAlike)
	case f.Status == event.Dead:
		w.by, w.count = "status", countDead
		byDue(w.List, rowsDead)
	case f.Status == event.Failed:
		w.by, w.count = "status", countFailed
		byDue(w.List, rowsFailed)
	case f.Status == event.Processing:
		w.by, w.Query, w.count = "status", rowsProcessing, ""
	case f.Status == "" && f.Sort == campaign.SortAttention:
		w.Name, w.Query = "attention", rowsByAttention
		w.Low, w.High = []any{int64(sqldb.FarPast), "", int64(sqldb.FarPast)}, []any{int64(sqldb.FarFuture), sqldb.BeyondTexts, int64(sqldb.FarFuture)}
		w.Key = func(r campaign.Row) []any { return []any{r.Rank(), r.CampaignID, r.Seq} }
	}
	w.Name += sqldb.Towards(w.Down)
	w.Match = RowsBy.Match(f, w.by)
	return w
}

func byDue(l *sqldb.List[campaign.Row], query sqldb.Ways) {
	l.Name, l.Query = "due", query
	l.Low, l.High = []any{int64(sqldb.FarPast), int64(sqldb.FarPast), ""}, []any{int64(sqldb.FarFuture), int64(sqldb.FarFuture), sqldb.BeyondTexts}
	l.Key = func(r campaign.Row) []any { return []any{r.NextAttemptAt.UnixMicro(), r.Seq, r.CampaignID} }
}

var (
	countDead       = RowsBy.Count(fmt.Sprintf(triedOf, `o.status = 'dead'`), 1)
	countFailed     = RowsBy.Count(fmt.Sprintf(triedOf, `o.status = 'failed'`), 1)
	countAlike      = RowsBy.Count(fmt.Sprintf(triedOf, `o.fingerprint = $2`), 2)
	countOfCampaign = RowsBy.Count(`projection_apply_outbox o
  where o.campaign_id = $2
  order by o.seq
  limit $1`, 2)
	countAll = RowsBy.Count(`projection_apply_outbox o
  order by o.campaign_id, o.seq
  limit $1`, 1)
)

// triedOf ends a count in the order of rowsTried.
const triedOf = `projection_apply_outbox o
  where %s
    and o.attempt_count > 0
  order by o.next_attempt_at, o.seq, o.campaign_id
  limit $1`

// countMatching counts the rows that f selects. It leaves out lists whose total is in the
// shared summary, and filtered lists of processing rows, which are found by walking the
// campaigns.
func countMatching(t *store.Tx, page *event.Page[campaign.Row], f campaign.RowFilter, w rowWalk) error {
	switch {
	case !RowsBy.Asks(f, "status"), w.count == "":
		return nil
	case !RowsBy.Asks(f, "status", "campaign"):
		c, found, err := t.Campaign(f.CampaignID)
		if err == nil && found {
			sqldb.Exactly(page, countOf(c.Counts, f.Status))
		}
		return err
	case f.Q != "" && f.Shown != nil:
		return countShown(t, page, w)
	}
	return RowsBy.Total(t, page, w.count, w.Args, f, w.by)
}

// countShown counts rows by redacted text, which no query can do.
func countShown(t *store.Tx, page *event.Page[campaign.Row], w rowWalk) error {
	all, err := w.Read(t, sqldb.Place{}, sqldb.CountMost)
	if err == nil {
		page.TotalCapped = all.Ending != sqldb.AtEnd
		sqldb.Exactly(page, int64(len(all.Items)))
	}
	return err
}

// readTotal takes the total of all rows, or of one status, from the shared summary.
func (q *Queue) readTotal(ctx context.Context, page *event.Page[campaign.Row], status event.Status) error {
	summary, err := q.Summary(ctx)
	if err == nil {
		sqldb.Exactly(page, countOf(summary.Counts, status))
	}
	return err
}

func countOf(c campaign.Counts, status event.Status) int64 {
	if status == "" {
		return c.Total()
	}
	return c.Of(status)
}
