package destination_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

type request struct {
	header http.Header
	path   string
	body   []byte
	from   string
}

func (r request) positions(tb testing.TB) []int64 {
	body := r.body
	if r.header.Get("Content-Type") != "application/cloudevents-batch+json" {
		body = fmt.Appendf(nil, "[%s]", body)
	}
	var events []struct{ Data event.Event }
	err := json.Unmarshal(body, &events)
	must.Need(tb, err == nil, "%v: %s", err, body)
	var list []int64
	for _, e := range events {
		list = append(list, e.Data.Position)
	}
	return list
}

// receiver is a webhook's server with TLS. answer decides about each request.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

func newReceiver(tb testing.TB, answer func(w http.ResponseWriter, r request)) *receiver {
	var server receiver
	server.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must.Hold(tb, err == nil, "%v", err)
		got := request{header: r.Header.Clone(), path: r.RequestURI, body: body, from: r.RemoteAddr}
		server.mu.Lock()
		server.requests = append(server.requests, got)
		server.mu.Unlock()
		answer(w, got)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that part
	server.StartTLS()
	tb.Cleanup(server.Close)
	return &server
}

func accept(http.ResponseWriter, request) {}

func status(code int, header ...string) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, _ request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "because\tof\r\n<this>\x00\xff")
	}
}

func (s *receiver) got() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *receiver) positions(tb testing.TB) (list []int64) {
	for _, r := range s.got() {
		list = append(list, r.positions(tb)...)
	}
	return list
}

// hook opens a webhook to the receiver, whose certificate it trusts.
func (s *receiver) hook(tb testing.TB, lines ...string) destination.Publisher {
	ca := certificateFile(tb, s.Server)
	return open(tb, append([]string{"url: " + s.URL + "/in?key=k", "allow_private: true", "ca_file: " + ca}, lines...)...)
}

func certificateFile(tb testing.TB, s *httptest.Server) string {
	path := filepath.Join(tb.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	must.OK(tb, os.WriteFile(path, block, 0o600))
	return path
}

// certificate is a server certificate for 127.0.0.1, and the file of the CA to trust.
func certificate(tb testing.TB) (config *tls.Config, caFile string) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}, certificateFile(tb, s)
}

func TestWebhook_postsEachEventSigned(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, accept)
	const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	p := server.hook(t, "secret: [ "+other+", "+secret+" ]", "headers: {authorization: Bearer x}")
	deliver(t, p, 7, 9)
	deliver(t, p, 7, 7)
	got := server.got()
	wantRange(t, server.positions(t)[:3], 7, 9)
	publishAll(t, p, []*destination.Event{destination.TestEvent(destination.Source("j1"), "test-1")})
	must.Equal(t, server.got()[4].header.Get("Webhook-Id"), "scenes.p.test-1", "the id of a test event")
	deliver(t, server.hook(t), 1, 1)
	for name := range server.got()[5].header {
		must.Hold(t, !strings.HasPrefix(name, "Webhook-"), "without a secret %s is sent", name)
	}
	for i, r := range got {
		for _, s := range []string{other, secret} {
			verifier := must.Get(standardwebhooks.NewWebhook(s)).Or(t)
			must.OK(t, verifier.Verify(r.body, r.header))
		}
		for name, want := range map[string]string{
			"Content-Type": "application/cloudevents+json", "User-Agent": "outboxweb/1.2.3", "Authorization": "Bearer x",
			"Webhook-Id": fmt.Sprintf("scenes.p.%d", []int{7, 8, 9, 7}[i]),
		} {
			must.Equal(t, r.header.Get(name), want, "the header", name)
		}
		must.Hold(t, r.path == "/in?key=k" && r.from == got[0].from, "to %s over %s, the first over %s", r.path, r.from, got[0].from)
	}
}

func TestWebhook_postsBatches(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, accept)
	p := server.hook(t, "format: batch", "secret: "+secret)
	deliver(t, p, 7, 20)
	deliver(t, p, 21, 21)
	got := server.got()
	if len(got) != 2 || got[0].header.Get("Webhook-Id") != "scenes.p.7-20" || got[1].header.Get("Webhook-Id") != "scenes.p.21-21" {
		t.Errorf("%d requests, ids %s and %s", len(got), got[0].header.Get("Webhook-Id"), got[1].header.Get("Webhook-Id"))
	}
	wantRange(t, server.positions(t), 7, 21)
}

func TestWebhook_keepsRequestsSmall(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, accept)
	p := server.hook(t, "format: batch")
	var events []*destination.Event
	for i, size := range []int{400_000, 400_000, 400_000, 400_000, 400_000, 1_200_000, 1_200_000} {
		events = append(events, destination.NewEvent(noisy(int64(i)+1, size), destination.Source("j1")))
	}
	publishAll(t, p, events)
	wantRange(t, server.positions(t), 1, 7)
	for _, r := range server.got() {
		must.Hold(t, len(r.body) <= 1<<20 || len(r.positions(t)) == 1, "a request of %d bytes", len(r.body))
	}
}

func TestWebhook_judgesAnswers(t *testing.T) {
	t.Parallel()
	const destination, event = operator.DestinationError, operator.UnknownError
	inHalfAnHour := time.Now().Add(30 * time.Minute).UTC().Format(http.TimeFormat)
	for _, test := range []struct {
		code   int
		header []string
		kind   operator.DeliveryErrorKind
		retry  time.Duration
		gone   bool
		says   string
	}{
		{code: 400, kind: event, says: "answered 400 Bad Request: because of <this>"},
		{code: 409, kind: event}, {code: 413, kind: event}, {code: 415, kind: event}, {code: 418, kind: event}, {code: 422, kind: event}, {code: 500, kind: event},
		{code: 401, kind: destination}, {code: 403, kind: destination}, {code: 404, kind: destination}, {code: 405, kind: destination}, {code: 501, kind: destination},
		{code: 408, kind: destination}, {code: 425, kind: destination}, {code: 502, kind: destination}, {code: 504, kind: destination}, {code: 599, kind: destination},
		{code: 429, header: []string{"Retry-After", "7"}, kind: destination, retry: 7 * time.Second, says: "answered 429 Too Many Requests"},
		{code: 503, header: []string{"Retry-After", "9223372037"}, kind: destination, retry: time.Hour},
		{code: 503, header: []string{"Retry-After", inHalfAnHour}, kind: destination, retry: 30 * time.Minute},
		{code: 503, header: []string{"Retry-After", "99999999999999999999"}, kind: destination, retry: time.Hour},
		{code: 503, header: []string{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}, kind: destination, retry: time.Hour},
		{code: 503, header: []string{"Retry-After", "-3"}, kind: destination},
		{code: 503, header: []string{"Retry-After", "-9223372037"}, kind: destination}, // overflows as nanoseconds
		{code: 503, header: []string{"Retry-After", "1.5"}, kind: destination},
		{code: 503, header: []string{"Retry-After", "soon"}, kind: destination},
		{code: 410, kind: destination, gone: true, says: "does not accept events any more"},
		{code: 302, header: []string{"Location", "/elsewhere"}, kind: destination, says: "and points to https://127.0.0.1"},
		{code: 308, kind: destination, says: "redirects are not followed"},
	} {
		t.Run(fmt.Sprint(test.code, " ", test.header), func(t *testing.T) {
			t.Parallel()
			server := newReceiver(t, func(w http.ResponseWriter, r request) {
				if strings.Contains(string(r.body), `"id":"3"`) {
					status(test.code, test.header...)(w, r)
				}
			})
			blame := refused(t, server.hook(t), 1, 4, 2, test.kind, test.says)
			must.Hold(t, blame.Gone == test.gone && (blame.RetryAfter-test.retry).Abs() <= test.retry/10 && (blame.RetryAfter == 0) == (test.retry == 0), "gone %t, retry after %v", blame.Gone, blame.RetryAfter)
			must.Equal(t, len(server.got()), 3, "requests")
			must.Hold(t, strings.Contains(blame.Error(), fmt.Sprint(test.code)) && !strings.ContainsAny(blame.Error(), "\n\r\t\x00"), "says %q", blame.Error())
		})
	}
}

func TestWebhook_findsTheEventAtFaultInABatch(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, func(w http.ResponseWriter, r request) {
		if strings.Contains(string(r.body), `"id":"4"`) {
			status(422)(w, r)
		}
	})
	refused(t, server.hook(t, "format: batch"), 1, 6, 3, operator.UnknownError, "answered 422")
	var ids []string
	for _, r := range server.got() {
		ids = append(ids, fmt.Sprint(r.positions(t)))
	}
	must.Equal(t, strings.Join(ids, " "), "[1 2 3 4 5 6] [1] [2] [3] [4]", "requests")
	alone := newReceiver(t, status(422))
	refused(t, alone.hook(t, "format: batch"), 1, 1, 0, operator.UnknownError, "answered 422")
	must.Equal(t, len(alone.got()), 1, "requests of a batch of one event")
	small := newReceiver(t, func(w http.ResponseWriter, r request) {
		if len(r.positions(t)) > 1 {
			status(413)(w, r)
		}
	})
	deliver(t, small.hook(t, "format: batch"), 1, 3)
}

func TestWebhook_saysWhatHappenedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := newReceiver(t, func(_ http.ResponseWriter, _ request) { <-release })
	t.Cleanup(func() { close(release) })
	dropping := newReceiver(t, func(http.ResponseWriter, request) { panic(http.ErrAbortHandler) })
	away := newReceiver(t, accept)
	away.Close()
	refused(t, slow.hook(t, "timeout: 100ms"), 1, 2, 0, operator.DestinationError, "no response within 100ms")
	refused(t, dropping.hook(t), 1, 2, 0, operator.DestinationError, "no response: EOF")
	refused(t, newReceiver(t, status(200, "X-Long", strings.Repeat("x", 200_000))).hook(t), 1, 1, 0, operator.DestinationError, "no response")
	refused(t, away.hook(t), 1, 2, 0, operator.DestinationError, "connection refused")
	untrusted := open(t, "url: "+slow.URL+"/"+"t0ken", "allow_private: true")
	blame := refused(t, untrusted, 1, 2, 0, operator.DestinationError, "certificate")
	must.Hold(t, !strings.Contains(blame.Error(), "t0ken"), "tells the address: %v", blame)
}

func TestWebhook_leavesOffWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := newReceiver(t, func(_ http.ResponseWriter, r request) {
		if strings.Contains(string(r.body), `"id":"2"`) {
			cancel()
		}
	})
	n, err := server.hook(t).Publish(ctx, journalEvents(1, 5))
	must.Hold(t, err != nil && n <= 2 && len(server.got()) == 2, "delivered %d, %d requests: %v", n, len(server.got()), err)
}

func TestWebhook_readsAndShowsLittleOfAnAnswer(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	server := newReceiver(t, func(w http.ResponseWriter, _ request) {
		defer close(done)
		w.WriteHeader(http.StatusBadRequest)
		for range 10_000 {
			if _, err := io.WriteString(w, strings.Repeat("ä", 5000)); err != nil {
				return
			}
		}
		t.Error("all of the answer was taken")
	})
	blame := refused(t, server.hook(t), 1, 1, 0, operator.UnknownError, "answered 400 Bad Request: ä")
	n := len(blame.Error())
	must.Hold(t, n >= 500 && n <= 600, "an error of %d bytes", n)
	<-done
}

func TestWebhook_showsAStatusLineAsPrintableText(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, func(w http.ResponseWriter, _ request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		_, err = io.WriteString(connection, "HTTP/1.1 400 no\x1b[31m\u009b \x9b\u202ered\r\nContent-Length: 0\r\n\r\n")
		must.Hold(t, err == nil, "%v", err)
	})
	blame := refused(t, server.hook(t), 1, 1, 0, operator.UnknownError, "answered 400 no [31m red")
	must.Hold(t, utf8.ValidString(blame.Error()) && !strings.ContainsFunc(blame.Error(), func(r rune) bool { return !unicode.IsPrint(r) }), "it says %+q", blame)
}

func TestWebhook_goesToNoPrivateAddress(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, accept)
	for _, url := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1), "https://[::ffff:127.0.0.1]:1", "https://169.254.169.254"} {
		refused(t, open(t, "url: "+url), 1, 1, 0, operator.DestinationError, "need allow_private: true")
	}
	must.Equal(t, len(server.got()), 0, "a request arrived")
}

// Delivered events are recorded before too many of them could be lost.
func TestWebhook_returnsEarlyWhenItTakesLong(t *testing.T) {
	t.Parallel()
	server := newReceiver(t, accept)
	p := server.hook(t)
	clock := time.Now()
	destination.SetClock(p, func() time.Time { clock = clock.Add(time.Second); return clock })
	n, err := p.Publish(t.Context(), journalEvents(1, 100))
	must.Hold(t, err == nil && n >= 2 && n <= 6 && len(server.got()) == n, "delivered %d of %d: %v", n, len(server.got()), err)
}

func TestWebhook_goesInTheClearWhereAllowed(t *testing.T) {
	t.Parallel()
	var user, password string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() }))
	t.Cleanup(server.Close)
	deliver(t, open(t, "url: "+strings.Replace(server.URL, "://", "://me:${PASSWORD}@", 1), "allow_private: true"), 1, 1)
	must.Hold(t, user == "me" && password == environment["PASSWORD"], "came as %q with %q", user, password)
}

func TestWebhook_speaksHTTP2(t *testing.T) {
	t.Parallel()
	var spoken []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spoken = append(spoken, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	deliver(t, open(t, "url: "+server.URL, "allow_private: true", "ca_file: "+certificateFile(t, server)), 1, 2)
	must.Equal(t, fmt.Sprint(spoken), "[HTTP/2.0 HTTP/2.0]", "spoke")
}

// Servers and proxies close kept connections, and a request may hit that.
func TestWebhook_isNotTroubledByAConnectionThatDied(t *testing.T) {
	t.Parallel()
	died := map[string]bool{}
	var server *receiver
	server = newReceiver(t, func(w http.ResponseWriter, r request) {
		must.Hold(t, r.header["Idempotency-Key"] == nil, "a header for the transport was sent")
		server.mu.Lock()
		second := !died[r.from] && slices.ContainsFunc(server.requests[:len(server.requests)-1], func(before request) bool { return before.from == r.from })
		died[r.from] = died[r.from] || second
		server.mu.Unlock()
		if second {
			panic(http.ErrAbortHandler) // no answer
		}
	})
	deliver(t, server.hook(t), 1, 5)
	must.Equal(t, fmt.Sprint(server.positions(t)), "[1 2 2 3 3 4 4 5 5]")
}
