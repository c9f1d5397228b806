package runs

import (
	"context"
	"errors"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
)

// PauseProjection stops a projection, for one campaign or, where none is
// named, for all. The others go on, and its rows stay as of the last event it
// was told. An unknown campaign, or a projection that is not loaded, is
// outbox.ErrNotFound; one that is stopped there already is outbox.ErrConflict.
//
// Once it has returned no event reaches the projection. No lease is needed for
// that: whoever applies events to a campaign reads what is set aside with the
// campaign's watermark locked until its own commit, and the pause locks it too.
// What is paused for all campaigns changes only while nobody applies anything.
//
// The pause is in the projections before the journal has its record. A process
// that dies between the two leaves a pause that says itself who made it, and
// why.
func (rs *Runs) PauseProjection(ctx context.Context, o outbox.Command, projection, campaign string, loaded []outbox.ProjectionInfo) (outbox.ProjectionPause, error) {
	return rs.setPaused(ctx, pausing, o, outbox.ProjectionPause{Projection: projection, CampaignID: campaign}, loaded)
}

// ResumeProjection lets a paused projection go on, in one campaign or, where
// none is named, wherever the pause for all campaigns stopped it. Where events
// were applied meanwhile it is behind until a replay brings it level. One that
// is not paused there is outbox.ErrConflict, and so is one campaign while it is
// paused for all; errors are else those of PauseProjection.
func (rs *Runs) ResumeProjection(ctx context.Context, o outbox.Command, projection, campaign string, loaded []outbox.ProjectionInfo) (outbox.ProjectionPause, error) {
	return rs.setPaused(ctx, resuming, o, outbox.ProjectionPause{Projection: projection, CampaignID: campaign}, loaded)
}

// holding is a pause or resume under way.
type holding struct {
	order  outbox.Command
	loaded []outbox.ProjectionInfo
	readmodel.PauseCommand
}

// holdKind is how a projection is held, or let go on.
type holdKind struct {
	action     outbox.Action
	everywhere func(*readmodel.Database, *readmodel.PauseCommand) error
	inOne      func(*readmodel.ApplyTx, *readmodel.PauseCommand) error
}

var (
	pausing  = holdKind{outbox.ActionProjectionPause, (*readmodel.Database).PauseEverywhere, (*readmodel.ApplyTx).PauseCursor}
	resuming = holdKind{outbox.ActionProjectionResume, (*readmodel.Database).ResumeEverywhere, (*readmodel.ApplyTx).ResumeCursor}
)

func (rs *Runs) setPaused(ctx context.Context, kind holdKind, o outbox.Command, of outbox.ProjectionPause, loaded []outbox.ProjectionInfo) (outbox.ProjectionPause, error) {
	a := &store.Change{Command: o, Action: kind.action, CampaignID: of.CampaignID, Target: outbox.ProjectionTarget(of.Projection), Asked: map[string]string{"projection": of.Projection}}
	a.Before = a.Asked
	hold, err := perform(ctx, rs, a, func(t *tx, now int64) (outbox.ProjectionPause, error) {
		h := &holding{o, loaded, readmodel.PauseCommand{ProjectionPause: of, By: o.By.Name, Reason: o.Reason, Now: now}}
		_, err := loadedAs(of.Projection, loaded)
		if err == nil {
			err = rs.core.Require(o, 0)
		}
		if err == nil {
			err = t.lockAdmission() // of the replay, before campaigns are locked
		}
		if err == nil {
			err = t.sinceReplays(h)
		}
		if err != nil {
			return h.ProjectionPause, err
		}
		if of.CampaignID == "" {
			err = kind.everywhere(rs.core.ReadModel(), &h.PauseCommand)
		} else if _, err = t.ExistingCampaign(of.CampaignID); err == nil {
			err = rs.core.ReadModel().Apply(context.Background(), func(a *readmodel.ApplyTx) error { return kind.inOne(a, &h.PauseCommand) })
		}
		if err == nil && h.Behind > 0 {
			err = rs.catchUp(t, h)
		}
		a.After = h.ProjectionPause
		return h.ProjectionPause, err
	})
	if hold.RunID > 0 {
		rs.wakeWorker()
	}
	return hold, err
}

// sinceReplays moves the time of a resume behind every replay that was started
// before it, whatever their clocks said: each was tried before it.
func (t *tx) sinceReplays(h *holding) error {
	var last int64
	_, err := t.One([]any{&last}, `select coalesce(max(requested_at), 0) from runs where kind = 'replay'`)
	h.Now = max(h.Now, last+1)
	return err
}

// catchUp starts the replay that brings a resumed projection level. While
// another run has it, or a part of it, the replay waits for the end of that one,
// see endRun.
func (rs *Runs) catchUp(t *tx, h *holding) error {
	order := outbox.RunRequest{Kind: outbox.RunReplay, All: h.CampaignID == "", Projections: []string{h.Projection}}
	if !order.All {
		order.Campaigns = []string{h.CampaignID}
	}
	run, err := rs.admitRun(t, h.order, order, h.loaded, h.Now)
	var refusal *outbox.Refusal
	if errors.As(err, &refusal) && errors.Is(err, outbox.ErrConflict) {
		h.BlockedByRun = refusal.Run
		return nil
	}
	if h.RunID = run.ID; err == nil {
		err = t.recordReplay(run, order, h.Now)
	}
	return err
}
