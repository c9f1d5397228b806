package worker

import (
	"context"
	"time"

	"outboxweb/internal/outbox"
)

// verifyNext returns a step that verifies one campaign each time, going round
// all of them. What differs is noted for the pages, the metrics and the log; it
// is an operator's to mend.
func (w *Worker) verifyNext() func(context.Context) (bool, error) {
	after := ""
	return func(ctx context.Context) (bool, error) {
		campaigns, next, err := w.Store.StalestCampaigns(ctx, after, 1)
		if after = next; err != nil || len(campaigns) == 0 {
			return false, err
		}
		f, err := NewFolder(ctx, w.Store, w.Set)
		if err != nil {
			return false, err
		}
		defer f.Close()
		f.pace = w.rest
		result, err := f.Verify(ctx, campaigns[0].CampaignID, 0)
		if err != nil {
			return false, err
		}
		result.At = time.Now().UTC()
		if result.Outcome != outbox.OutcomeMatch {
			w.Logger.Warn("a campaign's live rows are not those of its journal", "campaign", result.CampaignID, "outcome", result.Outcome, "error", result.Error)
		}
		return false, w.Store.NoteVerifications(ctx, result.Verifications(outbox.Run{}))
	}
}
