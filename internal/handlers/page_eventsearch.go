package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// eventFilter reads the filter of a search of events. Events are compared as readers see them.
func (s *server) eventFilter(r *http.Request) (search.EventFilter, error) {
	f, err := filter[search.EventFilter](s)(r)
	if err != nil {
		return f, err
	}
	if f.Shown = s.Redact; !f.Occurred() {
		f.Time = "" // the default
	}
	return f, f.Validate()
}

// eventsPage searches the events of all campaigns. Relative times are replaced in the address, so
// that a link to it keeps showing the same events.
func (s *server) eventsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := s.eventFilter(r)
	if err != nil {
		return err
	}
	if relativeTimes(r) {
		return seeOther(w, s.linksOf(r).SearchEvents(filter))
	}
	page, err := s.searchEvents(r.Context(), filter)
	if err != nil {
		return err
	}
	view := campaigns.EventsView{Filter: filter, Page: page}
	if len(page.Items) == 0 {
		view.Misses = s.misses(r, filter)
	}
	if view.Offered, err = s.offered(r, "events"); err != nil {
		return err
	}
	p := s.page(r, "Find events", "Events")
	p.Twin = s.linksOf(r).API().SearchEvents(filter)
	if filter.Tails() {
		p.Self = s.linksOf(r).SearchEvents(filter)
	}
	return s.renderLive(w, r, p, pageOf(campaigns.EventsPage, view), pageOf(campaigns.EventsLive, view))
}

// searchEvents searches events and the projections that lack them. A page is worth reading without
// those.
func (s *server) searchEvents(ctx context.Context, f search.EventFilter) (search.FoundEvents, error) {
	page, err := s.Search.Events(ctx, f)
	if err == nil {
		_ = s.Runs.AddHeld(ctx, s.Projections, page.Items)
	}
	return page, err
}

// misses says why a list is empty; nothing if that cannot be read.
func (s *server) misses(r *http.Request, f search.EventFilter) []search.Miss {
	f.Shown = s.Redact
	all, err := s.Search.Misses(r.Context(), f)
	if err != nil && r.Context().Err() == nil {
		s.Logger.Warn("find which values of a search exist", operator.RequestIDs(r.Context()), "err", err)
	}
	return all
}

// seeOther redirects to a page, without the body that http.Redirect writes.
func seeOther(w http.ResponseWriter, to ui.URL) error {
	w.Header().Set("Location", string(to))
	w.WriteHeader(http.StatusSeeOther)
	return nil
}
