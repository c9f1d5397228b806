package runs

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const cursorColumns = `projection, applied_seq, generation, state, paused_by, paused_at, reason, updated_at, applied_at, built`

// scanCursor reads a stored cursor. extra are the destinations of columns after cursorColumns.
func scanCursor(row sqldb.Row, extra ...any) (campaign.Cursor, error) {
	var c campaign.Cursor
	var by, reason, built string
	var paused sql.NullInt64
	columns := []any{&c.Projection, &c.AppliedSeq, &c.Generation, &c.State, &by, &paused, &reason, sqldb.ScanTime(&c.ChangedAt), sqldb.ScanTimeOrNil(&c.LastAppliedAt), &built}
	err := row.Scan(append(columns, extra...)...)
	c.Paused, c.Replayed = readmodel.PauseOf(paused, by, reason), campaign.ParseReplayed(built)
	if c.Generation > 1 && c.Follows() && c.LastAppliedAt != nil && c.LastAppliedAt.Equal(c.ChangedAt) { // a resume keeps when it was last applied
		c.RebuiltAt = c.ChangedAt
	}
	return c, err
}

// settleCursor completes a cursor with the state of the projection as a whole, and of the campaign: how many
// events it has, and when it was created.
func settleCursor(c *campaign.Cursor, p campaign.ProjectionInfo, v readmodel.Version, highWater, created int64) {
	// Where a pause for all is not recorded, the campaign has not moved since.
	if v.Pause != nil && (c.State == campaign.CursorLive || c.State == campaign.CursorPaused) {
		c.State, c.PausedForAll = campaign.CursorPaused, true
		if c.Paused == nil {
			c.Paused = v.Pause
		}
	}
	c.LagEvents = max(0, highWater-c.AppliedSeq)
	if f := c.Failure; f != nil && f.Seq == c.AppliedSeq+1 {
		c.Attempts = f.Attempts
	}
	c.Version = p.Version
	from := sqldb.At(created)
	if c.RebuiltAt.After(from) {
		from = c.RebuiltAt
	}
	c.RowsBuilt = v.RowsOf(p.Version, from, c.LastAppliedAt)
}

// setNotLoaded marks the cursor of a projection that is not loaded: no version is to be compared with those
// that built its rows.
func setNotLoaded(c *campaign.Cursor) {
	c.NotLoaded, c.RowsBuilt = true, campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{}}
}

const (
	selectCursors = `
select ` + cursorColumns + `
from projection_cursors
where campaign_id = $1`

	selectLastApplied = `
select updated_at
from projection_watermarks
where campaign_id = $1
  and applied_seq > 0`
)

// Cursors returns the position of each of the loaded projections in a campaign, in their order, and then
// of those that are not loaded and lack events. A projection that was never paused or quarantined has no
// cursor of its own: its position is the watermark. An unknown campaign is event.ErrNotFound.
func (rs *Runs) Cursors(ctx context.Context, campaignID string, loaded []campaign.ProjectionInfo) ([]campaign.Cursor, error) {
	var mark readmodel.Watermark
	var applied *time.Time // when the watermark last advanced
	stored := make(map[string]campaign.Cursor)
	var all []campaign.CampaignCursor
	versions := make(map[string]readmodel.Version)
	err := rs.readModel(ctx, func(t *sqldb.Tx) error {
		var b sqldb.Batch
		b.Each(func(row sqldb.Row) (err error) {
			mark, err = readmodel.ScanWatermark(row)
			return err
		}, readmodel.SelectWatermark, campaignID)
		b.Each(func(row sqldb.Row) error { return row.Scan(sqldb.ScanTimeOrNil(&applied)) }, selectLastApplied, campaignID)
		b.Each(func(row sqldb.Row) error {
			c, err := scanCursor(row)
			stored[c.Projection] = c
			return err
		}, selectCursors, campaignID)
		b.Each(readmodel.CollectVersions(versions), readmodel.SelectVersions)
		if err := t.RunAll(&b); err != nil {
			return err
		}
		for _, p := range loaded {
			c, ok := stored[p.Name]
			if !ok {
				c = campaign.Cursor{Projection: p.Name, Generation: 1, State: campaign.CursorLive}
			}
			if c.Follows() {
				c.AppliedSeq, c.LastAppliedAt = mark.AppliedSeq, applied
			}
			all = append(all, campaign.CampaignCursor{CampaignID: campaignID, Cursor: c})
			delete(stored, p.Name)
		}
		return failuresOf(t, all)
	})
	if err != nil {
		return nil, fmt.Errorf("read the cursors of campaign %q: %w", campaignID, err)
	}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if c := stored[name]; !c.Follows() {
			all = append(all, campaign.CampaignCursor{CampaignID: campaignID, Cursor: c})
		}
	}
	by, err := rs.core.AppliedBy(ctx, campaignID)
	if err != nil {
		return nil, err
	}
	return reading(ctx, rs, "", func(t *tx) ([]campaign.Cursor, error) {
		if _, err := t.ExistingCampaign(campaignID); err != nil {
			return nil, err
		}
		err := t.measureLag(loaded, versions, all, rs.core.Now())
		cursors := make([]campaign.Cursor, 0, len(all))
		for i, c := range all {
			if i < len(loaded) {
				c.SetBuilt(versions[c.Projection].Installed, by[c.Projection])
			} else {
				setNotLoaded(&c.Cursor)
			}
			if i < len(loaded) || c.LagEvents > 0 {
				cursors = append(cursors, c.Cursor)
			}
		}
		return cursors, err
	})
}

const (
	// The order makes planners use the index of cursors that are not live.
	anyHeld = `
select 1
from projection_versions v
where v.paused_at is not null
  or (
    select c.campaign_id
    from projection_cursors c
    where c.projection = v.projection
      and c.state <> 'live'
    order by c.campaign_id
    limit 1) is not null
limit 1`

	// selectHeld also reads projections that are paused for all campaigns and were live in this one
	// since it last moved.
	selectHeld = `
select ` + cursorColumns + `, campaign_id
from projection_cursors
where campaign_id = $1
  and state || '' <> 'live'
union all
select v.projection, coalesce(w.applied_seq, 0), coalesce(c.generation, 1), 'live', '', cast(null as bigint), '', coalesce(c.updated_at, 0),
  case when w.applied_seq > 0 then w.updated_at end, coalesce(c.built, ''), cast($1 as text)
from projection_versions v
left join projection_watermarks w on w.campaign_id = $1
left join projection_cursors c on c.campaign_id = $1 and c.projection = v.projection
where v.paused_at is not null
  and coalesce(c.state, 'live') = 'live'`
)

// Held returns, by campaign, the cursors of projections that are not live in it: of the loaded ones in
// their order, and then of those that are not loaded. If all are live everywhere, which is the usual case, it runs a single query.
func (rs *Runs) Held(ctx context.Context, loaded []campaign.ProjectionInfo, campaigns ...string) (map[string][]campaign.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, heldLimit)
	defer cancel()
	held := make(map[string][]campaign.Cursor, len(campaigns))
	for _, id := range campaigns {
		held[id] = []campaign.Cursor{}
	}
	var all []campaign.CampaignCursor
	versions := make(map[string]readmodel.Version)
	err := rs.readModel(ctx, func(t *sqldb.Tx) error {
		if some, err := t.One([]any{new(int64)}, anyHeld); err != nil || !some {
			return err
		}
		var b sqldb.Batch
		b.Each(readmodel.CollectVersions(versions), readmodel.SelectVersions)
		for id := range held {
			b.Each(func(row sqldb.Row) error {
				c, err := scanCampaignCursor(row)
				all = append(all, c)
				return err
			}, selectHeld, id)
		}
		if err := t.RunAll(&b); err != nil {
			return err
		}
		return failuresOf(t, all)
	})
	if err == nil && len(all) > 0 {
		err = rs.read(ctx, func(t *tx) error { return t.measureLag(loaded, versions, all, rs.core.Now()) })
	}
	if err != nil {
		return nil, fmt.Errorf("look for projections that are not live in campaigns: %w", err)
	}
	order := make(map[string]int, len(loaded))
	for i, p := range loaded {
		order[p.Name] = i - len(loaded)
	}
	slices.SortStableFunc(all, func(a, b campaign.CampaignCursor) int {
		return cmp.Or(order[a.Projection]-order[b.Projection], cmp.Compare(a.Projection, b.Projection))
	})
	for _, c := range all {
		if _, isLoaded := order[c.Projection]; isLoaded || c.LagEvents > 0 {
			if !isLoaded {
				setNotLoaded(&c.Cursor)
			}
			held[c.CampaignID] = append(held[c.CampaignID], c.Cursor)
		}
	}
	return held, nil
}

// AddHeld sets the projections that lack applied events.
func (rs *Runs) AddHeld(ctx context.Context, loaded []campaign.ProjectionInfo, events []search.EventHit) error {
	campaigns := make([]string, len(events))
	for i, e := range events {
		campaigns[i] = e.CampaignID
	}
	held, err := rs.Held(ctx, loaded, campaigns...)
	if err != nil {
		return err
	}
	for i := range events {
		e := &events[i]
		e.Held = []campaign.Cursor{}
		if e.State == search.EventApplied {
			e.Held = append(e.Held, campaign.Lacking(held[e.CampaignID], e.Seq)...)
		}
	}
	return nil
}

// ageCursors sets the age of the first event that each cursor lacks.
func (t *tx) ageCursors(cursors []campaign.CampaignCursor, now int64) error {
	var b sqldb.Batch
	for i := range cursors {
		c := &cursors[i]
		if c.LagEvents == 0 {
			continue
		}
		b.Each(func(row sqldb.Row) error {
			var recorded time.Time
			err := row.Scan(sqldb.ScanTime(&recorded))
			c.LagSeconds = max(0, sqldb.At(now).Sub(recorded).Seconds())
			return err
		}, store.SelectAppended, c.CampaignID, c.AppliedSeq+1)
	}
	return t.RunAll(&b)
}

// fillCatchUpRuns sets the runs that cursors which are behind depend on.
func (t *tx) fillCatchUpRuns(cursors []campaign.CampaignCursor, versions map[string]readmodel.Version) error {
	var behind []behindCursor
	var of []*campaign.CampaignCursor
	for i := range cursors {
		c := &cursors[i]
		if v := versions[c.Projection]; c.State == campaign.CursorBehind && v.Pause == nil {
			behind = append(behind, behindCursor{c.Projection, c.CampaignID, c.AppliedSeq, c.ChangedAt.UnixMicro(), v.Version})
			of = append(of, c)
		}
	}
	fates, err := t.catchUpRuns(behind)
	for i := range of {
		of[i].RunID, of[i].BlockedByRun = fates[i].run, fates[i].blockedBy
	}
	return err
}

// BuiltBy pages through the campaigns of which a version of a projection made rows that are still there, with
// their events, by id. Where a run alone made them, a campaign is not among them. A page may have few of them
// where a run has replaced rows since.
func (rs *Runs) BuiltBy(ctx context.Context, f campaign.BuiltFilter, loaded []campaign.ProjectionInfo) (page event.Page[campaign.BuiltCampaign], err error) {
	p, err := loadedAs(f.Projection, loaded)
	if err != nil {
		return page, err
	}
	applied, err := rs.core.CampaignsAppliedBy(ctx, f)
	page = event.Page[campaign.BuiltCampaign]{Items: []campaign.BuiltCampaign{}, NextCursor: applied.NextCursor, PrevCursor: applied.PrevCursor, Partial: applied.Partial}
	for _, c := range applied.Items {
		var cursors []campaign.Cursor
		if err == nil {
			cursors, err = rs.Cursors(ctx, c.CampaignID, []campaign.ProjectionInfo{p})
		}
		for _, one := range cursors {
			if built := one.Built.Of(f.Version); one.Projection == p.Name && len(built) > 0 {
				page.Items = append(page.Items, campaign.BuiltCampaign{CampaignID: c.CampaignID, Ranges: built})
			}
		}
	}
	return page, err
}

var cursorsAside = sqldb.BothWays(`
select ` + cursorColumns + `, campaign_id
from projection_cursors
where campaign_id {>} $1
  and projection = $2
  and state <> 'live'
order by campaign_id{desc}
limit $3`)

var cursorsBy = sqldb.FilterOf[campaign.CursorFilter, campaign.CampaignCursor](nil)

// ProjectionCursors pages through the campaigns in which one of the projections is not live, by id.
// Campaigns in a pause for all are included once they have events that the projection lacks. Any other
// projection is event.ErrNotFound.
func (rs *Runs) ProjectionCursors(ctx context.Context, f campaign.CursorFilter, projections []campaign.ProjectionInfo) (event.Page[campaign.CampaignCursor], error) {
	var page event.Page[campaign.CampaignCursor]
	p, err := loadedAs(f.Projection, projections)
	if err != nil {
		return page, err
	}
	l := &sqldb.List[campaign.CampaignCursor]{
		Name: "cursors", Query: cursorsAside, Args: []any{f.Projection}, Scan: scanCampaignCursor, Match: cursorsBy.Match(f),
		Low: []any{""}, High: []any{sqldb.BeyondTexts},
		Key: func(c campaign.CampaignCursor) []any { return []any{c.CampaignID} },
	}
	versions := make(map[string]readmodel.Version)
	err = rs.readModel(ctx, func(t *sqldb.Tx) (err error) {
		if page, err = l.Page(t, f.Cursor, f.Limit); err != nil {
			return err
		}
		sqldb.Told(&page)
		if err := t.Each(readmodel.CollectVersions(versions), readmodel.SelectVersions); err != nil {
			return err
		}
		return failuresOf(t, page.Items)
	})
	if err == nil {
		err = rs.read(ctx, func(t *tx) error { return t.measureLag(projections, versions, page.Items, rs.core.Now()) })
	}
	for i := range page.Items {
		if p.NotLoaded {
			setNotLoaded(&page.Items[i].Cursor)
		}
	}
	return page, sqldb.Wrapf(err, "list the cursors of projection %q", f.Projection)
}

func scanCampaignCursor(row sqldb.Row) (c campaign.CampaignCursor, err error) {
	c.Cursor, err = scanCursor(row, &c.CampaignID)
	return c, err
}

func loadedAs(name string, loaded []campaign.ProjectionInfo) (campaign.ProjectionInfo, error) {
	for _, p := range loaded {
		if p.Name == name {
			return p, nil
		}
	}
	return campaign.ProjectionInfo{}, event.NotFound("there is no projection %q", name)
}

const selectOpenFailures = `
select seq, event_type, message, fingerprint, attempts, last_at
from failures
where campaign_id = $1
  and projection = $2
  and status = 'open'
order by seq desc`

// failuresOf sets the last failure of each projection.
func failuresOf(t *sqldb.Tx, cursors []campaign.CampaignCursor) error {
	var b sqldb.Batch
	for i := range cursors {
		c := &cursors[i]
		b.Each(func(row sqldb.Row) error {
			f := new(campaign.CursorFailure)
			c.Failure = f
			return row.Scan(&f.Seq, &f.EventType, &f.Message, &f.Fingerprint, &f.Attempts, sqldb.ScanTime(&f.At))
		}, selectOpenFailures, c.CampaignID, c.Projection)
	}
	return t.RunAll(&b)
}

// selectExtent reads how many events a campaign has, since when, and at least how many of them each
// projection lacks: those of a diverged one have applied events of another journal.
const selectExtent = `
select high_water_seq, created_at, case when diverged = '' then 0 else high_water_seq - applied_seq end
from campaigns
where campaign_id = $1`

// measureLag completes cursors from the journal. It must be read after them, so that no cursor is
// ahead of it.
func (t *tx) measureLag(loaded []campaign.ProjectionInfo, versions map[string]readmodel.Version, cursors []campaign.CampaignCursor, now int64) error {
	loads, err := t.Loads()
	if err != nil {
		return err
	}
	for name, v := range versions {
		v.Loads = loads[name]
		versions[name] = v
	}
	var b sqldb.Batch
	for i := range cursors {
		c := &cursors[i].Cursor
		p, _ := loadedAs(c.Projection, loaded) // without a version if it is not loaded
		b.Each(func(row sqldb.Row) error {
			var highWater, created, lacked int64
			err := row.Scan(&highWater, &created, &lacked)
			settleCursor(c, p, versions[c.Projection], highWater, created)
			c.LagEvents = max(c.LagEvents, lacked)
			return err
		}, selectExtent, cursors[i].CampaignID)
	}
	if err := t.RunAll(&b); err != nil {
		return err
	}
	if err := t.ageCursors(cursors, now); err != nil {
		return err
	}
	return t.fillCatchUpRuns(cursors, versions)
}

const (
	// asideWindow is the maximum number of cursors and failures that are counted.
	asideWindow = 10_000

	countAside = `
select c.state, count(*)
from (
  select state
  from projection_cursors
  where projection = $1
    and state <> 'live'
  order by campaign_id
  limit $2
) as c
group by c.state`

	// The last column counts campaigns blocked until the projection has passed the event.
	countOpenFailures = `
select count(*), count(distinct case when coalesce((
    select c.state
    from projection_cursors c
    where c.campaign_id = f.campaign_id
      and c.projection = f.projection), 'live') = 'live' then f.campaign_id end)
from (
  select campaign_id, projection
  from failures
  where status = 'open'
    and projection = $1
  order by fingerprint, id
  limit $2
) as f`
)

// WithUnloaded returns the projections that this process has loaded, and then those that events were
// applied with earlier, by name. It marks those that events are applied without now.
func (rs *Runs) WithUnloaded(ctx context.Context, loaded []campaign.ProjectionInfo) ([]campaign.ProjectionInfo, error) {
	left, err := rs.core.ReadModel().Left(ctx)
	all := slices.Clone(loaded)
	for _, name := range left {
		i := slices.IndexFunc(all, func(p campaign.ProjectionInfo) bool { return p.Name == name })
		if i < 0 {
			i, all = len(all), append(all, campaign.ProjectionInfo{Name: name, Tables: []string{}, EventTypes: []string{}})
		}
		all[i].NotLoaded = true
	}
	return all, err
}

// DescribeProjections adds the state in the database to projections: who paused them, in
// how many campaigns each is not live, behind or blocking, its open failures, and whether its rows
// were built by another version of its definition.
func (rs *Runs) DescribeProjections(ctx context.Context, loaded []campaign.ProjectionInfo) ([]campaign.ProjectionInfo, error) {
	summary, err := rs.core.Summary(ctx)
	if err != nil {
		return nil, err
	}
	described := make([]campaign.ProjectionInfo, len(loaded))
	err = rs.readModel(ctx, func(t *sqldb.Tx) error {
		versions := make(map[string]readmodel.Version)
		var b sqldb.Batch
		b.Each(readmodel.CollectVersions(versions), readmodel.SelectVersions)
		aside := make([]map[string]int64, len(loaded))
		for i, p := range loaded {
			aside[i], described[i] = make(map[string]int64), p
			b.Each(func(row sqldb.Row) error { return row.Scan(&described[i].OpenFailures, &described[i].Blocking) }, countOpenFailures, p.Name, asideWindow)
			b.Each(sqldb.CollectMap(aside[i]), countAside, p.Name, asideWindow)
		}
		if err := t.RunAll(&b); err != nil {
			return err
		}
		for i, p := range described {
			v := versions[p.Name]
			v.Loads = summary.Installed[p.Name].Loads
			describe(&p, v, aside[i])
			for _, h := range summary.Held {
				if h.Projection == p.Name {
					p.RunID, p.BlockedByRun = h.RunID, h.BlockedByRun
				}
			}
			p.Cost = summary.CostOf(p.Name, p.Version)
			p.CursorsBehind = summary.Campaigns.Lagging + p.Quarantined + p.PausedCampaigns + p.Behind
			if p.Paused != nil { // counted were those that have advanced since
				p.PausedCampaigns = summary.Campaigns.Total
			}
			described[i] = p
		}
		return nil
	})
	return described, sqldb.Wrapf(err, "describe projections")
}

func describe(p *campaign.ProjectionInfo, v readmodel.Version, aside map[string]int64) {
	p.Paused = v.Pause
	p.RowsBuilt = v.Rows(p.Version)
	p.Quarantined, p.PausedCampaigns, p.Behind = aside[campaign.CursorQuarantined], aside[campaign.CursorPaused], aside[campaign.CursorBehind]
	p.CountsCapped = p.OpenFailures >= asideWindow || p.Quarantined+p.PausedCampaigns+p.Behind >= asideWindow
}
