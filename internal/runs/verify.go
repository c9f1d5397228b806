package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
)

// verifyTries is how often a verification starts over if the campaign changes during it.
const verifyTries = 5

// fewEvents is how many events a replay may be behind the live rows when it catches up while others
// wait for it, or a snapshot is held.
const fewEvents = 200

// errMoved is a campaign that changed while it was read.
var errMoved = errors.New("the campaign changed in the meantime")

// comparing is a replay of a campaign in progress that is compared with the live rows.
type comparing struct {
	*Replayer
	campaign string
	names    []string // of the compared projections
	until    int64    // where only the read models as of this seq are asked for; otherwise 0
	rebuild  bool     // it goes as far as a rebuild does
	expected *Expected
}

// Verify replays a campaign's events and compares the replay with the live rows of some
// projections, none meaning all, without blocking the campaign. With until it only returns the read
// models as of that seq, unless that is their position. A failed replay, or a campaign that keeps
// changing, is in the result, not an error.
func (f *Replayer) Verify(ctx context.Context, campaign string, until int64, projections ...string) (replay.RunResult, error) {
	return f.compareCampaign(ctx, comparing{Replayer: f, campaign: campaign, names: projections, until: until})
}

// TryRebuild is Verify of what a rebuild of some projections would change in the live rows: it goes as far as
// that would. Quarantined projections go as far as the campaign, a diverged campaign as far as its journal.
func (f *Replayer) TryRebuild(ctx context.Context, campaign string, projections ...string) (replay.RunResult, error) {
	return f.compareCampaign(ctx, comparing{Replayer: f, campaign: campaign, names: projections, rebuild: true})
}

func (f *Replayer) compareCampaign(ctx context.Context, m comparing) (replay.RunResult, error) {
	if len(m.names) == 0 {
		m.names, _ = f.set.Needs()
	}
	var result replay.RunResult
	err := untilStill(func() (err error) {
		result, err = m.once(ctx)
		return err
	})
	result.CampaignID = m.campaign
	if err == nil {
		return result, nil
	}
	failed := replay.RunResult{CampaignID: m.campaign, Outcome: replay.OutcomeFailed, Projections: []replay.ProjectionResult{}}
	switch unsound := asInconsistent(err); {
	case errors.Is(err, errMoved):
		failed.Seq, failed.Error = result.Seq, fmt.Sprintf("the campaign keeps changing; gave up after %d tries", verifyTries)
	case unsound != nil:
		failed.Seq, failed.Unsound, failed.Error = unsound.seq, unsound.seq, unsound.reason
	default:
		if failed.Error = f.unlike(ctx, m.names, err); failed.Error == "" {
			return result, err
		}
	}
	return failed, nil
}

// untilStill calls do again while the campaign changes meanwhile, a few times.
func untilStill(do func() error) error {
	for try := 1; ; try++ {
		if err := do(); !errors.Is(err, errMoved) || try == verifyTries {
			return err
		}
	}
}

// unlike says which table of some projections, or of those whose tables they read, is missing or not as
// the loaded file makes it, and what helps, if that may be the cause of err; nothing otherwise.
func (f *Replayer) unlike(ctx context.Context, names []string, err error) string {
	if _, refused := errors.AsType[*event.Refusal](err); refused || f.store.ReadModel().Away(err) || ctx.Err() != nil {
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

func (m *comparing) once(ctx context.Context) (replay.RunResult, error) {
	target, err := m.begin(ctx)
	if err != nil {
		return replay.RunResult{}, err
	}
	if err := m.expected.To(ctx, target); err != nil {
		return replay.RunResult{}, err
	}
	result, drifted, err := m.compareAll(ctx)
	if err != nil || len(drifted) == 0 {
		return result, err
	}
	if err := m.skipsStill(ctx, m.expected); err != nil {
		return result, err
	}
	return result, m.findDivergences(ctx, m.expected, &result, drifted)
}

// Built says with which version of each projection of a set a campaign is replayed, and which ones built its
// live rows, by name.
func Built(ctx context.Context, s *store.Store, set *projection.Set, campaignID string) (map[string]campaign.ReplayedWith, error) {
	cursors, err := (&Runs{core: s}).Cursors(ctx, campaignID, set.Infos())
	built := make(map[string]campaign.ReplayedWith, len(cursors))
	for _, c := range cursors {
		built[c.Projection] = campaign.ReplayedWith{Version: c.Version, RowsBuilt: c.RowsBuilt, Built: c.Built}
	}
	return built, err
}

// noteVersions records which versions built the live rows of the projections that differ: if the file has
// changed, every row may differ.
func (f *Replayer) noteVersions(ctx context.Context, campaignID string, projections []replay.ProjectionResult) error {
	var built map[string]campaign.ReplayedWith
	for _, p := range projections {
		if p.Comparison == nil || !p.Comparison.Differs() {
			continue
		}
		if built == nil {
			var err error
			if built, err = Built(ctx, f.store, f.set, campaignID); err != nil {
				return err
			}
		}
		p.Comparison.ReplayedWith = built[p.Projection]
	}
	return nil
}

// findDivergences sets the first divergence of each projection that differs, and which versions built rows
// of it.
func (f *Replayer) findDivergences(ctx context.Context, expected *Expected, result *replay.RunResult, drifted map[int][]projection.Difference) (err error) {
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

// compareAll compares the replay with the current live rows. It returns the rows that differ by the
// projection's index in the result.
func (m *comparing) compareAll(ctx context.Context) (result replay.RunResult, drifted map[int][]projection.Difference, err error) {
	live, mark, stands, err := m.alignWithLive(ctx)
	if err != nil {
		return result, nil, err
	}
	defer live.Close()
	result = replay.RunResult{Outcome: replay.OutcomeMatch, Seq: m.expected.Seq, Projections: []replay.ProjectionResult{}}
	compared := m.until == 0 || m.until == mark.AppliedSeq
	if compared && mark.AppliedSeq > 0 && m.expected.Hash != mark.AppliedHash {
		reason, err := m.otherJournal(ctx, mark)
		if err != nil {
			return result, nil, err
		}
		if result.Seq = m.expected.Seq; reason != "" {
			result.Outcome, result.Unsound, result.Error = replay.OutcomeFailed, mark.AppliedSeq, reason
			return result, nil, nil
		}
	}
	digests, full, err := m.expected.Digests(ctx, m.names...)
	if err != nil {
		return result, nil, err
	}
	result.Full, drifted = full, make(map[int][]projection.Difference)
	for i, name := range m.names {
		p := replay.ProjectionResult{Projection: name, Digest: digests[name], Seq: m.expected.Seq}
		level := true
		if m.until == 0 {
			p.Seq = m.expected.positionOf(name, stands)
			leaveOut(&result, &p, stands[name], mark.AppliedSeq)
		} else if level, err = m.caughtUp(name, stands); err != nil {
			return result, nil, err
		}
		if failed := m.expected.failure(name); failed != nil {
			refuse(&result, &p, failed)
		} else if compared && level && p.LeftOut != campaign.CursorBehind {
			rows, err := m.compare(ctx, live, m.campaign, &p)
			if err != nil {
				return result, nil, err
			}
			if p.Verdict == campaign.VerdictDrift {
				drifted[i] = rows
				if result.Outcome != replay.OutcomeFailed {
					result.Outcome = replay.OutcomeDrift
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
		return known && s.State != campaign.CursorLive
	}), err
}

// refuse records that a projection could not be replayed.
func refuse(result *replay.RunResult, p *replay.ProjectionResult, failed *ReplayFailure) {
	p.Error, p.ErrorSeq, p.Seq = failed.Err.Error(), failed.Seq, failed.Seq-1
	result.Outcome = replay.OutcomeFailed
	before := func(other replay.ProjectionResult) bool { return other.ErrorSeq > 0 && other.ErrorSeq <= failed.Seq }
	if !slices.ContainsFunc(result.Projections, before) { // the first event that fails is the result's error
		result.Error = fmt.Sprintf("event %d cannot be replayed: %v", failed.Seq, failed.Err)
	}
}

// leaveOut records which events of a projection that lacks some are not compared. One that is
// behind is about to change: that its rows are right as of an earlier event is neither a match nor
// a failure.
func leaveOut(result *replay.RunResult, p *replay.ProjectionResult, stand readmodel.Position, applied int64) {
	if stand.State == "" || stand.State == campaign.CursorLive || stand.AppliedSeq >= applied {
		return
	}
	p.LeftOut = stand.State
	if result.Outcome == replay.OutcomeMatch {
		result.Outcome = replay.OutcomeNotCompared
	}
}

// begin starts a replay in which projections that are not live stop at their positions. target is how
// far to replay as of now.
func (m *comparing) begin(ctx context.Context) (target int64, err error) {
	live, err := m.store.ReadModel().Live(ctx)
	if err != nil {
		return 0, err
	}
	_, stands, target, err := m.standing(ctx, live)
	live.Close()
	if err != nil {
		return 0, err
	}
	if m.until > 0 {
		target, stands = m.until, nil
	}
	m.expected, err = m.Begin(ctx, m.campaign, stopsOf(stands), m.names...)
	return target, err
}

// standing reads where the live rows stand, for a rebuild those that it does not move, and how far to replay
// for them: a journal may end before rows that were built from another one.
func (m *comparing) standing(ctx context.Context, live *readmodel.Live) (mark readmodel.Watermark, stands map[string]readmodel.Position, target int64, err error) {
	mark, stands, err = standing(ctx, live, m.campaign)
	if target = mark.AppliedSeq; err != nil || !m.rebuild {
		return mark, stands, target, err
	}
	c, err := m.store.Campaign(ctx, m.campaign)
	return mark, unmovedBy(stands, m.names), min(target, c.HighWaterSeq), err
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
		if s.State != campaign.CursorLive {
			stops[name] = s.AppliedSeq
		}
	}
	return stops
}

// alignWithLive takes a snapshot of the live rows and replays up to their position; if they are far
// ahead it replays without holding the snapshot, and takes another. The caller closes it. It
// returns errMoved if the campaign changed.
func (m *comparing) alignWithLive(ctx context.Context) (*readmodel.Live, readmodel.Watermark, map[string]readmodel.Position, error) {
	for {
		live, err := m.store.ReadModel().Live(ctx)
		if err != nil {
			return nil, readmodel.Watermark{}, nil, err
		}
		mark, stands, target, err := m.standing(ctx, live)
		if err == nil && m.until == 0 {
			switch {
			case target < m.expected.Seq || !maps.Equal(m.expected.began, stopsOf(stands)):
				err = errMoved
			case target-m.expected.Seq > fewEvents:
				live.Close()
				if err = m.expected.To(ctx, target); err != nil {
					return nil, mark, nil, err
				}
				continue
			default: // without resting: the database's log grows as long as a snapshot is held
				m.hurry = true
				err = m.expected.To(ctx, target)
				m.hurry = false
			}
		}
		if err != nil {
			live.Close()
			return nil, mark, nil, err
		}
		return live, mark, stands, nil
	}
}

// otherJournal says why live rows that were built from another journal are not compared; empty if a rebuild
// replaces them all, as far as all of its projections can go.
func (m *comparing) otherJournal(ctx context.Context, mark readmodel.Watermark) (reason string, err error) {
	if !m.rebuild {
		return fmt.Sprintf("the projections have an event %d that the journal does not have; %s", mark.AppliedSeq, campaign.RightJournalFirst), nil
	}
	if all, _ := m.set.Needs(); len(m.names) < len(all) {
		return rebuildTogether, nil
	}
	m.expected, err = m.expected.beforeFailures(ctx, m.names...)
	return "", err
}

// positionOf returns the seq up to which a projection was replayed.
func (d *Expected) positionOf(name string, stands map[string]readmodel.Position) int64 {
	if s, ok := stands[name]; ok && s.State != campaign.CursorLive {
		return min(s.AppliedSeq, d.Seq)
	}
	return d.Seq
}

// compare compares the live rows of a projection with the replay, records how they differ, and
// returns the rows that do. If the projection's file defines a digest, rows that differ only
// outside of it are equal.
func (f *Replayer) compare(ctx context.Context, live *readmodel.Live, campaignID string, p *replay.ProjectionResult) ([]projection.Difference, error) {
	f.say(campaignID, "comparing the rows of projection "+p.Projection)
	c, rows, err := f.set.Compare(ctx, live, f.scratch, campaignID, p.Projection)
	if err != nil {
		return nil, err
	}
	p.Comparison, p.Before, p.Verdict = &c, p.Digest, campaign.VerdictMatch
	if !c.Differs() {
		return nil, nil
	}
	p.Verdict, p.Before = campaign.VerdictDrift, ""
	if f.foreign {
		return rows, nil
	}
	digests, _, err := f.set.Digests(ctx, live, campaignID, p.Projection)
	p.Before = digests[p.Projection]
	if err == nil && p.Before == p.Digest && !f.set.CoversAll(p.Projection) {
		p.Verdict, p.Comparison = campaign.VerdictMatch, &projection.Comparison{Samples: []projection.RowChange{}, ReplayedWith: c.ReplayedWith}
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
func (d *Expected) passedOver(skips []event.Skip) bool {
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
