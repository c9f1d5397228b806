package handlers

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func TestAppend_answersWithSeqAndPosition(t *testing.T) {
	s := ownSite(t)
	one := `{"event_id":"e-1","event_type":"campaign.created","payload":{"big":12345678901234567890123}}`
	s.post("/api/v1/campaigns/c-1/events", one).want(t, 201, `"campaign_id":"c-1"`, `"seq":1`, `"position":1`, `"existed":false`)
	s.post("/api/v1/campaigns/c-1/events", one).want(t, 200, `"seq":1`, `"existed":true`)
	s.post("/api/v1/campaigns/c-1/events", strings.Replace(one, "big", "bug", 1)).want(t, 409, "already exists at seq 1 with different content (payload)")
	s.get("/api/v1/campaigns/c-1/events/1").want(t, 200, `"payload":{"big":12345678901234567890123}`)

	batch := `{"expected_seq":1,"events":[{"event_type":"a","payload":{}},{"event_type":"b","payload":{}}]}`
	s.post("/api/v1/campaigns/c-1/events", batch).want(t, 201, `"events":[{`, `"seq":2`, `"seq":3`)
	s.post("/api/v1/campaigns/c-1/events", batch).want(t, 409, "is at seq 3")
	s.get("/api/v1/campaigns/c-1/events?after_seq=1&limit=1").want(t, 200, `"seq":2`, `"next_cursor":"2"`).lacks(t, `"seq":3`)
	s.get("/api/v1/campaigns/c-1/events?cursor=2").want(t, 200, `"seq":3`, `"next_cursor":null`)
}

func TestAppend_saysWhatIsWrongAndWritesNothing(t *testing.T) {
	s := ownSite(t)
	for _, c := range []struct {
		name, body string
		status     int
		texts      []string
	}{
		{"unknown field", `{"event_type":"a","payload":{},"wat":1}`, 422, []string{`"errors":{"wat":"unknown field`}},
		{"other campaign", `{"campaign_id":"c-2","event_type":"a","payload":{}}`, 422, []string{`"campaign_id":`, "make them agree"}},
		{"second of a batch", `{"events":[{"event_type":"a","payload":{}},{"event_type":"b","payload":[]}]}`, 422,
			[]string{`"events[1].payload":"event 2 of the batch: payload must be a JSON object"`}},
		{"unknown field in a batch", `{"events":[{"event_type":"a","payload":{},"x":1}]}`, 422, []string{`"events[0].x"`}},
		{"unknown field beside the events", `{"events":[],"expected":1}`, 422, []string{`"expected":`, "events, expected_seq and condition"}},
		{"a field twice in a batch", `{"events":[{"event_type":"a","payload":{},"payload":{}}]}`, 422, []string{`"events[0].payload"`, "given twice"}},
		{"no events", `{"events":[]}`, 422, []string{"no event to append"}},
		{"too many events", `{"events":[` + strings.Repeat(`{"event_type":"a","payload":{}},`, appendbody.DefaultMaxEvents) + `{}]}`, 413, []string{"at most 10,000 events", "nothing was appended"}},
		{"too many tags", `{"events":[` + strings.Repeat(`{"event_type":"a","payload":{},"tags":{"a":"1","b":"2","c":"3"}},`, 6667) + `{}]}`, 413, []string{"at most 20,000 tags"}},
		{"events twice", `{"events":[],"events":[]}`, 422, []string{`"events":"events is given twice"`}},
		{"events that are none", `{"events":{"a":1}}`, 422, []string{"events must be a JSON array"}},
		{"a seq that is none", `{"expected_seq":"x","events":[]}`, 422, []string{`"expected_seq":"expected_seq cannot be a string"`}},
		{"the first of two bad events", `{"events":[{"event_type":"a"},{"wat":1}]}`, 422, []string{`"events[0].payload"`}},
		{"a batch that ends early", `{"events":[{"event_type":"a","payload":{}}`, 422, []string{"ends too early"}},
		{"text after a batch", `{"events":[]} {}`, 422, []string{"data after the JSON object"}},
		{"an event longer than any", `{"events":[{"event_type":"` + strings.Repeat("x", 3*event.DefaultMaxPayload+64<<10) + `"}]}`, 413, []string{"event 1 of the batch", "the limit is", "262144 for its payload"}},
		{"a condition of nothing", `{"events":[{"event_type":"a","payload":{}}],"condition":{}}`, 422, []string{`"condition.items":`, "at least one item"}},
		{"an item of nothing", `{"events":[{"event_type":"a","payload":{}}],"condition":{"items":[{}]}}`, 422, []string{`"condition.items[0]":`, "matches nothing"}},
		{"a tag that is a number", `{"events":[{"event_type":"a","payload":{}}],"condition":{"items":[{"tags":{"seat":1}}]}}`, 422, []string{`"condition.items.tags":`, "cannot be a number"}},
		{"an unknown field of an item", `{"events":[{"event_type":"a","payload":{}}],"condition":{"items":[{"types":["a"]}]}}`, 422, []string{`"condition":`, `unknown field \"types\"`}},
		{"a condition that is a list", `{"events":[{"event_type":"a","payload":{}}],"condition":[]}`, 422, []string{`"condition":`, "not a array"}},
		{"a condition of one event", `{"event_type":"a","payload":{},"condition":{"items":[{"event_types":["a"]}]}}`, 422, []string{`"condition":`}},
		{"no JSON", `hello`, 422, []string{"not JSON"}},
		{"big payload", `{"event_type":"a","payload":{"x":"` + strings.Repeat("x", event.DefaultMaxPayload) + `"}}`, 413, []string{"the limit is"}},
		{"big body", `{"event_type":"a","payload":{"x":"` + strings.Repeat("x", maxAppendBody) + `"}}`, 413, []string{"larger than the limit"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.post("/api/v1/campaigns/c-1/events", c.body).want(t, c.status, c.texts...)
			a.header(t, "Content-Type", "application/problem+json")
			p := decodeAs[problem](t, a)
			must.Hold(t, p.RequestID != "" && p.RequestID == a.Header.Get("X-Request-Id") && p.Title != "", "problem lacks its request id or title: %+v", p)
		})
	}
	s.get("/api/v1/campaigns/c-1").want(t, 404)
}

func TestAppend_waitsForTheProjections(t *testing.T) {
	s, event := ownSite(t), `{"event_type":"a","payload":{}}`
	s.post("/api/v1/campaigns/c-1/events?wait=applied&timeout=30ms", event).want(t, 504, `"status":504`, "the event is appended as seq 1, but", `"appended":[{"campaign_id":"c-1","seq":1`)
	s.get("/api/v1/campaigns/c-1?min_seq=1&timeout=30ms").want(t, 504, "not yet at event 1")
	s.work().get("/api/v1/campaigns/c-1?min_seq=1&timeout=30s").want(t, 200, `"applied_seq":1`, `"state":"current"`)

	answered := make(chan answer, 1)
	go func() { answered <- s.post("/api/v1/campaigns/c-1/events?wait=applied&timeout=30s", event) }()
	must.Eventually(t, "the append answers after it was applied", func() bool {
		s.pass()
		return len(answered) > 0
	})
	(<-answered).want(t, 201, `"seq":2`, `"applied_seq":2`)
}

func TestAppend_inlineAppliesBeforeItAnswers(t *testing.T) {
	var asked []string
	fail := false
	s := ownSite(t, func(c *Config) {
		c.Mode = campaign.ModeInline
		c.InlineApply = func(_ context.Context, id string) error {
			asked = append(asked, id)
			if fail {
				return &event.Refusal{Err: event.ErrConflict, Detail: "event 2 cannot be applied"}
			}
			return nil
		}
	})
	s.post("/api/v1/campaigns/c-1/events", `{"event_type":"a","payload":{}}`).want(t, 201, `"seq":1`).lacks(t, "apply_error")
	fail = true
	s.post("/api/v1/campaigns/c-1/events", `{"event_type":"a","payload":{}}`).want(t, 201, `"apply_error":"event 2 cannot be applied"`)
	must.Equal(t, fmt.Sprint(asked), "[c-1 c-1]", "applied")
}

func TestQueriesAndBodies_thatMakeNoSenseSayWhy(t *testing.T) {
	s := ownSite(t).blocked(1)
	for target, texts := range map[string][]string{
		"/api/v1/rows?status=gone":                                    {`"status":"status \"gone\" is unknown; use pending, processing, failed or dead"`},
		"/api/v1/rows?limit=ten":                                      {`"limit":"limit must be a whole number, not \"ten\""`},
		"/api/v1/rows?limit=201":                                      {`"limit":"limit must be at most 200"`},
		"/api/v1/rows?limit=0":                                        {`"limit":"limit must be 1 or more"`},
		"/api/v1/rows?cursor=%21":                                     {`"cursor":`},
		"/api/v1/campaigns?sort=size":                                 {`use id, trouble, lag or age`},
		"/api/v1/campaigns/c-1/read-model?seq=-1":                     {`"seq":"seq must be 0 or more"`},
		"/api/v1/campaigns/c-1?timeout=soon":                          {`"timeout":"timeout \"soon\" is not a duration; write it like 500ms or 2s"`},
		"/api/v1/campaigns/c-1?timeout=1h":                            {`timeout must be at most 30s`},
		"/api/v1/rows/c-1/zero":                                       {`"seq":"seq must be a whole number from 1, not \"zero\""`},
		"/api/v1/audit?action=dance":                                  {`"action":`},
		"/api/v1/rows?q=" + strings.Repeat("x", 201):                  {`"q":"q is 201 bytes long; the limit is 200"`},
		"/api/v1/rows?campaign=%ff":                                   {`"campaign":`},
		"/api/v1/rows?cursor=_wAw":                                    {`"cursor":`}, // \xff, \0, 0
		"/api/v1/campaigns/a%00":                                      {`"campaign":"campaign in the URL is not valid UTF-8, or contains a NUL character"`},
		"/api/v1/projections/%00":                                     {`"name":`},
		"/api/v1/campaigns/c-1/events?after_seq=99999999999999999999": {`"after_seq":`},
		"/api/v1/rows?statsu=dead":                                    {`"errors":{"statsu":`, `not a query parameter of this URL; it takes status, campaign, `},
		"/api/v1/rows?status=dead&x=1&y=2":                            {`"x":`, `"y":`},
		"/api/v1/rows?status=dead&status=dead":                        {`"status":"status is given more than once"`},
		"/api/v1/rows?status=dead;limit=1":                            {`the query string is malformed at \"status=dead;limit=1\": write`},
		"/api/v1/summary?status=":                                     {"takes none"},
		"/api/v1/campaigns/c-1?wait=applied":                          {`"wait":`, "min_seq or timeout"},
		"/api/v1/operations/0":                                        {"whole number from 1"},
		"/api/v1/operations?status=ended":                             {"use running, stopped, cancelled or done"},
		"/api/v1/runs/7/results?outcome=good":                         {"use match, drift, replayed, failed or not_compared"},
		"/api/v1/runs?status=ended":                                   {"use queued"},

		`/api/v1/operations {}`: {"say which rows"},
		`/api/v1/operations {"rows":[{"campaign_id":"c-1","seq":2}],"filter":{}}`: {"not both"},
		`/api/v1/operations {"kind":"rebuild","filter":{}}`:                       {`is unknown; use requeue`},
		`/api/v1/runs `: {"kind is required"},
		`/api/v1/runs {"kind":"verify","campaign_id":"c-1","campaign_ids":["c-1"]}`:   {"not both"},
		`/api/v1/runs {"kind":"verify","campaign_id":"c-1","rate":-1}`:                {"must be 0 or more"},
		`/api/v1/runs {"kind":"verify","campaign_id":"c-1","projections":["roster"]}`: {"use one of: campaigns"},
	} {
		if path, body, posts := strings.Cut(target, " "); posts {
			s.post(path, body).want(t, 422, texts...)
		} else {
			s.get(target).want(t, 422, texts...)
		}
	}
	s.post("/api/v1/operations/preview", `{"filter":{"campaign_id":"c-99"}}`).want(t, 404, `there is no campaign \"c-99\"`)
	s.get("/rows?status=gone").want(t, 422, "Status &#34;gone&#34; is unknown")
}

func TestUnknownThings_are404(t *testing.T) {
	s := ownSite(t)
	for _, target := range []string{"/api/v1/projections/nope", "/api/v1/nope", "/api/v1", "/api/v1/campaigns//events", "/api/v1/campaigns/nope?min_seq=1"} {
		s.get(target).want(t, 404, `"title":"Not Found"`, `"detail":`).header(t, "Content-Type", "application/problem+json")
	}
	for _, target := range []string{"/nope", "/campaigns/nope"} {
		s.get(target).want(t, 404, "<h1>Not found</h1>").header(t, "Content-Type", "text/html; charset=utf-8")
	}
	s.submit("/instances", "").want(t, 405, "<h1>Method Not Allowed</h1>")
}

// oddIDs are campaign ids that break naive escaping.
var oddIDs = []string{"a/b", "100%", "%2F", "%41", `q"uo'te`, "<b>x</b>", "a b+c", "ü✓", "?x=1&y#z", "a;b,c", "javascript:alert(1)", `back\slash`, "//evil.example"}

func TestOddIDs_workInEveryAddress(t *testing.T) {
	s, ids := ownSite(t), oddIDs
	if dbtest.Postgres() { // addresses are above the database
		ids = ids[:4]
	}
	for _, id := range ids {
		path := url.PathEscape(id)
		s.post("/api/v1/campaigns/"+path+"/events", `{"event_type":"poison.pill","payload":{}}`).want(t, 201, `"seq":1`)
	}
	s.work()
	for _, id := range ids {
		path := url.PathEscape(id)
		must.Equal(t, decodeAs[campaignView](t, s.get("/api/v1/campaigns/"+path).want(t, 200)).CampaignID, id, "asked for")
		s.get("/api/v1/rows?campaign="+url.QueryEscape(id)).want(t, 200, `"seq":1`)
		s.get("/campaigns/"+path).want(t, 200, `action="/campaigns/`+html.EscapeString(path)+`/pause"`)
		s.get("/campaigns/"+path+"/events/1").want(t, 200, `action="/rows/`+html.EscapeString(path)+`/1/requeue"`)
		to := s.submit("/rows/"+path+"/1/requeue", "expected_status=dead").want(t, http.StatusSeeOther).Header.Get("Location")
		must.Hold(t, strings.HasPrefix(to, "/campaigns/"+path+"/events/1?act="), "redirected to %q", to)
		s.get(to).want(t, 200, "Requeued event 1 of campaign "+html.EscapeString(id))
	}
	s.get("/campaigns").want(t, 200).lacks(t, "<b>x</b>")
	s.get("/audit").want(t, 200).lacks(t, "<b>x</b>")
}

var (
	curlCommand = regexp.MustCompile(`(?s)^curl .*?"\$URL(/[^"]*)"(?: -d '(.*?)')?\n(.*)$`)
	promise     = regexp.MustCompile(`(?m)^# prints: (.*)$`)
)

func TestAppendingDocument_isTrue(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../docs/appending.md")).Or(t)
	s := newSite(t)
	blocks := strings.Split(string(text), "```sh\n")[1:]
	must.Equal(t, len(blocks), 4, "the commands of the document")
	for _, block := range blocks {
		command, _, _ := strings.Cut(block, "```")
		parts := curlCommand.FindStringSubmatch(command)
		must.Need(t, parts != nil, "this is no curl as the test reads it: %s", command)
		var prints []string
		for _, p := range promise.FindAllStringSubmatch(parts[3], -1) {
			prints = append(prints, p[1])
		}
		must.Hold(t, len(prints) > 0, "nothing is said to be printed by %s", command)
		if parts[2] == "" {
			s.get(parts[1]).want(t, 200, prints...)
		} else {
			s.post(parts[1], parts[2]).want(t, map[bool]int{true: 201, false: 409}[strings.Contains(command, "curl -fsS")], prints...)
		}
	}
}

func TestAppend_underAnIdempotencyKeyIsDoneOnce(t *testing.T) {
	s := ownSite(t)
	under := func(key, body string) answer {
		return s.post("/api/v1/campaigns/c-1/events", body, func(r *http.Request) { r.Header.Set("Idempotency-Key", key) })
	}
	one := `{"event_type":"a","payload":{}}`
	first := under("k-1", one).want(t, 201, `"seq":1`)
	again := under("k-1", one).want(t, 201, first.body)
	must.Hold(t, first.Header.Get("Idempotency-Replayed") == "" && again.Header.Get("Idempotency-Replayed") == "true", "the answers say %v and %v", first.Header, again.Header)
	under("k-1", `{"event_type":"b","payload":{}}`).want(t, 422, `"Idempotency-Key":`, "used for another append", "use a new key")
	under("k-1", `{"events":[{"event_type":"b","payload":{}}]}`).want(t, 422, `"Idempotency-Key":`)
	under("k-2", `{"events":[{"event_type":"b","payload":{}},{"event_type":"b","payload":{}}]}`).want(t, 201, `"seq":2`, `"seq":3`)
	under("k-3", `{"event_type":"a"}`).want(t, 422)
	under("k-3", one).want(t, 201, `"seq":4`) // a refused append leaves its key free
	under(strings.Repeat("k", 201), one).want(t, 422, "the limit is 200")
}

func TestAppend_underACondition(t *testing.T) {
	s := ownSite(t)
	s.get("/api/v1/journal").want(t, 200, `{"position":0}`)
	take := func(seat string, after int) string {
		return fmt.Sprintf(`{"events":[{"event_id":"e-%[1]s-%[2]d","event_type":"seat.taken","tags":{"seat":%[1]q},"payload":{}}],
			"condition":{"after_position":%[2]d,"items":[{"event_types":["closed"]},{"event_types":["seat.taken"],"tags":{"seat":%[1]q,"campaign_id":"c-1"}}]}}`, seat, after)
	}
	s.post("/api/v1/campaigns/c-1/events", take("7", 0)).want(t, 201, `"position":1`)
	s.post("/api/v1/campaigns/c-1/events", take("7", 0)).want(t, 200, `"existed":true`)
	s.get("/api/v1/journal").want(t, 200, `{"position":1}`)
	s.post("/api/v1/campaigns/c-1/events", take("7", 1)).want(t, 201, `"position":2`)
	s.post("/api/v1/campaigns/c-1/events", take("8", 0)).want(t, 201, `"position":3`)

	again := strings.Replace(take("8", 0), "e-8-0", "e-other", 1)
	s.post("/api/v1/campaigns/c-1/events", again).want(t, 409, `"blocking_event":{"position":3,"campaign_id":"c-1","seq":3,"event_type":"seat.taken"}`,
		`"detail":"conflicting event 3 (seat.taken, campaign \"c-1\" seq 3): it came after position 0 and matches item 2 of the condition; read on from there and decide again"`)
	s.post("/api/v1/campaigns/c-1/events", `{"events":[{"event_type":"a","payload":{}}],"condition":null}`).want(t, 201)
}

// A misspelt filter would select everything.
func TestRoutes_refuseParametersThatTheyDoNotTake(t *testing.T) {
	s, event := ownSite(t).seed("c-1", "a"), `{"event_type":"a","payload":{}}`
	s.post("/api/v1/campaigns/c-1/events?wiat=applied", event).want(t, 422, `"wiat":`, "wait or timeout")
	s.post("/api/v1/campaigns/c-1/pause?reason=x", "").want(t, 422, `"reason":`, "takes none")
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"high_water_seq":1`)
	step := size.Of(3, 1, 1)
	if dbtest.Postgres() { // queries are read above the database
		step = 6
	}
	for i, key := range slices.Sorted(maps.Keys(s.srv.routes)) {
		route := s.srv.routes[key]
		if i%step != 0 || route.method != "GET" || route.role == operator.RoleNone || route.pattern == "/metrics" {
			continue
		}
		target, refused := strings.NewReplacer("{", "", "}", "").Replace(plain.Replace(route.pattern)), []string{"x=a;b", "x=100%", "utm_source=mail", "="}
		for _, p := range route.takes {
			name := p.name()
			a := s.get(target + "?" + name + "=")
			must.Hold(t, a.StatusCode != 422 || !strings.Contains(a.body, "query parameter"), "%s refuses %s: %s", key, name, a.body)
			refused = append(refused, name+"=1;2", name+"=100%", strings.ToUpper(name)+"=1", name+"=1&utm_source=mail")
			if !request.Repeats(p.field) {
				refused = append(refused, name+"=1&"+name+"=1")
			}
		}
		for _, query := range refused {
			a := s.get(target + "?" + query)
			must.Hold(t, a.StatusCode == 422 && (strings.Contains(a.body, "is not a query parameter of this URL") || strings.Contains(a.body, "is given more than once") || strings.Contains(a.body, "he query string is malformed at")), "%s?%s is answered with %d: %.300s", key, query, a.StatusCode, a.body)
			must.Hold(t, route.api.id != "" || strings.Contains(a.body, `href="`+target+`" data-testid="whole"`), "%s?%s is refused without a way out: %s", key, query, a.body)
			a = s.get(target+"?"+query, header("HX-Request", "true"), header("HX-Target", ui.LiveTarget))
			must.Hold(t, route.api.id != "" || a.Header.Get(statusHeader) == "422" && !strings.Contains(a.body, "<"), "a poll of %s?%s is answered with %v %s", key, query, a.Header, a.body)
		}
		if route.api.id == "" && target != "/" {
			s.get(target+"/?x=%20").want(t, 308).header(t, "Location", target+"?x=%20")
		}
	}
	s.get("/metrics?x=1").want(t, 200)
	s.get("/nowhere/?x=1").want(t, 404)
	s.get("/api/v1/rows/").want(t, 404)
}

func TestEndpoints_haveWhatClientsAreMadeFrom(t *testing.T) {
	t.Parallel()
	ids := map[string]string{}
	for key, r := range newServer(Config{Queue: outbox.New(new(store.Store)), Metrics: metrics.New(nil)}).routes {
		if !strings.HasPrefix(r.pattern, apiPrefix) {
			continue
		}
		e := r.api
		other := ids[e.id]
		must.Hold(t, other == "" && e.id != "", "%s has the id %q, and so has %q", key, e.id, other)
		ids[e.id] = key
		must.Hold(t, e.summary != "" && len(e.summary) <= 120 && !strings.HasSuffix(e.summary, "."), "%s has no summary of one line without a final stop: %q", key, e.summary)
		must.Hold(t, tagTexts.Get(string(e.tag)) != nil, "%s has the tag %q, which there is not", key, e.tag)
		must.Hold(t, len(e.answers) != 0 && (r.method == http.MethodPost) == (len(e.body.types) > 0), "%s does not say what it answers, or what body it reads", key)
	}
}
