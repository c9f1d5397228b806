package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/readmodel"
)

// verifyTries is how often a verification begins anew when the campaign changes
// under its eyes.
const verifyTries = 5

// fewEvents is how many events a fold may be behind the live rows when it is
// brought level while others wait for it, or a snapshot is kept.
const fewEvents = 200

// errMoved is a campaign that changed while it was looked at.
var errMoved = errors.New("the campaign changed in the meantime")

// Verify folds a campaign's events and compares the fold with the live rows of
// some projections, none standing for all, without holding the campaign up.
// With until it only tells what the read models were at that seq, unless that
// is where they are. What cannot be folded, or keeps changing, is in the result,
// not an error.
func (f *Folder) Verify(ctx context.Context, campaign string, until int64, projections ...string) (outbox.RunResult, error) {
	names := projections
	if len(names) == 0 {
		names, _ = f.set.Needs()
	}
	for try := 1; ; try++ {
		result, err := f.verifyOnce(ctx, campaign, until, names)
		result.CampaignID = campaign
		switch unsound := asUnsound(err); {
		case errors.Is(err, errMoved) && try < verifyTries:
			continue
		case errors.Is(err, errMoved):
			return outbox.RunResult{CampaignID: campaign, Outcome: outbox.OutcomeFailed, Seq: result.Seq, Projections: []outbox.ProjectionResult{},
				Error: fmt.Sprintf("the campaign keeps changing; gave up after %d tries", try)}, nil
		case unsound != nil:
			return outbox.RunResult{CampaignID: campaign, Outcome: outbox.OutcomeFailed, Seq: unsound.seq, Unsound: unsound.seq, Error: unsound.reason, Projections: []outbox.ProjectionResult{}}, nil
		}
		return result, err
	}
}

func (f *Folder) verifyOnce(ctx context.Context, campaign string, until int64, names []string) (outbox.RunResult, error) {
	fold, target, err := f.beginLike(ctx, campaign, until, names)
	if err != nil {
		return outbox.RunResult{}, err
	}
	if err := fold.To(ctx, target); err != nil {
		return outbox.RunResult{}, err
	}
	result, drifted, err := f.holdAll(ctx, fold, until, names)
	if err != nil || len(drifted) == 0 {
		return result, err
	}
	if err := f.skipsStill(ctx, fold); err != nil {
		return result, err
	}
	return result, f.tellPartings(ctx, fold, &result, drifted)
}

// tellPartings says of each projection that differs from which event on it does.
// Afterwards the fold's tables are used up.
func (f *Folder) tellPartings(ctx context.Context, fold *Fold, result *outbox.RunResult, drifted map[int][]projection.Difference) (err error) {
	for i, rows := range drifted {
		p := &result.Projections[i]
		if p.Comparison.FirstSeq, err = (partingSearch{f, fold.campaign, p.Projection, fold.began}).first(ctx, p.Seq, rows); err != nil {
			return err
		}
	}
	return nil
}

// holdAll compares a fold with the live rows as they are now. It returns the
// rows that differ by the projection's index in the result.
func (f *Folder) holdAll(ctx context.Context, fold *Fold, until int64, names []string) (result outbox.RunResult, drifted map[int][]projection.Difference, err error) {
	live, mark, stands, err := f.levelWithLive(ctx, fold, until)
	if err != nil {
		return result, nil, err
	}
	defer live.Close()
	result = outbox.RunResult{Outcome: outbox.OutcomeMatch, Seq: fold.Seq, Projections: []outbox.ProjectionResult{}}
	compared := until == 0 || until == mark.AppliedSeq
	if compared && mark.AppliedSeq > 0 && fold.Hash != mark.AppliedHash {
		result.Outcome, result.Unsound = outbox.OutcomeFailed, mark.AppliedSeq
		result.Error = fmt.Sprintf("the projections have an event %d that the journal does not have; %s", mark.AppliedSeq, outbox.RightJournalFirst)
		return result, nil, nil
	}
	digests, full, err := fold.Digests(ctx, names...)
	if err != nil {
		return result, nil, err
	}
	result.Full, drifted = full, make(map[int][]projection.Difference)
	for i, name := range names {
		p := outbox.ProjectionResult{Projection: name, Digest: digests[name], Seq: fold.Seq}
		level := true
		if until == 0 {
			p.Seq = fold.standsAt(name, stands)
			leaveOut(&result, &p, stands[name], mark.AppliedSeq)
		} else if level, err = f.standLevel(name, stands); err != nil {
			return result, nil, err
		}
		if failed, ok := fold.failure(name); ok {
			refuse(&result, &p, failed)
		} else if compared && level && p.LeftOut != outbox.CursorBehind {
			rows, err := f.hold(ctx, live, fold.campaign, &p)
			if err != nil {
				return result, nil, err
			}
			if p.Verdict == outbox.VerdictDrift {
				drifted[i] = rows
				if result.Outcome != outbox.OutcomeFailed {
					result.Outcome = outbox.OutcomeDrift
				}
			}
		}
		result.Projections = append(result.Projections, p)
	}
	return result, drifted, nil
}

// standLevel reports whether a projection, and those whose tables it reads,
// stand at the watermark.
func (f *Folder) standLevel(name string, stands map[string]readmodel.Stand) (bool, error) {
	needs, err := f.set.Needs(name)
	return err == nil && !slices.ContainsFunc(needs, func(needed string) bool {
		s, known := stands[needed]
		return known && s.State != outbox.CursorLive
	}), err
}

// refuse notes that a projection could not be folded.
func refuse(result *outbox.RunResult, p *outbox.ProjectionResult, failed FoldFailure) {
	p.Error, p.ErrorSeq, p.Seq = failed.Err.Error(), failed.Seq, failed.Seq-1
	result.Outcome = outbox.OutcomeFailed
	if result.Error == "" {
		result.Error = fmt.Sprintf("event %d cannot be replayed: %v", failed.Seq, failed.Err)
	}
}

// leaveOut notes what of a projection that lacks events is not compared. One that
// is behind is about to change: that its rows are right as of an earlier event is
// no match, and no failure.
func leaveOut(result *outbox.RunResult, p *outbox.ProjectionResult, stand readmodel.Stand, applied int64) {
	if stand.State == "" || stand.State == outbox.CursorLive || stand.AppliedSeq >= applied {
		return
	}
	p.LeftOut = stand.State
	if result.Outcome == outbox.OutcomeMatch {
		result.Outcome = outbox.OutcomeNotCompared
	}
}

// beginLike starts a fold that stops where projections stand that do not
// follow the campaign. target is how far to fold as things are now.
func (f *Folder) beginLike(ctx context.Context, campaign string, until int64, names []string) (fold *Fold, target int64, err error) {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return nil, 0, err
	}
	mark, stands, err := standing(ctx, live, campaign)
	live.Close()
	if err != nil {
		return nil, 0, err
	}
	if target = mark.AppliedSeq; until > 0 {
		target, stands = until, nil
	}
	fold, err = f.Begin(ctx, campaign, stopsOf(stands), names...)
	return fold, target, err
}

// standing reads where the projections of a campaign stand.
func standing(ctx context.Context, live *readmodel.Live, campaign string) (readmodel.Watermark, map[string]readmodel.Stand, error) {
	mark, _, err := live.Watermark(ctx, campaign)
	if err != nil {
		return mark, nil, err
	}
	stands, err := live.Stands(ctx, campaign)
	return mark, stands, err
}

// stopsOf are the seqs after which projections that do not follow got no event.
func stopsOf(stands map[string]readmodel.Stand) map[string]int64 {
	stops := make(map[string]int64)
	for name, s := range stands {
		if s.State != outbox.CursorLive {
			stops[name] = s.AppliedSeq
		}
	}
	return stops
}

// levelWithLive takes a snapshot of the live rows and folds on to where they
// are; when they are far ahead it folds on without keeping the snapshot, and
// takes another. The caller closes it. What does not fit any more is errMoved.
func (f *Folder) levelWithLive(ctx context.Context, fold *Fold, until int64) (*readmodel.Live, readmodel.Watermark, map[string]readmodel.Stand, error) {
	for {
		live, err := f.store.ReadModel().Live(ctx)
		if err != nil {
			return nil, readmodel.Watermark{}, nil, err
		}
		mark, stands, err := standing(ctx, live, fold.campaign)
		if err == nil && until == 0 {
			switch {
			case mark.AppliedSeq < fold.Seq || !maps.Equal(fold.began, stopsOf(stands)):
				err = errMoved
			case mark.AppliedSeq-fold.Seq > fewEvents:
				live.Close()
				if err = fold.To(ctx, mark.AppliedSeq); err != nil {
					return nil, mark, nil, err
				}
				continue
			default: // without a rest: the file of changes grows as long as a snapshot is kept
				f.hurry = true
				err = fold.To(ctx, mark.AppliedSeq)
				f.hurry = false
			}
		}
		if err != nil {
			live.Close()
			return nil, mark, nil, err
		}
		return live, mark, stands, nil
	}
}

// standsAt is the seq to which a projection was folded.
func (d *Fold) standsAt(name string, stands map[string]readmodel.Stand) int64 {
	if s, ok := stands[name]; ok && s.State != outbox.CursorLive {
		return min(s.AppliedSeq, d.Seq)
	}
	return d.Seq
}

// hold compares the live rows of a projection with the fold, says how they
// differ, and returns the rows that do. Where the projection's file says what its
// digest covers, rows that differ in nothing of that are alike.
func (f *Folder) hold(ctx context.Context, live *readmodel.Live, campaign string, p *outbox.ProjectionResult) ([]projection.Difference, error) {
	c, rows, err := f.set.Compare(ctx, live, f.scratch, campaign, p.Projection)
	if err != nil {
		return nil, err
	}
	p.Comparison, p.Before, p.Verdict = &c, p.Digest, outbox.VerdictMatch
	if !c.Differs() {
		return nil, nil
	}
	p.Verdict, p.Before = outbox.VerdictDrift, ""
	if f.foreign {
		return rows, nil
	}
	digests, _, err := f.set.Digests(ctx, live, campaign, p.Projection)
	p.Before = digests[p.Projection]
	if err == nil && p.Before == p.Digest && !f.set.CoversAll(p.Projection) {
		p.Verdict, p.Comparison = outbox.VerdictMatch, &outbox.Comparison{Samples: []outbox.RowChange{}}
		return nil, nil
	}
	return rows, err
}

// skipsStill makes sure that the events which the fold passed over are those
// that are skipped now.
func (f *Folder) skipsStill(ctx context.Context, fold *Fold) error {
	skips, err := f.store.StandingSkips(ctx, fold.campaign, fold.Seq)
	if err != nil {
		return err
	}
	if !fold.passedOver(skips) {
		return errMoved
	}
	return nil
}

// passedOver reports whether the fold passed over these skips, which stand up
// to its seq, and no others.
func (d *Fold) passedOver(skips []outbox.Skip) bool {
	if len(skips) != len(d.Skips) {
		return false
	}
	for _, k := range skips {
		if d.Skips[k.Seq] != k.ID {
			return false
		}
	}
	return true
}
