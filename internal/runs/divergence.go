package runs

import (
	"context"
	"slices"

	"outboxweb/internal/projection"
)

// How the search for the event at which live rows and replay part is bounded:
// into how many stretches the events are divided each time, and how many looks
// at rows make stepping event by event as good.
const (
	partings   = 64
	cheapLooks = 200_000
)

// suspect is a row that differs, in the search for the event that made it so.
type suspect struct {
	*projection.Difference
	asLive  int64 // the last seq at which the replay's row was as the live one is; −1 when none was
	unlike  int64 // the last seq at which the replay's row was not yet what it came to; −1 when there was none
	parting int64 // the seq after which they part; −1 when no event explains the row
}

// divergenceSearch is for the event at which a projection's live rows of a campaign and
// its replay part.
type divergenceSearch struct {
	replayer   *Replayer
	campaign   string
	projection string
	stops      map[string]int64 // as in Folder.Begin
}

// first finds the first seq at which the replay has for one of the rows
// what the live rows lack: the event after the last one at which both were
// alike, or, where they never were, the one that gave the replay's row what it
// came to. It is 0 where no event did, as with a row that nothing explains.
//
// It replays the events up to until again, in stretches, looks at the rows where
// one ends, and goes on within the stretch in which the first row parts.
func (p divergenceSearch) first(ctx context.Context, until int64, rows []projection.Difference) (int64, error) {
	suspects := make([]*suspect, len(rows))
	for i := range rows {
		suspects[i] = &suspect{Difference: &rows[i]}
	}
	low, high := int64(0), until
	for len(suspects) > 0 {
		step := max(1, (high-low+partings-1)/partings)
		if (high-low)*int64(len(suspects)) <= cheapLooks {
			step = 1
		}
		if err := p.scan(ctx, low, high, step, suspects); err != nil {
			return 0, err
		}
		first := high
		for _, s := range suspects {
			if s.parting = s.unlike; s.asLive >= 0 {
				s.parting = s.asLive
			}
			if s.parting >= low {
				first = min(first, s.parting)
			}
		}
		suspects = slices.DeleteFunc(suspects, func(s *suspect) bool { return s.parting != first })
		if step == 1 && len(suspects) > 0 {
			if first == until { // a replay made again is another one
				return 0, nil
			}
			return first + 1, nil
		}
		low, high = first, min(high, first+step)
	}
	return 0, nil
}

// scan replays up to high and looks at the rows at low and after each step
// from there on.
func (p divergenceSearch) scan(ctx context.Context, low, high, step int64, suspects []*suspect) error {
	expected, err := p.replayer.Begin(ctx, p.campaign, p.stops, p.projection)
	if err != nil {
		return err
	}
	for _, s := range suspects {
		s.asLive, s.unlike = -1, -1
	}
	for at := low; ; at = min(high, at+step) {
		if err := expected.To(ctx, at); err != nil {
			return err
		}
		for _, s := range suspects {
			standing, err := s.MatchAt(ctx, p.replayer.scratch)
			if err != nil {
				return err
			}
			if standing.AsLive {
				s.asLive = at
			}
			if !standing.AsExpected {
				s.unlike = at
			}
		}
		if at == high {
			return nil
		}
	}
}
