package runs

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// maxDryRun is the maximum number of events that a dry run tries.
const maxDryRun = 1000

// DryRun tries the events of a campaign after its watermark, up to seq and the next ones after it,
// on copies of its live rows, and returns how they would change, or at which event applying would
// stop. It changes nothing. It returns outbox.ErrConflict for a seq that is already applied,
// outbox.ErrNotFound for an unknown one.
func DryRun(ctx context.Context, s *store.Store, set *projection.Set, campaign string, seq, next int64) (outbox.DryRun, error) {
	c, err := s.Campaign(ctx, campaign)
	switch {
	case err != nil:
		return outbox.DryRun{}, err
	case seq < 1 || seq > c.HighWaterSeq:
		return outbox.DryRun{}, outbox.NotFound("campaign %q has no event %d; its last is %d", campaign, seq, c.HighWaterSeq)
	case next < 0:
		return outbox.DryRun{}, outbox.Invalid("next", "next must be 0 or more")
	case c.Diverged != "":
		return outbox.DryRun{}, outbox.Conflict("campaign %q has diverged, so nothing can be applied to it: %s; %s", campaign, c.Diverged, outbox.RightJournalFirst)
	}
	f, err := NewReplayer(ctx, s, set)
	if err != nil {
		return outbox.DryRun{}, err
	}
	defer f.Close()
	until := min(seq+next, c.HighWaterSeq)
	t := &dryRun{replayer: f, campaign: campaign}
	if err := t.run(ctx, seq, until); err != nil {
		return outbox.DryRun{}, err
	}
	if at, ends := t.endsAt(); ends { // applying would stop after the event before
		if err := t.run(ctx, seq, at-1); err != nil {
			return outbox.DryRun{}, err
		}
	}
	return t.compare(ctx)
}

type dryRun struct {
	replayer *Replayer
	campaign string
	expected *Expected
	from     int64                         // the watermark
	stands   map[string]readmodel.Position // of the live rows
	failed   *outbox.DryRunFailure
}

// run loads the live rows and replays the events onto them.
func (t *dryRun) run(ctx context.Context, seq, until int64) error {
	f := t.replayer
	var err error
	if t.expected, err = f.Begin(ctx, t.campaign, nil); err != nil {
		return err
	}
	mark, stands, err := f.scratch.LoadLive(ctx, t.campaign, f.tables(t.expected.names)...)
	switch {
	case err != nil:
		return err
	case mark.AppliedSeq >= seq:
		return outbox.Conflict("event %d of campaign %q is already applied; the campaign is at event %d", seq, t.campaign, mark.AppliedSeq)
	case until-mark.AppliedSeq > maxDryRun:
		return outbox.Conflict("event %d of campaign %q is %d events past the last applied; a dry run covers at most %d", until, t.campaign, until-mark.AppliedSeq, maxDryRun)
	}
	t.from, t.stands = mark.AppliedSeq, stands
	if err := t.pauseForAll(ctx); err != nil {
		return err
	}
	for name := range stopsOf(stands) {
		t.expected.drop(name)
	}
	t.expected.Seq, t.expected.Hash = mark.AppliedSeq, mark.AppliedHash
	err = t.expected.To(ctx, until)
	if u := asInconsistent(err); u != nil {
		t.failed, err = &outbox.DryRunFailure{Seq: u.seq, Message: u.reason}, nil
	}
	return err
}

// pauseForAll adds the pauses for all campaigns, which are recorded in a campaign once it advances.
func (t *dryRun) pauseForAll(ctx context.Context) error {
	live, err := t.replayer.store.ReadModel().Live(ctx)
	if err != nil {
		return err
	}
	defer live.Close()
	paused, err := live.PausedForAll(ctx)
	for name := range paused {
		if s, known := t.stands[name]; !known || s.State == outbox.CursorLive {
			t.stands[name] = readmodel.Position{AppliedSeq: t.from, State: outbox.CursorPaused}
		}
	}
	return err
}

// endsAt returns the seq of the event that would block the campaign, if any, and records why.
func (t *dryRun) endsAt() (int64, bool) {
	ends := false
	for _, p := range t.replayer.set.Projections() {
		failed, ok := t.expected.Failed[p.Name]
		if !ok || t.failed != nil && t.failed.Seq <= failed.Seq {
			continue
		}
		t.failed = &outbox.DryRunFailure{Seq: failed.Seq, EventType: failed.EventType, Projection: p.Name, Message: failed.Err.Error()}
		ends = ends || p.OnFailure != projection.Quarantine
	}
	return seqOf(t.failed), ends
}

func seqOf(f *outbox.DryRunFailure) int64 {
	if f == nil {
		return 0
	}
	return f.Seq
}

// compare compares the replayed rows with the live ones.
func (t *dryRun) compare(ctx context.Context) (outbox.DryRun, error) {
	f := t.replayer
	d := outbox.DryRun{CampaignID: t.campaign, FromSeq: t.from + 1, UntilSeq: t.expected.Seq, Applied: t.expected.Seq - t.from, Failed: t.failed, Projections: []outbox.ProjectionResult{}, OtherTables: []string{}}
	others, err := f.scratch.MadeOtherwise(ctx, f.tables(t.expected.names))
	if err != nil {
		return d, err
	}
	d.OtherTables = append(d.OtherTables, others...)
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return d, err
	}
	defer live.Close()
	mark, _, err := live.Watermark(ctx, t.campaign)
	if err != nil {
		return d, err
	}
	if mark.AppliedSeq != t.from {
		return d, outbox.Conflict("campaign %q advanced during the dry run; it is at event %d now", t.campaign, mark.AppliedSeq)
	}
	for _, name := range t.expected.names {
		p := outbox.ProjectionResult{Projection: name, Seq: t.expected.positionOf(name, t.stands)}
		if s := t.stands[name]; s.State != outbox.CursorLive {
			p.LeftOut = s.State
		}
		if _, err := f.compare(ctx, live, t.campaign, &p); err != nil {
			return d, fmt.Errorf("compare what a dry run made: %w", err)
		}
		d.Projections = append(d.Projections, p)
	}
	return d, f.noteVersions(ctx, t.campaign, d.Projections)
}
