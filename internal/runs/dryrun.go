package runs

import (
	"context"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
)

// maxDryRun is the maximum number of events that a dry run tries.
const maxDryRun = 1000

// DryRun tries the events of a campaign after its watermark, up to seq and the next ones after it,
// on copies of its live rows, and returns how they would change, or at which event applying would
// stop; without the event at seq, if that is asked. It changes nothing. It returns event.ErrConflict for a seq that is already applied,
// event.ErrNotFound for an unknown one.
func DryRun(ctx context.Context, s *store.Store, set *projection.Set, trial replay.Trial) (replay.RunResult, error) {
	campaignID, seq, next := trial.CampaignID, trial.Seq, trial.Next
	c, err := s.Campaign(ctx, campaignID)
	switch {
	case err != nil:
		return replay.RunResult{}, err
	case seq < 1 || seq > c.HighWaterSeq:
		return replay.RunResult{}, event.NotFound("campaign %q has no event %d; its last is %d", campaignID, seq, c.HighWaterSeq)
	case next < 0:
		return replay.RunResult{}, event.Invalid("next", "next must be 0 or more")
	case c.Diverged != "":
		return replay.RunResult{}, event.Conflict("campaign %q has diverged, so nothing can be applied to it: %s; %s", campaignID, c.Diverged, campaign.RightJournalFirst)
	}
	f, err := NewReplayer(ctx, s, set)
	if err != nil {
		return replay.RunResult{}, err
	}
	defer f.Close()
	if trial.Without {
		f.without = seq
	}
	var result replay.RunResult
	err = untilStill(func() error {
		result, err = f.dryRun(ctx, campaignID, seq, min(seq+next, c.HighWaterSeq))
		return err
	})
	if errors.Is(err, errMoved) {
		err = event.Conflict("campaign %q keeps advancing; its dry run was given up after %d tries", campaignID, verifyTries)
	}
	return result, err
}

func (f *Replayer) dryRun(ctx context.Context, campaign string, seq, until int64) (replay.RunResult, error) {
	at := &replay.Rehearsed{}
	d := replay.RunResult{CampaignID: campaign, Outcome: replay.OutcomeReplayed, Rehearsed: at, At: time.Now().UTC()}
	before, err := f.standsNow(ctx, campaign)
	from := before.mark.AppliedSeq
	switch {
	case err != nil:
		return d, err
	case from >= seq:
		return d, event.Conflict("event %d of campaign %q is already applied; the campaign is at event %d", seq, campaign, from)
	case until-from > maxDryRun:
		return d, event.Conflict("event %d of campaign %q is %d events past the last applied; a dry run covers at most %d", until, campaign, until-from, maxDryRun)
	}
	expected, err := f.copies(ctx, campaign, "", before)
	if err != nil {
		return d, err
	}
	failed, err := expected.try(ctx, until)
	if block := expected.first(f.blocking()); err == nil && block != nil { // applying would stop after the event before
		failed = block
		if expected, err = f.copies(ctx, campaign, "", before); err == nil {
			_, err = expected.try(ctx, block.Seq-1)
		}
	}
	if err != nil {
		return d, err
	}
	d.Seq, d.Events, at.Head, at.Applied = expected.Seq, expected.Events, from+1, expected.Seq-from
	if failed != nil {
		d.Outcome, d.Error = replay.OutcomeFailed, failed.Err.Error()
		at.FailedSeq, at.EventType, at.Projection = failed.Seq, failed.EventType, failed.Projection
	}
	if at.OtherTables, err = f.scratch.MadeOtherwise(ctx, f.tables(expected.names)); err != nil {
		return d, err
	}
	d.Projections, err = f.compareLive(ctx, expected, "", before)
	return d, err
}
