package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

type eventSearchQuery struct {
	EventID    string `json:"event_id" validate:"id"`
	Campaign   string `json:"campaign" validate:"id"`
	EventType  string `json:"event_type" validate:"id"`
	EntityType string `json:"entity_type" validate:"id"`
	EntityID   string `json:"entity_id" validate:"id"`
	ActorType  string `json:"actor_type" validate:"id"`
	ActorID    string `json:"actor_id" validate:"id"`
	RequestID  string `json:"request_id" validate:"id"`
	SessionID  string `json:"session_id" validate:"id"`
	Tag        string `json:"tag" validate:"text,maxbytes=500"` // name=value
	Q          string `json:"q" validate:"id"`                  // part of the payload, the metadata, the tags or an id; upper and lower case differ
	// events recorded at or after this: RFC 3339, a date (UTC), or relative: -2h, or 14:00, the last one that
	// is past
	Since string `json:"since" validate:"text,maxbytes=100"`
	// events recorded before this: RFC 3339; relative, where 14:10 is the first one from since; or a
	// date (UTC), which is included
	Until string `json:"until" validate:"text,maxbytes=100"`
	// what since and until are compared with: when events were recorded, which the journal's order finds,
	// or when they occurred, which is looked for in the events one by one and may be long before
	Time string `json:"time" validate:"omitempty,oneof=recorded occurred" api:"default=recorded"`
	// also answer with the position for a conditional append; with the first page, and without q,
	// since and until
	Settled string `json:"settled" validate:"omitempty,oneof=true false"`
	ordering
	paging
}

// eventFilter reads the filter of a search of events. Events are compared as readers see them.
func (s *server) eventFilter(r *http.Request) (f outbox.EventFilter, err error) {
	var q eventSearchQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return f, err
	}
	f = outbox.EventFilter{EventID: q.EventID, CampaignID: q.Campaign, EventType: q.EventType, EntityType: q.EntityType, EntityID: q.EntityID,
		ActorType: q.ActorType, ActorID: q.ActorID, RequestID: q.RequestID, SessionID: q.SessionID, Tag: q.Tag, Q: q.Q, Occurred: q.Time == "occurred",
		Shown: s.Redact, Reverse: q.reverse(), Cursor: q.Cursor, Limit: q.limit(), Settled: q.Settled == "true"}
	if f.Since, f.Until, err = outbox.ParseRange(q.Since, q.Until, s.Now()); err != nil {
		return f, err
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
		seeOther(w, s.linksOf(r).SearchEvents(filter))
		return nil
	}
	page, err := s.searchEvents(r.Context(), filter)
	if err != nil {
		return err
	}
	view := templates.EventsView{Filter: filter, Page: page}
	if len(page.Items) == 0 {
		view.Misses = s.misses(r, filter)
	}
	if view.Offered, err = s.offered(r, "events"); err != nil {
		return err
	}
	p := s.page(r, "Find events", "Events")
	p.Twin = s.linksOf(r).API().SearchEvents(filter)
	return s.render(w, r, http.StatusOK, p, pageOf(templates.EventsPage, view))
}

// searchEvents searches events and the projections that lack them. A page is worth reading without
// those.
func (s *server) searchEvents(ctx context.Context, f outbox.EventFilter) (outbox.FoundEvents, error) {
	page, err := s.Search.Events(ctx, f)
	if err == nil {
		_ = s.Runs.AddHeld(ctx, s.Projections, page.Items)
	}
	return page, err
}

// misses says why a list is empty; nothing if that cannot be read.
func (s *server) misses(r *http.Request, f outbox.EventFilter) []outbox.Miss {
	f.Shown = s.Redact
	all, err := s.Search.Misses(r.Context(), f)
	if err != nil && r.Context().Err() == nil {
		s.Logger.Warn("find which values of a search exist", outbox.RequestIDs(r.Context()), "err", err)
	}
	return all
}

func seeOther(w http.ResponseWriter, to templates.URL) {
	w.Header().Set("Location", string(to))
	w.WriteHeader(http.StatusSeeOther)
}
