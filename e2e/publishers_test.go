package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// partner is an external system that receives webhooks.
type partner struct {
	url string

	mu      sync.Mutex
	refusal func(path, event string) int // the status of an event that is refused; 0 accepts it
	got     []string                     // ids of accepted events, in order
}

func newPartner(t *testing.T, refusal func(path, event string) int) *partner {
	p := &partner{refusal: refusal}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *partner) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event struct{ ID string }
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if status := p.refusal(r.URL.Path, string(body)); status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, oddAnswer)
		return
	}
	if !strings.HasPrefix(event.ID, "test-") {
		p.got = append(p.got, event.ID)
	}
	w.WriteHeader(http.StatusNoContent)
}

// oddAnswer is an answer of a malicious partner.
const oddAnswer = "</bdi></code></pre><script>alert(1)</script> \u202egnp.exe is not known here"

// becomes changes what the partner accepts.
func (p *partner) becomes(refusal func(path, event string) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = refusal
}

func (p *partner) took() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.got, " ")
}

// always is a partner's answer to everything.
func always(status int) func(path, event string) int {
	return func(string, string) int { return status }
}

// refusing is a partner that refuses events with a text in them.
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

// troubledPublishers are publishers in every state that pages show: one well, one whose destination
// is down, one with a refused event, one whose destination is gone, and two that are paused. The
// configuration has more after them.
func troubledPublishers(t *testing.T, d databases, more string) []string {
	t.Helper()
	p := newPartner(t, func(path, _ string) int {
		return map[string]int{"/away": http.StatusServiceUnavailable, "/no": http.StatusUnprocessableEntity, "/gone": http.StatusGone}[path]
	})
	file := filepath.Join(d.dir, "delivered", "events.ndjson")
	must.OK(t, os.MkdirAll(filepath.Dir(file), 0o700))
	return d.config(t, alertsConfig(p)+fmt.Sprintf(`
topics:
  everything:
    match: {event_types: ["*"]}
    publishers:
      archive: {url: %q}
      away: {url: %q, %[5]s}
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
`, "file://"+file, p.url+"/away", p.url+"/no", p.url+"/gone", quickPublisher)+more)
}

// awaitPublishers waits until each of these publishers is in trouble, and
// pauses another.
func awaitPublishers(t *testing.T, s *server) {
	t.Helper()
	s.post(t, http.StatusOK, "/api/v1/publishers/everything/quiet/pause", map[string]any{"reason": "they asked for a quiet night"})
	eventually(t, patience, "the publishers are as they will stay", func() (bool, string) {
		for path, want := range map[string]string{
			"everything/archive": `"lag_events":0`, "everything/away": `"status":"failed"`, "sessions/refused": `"error_count":1`, "sessions/gone": `"stopped":true`, "everything/quiet": `"status":"paused"`,
		} {
			if a := do(t, s, http.MethodGet, "/api/v1/publishers/"+path, nil); !strings.Contains(string(a.body), want) {
				return false, string(a.body)
			}
		}
		return true, ""
	})
}

// publisherPages are the pages of these publishers.
var publisherPages = map[string]string{
	"publishers": "/publishers", "publisher": "/publishers/everything/archive", "publisher-away": "/publishers/everything/away?span=day", "publisher-refused": "/publishers/sessions/refused",
	"publisher-gone": "/publishers/sessions/gone", "publisher-paused": "/publishers/everything/quiet",
	"publisher-long": "/publishers/some.of-them_only/nothing-ever-matches-here-and-the-name-of-it-is-as-long-as-a-name-of-a-publisher-may-be-which-is-100",
	"seek":           "/publishers/sessions/refused/seek", "seek-back": "/publishers/everything/archive/seek?to=beginning", "seek-skips": "/publishers/sessions/refused/seek?to=head", "seek-wrong": "/publishers/sessions/refused/seek?to=time&time=yesterday",
}

// The example on the page without publishers is a configuration that a server starts with.
func TestPublishers_theExampleOnThePageWorks(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	s := start(t, d)
	_, example, _ := strings.Cut(string(do(t, s, http.MethodGet, "/publishers", nil).body), "<pre")
	_, example, _ = strings.Cut(example, ">")
	example, _, _ = strings.Cut(example, "</pre>")
	example = regexp.MustCompile("<[^>]*>").ReplaceAllString(example, "")
	const file, secret = "file:///var/lib/outboxweb/", "${PARTNER_SECRET}"
	if strings.Count(example, file) != 1 || strings.Count(example, secret) != 1 {
		t.Fatalf("the example is\n%s", example)
	}
	s.stop(t)
	example = strings.NewReplacer(file, "file://"+t.TempDir()+"/", secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq=").Replace(html.UnescapeString(example))
	s = start(t, d, d.config(t, example)...)
	appendTo(t, s, "", "c-1", seats("ana"))
	eventually(t, patience, "the file has the event", func() (bool, string) {
		a := do(t, s, http.MethodGet, "/api/v1/publishers/everything/archive", nil)
		return strings.Contains(string(a.body), `"delivered":1,`), string(a.body)
	})
}

// A failing webhook is shown on the overview, paused, tried with a test event once it is fixed,
// resumed, and drained: all in the browser.
func TestBrowser_aFailingWebhookIsPausedMendedAndDrained(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabases(t)
			p := newPartner(t, always(http.StatusBadGateway))
			s := start(t, d, partnerConfig(t, d, p)...)
			appendTo(t, s, "", "c-1", seats("ana", "ben", "cem"))
			b := kind.open(t, s)
			b.open("/")
			b.lookUntil("the overview is loud about it", telling(marked("publishers"), "The only publisher has failed."))
			b.click(marked("publishers") + " li a")
			b.at("/publishers/sales/partner")
			b.await("the page says why", telling(marked("publisher-why"), "Failed after 3 errors in a row; next attempt in")+" && "+
				telling(marked("publisher-error"), "502")+" && "+telling(marked("publisher-error"), "<script>alert(1)</script>")+" && "+telling(marked("blame"), "as far as its answer says"))
			b.await("and which event waits", telling(marked("error-event"), "event 1"))
			b.sound("a publisher that has failed")

			b.click(marked("publisher-test"))
			b.await("a test event fails", telling(marked("flash"), "Sent a test event to publisher sales/partner: ")+" && "+telling(marked("flash"), "502"))
			b.typeInto("#pause-reason", "they mend it")
			b.click(marked("publisher-pause"))
			b.await("it is paused", telling(marked("flash"), "Paused publisher sales/partner.")+" && "+telling(marked("publisher-why"), "Paused by local"))
			b.sound("a paused or failed publisher")
			b.open("/publishers")
			b.lookUntil("the list says so", telling(marked("publisher-sales/partner"), "they mend it")+" && "+saying(marked("lag"), "3"))
			b.sound("the list of publishers")

			p.becomes(always(0))
			b.click(marked("publisher-sales/partner") + " th a")
			b.at("/publishers/sales/partner")
			b.click(marked("publisher-test"))
			b.await("a test event gets through", telling(marked("flash"), "delivered in"))
			b.typeInto("#resume-reason", "they are back")
			b.click(marked("publisher-resume"))
			b.await("it goes on", telling(marked("flash"), "Resumed publisher sales/partner"))
			b.lookUntil("everything is delivered", telling(marked("publisher-why"), "Up to date")+" && "+saying(marked("lag"), "0"))
			if took := p.took(); took != "1 2 3" {
				t.Errorf("the partner took %s, want 1 2 3", took)
			}
			b.await("no error is left", `!document.querySelector(`+js(marked("publisher-error"))+`)`)
			b.await("the acts are told", telling("#live", "Paused publisher")+" && "+telling("#live", "they are back"))
			b.open("/")
			b.lookUntil("the overview is calm", telling(marked("publishers"), "The only publisher is up to date."))
			b.open("/audit")
			b.await("the acts lead to the publisher", `document.querySelectorAll("a[href='/publishers/sales/partner']").length === 4`)
			checkClean(t, d)
		})
	}
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
	o.t.Helper()
	eventually(o.t, patience, "the publisher is "+text, func() (bool, string) {
		a := do(o.t, o.s, http.MethodGet, "/api/v1/publishers/sales/partner", nil)
		return strings.Contains(string(a.body), text), string(a.body)
	})
}
