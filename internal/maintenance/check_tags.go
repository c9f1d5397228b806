package maintenance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// indexedTag is an entry of event_tags, without its position and event type.
type indexedTag struct{ name, value string }

// indexedTags are the entries required for tags: one per name and value as written, truncated,
// also for names that occur twice.
func indexedTags(tags json.RawMessage) map[indexedTag]bool {
	entries := make(map[indexedTag]bool)
	dec := json.NewDecoder(bytes.NewReader(tags))
	if _, err := dec.Token(); err != nil {
		return entries
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			break
		}
		var value string // stays empty for null
		if dec.Decode(&value) != nil {
			break
		}
		key, entry := store.TagEntry(fmt.Sprint(name), value)
		entries[indexedTag{key, entry}] = true
	}
	return entries
}

// checkTags compares event_tags with the tags of the events in both directions, page by page. What a
// page is compared with is read later, and has at least what belongs to the page.
func (m *Maintenance) checkTags(ctx context.Context, report *campaign.CheckReport) error {
	journal := m.core.Journal()
	for events, err := range sqldb.InPages(ctx, journal.DB, eventsByPosition, "") {
		if err == nil {
			err = journal.Read(ctx, func(t *store.Tx) error { return checkIndexed(t, events, report) })
		}
		if err != nil {
			return fmt.Errorf("compare tags with their index: %w", err)
		}
	}
	for entries, err := range sqldb.InPages(ctx, journal.DB, tagEntries, "") {
		if err == nil {
			err = journal.Read(ctx, func(t *store.Tx) error { return checkEntries(t, entries, report) })
		}
		if err != nil {
			return fmt.Errorf("compare the index of tags with the events: %w", err)
		}
	}
	return nil
}

// eventsByPosition are all events, with their tags.
var eventsByPosition = &sqldb.List[event.Event]{
	Name: "tags", Low: []any{int64(0)}, High: []any{int64(sqldb.FarFuture)},
	Query: sqldb.BothWays(`
select campaign_id, seq, event_type, tags, position
from events
where position {>} $1
order by position{desc}
limit $2`),
	Scan: func(row sqldb.Row) (e event.Event, err error) {
		err = scanTags(row, &e, &e.Position)
		return e, err
	},
	Key: func(e event.Event) []any { return []any{e.Position} },
}

// scanTags scans the columns of an event that tell its tags, and further ones.
func scanTags(row sqldb.Row, e *event.Event, more ...any) error {
	var tags string
	err := row.Scan(append([]any{&e.CampaignID, &e.Seq, &e.EventType, &tags}, more...)...)
	e.Tags = store.RawObject(tags)
	return err
}

const selectIndexed = `
select 1
from event_tags
where name = $1
  and value = $2
  and position = $3
  and event_type = $4`

// checkIndexed looks for missing entries of the events.
func checkIndexed(t *store.Tx, events []event.Event, report *campaign.CheckReport) error {
	type entry struct {
		indexedTag
		event *event.Event
		found bool
	}
	var b sqldb.Batch
	var entries []*entry
	for i := range events {
		for tag := range indexedTags(events[i].Tags) {
			e := &entry{indexedTag: tag, event: &events[i]}
			entries = append(entries, e)
			b.Each(func(sqldb.Row) error { e.found = true; return nil }, selectIndexed, e.name, e.value, e.event.Position, e.event.EventType)
		}
	}
	if err := t.RunAll(&b); err != nil {
		return err
	}
	report.Checked["tags"] += int64(len(entries))
	for _, e := range entries {
		if !e.found {
			report.Add(campaign.InvariantTagIndex, e.event.CampaignID, e.event.Seq, "the index of tags lacks the event's tag %q with the value %q", e.name, e.value)
		}
	}
	return nil
}

// taggedEvent is an entry of event_tags.
type taggedEvent struct {
	indexedTag
	position  int64
	eventType string
}

// tagEntries are all entries of event_tags.
var tagEntries = &sqldb.List[taggedEvent]{
	Name: "tag entries", Low: []any{"", "", int64(0)}, High: []any{sqldb.BeyondTexts, sqldb.BeyondTexts, int64(sqldb.FarFuture)},
	Query: sqldb.BothWays(`
select name, value, position, event_type
from event_tags
where (name, value, position) {>} ($1, $2, cast($3 as bigint))
order by name{desc}, value{desc}, position{desc}
limit $4`),
	Scan: func(row sqldb.Row) (e taggedEvent, err error) {
		err = row.Scan(&e.name, &e.value, &e.position, &e.eventType)
		return e, err
	},
	Key: func(e taggedEvent) []any { return []any{e.name, e.value, e.position} },
}

const selectTagsAt = `
select campaign_id, seq, event_type, tags
from events
where position = $1`

// checkEntries looks for entries whose event lacks the tag.
func checkEntries(t *store.Tx, entries []taggedEvent, report *campaign.CheckReport) error {
	events := make([]event.Event, len(entries)) // without a campaign where the journal has no event
	var b sqldb.Batch
	for i, entry := range entries {
		b.Each(func(row sqldb.Row) error { return scanTags(row, &events[i]) }, selectTagsAt, entry.position)
	}
	if err := t.RunAll(&b); err != nil {
		return err
	}
	for i, entry := range entries {
		e := &events[i]
		switch {
		case e.CampaignID == "":
			report.Add(campaign.InvariantTagIndex, "", 0, "the index of tags has an event at position %d that is not in the journal, with the tag %q", entry.position, entry.name)
		case e.EventType != entry.eventType || !indexedTags(e.Tags)[entry.indexedTag]:
			report.Add(campaign.InvariantTagIndex, e.CampaignID, e.Seq, "the index of tags says that the event is a %s with the tag %q and the value %q; it is not", entry.eventType, entry.name, entry.value)
		}
	}
	return nil
}
