package runs

import (
	"context"
	"fmt"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
)

// maxDryRun is the most events that a dry run tries.
const maxDryRun = 1000

// DryRun tries the events of a campaign from the one after its watermark on, up
// to seq and next more, on copies of its live rows, and tells how they would
// change, or at which event it would end. Nothing is changed. A seq that is
// applied already is outbox.ErrConflict; an unknown one outbox.ErrNotFound.
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
	f, err := NewFolder(ctx, s, set)
	if err != nil {
		return outbox.DryRun{}, err
	}
	defer f.Close()
	until := min(seq+next, c.HighWaterSeq)
	t := &trial{folder: f, campaign: campaign}
	if err := t.run(ctx, seq, until); err != nil {
		return outbox.DryRun{}, err
	}
	if at, ends := t.endsAt(); ends { // live applying would come as far as the event before
		if err := t.run(ctx, seq, at-1); err != nil {
			return outbox.DryRun{}, err
		}
	}
	return t.tell(ctx)
}

// trial is a dry run under way.
type trial struct {
	folder   *Folder
	campaign string
	fold     *Fold
	from     int64 // the seq of the watermark
	failed   *outbox.DryRunFailure
}

// run loads the live rows and folds the events onto them.
func (t *trial) run(ctx context.Context, seq, until int64) error {
	f := t.folder
	var err error
	if t.fold, err = f.Begin(ctx, t.campaign, nil); err != nil {
		return err
	}
	mark, stands, err := f.scratch.LoadLive(ctx, t.campaign, f.tables(t.fold.names)...)
	switch {
	case err != nil:
		return err
	case mark.AppliedSeq >= seq:
		return outbox.Conflict("event %d of campaign %q is already applied; the campaign is at event %d", seq, t.campaign, mark.AppliedSeq)
	case until-mark.AppliedSeq > maxDryRun:
		return outbox.Conflict("event %d of campaign %q is %d events past the applied ones; a dry run covers at most %d", until, t.campaign, until-mark.AppliedSeq, maxDryRun)
	}
	t.from = mark.AppliedSeq
	for name := range stopsOf(stands) {
		t.fold.leave(name)
	}
	t.fold.Seq, t.fold.Hash = mark.AppliedSeq, mark.AppliedHash
	err = t.fold.To(ctx, until)
	if u := asUnsound(err); u != nil {
		t.failed, err = &outbox.DryRunFailure{Seq: u.seq, Message: u.reason}, nil
	}
	return err
}

// endsAt is the seq of the event at which the campaign would be held up, if it
// would, and notes why.
func (t *trial) endsAt() (int64, bool) {
	ends := false
	for _, p := range t.folder.set.Projections() {
		failed, ok := t.fold.Failed[p.Name]
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

// tell compares what was folded with the live rows.
func (t *trial) tell(ctx context.Context) (outbox.DryRun, error) {
	f := t.folder
	d := outbox.DryRun{CampaignID: t.campaign, FromSeq: t.from + 1, UntilSeq: t.fold.Seq, Applied: t.fold.Seq - t.from, Failed: t.failed, Projections: []outbox.ProjectionResult{}, OtherTables: []string{}}
	others, err := f.scratch.MadeOtherwise(ctx, f.tables(t.fold.names))
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
	for _, name := range t.fold.names {
		p := outbox.ProjectionResult{Projection: name, Seq: t.fold.Seq}
		if _, err := f.hold(ctx, live, t.campaign, &p); err != nil {
			return d, fmt.Errorf("compare what a dry run made: %w", err)
		}
		d.Projections = append(d.Projections, p)
	}
	return d, nil
}
