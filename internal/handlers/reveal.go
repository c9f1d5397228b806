package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// revealForm answers with an event's page on which nothing is hidden. It has no address that could
// be requested again: neither browsers nor htmx keep it.
func (s *server) revealForm(w http.ResponseWriter, r *http.Request) error {
	row, revealed, err := perform(s, r, "page", fillForm, rowParam, s.reveal)
	if err != nil {
		return err
	}
	view, err := s.readEvent(r.Context(), row.CampaignID, row.Seq, ui.TabPayload)
	if err != nil {
		return err
	}
	w.Header().Set("HX-Push-Url", "false")
	p := s.page(r, campaigns.EventTitle(row.CampaignID, row.Seq), "Events")
	return s.render(w, r, http.StatusOK, p, pageOf(campaigns.RevealedPage, campaigns.RevealedView{EventView: view, Revealed: revealed}))
}

// revealedEvent is an event as it is stored.
type revealedEvent struct {
	event.Event `redact:"-"`
}

func (s *server) reveal(ctx context.Context, o operator.Command, row event.RowKey, _ operator.ActionRequest) (campaign.Revealed, error) {
	return s.Store.Reveal(ctx, o, row.CampaignID, row.Seq)
}

func (s *server) revealEvent(ctx context.Context, o operator.Command, row event.RowKey, asked operator.ActionRequest) (revealedEvent, error) {
	revealed, err := s.reveal(ctx, o, row, asked)
	revealed.Event.Redacted = []string{}
	return revealedEvent{revealed.Event}, err
}
