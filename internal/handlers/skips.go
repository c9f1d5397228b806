package handlers

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// skipsShown is how many skips a campaign's page shows.
const skipsShown = 20

func (s *server) readSkips(ctx context.Context, campaign string, f outbox.SkipFilter) (outbox.Page[outbox.Skip], error) {
	f.CampaignID = campaign
	return s.Store.Skips(ctx, f)
}
