package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/projection"
)

// suspect is a differing row, in the search for the event that caused the difference.
type suspect struct {
	*projection.Difference
	projection.RowMatch       // of the row as of event at
	copies              int   // more than one only without a primary key
	at                  int64 // the last event that changed the row; 0 if none has
	asLive              int64 // the last seq at which the replay's row equalled the live one; −1 if none
	unlike              int64 // the last seq at which the replay's row did not have its final state yet; −1 if none
}

// until notes that the row is as it is until an event changes it.
func (s *suspect) until(seq int64) {
	if s.at == seq {
		return
	}
	if s.AsLive {
		s.asLive = seq - 1
	}
	if !s.AsExpected {
		s.unlike = seq - 1
	}
	s.at = seq
}

// firstDivergence returns the first seq at which the replay has for one of the rows what the live rows
// lack: the event after the last one at which both were equal or, if they never were, the one that gave
// the replay's row its final state. It is 0 if no event explains the row.
//
// It replays the events up to until once more, and follows the changes of the rows.
func (f *Replayer) firstDivergence(ctx context.Context, d *Expected, name string, until int64, rows []projection.Difference) (int64, error) {
	r, err := f.recordAgain(ctx, d, name, rows)
	if err != nil {
		return 0, err
	}
	suspects := make(map[string]*suspect, len(rows))
	for i := range rows {
		suspects[rows[i].Row] = &suspect{Difference: &rows[i], RowMatch: rows[i].Match(projection.Shape{}, nil), asLive: -1, unlike: -1}
	}
	at := int64(0)
	err = r.record(ctx, until, func(changes []Change) error {
		for i := range changes {
			r.follow(suspects, &changes[i])
		}
		f.say(d.campaign, fmt.Sprintf("looking for the event from which on rows of projection %s differ: at event %d of %d", name, r.Seq(), until))
		events := r.Seq() - at
		at = r.Seq()
		return f.throttle(ctx, r.expected, events)
	})
	if err != nil {
		return 0, err
	}
	first := until
	for _, s := range suspects {
		s.until(until + 1)
		parting := s.unlike
		if s.asLive >= 0 {
			parting = s.asLive
		}
		if parting >= 0 {
			first = min(first, parting)
		}
	}
	if err := r.replayer.scratch.Clear(ctx, ""); err != nil || first == until { // a replay made again may differ
		return 0, err
	}
	return first + 1, nil
}

// recordAgain begins a Recording of the tables of some rows for the replay d of one projection, in scratch
// tables of its own, since capturing changes slows a replay down. They are kept for the next one.
func (f *Replayer) recordAgain(ctx context.Context, d *Expected, name string, rows []projection.Difference) (*Recording, error) {
	tables := slices.DeleteFunc(f.set.Shapes(), func(shape projection.Shape) bool {
		recorded := f.again != nil && slices.ContainsFunc(f.again.Tables, func(other projection.Shape) bool { return other.Table == shape.Table })
		return !recorded && !slices.ContainsFunc(rows, func(row projection.Difference) bool { return row.Change.Table == shape.Table })
	})
	if f.again != nil && len(tables) > len(f.again.Tables) {
		if err := f.again.Close(); err != nil {
			return nil, err
		}
		f.again = nil
	}
	if f.again == nil {
		made, err := NewReplayer(ctx, f.store, f.set)
		if err != nil {
			return nil, err
		}
		f.again = newRecording(made, tables)
		f.again.events = true
	}
	var err error
	f.again.expected, err = f.again.replayer.Begin(ctx, d.campaign, d.began, name)
	return f.again, err
}

// follow applies a change to the suspect whose row it is, if any.
func (r *Recording) follow(suspects map[string]*suspect, c *Change) {
	shape := r.Tables[c.Table]
	change := func(key, columns []json.RawMessage, by int) {
		s := suspects[shape.RowOf(key)]
		if s == nil {
			return
		}
		s.until(c.Seq)
		if s.copies += by; s.copies > 0 && columns == nil {
			return
		}
		s.RowMatch = s.Match(shape, columns)
	}
	if c.Was != nil {
		change(c.Was, nil, -1)
	}
	if c.Is != nil {
		change(shape.KeyOf(c.Is), c.Is, 1)
	}
}
