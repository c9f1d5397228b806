package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// standsAt is where the live rows of a campaign stand.
type standsAt struct {
	mark   readmodel.Watermark
	stands map[string]readmodel.Position // with the pauses for all campaigns, which are recorded in one once it advances
	paused map[string]bool               // projections that are paused for all campaigns
}

func newStandsAt(mark readmodel.Watermark, stands map[string]readmodel.Position, paused map[string]bool) standsAt {
	for name := range paused {
		if s, known := stands[name]; !known || s.State == campaign.CursorLive {
			stands[name] = readmodel.Position{AppliedSeq: mark.AppliedSeq, State: campaign.CursorPaused}
		}
	}
	return standsAt{mark, stands, paused}
}

func readStands(ctx context.Context, live *readmodel.Live, id string) (standsAt, error) {
	mark, stands, err := standing(ctx, live, id)
	if err != nil {
		return standsAt{}, err
	}
	paused, err := live.PausedForAll(ctx)
	return newStandsAt(mark, stands, paused), err
}

// standsNow is readStands in a snapshot of its own.
func (f *Replayer) standsNow(ctx context.Context, id string) (standsAt, error) {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return standsAt{}, err
	}
	defer live.Close()
	return readStands(ctx, live, id)
}

// at is the position of a projection, or without a name that of the campaign.
func (s standsAt) at(projection string) int64 {
	if projection == "" {
		return s.mark.AppliedSeq
	}
	return s.stands[projection].AppliedSeq
}

// same reports whether a projection did not move between two states or, without a name, that neither
// the campaign nor any of its projections did.
func (s standsAt) same(other standsAt, projection string) bool {
	if projection != "" {
		return s.stands[projection] == other.stands[projection]
	}
	return s.mark.AppliedSeq == other.mark.AppliedSeq && s.mark.AppliedHash == other.mark.AppliedHash &&
		maps.Equal(s.stands, other.stands) && maps.Equal(s.paused, other.paused)
}

// stopped reports whether a projection gets none of the campaign's events.
func (s standsAt) stopped(projection string) bool {
	stand := s.stands[projection]
	return stand.State != "" && stand.State != campaign.CursorLive
}

// copies returns a replay that continues from copies of the campaign's live rows, which stand where they
// were read before; errMoved if they do not any more. It is of all projections but those that are stopped
// or, by its name, of a stopped one.
func (f *Replayer) copies(ctx context.Context, id, of string, before standsAt) (*Expected, error) {
	expected, err := f.beginOn(ctx, id, of, before)
	if err != nil {
		return nil, err
	}
	mark, stands, err := f.scratch.LoadLive(ctx, id, f.tables(expected.names)...)
	if err != nil {
		return nil, err
	}
	if !newStandsAt(mark, stands, before.paused).same(before, "") {
		return nil, errMoved
	}
	expected.Seq, expected.Hash = mark.AppliedSeq, mark.AppliedHash
	if of == "" {
		return expected, nil
	}
	if expected.Seq, expected.Hash = before.at(of), ""; expected.Seq > 0 {
		var event event.Event
		event, err = f.store.Event(ctx, id, expected.Seq)
		expected.Hash = event.ChainHash
	}
	return expected, err
}

// beginOn begins a replay for copies, from the campaign's start.
func (f *Replayer) beginOn(ctx context.Context, id, of string, before standsAt) (*Expected, error) {
	if of != "" {
		return f.Begin(ctx, id, nil, of)
	}
	expected, err := f.Begin(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range expected.names {
		if before.stopped(name) {
			expected.drop(name)
		}
	}
	return expected, nil
}

// try replays up to an event, and returns the first one that is unsound or that a projection refused; nil
// if none is.
func (d *Expected) try(ctx context.Context, until int64) (*ReplayFailure, error) {
	err := d.To(ctx, until)
	first := d.first(d.names)
	if u := asInconsistent(err); u != nil {
		if err = nil; first == nil || u.seq < first.Seq {
			first = &ReplayFailure{Seq: u.seq, Err: errors.New(u.reason)}
		}
	}
	return first, err
}

// compareLive compares the replay with the live rows, of all its projections or of one; errMoved if they
// do not stand where they did before. Stopped projections are left out.
func (f *Replayer) compareLive(ctx context.Context, expected *Expected, of string, before standsAt) ([]replay.ProjectionResult, error) {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return nil, err
	}
	defer live.Close()
	after, err := readStands(ctx, live, expected.campaign)
	if err == nil && !before.same(after, of) {
		err = errMoved
	}
	if err != nil {
		return nil, err
	}
	names := expected.names
	if of != "" {
		names = []string{of}
	}
	results := make([]replay.ProjectionResult, len(names))
	for i, name := range names {
		p := &results[i]
		p.Projection, p.Seq = name, expected.Seq
		if expected.left[name] && before.stopped(name) {
			p.Seq, p.LeftOut = before.at(name), before.stands[name].State
		} else if _, err := f.compare(ctx, live, expected.campaign, p); err != nil {
			return nil, fmt.Errorf("compare what was tried on copies: %w", err)
		}
	}
	return results, f.noteVersions(ctx, expected.campaign, results)
}

// blocking lists the projections that block a campaign when they refuse an event.
func (f *Replayer) blocking() (names []string) {
	for _, p := range f.set.Projections() {
		if p.OnFailure != projection.Quarantine {
			names = append(names, p.Name)
		}
	}
	return names
}
