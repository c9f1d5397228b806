package maintenance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
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

// checkPage is how many events or entries are compared in one snapshot.
const checkPage = 2000

// checkTags compares event_tags with the tags of the events, page by page and in both
// directions.
func (m *Maintenance) checkTags(ctx context.Context, report *outbox.CheckReport) error {
	for last := int64(0); last >= 0; {
		err := m.core.Journal().Read(ctx, func(t *store.Tx) (err error) {
			last, err = checkTagsAfter(t, last, report)
			return err
		})
		if err != nil {
			return fmt.Errorf("compare tags with their index: %w", err)
		}
	}
	for last := (taggedEvent{}); last.position >= 0; {
		err := m.core.Journal().Read(ctx, func(t *store.Tx) (err error) {
			last, err = checkEntriesAfter(t, last, report)
			return err
		})
		if err != nil {
			return fmt.Errorf("compare the index of tags with the events: %w", err)
		}
	}
	return nil
}

const (
	selectTags = `
select position, campaign_id, seq, event_type, tags
from events
where position > $1
order by position
limit $2`

	selectIndexed = `
select 1
from event_tags
where name = $1
  and value = $2
  and position = $3
  and event_type = $4`
)

// checkTagsAfter looks for missing entries of one page of events and returns the last event's
// position; -1 at the end.
func checkTagsAfter(t *store.Tx, after int64, report *outbox.CheckReport) (int64, error) {
	events, err := sqldb.All(t, func(row sqldb.Row) (e outbox.Event, err error) {
		var tags string
		err = row.Scan(&e.Position, &e.CampaignID, &e.Seq, &e.EventType, &tags)
		e.Tags = store.RawObject(tags)
		return e, err
	}, selectTags, after, checkPage)
	if err != nil || len(events) == 0 {
		return -1, err
	}
	return events[len(events)-1].Position, checkIndexed(t, events, report)
}

// checkIndexed looks for missing entries of the events.
func checkIndexed(t *store.Tx, events []outbox.Event, report *outbox.CheckReport) error {
	type entry struct {
		indexedTag
		event *outbox.Event
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
			report.Add(outbox.InvariantTagIndex, e.event.CampaignID, e.event.Seq, "the index of tags lacks the event's tag %q with the value %q", e.name, e.value)
		}
	}
	return nil
}

// taggedEvent is an entry of event_tags and the event at its position.
type taggedEvent struct {
	indexedTag
	position  int64
	eventType string
	event     outbox.Event // without a campaign when the journal has no event there
}

const (
	selectEntries = `
select name, value, position, event_type
from event_tags
where (name, value, position) > ($1, $2, cast($3 as bigint))
order by name, value, position
limit $4`

	selectTagsAt = `
select campaign_id, seq, event_type, tags
from events
where position = $1`
)

// checkEntriesAfter looks in one page of entries for those whose event lacks the tag, and
// returns the last entry; its position is -1 at the end.
func checkEntriesAfter(t *store.Tx, after taggedEvent, report *outbox.CheckReport) (taggedEvent, error) {
	entries, err := taggedEvents(t, after)
	if err != nil || len(entries) == 0 {
		return taggedEvent{position: -1}, err
	}
	for _, found := range entries {
		e := &found.event
		switch {
		case e.CampaignID == "":
			report.Add(outbox.InvariantTagIndex, "", 0, "the index of tags has an event at position %d that is not in the journal, with the tag %q", found.position, found.name)
		case e.EventType != found.eventType || !indexedTags(e.Tags)[found.indexedTag]:
			report.Add(outbox.InvariantTagIndex, e.CampaignID, e.Seq, "the index of tags says that the event is a %s with the tag %q and the value %q; it is not", found.eventType, found.name, found.value)
		}
	}
	return *entries[len(entries)-1], nil
}

func taggedEvents(t *store.Tx, after taggedEvent) ([]*taggedEvent, error) {
	entries, err := sqldb.All(t, func(row sqldb.Row) (*taggedEvent, error) {
		e := new(taggedEvent)
		return e, row.Scan(&e.name, &e.value, &e.position, &e.eventType)
	}, selectEntries, after.name, after.value, after.position, checkPage)
	if err != nil {
		return nil, err
	}
	var b sqldb.Batch
	for _, entry := range entries {
		e := &entry.event
		b.Each(func(row sqldb.Row) error {
			var tags string
			err := row.Scan(&e.CampaignID, &e.Seq, &e.EventType, &tags)
			e.Tags = store.RawObject(tags)
			return err
		}, selectTagsAt, entry.position)
	}
	return entries, t.RunAll(&b)
}
