package handlers

import (
	"errors"
	"net/http"

	"outboxweb/internal/outbox"
	"outboxweb/web/templates"
)

func (s *server) rowsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := s.rowFilter(r)
	if err != nil {
		return err
	}
	list, err := s.Store.Rows(r.Context(), filter)
	if err != nil {
		return err
	}
	p := s.page(r, "Rows", templates.RowsNav(filter))
	p.Self, p.Twin = s.linksOf(r).Rows(filter), s.linksOf(r).API().Rows(filter)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	view := templates.RowsView{Filter: filter, Page: list}
	return s.renderLive(w, r, p, pageOf(templates.RowsPage, view), pageOf(templates.RowsLive, view))
}

func (s *server) rowPage(w http.ResponseWriter, r *http.Request) error {
	campaign, seq, err := rowParams(r)
	if err != nil {
		return err
	}
	detail, err := s.Store.RowWithin(r.Context(), campaign, seq, templates.InlineDocument)
	if err != nil && !errors.Is(err, outbox.ErrNotFound) {
		return err
	}
	p := s.rowFrame(r, campaign, seq)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	if errors.Is(err, outbox.ErrNotFound) {
		return s.rowGonePage(w, r, p, campaign, seq)
	}
	view := templates.RowView{RowDetail: detail}
	if view.History, err = s.Store.EventHistory(r.Context(), campaign, seq); err != nil {
		return err
	}
	return s.renderLive(w, r, p, pageOf(templates.RowPage, view), pageOf(templates.RowLive, view))
}

func (s *server) rowFrame(r *http.Request, campaign string, seq int64) templates.Page {
	p := s.page(r, templates.RowTitle(campaign, seq), "Rows")
	p.Around = s.around(r.Context())
	p.Self, p.Twin = s.linksOf(r).Row(campaign, seq), s.linksOf(r).API().Row(campaign, seq)
	return p
}

// rowGonePage explains an event without a row. If the event does not exist either, it returns the
// error of reading it.
func (s *server) rowGonePage(w http.ResponseWriter, r *http.Request, p templates.Page, campaign string, seq int64) error {
	view, err := s.readEvent(r, campaign, seq)
	if err != nil {
		return err
	}
	p.Twin = s.linksOf(r).API().Event(campaign, seq)
	gone := templates.GoneView{Event: view.Event, Campaign: view.Campaign, History: view.History, Acts: view.Acts}
	return s.renderLive(w, r, p, pageOf(templates.RowGonePage, gone), pageOf(templates.RowGoneLive, gone))
}

func (s *server) requeueRowPage(w http.ResponseWriter, r *http.Request) error {
	campaign, seq, err := rowParams(r)
	if err != nil {
		return err
	}
	detail, err := s.Store.RowWithin(r.Context(), campaign, seq, templates.InlineDocument)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, s.rowFrame(r, campaign, seq), pageOf(templates.RequeueRowPage, detail))
}

// formCommand reads an action's form and the page to show afterwards: the object's own page, unless
// the form was on another.
func (s *server) formCommand(r *http.Request, own, campaign templates.URL) (outbox.Command, templates.URL, error) {
	var form actionForm
	if err := fill(&form, r.PostForm); err != nil {
		return outbox.Command{}, "", err
	}
	to := own
	switch form.ReturnTo {
	case "overview":
		to = s.linksOf(r).Overview()
	case "campaign":
		to = campaign
	}
	seen := &expected{Status: form.Status, AttemptCount: form.AttemptCount, HeadSeq: form.HeadSeq}
	return s.command(r, "page", form.Reason, seen), to, nil
}
