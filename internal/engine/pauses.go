package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// pauseEndsEvery is how often pauses whose time is over are looked for.
const pauseEndsEvery = 5 * time.Second

// endPauses ends the pauses whose time is over. The end of a pause that is over already is forgotten;
// that of a projection which is not loaded here is left to other processes.
func (p *Process) endPauses(ctx context.Context) (bool, error) {
	over, err := p.Engine.PausesOver(ctx)
	if err != nil {
		return false, err
	}
	var failed []error
	for _, e := range over {
		loaded := func(i campaign.ProjectionInfo) bool { return i.Name == e.Target }
		if e.Resume == operator.ActionProjectionResume && !slices.ContainsFunc(p.Set.Infos(), loaded) {
			continue
		}
		switch err := p.endPause(ctx, e); {
		case err == nil:
			p.Logger.Info("a pause has ended", "by", e.By, "campaign", e.CampaignID, "target", e.Target, "action", e.Resume)
		case errors.Is(err, event.ErrConflict) || errors.Is(err, event.ErrNotFound):
			failed = append(failed, p.Engine.ForgetPause(ctx, e))
		default:
			failed = append(failed, err)
		}
	}
	return false, errors.Join(failed...)
}

func (p *Process) endPause(ctx context.Context, e campaign.PauseEnd) (err error) {
	o := operator.ByItself("the time of the pause by " + e.By + " was over")
	o.Ends = e.Until
	switch e.Resume {
	case operator.ActionProjectionResume:
		_, err = p.Engine.Runs.ResumeProjection(ctx, o, e.Target, e.CampaignID, p.Set.Infos())
	case operator.ActionPublisherResume:
		name, parsed := operator.ParseSubscriptionName(e.Target)
		if parsed != nil {
			return parsed
		}
		_, err = p.Engine.Publishing.Resume(ctx, o, name)
	default:
		_, err = p.Engine.Queue.ResumeCampaign(ctx, o, e.CampaignID)
	}
	return err
}
