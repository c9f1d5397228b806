package handlers

import (
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
	row, revealed, err := s.reveal(r, "page", fillForm)
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

// reveal reads which event is asked for, and returns it as it is stored.
func (s *server) reveal(r *http.Request, via string, read func(*http.Request, any) error) (row event.RowKey, revealed campaign.Revealed, err error) {
	if row, err = rowParam(r); err != nil {
		return row, revealed, err
	}
	var asked operator.ActionRequest
	if err = read(r, &asked); err == nil {
		revealed, err = s.Store.Reveal(r.Context(), s.command(r, via, asked), row.CampaignID, row.Seq)
	}
	return row, revealed, err
}

func (s *server) apiReveal(w http.ResponseWriter, r *http.Request) error {
	_, revealed, err := s.reveal(r, "api", decode)
	if err != nil {
		return err
	}
	revealed.Event.Redacted = []string{}
	return s.writeJSON(w, http.StatusOK, revealedEvent{revealed.Event})
}
