package readmodel

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const recordFailed = `
insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at)
values ($1, $2, $3, $4, $5, $6, 1, $7, $7)
on conflict (campaign_id, projection, seq) where status = 'open' do update
set attempts = failures.attempts + 1, last_at = excluded.last_at, message = excluded.message, fingerprint = excluded.fingerprint
returning attempts`

const moreOpenFailures = `
update projection_watermarks
set open_failures = open_failures + 1
where campaign_id = $1`

// Failed records another failure of a projection at e. There is one open failure per campaign,
// projection and seq.
func (a *ApplyTx) Failed(projection string, e *event.Event, f Failure) error {
	var attempts int64
	_, err := a.t.One([]any{&attempts}, recordFailed, e.CampaignID, projection, e.Seq, e.EventType, f.Fingerprint, sqldb.Clip(f.Message, ErrorLimit), a.now)
	if err == nil && attempts == 1 {
		_, err = a.t.Exec(moreOpenFailures, e.CampaignID)
	}
	if err != nil {
		return fmt.Errorf("record the failure of projection %q: %w", projection, err)
	}
	return nil
}

const (
	resolveFailures = `
update failures
set status = 'resolved', resolved_at = $3
where campaign_id = $1
  and status = 'open'
  and seq <= $2
  and projection not in (
    select c.projection
    from projection_cursors c
    where c.campaign_id = $1
      and c.state || '' <> 'live')`

	recountFailures = `
update projection_watermarks
set open_failures = (
  select count(*)
  from failures
  where campaign_id = $1
    and status = 'open')
where campaign_id = $1`
)

// Resolve closes the failures of a campaign at events up to seq, which the watermark has
// passed, except those of quarantined, paused or behind projections.
func (a *ApplyTx) Resolve(campaign string, seq int64) error {
	err := a.do(nil, resolveFailures, campaign, seq, a.now)
	if err == nil {
		err = a.do(nil, recountFailures, campaign)
	}
	if err != nil {
		return fmt.Errorf("resolve the failures of campaign %q: %w", campaign, err)
	}
	return nil
}

const failureColumns = `f.id, f.campaign_id, f.projection, f.seq, f.event_type, f.fingerprint, f.message, f.attempts, f.first_at, f.last_at, f.status, f.resolved_at`

func scanFailure(row sqldb.Row) (campaign.ProjectionFailure, error) {
	var f campaign.ProjectionFailure
	var first, last int64
	var resolved sql.NullInt64
	err := row.Scan(&f.ID, &f.CampaignID, &f.Projection, &f.Seq, &f.EventType, &f.Fingerprint, &f.Message, &f.Attempts,
		&first, &last, &f.Status, &resolved)
	f.FirstAt, f.LastAt, f.ResolvedAt = sqldb.At(first), sqldb.At(last), sqldb.AtOrNil(resolved)
	return f, err
}

const selectFailures = `
select ` + failureColumns + `
from failures f
where id {>} $1
`

var (
	failuresAll        = sqldb.BothWays(selectFailures + "order by id{desc}\nlimit $2")
	failuresByStatus   = sqldb.BothWays(selectFailures + "  and status = $2\norder by id{desc}\nlimit $3")
	failuresOfCampaign = sqldb.BothWays(selectFailures + "  and campaign_id = $2\norder by id{desc}\nlimit $3")
)

var failuresBy = sqldb.FilterOf[campaign.FailureFilter, campaign.ProjectionFailure](nil)

func failureList(f campaign.FailureFilter) *sqldb.List[campaign.ProjectionFailure] {
	l, walk := sqldb.Newest("failures", failuresAll, scanFailure, func(p campaign.ProjectionFailure) int64 { return p.ID }), ""
	switch {
	case f.CampaignID != "":
		walk, l.Query, l.Args = "campaign", failuresOfCampaign, []any{f.CampaignID}
	case f.Status != "":
		walk, l.Query, l.Args = "status", failuresByStatus, []any{string(f.Status)}
	}
	l.Match = failuresBy.Match(f, walk)
	return l
}

// Failures pages through the events that projections failed at, newest first. A page scans a
// bounded number of them and may end early, with Partial set.
func (d *Database) Failures(ctx context.Context, f campaign.FailureFilter) (event.Page[campaign.ProjectionFailure], error) {
	return sqldb.Reading(ctx, d, "list failures", func(t *sqldb.Tx) (event.Page[campaign.ProjectionFailure], error) {
		page, err := failureList(f).Page(t, f.Cursor, f.Limit)
		sqldb.Told(&page)
		return page, err
	})
}

const selectFailure = `
select ` + failureColumns + `
from failures f
where id = $1`

// Failure reads one event that a projection failed at. A missing one is event.ErrNotFound.
func (d *Database) Failure(ctx context.Context, id int64) (campaign.ProjectionFailure, error) {
	return sqldb.Reading(ctx, d, "", func(t *sqldb.Tx) (campaign.ProjectionFailure, error) {
		f, found, err := sqldb.First(t, scanFailure, selectFailure, id)
		if err == nil && !found {
			err = event.NotFound("there is no failure %d", id)
		}
		return f, err
	})
}

// quarantinedAt joins cursors with the open failure of the event at which they stand.
const quarantinedAt = `
from projection_cursors c
join failures f on f.campaign_id = c.campaign_id and f.projection = c.projection and f.seq = c.applied_seq + 1 and f.status = 'open'
`

const selectQuarantinedIn = `
select ` + failureColumns + quarantinedAt + `where c.campaign_id = $1
  and c.state || '' = 'quarantined'
  and f.seq between $2 and $3
  and f.last_at >= $4
order by f.seq, f.projection
limit 1`

// Span is a range of events of a campaign, and a time.
type Span struct {
	CampaignID string
	From, To   int64
	Since      int64 // microseconds
}

// QuarantinedIn returns for each span the first failure that has quarantined a projection there since
// its time; nil if none has.
func (d *Database) QuarantinedIn(ctx context.Context, spans []Span) ([]*campaign.ProjectionFailure, error) {
	return sqldb.Reading(ctx, d, "read what is quarantined", func(t *sqldb.Tx) ([]*campaign.ProjectionFailure, error) {
		found := make([]*campaign.ProjectionFailure, len(spans))
		var b sqldb.Batch
		for i, s := range spans {
			b.Each(func(row sqldb.Row) error {
				f, err := scanFailure(row)
				found[i] = &f
				return err
			}, selectQuarantinedIn, s.CampaignID, s.From, s.To, s.Since)
		}
		return found, t.RunAll(&b)
	})
}

// quarantinesRead is how many open failures QuarantinedBetween looks through, the newest first, and
// QuarantineCauses, which gives each error an equal share.
const quarantinesRead = 2_000

const selectQuarantinedBetween = `
select ` + failureColumns + `
from (
  select *
  from failures
  where status = 'open'
  order by id desc
  limit $1) f
join projection_cursors c on c.campaign_id = f.campaign_id and c.projection = f.projection and c.applied_seq = f.seq - 1
where f.first_at between $2 and $3
  and c.state || '' <> 'live'
order by f.id desc`

// QuarantinedBetween lists the failures between two times (microseconds) that set a projection aside, of
// the latest open ones, the newest first.
func (d *Database) QuarantinedBetween(ctx context.Context, from, until int64) ([]campaign.ProjectionFailure, error) {
	return sqldb.Reading(ctx, d, "read what is quarantined", func(t *sqldb.Tx) ([]campaign.ProjectionFailure, error) {
		return sqldb.All(t, scanFailure, selectQuarantinedBetween, quarantinesRead, from, until)
	})
}

const (
	nextOpen = `
select projection, fingerprint
from failures
where status = 'open'
  and (projection, fingerprint) > ($1, $2)
order by projection, fingerprint
limit 1`

	selectQuarantineCause = `
select count(*), count(c.state), coalesce(min(f.first_at), 0), coalesce(max(f.last_at), 0), coalesce(max(f.message), '')
from (
  select *
  from failures
  where status = 'open'
    and projection = $1
    and fingerprint = $2
  order by id desc
  limit $3) f
left join projection_cursors c on c.campaign_id = f.campaign_id and c.projection = f.projection and c.applied_seq = f.seq - 1
  and c.state || '' = 'quarantined'`
)

// QuarantineCauses lists by which errors projections are quarantined now, those in most campaigns first. more is
// true if there are more errors than event.MaxQuarantineCauses, which are all that it looks at.
func (d *Database) QuarantineCauses(ctx context.Context) (all []campaign.QuarantineCause, more bool, err error) {
	all, err = sqldb.Reading(ctx, d, "list by which errors projections are quarantined", func(t *sqldb.Tx) ([]campaign.QuarantineCause, error) {
		pairs, err := sqldb.Apart(t, 2, event.MaxQuarantineCauses+1, nextOpen)
		if err != nil {
			return nil, err
		}
		more = len(pairs) > event.MaxQuarantineCauses
		pairs = pairs[:min(len(pairs), event.MaxQuarantineCauses)]
		all := make([]campaign.QuarantineCause, len(pairs))
		var b sqldb.Batch
		for i, pair := range pairs {
			each := quarantinesRead / len(pairs)
			b.Each(func(row sqldb.Row) error {
				q := &all[i]
				var looked, first, last int64
				err := row.Scan(&looked, &q.Campaigns, &first, &last, &q.Example)
				q.Projection, q.Fingerprint, q.FirstAt, q.LastAt, q.Capped = pair[0], pair[1], sqldb.At(first), sqldb.At(last), looked == int64(each)
				return err
			}, selectQuarantineCause, pair[0], pair[1], each)
		}
		return all, t.RunAll(&b)
	})
	if err != nil {
		return nil, false, err
	}
	all = slices.DeleteFunc(all, func(q campaign.QuarantineCause) bool { return q.Campaigns == 0 })
	slices.SortStableFunc(all, func(a, b campaign.QuarantineCause) int { return cmp.Compare(b.Campaigns, a.Campaigns) })
	return all, more, nil
}

const (
	selectQuarantined = `
select c.campaign_id, f.seq, f.fingerprint` + quarantinedAt + `where c.projection = $1
  and c.state <> 'live'
  and c.state = 'quarantined'
  and ($2 = '' or f.fingerprint = $2)`

	quarantinedOfAll = selectQuarantined + `
order by c.campaign_id
limit $3`

	quarantinedOfOne = selectQuarantined + `
  and c.campaign_id = $3`
)

// QuarantinedAt is the event at which a projection is quarantined in a campaign.
type QuarantinedAt struct {
	CampaignID  string
	Seq         int64
	Fingerprint string // of its error
}

// Quarantined lists where a projection is quarantined, at most limit campaigns of all, or the named
// ones; by errors with this fingerprint, empty for any.
func (d *Database) Quarantined(ctx context.Context, projection, fingerprint string, limit int, campaigns ...string) ([]QuarantinedAt, error) {
	return sqldb.Reading(ctx, d, fmt.Sprintf("list where projection %q is quarantined", projection), func(t *sqldb.Tx) (all []QuarantinedAt, err error) {
		collect := func(row sqldb.Row) error {
			var q QuarantinedAt
			err := row.Scan(&q.CampaignID, &q.Seq, &q.Fingerprint)
			all = append(all, q)
			return err
		}
		var b sqldb.Batch
		if len(campaigns) == 0 {
			b.Each(collect, quarantinedOfAll, projection, fingerprint, limit)
		}
		for _, id := range campaigns {
			b.Each(collect, quarantinedOfOne, projection, fingerprint, id)
		}
		err = t.RunAll(&b)
		return all, err
	})
}
