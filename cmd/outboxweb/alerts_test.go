package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// The list has a line for each cause that is not over.
func TestAlertsList_hasALineForEachCause(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 21, 18, 57, 0, 0, time.UTC)
	v := outbox.AlertsView{Configured: true, Rules: []outbox.AlertRuleState{{AlertRule: outbox.AlertRule{Name: "publisher"}, Alerts: []outbox.Alert{
		{Cause: outbox.AlertCause{Sentence: "Publisher a/b has failed"}, Status: outbox.AlertFiring},
		{Cause: outbox.AlertCause{Sentence: "Publisher e/f has failed"}, Status: outbox.AlertFiring, EndedAt: &until},
		{Cause: outbox.AlertCause{Sentence: "gone for good"}, Status: outbox.AlertOK},
		{Cause: outbox.AlertCause{Sentence: "Publisher c/d has failed"}, Status: outbox.AlertPending},
	}}, {AlertRule: outbox.AlertRule{Name: "drift"}}}}
	var out bytes.Buffer
	must.OK(t, (&app{streams: streams{out: &out}}).printAlerts(v))
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"never been evaluated", "RULE", "Publisher a/b has failed", "firing, not found since " + stamp(until), "Publisher c/d has failed", "drift"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %q in\n%s", i, want, out.String())
		}
	}
	if strings.Contains(out.String(), "gone for good") {
		t.Errorf("lists what is over:\n%s", out.String())
	}
}

// States without an age read as if a server were watching.
func TestAlertsList_saysHowOldItsStatesAre(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, at := range map[string]*time.Time{
		"the rules have never been evaluated: no server has run with them": nil,
		"last evaluated 9 s ago": new(now.Add(-9 * time.Second)),
		"last evaluated 40 s ago: no server evaluates the rules now, and the states below are of then": new(now.Add(-40 * time.Second)),
	} {
		if got := lastEvaluated(at, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
