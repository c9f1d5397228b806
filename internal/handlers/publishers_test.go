package handlers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

const (
	archivePage = "/publishers/scenes/archive"
	seekPath    = archivePage + "/seek"
)

// hostile is a text that must be shown unchanged and have no effect.
const hostile = `</code><script>alert("x")</script>` + "\u202e\n"

func TestPages_ofWhatIsNotConfiguredSayHowItIs(t *testing.T) {
	s := ownSite(t)
	s.get("/publishers").want(t, 200, "No publishers configured", "topics:\n", "event_types", `href="/docs/operating#a-publisher-does-not-deliver"`, `aria-current="page">Publishers</a>`)
	s.get(apiPrefix+"/publishers").want(t, 200, `"items":[]`, `"next_cursor":null`)
	s.get("/").want(t, 200, `href="/publishers"`).lacks(t, `data-testid="publisher"`)
	for _, page := range []string{archivePage, seekPath + "?to=head"} {
		s.get(page).want(t, 404, "no publisher scenes/archive")
	}
	s.get("/intake").want(t, 200, "No source is configured", "sources:", `href="/docs/intake"`).lacks(t, "<table")
	s.get(apiPrefix+"/intake").want(t, 200, `"sources":[]`)
	s.get("/intake/none").want(t, 404, "There is no source", ", nor any other")
	s.get("/alerts").want(t, 200, "No alerts are configured.", "slack+https://hooks.slack.com/services/", `href="/docs/alerts"`, `aria-current="page">`).lacks(t, "<table")
	s.get(apiPrefix+"/alerts").want(t, 200, `"configured":false`, `"rules":[]`)
}

func TestPublisherPages_tellOfTrouble(t *testing.T) {
	s := ownSite(t).seed("c-1", "scene.a", "x", "scene.b", "scene.c").withPublisher(1).publisherFails(3, "event")
	s.get(apiPrefix+"/publishers").want(t, 200, `"topic":"scenes"`, `"lag_events":2`, `"head_position":4`, `"total":1`)
	s.get(apiPrefix+"/publishers?cursor=x").want(t, 422, "cursor")
	p := decodeAs[subscription.Publisher](t, s.get(archivePath).want(t, 200, `"event_types":["scene.*"]`))
	must.Hold(t, p.ErrorEvent != nil && p.ErrorEvent.Seq == 3 && p.Lease != nil && p.Lease.Owner == "w", "publisher %+v", p)
	s.get(apiPrefix+"/instances").want(t, 200, `"publishers":["scenes/archive"]`)
	s.kit.Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, lease_owner, lease_expires_at)
values ('a', 'well', $1, '{"event_types":["*"]}', 10, 4, 1, 1, 'w', 4102444800000000),
  ('b', 'left', 'log:', '{"event_types":["*"]}', 10, 0, 1, 1, '', 0)`, hostile)
	s.kit.Exec(`update publisher_progress set last_error = $1, selects = '{"exact_tags":{"a":"</script>"},"any_of_tags":["b"]}' where publisher = 'archive'`, hostile+"second line")
	list := s.fresh("/publishers").want(t, 200, "2 publishers need attention.", `href="/docs/operating#a-publisher-does-not-deliver"`,
		`href="/publishers/scenes/archive"`, `href="/instances#instance-w"`, "&lt;script&gt;", `\u202e`, "10 errors in a row").lacks(t, "<script>alert", "\u202e")
	order := []int{}
	for _, name := range []string{"scenes/archive", "b/left", "a/well"} {
		order = append(order, strings.Index(list.body, `id="publisher-`+name))
	}
	must.Hold(t, order[0] >= 0 && order[0] <= order[1] && order[1] <= order[2], "those in trouble do not come first: %v", order)
	s.get("/").want(t, 200, `data-testid="publisher"`, "2 publishers need attention.", `href="/publishers/scenes/archive"`, `href="/publishers/b/left"`).lacks(t, `href="/publishers/a/well"`)
	s.get(archivePage).want(t, 200, "Failed after 10 errors in a row; retrying now.", "The destination rejects this event", `href="/campaigns/c-1/events/3"`,
		"second line", "Events that match all of:", "a = &lt;/script&gt;", "Has any of the tags", "epoch 3", "nothing yet", `data-testid="publisher-skip"`).lacks(t, "<script>alert", "\u202e")
	s.get("/publishers/a/well?span=day").want(t, 200, "Up to date", "Every event of the journal.", "last 24 h", `data-testid="publisher-pause"`).
		lacks(t, `data-testid="publisher-resume"`, `data-testid="publisher-reset"`, `data-testid="publisher-skip"`, `id="error"`, "/operating#")
	s.get("/publishers/a/well?span=year").want(t, 422)
	s.get("/instances").want(t, 200, `href="/publishers/scenes/archive"`)
}

// What a publisher delivered is a list of events like any other, up to where it is; the list of one campaign too.
func TestEvents_areThoseThatAPublisherDelivered(t *testing.T) {
	s := ownSite(t).seed("c-1", "scene.a", "x", "scene.b", "scene.c").withPublisher(3)
	s.kit.Exec(`update publisher_progress set delivered_position = 3`)
	const list = "/events?publisher=scenes%2Farchive"
	s.get(archivePage).want(t, 200, `href="`+list+`"`)
	s.get(list).want(t, 200, `href="/campaigns/c-1/events/1"`, `href="/campaigns/c-1/events/3"`, `hx-get="`+list).lacks(t, `href="/campaigns/c-1/events/2"`, `href="/campaigns/c-1/events/4"`)
	for _, more := range []string{"", "&campaign=c-1"} {
		found := decodeAs[search.FoundEvents](t, s.get(apiPrefix+list+more).want(t, 200)).Items
		must.Need(t, len(found) == 2, "%s: found %+v", more, found)
		must.Hold(t, found[0].Seq == 3 && found[1].Seq == 1, "%s: found %+v", more, found)
	}
	s.kit.Exec(`update publisher_progress set position = 4, delivered_position = 1`) // what follows it was not of its topic
	found := decodeAs[search.FoundEvents](t, s.get(apiPrefix+list).want(t, 200))
	must.Hold(t, len(found.Items) == 1 && found.Looked.First == 1, "found %+v", found)
	s.get(apiPrefix+"/events?publisher=scenes%2Fother").want(t, 422, "no publisher scenes/other")
	s.get(apiPrefix+list+"&settled=true").want(t, 422, "by text, time or publisher")
	s.get("/events?publisher=archive").want(t, 422, "write TOPIC/PUBLISHER")
}

// The next event wakes a publisher; after an error nothing but the next attempt does. What it said of its health is as old as it is, and a call
// that does not return is another matter. A Go function may not say what is at fault, and the page does not claim to know.
func TestPublisherPages_sayHowItStands(t *testing.T) {
	s := ownSite(t).seed("c-1", "scene.a", "scene.b", "scene.c").withPublisher(1)
	set := func(columns string, args ...any) {
		s.kit.Exec(`update publisher_progress set `+columns, args...)
		s.store.Changed()
	}
	at := func(after time.Duration) int64 { return s.clock.Add(after).UnixMicro() }
	set(`lease_owner = 'w-1', lease_epoch = 3, lease_expires_at = 4102444800000000`)
	must.OK(t, s.store.Heartbeat(t.Context(), storetest.Killed(t, "w-1", time.Now())))
	const why = "Its process w-1 crashed or was killed: last seen"
	for _, path := range []string{"/publishers", archivePage} {
		s.get(path).want(t, 200, "not held", why, `<span class="sub">crashed or killed</span>`)
		s.get(apiPrefix+path).want(t, 200, `"status":"active"`, `"state":"not held","why":"`+why)
	}
	set(`lease_owner = 'w', next_poll_at = $1`, at(4*time.Minute))
	s.get(archivePage).want(t, 200, "<dt>Next poll</dt>", "with the next event", "at the latest", "in 4 min")
	s.get("/publishers").want(t, 200, "polls with the next event, at the latest", "in 4 min")
	set(`error_count = 1, error_kind = 'destination', last_error = 'down', error_position = 2, next_poll_at = null, retry_at = $1`, at(4*time.Minute))
	s.get(archivePage).want(t, 200, "<dt>Next attempt</dt>", "in 4 min").lacks(t, "with the next event")
	s.get("/publishers").want(t, 200, "next attempt", "in 4 min").lacks(t, "with the next event")

	set(`healthy = 1, health_at = $1, hanging_since = $2`, at(-3*time.Minute), at(-19*time.Second))
	s.get(archivePage).want(t, 200, "<dt>Healthy</dt>", "it said so", "3 min ago", "<dt>Call</dt>", "has not returned", "19 s ago")
	s.get(archivePath).want(t, 200, `"health_at":"`, `"hanging_since":"`)
	s.publisherFails(2, "unknown")
	s.get(archivePage).want(t, 200, "A call does not return. Any event of its batch may be at fault").lacks(t, "whether this event")

	set(`destination = 'go:', healthy = null, health_at = null, hanging_since = null`)
	for kind, says := range map[string][]string{
		"unknown": {"It is not known whether this event or its destination is at fault: send a test event to find out.", "does not say that this event is at fault", "type <strong>skip anyway</strong>"},
		"event":   {"The function fails at this event."}, "destination": {"The function says that it is not healthy."},
	} {
		s.publisherFails(2, kind)
		page := s.get(archivePage).want(t, 200, append(says, `data-testid="publisher-skip"`)...).lacks(t, "no event is at fault")
		must.Equal(t, strings.Contains(page.body, "skip anyway"), kind != "event", kind, "is skipped anyway")
	}
	for to, says := range map[string]string{"go:": "a function of this service", "go:*mail.Publisher": "*mail.Publisher"} {
		set(`destination = $1`, to)
		s.get(archivePage).want(t, 200, says).lacks(t, "go:")
		s.get("/publishers").want(t, 200, "to <bdi>"+says+"</bdi>")
	}
	s.publisherFails(2, "unknown")
	s.submit(archivePage+"/skip", "position=2&reason=x").want(t, 422, "does not say that the event is at fault")
}

func TestPublisherPages_showWhatATestCameTo(t *testing.T) {
	sent := 0
	s := ownSite(t, func(c *Config) {
		c.TestPublisher = func(_ context.Context, name operator.SubscriptionName) (subscription.TestDelivery, error) {
			sent++
			return subscription.TestDelivery{SubscriptionName: name, Error: hostile + "connection refused"}, nil
		}
	}).withPublisher(0)
	s.lands(s.submit(archivePage+"/test", "idempotency_key=k")).want(t, 200, "flash warn", `data-testid="test-error"`, "connection refused").lacks(t, "<script>alert", "\u202e")
	s.post(archivePath+"/test", "", header("Idempotency-Key", "k")).want(t, 200, `"ok":false`, "connection refused")
	must.Equal(t, sent, 1, "deliveries were sent for one key")
	without := newSite(t).withPublisher(0)
	without.get(archivePage).want(t, 200, "send the test from a server that has it").lacks(t, `data-testid="publisher-test"`)
	without.submit(archivePage+"/test", "").want(t, 409, "Publisher scenes/archive is not in this server&#39;s configuration")
}

func TestSeek_saysWhatItDoesAndAsks(t *testing.T) {
	s := ownSite(t).seed("c-1", "scene.a", "x", "scene.b", "scene.c").withPublisher(1)
	s.get(seekPath).want(t, 200, "New position", "Position, 0 to 4").lacks(t, `data-testid="seek-preview"`, "checked")
	s.get(seekPath+"?to=beginning").want(t, 200, "moves back from 1 to 0", "1 event of its topic is delivered again", `data-testid="seek">Seek back<`, "--to=beginning", `value="beginning" checked`).
		lacks(t, `data-testid="seek-phrase"`, "(required)")
	s.get(seekPath+"?to=position&position=3").want(t, 200, "1 event of its topic is skipped", "skip 1 events", "Seek and skip 1 event<", "--position=3", "(required)")
	s.get(seekPath+"?to=position&position=1").want(t, 200, "The publisher is already at position 1").lacks(t, `data-testid="seek"`)
	s.get(seekPath+"?to=position&position=2").want(t, 200, "No event of its topic is skipped", "Seek forward").lacks(t, `data-testid="seek-phrase"`)
	s.get(seekPath+"?to=time&time=2026-11-21T07:00:00Z").want(t, 200, "moves back from 1 to 0", "--time=2026-11-21T07:00:00Z")
	for query, field := range map[string]string{
		"to=position&position=9": "position", "to=position&position=ten": "position", "to=position": "position", "to=time&time=gestern": "time", "to=time": "time",
	} {
		s.get(seekPath+"?"+query, byForm).want(t, 200, `data-fields="`+field+`"`)
	}
	s.get(seekPath+"?to=end").want(t, 422, "head, beginning, position or time")

	for body, want := range map[string]string{
		`{}`: "0 are given", `{"position":1,"to":"head"}`: "2 are given", `{"to":"end"}`: "head or beginning", `{"position":-1}`: "must be 0 or more", `{"to":"head","dry_run":1}`: "dry_run",
	} {
		s.post(archivePath+"/seek", body).want(t, 422, want)
	}
	s.post(archivePath+"/seek", `{"to":"head","dry_run":true}`).want(t, 200, `"from":1`, `"to":4`, `"skips":2`)
	s.post(archivePath+"/seek", `{"time":"2026-11-20"}`).want(t, 200, `"to":0`, `"repeats":1`)
	s.get(archivePath+"/history").want(t, 200, `"lag_events":3`, `"span":"hour"`)
	must.OK(t, s.kit.Sample(context.Background()))
	h := decodeAs[publishing.PublisherHistory](t, s.get(archivePath+"/history?span=hour").want(t, 200))
	n := len(h.Points)
	must.Hold(t, n != 0 && h.Points[n-1].LagEvents == 3 && h.StepSeconds == 60, "history %+v", h)
	s.get(archivePath+"/history?span=week").want(t, 422)
}

const archivePath = "/api/v1/publishers/scenes/archive"

func (s *site) withPublisher(position int64) *site {
	s.kit.Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
values ('scenes', 'archive', 'file:///a.ndjson', '{"event_types":["scene.*"]}', 10, $1, 1, 1)`, position)
	return s
}

// publisherFails makes the event at a position block the publisher.
func (s *site) publisherFails(position int64, kind string) *site {
	s.kit.Exec(`
update publisher_progress
set status = 'failed', error_count = 10, error_kind = $1, last_error = 'status <500>', last_error_at = 1, error_position = $2, retry_at = 2,
  lease_owner = 'w', lease_epoch = 3, lease_expires_at = 4102444800000000`, kind, position)
	return s
}

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

// A campaign of which all that the journal has is applied may still lack what a source holds back.
func TestCampaignPage_saysThatARejectedRowBlocksIt(t *testing.T) {
	s := ownSite(t).seed("c-1", "a").seed("c-2", "a").work()
	const note = `data-testid="rejected-here"`
	s.get("/campaigns/c-1").want(t, 200).lacks(t, note)
	s.reject()
	s.fresh("/campaigns").want(t, 200, `id="campaign-c-1">`, `id="campaign-c-2" class="well">`) // which hides on a phone why it waits
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
	s.get("/campaigns/c-1").want(t, 404, "its first row in source shop is rejected", `href="/intake/shop" data-testid="source-in-the-way"`)
	s.get("/api/v1/campaigns/c-1").want(t, 404, "its first row in source shop is rejected")
	s.get("/campaigns/c-2").want(t, 404, "nothing has been appended to it")
	s.seed("c-1", "a").get("/search?q=c-1").want(t, 303).header(t, "Location", "/campaigns/c-1")
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
	s.get("/intake/shop").want(t, 200, "It belongs to another journal; none of its rows is moved to this one.", "j-old &lt;script&gt;", "Belongs to journal", "outboxweb intake hand-over --reason=why --confirm=&#39;hand over shop&#39; -- shop<").lacks(t, htmlScript)
	v := decodeAs[intakeList](t, s.get(apiPrefix+"/intake").want(t, 200))
	must.Hold(t, v.Sources[0].OwnedSince != nil && !v.Sources[0].HandedOver, "sources: %+v", v)
	s.lands(s.submit("/intake/shop/hand-over", "reason=a+new+cluster&confirm=hand+over+shop")).want(t, 200, "Source shop is taken from journal j-old", "It was handed over to this journal; the server takes it at the next read.")
	s.get("/audit").want(t, 200, "intake_hand_over", `href="/intake/shop"`)
}

func TestIntakePage_showsWhatIsRejected(t *testing.T) {
	s := ownSite(t).reject()
	s.get("/intake/none").want(t, 404, "no source &#34;none&#34;; use shop")
	s.get(apiPrefix+"/intake/none/rejections").want(t, 404, `there is no source \"none\"; use shop`)
	s.get("/intake").want(t, 200, "1 row is rejected and blocks its campaign.", `href="/intake/shop"`, "postgres://shop", "not in this server's configuration")
	s.get("/intake/shop").want(t, 200, "Payload is not JSON &lt;script&gt;", "order.paid", "discard shop 1", `data-testid="retry-1-button"`, ">Rejected row 1</", "<code>12</code>", ">Retry rejected row 1<", ">Discard rejected row 1<", "outboxweb intake retry --reason=why -- shop 1<").lacks(t, leak, htmlScript)
	list := decodeAs[event.Page[inbound.IntakeRejection]](t, s.get(apiPrefix+"/intake/shop/rejections").want(t, 200).lacks(t, leak))
	must.Need(t, len(list.Items) == 1 && list.Items[0].RowKey == "12", "rejections: %+v", list)
	s.lands(s.submit("/intake/shop/rejections/1/discard", "reason=a+test+order&confirm=discard+shop+1")).want(t, 200, "Rejected row 1 of source shop is deleted at the next read.", "discarding", "a test order")
}

// withAlerts gives the server a receiver, named chat in its configuration.
func withAlerts(t *testing.T, receiver string) func(*Config) {
	var document yaml.Node
	must.OK(t, yaml.Unmarshal([]byte("to: [chat]\nreceivers:\n  "+receiver+"\n"), &document))
	settings := must.Get(alerts.Parse(document.Content[0], os.LookupEnv)).Or(t)
	return func(c *Config) {
		c.Alerts = alerts.New(c.Queue.Store, alerts.Options{Settings: settings, Hide: redact.Builtin().Text})
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
	s.lands(s.submit("/alerts/receivers/chat/test", "")).want(t, 200, "Sent a test message to receiver chat: answered 403", "failing").lacks(t, leak)
	s.post(apiPrefix+"/alerts/receivers/chat/test", "{}").want(t, 200, `"ok":false`, "403").lacks(t, leak)
	s.lands(s.submit("/alerts/rules/all/mute", "for=8h&reason=deploying")).want(t, 200, "Muted all alert rules until", "All rules are muted until", "deploying", `data-testid="unmute-all"`)
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
