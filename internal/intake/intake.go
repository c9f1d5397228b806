// Package intake moves rows from services' own databases into the journal. A service inserts rows in
// its own transactions (package github.com/outboxweb/outboxweb/intake); a Worker in one process at a
// time reads them, appends them as events, and deletes them.
//
// No position is kept. Each read begins at the first row, in one snapshot, so that a transaction that
// commits late is not skipped. Rows are journalled first and deleted then: the journal recognizes an
// event by its campaign and id, so a row that is read again after a crash is in the journal once. A row
// that cannot be journalled is rejected: it stays, with the later rows of its campaign, until an operator
// decides.
//
// The lease on a source saves duplicate work, and its epoch is checked in the transaction that
// appends: a process that lost it appends nothing more. Deleting needs no fence: it deletes only rows
// that the same process has journalled, by key and event, and no key is used again.
package intake

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Intake is the state of sources in the journal database: its tables are those whose names begin with
// intake_. It is safe for concurrent use, by several processes too.
type Intake struct {
	core *store.Store
	// Settings are the sources of this process. They are set before the store is used.
	Settings Settings
	states   store.Snapshot[[]inbound.IntakeSource]
}

// New must be called once per store, before the store is used.
func New(core *store.Store) *Intake {
	in := &Intake{core: core}
	core.OnChange(in.states.Forget)
	core.OnSummary(func(context.Context, *campaign.Summary) func(*store.Tx, *campaign.Summary) error { return addRejecting })
	return in
}

func (in *Intake) configured(name string) bool {
	return slices.ContainsFunc(in.Settings.Sources, func(s Source) bool { return s.Name == name })
}

const selectSources = `
select s.source, s.place, s.lease_owner, s.lease_epoch, s.lease_expires_at, s.journalled, s.journalled_at, s.looked_at,
  s.waiting, s.oldest_at, s.error, s.error_at, coalesce(r.rejected, 0), r.rejected_at,
  s.owner, s.owned_since, s.owner <> '' and s.handed_over = s.owned_since
from intake_sources s
left join (select source, count(*) as rejected, min(rejected_at) as rejected_at
  from intake_rejections
  where status <> 'discarded'
  group by source) r on r.source = s.source
order by s.source`

// States returns the sources that a process has or had in its configuration, and those of this one.
func (in *Intake) States(ctx context.Context) ([]inbound.IntakeSource, error) {
	all, err := in.states.Get(ctx, func() ([]inbound.IntakeSource, error) { return in.readStates(context.WithoutCancel(ctx)) })
	return all, sqldb.Wrapf(err, "list the sources")
}

// Source returns the state of a source. It is event.ErrNotFound for one that no process has or had.
func (in *Intake) Source(ctx context.Context, name string) (inbound.IntakeSource, error) {
	all, err := in.States(ctx)
	if err != nil {
		return inbound.IntakeSource{}, err
	}
	var known []string
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	return inbound.IntakeSource{}, noSource(name, known)
}

func (in *Intake) readStates(ctx context.Context) (all []inbound.IntakeSource, err error) {
	now := in.core.Now()
	all, err = sqldb.Reading(ctx, in.core.Journal(), "", func(t *store.Tx) ([]inbound.IntakeSource, error) {
		return sqldb.All(t, func(row sqldb.Row) (inbound.IntakeSource, error) {
			s, err := scanSource(row, now)
			s.Configured = in.configured(s.Name)
			return s, err
		}, selectSources)
	})
	for _, s := range in.Settings.Sources {
		if !slices.ContainsFunc(all, func(one inbound.IntakeSource) bool { return one.Name == s.Name }) {
			all = append(all, inbound.IntakeSource{Name: s.Name, Place: s.Place, Configured: true, WaitingLimit: countLimit})
		}
	}
	return all, err
}

func scanSource(row sqldb.Row, now int64) (inbound.IntakeSource, error) {
	s := inbound.IntakeSource{WaitingLimit: countLimit}
	var l campaign.Lease
	var expires, owned int64
	var oldest sql.NullInt64
	err := row.Scan(&s.Name, &s.Place, &l.Owner, &l.Epoch, &expires, &s.Journalled, sqldb.ScanTimeOrNil(&s.JournalledAt), sqldb.ScanTimeOrNil(&s.LookedAt), &s.Waiting, &oldest,
		&s.Error, sqldb.ScanTimeOrNil(&s.ErrorAt), &s.Rejected, sqldb.ScanTimeOrNil(&s.RejectedAt), &s.Owner, &owned, &s.HandedOver)
	s.OldestAt = sqldb.AtOrNil(oldest)
	if l.ExpiresAt = sqldb.At(expires); l.Owner != "" && expires > now {
		s.Lease = &l
	}
	if s.Owner != "" && owned < sqldb.FarFuture {
		s.OwnedSince = new(sqldb.At(owned))
	}
	if oldest.Valid {
		s.OldestAge = max(0, sqldb.At(now).Sub(sqldb.At(oldest.Int64)).Seconds())
	}
	return s, err
}

const (
	rejectionColumns = `id, source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, attempts, rejected_at, status, changed_at, changed_by, change_reason`

	selectRejections = `
select ` + rejectionColumns + `
from intake_rejections
where source = $2
  and id {>} $1
order by id{desc}
limit $3`

	selectBlocking = `
select distinct source
from intake_rejections
where campaign_id = $1
  and status <> 'discarded'
order by source
limit 10`

	selectRejection = `
select ` + rejectionColumns + `
from intake_rejections
where source = $1
  and id = $2`
)

func scanRejection(row sqldb.Row) (inbound.IntakeRejection, error) {
	var r inbound.IntakeRejection
	var content string
	err := row.Scan(&r.ID, &r.Source, &r.RowKey, &r.CampaignID, &r.EventID, &r.EventType, &content, &r.ContentBytes, &r.Reason, &r.Attempts, sqldb.ScanTime(&r.RejectedAt),
		(*string)(&r.Status), sqldb.ScanTimeOrNil(&r.ChangedAt), &r.ChangedBy, &r.ChangeReason)
	r.Content = json.RawMessage(content)
	return r, err
}

// Rejections pages through the rejected rows of a source, discarded ones included, newest first.
func (in *Intake) Rejections(ctx context.Context, source, cursor string, limit int) (page event.Page[inbound.IntakeRejection], err error) {
	if _, err := in.Source(ctx, source); err != nil {
		return page, err
	}
	list := sqldb.Newest("rejections of "+source, sqldb.BothWays(selectRejections), scanRejection, func(r inbound.IntakeRejection) int64 { return r.ID }, source)
	return sqldb.Reading(ctx, in.core.Journal(), "list the rejected rows of source "+source, func(t *store.Tx) (event.Page[inbound.IntakeRejection], error) {
		return list.Page(t, cursor, limit)
	})
}

const selectRejecting = `
select campaign_id, source
from intake_rejections
where status <> 'discarded'
order by source, row_key
limit $1`

// addRejecting adds the campaigns that rejected rows block.
func addRejecting(t *store.Tx, sum *campaign.Summary) error {
	sum.Rejecting = map[string][]string{}
	return t.Each(func(row sqldb.Row) error {
		var campaign, source string
		err := row.Scan(&campaign, &source)
		if !slices.Contains(sum.Rejecting[campaign], source) {
			sum.Rejecting[campaign] = append(sum.Rejecting[campaign], source)
		}
		return err
	}, selectRejecting, campaign.MaxRejecting)
}

// Explained says of a campaign that is not in the journal which sources hold it back, if any do.
func (in *Intake) Explained(ctx context.Context, campaign string, unknown error) error {
	if !errors.Is(unknown, event.ErrNotFound) {
		return unknown
	}
	sources, err := in.Blocking(ctx, campaign)
	if err != nil || len(sources) == 0 {
		return cmp.Or(err, unknown)
	}
	return &event.Refusal{Err: event.ErrNotFound, Source: sources[0], Detail: fmt.Sprintf("there is no campaign %q in the journal yet: its first row in source %s is rejected; the page of the source shows why", campaign, event.OrList(sources))}
}

// Blocking lists the sources with a rejected row that blocks the campaign, at most 10.
func (in *Intake) Blocking(ctx context.Context, campaign string) ([]string, error) {
	return sqldb.Reading(ctx, in.core.Journal(), fmt.Sprintf("look for rejected rows of campaign %q", campaign), func(t *store.Tx) ([]string, error) {
		return sqldb.All(t, sqldb.Column[string], selectBlocking, campaign)
	})
}

const selectNamed = `
select id, source, campaign_id, reason
from intake_rejections
where (campaign_id = $1 or $2 <> '' and event_id = $2)
  and status <> 'discarded'
order by id
limit 5`

// Find looks for rejected rows by the id of their campaign or event. Ids that are hidden are not found;
// see search.EventFilter.
func (in *Intake) Find(ctx context.Context, a search.Asked, shown search.EventRedactor) ([]search.Finding, error) {
	event := a.Named()
	if (search.EventFilter{EventID: event, Shown: shown}).Impossible() {
		event = ""
	}
	return sqldb.Reading(ctx, in.core.Journal(), fmt.Sprintf("look for rejected rows of %q", a.Named()), func(t *store.Tx) ([]search.Finding, error) {
		return sqldb.All(t, func(row sqldb.Row) (search.Finding, error) {
			f := search.Finding{Kind: search.FoundRejection, Certain: true}
			err := row.Scan(&f.ID, &f.Name, &f.CampaignID, &f.Note)
			if shown != nil {
				f.Note = shown.Text(f.Note)
			}
			return f, err
		}, selectNamed, a.Named(), event)
	})
}

// noSource is the refusal of a source that no process has or had; it names those there are.
func noSource(name string, known []string) error {
	if len(known) == 0 {
		return event.NotFound("there is no source %q, nor any other", outbound.Shorten(name))
	}
	return event.NotFound("there is no source %q; use %s", outbound.Shorten(name), event.OrList(known))
}
