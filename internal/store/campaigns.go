package store

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Campaign reads one campaign, with the applied seq of the watermark itself. A diverged
// campaign has the watermark of another journal: its applied seq is the one stored in this
// journal. An unknown campaign is event.ErrNotFound.
func (s *Store) Campaign(ctx context.Context, id string) (campaign.Campaign, error) {
	var c *CampaignRow
	var view campaign.Campaign
	err := s.journal.Read(ctx, func(t *Tx) (err error) {
		if c, err = t.ExistingCampaign(id); err != nil {
			return err
		}
		view = c.View()
		return t.setFindings(&view)
	})
	if err != nil {
		return campaign.Campaign{}, err
	}
	mark, err := s.WatermarkOf(ctx, id)
	if err != nil {
		return campaign.Campaign{}, err
	}
	if mark.AppliedSeq > c.HighWater && view.Diverged == "" { // or events were appended and applied in the meantime
		view.Diverged, err = s.Divergence(ctx, id, mark)
	}
	if view.Diverged != "" {
		view.ProjectionsSeq = mark.AppliedSeq
	} else {
		view.AppliedSeq = max(view.AppliedSeq, mark.AppliedSeq)
	}
	return view, err
}

// Campaigns pages through campaigns, in either direction. A page with a state filter scans a
// bounded number of them and may end early, with Partial set.
func (s *Store) Campaigns(ctx context.Context, f campaign.CampaignFilter) (event.Page[campaign.Campaign], error) {
	var page event.Page[campaign.Campaign]
	l := campaignList(f)
	err := s.journal.Read(ctx, func(t *Tx) (err error) {
		if page, err = l.Page(t, f.Cursor, f.Limit); err != nil || sqldb.Told(&page) || !campaignsBy.Asks(f) {
			return err
		}
		return campaignsBy.Total(t, &page, countCampaigns, nil, f)
	})
	if err == nil && page.Total == nil {
		var summary campaign.Summary
		if summary, err = s.Summary(ctx); err == nil {
			sqldb.Exactly(&page, summary.Campaigns.Total)
		}
	}
	return page, sqldb.Wrapf(err, "list campaigns")
}

// CampaignsInPages reads the campaigns that f selects, page by page like RowsInPages.
func (s *Store) CampaignsInPages(ctx context.Context, f campaign.CampaignFilter) iter.Seq2[[]campaign.Campaign, error] {
	return sqldb.InPages(ctx, s.journal.DB, campaignList(f), f.Cursor)
}

// The sort keys, and which campaigns the index over each has, so that an append to a campaign that is up to date
// enters one of them.
const (
	lagKey     = `applied_seq - high_water_seq`
	farLagging = `applied_seq < high_water_seq - 1`
	// waiting campaigns have events to be applied. Their key is oldest_enqueued_at.
	waiting = `oldest_enqueued_at is not null`
	// TroubleKey is campaign.Campaign.Rank without what verifying found, which is not in the campaign's
	// row.
	TroubleKey = `cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 else 4 end as bigint)`
	Troubled   = `(head_status in ('dead', 'failed') or diverged <> '')`
	untroubled = TroubleKey + ` >= 4 and not exists (select 1 from verifications v where v.campaign_id = id and v.verdict in ('drift', 'failed'))`
)

// foundColumn is the number of drifted projections of a campaign, plus unverifiableUnit times the
// number that could not be verified, plus outdatedUnit times the number of the drifted ones whose
// verification is outdated, plus unverifiedUnit times that of the others: four counts from one index lookup.
const (
	foundColumn = `,
  (select cast(coalesce(sum(case v.verdict when 'drift' then 1 + 100000000 * (` + outdated + `) else 10000 + 1000000000000 * (` + outdated + `) end), 0) as bigint)
    from verifications v
    where v.campaign_id = campaigns.campaign_id
      and v.verdict in ('drift', 'failed'))`
	unverifiableUnit = 10_000
	outdatedUnit     = 10_000 * unverifiableUnit
	unverifiedUnit   = 10_000 * outdatedUnit
)

// among is the query of the campaigns that a condition selects among the ids and sort keys of others, those in
// an index or all. However few it selects, it looks at no more than a step of them at a time.
func among(ids, step, condition string) sqldb.Ways {
	looked := `
from (` + ids + `
    limit ` + step + `
) as looked`
	ways := sqldb.BothWays(`
select ` + CampaignColumns + foundColumn + `
from (
  select id, sort_key` + looked + `
  where ` + condition + `
  order by sort_key{desc}, id{desc}
  limit $4
) as page
join campaigns on campaign_id = id
order by sort_key{desc}, id{desc}`)
	ways.Edge = new(sqldb.BothWays(`
select sort_key, id` + looked + `
where cast($1 as bigint) is not null
  and cast($3 as text) is not null
  and cast($4 as bigint) is not null
order by sort_key{desc}, id{desc}
limit 1 offset ` + step + ` - 1`))
	return ways
}

// Steps take some milliseconds each. Those in an index fetch rows in another order.
const (
	stepByID    = `3000`
	stepInIndex = `2000`
)

// byKey are the ids of the campaigns in the index of a key.
func byKey(key, indexed string) string {
	return `
    select campaign_id as id, ` + key + ` as sort_key, applied_seq, high_water_seq, head_status, diverged
    from campaigns
    where ` + indexed + `
      and ` + key + ` {>=} $1
      and (` + key + `, campaign_id) {>} ($1, $2)
    order by ` + key + `{desc}, campaign_id{desc}`
}

// idHasPart matches a substring of an id by removing it and comparing. Both databases support this, and it needs
// no escaping.
const idHasPart = `($3 = '' or replace(id, $3, '') <> id)`

// few is the limit of queries that are read whole for those in an index.
const few = `case when $3 = '' then cast($4 as bigint) else ` + stepInIndex + ` end`

var (
	campaignsByLag     = among(byKey(lagKey, farLagging), stepInIndex, idHasPart)
	campaignsByTrouble = among(`
    select id, sort_key
    from (
      select id, sort_key
      from (`+byKey(TroubleKey, Troubled)+`
        limit `+few+`
      ) as ranked
      union all
      select id, sort_key
      from (
        select distinct campaign_id as id, 3 as sort_key
        from verifications v
        where v.verdict in ('drift', 'failed')
          and (cast(3 as bigint), v.campaign_id) {>} ($1, $2)
          and exists (select 1 from campaigns c where c.campaign_id = v.campaign_id and `+TroubleKey+` >= 4)
        order by campaign_id{desc}
        limit `+few+`
      ) as found
    ) as either
    order by sort_key{desc}, id{desc}`, stepInIndex, idHasPart)
	CampaignsByAge = inOrderOfAge(`true`)
)

// inOrderOfAge reads the waiting campaigns that a condition selects, the one that waits longest first.
func inOrderOfAge(condition string) sqldb.Ways {
	return among(byKey(`oldest_enqueued_at`, waiting), stepInIndex, condition+` and `+idHasPart)
}

// byID are the ids of the campaigns that a condition selects, all with the first part of the key.
func byID(condition string) string {
	return `
    select campaign_id as id, cast($1 as bigint) as sort_key, applied_seq, high_water_seq, oldest_enqueued_at, head_status, diverged, applied_span
    from campaigns
    where campaign_id {>} $2
      and ` + condition + `
    order by campaign_id{desc}`
}

// inOrderOfID reads the campaigns that a condition selects by id. In a search those whose id begins with the text
// are first, which the index finds, at a number of their own.
func inOrderOfID(condition string, at int64) func(q string) []sqldb.Rest {
	part := func(ids string) sqldb.Ways { return among(byID(ids), stepByID, condition+` and `+idHasPart) }
	all, others := part(`true`), part(`not (campaign_id >= $3 and campaign_id < $3 || '`+beyond+`')`)
	// Each way begins at one end of those that begin with the text, and ends at the other.
	up, down := part(`campaign_id < $3 || '`+beyond+`' and $3 <= campaign_id || ''`), part(`campaign_id >= $3`)
	begin := sqldb.Ways{Up: up.Up, Down: down.Down, Edge: &sqldb.Ways{Up: up.Edge.Up, Down: down.Edge.Down}}
	return func(q string) []sqldb.Rest {
		if q == "" {
			return []sqldb.Rest{{Query: all, At: at, To: sqldb.BeyondTexts}}
		}
		return []sqldb.Rest{{Query: begin, At: at, From: before(q), To: q + beyond}, {Query: others, At: at + 1, To: sqldb.BeyondTexts}}
	}
}

const beyond = "\U0010FFFF"

func begins(id, q string) bool { return id >= q && id < q+beyond }

// before is a text before which no id is that begins with q, and after which hardly any other is before them.
func before(q string) string {
	last, size := utf8.DecodeLastRuneInString(q)
	if last--; !utf8.ValidRune(last) {
		last = 0xD7FF
	}
	return q[:len(q)-size] + string(max(last, 1)) + beyond
}

// campaignOrder is an order of campaigns: the first, those that wait, and the others by id.
type campaignOrder struct {
	first  sqldb.Ways                            // none if all wait, or are others
	number func(campaign.Campaign) (int64, bool) // of the first
	waits  []sqldb.Rest                          // by age; none if others have them
	at     int64                                 // the number of the others
	others func(q string) []sqldb.Rest
}

var campaignOrders = map[campaign.CampaignSort]campaignOrder{
	campaign.SortID:  {others: inOrderOfID(`true`, 0)},
	campaign.SortAge: {waits: []sqldb.Rest{{Query: CampaignsByAge, To: sqldb.BeyondTexts}}, at: sqldb.FarFuture, others: inOrderOfID(`not (`+waiting+`)`, sqldb.FarFuture)},
	campaign.SortLag: {
		campaignsByLag, func(c campaign.Campaign) (int64, bool) {
			lag := c.HighWaterSeq - c.AppliedSeq
			return -lag, lag > 1
		},
		[]sqldb.Rest{{Query: inOrderOfAge(`not (` + farLagging + `)`), To: sqldb.BeyondTexts}},
		sqldb.FarFuture, inOrderOfID(`not (`+farLagging+` or `+waiting+`)`, sqldb.FarFuture),
	},
	campaign.SortTrouble: {
		campaignsByTrouble, func(c campaign.Campaign) (int64, bool) { return c.Rank(), c.Rank() < campaign.RankLagging },
		[]sqldb.Rest{{Query: inOrderOfAge(untroubled), At: campaign.RankLagging, To: sqldb.BeyondTexts}},
		sqldb.FarFuture, inOrderOfID(`not (`+waiting+`) and `+untroubled, sqldb.FarFuture),
	},
}

// ScanFound reads a campaign and its foundColumn.
func ScanFound(row sqldb.Row) (c *CampaignRow, found int64, err error) {
	c = new(CampaignRow)
	err = row.Scan(append(c.Dest(), &found)...)
	return c, found, err
}

func campaignList(f campaign.CampaignFilter) *sqldb.List[campaign.Campaign] {
	sort := cmp.Or(f.Sort, campaign.SortID)
	order := campaignOrders[sort]
	return &sqldb.List[campaign.Campaign]{
		Name: string(sort) + sqldb.Towards(f.Reverse), Args: []any{f.Q}, Down: f.Reverse, Match: campaignsBy.Match(f, "q"),
		Low: []any{int64(sqldb.FarPast), ""}, High: []any{int64(math.MaxInt64), sqldb.BeyondTexts},
		Query: order.first, Rest: slices.Concat(order.waits, order.others(f.Q)),
		Scan: func(rows sqldb.Row) (campaign.Campaign, error) {
			c, found, err := ScanFound(rows)
			view := c.View()
			view.Drifted, view.Unverifiable = found%unverifiableUnit, found%outdatedUnit/unverifiableUnit
			view.OutdatedDrift, view.OutdatedFailed = found%unverifiedUnit/outdatedUnit, found/unverifiedUnit
			return view, err
		},
		Key: func(c campaign.Campaign) []any {
			if order.number != nil {
				if number, first := order.number(c); first {
					return []any{number, c.CampaignID}
				}
			}
			switch {
			case order.waits != nil && !c.OldestEnqueuedAt.IsZero():
				return []any{c.OldestEnqueuedAt.UnixMicro(), c.CampaignID}
			case f.Q != "" && !begins(c.CampaignID, f.Q):
				return []any{order.at + 1, c.CampaignID}
			}
			return []any{order.at, c.CampaignID}
		},
	}
}

// builtByID reads the campaigns of which events were applied by processes that had loaded one of the sets in a text.
// The span in a campaign's row ends with its set.
var builtByID = among(byID(`true`), stepByID, `(replace($3, ' ' || substr(applied_span, length(applied_span) - 11) || ' ', '') <> $3
    or exists (select 1 from applied_spans s where s.campaign_id = id and replace($3, ' ' || s.loaded || ' ', '') <> $3))`)

const selectSetsWith = `
select loaded
from loaded_sets
where projection = $1
  and version = $2`

// CampaignsAppliedBy pages through the campaigns of which workers applied events with a version of a projection,
// by id, as far as the journal tells. Rows that a run has replaced since are among them.
func (s *Store) CampaignsAppliedBy(ctx context.Context, f campaign.BuiltFilter) (event.Page[campaign.Campaign], error) {
	what := fmt.Sprintf("list what version %s of projection %q applied", f.Version, f.Projection)
	return Reading(ctx, s, what, func(t *Tx) (event.Page[campaign.Campaign], error) {
		sets, err := sqldb.All(t, sqldb.Column[string], selectSetsWith, f.Projection, f.Version)
		if err != nil {
			return event.Page[campaign.Campaign]{}, err
		}
		l := campaignList(campaign.CampaignFilter{})
		l.Name, l.Args, l.Rest = "built", []any{" " + strings.Join(sets, " ") + " "}, []sqldb.Rest{{Query: builtByID, To: sqldb.BeyondTexts}}
		return l.Page(t, f.Cursor, f.Limit)
	})
}

// campaignsBy selects campaigns. Their states are those of Campaign.In, and their lists select by a part of
// the id in their queries.
var campaignsBy = sqldb.FilterOf(map[string]sqldb.Condition[campaign.CampaignFilter, campaign.Campaign]{
	"q": {SQL: `replace(campaign_id, ?, '') <> campaign_id`},
	"state": {Match: func(f *campaign.CampaignFilter, c *campaign.Campaign) bool { return c.In(f.State) }, SQL: `
    ? = 'blocked' and head_status = 'dead'
    or ? = 'paused' and paused_at is not null
    or ? = 'unverifiable' and exists (select 1 from verifications v where v.campaign_id = counted.campaign_id and v.verdict = 'failed')
    or ? = 'drifted' and exists (select 1 from verifications v where v.campaign_id = counted.campaign_id and v.verdict = 'drift')
    or ? = case
      when diverged <> '' then 'diverged'
      when head_status = 'dead' or paused_at is not null then ''
      when head_status = 'failed' then 'failing'
      when exists (select 1 from verifications v where v.campaign_id = counted.campaign_id and v.verdict in ('drift', 'failed')) then ''
      when high_water_seq > applied_seq then 'lagging'
      else 'current' end`},
})

var countCampaigns = campaignsBy.Count("campaigns\n  order by campaign_id\n  limit $1", 1)

// Blocked lists the campaigns that need an operator, worst first: diverged ones, then those
// whose head is dead or failing, by waiting rows times age.
func (s *Store) Blocked(ctx context.Context, limit int) ([]campaign.Blocked, error) {
	return Reading(ctx, s, "list blocked campaigns", func(t *Tx) ([]campaign.Blocked, error) {
		blocked, err := sqldb.All(t, func(row sqldb.Row) (campaign.Blocked, error) {
			c, err := scanView(row)
			return campaign.Blocked{Campaign: c}, err
		}, SelectCampaigns+`
where failed > 0 or dead > 0 or diverged <> ''
order by diverged = '', dead = 0, (pending + processing + failed + dead) * (($1 - coalesce(oldest_enqueued_at, $1)) / 1000) desc, campaign_id
limit $2`, s.Now(), sqldb.PageLimit(limit, event.MaxPage))
		if err == nil {
			err = t.headErrors(blocked)
		}
		return blocked, err
	})
}

func (t *Tx) headErrors(blocked []campaign.Blocked) error {
	var b sqldb.Batch
	for i := range blocked {
		c := &blocked[i]
		b.Each(func(row sqldb.Row) error { return row.Scan(&c.Error, &c.Fingerprint) },
			`select last_error, fingerprint from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.CampaignID, c.HeadSeq)
	}
	return t.RunAll(&b)
}

// Paused lists the campaigns that operators paused, latest first.
func (s *Store) Paused(ctx context.Context, limit int) ([]campaign.Campaign, error) {
	return Reading(ctx, s, "list paused campaigns", func(t *Tx) ([]campaign.Campaign, error) {
		return sqldb.All(t, scanView, SelectCampaigns+`
where paused_at is not null
order by paused_at desc
limit $1`, sqldb.PageLimit(limit, event.MaxPage))
	})
}

// Serving is the SQL condition for the campaigns of a scope, and its parameters, numbered after
// those in before. It is evaluated per entry of the index on due_at, so only for campaigns with
// unapplied events.
func Serving(s campaign.Scope, before ...any) (condition string, args []any) {
	args = before
	if s.Every() {
		return "", args
	}
	var matches []string
	for _, p := range s.Patterns() {
		begin, open := strings.CutSuffix(p, "*")
		args = append(args, begin)
		id := "campaign_id"
		if open {
			id = fmt.Sprintf("substr(campaign_id, 1, %d)", utf8.RuneCountInString(begin))
		}
		matches = append(matches, fmt.Sprintf("%s = $%d", id, len(args)))
	}
	return "\n  and (" + strings.Join(matches, " or ") + ")", args
}
