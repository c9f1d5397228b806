package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Limits of one page of a search that looks through events.
const (
	searchWindows = 100 // steps of a thousand events
	searchTime    = 400 * time.Millisecond
)

// eventWalk is an order in which a search reads events: by a key, position or seq, that grows with
// the time of recording.
type eventWalk struct {
	name        string // part of a cursor
	bare, whole sqldb.Ways
	args        []any
	probe       string // the first event from a key: key, recorded_at
	probeArgs   []any
	exact       bool   // an index finds the events
	by          string // the field of the filter that needs no comparison; empty for none
	bySeq       bool
}

var (
	withoutDocuments = "\nselect " + store.EventColumns("e.", "e.tags, '', '', '', ''")
	withDocuments    = "\nselect " + store.EventColumns("e.", "e.tags, e.metadata, e.payload, '', ''")
)

// walkBy is a walk in the order of a key, of the entries of from that a condition selects; its
// parameters begin at $4.
func walkBy(name, from, key, condition string, args ...any) eventWalk {
	query := `
from ` + from + `
where ` + condition + key + ` {>} $1
  and ` + key + ` > $2
  and ` + key + ` <= $3
order by ` + key + `{desc}
limit $` + fmt.Sprint(4+len(args))
	return eventWalk{name: name, bare: sqldb.BothWays(withoutDocuments + query), whole: sqldb.BothWays(withDocuments + query),
		args: args, probe: probePosition, exact: condition != ""}
}

const (
	probePosition = `
select position, recorded_at
from events
where position >= $1
order by position
limit 1`

	probeSeq = `
select seq, recorded_at
from events
where campaign_id = $2
  and seq >= $1
order by seq
limit 1`
)

// walkFor chooses the index that leaves the fewest events to look at.
func walkFor(f EventFilter) eventWalk {
	const events, position = "events e", "e.position"
	switch {
	case f.EventID != "":
		return walkBy("id", events, position, "e.event_id = $4\n  and ", f.EventID)
	case f.EntityID != "": // a partial index serves only queries that repeat its condition
		return walkBy("entity", events, position, "e.entity_id = $4\n  and e.entity_id <> ''\n  and ", f.EntityID)
	case f.RequestID != "":
		return walkBy("request", events, position, "e.request_id = $4\n  and e.request_id <> ''\n  and ", f.RequestID)
	case f.Tag != "": // the positions in the index of tags are those of the events
		name, value := store.TagEntry(f.TagParts())
		return walkBy("tag", "event_tags t\njoin events e on e.position = t.position", "t.position", "t.name = $4\n  and t.value = $5\n  and ", name, value)
	case f.CampaignID != "":
		w := walkBy("campaign", events, "e.seq", "e.campaign_id = $4\n  and ", f.CampaignID)
		w.probe, w.probeArgs, w.bySeq, w.by = probeSeq, w.args, true, "campaign"
		return w
	case f.EventType != "":
		w := walkBy("type", events, position, "e.event_type = $4\n  and ", f.EventType)
		w.by = "event_type"
		return w
	}
	return walkBy("all", events, position, "")
}

// Events pages through the events of all campaigns that f selects, newest first unless
// reversed. Ids, entities, requests, tags, campaigns and types are found by an index. Everything
// else is looked for in the events one by one: a page ends after some 100,000 of them or 0.4
// seconds, with Partial set and a cursor to go on from.
//
// With f.Settled the first page has the position for a condition that asks for the same events. On
// PostgreSQL that waits for appends in progress, and is event.ErrBusy while one stays open.
//
// In a range of time, events are found as long as the clocks of the processes that appended them
// differ by at most ClockTolerance. When events occurred has no index: it is compared event by
// event.
func (s *Search) Events(ctx context.Context, f EventFilter) (FoundEvents, error) {
	page := FoundEvents{Page: event.Page[EventHit]{Items: []EventHit{}}, Looked: EventsLooked{By: "position", Exact: true}}
	if err := f.Validate(); err != nil {
		return page, err
	}
	if err := f.CheckSettled(); err != nil {
		return page, err
	}
	if f.Impossible() {
		return page, nil
	}
	if f.Publisher != "" {
		name, err := operator.ParseSubscriptionName(f.Publisher)
		if err != nil {
			return page, err
		}
		if f.by, err = s.publisher(ctx, name); errors.Is(err, event.ErrNotFound) {
			err = event.Invalid("publisher", "%v", err)
		}
		if err != nil {
			return page, err
		}
		f.Within = cmp.Or(f.Within, searchTime/4) // a page of them is read again and again
	}
	var settled *int64
	if f.Settled { // before the events: one between the two conflicts with the append
		position, err := s.core.Position(ctx)
		if err != nil {
			return page, fmt.Errorf("read the settled position: %w", err)
		}
		settled = &position
	}
	err := s.core.Journal().Read(ctx, func(t *store.Tx) (err error) {
		page, err = searchEvents(t, f)
		page.Position = settled
		return err
	})
	if err != nil {
		return page, fmt.Errorf("search events: %w", err)
	}
	return page, nil
}

type eventSearch struct {
	list  *sqldb.List[event.Event]
	times [2]keyTime // of the last two events looked at
}

type keyTime struct {
	key int64
	at  time.Time
}

func searchEvents(t *store.Tx, f EventFilter) (page FoundEvents, err error) {
	w := walkFor(f)
	low, high, err := searchBounds(t, w, f)
	if err != nil {
		return page, err
	}
	s := newEventSearch(w, f, low, high)
	from, err := s.list.At(f.Cursor)
	if err != nil {
		return page, err
	}
	read, err := s.list.Read(t, from, sqldb.PageLimit(f.Limit, event.MaxPage))
	if err != nil {
		return page, err
	}
	if err := readPayloads(t, read.Items, f); err != nil {
		return page, err
	}
	events := s.list.PageOf(from, read)
	page.Page = event.Page[EventHit]{Items: make([]EventHit, len(events.Items)), NextCursor: events.NextCursor, PrevCursor: events.PrevCursor, Partial: events.Partial}
	for i, e := range events.Items {
		page.Items[i] = f.Hit(e)
	}
	if err := readStandings(t, page.Items); err != nil {
		return page, err
	}
	page.Looked = s.looked(w, from, read, low, high)
	return page, nil
}

func newEventSearch(w eventWalk, f EventFilter, low, high int64) *eventSearch {
	s := &eventSearch{}
	key := func(e event.Event) int64 {
		if w.bySeq {
			return e.Seq
		}
		return e.Position
	}
	s.list = &sqldb.List[event.Event]{
		Name: "events " + w.name, Query: w.bare, Args: append([]any{low, high}, w.args...), Down: !f.Reverse, Match: f.Match(w.by),
		Low: []any{int64(sqldb.FarPast)}, High: []any{int64(sqldb.FarFuture)}, Windows: searchWindows, Time: cmp.Or(f.Within, searchTime),
		Scan: func(row sqldb.Row) (event.Event, error) {
			e, err := store.ScanEvent(row)
			s.times[0], s.times[1] = s.times[1], keyTime{key(e), e.RecordedAt}
			return e, err
		},
		Key: func(e event.Event) []any { return []any{key(e)} },
	}
	s.list.Name += sqldb.Towards(s.list.Down)
	if f.NeedsDocuments() {
		s.list.Query = w.whole
	}
	return s
}

// looked says which keys a page covers.
func (s *eventSearch) looked(w eventWalk, from sqldb.Place, read sqldb.Stretch[event.Event], low, high int64) EventsLooked {
	l := EventsLooked{Exact: w.exact, By: "position", First: high, Last: min(low+1, high)}
	if w.bySeq {
		l.By = "seq"
	}
	step := int64(-1)
	if from.Back == s.list.Down { // upwards
		l.First, l.Last, step = l.Last, l.First, 1
	}
	if from.Key != nil {
		l.First = from.Key[0].(int64) + step
	}
	if read.Looked == nil {
		return l
	}
	last := read.Looked[0].(int64)
	if read.Ending != sqldb.AtEnd {
		l.Last = last
	}
	for _, seen := range s.times {
		if seen.key == last {
			l.Back = seen.at
		}
	}
	return l
}

const selectLastSeq = `
select high_water_seq
from campaigns
where campaign_id = $1`

// searchBounds are the keys of the walk between which a search has to look: after low, up to high.
func searchBounds(t *store.Tx, w eventWalk, f EventFilter) (low, high int64, err error) {
	if w.bySeq {
		if found, err := t.One([]any{&high}, selectLastSeq, f.CampaignID); err != nil || !found {
			return 0, 0, err
		}
	} else if high, err = t.HeadPosition(); err != nil {
		return 0, 0, err
	}
	if f.Publisher != "" && !w.bySeq {
		high = min(high, f.by.Position, f.by.DeliveredPosition)
	}
	head := high
	if f.Occurred() { // an event may have occurred long before it was recorded
		return 0, head, nil
	}
	if !f.Until.IsZero() {
		if high, err = recordedBefore(t, w, f.Until.Add(ClockTolerance), head); err != nil {
			return 0, 0, err
		}
	}
	if !f.Since.IsZero() {
		low, err = recordedBefore(t, w, f.Since.Add(-ClockTolerance), head)
	}
	return low, high, err
}

// recordedBefore returns the key of an event recorded before a time whose successor was not, by a
// binary search: 0 if the first event was not, high if no event follows. As long as clocks differ by
// less than a tolerance, every event up to that key was recorded before when plus the tolerance, and
// every later one not before when minus the tolerance.
func recordedBefore(t *store.Tx, w eventWalk, when time.Time, high int64) (int64, error) {
	low, before := int64(0), when.UnixMicro()
	for low < high {
		middle := low + (high-low)/2
		var key, recorded int64
		found, err := t.One([]any{&key, &recorded}, w.probe, append([]any{middle + 1}, w.probeArgs...)...)
		switch {
		case err != nil:
			return 0, fmt.Errorf("find the events of a time: %w", err)
		case !found || recorded >= before:
			high = middle
		default:
			low = key
		}
	}
	return low, nil
}

const selectPayload = `
select payload
from events
where position = $1`

// readPayloads reads the payloads of found events, for their excerpts, unless the search has read
// them or they are hidden.
func readPayloads(t *store.Tx, events []event.Event, f EventFilter) error {
	if f.NeedsDocuments() || f.Shown != nil && f.Shown.HidesPayloads() {
		return nil
	}
	var b sqldb.Batch
	for i := range events {
		e := &events[i]
		b.Each(func(row sqldb.Row) error {
			var payload string
			err := row.Scan(&payload)
			e.Payload = store.RawObject(payload)
			return err
		}, selectPayload, e.Position)
	}
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("read payloads: %w", err)
	}
	return nil
}

const selectStanding = `
select coalesce(o.status, ''), k.id is not null, c.applied_seq, coalesce(c.head_seq, 0), coalesce(c.head_status, '')
from campaigns c
left join projection_apply_outbox o on o.campaign_id = c.campaign_id and o.seq = $2
left join skips k on k.campaign_id = c.campaign_id and k.seq = $2 and k.undone_at is null
where c.campaign_id = $1`

// readStandings adds how far events got.
func readStandings(t *store.Tx, hits []EventHit) error {
	var b sqldb.Batch
	for i := range hits {
		e := &hits[i]
		b.Each(func(row sqldb.Row) error {
			var c campaign.Campaign
			var status, head string
			var skipped bool
			err := row.Scan(&status, &skipped, &c.AppliedSeq, &c.HeadSeq, &head)
			c.HeadStatus = event.Status(head)
			e.EventStanding = StandingOf(e.Seq, event.Status(status), skipped, c)
			return err
		}, selectStanding, e.CampaignID, e.Seq)
	}
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("read how far events got: %w", err)
	}
	return nil
}
