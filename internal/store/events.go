package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// SelectEvent begins a query for whole events, for ScanEvent.
var SelectEvent = "\nselect " + EventColumns("", "tags, metadata, payload, event_hash, chain_hash") + "\nfrom events"

// EventColumns are the columns that ScanEvent reads, of the table with a prefix, such as "e.". The
// last five are expressions, for the documents and hashes or for what is read in their place.
func EventColumns(prefix, last string) string {
	first := append([]string{"position", "seq", "occurred_at", "recorded_at"}, event.EnvelopeNames()...)
	return prefix + strings.Join(first, ", "+prefix) + ",\n  " + last
}

// ScanEvent reads a row of EventColumns, and more columns behind them.
func ScanEvent(row sqldb.Row, more ...any) (event.Event, error) {
	var e event.Event
	var occurred, recorded int64
	var tags, metadata, payload string
	columns := append(make([]any, 0, 24), &e.Position, &e.Seq, &occurred, &recorded)
	for _, text := range e.Envelope() {
		columns = append(columns, text.Value)
	}
	columns = append(columns, &tags, &metadata, &payload, &e.EventHash, &e.ChainHash)
	err := row.Scan(append(columns, more...)...)
	e.OccurredAt, e.RecordedAt = sqldb.At(occurred), sqldb.At(recorded)
	e.Tags, e.Metadata, e.Payload = RawObject(tags), RawObject(metadata), RawObject(payload)
	return e, err
}

// scanEvent reads a row of EventColumns alone.
func scanEvent(row sqldb.Row) (event.Event, error) { return ScanEvent(row) }

var emptyObject = json.RawMessage("{}")

// RawObject converts text to raw JSON; nil for a column that was not read. The empty object,
// which most tags are, is shared and must not be changed.
func RawObject(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	if text == "{}" {
		return emptyObject
	}
	return json.RawMessage(text)
}

func (t *Tx) event(query string, args ...any) (event.Event, bool, error) {
	return sqldb.First(t, scanEvent, query, args...)
}

var eventsInRange = SelectEvent + `
where campaign_id = $1
  and seq between $2 and $3
order by seq`

func (t *Tx) events(campaign string, first, last int64) ([]event.Event, error) {
	events := make([]event.Event, 0, max(0, min(last-first+1, 4096)))
	if err := t.Each(sqldb.Collect(&events, scanEvent), eventsInRange, campaign, first, last); err != nil {
		return nil, err
	}
	return events, t.readSkips(events)
}

// Event reads one event. A missing one is event.ErrNotFound.
func (s *Store) Event(ctx context.Context, campaign string, seq int64) (event.Event, error) {
	e, err := Reading(ctx, s, "", func(t *Tx) (event.Event, error) { return t.skippableEvent(campaign, seq) })
	if err == nil {
		checkContentHash(&e, event.Sizes{Payload: int64(len(e.Payload)), Tags: int64(len(e.Tags)), Metadata: int64(len(e.Metadata))})
	}
	return e, err
}

// hashedWithin is the document size, in bytes, up to which an event's content is checked
// against its hash on every read. Longer documents are checked by verify and check only.
const hashedWithin = 64 << 10

func checkContentHash(e *event.Event, sizes event.Sizes) {
	if max(sizes.Payload, sizes.Tags, sizes.Metadata) <= hashedWithin {
		e.Altered = e.ContentHash() != e.EventHash
	}
}

// MissingEvent is the refusal that says what is missing: the campaign, or only the event.
func (t *Tx) MissingEvent(campaign string, seq int64) error {
	c, err := t.ExistingCampaign(campaign)
	if err != nil {
		return err
	}
	return event.NotFound("campaign %q has no event %d; its last one is %d", campaign, seq, c.HighWater)
}

// Events reads the events of a campaign after a seq, in order. The page's cursors are the seqs
// to continue from, as text. limit 0 means 50; the most is 1,000. A page ends early, with
// Partial set, where its events would exceed eventsBytes. An unknown campaign is
// event.ErrNotFound.
func (s *Store) Events(ctx context.Context, campaign string, afterSeq int64, limit int) (event.Page[event.Event], error) {
	limit = sqldb.PageLimit(limit, 1000)
	page := event.Page[event.Event]{Items: []event.Event{}}
	err := s.journal.Read(ctx, func(t *Tx) error {
		c, err := t.ExistingCampaign(campaign)
		if err != nil {
			return err
		}
		first := min(max(0, afterSeq), c.HighWater) + 1
		last := min(c.HighWater, first+int64(limit)-1)
		if last, page.Partial, err = t.lastWithin(campaign, first, last, eventsBytes); err != nil {
			return fmt.Errorf("read how large events of campaign %q are: %w", campaign, err)
		}
		if page.Items, err = t.events(campaign, first, last); err != nil {
			return fmt.Errorf("read events of campaign %q: %w", campaign, err)
		}
		page.Total = &c.HighWater
		if last < c.HighWater && len(page.Items) > 0 {
			page.NextCursor = seqCursor(last)
		}
		if first > 1 {
			page.PrevCursor = seqCursor(max(0, first-1-int64(limit)))
		}
		return nil
	})
	return page, err
}

func seqCursor(after int64) *string {
	cursor := strconv.FormatInt(after, 10)
	return &cursor
}

// eventsBytes is the maximum total size of the documents on one page of events, unless the
// first event alone is larger.
const eventsBytes = 16 << 20

const selectEventSizes = `
select seq, octet_length(payload) + octet_length(tags) + octet_length(metadata)
from events
where campaign_id = $1
  and seq between $2 and $3
order by seq`

// lastWithin is the last of the events first to last up to which their documents total at most
// most bytes, and at least first. cut is true when that is not all of them.
func (t *Tx) lastWithin(campaign string, first, last, most int64) (fits int64, cut bool, err error) {
	fits = last
	var sum int64
	err = t.Each(func(row sqldb.Row) error {
		var seq, size int64
		if err := row.Scan(&seq, &size); err != nil {
			return err
		}
		if sum += size; sum > most && seq > first {
			fits, cut = seq-1, true
			return sqldb.ErrEnough
		}
		return nil
	}, selectEventSizes, campaign, first, last)
	return fits, cut, err
}

const upsertEventType = `
insert into event_types (event_type, intent, registered_at)
values ($1, $2, $3)
on conflict (event_type) do update set intent = excluded.intent, registered_at = excluded.registered_at
where event_types.intent <> excluded.intent`

// RegisterEventTypes records the intent of event types. A type that is not named keeps its
// intent. Registering again changes nothing.
func (s *Store) RegisterEventTypes(ctx context.Context, intents map[string]event.Intent) error {
	known, err := s.EventTypes(ctx)
	if err != nil {
		return err
	}
	changed := make(map[string]event.Intent)
	for name, intent := range intents {
		if intent != event.IntentProjection && intent != event.IntentAuditOnly {
			return event.Invalid("event_types", "intent %q of event type %q is unknown; use projection or audit_only", intent, name)
		}
		if known[name] != intent && (known[name] != "" || intent != event.IntentProjection) {
			changed[name] = intent
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return s.journal.Write(ctx, func(t *Tx) error {
		for _, name := range slices.Sorted(maps.Keys(changed)) { // sorted, to avoid deadlocks
			if _, err := t.Exec(upsertEventType, name, string(changed[name]), s.Now()); err != nil {
				return fmt.Errorf("register event type %q: %w", name, err)
			}
		}
		return nil
	})
}

// EventTypes reads the registered event types with their intents.
func (s *Store) EventTypes(ctx context.Context) (map[string]event.Intent, error) {
	return Reading(ctx, s, "", (*Tx).eventTypes)
}

func (t *Tx) eventTypes() (map[string]event.Intent, error) {
	types := make(map[string]event.Intent)
	err := t.Each(sqldb.CollectMap(types), `select event_type, intent from event_types`)
	return types, sqldb.Wrapf(err, "read event types")
}
