package handlers

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// withAlerts gives the server a receiver, named chat in its configuration.
func withAlerts(t *testing.T, receiver string) func(*Config) {
	t.Helper()
	var document yaml.Node
	must.OK(t, yaml.Unmarshal([]byte("to: [chat]\nreceivers:\n  "+receiver+"\n"), &document))
	settings := must.Get(alerts.Parse(document.Content[0], os.LookupEnv)).Or(t)
	return func(c *Config) {
		c.Alerts = alerts.New(c.Store, alerts.Options{Settings: settings, Hide: redact.Builtin().Text})
	}
}

func TestAlertsPage_saysHowTheyAreConfigured(t *testing.T) {
	s := ownSite(t)
	s.get("/alerts").want(t, 200, "No alerts are configured.", "slack+https://hooks.slack.com/services/", `href="/docs/alerts"`, `aria-current="page">`).lacks(t, "<table")
	if v := decodeAs[outbox.AlertsView](t, s.get(apiPrefix+"/alerts").want(t, 200)); v.Configured || len(v.Rules) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestAlertsPage_showsWhatATestCameToAndMutes(t *testing.T) {
	t.Parallel()
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no: password="+leak, http.StatusForbidden)
	}))
	defer chat.Close()
	s := newSite(t, withAlerts(t, "chat: {url: 'slack+"+chat.URL+"/s3cret', allow_private: true}"))
	s.get("/alerts").want(t, 200, "No alert is firing.", "not used yet", "not been evaluated yet", "--public-origin").lacks(t, "s3cret")
	s.submitted("/alerts/receivers/chat/test", nil).want(t, 200, "Sent a test message to receiver chat: answered 403", "failing").lacks(t, leak)
	d := decodeAs[outbox.AlertTestResult](t, s.post(apiPrefix+"/alerts/receivers/chat/test", "{}").want(t, 200).lacks(t, leak))
	if d.OK || !strings.Contains(d.Error, "403") {
		t.Errorf("%+v", d)
	}
	s.submitted("/alerts/rules/all/mute", url.Values{"for": {"8h"}, "reason": {"deploying"}}).want(t, 200, "Muted all alert rules until", "All rules are muted until", "deploying", `data-testid="unmute-all"`)
	s.submitted("/alerts/rules/all/unmute", nil).want(t, 200, "Unmuted all alert rules.").lacks(t, `data-testid="unmute-all"`)
	s.get("/audit").want(t, 200, "alert_mute", "alert all")
}

func TestAlertsPage_showsWhatFires(t *testing.T) {
	s := ownSite(t, withAlerts(t, "chat: {url: 'slack+http://127.0.0.1:9/x', allow_private: true}"))
	at := s.clock.Add(-time.Minute).Format(time.RFC3339)
	for query, args := range map[string][]any{
		`insert into alert_states (rule, cause, state) values ('publisher', 't/p', $1)`: {`{"rule":"publisher","cause":{"key":"t/p","sentence":"Publisher t/p has failed ` + htmlScript + `","error":"password=` + leak + `"},"status":"firing","since":"` + at + `","sent_at":"` + at + `"}`},
		`insert into alert_states (rule, cause, state) values ('instance', 'w', $1)`:    {`{"rule":"instance","cause":{"key":"w","sentence":"Instance w is silent"},"status":"firing","since":"` + at + `","ended_at":"` + at + `"}`},
		`insert into alert_states (rule, cause, state) values ('drift', '', $1)`:        {`{"rule":"drift","cause":{"sentence":"gone"},"status":"ok","since":"` + at + `","ended_at":"` + at + `"}`},
		`update alert_evaluator set evaluated_at = $1`:                                  {s.clock.Add(-10 * time.Minute).UnixMicro()},
		`insert into alert_messages (receiver, rule, cause, body, created_at, due_at, held, status, last_error)
values ('chat', 'publisher', 't/p', '{"kind":"firing","title":"Held"}', 1, $1, 0, 'waiting', '')`: {s.clock.UnixMicro()},
	} {
		s.change(query, args...)
	}
	s.get("/alerts").want(t, 200, "2 alerts are firing.", "not found since", "Publisher t/p has failed &lt;script&gt;", "no server evaluates them now", "1 message waiting").lacks(t, leak, htmlScript)
}

const htmlScript = "<script>alert(1)</script>"
