package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// revealForm answers with an event's page on which nothing is hidden. It has no address that could
// be requested again: neither browsers nor htmx keep it.
func (s *server) revealForm(w http.ResponseWriter, r *http.Request) error {
	campaign, seq, err := rowParams(r)
	if err != nil {
		return err
	}
	order, _, err := s.formCommand(r, "", "")
	if err != nil {
		return err
	}
	revealed, err := s.Store.Reveal(r.Context(), order, campaign, seq)
	if err != nil {
		return err
	}
	view, err := s.readEvent(r.Context(), campaign, seq, templates.TabPayload)
	if err != nil {
		return err
	}
	w.Header().Set("HX-Push-Url", "false")
	p := s.page(r, templates.EventTitle(campaign, seq), "Events")
	return s.render(w, r, http.StatusOK, p, pageOf(templates.RevealedPage, templates.RevealedView{EventView: view, Revealed: revealed}))
}

// revealedEvent is an event as it is stored.
type revealedEvent struct {
	outbox.Event `redact:"-"`
}

func (s *server) apiReveal(w http.ResponseWriter, r *http.Request) error {
	campaign, seq, err := rowParams(r)
	if err != nil {
		return err
	}
	order, err := s.decodeCommand(r)
	if err != nil {
		return err
	}
	revealed, err := s.Store.Reveal(r.Context(), order, campaign, seq)
	if err != nil {
		return err
	}
	event := revealed.Event
	event.Redacted = []string{}
	return s.writeJSON(w, http.StatusOK, revealedEvent{event})
}
