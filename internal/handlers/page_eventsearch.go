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
	// events recorded at or after this: RFC 3339, a date (UTC), or relative, such as -2h or yesterday
	// 14:00
	Since string `json:"since" validate:"text,maxbytes=100"`
	// events recorded before this: RFC 3339, relative, or a date (UTC), which is included
	Until string `json:"until" validate:"text,maxbytes=100"`
	// also answer with the position for a conditional append; with the first page, and without q,
	// since and until
	Settled string `json:"settled" validate:"omitempty,oneof=true false"`
	ordering
	paging
}

// relative reports whether a time of the query depends on when it is read.
func (q eventSearchQuery) relative() bool {
	return q.Since != "" && !outbox.Absolute(q.Since) || q.Until != "" && !outbox.Absolute(q.Until)
}

// eventFilter reads the filter of a search of events. Events are compared as readers see them.
func (s *server) eventFilter(r *http.Request) (outbox.EventFilter, error) {
	f, _, err := s.readEventFilter(r)
	return f, err
}

func (s *server) readEventFilter(r *http.Request) (f outbox.EventFilter, relative bool, err error) {
	var q eventSearchQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return f, false, err
	}
	now := s.Now()
	since, err := outbox.ParseWhenSince("since", q.Since, now)
	if err != nil {
		return f, false, err
	}
	until, err := outbox.ParseWhenUntil("until", q.Until, now)
	if err != nil {
		return f, false, err
	}
	f = outbox.EventFilter{EventID: q.EventID, CampaignID: q.Campaign, EventType: q.EventType, EntityType: q.EntityType, EntityID: q.EntityID,
		ActorType: q.ActorType, ActorID: q.ActorID, RequestID: q.RequestID, SessionID: q.SessionID, Tag: q.Tag, Q: q.Q, Since: since, Until: until,
		Shown: s.Redact, Reverse: q.reverse(), Cursor: q.Cursor, Limit: q.limit(), Settled: q.Settled == "true"}
	return f, q.relative(), f.Validate()
}

// eventsPage searches the events of all campaigns. Relative times are replaced in the address, so
// that a link to it keeps showing the same events.
func (s *server) eventsPage(w http.ResponseWriter, r *http.Request) error {
	filter, relative, err := s.readEventFilter(r)
	if err != nil {
		return err
	}
	if relative {
		seeOther(w, s.linksOf(r).SearchEvents(filter))
		return nil
	}
	page, err := s.searchEvents(r.Context(), filter)
	if err != nil {
		return err
	}
	view := templates.EventsView{Filter: filter, Page: page}
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

func seeOther(w http.ResponseWriter, to templates.URL) {
	w.Header().Set("Location", string(to))
	w.WriteHeader(http.StatusSeeOther)
}
