package publishing_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// hook is a publisher of every event to a webhook that fails at once and retries soon.
func hook(tb testing.TB, url string) destination.Subscription {
	var topics yaml.Node
	text := fmt.Sprintf(`everything: {match: {event_types: ["*"]}, publishers: {hook: {url: %q, allow_private: true, timeout: 500ms, max_errors: 1, failed_retry: 20ms, poll_interval: 20ms}}}`, url)
	must.OK(tb, yaml.Unmarshal([]byte(text), &topics))
	subs, _, err := destination.Config{Topics: topics.Content[0]}.Parse()
	must.OK(tb, err)
	return subs[0]
}

// advised is what every surface says of a publisher: the sentence, what an alert asks for, and the phrase
// that a skip asks for.
func advised(tb testing.TB, p outbox.Publisher) (blame, todo, phrase string) {
	for _, r := range outbox.AlertRules() {
		if causes := r.Causes(outbox.Facts{Publishers: []outbox.Publisher{p}}, time.Now()); r.What == outbox.AlertPublisher {
			must.Need(tb, len(causes) == 1, "alerts have %+v", causes)
			todo = causes[0].Todo
		}
	}
	return p.Blame(), todo, outbox.ActionPublisherSkip.Phrase(outbox.Reach{Blames: p.ErrorKind})
}

// Whether an event or its receiver is at fault is not said before another event was taken or refused, and
// what is said then is right: doing it delivers what waits.
func TestRelay_blamesNoEventBeforeAnotherWasTakenOrRefused(t *testing.T) {
	t.Parallel()
	const unknown, atDestination, atEvent = "It is not known", "A test event was not taken either", "A test event was taken"
	for name, c := range map[string]struct {
		refuses func(body []byte) bool
		slow    bool
		first   string // what is said before a test event
		tested  string // and after it
		skips   int    // the events that it leads to skip; else the receiver is mended
	}{
		"down for everything": {refuses: func([]byte) bool { return true }, first: unknown, tested: atDestination},
		"down for one event":  {refuses: func(b []byte) bool { return bytes.Contains(b, []byte(`"id":"2"`)) }, first: unknown, tested: atEvent, skips: 1},
		"down for one type":   {refuses: func(b []byte) bool { return bytes.Contains(b, []byte(`"type":"opened"`)) }, first: unknown, tested: atEvent, skips: 2},
		"slow":                {refuses: func([]byte) bool { return true }, slow: true, first: "The destination is unreachable, overloaded", tested: atDestination},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, live)
			f.appendAll(noted("c-1"), opened("c-1"), opened("c-2"), noted("c-2"))
			var mended atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				switch {
				case err != nil || mended.Load() || !c.refuses(body):
				case c.slow:
					<-r.Context().Done()
				default:
					w.WriteHeader(http.StatusInternalServerError)
				}
			}))
			t.Cleanup(server.Close)
			sub := hook(t, server.URL)
			config := receivers{}.config(f, "one", sub)
			config.Open = nil
			deliver(t, f, config)
			failedAt := func() outbox.Publisher {
				t.Helper()
				storetest.Eventually(t, "failed", func() bool { return f.publisher(sub.SubscriptionName).Status == outbox.PublisherFailed })
				return f.publisher(sub.SubscriptionName)
			}
			test := func() {
				t.Helper()
				to := must.Get(sub.Open(config.Options)).Or(t)
				_, failure := to.Publish(t.Context(), []*destination.Event{destination.TestEvent("here", "test-1")})
				must.OK(t, f.progress.RecordTestDelivery(t.Context(), ana("whose fault is it"), outbox.TestDelivery{SubscriptionName: sub.SubscriptionName, OK: failure == nil}))
			}
			for range max(c.skips, 1) {
				p := failedAt()
				blame, todo, phrase := advised(t, p)
				must.Hold(t, strings.HasPrefix(blame, c.first) && !strings.Contains(todo, "kip") && phrase != "", "before a test event: %q; to do: %q; a skip asks for %q", blame, todo, phrase)
				test()
				seen := f.publisher(sub.SubscriptionName).ErrorCount
				storetest.Eventually(t, "failed again", func() bool { return f.publisher(sub.SubscriptionName).ErrorCount > seen })
				p = failedAt()
				blame, todo, phrase = advised(t, p)
				must.Hold(t, strings.HasPrefix(blame, c.tested) && strings.Contains(todo, "skip") == (c.skips > 0) && (phrase == "") == (c.skips > 0), "after a test event: %q; to do: %q; a skip asks for %q", blame, todo, phrase)
				if c.skips > 0 {
					must.Get(f.progress.SkipEvent(t.Context(), ana("they do not want it"), sub.SubscriptionName, p.ErrorPosition)).Or(t)
				}
			}
			mended.Store(c.skips == 0)
			f.mustStandAt(t, sub.SubscriptionName, 4)
			p := f.publisher(sub.SubscriptionName)
			must.Hold(t, p.Delivered == int64(4-c.skips) && p.ErrorCount == 0 && p.TestTaken == nil, "afterwards: %+v", p)
		})
	}
}
