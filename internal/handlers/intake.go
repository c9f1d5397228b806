package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

func (s *server) intakePage(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Intake.States(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Intake", "Intake")
	p.Self, p.Twin = s.linksOf(r).Intake(), s.linksOf(r).API().Intake()
	return s.renderLive(w, r, p, pageOf(templates.IntakePage, list), pageOf(templates.IntakeLive, list))
}

func (s *server) sourcePage(w http.ResponseWriter, r *http.Request) error {
	source, err := param(r, "source")
	if err != nil {
		return err
	}
	var v templates.SourceView
	if v.Source, err = s.Intake.Source(r.Context(), source); err != nil {
		return err
	}
	var q paging
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	v.Cursor, v.Limit = q.Cursor, q.limit()
	if v.Rejections, err = s.Intake.Rejections(r.Context(), source, v.Cursor, v.Limit); err != nil {
		return err
	}
	p := s.page(r, "Source "+source, "Intake")
	p.Self, p.Twin = s.linksOf(r).Source(source, v.Cursor, v.Limit), s.linksOf(r).API().Rejections(source)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.renderLive(w, r, p, pageOf(templates.SourcePage, v), pageOf(templates.SourceLive, v))
}

// intakeList is the answer with the sources.
type intakeList struct {
	Sources []outbox.IntakeSource `json:"sources"` // by name
}

// rejectionBody is the body of a retry of a rejected row.
type rejectionBody struct {
	Reason string `json:"reason" validate:"reason"`
}

// discardBody is the body of the discard of a rejected row.
type discardBody struct {
	Reason  string `json:"reason" validate:"reason" api:"required,min=1"`
	Confirm string `json:"confirm" validate:"phrase" api:"required"` // the words "discard SOURCE ID"
}

func (b rejectionBody) why() (reason, confirm string) { return b.Reason, "" }

// handOverBody is the body of a hand-over of a source.
type handOverBody struct {
	Reason  string `json:"reason" validate:"reason" api:"required,min=1"`
	Confirm string `json:"confirm" validate:"phrase" api:"required"` // the words "hand over SOURCE"
}

func (b handOverBody) why() (reason, confirm string) { return b.Reason, b.Confirm }
func (b discardBody) why() (reason, confirm string)  { return b.Reason, b.Confirm }

// rejectedRow is a rejected row of a source.
type rejectedRow struct {
	source string
	id     int64
}

func rejectionParam(r *http.Request) (row rejectedRow, err error) {
	if row.source, err = param(r, "source"); err == nil {
		row.id, err = numberParam(r, "rejection", "the id of a rejected row is")
	}
	return row, err
}

func rejectionPage(l templates.Links, row rejectedRow) templates.URL {
	return l.Source(row.source, "", 0)
}

func onRejection[R any](do func(context.Context, outbox.Command, string, int64) (R, error)) actionCall[rejectedRow, R] {
	return func(ctx context.Context, o outbox.Command, row rejectedRow) (R, error) {
		return do(ctx, o, row.source, row.id)
	}
}

func (s *server) readRejections(r *http.Request) (page outbox.Page[outbox.IntakeRejection], err error) {
	source, q, err := asked[paging](r, pathParam("source"))
	if err != nil {
		return page, err
	}
	return s.Intake.Rejections(r.Context(), source, q.Cursor, q.limit())
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
	s.apiGet("/intake/{source}/rejections", serveJSON(s, s.readRejections), endpoint{
		id: "listRejections", tag: tagIntake,
		summary: "Rejected rows of a source, newest first, including discarded ones",
		query:   queryOf(paging{}),
		answers: gives[outbox.Page[outbox.IntakeRejection]]("a page of rejected rows"),
	})
	addAction(s, outbox.ActionIntakeRetry, readSameForm(s, rejectionParam, func(row rejectedRow, _ rejectionBody) rejectedRow { return row }, rejectionPage), onRejection(s.Intake.Retry), endpoint{
		id: "retryRejection", tag: tagIntake,
		summary: "Retry a rejected row, as it is in its table then",
		details: "The server that holds the source does it at its next read. A row that fails again is rejected with the new reason; one that is gone from its table no longer blocks its campaign.",
		body:    mayTake[rejectionBody](),
	})
	addAction(s, outbox.ActionIntakeDiscard, readSameForm(s, rejectionParam, func(row rejectedRow, _ discardBody) rejectedRow { return row }, rejectionPage), onRejection(s.Intake.Discard), endpoint{
		id: "discardRejection", tag: tagIntake,
		summary: "Discard a rejected row: it is deleted from its table, and its event never enters the journal",
		details: "The server that holds the source does it at its next read. The row's content stays in the rejection.",
		body:    takes[discardBody](),
	})
	source := func(r *http.Request) (string, error) { return param(r, "source") }
	addAction(s, outbox.ActionIntakeHandOver, readSameForm(s, source, func(source string, _ handOverBody) string { return source },
		func(l templates.Links, source string) templates.URL { return l.Source(source, "", 0) }), s.Intake.HandOver, endpoint{
		id: "handOverSource", tag: tagIntake,
		summary: "Hand a source that belongs to another journal over to this one",
		details: "The server that has the source in its configuration takes it at its next read, within 30 s, unless it belongs to a third journal by then. The journal that had it is refused from then on.",
		body:    takes[handOverBody](),
	})
}
