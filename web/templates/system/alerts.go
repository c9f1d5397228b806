package system

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// exampleAlerts is a configuration of alerts to copy.
const exampleAlerts = `alerts:
  to: ["slack+https://hooks.slack.com/services/${SLACK_HOOK}"]
`

// embeddedAlerts is the same for Config.Alerts, which is the value of the key.
func embeddedAlerts() string {
	_, value, _ := strings.Cut(exampleAlerts, "\n")
	return strings.NewReplacer("\n  ", "\n", "${SLACK_HOOK}", "…").Replace(strings.TrimPrefix(value, "  "))
}

var alertLooks = map[alerts.AlertStatus]ui.Look{
	alerts.AlertOK:      {Glyph: "✓", Hue: "s-current"},
	alerts.AlertPending: {Glyph: "○", Hue: "s-failed"},
	alerts.AlertFiring:  {Glyph: "✕", Hue: "s-dead"},
}

var deliveryLooks = map[string]ui.Look{
	"waiting":    {Glyph: "○", Hue: "s-pending"},
	"sent":       {Glyph: "✓", Hue: "s-current"},
	"failed":     {Glyph: "✕", Hue: "s-dead"},
	"superseded": {Glyph: "⊘", Hue: "s-paused"},
}

// deliveryWord is the status of a message.
func deliveryWord(d alerts.AlertDelivery) string {
	switch {
	case d.Status == "waiting" && d.LastError != "":
		return "retrying"
	case d.Status == "superseded":
		return "replaced"
	}
	return d.Status
}

// alertsHealth says in a sentence how things are.
func alertsHealth(v alerts.AlertsView, now time.Time) finding.Health {
	h := finding.Health{Level: finding.OK}
	var firing, pending, failing int64
	for _, r := range v.Rules {
		for _, a := range r.Alerts {
			switch a.Status {
			case alerts.AlertFiring:
				firing++
			case alerts.AlertPending:
				pending++
			}
		}
	}
	for _, r := range v.Receivers {
		if r.Failures > 0 {
			failing++
		}
	}
	switch {
	case firing > 0:
		h.Level, h.Sentence = finding.Bad, ui.Count(firing, "alert is", "alerts are")+" firing."
	case pending > 0:
		h.Level, h.Sentence = finding.Warn, "No alert is firing, "+ui.Num(pending)+" pending."
	default:
		h.Sentence = "No alert is firing."
	}
	if failing > 0 {
		if h.Level == finding.OK {
			h.Level = finding.Warn
		}
		h.Notes = append(h.Notes, ui.Count(failing, "receiver is failing: messages to it are", "receivers are failing: messages to them are")+" retried.")
	}
	switch {
	case v.EvaluatedAt == nil:
		h.Notes = append(h.Notes, "The rules have not been evaluated yet.")
	case now.Sub(*v.EvaluatedAt) > 2*time.Minute:
		if h.Level == finding.OK {
			h.Level = finding.Warn
		}
		h.Notes = append(h.Notes, "The rules were last evaluated "+event.Age(now.Sub(*v.EvaluatedAt))+" ago: no server evaluates them now.")
	}
	for _, m := range v.Mutes {
		what := "All rules are"
		if m.Rule != "" {
			what = "Rule " + m.Rule + " is"
		}
		note := what + " muted until " + ui.StampTime(m.Until) + " by " + m.By
		if m.Reason != "" {
			note += ": " + m.Reason
		}
		h.Notes = append(h.Notes, note)
	}
	return h
}

// mutedBy reports whether a rule is muted, or all of them at once.
func mutedBy(v alerts.AlertsView, rule string) bool {
	return slices.ContainsFunc(v.Mutes, func(m alerts.AlertMute) bool { return cmp.Or(m.Rule, alerts.AllAlerts) == rule })
}

func ofAll(rule string) string {
	if rule == alerts.AllAlerts {
		return " all"
	}
	return ""
}

// alertForms are the ids of the page's forms.
func alertForms(v alerts.AlertsView) []string {
	forms := []string{muteFormID}
	for _, r := range v.Receivers {
		forms = append(forms, testFormID(r.Name))
	}
	return forms
}

const muteFormID = "mute-form"

func testFormID(receiver string) string { return "test-" + receiver }

func alertTwins(p ui.Page) ui.Twins {
	return p.Asks(operator.ActionAlertMute, alerts.AlertMuteRequest{For: "1h", ReasonRequest: ui.AnyReason}, alerts.AllAlerts)
}
