package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// replay restores the rows of a campaign's unapplied events and catches up quarantined and resumed
// projections, but not paused ones.
func (r *runner) replay(ctx context.Context, f *Replayer, c Campaign) (replay.RunResult, error) {
	result := replay.RunResult{Outcome: replay.OutcomeMatch, Projections: []replay.ProjectionResult{}}
	repaired, err := r.worker.Runs.queue.ReconcileCampaign(ctx, c.CampaignID)
	if err != nil {
		return result, err
	}
	if repaired.Inserted+repaired.Removed > 0 {
		result.Outcome = replay.OutcomeReplayed
	}
	if now, err := f.store.Campaign(ctx, c.CampaignID); err != nil || now.Diverged != "" {
		result.Outcome, result.Seq, result.Error = replay.OutcomeFailed, now.AppliedSeq, "the campaign has diverged, and nothing can be applied to it: "+now.Diverged+"; "+campaign.RightJournalFirst
		return result, err
	}
	now, err := f.standsNow(ctx, c.CampaignID)
	if err != nil {
		return result, err
	}
	result.Seq = now.mark.AppliedSeq
	for _, name := range r.lease.Run.Projections {
		if !lags(now.stands[name]) || now.paused[name] {
			continue
		}
		p, err := r.catchUp(ctx, f, c, name)
		if errors.Is(err, errMoved) {
			r.log(c.CampaignID, "projection %s was paused or caught up by someone else in the meantime; it is unchanged", name)
			continue
		}
		if err != nil {
			return result, err
		}
		if result.Outcome == replay.OutcomeMatch {
			result.Outcome = replay.OutcomeReplayed
		}
		if p.Error != "" {
			result.Outcome = replay.OutcomeFailed
			result.Error = fmt.Sprintf("projection %s cannot apply event %d: %s", name, p.ErrorSeq, p.Error)
		}
		result.Projections = append(result.Projections, p)
	}
	return result, nil
}

// lags reports whether a projection is to be caught up.
func lags(s readmodel.Position) bool {
	return s.State == campaign.CursorQuarantined || s.State == campaign.CursorBehind
}

// catchUp replays the events that a projection lacks onto its rows and swaps them in. If it refuses
// an event again it stops before that event. If it is no longer to be caught up, catchUp returns
// errMoved.
func (r *runner) catchUp(ctx context.Context, f *Replayer, c Campaign, name string) (p replay.ProjectionResult, err error) {
	p.Projection = name
	m := &rebuilding{scope: c, names: []string{name}}
	mark, err := m.readPositions(ctx, f)
	if err == nil && !lags(m.stands[name]) {
		err = errMoved
	}
	if err != nil {
		return p, err
	}
	if err := m.resume(ctx, f, mark.AppliedSeq); err != nil {
		return p, err
	}
	if err := m.approach(ctx, f); err != nil {
		return p, err
	}
	f.hurry = true
	defer func() { f.hurry = false }()
	for !m.ended {
		err := r.withLeases(ctx, []string{c.CampaignID}, func(claims []outbox.RunClaim) error {
			if len(claims) == 0 {
				return nil // another run has it; it is retried later
			}
			m.ended = true
			return m.land(context.WithoutCancel(ctx), r.worker, f, claims[0], &p)
		})
		if err != nil {
			return p, err
		}
	}
	if m.result.Error != "" {
		p.Error, p.ErrorSeq = m.result.Error, m.result.Seq
	}
	return p, nil
}

// resume starts from the projection's live rows, or from the start if it reads tables of other
// projections, which are further ahead, and replays up to seq.
func (m *rebuilding) resume(ctx context.Context, f *Replayer, seq int64) error {
	name := m.names[0]
	needs, err := f.set.Needs(name)
	if err != nil {
		return err
	}
	if len(needs) > 1 {
		return m.begin(ctx, f, seq)
	}
	if m.expected, err = f.Begin(ctx, m.scope.CampaignID, nil, name); err != nil {
		return err
	}
	_, stands, err := f.scratch.LoadLive(ctx, m.scope.CampaignID, f.tables(m.names)...)
	if err != nil {
		return err
	}
	m.stands, m.after = stands, 0
	stand := stands[name]
	if !lags(stand) { // the rows do not belong to its seq
		return errMoved
	}
	if stand.AppliedSeq > 0 {
		event, err := f.store.Event(ctx, m.scope.CampaignID, stand.AppliedSeq)
		if err != nil {
			return err
		}
		m.expected.Seq, m.expected.Hash, m.after = stand.AppliedSeq, event.ChainHash, stand.AppliedSeq
		skips, err := f.store.ActiveSkips(ctx, m.scope.CampaignID, stand.AppliedSeq)
		if err != nil {
			return err
		}
		for _, k := range skips {
			m.expected.Skips[k.Seq] = k.ID
		}
	}
	return m.endUnsound(m.expected.To(ctx, seq))
}

// land replays what was applied meanwhile and swaps the projection's rows in.
func (m *rebuilding) land(ctx context.Context, w *Worker, f *Replayer, claim outbox.RunClaim, p *replay.ProjectionResult) error {
	name, mark := m.names[0], claim.Watermark
	if err := m.goOn(ctx, f, mark.AppliedSeq, m.resume); err != nil || m.result.Error != "" {
		return err
	}
	failed, again := m.expected.Failed[name]
	if !again && m.expected.Hash != mark.AppliedHash {
		p.Error, p.ErrorSeq = fmt.Sprintf("its rows are unchanged: the campaign has diverged, the projections have an event %d that the journal does not have; %s", mark.AppliedSeq, campaign.RightJournalFirst), mark.AppliedSeq
		return nil
	}
	if other := m.expected.failure(name); other != nil && !again {
		p.Error, p.ErrorSeq = "its rows are unchanged: "+other.Err.Error(), other.Seq
		return nil
	}
	after, _, err := m.expected.Digests(ctx, name)
	if err != nil {
		return err
	}
	p.Digest, p.Seq = after[name], m.expected.Seq
	stand := m.stands[name]
	part := readmodel.SwapProjection{Name: name, Version: f.set.Named(name).Version, After: m.after, Tables: f.tables([]string{name}), Seq: m.expected.Seq, Expect: &stand, State: campaign.CursorLive}
	if again {
		p.Error, p.ErrorSeq, p.Seq = failed.Err.Error(), failed.Seq, failed.Seq-1
		part.Seq, part.State = p.Seq, campaign.CursorQuarantined
		part.Failure = &readmodel.SwapFailure{Failure: *w.Failure(failed.Err), EventType: failed.EventType, Attempts: 1}
	}
	swapped, err := f.scratch.Swap(ctx, []readmodel.Swap{{CampaignID: m.scope.CampaignID, Epoch: claim.Epoch,
		AppliedSeq: mark.AppliedSeq, AppliedHash: mark.AppliedHash, Projections: []readmodel.SwapProjection{part}}})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(swapped, func(s readmodel.Swapped) bool { return s.Err != nil })
	if i >= 0 {
		if errors.Is(swapped[i].Err, readmodel.ErrPausedForAll) {
			return errMoved
		}
		p.Error = fmt.Sprintf("its rows are unchanged: %v", swapped[i].Err)
		return nil
	}
	p.Generation, p.Rows, p.From = nextGeneration(stand), swapped[0].Rows[name], &stand.AppliedSeq
	return nil
}
