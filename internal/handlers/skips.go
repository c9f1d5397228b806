package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// skipsShown is how many skips a campaign's page shows.
const skipsShown = 20

func (s *server) readSkips(r *http.Request) (page outbox.Page[outbox.Skip], err error) {
	id, f, err := asked[outbox.SkipFilter](r, campaignParam)
	if err != nil {
		return page, err
	}
	f.CampaignID = id
	return s.Store.Skips(r.Context(), f)
}
