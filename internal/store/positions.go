package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

var selectEventsFrom = SelectEvent + `
where position > $1
  and position <= $2
order by position
limit $3`

// lastPosition is above every position.
const lastPosition = 1<<63 - 1

// readBytes is the maximum size of events per read.
const readBytes = 8 << 20

// EventsFrom reads at most limit events of all campaigns after a position, in order of
// position. A caller who continues from the last one misses none: no event becomes visible
// below a position that was returned. A running append may hold events back; a later call
// returns them, as it does those that would exceed a few megabytes.
func (s *Store) EventsFrom(ctx context.Context, after int64, limit int) ([]event.Event, error) {
	lineage, now := s.Lineage(), s.Now()
	var events []event.Event
	read := func(t *Tx, last int64) error {
		events = []event.Event{}
		collect, size := sqldb.Collect(&events, scanEvent), 0
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
	s.lineage.see(lineage, now, events)
	if err != nil || whole == len(events) || s.journal.Dialect.OneWriter {
		return events, sqldb.Wrapf(err, "read events by position")
	}
	// Positions are drawn in one order and committed in another, so a hole is a running append or a
	// rolled-back one. Once this transaction has had the lock around drawing to itself, everything
	// up to here is decided.
	sound := slices.Clone(events[:whole])
	last := events[len(events)-1].Position
	err = s.journal.WriteFrom(ctx, sqldb.BeginSettled, func(t *Tx) error { return read(t, last) })
	if errors.Is(err, event.ErrBusy) {
		return sound, nil
	}
	s.lineage.see(lineage, now, events)
	return events, sqldb.Wrapf(err, "read events by position")
}

const (
	selectHeadPosition = `select coalesce(max(position), 0) from events`

	// selectDrawnPosition is the last position ever drawn, on SQLite.
	selectDrawnPosition = `select max(coalesce((select seq from sqlite_sequence where name = 'events'), 0), coalesce((select max(position) from events), 0))`
)

// HeadPosition is the last visible position of the journal; 0 when it is empty.
func (t *Tx) HeadPosition() (head int64, err error) {
	if _, err = t.One([]any{&head}, selectHeadPosition); err != nil {
		return 0, fmt.Errorf("read the journal's last position: %w", err)
	}
	return head, nil
}

// Position is the journal's last position; 0 when it is empty. No event becomes visible at or
// below it any more: a writer who reads it first, and then the data for a decision, has seen
// every event up to it. While an append stays open on PostgreSQL it is event.ErrBusy.
func (s *Store) Position(ctx context.Context) (position int64, err error) {
	if s.journal.Dialect.OneWriter {
		return Reading(ctx, s, "", (*Tx).HeadPosition)
	}
	err = s.journal.WriteFrom(ctx, sqldb.BeginSettled, func(t *Tx) (err error) {
		position, err = t.HeadPosition()
		return err
	})
	return position, err
}

// contiguous is the number of events without a hole in their positions, starting after a
// position.
func contiguous(events []event.Event, after int64) int {
	for i := range events {
		if events[i].Position != after+int64(i)+1 {
			return i
		}
	}
	return len(events)
}
