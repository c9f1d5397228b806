package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

func (s *server) rowsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := s.rowFilter(r)
	if err != nil {
		return err
	}
	if filter.Sort == "" && filter.Status == "" && filter.CampaignID == "" {
		filter.Sort = outbox.SortAttention
	}
	list, err := s.Store.Rows(r.Context(), filter)
	if err != nil {
		return err
	}
	p := s.page(r, templates.RowsTitle(filter), templates.RowsNav(filter))
	p.Self, p.Twin = s.linksOf(r).Rows(filter), s.linksOf(r).API().Rows(filter)
	view := templates.RowsView{Filter: filter, Page: list}
	if view.Offered, err = s.offered(r, "rows"); err != nil {
		return err
	}
	return s.renderActed(w, r, p, pageOf(templates.RowsPage, view), pageOf(templates.RowsLive, view))
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
	p := s.actingPage(r, templates.EventTitle(campaign, seq), "Events", detail.Row.Fingerprint)
	p.Around, p.Twin = s.around(r.Context()), s.linksOf(r).API().Row(campaign, seq)
	return s.render(w, r, http.StatusOK, p, pageOf(templates.RequeueRowPage, detail))
}
