package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/operator"
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
	addAction(s, operator.ActionAlertTest, onAlerts("receiver"), with[operator.ReasonRequest](s.Alerts.Test), endpoint{
		id: "testAlertReceiver", tag: tagAlerts,
		summary: "Send a test message to a receiver of alerts",
		answers: gives[alerts.AlertTestResult]("the outcome, also when it was not taken"),
	})
	addAction(s, operator.ActionAlertMute, onAlerts("rule"), func(ctx context.Context, o operator.Command, rule string, asked alerts.AlertMuteRequest) (alerts.AlertMute, error) {
		return s.Alerts.Mute(ctx, o, rule, asked.For)
	}, endpoint{
		id: "muteAlerts", tag: tagAlerts,
		summary: "Mute an alert rule, or all of them",
	})
	addAction(s, operator.ActionAlertUnmute, onAlerts("rule"), with[operator.ReasonRequest](s.Alerts.Unmute), endpoint{
		id: "unmuteAlerts", tag: tagAlerts,
		summary: "End a mute of an alert rule, or of all of them",
	})
}
