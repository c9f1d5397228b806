package handlers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
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
func (z *fuzzed) ask(t *testing.T, r sent) {
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

// anyValue is a value of a parameter, to begin with.
func anyValue(name string) string {
	values := map[string]string{"status": "dead", "state": "blocked", "sort": "lag", "reverse": "true", "limit": "1", "span": "day", "format": "json", "campaign": "c-1", "campaign_id": "c-1",
		"kind": "requeue", "action": "requeue", "since": "2026-11-21", "until": "2026-11-21T07:30:00Z", "timeout": "1ms", "wait": "applied", "part": "payload", "path": "/n", "rows": "c-1/2",
		"fingerprint": "x", "q": "a", "canary": "true", "all_campaigns": "true", "confirm": "x", "position": "1"}
	if value, known := values[name]; known {
		return value
	}
	return "1"
}

// FuzzRequest sends any request, and forms also where the server is read-only.
func FuzzRequest(f *testing.F) {
	writable, readOnly := newFuzzed(f), newFuzzed(f, func(c *Config) { c.ReadOnly = true })
	seeds, step := 0, size.Of(7, 2, 1)
	add := func(r sent) {
		if seeds++; seeds%step == 0 {
			f.Add(r.method, r.target, r.kind, r.body)
		}
	}
	for _, r := range everyRequest(f, writable.site) {
		add(r)
		route := writable.entry(f, r.method, r.target)
		below, api := strings.CutPrefix(route.pattern, apiPrefix)
		plain := r
		for _, name := range route.takes.names() {
			r.target = plain.target + "?" + name + "=" + url.QueryEscape(anyValue(name))
			add(r)
		}
		r = plain
		if r.method == http.MethodPost && api {
			fields(reflect.TypeOf(writable.paramsOf(below, true)), func(name string, _ reflect.Type) {
				for _, value := range []string{quoteRaw(anyValue(name)), "1", `["c-1"]`, "null"} {
					r.body = `{"` + name + `":` + value + `}`
					add(r)
				}
			})
		} else if r.method == http.MethodPost {
			fields(reflect.TypeOf(writable.paramsOf(below, false)), func(name string, _ reflect.Type) {
				r.body = name + "=" + url.QueryEscape(anyValue(name))
				add(r)
			})
		}
	}
	odd := oddRequests(f, writable.site)
	for i := 0; i < len(odd); i += 97 {
		add(odd[i])
	}
	for _, query := range []string{"status=lost&limit=201&cursor=%ff", "limit=1&limit=2", "%", "a;b", "q=%00", "kind=verify&all_campaigns=true&projections=campaigns&campaigns=c-1%0ac-2&until_seq=2&reason=x", "rows=c-1%2f2&rows=c-4/2"} {
		add(sent{method: "GET", target: "/runs/new?" + query})
		add(sent{method: "GET", target: "/operations/new?" + query})
	}
	for _, cursor := range oddCursors()[:size.Of(10, 60, 200)] {
		add(sent{method: "GET", target: apiPrefix + "/rows?limit=1&cursor=" + cursor})
		add(sent{method: "GET", target: "/campaigns?sort=lag&cursor=" + cursor})
	}
	for _, path := range []string{"/evil.example", "\\evil.example", "..//..", "%2e%2e/", ";a=b", "static/../rows", "api", "api/", "campaigns//", "%zz", "campaigns/%C0%80", "campaigns/%E2%80%AE/events/9223372036854775808"} {
		add(sent{method: "GET", target: "/" + path})
	}
	for _, body := range []string{
		`{"event_id":"e-1","event_type":"a","payload":{"a":[1,{"b":"\u0000"}],"a":9007199254740993},"tags":{"k":"v"},"metadata":{},"occurred_at":"2026-11-21T07:30:00Z"}`,
		`{"events":[{"event_type":"a","payload":{}},{"event_type":"b","payload":{},"seq":9}],"expected_seq":2}`,
		`{"events":[{"event_type":"a","payload":{}}],"condition":{"after_position":9,"items":[{"tags":{"k":"v"}},{"event_types":["b","c"]}]}}`,
		`{"event_type":"a","payload":` + strings.Repeat(`[`, 2000) + strings.Repeat(`]`, 2000) + `}`,
	} {
		add(sent{method: "POST", target: apiPrefix + "/campaigns/c-1/events", kind: "application/json", body: body})
	}
	f.Fuzz(func(t *testing.T, method, target, kind, body string) {
		r := sent{method: method, target: target, kind: kind, body: body}
		writable.ask(t, r)
		if strings.HasPrefix(kind, "application/x-www-form-urlencoded") {
			readOnly.ask(t, r)
		}
	})
}
