package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// TryRebuild returns what a rebuild of some projections of a campaign, none meaning all, would
// change in the live rows. It changes nothing. It replays as far as the rebuild would: quarantined
// projections as far as the campaign, a diverged campaign as far as its journal. A failed replay is
// in the result, not an error.
func (f *Replayer) TryRebuild(ctx context.Context, campaign string, projections ...string) (outbox.RunResult, error) {
	names := projections
	if len(names) == 0 {
		names, _ = f.set.Needs()
	}
	for try := 1; ; try++ {
		m, err := f.tryRebuild(ctx, campaign, names)
		switch {
		case errors.Is(err, errMoved) && try < verifyTries:
			continue
		case errors.Is(err, errMoved):
			err = fmt.Errorf("campaign %q keeps changing; gave up after %d tries", campaign, try)
		}
		m.result.CampaignID = campaign
		return m.result, err
	}
}

func (f *Replayer) tryRebuild(ctx context.Context, campaign string, names []string) (*rebuilding, error) {
	m := &rebuilding{scope: Campaign{CampaignID: campaign}, names: names,
		result: outbox.RunResult{Outcome: outbox.OutcomeMatch, Projections: []outbox.ProjectionResult{}}}
	mark, err := m.readPositions(ctx, f)
	if err != nil {
		return m, err
	}
	until, err := f.rebuildsTo(ctx, campaign, mark)
	if err == nil {
		err = m.begin(ctx, f, until)
	}
	if err != nil || m.ended {
		return m, err
	}
	drifted, err := m.compare(ctx, f)
	if err != nil || m.ended {
		return m, err
	}
	return m, f.findDivergences(ctx, m.expected, &m.result, drifted)
}

// rebuildsTo returns the last event that a rebuild replays with the live rows at mark: the journal
// of a diverged campaign may end before that.
func (f *Replayer) rebuildsTo(ctx context.Context, campaign string, mark readmodel.Watermark) (int64, error) {
	c, err := f.store.Campaign(ctx, campaign)
	return min(mark.AppliedSeq, c.HighWaterSeq), err
}

// compare compares the expected rows with the current live rows. It returns the rows that differ by
// the projection's index in the result. It returns errMoved if the campaign changed.
func (m *rebuilding) compare(ctx context.Context, f *Replayer) (map[int][]projection.Difference, error) {
	live, mark, err := m.catchLive(ctx, f)
	if err != nil || m.ended {
		return nil, err
	}
	defer live.Close()
	if mark.AppliedSeq > 0 && (m.expected.Seq != mark.AppliedSeq || m.expected.Hash != mark.AppliedHash) {
		if err := m.fixWatermark(ctx, f); err != nil || m.ended {
			return nil, err
		}
	}
	if err := f.skipsStill(ctx, m.expected); err != nil {
		return nil, err
	}
	return m.compareWith(ctx, f, live)
}

// catchLive takes a snapshot of the live rows and replays up to their position; if that is far it
// replays without holding the snapshot, and takes another. The caller closes it, unless the rebuild
// has ended or there is an error.
func (m *rebuilding) catchLive(ctx context.Context, f *Replayer) (*readmodel.Live, readmodel.Watermark, error) {
	for {
		live, mark, until, err := m.snapshot(ctx, f)
		if err != nil {
			return nil, mark, err
		}
		far := until-m.expected.Seq > fewEvents
		if far {
			live.Close()
		}
		err = m.endUnsound(m.expected.To(ctx, until))
		if err == nil && !m.ended && !far {
			return live, mark, nil
		}
		if !far {
			live.Close()
		}
		if err != nil || m.ended {
			return nil, mark, err
		}
	}
}

// snapshot takes a snapshot of the live rows, with their position and how far a rebuild of them
// replays.
func (m *rebuilding) snapshot(ctx context.Context, f *Replayer) (*readmodel.Live, readmodel.Watermark, int64, error) {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return nil, readmodel.Watermark{}, 0, err
	}
	mark, stands, err := standing(ctx, live, m.scope.CampaignID)
	until := int64(0)
	if err == nil {
		until, err = f.rebuildsTo(ctx, m.scope.CampaignID, mark)
	}
	if err == nil && (until < m.expected.Seq || !maps.Equal(m.stands, stands)) {
		err = errMoved
	}
	if err != nil {
		live.Close()
	}
	return live, mark, until, err
}

func (m *rebuilding) compareWith(ctx context.Context, f *Replayer, live *readmodel.Live) (map[int][]projection.Difference, error) {
	digests, full, err := m.expected.Digests(ctx, m.names...)
	if err != nil {
		return nil, err
	}
	m.result.Seq, m.result.Full = m.expected.Seq, full
	drifted := make(map[int][]projection.Difference)
	for i, name := range m.names {
		p := outbox.ProjectionResult{Projection: name, Digest: digests[name], Seq: m.expected.positionOf(name, m.stopped())}
		if failed, ok := m.expected.failure(name); ok {
			refuse(&m.result, &p, failed)
		} else if rows, err := f.compare(ctx, live, m.scope.CampaignID, &p); err != nil {
			return nil, err
		} else if p.Verdict == outbox.VerdictDrift {
			drifted[i] = rows
			if m.result.Outcome != outbox.OutcomeFailed {
				m.result.Outcome = outbox.OutcomeDrift
			}
		}
		if stand := m.stands[name]; stand.State == outbox.CursorPaused {
			leaveOut(&m.result, &p, stand, m.expected.Seq)
		}
		m.result.Projections = append(m.result.Projections, p)
	}
	return drifted, nil
}
