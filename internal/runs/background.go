package runs

import (
	"context"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// verifyChoice is how many campaigns each choice considers, so that those which cannot be verified
// do not block the others.
const verifyChoice = 500

// verifyNext returns a step that verifies one campaign each time, cycling through all of them.
// Drift is recorded for the pages, the metrics and the log; an operator has to fix it, as well as a
// campaign that cannot be verified. A campaign that keeps changing is retried after the others.
func (w *Worker) verifyNext() func(context.Context) (bool, error) {
	after := ""
	tried := make(map[string]bool) // without success
	return func(ctx context.Context) (bool, error) {
		campaigns, next, err := w.Runs.Stalest(ctx, after, verifyChoice)
		if after = next; err != nil || len(campaigns) == 0 {
			return false, err
		}
		id := ""
		for _, c := range campaigns {
			if !tried[c.CampaignID] {
				id = c.CampaignID
				break
			}
		}
		if id == "" {
			id = campaigns[0].CampaignID
			clear(tried)
		}
		all, err := w.verifyOne(ctx, id)
		if err == nil && len(all) > 0 {
			return false, w.Runs.core.RecordVerifications(ctx, all)
		}
		if len(tried) >= 100*verifyChoice {
			clear(tried)
		}
		tried[id] = !errors.Is(err, event.ErrBusy)
		return false, err
	}
}

func (w *Worker) verifyOne(ctx context.Context, id string) ([]campaign.Verification, error) {
	f, err := NewReplayer(ctx, w.Runs.core, w.Set)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	f.pace = w.throttle
	result, err := f.Verify(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	result.At = time.Now().UTC()
	switch result.Outcome {
	case replay.OutcomeFailed:
		w.Logger.Warn("a campaign could not be verified", "campaign", result.CampaignID, "error", result.Error)
	case replay.OutcomeDrift:
		w.Logger.Warn("a campaign's live rows differ from its journal", "campaign", result.CampaignID)
	}
	names, _ := w.Set.Needs()
	return result.Verifications(replay.Run{Projections: names, Versions: versionsOf(w.Set.Infos(), names...)}), nil
}
