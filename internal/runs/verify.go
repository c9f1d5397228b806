package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// verifyTries is how often a verification starts over if the campaign changes during it.
const verifyTries = 5

// fewEvents is how many events a replay may be behind the live rows when it catches up while others
// wait for it, or a snapshot is held.
const fewEvents = 200

// errMoved is a campaign that changed while it was read.
var errMoved = errors.New("the campaign changed in the meantime")

// Verify replays a campaign's events and compares the replay with the live rows of some
// projections, none meaning all, without blocking the campaign. With until it only returns the read
// models as of that seq, unless that is their position. A failed replay, or a campaign that keeps
// changing, is in the result, not an error.
func (f *Replayer) Verify(ctx context.Context, campaign string, until int64, projections ...string) (outbox.RunResult, error) {
	names := projections
	if len(names) == 0 {
		names, _ = f.set.Needs()
	}
	for try := 1; ; try++ {
		result, err := f.verifyOnce(ctx, campaign, until, names)
		result.CampaignID = campaign
		switch unsound := asInconsistent(err); {
		case err == nil:
			return result, nil
		case errors.Is(err, errMoved) && try < verifyTries:
			continue
		case errors.Is(err, errMoved):
			return outbox.RunResult{CampaignID: campaign, Outcome: outbox.OutcomeFailed, Seq: result.Seq, Projections: []outbox.ProjectionResult{},
				Error: fmt.Sprintf("the campaign keeps changing; gave up after %d tries", try)}, nil
		case unsound != nil:
			return outbox.RunResult{CampaignID: campaign, Outcome: outbox.OutcomeFailed, Seq: unsound.seq, Unsound: unsound.seq, Error: unsound.reason, Projections: []outbox.ProjectionResult{}}, nil
		}
		if unlike := f.unlike(ctx, names, err); unlike != "" {
			return outbox.RunResult{CampaignID: campaign, Outcome: outbox.OutcomeFailed, Projections: []outbox.ProjectionResult{}, Error: unlike}, nil
		}
		return result, err
	}
}

// unlike says which table of some projections, or of those whose tables they read, is missing or not as
// the loaded file makes it, and what helps, if that may be the cause of err; nothing otherwise.
func (f *Replayer) unlike(ctx context.Context, names []string, err error) string {
	if _, refused := errors.AsType[*outbox.Refusal](err); refused || f.store.ReadModel().Away(err) || ctx.Err() != nil {
		return ""
	}
	if table, of := f.missing(ctx, names); table != "" {
		return fmt.Sprintf("table %s of projection %s is missing; a running worker makes its tables again within half a minute, and a replay fills them", table, of)
	}
	needs, _ := f.set.Needs(names...)
	for _, name := range needs {
		if others, err := f.scratch.MadeOtherwise(ctx, f.set.Named(name).Tables); err == nil && len(others) > 0 {
			return fmt.Sprintf("table %s of projection %s is not as its file makes it; drop it, and start a rebuild of the projection: its tables are made again and filled", others[0], name)
		}
	}
	return ""
}

// missing returns the first missing table of the projections, or of those whose tables they read, and its
// projection.
func (f *Replayer) missing(ctx context.Context, names []string) (table, of string) {
	needs, _ := f.set.Needs(names...)
	for _, name := range needs {
		if table, err := f.store.ReadModel().Missing(ctx, f.set.Named(name).Tables); err == nil && table != "" {
			return table, name
		}
	}
	return "", ""
}

func (f *Replayer) verifyOnce(ctx context.Context, campaign string, until int64, names []string) (outbox.RunResult, error) {
	expected, target, err := f.beginAtLive(ctx, campaign, until, names)
	if err != nil {
		return outbox.RunResult{}, err
	}
	if err := expected.To(ctx, target); err != nil {
		return outbox.RunResult{}, err
	}
	result, drifted, err := f.compareAll(ctx, expected, until, names)
	if err != nil || len(drifted) == 0 {
		return result, err
	}
	if err := f.skipsStill(ctx, expected); err != nil {
		return result, err
	}
	return result, f.findDivergences(ctx, expected, &result, drifted)
}

// Built says with which version of each projection of a set a campaign is replayed, and which ones built its
// live rows, by name.
func Built(ctx context.Context, s *store.Store, set *projection.Set, campaign string) (map[string]outbox.ReplayedWith, error) {
	cursors, err := (&Runs{core: s}).Cursors(ctx, campaign, set.Infos())
	built := make(map[string]outbox.ReplayedWith, len(cursors))
	for _, c := range cursors {
		built[c.Projection] = outbox.ReplayedWith{Version: c.Version, RowsBuilt: c.RowsBuilt}
	}
	return built, err
}

// noteVersions records which versions built the live rows of the projections that differ: if the file has
// changed, every row may differ.
func (f *Replayer) noteVersions(ctx context.Context, campaign string, projections []outbox.ProjectionResult) error {
	var built map[string]outbox.ReplayedWith
	for _, p := range projections {
		if p.Comparison == nil || !p.Comparison.Differs() {
			continue
		}
		if built == nil {
			var err error
			if built, err = Built(ctx, f.store, f.set, campaign); err != nil {
				return err
			}
		}
		p.Comparison.ReplayedWith = built[p.Projection]
	}
	return nil
}

// findDivergences sets the first divergence of each projection that differs, and which versions built rows
// of it.
func (f *Replayer) findDivergences(ctx context.Context, expected *Expected, result *outbox.RunResult, drifted map[int][]projection.Difference) (err error) {
	if err := f.noteVersions(ctx, expected.campaign, result.Projections); err != nil {
		return err
	}
	for i, rows := range drifted {
		p := &result.Projections[i]
		if p.Comparison.FirstSeq, err = f.firstDivergence(ctx, expected, p.Projection, p.Seq, rows); err != nil {
			return err
		}
	}
	return nil
}

// compareAll compares a replay with the current live rows. It returns the rows that differ by the
// projection's index in the result.
func (f *Replayer) compareAll(ctx context.Context, expected *Expected, until int64, names []string) (result outbox.RunResult, drifted map[int][]projection.Difference, err error) {
	live, mark, stands, err := f.alignWithLive(ctx, expected, until)
	if err != nil {
		return result, nil, err
	}
	defer live.Close()
	result = outbox.RunResult{Outcome: outbox.OutcomeMatch, Seq: expected.Seq, Projections: []outbox.ProjectionResult{}}
	compared := until == 0 || until == mark.AppliedSeq
	if compared && mark.AppliedSeq > 0 && expected.Hash != mark.AppliedHash {
		result.Outcome, result.Unsound = outbox.OutcomeFailed, mark.AppliedSeq
		result.Error = fmt.Sprintf("the projections have an event %d that the journal does not have; %s", mark.AppliedSeq, outbox.RightJournalFirst)
		return result, nil, nil
	}
	digests, full, err := expected.Digests(ctx, names...)
	if err != nil {
		return result, nil, err
	}
	result.Full, drifted = full, make(map[int][]projection.Difference)
	for i, name := range names {
		p := outbox.ProjectionResult{Projection: name, Digest: digests[name], Seq: expected.Seq}
		level := true
		if until == 0 {
			p.Seq = expected.positionOf(name, stands)
			leaveOut(&result, &p, stands[name], mark.AppliedSeq)
		} else if level, err = f.caughtUp(name, stands); err != nil {
			return result, nil, err
		}
		if failed, ok := expected.failure(name); ok {
			refuse(&result, &p, failed)
		} else if compared && level && p.LeftOut != outbox.CursorBehind {
			rows, err := f.compare(ctx, live, expected.campaign, &p)
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

// caughtUp reports whether a projection, and those whose tables it reads, are at the watermark.
func (f *Replayer) caughtUp(name string, stands map[string]readmodel.Position) (bool, error) {
	needs, err := f.set.Needs(name)
	return err == nil && !slices.ContainsFunc(needs, func(needed string) bool {
		s, known := stands[needed]
		return known && s.State != outbox.CursorLive
	}), err
}

// refuse records that a projection could not be replayed.
func refuse(result *outbox.RunResult, p *outbox.ProjectionResult, failed ReplayFailure) {
	p.Error, p.ErrorSeq, p.Seq = failed.Err.Error(), failed.Seq, failed.Seq-1
	result.Outcome = outbox.OutcomeFailed
	before := func(other outbox.ProjectionResult) bool { return other.ErrorSeq > 0 && other.ErrorSeq <= failed.Seq }
	if !slices.ContainsFunc(result.Projections, before) { // the first event that fails is the result's error
		result.Error = fmt.Sprintf("event %d cannot be replayed: %v", failed.Seq, failed.Err)
	}
}

// leaveOut records which events of a projection that lacks some are not compared. One that is
// behind is about to change: that its rows are right as of an earlier event is neither a match nor
// a failure.
func leaveOut(result *outbox.RunResult, p *outbox.ProjectionResult, stand readmodel.Position, applied int64) {
	if stand.State == "" || stand.State == outbox.CursorLive || stand.AppliedSeq >= applied {
		return
	}
	p.LeftOut = stand.State
	if result.Outcome == outbox.OutcomeMatch {
		result.Outcome = outbox.OutcomeNotCompared
	}
}

// beginAtLive starts a replay in which projections that are not live stop at their positions.
// target is how far to replay as of now.
func (f *Replayer) beginAtLive(ctx context.Context, campaign string, until int64, names []string) (expected *Expected, target int64, err error) {
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
	expected, err = f.Begin(ctx, campaign, stopsOf(stands), names...)
	return expected, target, err
}

// standing reads the positions of a campaign's projections.
func standing(ctx context.Context, live *readmodel.Live, campaign string) (readmodel.Watermark, map[string]readmodel.Position, error) {
	mark, _, err := live.Watermark(ctx, campaign)
	if err != nil {
		return mark, nil, err
	}
	stands, err := live.Positions(ctx, campaign)
	return mark, stands, err
}

// stopsOf returns the seqs after which projections that are not live got no event.
func stopsOf(stands map[string]readmodel.Position) map[string]int64 {
	stops := make(map[string]int64)
	for name, s := range stands {
		if s.State != outbox.CursorLive {
			stops[name] = s.AppliedSeq
		}
	}
	return stops
}

// alignWithLive takes a snapshot of the live rows and replays up to their position; if they are far
// ahead it replays without holding the snapshot, and takes another. The caller closes it. It
// returns errMoved if the campaign changed.
func (f *Replayer) alignWithLive(ctx context.Context, expected *Expected, until int64) (*readmodel.Live, readmodel.Watermark, map[string]readmodel.Position, error) {
	for {
		live, err := f.store.ReadModel().Live(ctx)
		if err != nil {
			return nil, readmodel.Watermark{}, nil, err
		}
		mark, stands, err := standing(ctx, live, expected.campaign)
		if err == nil && until == 0 {
			switch {
			case mark.AppliedSeq < expected.Seq || !maps.Equal(expected.began, stopsOf(stands)):
				err = errMoved
			case mark.AppliedSeq-expected.Seq > fewEvents:
				live.Close()
				if err = expected.To(ctx, mark.AppliedSeq); err != nil {
					return nil, mark, nil, err
				}
				continue
			default: // without resting: the database's log grows as long as a snapshot is held
				f.hurry = true
				err = expected.To(ctx, mark.AppliedSeq)
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

// positionOf returns the seq up to which a projection was replayed.
func (d *Expected) positionOf(name string, stands map[string]readmodel.Position) int64 {
	if s, ok := stands[name]; ok && s.State != outbox.CursorLive {
		return min(s.AppliedSeq, d.Seq)
	}
	return d.Seq
}

// compare compares the live rows of a projection with the replay, records how they differ, and
// returns the rows that do. If the projection's file defines a digest, rows that differ only
// outside of it are equal.
func (f *Replayer) compare(ctx context.Context, live *readmodel.Live, campaign string, p *outbox.ProjectionResult) ([]projection.Difference, error) {
	f.say(campaign, "comparing the rows of projection "+p.Projection)
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
		p.Verdict, p.Comparison = outbox.VerdictMatch, &outbox.Comparison{Samples: []outbox.RowChange{}, ReplayedWith: c.ReplayedWith}
		return nil, nil
	}
	return rows, err
}

// skipsStill checks that the events skipped by the replay are those that are skipped now.
func (f *Replayer) skipsStill(ctx context.Context, expected *Expected) error {
	skips, err := f.store.ActiveSkips(ctx, expected.campaign, expected.Seq)
	if err != nil {
		return err
	}
	if !expected.passedOver(skips) {
		return errMoved
	}
	return nil
}

// passedOver reports whether the replay skipped these skips' events, which are up to its seq, and
// no others.
func (d *Expected) passedOver(skips []outbox.Skip) bool {
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
