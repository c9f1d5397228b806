package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/web/templates/system"
)

func (s *server) alertsPage(w http.ResponseWriter, r *http.Request) error {
	view, err := s.Alerts.View(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Alerts", "Alerts")
	p.Self, p.Twin = s.linksOf(r).Alerts(), s.linksOf(r).API().Alerts()
	return s.renderActed(w, r, p, pageOf(system.AlertsPage, view), pageOf(system.AlertsLive, view))
}

func (s *server) routeAlertsAPI() {
	s.apiGet("/alerts", serveJSON(s, func(r *http.Request) (alerts.AlertsView, error) { return s.Alerts.View(r.Context()) }), endpoint{
		id: "getAlerts", tag: tagAlerts,
		summary: "Alert rules with their state, receivers, mutes and the last messages",
		details: "Rules and receivers are those of this server's configuration.",
		answers: gives[alerts.AlertsView]("the state of alerts"),
	})
	s.apiGet("/tonight", serveJSON(s, func(r *http.Request) (campaign.Tonight, error) {
		facts, err := s.Facts.Read(r.Context())
		if err != nil {
			return campaign.Tonight{}, err
		}
		return s.Alerts.Tonight(r.Context(), facts.Summary)
	}), endpoint{
		id: "getTonight", tag: tagAlerts,
		summary: "Whether the system may be left alone",
		details: "Judged by what is wrong, what becomes of the backlog at the pace of the last seconds, and who is told of what this server's rules find.",
		answers: gives[campaign.Tonight]("whether, and why"),
	})
}
