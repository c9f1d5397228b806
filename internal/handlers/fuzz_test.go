package handlers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// fuzzed is a site with content on every page. One serves all inputs of a process.
type fuzzed struct {
	*site
	mu  sync.Mutex
	log bytes.Buffer // of the request that is being answered
}

func newFuzzed(f *testing.F, change ...func(*Config)) *fuzzed {
	f.Helper()
	z := new(fuzzed)
	z.site = newSite(f, append(change, tryOnStore, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&z.log, nil))
		c.TestPublisher = func(context.Context, outbox.SubscriptionName) (outbox.TestDelivery, error) {
			return outbox.TestDelivery{Error: "refused"}, nil
		}
	})...)
	z.trouble()
	z.seed("c-4", "a", poison, "b")
	z.work()
	if z.srv.ReadOnly {
		return z
	}
	z.post("/api/v1/operations", `{"filter":{"campaign_id":"c-4"},"canary":true,"reason":"mended"}`).want(f, 202)
	z.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true}`).want(f, 202)
	z.post("/api/v1/rows/c-1/2/requeue", `{"reason":"mended"}`).want(f, 200)
	z.post("/api/v1/campaigns/c-2/pause", `{"reason":"a while"}`).want(f, 200)
	z.withPublisher(1)
	z.work()
	return z
}

// headersOfEveryAnswer are headers that restrict what a browser does with an answer.
var headersOfEveryAnswer = []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control", "X-Request-Id", "Content-Type"}

// ask sends a request as net/http would have parsed it. The answer must not be a server error, must
// carry the headers and, from the API, be documented. A target that net/http does not parse is
// skipped.
func (z *fuzzed) ask(t *testing.T, r request) {
	t.Helper()
	head := r.method + " " + r.target + " HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:8080\r\n"
	if r.kind != "" {
		head += fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n", r.kind, len(r.body))
	}
	got, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n" + r.body)))
	if err != nil || got.Method != r.method || got.Host != "127.0.0.1:8080" {
		t.Skip("no request")
	}
	got.RemoteAddr = "127.0.0.1:5555"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	query := got.URL.Query()
	waits := query.Has("wait") || query.Has("min_seq")
	if waits { // nothing is applied, so a wait never ends
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	}
	defer cancel()
	got = got.WithContext(ctx)

	z.mu.Lock()
	defer z.mu.Unlock()
	z.log.Reset()
	rec := httptest.NewRecorder()
	z.http.ServeHTTP(rec, got)
	if rec.Code >= 500 && !(waits && (rec.Code == http.StatusGatewayTimeout || rec.Code == http.StatusServiceUnavailable)) {
		t.Errorf("%s is answered with %d: %.500s\n%s", r, rec.Code, rec.Body, z.log.String())
	}
	if waits && rec.Code == http.StatusOK && rec.Body.Len() == 0 {
		return // the request was given up before there was an answer
	}
	for _, name := range headersOfEveryAnswer {
		if values := rec.Result().Header.Values(name); len(values) != 1 && rec.Code >= 200 && rec.Code != http.StatusSeeOther && rec.Code != http.StatusMovedPermanently {
			t.Errorf("%s is answered with %d and the headers %s: %q", r, rec.Code, name, values)
		}
	}
	checkDocumented(t, z.srv, got, rec)
}

// routesOf are the patterns that a method has, in order.
func (z *fuzzed) routesOf(method string, wanted func(pattern string) bool) []string {
	var patterns []string
	for _, t := range z.srv.routes {
		if t.method == method && wanted(t.pattern) {
			patterns = append(patterns, t.pattern)
		}
	}
	slices.Sort(patterns)
	return patterns
}

// chosen is the route that a text names, or else one that depends only on the text.
func chosen(routes []string, text string) string {
	if slices.Contains(routes, text) {
		return text
	}
	sum := fnv.New32a()
	sum.Write([]byte(text))
	return routes[int(sum.Sum32())%len(routes)]
}

// anyValue is a value of a parameter, to begin with.
func anyValue(name string) string {
	values := map[string]string{"status": "dead", "state": "blocked", "sort": "lag", "reverse": "true", "limit": "1", "span": "day", "format": "json", "campaign": "c-1", "campaign_id": "c-1",
		"kind": "requeue", "action": "requeue", "since": "2026-11-21", "until": "2026-11-21T07:30:00Z", "timeout": "1ms", "wait": "applied", "part": "payload", "path": "/n", "rows": "c-1/2",
		"fingerprint": "x", "q": "a", "canary": "true", "all": "1", "confirm": "x", "position": "1"}
	if value, known := values[name]; known {
		return value
	}
	return "1"
}

// fuzzedQueries calls f with each read route and queries that it takes.
func (z *fuzzed) fuzzedQueries(routes []string, f func(route, query string)) {
	for _, route := range routes {
		f(route, "")
		all := url.Values{}
		for _, name := range z.srv.routes["GET "+route].takes.names() {
			all.Set(name, anyValue(name))
			f(route, name+"="+url.QueryEscape(anyValue(name)))
		}
		all.Del("cursor")
		f(route, all.Encode())
	}
}

// FuzzQuery sends any query to what can be read.
func FuzzQuery(f *testing.F) {
	z := newFuzzed(f)
	routes := z.routesOf(http.MethodGet, func(string) bool { return true })
	z.fuzzedQueries(routes, func(route, query string) { f.Add(route, query) })
	for _, query := range []string{"status=lost&limit=201&cursor=%ff", "limit=1&limit=2", "%", "a;b", "q=%00", "kind=verify&all=1&projection=campaigns&campaigns=c-1%0ac-2&until=2&reason=x",
		"act=1", "error=x", "id=c-1/2&rows=c-1%2f2&rows=c-4/2", "after_seq=-1", "span=day&fingerprint=%27", "field=payload.n&value=1"} {
		f.Add("/", query)
		f.Add("/runs/new", query)
		f.Add("/operations/new", query)
	}
	f.Fuzz(func(t *testing.T, route, query string) {
		z.ask(t, request{method: "GET", target: plain.Replace(chosen(routes, route)) + "?" + query})
	})
}

// FuzzPath requests any address.
func FuzzPath(f *testing.F) {
	z := newFuzzed(f)
	for _, pattern := range append(z.routesOf(http.MethodGet, func(string) bool { return true }), z.routesOf(http.MethodPost, func(string) bool { return true })...) {
		f.Add(strings.TrimPrefix(plain.Replace(pattern), "/"))
		for _, odd := range []string{"..", "a%2Fb", "%00", "%C0%80", "%E2%80%AE", "%22%3E%3Cscript%3E", "9223372036854775808", ""} {
			f.Add(strings.TrimPrefix(strings.NewReplacer("{campaign}", odd, "{seq}", odd, "{name}", odd, "{run}", odd, "{operation}", odd, "{topic}", odd, "{publisher}", odd).Replace(pattern), "/"))
		}
	}
	for _, odd := range []string{"/evil.example", "\\evil.example", "..//..", "%2e%2e/", ";a=b", "static/../rows", "api", "api/", "campaigns/", "campaigns//", "%zz", "rows/c-1/2/"} {
		f.Add(odd)
	}
	f.Fuzz(func(t *testing.T, path string) { z.ask(t, request{method: "GET", target: "/" + path}) })
}

// listRoutes are the lists that page by a cursor.
var listRoutes = []string{
	"/rows?", "/rows?status=dead&", "/rows?reverse=true&", "/campaigns?", "/campaigns?sort=lag&", "/campaigns?sort=age&reverse=true&", "/campaigns?state=blocked&", "/campaigns/c-1/events?",
	"/campaigns/c-1/skips?", "/operations?", "/operations/1/rows?", "/operations/1/rows?only=left&", "/runs?", "/runs/1/results?", "/runs/1/log?", "/audit?", "/audit?reverse=true&",
	"/failures?", "/failures/groups?", "/projections/campaigns/cursors?", "/projections/campaigns/cursors?state=behind&", "/publishers/scenes/archive/history?",
}

// FuzzCursor pages through every list with any cursor, both as in an address and as packed by
// lists.
func FuzzCursor(f *testing.F) {
	z := newFuzzed(f)
	for _, list := range listRoutes {
		a := z.get(apiPrefix + list + "limit=1")
		for _, name := range []string{"next_cursor", "previous_cursor"} {
			_, rest, _ := strings.Cut(a.body, `"`+name+`":"`)
			cursor, _, found := strings.Cut(rest, `"`)
			packed, err := base64.RawURLEncoding.DecodeString(cursor)
			if found && err == nil {
				f.Add(list, string(packed))
			}
			f.Add(list, cursor)
		}
	}
	for _, name := range cursorNames {
		f.Add("/rows?", name+"\x001\x002\x00c-1")
		f.Add("/campaigns?sort=lag&", name+"\x001795244400000000\x00c-1")
	}
	f.Fuzz(func(t *testing.T, list, cursor string) {
		list = chosen(listRoutes, list)
		for _, value := range []string{url.QueryEscape(cursor), base64.RawURLEncoding.EncodeToString([]byte(cursor))} {
			z.ask(t, request{method: "GET", target: apiPrefix + list + "limit=2&cursor=" + value})
			z.ask(t, request{method: "GET", target: list + "limit=2&cursor=" + value})
		}
	})
}

// FuzzForm sends any form to any action, where actions are done and where the server is read-only.
func FuzzForm(f *testing.F) {
	writable, readOnly := newFuzzed(f), newFuzzed(f, func(c *Config) { c.ReadOnly = true })
	routes := writable.routesOf(http.MethodPost, func(pattern string) bool { return !strings.HasPrefix(pattern, apiPrefix) })
	for _, route := range routes {
		f.Add(route, neededBodies[route])
		all := url.Values{}
		fields(find(formParams, route), func(name string, _ reflect.Type) {
			all.Set(name, anyValue(name))
			f.Add(route, name+"="+url.QueryEscape(anyValue(name)))
		})
		f.Add(route, all.Encode())
		f.Add(route, "reason=%00&confirm=%ff&idempotency_key=a&expected_status=dead&%")
	}
	f.Fuzz(func(t *testing.T, route, body string) {
		r := request{method: "POST", target: plain.Replace(chosen(routes, route)), kind: "application/x-www-form-urlencoded", body: body}
		writable.ask(t, r)
		readOnly.ask(t, r)
	})
}

// FuzzBody sends any JSON to any action of the API.
func FuzzBody(f *testing.F) {
	z := newFuzzed(f)
	routes := z.routesOf(http.MethodPost, func(pattern string) bool { return strings.HasPrefix(pattern, apiPrefix) })
	for _, route := range routes {
		f.Add(route, neededBodies[route])
		f.Add(route, `{"reason":"x","expected":{"status":"dead","attempt_count":2,"head_seq":2}}`)
		fields(find(bodyParams, strings.TrimPrefix(route, apiPrefix)), func(name string, kind reflect.Type) {
			for _, value := range []string{quoteRaw(anyValue(name)), "1", "true", `["c-1"]`, `{"a":null}`, "null"} {
				f.Add(route, `{"`+name+`":`+value+`}`)
			}
		})
	}
	f.Add(apiPrefix+"/operations", `{"kind":"retry","rows":[{"campaign_id":"c-1","seq":2}],"canary":true,"expected_rows":1,"confirm":"x"}`)
	f.Add(apiPrefix+"/runs", `{"kind":"rebuild","campaign_ids":["c-1"],"projections":["campaigns"],"until_seq":2,"reason":"x","rate":10}`)
	f.Add(apiPrefix+"/publishers/{topic}/{publisher}/seek", `{"position":1,"time":"","dry_run":true,"expected":{"repeats":0,"skips":0}}`)
	f.Fuzz(func(t *testing.T, route, body string) {
		z.ask(t, request{method: "POST", target: plain.Replace(chosen(routes, route)), kind: "application/json", body: body})
	})
}

// FuzzAppend appends any event or batch, on any condition.
func FuzzAppend(f *testing.F) {
	z := newFuzzed(f)
	for _, body := range []string{
		`{"event_type":"a","payload":{"n":1}}`,
		`{"event_id":"e-1","event_type":"a","payload":{"a":[1,{"b":"\u0000"}],"a":9007199254740993},"tags":{"k":"v"},"metadata":{},"occurred_at":"2026-11-21T07:30:00Z"}`,
		`{"events":[{"event_type":"a","payload":{}},{"event_type":"b","payload":{},"seq":9}],"expected_seq":2}`,
		`{"event_type":"a","payload":{},"condition":{"after_position":0,"items":[{"event_types":["a"],"tags":{"k":"v"}}]}}`,
		`{"events":[{"event_type":"a","payload":{}}],"condition":{"after_position":9,"items":[{"tags":{"k":"v"}},{"event_types":["b","c"]}]}}`,
		`{"campaign_id":"c-2","event_type":"\ud800","payload":null}`,
		`{"event_type":"a","payload":` + strings.Repeat(`[`, 2000) + strings.Repeat(`]`, 2000) + `}`,
	} {
		f.Add("c-1", body)
	}
	f.Add("\u202e../\x01", `{"event_type":"a","payload":{}}`)
	f.Fuzz(func(t *testing.T, campaign, body string) {
		z.ask(t, request{method: "POST", target: apiPrefix + "/campaigns/" + url.PathEscape(campaign) + "/events", kind: "application/json", body: body})
	})
}
