package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func (s *server) rowsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := s.rowFilter(r)
	if err != nil {
		return err
	}
	if filter.Sort == "" && filter.Status == "" && filter.CampaignID == "" {
		filter.Sort = campaign.SortAttention
	}
	p := s.page(r, ui.RowsTitle(filter), ui.RowsNav(filter))
	p.Self, p.Twin = s.linksOf(r).Rows(filter), s.linksOf(r).API().Rows(filter)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	rows := list[campaign.RowFilter, campaign.Row]{"rows", s.Queue.Rows, campaigns.RowsPage, campaigns.RowsLive}
	return rows.show(s, w, r, p, filter)
}

func (s *server) requeueRowPage(w http.ResponseWriter, r *http.Request) error {
	row, err := rowParam(r)
	if err != nil {
		return err
	}
	detail, err := s.Queue.RowWithin(r.Context(), row.CampaignID, row.Seq, campaigns.InlineDocument)
	if err != nil {
		return err
	}
	p := s.actingPage(r, campaigns.EventTitle(row.CampaignID, row.Seq), "Events", detail.Row.Fingerprint)
	p.Around, p.Twin = s.around(r.Context()), s.linksOf(r).API().Row(row.CampaignID, row.Seq)
	return s.render(w, r, http.StatusOK, p, pageOf(campaigns.RequeueRowPage, detail))
}
