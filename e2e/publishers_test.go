package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

type partner struct {
	url string

	mu      sync.Mutex
	refusal func(path, event string) int // the status of an event that is refused; 0 accepts it
	answer  string                       // to what is refused
	got     []string
}

func newPartner(t *testing.T, refusal func(path, event string) int) *partner {
	p := &partner{refusal: refusal, answer: oddAnswer}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *partner) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if status := p.refusal(r.URL.Path, string(body)); status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, p.answer)
		return
	}
	p.got = append(p.got, string(body))
	w.WriteHeader(http.StatusNoContent)
}

const oddAnswer = "</bdi></code></pre><script>alert(1)</script> \u202egnp.exe is not known here"

func (p *partner) becomes(refusal func(path, event string) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = refusal
}

func always(status int) func(path, event string) int {
	return func(string, string) int { return status }
}

func refusing(text string) func(path, event string) int {
	return func(_, event string) int {
		if strings.Contains(event, text) {
			return http.StatusUnprocessableEntity
		}
		return 0
	}
}

// quickPublisher are keys of a publisher that does not keep tests waiting.
const quickPublisher = "allow_private: true, poll_interval: 50ms, max_errors: 3, failed_retry: 1h, retry_base: 10ms, retry_max: 100ms"

// partnerConfig has one publisher, sales/partner, of every event.
func partnerConfig(t *testing.T, d databases, p *partner) []string {
	return append(d.config(t, fmt.Sprintf(`
topics:
  sales:
    match: {event_types: ["*"]}
    publishers:
      partner: {url: %q, %s}
`, p.url+"/events", quickPublisher)), "--poll-interval", "100ms")
}

// troubledPublishers are publishers in every state that pages show: one well, one whose destination is down, one with a
// refused event, one whose destination is gone, and two that are paused; and two receivers of alerts, one well and one
// down.
func troubledPublishers(t *testing.T, d databases) []string {
	p := newPartner(t, func(path, _ string) int {
		return map[string]int{"/away": http.StatusServiceUnavailable, "/no": http.StatusUnprocessableEntity, "/gone": http.StatusGone}[path]
	})
	file := filepath.Join(d.dir, "delivered", "events.ndjson")
	must.OK(t, os.MkdirAll(filepath.Dir(file), 0o700))
	return d.config(t, fmt.Sprintf(`
alerts:
  to: [chat, pager]
  receivers:
    chat: {url: "slack+%[6]s/chat", allow_private: true}
    pager: {url: %[2]q, allow_private: true}
  rules:
    dead_rows: {for: 0}
topics:
  everything:
    match: {event_types: ["*"]}
    publishers:
      archive: {url: %[1]q}
      away: {url: %[2]q, %[5]s}
      quiet: {url: %[2]q, %[5]s}
  some.of-them_only:
    match:
      event_types: ["session.*", "scene.*"]
      required_tags: [campaign_id]
      exact_tags: {actor_type: "</script><b>\u202e"}
      any_of_tags: [session_id, "<i>"]
    publishers:
      nothing-ever-matches-here-and-the-name-of-it-is-as-long-as-a-name-of-a-publisher-may-be-which-is-100: {url: "log:"}
  sessions:
    match: {event_types: ["session.*"]}
    publishers:
      refused: {url: %[3]q, allow_private: true, retry_base: 1h, retry_max: 1h}
      gone: {url: %[4]q, %[5]s}
      quiet: {url: "log:"}
`, "file://"+file, p.url+"/away", p.url+"/no", p.url+"/gone", quickPublisher, p.url))
}

// awaitPublishers waits until each of these publishers is in trouble, and pauses another.
func awaitPublishers(t *testing.T, s *server) {
	s.post(t, http.StatusOK, "/api/v1/publishers/everything/quiet/pause", map[string]any{"reason": "they asked for a quiet night"})
	for path, want := range map[string]string{ // each stays so
		"everything/archive": `"lag_events":0`, "everything/away": `"status":"failed"`, "sessions/refused": `"error_count":1`, "sessions/gone": `"stopped":true`, "everything/quiet": `"status":"paused"`,
	} {
		s.awaitAnswer(t, http.MethodGet, "/api/v1/publishers/"+path, nil, http.StatusOK, want)
	}
}

var publisherPages = map[string]string{
	"publishers": "/publishers", "publisher": "/publishers/everything/archive", "publisher-away": "/publishers/everything/away?span=day", "publisher-refused": "/publishers/sessions/refused",
	"publisher-gone": "/publishers/sessions/gone", "publisher-paused": "/publishers/everything/quiet",
	"publisher-long": "/publishers/some.of-them_only/nothing-ever-matches-here-and-the-name-of-it-is-as-long-as-a-name-of-a-publisher-may-be-which-is-100",
	"seek":           "/publishers/sessions/refused/seek", "seek-back": "/publishers/everything/archive/seek?to=beginning", "seek-skips": "/publishers/sessions/refused/seek?to=head", "seek-wrong": "/publishers/sessions/refused/seek?to=time&time=yesterday",
}

// publisher has a publisher whose destination is down, and refuses an event once it is back.
func (o *onCall) publisher() {
	p := newPartner(o.t, always(http.StatusServiceUnavailable))
	config := partnerConfig(o.t, o.d, p)
	o.serve = append(slices.Clone(o.serve), config...)
	o.env["OUTBOXWEB_CONFIG"], o.env["TOPIC"], o.env["PUB"] = config[1], "sales", "partner"
	o.start()
	appendTo(o.t, o.s, "", "table", seats("ana", "ben"))
	o.awaitPublisher(`"status":"failed"`)
	o.before["Test the destination once it is fixed"] = func() { p.becomes(refusing("seat-13")) }
	o.before["The destination answered 410"] = func() {
		p.becomes(always(http.StatusGone))
		appendTo(o.t, o.s, "", "table", []event{taken("seat-12", "dee")})
		o.awaitPublisher(`"stopped":true`)
	}
	o.before["Bring it back after a 410"] = func() { p.becomes(refusing("seat-13")) }
	o.before["One event is rejected"] = func() {
		appendTo(o.t, o.s, "", "table", []event{taken("seat-13", "eve"), taken("seat-14", "zoe")})
		o.awaitPublisher(`"status":"failed"`)
		o.env["POS"] = fmt.Sprint(scalar[int64](o.t, o.d.journal(), "select error_position from publisher_progress"))
	}
}

func (o *onCall) awaitPublisher(text string) {
	o.s.awaitAnswer(o.t, http.MethodGet, "/api/v1/publishers/sales/partner", nil, http.StatusOK, text)
}

// hears waits until something that has come says all of it.
func (p *partner) hears(t *testing.T, texts ...string) {
	eventually(t, fmt.Sprintf("%q has come", texts), func() (bool, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.got, func(got string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(got, text) })
		}), strings.Join(p.got, "\n")
	})
}

// gate is the address at which readers reach one server after another, as at a proxy.
type gate struct {
	url string
	to  atomic.Pointer[url.URL]
}

// newGate opens a gate; what is between it and the server may be wrapped.
func newGate(t *testing.T, wraps ...func(http.Handler) http.Handler) *gate {
	g := &gate{}
	var way http.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(g.to.Load())
		r.Out.Host = r.In.Host
	}}
	for _, wrap := range wraps {
		way = wrap(way)
	}
	server := httptest.NewServer(way)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gate) start(t *testing.T, d databases, flags ...string) *server {
	s := start(t, d, append([]string{"--public-origin", g.url}, flags...)...)
	to := must.Get(url.Parse(s.url)).Or(t)
	g.to.Store(to)
	s.url = g.url
	return s
}
