package outboxweb

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Match selects events of any of the types that have all of the tags. One of the two may be empty.
// Fields of the event, such as campaign_id and entity_id, count as tags.
type Match struct {
	EventTypes []string
	Tags       map[string]string
}

// Matching is what EventsMatching found.
type Matching struct {
	Events []Event // in order of position
	// Position is what to give AppendIf: up to it no other event matches, and none will.
	Position int64
	More     bool // there are more events: call again with after = Position
}

// EventsMatching reads the events after a position that match any of the selections, at most limit,
// from the first on. It is the question that AppendIf relies on. On PostgreSQL it waits for appends
// in progress. Errors are ErrInvalid and ErrBusy.
func (e *Engine) EventsMatching(ctx context.Context, after int64, limit int, any ...Match) (Matching, error) {
	if err := e.errIfClosed(); err != nil {
		return Matching{}, err
	}
	found, err := e.engine.EventsMatching(ctx, itemsOf(any), after, limit)
	if err != nil {
		return Matching{}, err
	}
	m := Matching{Position: found.Position, More: found.More}
	for i := range found.Events {
		ev, err := eventOf(&found.Events[i])
		if err != nil {
			return Matching{}, err
		}
		m.Events = append(m.Events, ev)
	}
	return m, nil
}

// AppendIf is Append on the condition that no event after the position matches any of the
// selections: what was decided by reading events up to it still holds. Otherwise it is ErrConflict,
// and nothing is appended.
func (e *Engine) AppendIf(ctx context.Context, after int64, none []Match, events ...Event) ([]Appended, error) {
	return e.append(ctx, store.Append{Condition: &event.AppendCondition{AfterPosition: after, Items: itemsOf(none)}}, events)
}

func itemsOf(matches []Match) []event.ConditionItem {
	items := make([]event.ConditionItem, len(matches))
	for i, m := range matches {
		items[i] = event.ConditionItem{EventTypes: m.EventTypes, Tags: m.Tags}
	}
	return items
}
