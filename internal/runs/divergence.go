package runs

import (
	"context"
	"slices"

	"github.com/outboxweb/outboxweb/internal/projection"
)

// Bounds of the search for the first divergence: the number of stretches that the events are
// divided into each time, and the number of row reads up to which stepping event by event is as
// cheap.
const (
	partings   = 64
	cheapLooks = 200_000
)

// suspect is a differing row, in the search for the event that caused the difference.
type suspect struct {
	*projection.Difference
	asLive  int64 // the last seq at which the replay's row equalled the live one; −1 if none
	unlike  int64 // the last seq at which the replay's row did not have its final state yet; −1 if none
	parting int64 // the seq after which they diverge; −1 if no event explains the row
}

// divergenceSearch looks for the event at which a projection's live rows of a campaign diverge from
// its replay.
type divergenceSearch struct {
	replayer   *Replayer
	campaign   string
	projection string
	stops      map[string]int64 // as in Replayer.Begin
}

// first returns the first seq at which the replay has for one of the rows what the live rows lack:
// the event after the last one at which both were equal or, if they never were, the one that gave
// the replay's row its final state. It is 0 if no event explains the row.
//
// It replays the events up to until again, in stretches, reads the rows at the end of each, and
// continues within the stretch in which the first row diverges.
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
			if first == until { // a replay made again may differ
				return 0, nil
			}
			return first + 1, nil
		}
		low, high = first, min(high, first+step)
	}
	return 0, nil
}

// scan replays up to high and reads the rows at low and after each step from there on.
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
