package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/readmodel"
)

// TryRebuild tells what a rebuild of some projections of a campaign, none
// standing for all, would change about the live rows, and changes nothing. It
// folds as far as the rebuild would: projections that are set aside as far as
// the campaign is, a campaign that has diverged as far as its journal goes.
// What cannot be folded is in the result, not an error.
func (f *Folder) TryRebuild(ctx context.Context, campaign string, projections ...string) (outbox.RunResult, error) {
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

func (f *Folder) tryRebuild(ctx context.Context, campaign string, names []string) (*remake, error) {
	m := &remake{scope: Campaign{CampaignID: campaign}, names: names,
		result: outbox.RunResult{Outcome: outbox.OutcomeMatch, Projections: []outbox.ProjectionResult{}}}
	mark, err := m.look(ctx, f)
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
	return m, f.tellPartings(ctx, m.fold, &m.result, drifted)
}

// rebuildsTo is the last event that a rebuild folds while the live rows stand
// at mark: the journal of a campaign that has diverged may end before.
func (f *Folder) rebuildsTo(ctx context.Context, campaign string, mark readmodel.Watermark) (int64, error) {
	c, err := f.store.Campaign(ctx, campaign)
	return min(mark.AppliedSeq, c.HighWaterSeq), err
}

// compare holds the fold against the live rows as they are now. It returns the
// rows that differ by the projection's index in the result. What does not fit
// any more is errMoved.
func (m *remake) compare(ctx context.Context, f *Folder) (map[int][]projection.Difference, error) {
	live, mark, err := m.catchLive(ctx, f)
	if err != nil || m.ended {
		return nil, err
	}
	defer live.Close()
	if mark.AppliedSeq > 0 && (m.fold.Seq != mark.AppliedSeq || m.fold.Hash != mark.AppliedHash) {
		if err := m.mendWatermark(ctx, f); err != nil || m.ended {
			return nil, err
		}
	}
	if err := f.skipsStill(ctx, m.fold); err != nil {
		return nil, err
	}
	return m.hold(ctx, f, live)
}

// catchLive takes a snapshot of the live rows and folds on to where they are;
// when that is far it folds without keeping the snapshot, and takes another. The
// caller closes it, unless the remake has ended or there is an error.
func (m *remake) catchLive(ctx context.Context, f *Folder) (*readmodel.Live, readmodel.Watermark, error) {
	for {
		live, mark, until, err := m.snapshot(ctx, f)
		if err != nil {
			return nil, mark, err
		}
		far := until-m.fold.Seq > fewEvents
		if far {
			live.Close()
		}
		err = m.endUnsound(m.fold.To(ctx, until))
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

// snapshot is one of the live rows, where they stand, and how far a rebuild of
// them folds.
func (m *remake) snapshot(ctx context.Context, f *Folder) (*readmodel.Live, readmodel.Watermark, int64, error) {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return nil, readmodel.Watermark{}, 0, err
	}
	mark, stands, err := standing(ctx, live, m.scope.CampaignID)
	until := int64(0)
	if err == nil {
		until, err = f.rebuildsTo(ctx, m.scope.CampaignID, mark)
	}
	if err == nil && (until < m.fold.Seq || !maps.Equal(m.stands, stands)) {
		err = errMoved
	}
	if err != nil {
		live.Close()
	}
	return live, mark, until, err
}

// hold compares each projection with its live rows.
func (m *remake) hold(ctx context.Context, f *Folder, live *readmodel.Live) (map[int][]projection.Difference, error) {
	digests, full, err := m.fold.Digests(ctx, m.names...)
	if err != nil {
		return nil, err
	}
	m.result.Seq, m.result.Full = m.fold.Seq, full
	drifted := make(map[int][]projection.Difference)
	for i, name := range m.names {
		p := outbox.ProjectionResult{Projection: name, Digest: digests[name], Seq: m.fold.standsAt(name, m.stopped())}
		if failed, ok := m.fold.failure(name); ok {
			refuse(&m.result, &p, failed)
		} else if rows, err := f.hold(ctx, live, m.scope.CampaignID, &p); err != nil {
			return nil, err
		} else if p.Verdict == outbox.VerdictDrift {
			drifted[i] = rows
			if m.result.Outcome == outbox.OutcomeMatch {
				m.result.Outcome = outbox.OutcomeDrift
			}
		}
		m.result.Projections = append(m.result.Projections, p)
	}
	return drifted, nil
}
