package templates

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
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

var alertLooks = map[outbox.AlertStatus]look{
	outbox.AlertOK:      {"✓", "s-current"},
	outbox.AlertPending: {"○", "s-failed"},
	outbox.AlertFiring:  {"✕", "s-dead"},
}

var deliveryLooks = map[string]look{
	"waiting":    {"○", "s-pending"},
	"sent":       {"✓", "s-current"},
	"failed":     {"✕", "s-dead"},
	"superseded": {"⊘", "s-paused"},
}

// deliveryWord is the status of a message.
func deliveryWord(d outbox.AlertDelivery) string {
	switch {
	case d.Status == "waiting" && d.LastError != "":
		return "retrying"
	case d.Status == "superseded":
		return "replaced"
	}
	return d.Status
}

// alertsHealth says in a sentence how things are.
func alertsHealth(v outbox.AlertsView, now time.Time) outbox.Health {
	h := outbox.Health{Level: outbox.LevelOK}
	var firing, pending, failing int64
	for _, r := range v.Rules {
		for _, a := range r.Alerts {
			switch a.Status {
			case outbox.AlertFiring:
				firing++
			case outbox.AlertPending:
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
		h.Level, h.Sentence = outbox.LevelBad, count(firing, "alert is", "alerts are")+" firing."
	case pending > 0:
		h.Level, h.Sentence = outbox.LevelWarn, "No alert is firing, "+num(pending)+" pending."
	default:
		h.Sentence = "No alert is firing."
	}
	if failing > 0 {
		if h.Level == outbox.LevelOK {
			h.Level = outbox.LevelWarn
		}
		h.Notes = append(h.Notes, count(failing, "receiver is failing: messages to it are", "receivers are failing: messages to them are")+" retried.")
	}
	switch {
	case v.EvaluatedAt == nil:
		h.Notes = append(h.Notes, "The rules have not been evaluated yet.")
	case now.Sub(*v.EvaluatedAt) > 2*time.Minute:
		if h.Level == outbox.LevelOK {
			h.Level = outbox.LevelWarn
		}
		h.Notes = append(h.Notes, "The rules were last evaluated "+outbox.Age(now.Sub(*v.EvaluatedAt))+" ago: no server evaluates them now.")
	}
	for _, m := range v.Mutes {
		what := "All rules are"
		if m.Rule != "" {
			what = "Rule " + m.Rule + " is"
		}
		note := what + " muted until " + stampTime(m.Until) + " by " + m.By
		if m.Reason != "" {
			note += ": " + m.Reason
		}
		h.Notes = append(h.Notes, note)
	}
	return h
}

func stampTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func mutedBy(v outbox.AlertsView, rule string) bool {
	return slices.ContainsFunc(v.Mutes, func(m outbox.AlertMute) bool { return m.Rule == rule })
}

// alertForms are the ids of the page's forms.
func alertForms(v outbox.AlertsView) []string {
	forms := []string{muteFormID(outbox.AllAlerts)}
	for _, r := range v.Rules {
		forms = append(forms, muteFormID(r.Name))
	}
	for _, r := range v.Receivers {
		forms = append(forms, testFormID(r.Name))
	}
	return forms
}

func muteFormID(rule string) string { return "mute-" + rule }

func testFormID(receiver string) string { return "test-" + receiver }

func muteSpanWords(span string) string {
	d, _ := time.ParseDuration(span) // one of outbox.AlertMuteSpans
	return count(int64(d.Hours()), "hour", "hours")
}

func alertTwins(p Page) Twins {
	return p.asks(outbox.ActionAlertMute, outbox.AlertMuteRequest{For: "1h", ReasonRequest: anyReason}, outbox.AllAlerts)
}

func alertActionSentence(a outbox.AuditEntry) string {
	var d struct {
		Rule     string    `json:"rule"`
		Receiver string    `json:"receiver"`
		Until    time.Time `json:"until"`
		outbox.TestDelivery
	}
	_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	what := "rule " + d.Rule
	if d.Rule == outbox.AllAlerts {
		what = "all alert rules"
	}
	switch {
	case a.Action == outbox.ActionAlertMute:
		return "Muted " + what + " until " + stampTime(d.Until) + "."
	case a.Action == outbox.ActionAlertUnmute:
		return "Unmuted " + what + "."
	case d.OK:
		return "Sent a test message to receiver " + d.Receiver + ": taken in " + tookText(d.Seconds) + "."
	}
	return "Sent a test message to receiver " + d.Receiver + ": " + Visible(firstLine(d.Error))
}
