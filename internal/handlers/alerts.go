package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

func (s *server) alertsPage(w http.ResponseWriter, r *http.Request) error {
	view, err := s.Alerts.View(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Alerts", "Alerts")
	p.Self, p.Twin = s.linksOf(r).Alerts(), s.linksOf(r).API().Alerts()
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.renderLive(w, r, p, pageOf(templates.AlertsPage, view), pageOf(templates.AlertsLive, view))
}

// alertMuteBody is the body of a mute.
type alertMuteBody struct {
	For    string `json:"for" validate:"oneof=1h 8h 24h" api:"required"`
	Reason string `json:"reason" validate:"reason"`
}

// alertBody is the body of the other actions on alerts.
type alertBody struct {
	Reason string `json:"reason" validate:"reason"`
}

func (b alertMuteBody) why() (reason, confirm string) { return b.Reason, "" }
func (b alertBody) why() (reason, confirm string)     { return b.Reason, "" }

// alertMute is a rule, or all rules, and how long they are muted.
type alertMute struct{ rule, span string }

func alertPages[K any](l templates.Links, _ K) templates.URL { return l.Alerts() }

func pathParam(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) { return param(r, name) }
}

// readAlertAction reads actions on the rule or receiver that an address names.
func (s *server) readAlertAction(name string) actionReader[string] {
	return readSameForm(s, pathParam(name), func(on string, _ alertBody) string { return on }, alertPages[string])
}

func (s *server) readAlertMute() actionReader[alertMute] {
	return readSameForm(s, func(r *http.Request) (m alertMute, err error) {
		m.rule, err = param(r, "rule")
		return m, err
	}, func(m alertMute, b alertMuteBody) alertMute {
		m.span = b.For
		return m
	}, alertPages[alertMute])
}

func (s *server) routeAlertsAPI() {
	s.apiGet("/alerts", serveJSON(s, func(r *http.Request) (outbox.AlertsView, error) { return s.Alerts.View(r.Context()) }), endpoint{
		id: "getAlerts", tag: tagAlerts,
		summary: "Alert rules with their state, receivers, mutes and the last messages",
		details: "Rules and receivers are those of this server's configuration.",
		answers: gives[outbox.AlertsView]("the state of alerts"),
	})
	addAction(s, outbox.ActionAlertTest, s.readAlertAction("receiver"), s.Alerts.Test, endpoint{
		id: "testAlertReceiver", tag: tagAlerts,
		summary: "Send a test message to a receiver of alerts",
		body:    mayTake[alertBody](),
		answers: gives[outbox.AlertTestResult]("the outcome, also when it was not taken"),
	})
	addAction(s, outbox.ActionAlertMute, s.readAlertMute(), func(ctx context.Context, o outbox.Command, m alertMute) (outbox.AlertMute, error) {
		return s.Alerts.Mute(ctx, o, m.rule, m.span)
	}, endpoint{
		id: "muteAlerts", tag: tagAlerts,
		summary: "Mute an alert rule, or all of them",
		body:    takes[alertMuteBody](),
	})
	addAction(s, outbox.ActionAlertUnmute, s.readAlertAction("rule"), s.Alerts.Unmute, endpoint{
		id: "unmuteAlerts", tag: tagAlerts,
		summary: "End a mute of an alert rule, or of all of them",
		body:    mayTake[alertBody](),
	})
}
