package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// append appends one event with a payload, without the limits of HTTP.
func (s *site) append(campaign, eventType, payload string) {
	s.kit.MustAppend(event.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(payload)})
}

// manyItems is a payload with n items, each with a number no float64 can hold.
func manyItems(n int) string {
	return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"n":9007199254740993},`, n), ",") + `]}`
}

func TestTree_showsWhatIsStoredAndNothingElse(t *testing.T) {
	s := ownSite(t)
	s.append("c-1", "a", `{"big":9007199254740993,"huge":1e400,"zero":-0,"long":0.1000000000000000000000000000001,`+
		`"twice":1,"twice":[2],"<script>alert(1)</script>":"</bdi><img src=x onerror=alert(1)>","turned":"`+"\u202e"+`gnp.exe","arabic":"مرحبا","text":"`+strings.Repeat("x", 14_344)+`"}`)
	a := s.get("/campaigns/c-1/events/1?tab=payload").want(t, 200, ">9007199254740993<", ">1e400<", ">-0<", ">0.1000000000000000000000000000001<",
		"&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;/bdi&gt;&lt;img", `\u202egnp.exe`, "<bdi", "مرحبا", "… 12,346 more characters")
	a.lacks(t, "<script>alert", "<img", "\u202e")
	a.times(t, 2, ">&#34;twice&#34;<")
	must.Hold(t, regexp.MustCompile(`(?s)big.*huge.*zero.*long.*twice.*turned.*arabic`).MatchString(a.body), "the keys are not in the order in which they are stored")
}

func TestTree_isReadFromPlaceToPlaceAndFragmentsAreTheSameAsPages(t *testing.T) {
	s := ownSite(t)
	s.append("c-1", "a", manyItems(1050))
	const tree = "/campaigns/c-1/events/1/tree"
	next := regexp.MustCompile(`<a rel="next" data-testid="tree-next" href="([^"]*)"`)
	for kind, change := range map[string][]func(*http.Request){"page": nil, "fragment": {header("HX-Request", "true")}} {
		items, to := 0, tree+"?part=payload&at=%2Fitems"
		for range 20 {
			a := s.get(to, change...).want(t, 200, "9007199254740993")
			must.Hold(t, (kind == "page") == strings.Contains(a.body, "<html"), "%s of %s: %.100s", kind, to, a.body)
			a.header(t, "HX-Retarget", "")
			values := strings.Count(a.body, "<bdi")
			must.Hold(t, values <= 2*200+10, "%s shows %d values", to, values)
			for i := items; strings.Contains(a.body, fmt.Sprintf("<bdi>%d</bdi>", i)); i++ {
				items = i + 1
			}
			found := next.FindStringSubmatch(a.body)
			if found == nil {
				break
			}
			to = html.UnescapeString(found[1])
		}
		must.Equal(t, items, 1050, "the items seen by", kind)
	}
	s.get(tree+"?at=/items/3").want(t, 200, "9007199254740993")
	s.get(tree+"?at=/nothing").want(t, 404, "here is nothing at")
	h := s.get(tree+"?at=/nothing", header("HX-Request", "true")).want(t, 200, "<html").Header
	must.Hold(t, h.Get("Outboxweb-Status") == "404" && h.Get("HX-Retarget") == "body" && h.Get("HX-Reswap") == "innerHTML", "an error page goes where %v says", h)
	s.get(tree+"?at=/items&from=250").want(t, 200, `rel="prev" href="`+tree+`?at=%2Fitems&amp;from=150&amp;part=payload"`)
	s.get(tree+"?at=/items&from=1050").want(t, 404)
	s.get(tree+"?part=envelope").want(t, 422, "use payload, tags or metadata")
	s.get(tree+"?from=-1").want(t, 422)
	s.get(tree+"?part=tags").want(t, 200, "Tags")
}

func TestPayload_isTheStoredBytesAndCanBeReadInRanges(t *testing.T) {
	s := ownSite(t)
	const id = "../etc/“ü”\r;x\"" // hostile to a header and to a file system
	payload := `{"n":9007199254740993,"e":1e400,"turned":"` + "\u202e" + `"}`
	s.append(strings.ReplaceAll(id, "\r", ""), "a", payload)
	s.append("c-1", "a", payload)
	for _, prefix := range []string{"", "/api/v1"} {
		target := prefix + "/campaigns/c-1/events/1/payload"
		a := s.get(target).want(t, 200)
		etag := `"` + must.Get(s.store.Event(context.Background(), "c-1", 1)).Or(t).EventHash + `"`
		must.Equal(t, a.body, payload, target)
		for name, want := range map[string]string{"Content-Type": "application/json", "Content-Length": fmt.Sprint(len(payload)), "Content-Disposition": `attachment; filename="c-1-1.json"`, "X-Content-Type-Options": "nosniff", "ETag": etag} {
			a.header(t, name, want)
		}
		s.get(target, header("If-None-Match", etag)).want(t, 304)
		must.Equal(t, s.get(target, header("Range", "bytes=5-20")).want(t, 206).body, payload[5:21], target, "the range")
		beyond := s.get(target, header("Range", "bytes=5000-")).want(t, 416, "bytes long")
		beyond.header(t, "Content-Type", map[string]string{"": "text/html; charset=utf-8", "/api/v1": "application/problem+json"}[prefix])
		beyond.header(t, "Content-Disposition", "")
		beyond.header(t, "Content-Range", fmt.Sprintf("bytes */%d", len(payload)))
	}
	a := s.do("HEAD", "/campaigns/c-1/events/1/payload", "")
	must.Hold(t, a.body == "" && a.Header.Get("Content-Length") == fmt.Sprint(len(payload)), "HEAD: %q with %v", a.body, a.Header)
}

func TestFileName_isSafeEverywhere(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"c-1": "c-1", "../etc/passwd": "_etc_passwd", ".hidden": "hidden", "a\"b;c\\d": "a_b_c_d", "ü": "_", "..": "event", "-rf": "rf", "a b": "a_b", strings.Repeat("x", 200): strings.Repeat("x", 80),
	} {
		must.Equal(t, fileName(id), want, id, "became")
	}
}

// A payload of megabytes costs the pages around it nothing until it is requested.
func TestPages_aroundALargePayloadAreCheap(t *testing.T) { // not parallel: it counts allocations
	s := newSite(t)
	large := must.Get(store.Open(context.Background(), store.Options{Journal: s.sub.Journal, Projections: s.sub.Projections, MaxPayload: 32 << 20})).Or(t)
	items := size.Of(150_000, 347_826, 347_826)
	payload := manyItems(items)
	must.Get(large.Append(context.Background(), store.Append{Events: []event.Event{{CampaignID: "c-1", EventType: poison, Payload: []byte(payload)}}})).Or(t)
	must.OK(t, large.Close())
	s.seed("c-1", "a", "b").work()
	for _, page := range []string{"/campaigns/c-1/events/1", "/rows/c-1/1/requeue", "/campaigns/c-1", "/campaigns/c-1/events/1", "/rows"} {
		s.get(page).want(t, 200)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := s.get(page)
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		must.Hold(t, allocated <= 3<<20 && len(a.body) <= 100_000, "%s allocates %d bytes for %d bytes of page", page, allocated, len(a.body))
	}
	s.get("/campaigns/c-1/events/1").want(t, 200, "Too long to show here").lacks(t, "9007199254740993")
	s.get("/campaigns/c-1/events/1?tab=payload").want(t, 200, "Show the payload (", "download").lacks(t, "9007199254740993")
	a := s.get("/campaigns/c-1/events/1/tree").want(t, 200, fmt.Sprintf("next 100 of %d,%03d", items/1000, items%1000))
	must.Hold(t, len(a.body) <= 200_000, "its tree is %d bytes long", len(a.body))
	must.Equal(t, s.get("/api/v1/campaigns/c-1/events/1/payload").body, payload, "the file")
}

func TestEventPage_showsAttemptsAndNeighbours(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", poison, "b", "c", "d", "e", "f", "g", "h").work()
	s.get("/campaigns/c-1/events/2").want(t, 200, `href="/instances#instance-test-1"`, "build", "Attempt 2 by test-1 (test)", "2 attempts, the same error", "seat &#34;7&#34; is &lt;taken&gt;",
		`href="/campaigns/c-1/events/3"`, `href="/campaigns/c-1/events/1"`).lacks(t, `href="/campaigns/c-1/events/4"`)
	s.get("/campaigns/c-1/events/2?tab=neighbours").want(t, 200, `href="/campaigns/c-1/events/7"`, "2 more rows", "no lease").lacks(t, `href="/campaigns/c-1/events/8"`, `data-testid="happened"`)
	s.get("/campaigns/c-1/events/2?tab=details").want(t, 200, "curl -s http://127.0.0.1:8080/api/v1/rows/c-1/2", "outboxweb failures explain -- c-1 2", `aria-label="Copy the curl command"`)
	s.get("/api/v1/rows/c-1/4").want(t, 200, `"previous_seq":3`, `"next_seq":5`, `"queue":[{"campaign_id":"c-1","seq":2,`, `"is_head":true`).times(t, 7, `"is_head":`)
}

func TestCampaignPage_showsTheTimelineAndTheCursors(t *testing.T) {
	s := ownSite(t)
	for range 10 {
		s.seed("c-1", "a", "b", "a", "b", "a")
	}
	s.seed("c-1", poison)
	for range 10 {
		s.seed("c-1", "c", "d", "c", "d", "c")
	}
	s.work()
	a := s.get("/campaigns/c-1").want(t, 200, "The watermark is at 50, the head at 51, the last event at 101.", "38 earlier and 23 later events are not shown.",
		`title="Event 50, a: applied, watermark"`, `title="Event 51, poison.pill: dead, head"`, `title="Event 52, c: waits"`, `data-testid="cursor-campaigns"`, "live")
	a.times(t, 40, `title="Event `)
	s.get("/api/v1/campaigns/c-1/projections").want(t, 200, `"projection":"campaigns","applied_seq":50,`, `"state":"live"`, `"failure":null`).times(t, 1, `"projection":`)
	s.get("/api/v1/campaigns/nobody/projections").want(t, 404)
	s.fails("campaigns", "c-1", 48, storetest.Quarantine("campaigns"))
	s.get("/campaigns/c-1").want(t, 200, "quarantined", `href="/campaigns/c-1/events/48"`, "after 1 attempt", "no &lt;seat&gt;")
	s.get("/api/v1/campaigns/c-1/projections").want(t, 200, `"applied_seq":47,`, `"state":"quarantined"`, `"message":"no <seat>"`)
}

func TestEventPage_saysWhetherItWasAppliedAndLinksItsCauses(t *testing.T) {
	s := ownSite(t)
	s.post("/api/v1/campaigns/c-1/events", `{"events":[{"event_id":"e-1","event_type":"a","payload":{}},`+
		`{"event_type":"`+poison+`","payload":{},"correlation_id":"e-1","causation_id":"elsewhere"},{"event_type":"c","payload":{}}]}`).want(t, 201)
	s.work().get("/campaigns/c-1/events/1").want(t, 200, "Applied. All events up to 1 are applied.")
	s.get("/campaigns/c-1/events/2").want(t, 200, "Event 2 has been dead for", "1 row waits behind it")
	s.get("/campaigns/c-1/events/2?tab=details").want(t, 200, `<a href="/campaigns/c-1/events/1"><code><bdi>e-1</bdi></code></a>`, "elsewhere", "Event hash", "Chain hash").
		lacks(t, `<code><bdi>elsewhere</bdi></code></a>`)
	s.get("/campaigns/c-1/events/3").want(t, 200, "Not applied yet: it waits behind event 2")
}

func TestRowPage_saysWhatARehearsalFound(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b", "c")
	s.get("/campaigns/c-1/events/1").lacks(t, "Rehearsed")
	must.OK(t, s.kit.RecordRehearsal(t.Context(), outbox.Rehearsal{CampaignID: "c-1", RehearsedSeq: 1, FailedSeq: 2, Error: "no <seat>"}))
	s.get("/campaigns/c-1/events/1").want(t, 200, "Rehearsed", "it would be applied")
	s.get("/campaigns/c-1/events/2").want(t, 200, "it would fail:", "no &lt;seat&gt;")
	s.get("/campaigns/c-1/events/3").lacks(t, "Rehearsed")
	s.get("/api/v1/rows/c-1/2").want(t, 200, `"rehearsal":{`, `"error":"no <seat>"`)
}

func TestRowPage_saysWhatCanNeverSucceed(t *testing.T) {
	s := ownSite(t).seed("c-1", hopeless, "b").seed("c-2", poison)
	s.pass()
	const never = "an never succeed with this version of the projection"
	s.get("/campaigns/c-1/events/1").want(t, 200, "Not retried: it c"+never, "projection&#32;<code>campaigns</code>", "· permanent: c"+never)
	s.get("/campaigns/c-2/events/1").want(t, 200).lacks(t, never)
	s.get("/failures").want(t, 200, "It c"+never)
	s.get("/api/v1/failures/groups").want(t, 200, `"permanent":1`, `"retry_outlook":"none"`, "It c"+never)
	s.get("/api/v1/rows/c-1/1").want(t, 200, `"status":"dead"`, `"projection":"campaigns","projection_version":"v1","permanent":true`).times(t, 1, `"permanent":`)
}

// taken explains the failures of every event by a key that exists already.
func taken(_ context.Context, hide projection.Hider, campaign string, seq int64) (projection.EventExplanation, error) {
	x := projection.EventExplanation{CampaignID: campaign, Seq: seq, EventType: poison, Failures: []projection.ExplainedFailure{}}
	if seq != 2 {
		return x, nil
	}
	secret := json.RawMessage(`"` + event.Hidden + `"`)
	x.Failures = append(x.Failures, projection.ExplainedFailure{
		Projection: "seats", Error: "projection seats (seats.sql:12) on poison.pill: <taken>", Reason: "A row with this key (seat) exists already in seats.",
		FailedVersion: "97b5433e5e7e99d7", LoadedVersion: "c18c0000000099d7",
		Statement: &projection.FailedStatement{File: "seats.sql", Line: 12, Lines: []projection.SourceLine{{Number: 11, Text: "-- on: poison.pill"}, {Number: 12, Text: "insert into seats values (:payload.<seat>);", Failed: true}},
			Values: []projection.BoundValue{{Name: ":payload.<seat>", Value: json.RawMessage(`"<7>"`), Columns: []string{"seat"}, Computed: []string{"seat"}, Refused: true}, {Name: ":payload.code", Value: secret, Columns: []string{"code"}, Computed: []string{"code"}}}},
		Constraint: &projection.Constraint{Kind: projection.ConstraintUnique, Table: "seats", Columns: []string{"seat"}},
		Existing:   &projection.ExistingRow{Table: "seats", Fields: []projection.Field{{Name: "seat", Value: json.RawMessage(`"<7>"`)}, {Name: "password", Value: json.RawMessage(`"hunter22"`)}}},
	})
	return x, nil
}

func TestEventPage_explainsTheError(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Explain = taken }).trouble()
	s.get("/campaigns/c-1/events/2").want(t, 200, "A row with this key (seat) exists already in seats.", "seats.sql:12", "insert into seats values (:payload.&lt;seat&gt;);", "&#34;&lt;7&gt;&#34;",
		"The row that is there", "in an expression", "The loaded version differs from the one that failed (97b5433e5e7e → c18c00000000)", "hidden: looks like a secret").lacks(t, "hunter22")
	s.get("/campaigns/c-1/events/1").want(t, 200).lacks(t, `data-testid="explained"`)
	s.get("/api/v1/campaigns/c-1/events/2/explanation").want(t, 200, `"reason":"A row with this key (seat) exists already in seats."`, `"unexplained":""`).lacks(t, "hunter22")
	s.get("/api/v1/campaigns/c-1/events/1/explanation").want(t, 200, `"failures":[]`)

	groups := decodeAs[items[campaign.AssessedGroup]](t, s.get("/api/v1/failures/groups").want(t, 200)).Items
	cause := string(ui.NewLinks("").FailureGroup(groups[0].Fingerprint))
	s.get(cause).want(t, 200, "A row with this key (seat) exists already in seats.", `href="/campaigns/c-1/events/2" data-testid="example"`)
	s.get("/failures").want(t, 200, `data-testid="explained"`) // the only cause
}

func TestFailuresPage_saysTheErrorOnce(t *testing.T) {
	t.Parallel()
	for explained, again := range map[string]bool{`seat "7" is <taken>`: false, "another": true} {
		s := newSite(t, func(c *Config) {
			c.Explain = func(ctx context.Context, hide projection.Hider, campaign string, seq int64) (projection.EventExplanation, error) {
				x, err := taken(ctx, hide, campaign, seq)
				x.Failures[0].Error = explained
				return x, err
			}
		}).trouble()
		page := s.get("/failures").want(t, 200, `data-testid="explained"`, "seat &#34;7&#34; is &lt;taken&gt;")
		must.Equal(t, strings.Contains(page.body, `<p class="error">`), again, explained, "is said again")
	}
}

func TestEventPage_showsTheErrorWhereItCannotBeExplained(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Explain = func(context.Context, projection.Hider, string, int64) (projection.EventExplanation, error) {
			return projection.EventExplanation{}, errors.New("dial tcp: internal text")
		}
	}).trouble()
	s.get("/campaigns/c-1/events/2").want(t, 200, "The error cannot be explained at the moment.", "seat &#34;7&#34; is &lt;taken&gt;", `data-testid="requeue"`).lacks(t, "internal text")
	s.get("/failures?fingerprint=x").want(t, 200).lacks(t, "internal text")
	s = newSite(t).trouble()
	s.get("/campaigns/c-1/events/2").want(t, 200, "seat &#34;7&#34; is &lt;taken&gt;").lacks(t, "cannot be explained")
	s.get("/api/v1/campaigns/c-1/events/2/explanation").want(t, 404)
}

func TestEventPage_hasTabsWithNothingOfTheOthers(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Explain = taken }).trouble()
	parts := map[string]string{"": `data-testid="happened"`, "?tab=payload": `data-testid="tree-payload"`, "?tab=neighbours": `<ol class="queue"`, "?tab=details": "Chain hash"}
	for tab := range parts {
		a := s.get("/campaigns/c-1/events/2"+tab).want(t, 200, "Event 2 <span", `data-testid="requeue"`, "A row with this key (seat)", `aria-label="About this event"`, `aria-current="page"`)
		for other, part := range parts {
			if other == tab {
				a.want(t, 200, part)
			} else {
				a.lacks(t, part)
			}
		}
		s.get("/campaigns/c-1/events/2"+tab, header("HX-Target", "live")).want(t, 200, parts[tab]).lacks(t, "<html")
	}
	s.get("/campaigns/c-1/events/2?tab=nothing").want(t, 422)
	for from, want := range map[string]string{"/rows/c-1/2": "/campaigns/c-1/events/2", "/rows/c-1/1": "/campaigns/c-1/events/1", "/rows/c-1/2?act=1": "/campaigns/c-1/events/2?act=1"} {
		s.get(from).want(t, http.StatusSeeOther).header(t, "Location", want)
	}
	s.get("/rows/c-1/99").want(t, 404)
	s.get("/campaigns/c-1/events/2").want(t, 200, `data-testid="preview"`, `rel="prev" data-step="["`, `rel="next" data-step="]"`)
}

func TestEventHistory_tellsWhatTheEventWentThrough(t *testing.T) {
	s := ownSite(t).seed("c-1", "campaign.created", poison).work()
	s.post("/api/v1/rows/requeue", `{"reason":"mended"}`).want(t, 200)
	h := decodeAs[campaign.EventHistory](t, s.get("/api/v1/campaigns/c-1/events/2/history").want(t, 200))
	must.Need(t, len(h.Steps) == 4 && h.Steps[2].Kind == campaign.StepDied && h.Steps[3].AuditEntry != nil && h.Steps[3].AuditEntry.Reason == "mended", "the steps are %+v", h.Steps)
	s.get("/api/v1/campaigns/c-1/events/1/history").want(t, 200, `"kind":"applied"`, testWorker.ID)
	s.get("/campaigns/c-1/events/2").want(t, 200, "What happened", "Failed 2 times with the same error, now dead", "Requeued 1 dead row", "mended").lacks(t, "No actions here", "on record")
	s.get("/campaigns/c-1/events/1").want(t, 200, "What happened", "Applied", testWorker.ID).lacks(t, "on record")
	s.get("/campaigns/c-1").want(t, 200).lacks(t, "No actions here")
}

func TestEvent_whoseContentDoesNotMatchItsHashSaysSo(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b", "c").work()
	const says = "Its content does not match its hash: it was changed after it was appended"
	s.get("/campaigns/c-1/events/2").want(t, 200, "applied").lacks(t, says)
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200).lacks(t, `"altered"`)
	s.kit.Tamper(`update events set payload = '{"amount":1000}' where campaign_id = 'c-1' and seq = 2`)
	s.get("/campaigns/c-1/events/2").want(t, 200, says, "#when-a-campaign-cannot-be-verified")
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200, `"altered":true`)
	s.get("/campaigns/c-1/events/3").want(t, 200).lacks(t, says)

	// Documents that are shown only on demand are not checked.
	s.kit.Tamper(`update events set payload = '{"a":"` + strings.Repeat("x", 64<<10) + `"}' where campaign_id = 'c-1' and seq = 3`)
	s.get("/campaigns/c-1/events/3").want(t, 200).lacks(t, says)
	s.get("/api/v1/campaigns/c-1/events/3").want(t, 200).lacks(t, `"altered"`)

	s.seed("c-2", "a", "b")
	s.kit.Tamper(`update events set entity_id = 'somebody else' where campaign_id = 'c-2' and seq = 2`)
	s.get("/campaigns/c-2/events/2").want(t, 200, "Its content does not match its hash")
	s.get("/api/v1/rows/c-2/2").want(t, 200, `"altered":true`)
	s.get("/api/v1/rows/c-2/1").want(t, 200).lacks(t, `"altered"`)
}
