package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// skipsShown is how many skips a campaign's page shows.
const skipsShown = 20

// skipBody is the body of the skip of an event.
type skipBody struct {
	Reason   string    `json:"reason" validate:"reason" api:"required,min=1"`
	Confirm  string    `json:"confirm" validate:"phrase" api:"required"` // the words "skip CAMPAIGN SEQ"
	Expected *expected `json:"expected"`
}

func (s *server) readSkips(r *http.Request) (page outbox.Page[outbox.Skip], err error) {
	id, f, err := asked[outbox.SkipFilter](r, campaignParam)
	if err != nil {
		return page, err
	}
	f.CampaignID = id
	return s.Store.Skips(r.Context(), f)
}
