package handlers

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// reject gives the site a source with a rejected row, of a payload with a secret.
func (s *site) reject() *site {
	for _, query := range []string{
		`insert into intake_sources (source, place, lease_owner, lease_epoch, lease_expires_at, waiting, journalled) values ('shop', 'postgres://shop', 'host-1', 1, 9000000000000000, 3, 7)`,
		`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', '12', 'c-1', 'e-1', 'order.paid', '{"payload":{"password":"` + leak + `","note":"` + htmlScript + `"}}', 2, 'payload is not JSON ` + htmlScript + `', 1)`,
	} {
		s.kit.Exec(query)
	}
	s.store.Changed()
	return s
}

func TestIntakePage_saysHowSourcesAreConfigured(t *testing.T) {
	s := ownSite(t)
	s.get("/intake").want(t, 200, "No source is configured", "sources:", `href="/docs/intake"`).lacks(t, "<table")
	s.get(apiPrefix+"/intake").want(t, 200, `"sources":[]`)
	s.get("/intake/none").want(t, 404, "There is no source", ", nor any other")
	s.reject()
	s.get("/intake/none").want(t, 404, "no source &#34;none&#34;; use shop")
	s.get(apiPrefix+"/intake/none/rejections").want(t, 404, `there is no source \"none\"; use shop`)
}

// A campaign of which all that the journal has is applied may still lack what a source holds back.
func TestCampaignPage_saysThatARejectedRowBlocksIt(t *testing.T) {
	s := ownSite(t).seed("c-1", "a").seed("c-2", "a").work()
	const note = `data-testid="rejected-here"`
	s.get("/campaigns/c-1").want(t, 200).lacks(t, note)
	s.reject()
	s.get("/campaigns/c-1").want(t, 200, note, "A row of source shop is rejected and blocks it", `href="/intake/shop"`)
	s.get("/campaigns/c-2").want(t, 200).lacks(t, note)
	for _, target := range []string{"/campaigns", apiPrefix + "/campaigns", apiPrefix + "/campaigns/c-1"} {
		s.fresh(target).want(t, 200, "A row of source shop is rejected and blocks it")
	}
	s.kit.Exec(`update intake_rejections set status = 'discarded'`)
	s.get("/campaigns/c-1").want(t, 200).lacks(t, note)
}

func TestOverview_namesSourcesInTrouble(t *testing.T) {
	s := ownSite(t)
	const rejected, unread = `data-testid="rejected_rows"`, `data-testid="source"`
	s.reject()
	s.get("/").want(t, 200).lacks(t, rejected, unread) // no process has read it lately
	now := s.store.Now()
	s.kit.Exec(`update intake_sources set looked_at = $1`, now)
	s.kit.Exec(`update intake_rejections set rejected_at = cast($1 as bigint) - 60000000`, now)
	s.fresh("/").want(t, 200, rejected, "First steps", "1 row of source shop is rejected and blocks its campaign", "1 min ago", `href="/intake/shop">Show rejected rows`).lacks(t, unread, leak)
	v := decodeAs[intakeList](t, s.get(apiPrefix+"/intake").want(t, 200))
	must.Hold(t, v.Sources[0].RejectedAt != nil && v.Sources[0].RejectedAt.Equal(s.clock.Add(-time.Minute)), "sources: %+v", v)
	s.kit.Exec(`update intake_sources set lease_expires_at = 0, error = 'connection refused: `+htmlScript+`', error_at = $1`, now)
	s.fresh("/").want(t, 200, rejected, unread, "Source shop cannot be read", "connection refused: &lt;script&gt;", `href="/intake/shop">Show source`).lacks(t, htmlScript)
	s.kit.Exec(`update intake_sources set error = '', error_at = null, looked_at = cast($1 as bigint) - 60000000`, now)
	s.fresh("/").want(t, 200, unread, "No server reads source shop")
	s.clock = s.clock.Add(time.Hour)
	s.fresh("/").want(t, 200).lacks(t, unread)
}

// A campaign whose first row is rejected is not in the journal, and found nevertheless.
func TestSearch_findsRejectedRows(t *testing.T) {
	s := ownSite(t).reject()
	const to = "/intake/shop#rejection-1"
	for _, id := range []string{"c-1", "e-1"} {
		s.get("/search?q="+id).want(t, 303).header(t, "Location", to)
		s.get("/search/suggestions?q="+id).want(t, 200, `data-href="`+to+`"`, ">rejection</span>", "rejected row 1 of source shop", "payload is not JSON &lt;script&gt;").lacks(t, htmlScript)
	}
	s.get("/campaigns/c-1").want(t, 404, "its first row in source shop is rejected")
	s.get("/campaigns/c-2").want(t, 404, "nothing has been appended to it")
	s.seed("c-1", "a")
	s.get("/search?q=c-1").want(t, 303).header(t, "Location", "/campaigns/c-1")
	s.get("/search?q=c-").want(t, 200).lacks(t, "rejected row 1")
	const token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	s.kit.Exec(`update intake_rejections set event_id = '` + token + `', campaign_id = 'c-3', reason = 'token ` + token + `'`)
	s.get("/search?q="+token).want(t, 200, `data-testid="nothing-found"`)
	s.get("/search/suggestions?q=c-3").want(t, 200, "rejected row 1").lacks(t, token)
	s.kit.Exec(`update intake_rejections set status = 'discarded'`)
	s.get("/search?q=c-3").want(t, 200, `data-testid="nothing-found"`)
}

// disown makes the source belong to another journal, since another time.
func (s *site) disown(owner string) {
	s.kit.Exec(`update intake_sources set owner = '` + owner + `', owned_since = owned_since + 1772366400000000, error = 'source shop belongs to journal j-old', error_at = 1772366400000000`)
	s.store.Changed()
}

func TestSourcePage_handsOverWhatBelongsToAnotherJournal(t *testing.T) {
	s := ownSite(t).reject()
	s.disown("j-old " + htmlScript)
	s.get("/intake/shop").want(t, 200, "It belongs to another journal; none of its rows is moved to this one.", "j-old &lt;script&gt;", "Belongs to journal", "outboxweb intake hand-over --reason &#39;why&#39; --confirm &#39;hand over shop&#39; shop<").lacks(t, htmlScript)
	v := decodeAs[intakeList](t, s.get(apiPrefix+"/intake").want(t, 200))
	must.Hold(t, v.Sources[0].OwnedSince != nil && !v.Sources[0].HandedOver, "sources: %+v", v)
	s.submitted("/intake/shop/hand-over", url.Values{"reason": {"a new cluster"}, "confirm": {"hand over shop"}}).want(t, 200, "Source shop is taken from journal j-old", "It was handed over to this journal; the server takes it at the next read.")
	s.get("/audit").want(t, 200, "intake_hand_over", `href="/intake/shop"`)
	s.disown("j-old") // since another time: another hand-over was faster
	s.post(apiPrefix+"/intake/shop/hand-over", `{"reason":"r","confirm":"hand over shop"}`).want(t, 200, `"source":"shop"`, `"from":"j-old`)
}

func TestIntakePage_showsWhatIsRejected(t *testing.T) {
	s := ownSite(t).reject()
	s.get("/intake").want(t, 200, "1 row is rejected and blocks its campaign.", `href="/intake/shop"`, "postgres://shop", "not in this server's configuration")
	s.get("/intake/shop").want(t, 200, "Payload is not JSON &lt;script&gt;", "order.paid", "discard shop 1", `data-testid="retry-1-button"`, ">Rejected row 1</", "<code>12</code>", ">Retry rejected row 1<", ">Discard rejected row 1<", "outboxweb intake retry --reason &#39;why&#39; shop 1<").lacks(t, leak, htmlScript)
	list := decodeAs[outbox.Page[outbox.IntakeRejection]](t, s.get(apiPrefix+"/intake/shop/rejections").want(t, 200).lacks(t, leak))
	must.Need(t, len(list.Items) == 1 && list.Items[0].RowKey == "12", "rejections: %+v", list)
	s.submitted("/intake/shop/rejections/1/discard", url.Values{"reason": {"a test order"}, "confirm": {"discard shop 1"}}).want(t, 200, "Rejected row 1 of source shop is deleted at the next read.", "discarding", "a test order")
}

// withAlerts gives the server a receiver, named chat in its configuration.
func withAlerts(t *testing.T, receiver string) func(*Config) {
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
	s.get(apiPrefix+"/alerts").want(t, 200, `"configured":false`, `"rules":[]`)
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
	s.post(apiPrefix+"/alerts/receivers/chat/test", "{}").want(t, 200, `"ok":false`, "403").lacks(t, leak)
	s.submitted("/alerts/rules/all/mute", url.Values{"for": {"8h"}, "reason": {"deploying"}}).want(t, 200, "Muted all alert rules until", "All rules are muted until", "deploying", `data-testid="unmute-all"`)
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
		s.kit.Exec(query, args...)
	}
	s.get("/alerts").want(t, 200, "2 alerts are firing.", "not found since", "Publisher t/p has failed &lt;script&gt;", "no server evaluates them now", "1 message waiting").lacks(t, leak, htmlScript)
}

const htmlScript = "<script>alert(1)</script>"
