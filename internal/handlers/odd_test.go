package handlers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// oddTexts are texts that a client may send. PostgreSQL accepts neither NUL nor invalid UTF-8, and has its own text order.
var oddTexts = []string{
	"", " ", ".", "..", "a/b", "%00", "_*", `'"\`, "$1", "{}", "null", "İé", "e\u0301", "日本💥",
	"\uFFFD", "\uFEFF", "\U0010FFFF", "\n", "\x7f", "\u0085", "\x00", "c-1\x00", "\xff", "c-1\xff", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82",
	strings.Repeat("x", 200), strings.Repeat("é", 101), strings.Repeat("x", 10_000),
}

// oddNumbers are values that a client may send for a number.
var oddNumbers = []string{
	"", "0", "-1", "1", "+1", " 1", "01", "1.0", "1e3", "0x10", "١", "one", "NaN", "1\x00", "\xff",
	"201", "10001", "2147483647", "2147483648", "4611686018427387904", "9223372036854775807", "9223372036854775808", "-9223372036854775808", strings.Repeat("9", 400),
}

// cursorNames are the prefixes of all lists' cursors, in both directions; the empty one belongs to none.
var cursorNames = []string{"", ">seq+", "<seq-", ">due+", "<due+", ">id+", "<id-", ">lag+", "<age+", ">acts-", "<acts+",
	">operations", "<operations", ">operation-rows", "<operation-rows-left", ">skips", "<skips"}

// oddCursors are keys that no list has returned, packed as lists pack theirs.
func oddCursors() (all []string) {
	for _, name := range cursorNames {
		for _, number := range []string{"-9223372036854775808", "9223372036854775808"} {
			for _, parts := range [][]string{{name}, {name, number}, {name, number, "x"}, {name, "x", number}, {name, number, number, "\U0010FFFF"}} {
				all = append(all, base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\x00"))))
			}
		}
	}
	for _, text := range []string{"", "a", "\x01", "é\xc3", strings.Repeat("x", 500)} {
		for _, number := range []string{"0", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "x"} {
			for _, parts := range [][]string{{number}, {text, number}, {number, text}, {number, number, text}} {
				all = append(all, base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\x00"))))
			}
		}
	}
	return all
}

// oddValues are the values to try for a parameter of a query, form or body.
func oddValues(name string, kind reflect.Type) []string {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	switch {
	case name == "cursor":
		return append(oddCursors(), append(oddTexts, oddNumbers...)...)
	case kind.Kind() == reflect.String, name == "since", name == "until", kind == reflect.TypeFor[json.RawMessage]():
		return oddTexts
	case kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]():
		return []string{"", "[]"}
	}
	return oddNumbers
}

// sent is a request to be sent to several sites.
type sent struct{ method, target, body, kind, key string }

func (r sent) String() string {
	return fmt.Sprintf("%s %.300q %.300q with key %.300q", r.method, r.target, r.body, r.key)
}

func (s *site) send(r sent) answer {
	return s.do(r.method, r.target, r.body, header("Content-Type", r.kind), header("Idempotency-Key", r.key), header("Origin", "http://127.0.0.1:8080"))
}

// paramsOf is the struct that a form or a body is read into; below is its address below the API's prefix.
func (s *site) paramsOf(below string, api bool) any {
	if !api && below == "/operations" {
		return operationForm{}
	}
	if t := s.srv.routes["POST "+apiPrefix+below].api.body.types; len(t) > 0 && t[0] != reflect.TypeFor[appendbody.NewEvent]() {
		return reflect.Zero(t[0]).Interface()
	}
	return event.Event{}
}

var plain = strings.NewReplacer("{campaign}", "c-1", "{seq}", "2", "{name}", "campaigns", "{version}", "v1", "{operation}", "1", "{run}", "1", "{failure}", "1", "{topic}", "scenes", "{publisher}", "archive", "{token}", "1", "{rule}", "all", "{receiver}", "chat", "{source}", "shop", "{rejection}", "5", "/static/*", "/static/none")

// oddRequests are requests to every address with odd values in every place.
func oddRequests(t testing.TB, s *site) []sent {
	var all []sent
	must.OK(t, chi.Walk(s.srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if route == "/metrics" {
			return nil
		}
		below, api := strings.CutPrefix(route, apiPrefix)
		r := sent{method: method, kind: "application/x-www-form-urlencoded"}
		if api {
			r.kind = "application/json"
		}
		for place, values := range oddPlaces {
			for _, value := range values {
				if strings.Contains(route, place) {
					r.target = plain.Replace(strings.Replace(route, place, url.PathEscape(value), 1))
					all = append(all, r)
				}
			}
		}
		r.target = plain.Replace(route)
		all = append(all, oddQueries(r, s.srv.routes[method+" "+route].takes)...)
		if method == http.MethodPost {
			all = append(all, oddBodies(r, s.paramsOf(below, api), api)...)
		}
		return nil
	}))
	return all
}

// oddPlaces are the values to try for a part of an address.
var oddPlaces = map[string][]string{"{campaign}": oddTexts, "{name}": oddTexts, "{topic}": oddTexts, "{publisher}": oddTexts, "{rule}": oddTexts, "{receiver}": oddTexts,
	"{seq}": oddNumbers, "{operation}": oddNumbers, "{failure}": oddNumbers, "{run}": oddNumbers, "{token}": oddNumbers}

// fields calls f for each field of a struct by its json name, and for those of its structs as forms name them.
func fields(params reflect.Type, f func(name string, kind reflect.Type)) {
	for _, field := range request.Fields(params) {
		f(request.Name(field), field.Type)
		if inner := field.Type; inner.Kind() == reflect.Pointer && inner.Elem().Kind() == reflect.Struct {
			fields(inner.Elem(), func(name string, kind reflect.Type) { f(request.Name(field)+"_"+name, kind) })
		}
	}
}

func oddQueries(r sent, takes queryParameters) (all []sent) {
	target := r.target
	for _, p := range takes {
		for _, value := range oddValues(p.name(), p.field.Type) {
			r.target = target + "?" + p.name() + "=" + url.QueryEscape(value)
			if p.name() != "timeout" && takes.named("timeout") != nil {
				r.target += "&timeout=1ms"
			}
			all = append(all, r)
		}
	}
	return all
}

// oddBodies are forms or, of the API, documents with odd values for the fields of a struct, and with odd keys.
func oddBodies(r sent, params any, api bool) (all []sent) {
	fields(reflect.TypeOf(params), func(name string, kind reflect.Type) {
		for _, value := range oddValues(name, kind) {
			bodies := []string{name + "=" + url.QueryEscape(value)}
			if api {
				before := "{"
				if _, event := params.(event.Event); event {
					before = `{"event_type":"a","payload":{},`
				}
				bodies = []string{before + `"` + name + `":` + value + `}`, before + `"` + name + `":` + quoteRaw(value) + `}`}
			}
			for _, r.body = range bodies {
				all = append(all, r)
			}
		}
	})
	r.body = ""
	for _, r.key = range oddTexts {
		all = append(all, r)
	}
	return all
}

// quoteRaw makes a JSON string of any bytes, valid text or not.
func quoteRaw(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20:
			fmt.Fprintf(&b, `\u%04x`, c)
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// varying is what may differ between two sites for the same request: random ids, hashes, positions.
var varying = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|"position":\d+`)

// elision is the middle of a long id, which is in an element of its own.
var elision = regexp.MustCompile(`<i>([^<]*)</i>`)

// difference says where two answers differ; it is empty if they do not.
func difference(a, b answer) string {
	if a.StatusCode != b.StatusCode {
		return fmt.Sprintf("%d %.300s\n%d %.300s", a.StatusCode, a.body, b.StatusCode, b.body)
	}
	one, other := strings.ReplaceAll(a.body, a.Header.Get("X-Request-Id"), ""), strings.ReplaceAll(b.body, b.Header.Get("X-Request-Id"), "")
	if one == other {
		return ""
	}
	ones, others := parts(one), parts(other)
	for i := range min(len(ones), len(others)) {
		if a, b := varying.ReplaceAllString(ones[i], ""), varying.ReplaceAllString(others[i], ""); a != b && !strings.Contains(ones[max(0, i-1)], "data-as-of ") {
			return fmt.Sprintf("…%.200q\n…%.200q", a, b)
		}
	}
	if len(ones) != len(others) {
		return fmt.Sprintf("%d parts and %d", len(ones), len(others))
	}
	return ""
}

// parts cuts an answer into its tags, texts and values. Whole exports go through it.
func parts(text string) []string {
	return strings.FieldsFunc(elision.ReplaceAllString(text, "$1"), func(r rune) bool { return r == '>' || r == ',' || r == '\n' })
}

// TestPostgres_answersOddRequestsAsSQLiteDoes sends the same, or some of it, to both, and requires the same answer, which is never an
// internal error. Afterwards their lists are the same, in the same order. Database details and timings on /about may differ.
func TestPostgres_answersOddRequestsAsSQLiteDoes(t *testing.T) {
	t.Parallel()
	lite, post := newSiteOn(t, dbtest.Files(t.TempDir())).trouble(), newSite(t).trouble()
	statuses := map[int]int{}
	both := func(r sent) answer {
		for _, s := range []*site{lite, post} {
			s.store.Changed() // a slow read of a summary is shown for up to 10 s
		}
		a, b := lite.send(r), post.send(r)
		statuses[a.StatusCode]++
		diff := difference(a, b)
		must.Hold(t, (diff == "" || strings.Contains(r.target, "/about")) && a.StatusCode == b.StatusCode && a.StatusCode != http.StatusInternalServerError, "%s is answered on SQLite, then on PostgreSQL, with %d\n%s", r, a.StatusCode, diff)
		return a
	}
	all := oddRequests(t, lite)
	slices.SortStableFunc(all, func(a, b sent) int { return strings.Compare(a.method, b.method) }) // lists and exports are short until there were acts
	step := size.Of(167, 61, 1)
	chosen := rand.New(rand.NewPCG(1, 1)).Perm(len(all))[:len(all)/step] // no stride, which might meet the same kinds only
	slices.Sort(chosen)
	for _, i := range chosen {
		both(all[i])
	}
	both(sent{method: "POST", target: apiPrefix + "/campaigns/c-1/events", body: `{"event_type":"a","payload":{}}`, kind: "application/json"}).want(t, 201)
	for _, s := range []**site{&lite, &post} {
		(*s).work()
		(*s).store.SumRefusals(t.Context()) // as it does by itself a minute after the first
		later := newSiteOn(t, (*s).sub)     // the charts that this one keeps for seconds are of minutes ago by its clock
		later.clock = (*s).clock
		*s = later
	}
	for _, page := range everyPage {
		both(sent{method: "GET", target: page})
	}
	for _, list := range []string{"/campaigns?", "/campaigns?sort=lag&", "/campaigns?sort=age&", "/campaigns?state=current&", "/campaigns?q=%C3%A9&", "/rows?", "/rows?status=dead&", "/audit?", "/campaigns/c-1/events?"} {
		for cursor, pages := new(""), 0; cursor != nil && pages < 50; pages++ {
			target := apiPrefix + list + "limit=20&cursor=" + url.QueryEscape(*cursor)
			cursor = decodeAs[items[any]](t, both(sent{method: "GET", target: target}).want(t, 200)).NextCursor
		}
	}
	t.Logf("note: %d requests answered with %v", len(all), statuses)
	must.Hold(t, statuses[200]*step >= 1000 && statuses[422]*step >= 1000, "too little was asked: the answers were %v", statuses)
}

// fuzzed is a site with content on every page. One serves all inputs of a process.
type fuzzed struct {
	*site
	mu  sync.Mutex
	log bytes.Buffer // of the request that is being answered
}

func newFuzzed(f *testing.F, change ...func(*Config)) *fuzzed {
	z := new(fuzzed)
	z.site = newSite(f, append(change, tryOnStore, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&z.log, nil))
		c.TestPublisher = func(context.Context, operator.SubscriptionName) (subscription.TestDelivery, error) {
			return subscription.TestDelivery{Error: "refused"}, nil
		}
	})...)
	z.trouble().seed("c-4", "a", poison, "b").work()
	if z.srv.ReadOnly {
		return z
	}
	z.post("/api/v1/operations", `{"filter":{"campaign_id":"c-4"},"canary":true,"reason":"mended"}`).want(f, 202)
	z.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true}`).want(f, 202)
	z.post("/api/v1/rows/c-1/2/requeue", `{"reason":"mended"}`).want(f, 200)
	z.post("/api/v1/campaigns/c-2/pause", `{"reason":"a while"}`).want(f, 200)
	z.withPublisher(1).work()
	return z
}

// headersOfEveryAnswer are headers that restrict what a browser does with an answer.
var headersOfEveryAnswer = []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control", "X-Request-Id", "Content-Type"}

// ask sends a request as net/http would have parsed it. The answer must not be a server error, must carry the headers and, from the API,
// be documented. A target that net/http does not parse is skipped.
func (z *fuzzed) ask(t *testing.T, r sent) {
	head := r.method + " " + r.target + " HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:8080\r\n"
	if r.kind != "" {
		head += fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n", r.kind, len(r.body))
	}
	got, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n" + r.body)))
	if err != nil || got.Method != r.method || got.Host != "127.0.0.1:8080" {
		t.Skip("no request")
	}
	got.RemoteAddr = "127.0.0.1:5555"
	ctx, cancel := context.WithTimeout(t.Context(), must.Patience)
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
	must.Hold(t, rec.Code < 500 || (waits && (rec.Code == http.StatusGatewayTimeout || rec.Code == http.StatusServiceUnavailable)), "%s is answered with %d: %.500s\n%s", r, rec.Code, rec.Body, z.log.String())
	if waits && rec.Code == http.StatusOK && rec.Body.Len() == 0 {
		return // the request was given up before there was an answer
	}
	for _, name := range headersOfEveryAnswer {
		values := rec.Result().Header.Values(name)
		must.Hold(t, len(values) == 1 || rec.Code < 200 || rec.Code == http.StatusSeeOther || rec.Code == http.StatusMovedPermanently, "%s is answered with %d and the headers %s: %q", r, rec.Code, name, values)
	}
	checkDocumented(t, z.srv, got, rec)
}

// FuzzRequest sends any request, and forms also where the server is read-only.
func FuzzRequest(f *testing.F) {
	writable, readOnly := newFuzzed(f), newFuzzed(f, func(c *Config) { c.ReadOnly = true })
	add := func(r sent) { f.Add(r.method, r.target, r.kind, r.body) }
	every, odd := everyRequest(f, writable.site), oddRequests(f, writable.site)
	for i, step := 0, size.Of(2, 1, 1); i < len(every); i += step {
		add(every[i])
	}
	for i, step := 0, size.Of(613, 193, 107); i < len(odd); i += step {
		add(odd[i])
	}
	targets := []string{apiPrefix + "/rows?limit=1&status=dead&campaign=c-1&q=a&since=2026-11-21", "/events?q=a&since=2026-11-21&until=2026-11-21T07:30:00Z&time=occurred", "/export/rows?format=json&bom=true"}
	for _, query := range []string{"status=lost&limit=201&cursor=%ff", "limit=1&limit=2", "%", "a;b", "q=%00", "kind=verify&all_campaigns=true&projections=campaigns&campaigns=c-1%0ac-2&until_seq=2&reason=x", "rows=c-1%2f2&rows=c-4/2"} {
		targets = append(targets, "/runs/new?"+query, "/operations/new?"+query)
	}
	for _, cursor := range oddCursors()[:size.Of(3, 60, 200)] {
		targets = append(targets, apiPrefix+"/rows?limit=1&cursor="+cursor, "/campaigns?sort=lag&cursor="+cursor)
	}
	for _, path := range []string{"/evil.example", "\\evil.example", "..//..", "%2e%2e/", ";a=b", "static/../rows", "api", "api/", "campaigns//", "%zz", "campaigns/%C0%80", "campaigns/%E2%80%AE/events/9223372036854775808"} {
		targets = append(targets, "/"+path)
	}
	for _, target := range targets {
		add(sent{method: "GET", target: target})
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
