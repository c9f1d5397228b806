package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/web/templates/delivery"
)

func (s *server) intakePage(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Intake.States(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Intake", "Intake")
	p.Self, p.Twin = s.linksOf(r).Intake(), s.linksOf(r).API().Intake()
	return s.renderLive(w, r, p, pageOf(delivery.IntakePage, list), pageOf(delivery.IntakeLive, list))
}

func (s *server) sourcePage(w http.ResponseWriter, r *http.Request) error {
	source, err := param(r, "source")
	if err != nil {
		return err
	}
	var v delivery.SourceView
	if v.Source, err = s.Intake.Source(r.Context(), source); err != nil {
		return err
	}
	var q paging
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	v.Cursor, v.Limit = q.Cursor, q.Limit
	if v.Rejections, err = s.Intake.Rejections(r.Context(), source, v.Cursor, v.Limit); err != nil {
		return err
	}
	p := s.page(r, "Source "+source, "Intake")
	p.Self, p.Twin = s.linksOf(r).Source(source, v.Cursor, v.Limit), s.linksOf(r).API().Rejections(source)
	return s.renderActed(w, r, p, pageOf(delivery.SourcePage, v), pageOf(delivery.SourceLive, v))
}

// intakeList is the answer with the sources.
type intakeList struct {
	Sources []inbound.IntakeSource `json:"sources"` // by name
}

func rejectionParam(r *http.Request) (row inbound.RejectionKey, err error) {
	if row.Source, err = param(r, "source"); err == nil {
		row.ID, err = rejectedParam(r)
	}
	return row, err
}

func (s *server) readRejections(ctx context.Context, source string, q paging) (event.Page[inbound.IntakeRejection], error) {
	return s.Intake.Rejections(ctx, source, q.Cursor, q.Limit)
}

// routeIntakeAPI adds the API's routes about sources.
func (s *server) routeIntakeAPI() {
	s.apiGet("/intake", serveJSON(s, func(r *http.Request) (intakeList, error) {
		all, err := s.Intake.States(r.Context())
		return intakeList{all}, err
	}), endpoint{
		id: "listSources", tag: tagIntake,
		summary: "Sources of events: services' databases whose rows are moved to the journal",
		details: "Those of this server's configuration, and those that other servers have or had. Their state is at most a few seconds old.",
		answers: gives[intakeList]("the sources, by name"),
	})
	s.apiGet("/intake/{source}/rejections", replyAbout(s, pathParam("source"), filter[paging](s), s.readRejections), endpoint{
		id: "listRejections", tag: tagIntake,
		summary: "Rejected rows of a source, newest first, including discarded ones",
		query:   queryOf(paging{}),
		answers: gives[event.Page[inbound.IntakeRejection]]("a page of rejected rows"),
	})
}
