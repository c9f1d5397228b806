package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Matching is events to decide an append by.
type Matching struct {
	Events []event.Event // in order of position
	// Position is the one for the append's condition: no other event up to it matches, and none will.
	// If there are more events it is that of the last one here.
	Position int64
	More     bool // call again with after = Position
}

// EventsMatching reads the events after a position that match any of the items, at most limit, from
// the first on. An append with a condition of the same items and the Position of the last call is
// refused exactly if the journal has a matching event that the calls did not return.
//
// Errors are those of a condition: event.ErrInvalid for items that cannot be, for a position beyond
// the journal's end, and where too many events would have to be read. On PostgreSQL it waits for
// appends in progress, and returns event.ErrBusy while one stays open.
func (s *Store) EventsMatching(ctx context.Context, items []event.ConditionItem, after int64, limit int) (Matching, error) {
	c := event.AppendCondition{AfterPosition: after, Items: items}
	if err := c.Validate(); err != nil {
		return Matching{}, err
	}
	// First the position, then the events: an event between the two conflicts with the append.
	position, err := s.Position(ctx)
	if err != nil {
		return Matching{}, err
	}
	found := Matching{Position: position}
	cut := position
	err = s.journal.Read(ctx, func(t *Tx) error {
		if err := t.checkPosition(after); err != nil {
			return err
		}
		all := &matching{limit: max(1, limit), events: map[int64]event.Event{}, cut: position}
		for i := range items {
			look := &search{t: t, after: after, below: position + 1, all: all, budget: searchBudget}
			if err := look.find(i, &items[i]); err != nil {
				return err
			}
		}
		found.Events, cut = all.upToCut(), all.cut
		return nil
	})
	if err != nil {
		return Matching{}, fmt.Errorf("read the events to decide by: %w", err)
	}
	found.More, found.Position = cut < position, cut
	return found, nil
}

// matching collects the first events of each walk of a search.
type matching struct {
	limit  int
	events map[int64]event.Event // by position
	cut    int64                 // no walk ended before it

	count, bytes int // in this walk
}

// add adds an event, and reports whether the walk has enough.
func (m *matching) add(e *event.Event) bool {
	m.events[e.Position] = *e
	m.count++
	m.bytes += len(e.Payload) + len(e.Metadata) + len(e.Tags)
	enough := m.count == m.limit || m.bytes >= readBytes
	if enough {
		m.cut = min(m.cut, e.Position)
	}
	return enough
}

// upToCut returns the events that no walk has missed, at most limit.
func (m *matching) upToCut() []event.Event {
	all := slices.SortedFunc(maps.Values(m.events), func(a, b event.Event) int { return cmp.Compare(a.Position, b.Position) })
	if len(all) > m.limit {
		m.cut = min(m.cut, all[m.limit-1].Position)
	}
	return slices.DeleteFunc(all, func(e event.Event) bool { return e.Position > m.cut })
}

// selectEvent reads what a search needs of one event.
func (s *search) selectEvent() string {
	columns := SelectEnvelopes
	if s.all != nil {
		columns = SelectEvent
	}
	return columns + "\nwhere position = $1"
}
