package runs

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// quarantined applies the event at which a projection is quarantined, and those that it lacks behind it,
// to copies of its rows, as a replay does once the changed files are loaded.
func (m *rehearsing) quarantined(ctx context.Context, id string, head blockedHead, result *outbox.RunResult) error {
	f, err := m.open(ctx, &m.copies, m.set)
	if err == nil {
		err = m.watchOrder(f)
	}
	if err != nil {
		return err
	}
	before, err := m.asNow(ctx, id)
	if err != nil {
		return err
	}
	stand := before.stands[head.Projection]
	switch result.Seq = stand.AppliedSeq; {
	case stand.State != outbox.CursorQuarantined || stand.AppliedSeq+1 != head.Seq:
		return unrehearsedf("the campaign moved: projection %s is not quarantined at event %d any more", head.Projection, head.Seq)
	case before.paused[head.Projection]:
		return unrehearsedf("projection %s is paused", head.Projection)
	}
	expected, err := m.copiedQuarantined(ctx, f, id, head, before)
	if err != nil {
		return err
	}
	if err := m.forgetOrder(f); err != nil {
		return err
	}
	until := min(head.Seq+m.asked.behind, before.mark.AppliedSeq)
	err = expected.To(ctx, until)
	result.Events = expected.Events
	if u := asInconsistent(err); u != nil {
		err = nil
		m.fails(result, head, ReplayFailure{Seq: u.seq, Err: errors.New(u.reason)})
	}
	if err != nil {
		return err
	}
	if first, failed := expected.failure(head.Projection); failed && result.Outcome == "" {
		m.fails(result, head, first)
	}
	if result.Outcome == "" {
		result.Outcome, result.Seq = outbox.OutcomePasses, expected.Seq
		result.Rehearsed.Applied, result.Rehearsed.Left = expected.Seq-stand.AppliedSeq, before.mark.AppliedSeq-expected.Seq
	}
	if err := m.compareQuarantined(ctx, f, expected, head.Projection, before, result); err != nil || result.Outcome != outbox.OutcomePasses {
		return err
	}
	if err := m.vouches(expected); err != nil {
		return err
	}
	return m.orderDecides(ctx, f)
}

// alsoQuarantined tries the events at which the other changed projections are quarantined in a campaign that
// passes: what is rehearsed passes only if all of them do.
func (m *rehearsing) alsoQuarantined(ctx context.Context, id, tried string, result *outbox.RunResult) error {
	order := outbox.RehearsalRequest{Campaigns: []string{id}} // by whichever error
	for _, name := range slices.Sorted(maps.Keys(m.asked.versions)) {
		if name == tried {
			continue
		}
		heads, err := m.worker.Runs.quarantinedHeads(ctx, order, []string{name})
		if err != nil {
			return err
		}
		head, is := heads[id]
		if !is {
			continue
		}
		also := outbox.RunResult{Projections: []outbox.ProjectionResult{}, Rehearsed: &outbox.Rehearsed{Head: head.Seq, Quarantined: name}}
		err = m.quarantined(ctx, id, head, &also)
		result.Events += also.Events
		var not *unrehearsed
		switch {
		case errors.As(err, &not): // it is paused, or passed the event since
		case err != nil:
			return err
		case also.Outcome != outbox.OutcomePasses:
			also.Events = result.Events
			*result = also
			return nil
		default:
			result.Rehearsed.Also = append(result.Rehearsed.Also, outbox.TriedQuarantine{Projection: name, Head: head.Seq})
			result.Projections = slices.DeleteFunc(result.Projections, func(p outbox.ProjectionResult) bool { return p.Projection == name })
			result.Projections = append(result.Projections, also.Projections...)
		}
	}
	return nil
}

// copiedQuarantined returns a replay of a quarantined projection that stands where its live rows do: with
// copies of them or, if its tables get another form or it reads those of others, which are further ahead,
// with rows replayed from the journal.
func (m *rehearsing) copiedQuarantined(ctx context.Context, f *Replayer, id string, head blockedHead, before standsAt) (*Expected, error) {
	expected, err := f.Begin(ctx, id, nil, head.Projection)
	if err != nil {
		return nil, err
	}
	at := head.Seq - 1
	if len(expected.names) > 1 || !m.copyable() {
		return expected, m.fromStart(ctx, expected, at)
	}
	mark, stands, err := f.scratch.LoadLive(ctx, id, f.tables(expected.names)...)
	if err != nil {
		return nil, err
	}
	if !before.same(standsAt{mark, stands, before.paused}) {
		return nil, errMoved
	}
	if err := m.madeAlike(ctx, f, expected); err != nil || at == 0 {
		return expected, err
	}
	event, err := f.store.Event(ctx, id, at)
	expected.Seq, expected.Hash = at, event.ChainHash
	return expected, err
}

// compareQuarantined records how the live rows of a quarantined projection differ from the replay, unless
// events would fail.
func (m *rehearsing) compareQuarantined(ctx context.Context, f *Replayer, expected *Expected, name string, before standsAt, result *outbox.RunResult) error {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return err
	}
	defer live.Close()
	after, err := m.standsAt(ctx, live, expected.campaign)
	if err == nil && before.stands[name] != after.stands[name] {
		err = errMoved
	}
	if err != nil || result.Outcome != outbox.OutcomePasses {
		return err
	}
	p := outbox.ProjectionResult{Projection: name, Seq: expected.Seq}
	if _, err := f.compare(ctx, live, expected.campaign, &p); err != nil {
		return err
	}
	result.Projections = append(result.Projections, p)
	return nil
}
