package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
)

const selectEventsFrom = SelectEvent + `
where position > $1
  and position <= $2
order by position
limit $3`

// lastPosition is above every position.
const lastPosition = 1<<63 - 1

// readBytes is how much of events is read at a time.
const readBytes = 8 << 20

// EventsFrom reads events of all campaigns after a position, in the order of
// positions, at most limit. Whoever goes on from the last one misses none: an
// event never becomes visible below a position that was handed out here. An
// append that is under way may hold events back; they come with a later call,
// as do those that would make more than a few megabytes.
func (s *Store) EventsFrom(ctx context.Context, after int64, limit int) ([]outbox.Event, error) {
	var events []outbox.Event
	read := func(t *Tx, last int64) error {
		events = []outbox.Event{}
		collect, size := collectEvents(&events), 0
		return t.Each(func(row sqldb.Row) error {
			if err := collect(row); err != nil {
				return err
			}
			e := &events[len(events)-1]
			if size += len(e.Payload) + len(e.Metadata) + len(e.Tags); size >= readBytes {
				return sqldb.ErrEnough
			}
			return nil
		}, selectEventsFrom, after, last, limit)
	}
	err := s.journal.Read(ctx, func(t *Tx) error { return read(t, lastPosition) })
	whole := contiguous(events, after)
	if err != nil || whole == len(events) || s.journal.Dialect.OneWriter {
		return events, wrapPositions(err)
	}
	// Positions are drawn in one order and committed in another, so that a hole
	// is an append under way, or one that was rolled back. Once the lock around
	// the drawing is had alone, everything up to here is decided.
	sound := slices.Clone(events[:whole])
	last := events[len(events)-1].Position
	err = s.journal.WriteFrom(ctx, sqldb.BeginSettled, func(t *Tx) error { return read(t, last) })
	if errors.Is(err, outbox.ErrBusy) {
		return sound, nil
	}
	return events, wrapPositions(err)
}

// HeadPosition is the journal's last position that can be seen; 0 when it is
// empty.
func (t *Tx) HeadPosition() (head int64, err error) {
	if _, err = t.One([]any{&head}, `select coalesce(max(position), 0) from events`); err != nil {
		return 0, fmt.Errorf("read the journal's last position: %w", err)
	}
	return head, nil
}

// Position is the journal's last position, and 0 when it is empty. No event
// becomes visible at or below it any more: a writer who takes it first, and
// then reads what a decision rests on, has seen every event up to it. While an
// append stays open on PostgreSQL it is outbox.ErrBusy.
func (s *Store) Position(ctx context.Context) (position int64, err error) {
	read := func(t *Tx) (err error) {
		position, err = t.HeadPosition()
		return err
	}
	if !s.journal.Dialect.OneWriter {
		err = s.journal.WriteFrom(ctx, sqldb.BeginSettled, read)
	} else {
		err = s.journal.Read(ctx, read)
	}
	return position, err
}

func wrapPositions(err error) error {
	if err != nil {
		return fmt.Errorf("read events by position: %w", err)
	}
	return nil
}

// contiguous is how many of the events follow each other without a hole in
// their positions, from the one after on.
func contiguous(events []outbox.Event, after int64) int {
	for i := range events {
		if events[i].Position != after+int64(i)+1 {
			return i
		}
	}
	return len(events)
}
