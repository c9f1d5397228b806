package store

import (
	"context"
	"fmt"
	"iter"
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

// The sort keys, and which campaigns the index over each has: those that are behind, so that a campaign
// enters it with an append and leaves it when all is applied. The others have the last key of all.
const (
	lagKey  = `applied_seq - high_water_seq`
	lagging = `applied_seq < high_water_seq`
	// waiting campaigns have rows. Their key by age is oldest_enqueued_at.
	waiting = `oldest_enqueued_at is not null`
	// TroubleKey is campaign.Campaign.Rank without what verifying found, which is not in the campaign's
	// row.
	TroubleKey = `cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 when oldest_enqueued_at is not null then 4 else 5 end as bigint)`
	Troubled   = `(oldest_enqueued_at is not null or diverged <> '')`
	restRank   = 5
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

// byKey is the query of the campaigns in the index of a key, sorted by it. The keys are sorted first and
// the rows fetched afterwards, so that the sort carries two columns instead of all.
func byKey(key, indexed string) sqldb.Ways {
	return sqldb.BothWays(`
select ` + CampaignColumns + foundColumn + `
from (
  select campaign_id as id, ` + key + ` as sort_key
  from campaigns
  where ` + indexed + `
    and ` + key + ` {>=} $1
    and (` + key + `, campaign_id) {>} ($1, $2)
    and ` + idHasPart + `
  order by ` + key + `{desc}, campaign_id{desc}
  limit $4
) as page
join campaigns on campaign_id = id
order by sort_key{desc}, id{desc}`)
}

// idHasPart matches a substring of an id by removing it and comparing. Both databases support
// this, and it needs no escaping.
const idHasPart = `($3 = '' or replace(campaign_id, $3, '') <> campaign_id)`

var (
	CampaignsByLag     = byKey(lagKey, lagging)
	campaignsByAge     = byKey(`oldest_enqueued_at`, waiting)
	campaignsByTrouble = sqldb.BothWays(`
select ` + CampaignColumns + foundColumn + `
from (
  select id, sort_key
  from (
    select id, sort_key
    from (
      select campaign_id as id, ` + TroubleKey + ` as sort_key
      from campaigns
      where ` + Troubled + `
        and ` + TroubleKey + ` {>=} $1
        and (` + TroubleKey + `, campaign_id) {>} ($1, $2)
        and (` + TroubleKey + ` < 4 or not exists (select 1 from verifications v where v.campaign_id = campaigns.campaign_id and v.verdict in ('drift', 'failed')))
        and ` + idHasPart + `
      order by ` + TroubleKey + `{desc}, campaign_id{desc}
      limit $4
    ) as ranked
    union all
    select id, sort_key
    from (
      select distinct campaign_id as id, 3 as sort_key
      from verifications v
      where v.verdict in ('drift', 'failed')
        and (cast(3 as bigint), v.campaign_id) {>} ($1, $2)
        and ($3 = '' or replace(v.campaign_id, $3, '') <> v.campaign_id)
        and exists (select 1 from campaigns c where c.campaign_id = v.campaign_id and ` + TroubleKey + ` >= 4)
      order by campaign_id{desc}
      limit $4
    ) as found
  ) as either
  order by sort_key{desc}, id{desc}
  limit $4
) as page
join campaigns on campaign_id = id
order by sort_key{desc}, id{desc}`)
	campaignsByID = byID(``)

	// The campaigns that the queries by lag, age and trouble leave out.
	upToDate   = byID(`not (` + lagging + `) and `)
	withNone   = byID(`not (` + waiting + `) and `)
	untroubled = byID(`not ` + Troubled + `
  and not exists (select 1 from verifications v where v.campaign_id = campaigns.campaign_id and v.verdict in ('drift', 'failed'))
  and `)
)

// byID is the query of the campaigns that a condition selects, sorted by id.
func byID(condition string) sqldb.Ways {
	return sqldb.BothWays(`
select ` + CampaignColumns + foundColumn + `
from campaigns
where campaign_id {>} $2
  and cast($1 as bigint) is not null
  and ` + condition + idHasPart + `
order by campaign_id{desc}
limit $4`)
}

// ScanFound reads a campaign and its foundColumn.
func ScanFound(row sqldb.Row) (c *CampaignRow, found int64, err error) {
	c = new(CampaignRow)
	err = row.Scan(append(c.Dest(), &found)...)
	return c, found, err
}

func campaignList(f campaign.CampaignFilter) *sqldb.List[campaign.Campaign] {
	l := &sqldb.List[campaign.Campaign]{
		Name: string(f.Sort), Query: campaignsByID, Args: []any{f.Q}, Down: f.Reverse, Match: campaignsBy.Match(f, "q"),
		Low: []any{int64(0), ""}, High: []any{int64(0), sqldb.BeyondTexts},
		Scan: func(rows sqldb.Row) (campaign.Campaign, error) {
			c, found, err := ScanFound(rows)
			view := c.View()
			view.Drifted, view.Unverifiable = found%unverifiableUnit, found%outdatedUnit/unverifiableUnit
			view.OutdatedDrift, view.OutdatedFailed = found%unverifiedUnit/outdatedUnit, found/unverifiedUnit
			return view, err
		},
	}
	number := func(campaign.Campaign) int64 { return 0 }
	switch f.Sort {
	case campaign.SortLag:
		l.Query, l.Rest = CampaignsByLag, &sqldb.Rest{Query: upToDate}
		number = func(c campaign.Campaign) int64 { return min(c.AppliedSeq-c.HighWaterSeq, 0) }
	case campaign.SortAge:
		l.Query, l.Rest = campaignsByAge, &sqldb.Rest{Query: withNone, At: sqldb.FarFuture}
		number = ageOf
	case campaign.SortTrouble:
		l.Query, l.Rest = campaignsByTrouble, &sqldb.Rest{Query: untroubled, At: restRank}
		number = campaign.Campaign.Rank
	default:
		l.Name = string(campaign.SortID)
	}
	if l.Name != string(campaign.SortID) {
		l.Low[0], l.High[0] = int64(sqldb.FarPast), int64(sqldb.FarFuture)
	}
	l.Key = func(c campaign.Campaign) []any { return []any{number(c), c.CampaignID} }
	l.Name += sqldb.Towards(l.Down)
	return l
}

// ageOf is a campaign's key when sorted by age.
func ageOf(c campaign.Campaign) int64 {
	if c.OldestEnqueuedAt.IsZero() {
		return sqldb.FarFuture
	}
	return c.OldestEnqueuedAt.UnixMicro()
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
