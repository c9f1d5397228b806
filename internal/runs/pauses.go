package runs

import (
	"context"
	"errors"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
)

// PauseProjection pauses a projection, for one campaign or, if none is named, for all. The others
// go on, and its rows stay as of its last applied event. It returns event.ErrNotFound for an
// unknown campaign or a projection that is not loaded, event.ErrConflict if it is already paused
// there.
//
// Once it has returned no event reaches the projection. That requires no lease: applying a
// campaign's events reads its paused projections with the watermark locked until commit, and the
// pause locks it too. A pause for all campaigns changes only while no process applies anything.
//
// The pause is written to the projections before the journal has its record. If the process dies in
// between, the pause itself says who made it, and why.
func (rs *Runs) PauseProjection(ctx context.Context, o operator.Command, projection, campaignID string, loaded []campaign.ProjectionInfo) (campaign.ProjectionPause, error) {
	return rs.setPaused(ctx, pausing, o, campaign.ProjectionPause{Projection: projection, CampaignID: campaignID}, loaded)
}

// ResumeProjection resumes a paused projection, in one campaign or, if none is named, wherever the
// pause for all campaigns stopped it. Where events were applied meanwhile it is behind until a
// replay has caught it up. It returns event.ErrConflict if it is not paused there, and for one
// campaign while it is paused for all; other errors are those of PauseProjection.
func (rs *Runs) ResumeProjection(ctx context.Context, o operator.Command, projection, campaignID string, loaded []campaign.ProjectionInfo) (campaign.ProjectionPause, error) {
	return rs.setPaused(ctx, resuming, o, campaign.ProjectionPause{Projection: projection, CampaignID: campaignID}, loaded)
}

// holding is a pause or resume in progress.
type holding struct {
	order  operator.Command
	loaded []campaign.ProjectionInfo
	readmodel.PauseCommand
}

// holdKind is how a projection is paused or resumed.
type holdKind struct {
	action     operator.Action
	everywhere func(*readmodel.Database, *readmodel.PauseCommand) error
	inOne      func(*readmodel.ApplyTx, *readmodel.PauseCommand) error
}

var (
	pausing  = holdKind{operator.ActionProjectionPause, (*readmodel.Database).PauseEverywhere, (*readmodel.ApplyTx).PauseCursor}
	resuming = holdKind{operator.ActionProjectionResume, (*readmodel.Database).ResumeEverywhere, (*readmodel.ApplyTx).ResumeCursor}
)

func (rs *Runs) setPaused(ctx context.Context, kind holdKind, o operator.Command, of campaign.ProjectionPause, loaded []campaign.ProjectionInfo) (campaign.ProjectionPause, error) {
	a := &store.Change{Command: o, Action: kind.action, CampaignID: of.CampaignID, Target: operator.ProjectionTarget(of.Projection), Asked: map[string]string{"projection": of.Projection}}
	a.Before = a.Asked
	hold, err := perform(ctx, rs, a, func(t *tx, now int64) (campaign.ProjectionPause, error) {
		h := &holding{o, loaded, readmodel.PauseCommand{ProjectionPause: of, By: o.By.Name, Reason: o.Reason, Now: now}}
		_, err := loadedAs(of.Projection, loaded)
		if err == nil {
			err = rs.core.Require(o, 0)
		}
		if err == nil {
			err = t.lockAdmission() // for the replay, before campaigns are locked
		}
		if err == nil {
			err = t.sinceReplays(h)
		}
		if err == nil && kind.action == operator.ActionProjectionPause {
			err = t.PausedUntil(o, operator.ActionProjectionResume, of.CampaignID, of.Projection, now)
		} else if err == nil { // before the projections are written to: it may refuse
			err = t.Resumed(o, operator.ActionProjectionResume, of.CampaignID, of.Projection)
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

// sinceReplays sets the time of a resume after that of every replay started before it, whatever
// their clocks said: none of those replays covered it.
func (t *tx) sinceReplays(h *holding) error {
	var last int64
	_, err := t.One([]any{&last}, `select coalesce(max(requested_at), 0) from runs where kind = 'replay'`)
	h.Now = max(h.Now, last+1)
	return err
}

// catchUp starts the replay that catches up a resumed projection. While another run has part of its
// scope, the replay waits for the end of that run, see endRun.
func (rs *Runs) catchUp(t *tx, h *holding) error {
	order := replay.RunRequest{Kind: replay.RunReplay, All: h.CampaignID == "", Projections: []string{h.Projection}}
	if !order.All {
		order.Campaigns = []string{h.CampaignID}
	}
	run, err := rs.admitRun(t, h.order, order, nil, h.loaded, h.Now)
	var refusal *event.Refusal
	if errors.As(err, &refusal) && errors.Is(err, event.ErrConflict) {
		h.BlockedByRun = refusal.Run
		return nil
	}
	if h.RunID = run.ID; err == nil {
		err = t.recordReplay(run, order, h.Now)
	}
	return err
}
