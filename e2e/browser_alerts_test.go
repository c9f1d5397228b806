package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// alertsConfig has two receivers of alerts: one is well, and one is down if the partner's path /away
// is.
func alertsConfig(p *partner) string {
	return fmt.Sprintf(`
alerts:
  to: [chat, pager]
  receivers:
    chat: {url: "slack+%[1]s/chat", allow_private: true}
    pager: {url: %[2]q, allow_private: true}
  rules:
    dead_rows: {for: 0}
`, p.url, p.url+"/away")
}

// An operator tries the receivers and mutes a rule.
func TestBrowser_alertsAreTestedAndMuted(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			p := newPartner(t, func(path, _ string) int { return map[string]int{"/away": 503}[path] })
			d := newDatabases(t)
			s := start(t, d, d.config(t, alertsConfig(p))...)
			b := kind.open(t, s)
			b.open("/alerts")
			b.await("rules and receivers are listed", telling("#live", "dead_rows")+" && "+telling(`[data-testid="receiver-chat"]`, "not used yet"))
			b.sound("the alerts")
			b.click(marked("test-chat"))
			b.await("the test was taken", telling(`[data-testid="flash"]`, "Sent a test message to receiver chat: taken in"))
			b.click(marked("test-pager"))
			b.await("the test was not taken", telling(`[data-testid="flash"]`, "Sent a test message to receiver pager: answered 503"))
			b.await("the receiver is failing", telling(`[data-testid="receiver-pager"]`, "failing")+" && "+telling("#live", "Test message, sent by"))
			if took := p.took(); strings.Contains(took, "/away") {
				t.Errorf("the partner took %q", took)
			}
			b.sound("the alerts with a receiver that is down")
			b.click(marked("mute-open"))
			b.typeInto("#reason-drift", "a rebuild is running")
			b.click(marked("mute-drift-button"))
			b.await("the mute is done", telling(`[data-testid="flash"]`, "Muted rule drift until"))
			b.await("the rule is muted", telling(`[data-testid="alert-drift"]`, "muted")+" && "+telling("#live", "a rebuild is running"))
			b.size(viewport{360, 800})
			b.sound("the muted alerts in a small window")
			b.click(marked("unmute-drift"))
			b.await("the rule is heard again", telling(`[data-testid="flash"]`, "Unmuted rule drift."))
		})
	}
}
