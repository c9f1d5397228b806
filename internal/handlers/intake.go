package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/operator"
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

func onRejection[B, R any](do func(context.Context, operator.Command, string, int64) (R, error)) actionCall[B, inbound.RejectionKey, R] {
	return func(ctx context.Context, o operator.Command, row inbound.RejectionKey, _ B) (R, error) {
		return do(ctx, o, row.Source, row.ID)
	}
}

func (s *server) readRejections(ctx context.Context, source string, q paging) (event.Page[inbound.IntakeRejection], error) {
	return s.Intake.Rejections(ctx, source, q.Cursor, q.Limit)
}

// routeIntakeAPI adds the API's routes about sources, and the forms of their actions.
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
	addAction(s, operator.ActionIntakeRetry, onRejections, onRejection[operator.ReasonRequest](s.Intake.Retry), endpoint{
		id: "retryRejection", tag: tagIntake,
		summary: "Retry a rejected row, as it is in its table then",
		details: "The server that holds the source does it at its next read. A row that fails again is rejected with the new reason; one that is gone from its table no longer blocks its campaign.",
	})
	addAction(s, operator.ActionIntakeDiscard, onRejections, onRejection[inbound.DiscardRequest](s.Intake.Discard), endpoint{
		id: "discardRejection", tag: tagIntake,
		summary: "Discard a rejected row: it is deleted from its table, and its event never enters the journal",
		details: "The server that holds the source does it at its next read. The row's content stays in the rejection.",
	})
	addAction(s, operator.ActionIntakeHandOver, onSources, with[inbound.HandOverRequest](s.Intake.HandOver), endpoint{
		id: "handOverSource", tag: tagIntake,
		summary: "Hand a source that belongs to another journal over to this one",
		details: "The server that has the source in its configuration takes it at its next read, within 30 s, unless it belongs to a third journal by then. The journal that had it is refused from then on.",
	})
}
