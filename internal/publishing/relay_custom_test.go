package publishing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

func customSubscription(tb testing.TB, f destination.Functions) destination.Subscription {
	s := subscriptionOf("everything", "custom", everyEvent)
	s.Pause = event.Retry{Base: 20 * time.Millisecond, Max: 20 * time.Millisecond}
	s.MaxErrors, s.FailedRetry, s.Timeout = 3, 20*time.Millisecond, 50*time.Millisecond
	return must.Get(destination.Custom(s, f, destination.Settings{})).Or(tb)
}

// failed waits until a publisher has failed.
func (f *fixture) failed(sub destination.Subscription) subscription.Publisher {
	must.Eventually(f.TB, "failed", func() bool { return f.publisher(sub.SubscriptionName).Status == subscription.PublisherFailed })
	return f.publisher(sub.SubscriptionName)
}

func deliverCustom(tb testing.TB, f *fixture, id string, sub destination.Subscription, changes ...func(*publishing.Relay)) (stop func()) {
	c := receivers{}.config(f, id, sub)
	c.Open = nil
	return deliver(tb, f, c, changes...)
}

// A call that does not return is no word of Healthy, whose last one keeps its time; it is shown until
// it returns.
func TestRelay_tellsAHangingCallFromHealth(t *testing.T) {
	f := own(t, live)
	f.MustAppend(noted("c-1"))
	hang := make(chan struct{})
	sub := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) { <-hang; return len(events), nil },
		Healthy: func(context.Context) error { return nil },
	})
	deliverCustom(t, f, "one", sub)
	f.failed(sub)
	must.Eventually(t, "it hangs", func() bool { return f.publisher(sub.SubscriptionName).HangingSince != nil })
	p := f.publisher(sub.SubscriptionName)
	must.Hold(t, p.Healthy != nil && *p.Healthy && p.HealthAt != nil && !p.HealthAt.After(*p.HangingSince) && p.ErrorKind == operator.UnknownError, "%+v", p)
	close(hang)
	must.Eventually(t, "it does not hang any more", func() bool { return f.publisher(sub.SubscriptionName).HangingSince == nil })
	f.mustStandAt(t, sub.SubscriptionName, 1)
}

// A process whose call does not return gives the publisher to another one, and takes it back neither by
// asking nor while the other has it.
func TestRelay_handsOverAPublisherWhoseCallHangs(t *testing.T) {
	f := own(t, live)
	f.MustAppend(noted("c-1"))
	hang := make(chan struct{})
	stuck := customSubscription(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) { <-hang; return len(events), nil }})
	stop := deliverCustom(t, f, "one", stuck)
	must.Eventually(t, "it hangs", func() bool { return f.publisher(stuck.SubscriptionName).HangingSince != nil })
	var delivered atomic.Int64
	well := customSubscription(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
		delivered.Add(int64(len(events)))
		return len(events), nil
	}})
	deliverCustom(t, f.beside(live), "two", well)
	f.mustStandAt(t, stuck.SubscriptionName, 1)
	p := f.publisher(stuck.SubscriptionName)
	must.Hold(t, p.Lease != nil && p.Lease.Owner == "two" && p.HangingSince == nil && delivered.Load() == 1, "%d delivered: %+v", delivered.Load(), p)
	stop() // though its call has not returned
	close(hang)
}

// An unhealthy publisher gets no events, and says why; what it last said ends with its lease.
func TestRelay_givesNothingToAnUnhealthyPublisher(t *testing.T) {
	f := own(t, live)
	f.MustAppend(notes("c-1", 3)...)
	var healthy atomic.Bool
	var calls atomic.Int64
	sub := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
			calls.Add(1)
			return len(events), nil
		},
		Healthy: func(context.Context) error {
			if healthy.Load() {
				return nil
			}
			return errors.New("no quota")
		},
	})
	stop := deliverCustom(t, f, "one", sub)
	p := f.failed(sub)
	must.Hold(t, p.Healthy != nil && !*p.Healthy && p.HealthMessage == "no quota" && p.LastError == "the publisher is not healthy: no quota" && calls.Load() == 0,
		"it is healthy: %v (%q), last error %q, after %d calls", p.Healthy, p.HealthMessage, p.LastError, calls.Load())
	healthy.Store(true)
	f.mustStandAt(t, sub.SubscriptionName, 3)
	p = f.publisher(sub.SubscriptionName)
	must.Hold(t, p.Healthy != nil && *p.Healthy && p.HealthMessage == "", "it is healthy: %v (%q)", p.Healthy, p.HealthMessage)
	stop()
	var said any
	err := f.JournalDB.QueryRow(`select healthy from publisher_progress`).Scan(&said)
	must.Hold(t, err == nil && said == nil, "without a lease it is healthy: %v, %v", said, err)
}

// overheard is a relay to one receiver with an event to deliver, and what it logs.
func overheard(f *fixture, id string) (publishing.RelayConfig, destination.Subscription, *storetest.Log) {
	f.MustAppend(noted("c-1"))
	r, sub := everythingToOne()
	c, log := r.config(f, id, sub), new(storetest.Log)
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	return c, sub, log
}

// A publisher whose holder was killed is taken over with a line in the log and a count; one that was
// released is not.
func TestRelay_tellsThatItTookAPublisherOver(t *testing.T) {
	f := own(t, live)
	c, sub, log := overheard(f, "heir")
	must.OK(t, f.progress.Register(f.Ctx, []subscription.PublisherDefinition{sub.Definition()}))
	if _, ok, err := f.progress.Claim(f.Ctx, "killed 7", sub.SubscriptionName, time.Millisecond); !ok || err != nil {
		t.Fatal(ok, err)
	}
	takeovers := func() float64 {
		return counted(t, c.Metrics.PublisherTakenOver.WithLabelValues(sub.Topic, sub.Publisher))
	}
	stop := deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 1)
	must.Hold(t, log.Says("level=WARN", "took over a publisher", "publisher=one", `from="killed 7"`, "lease_over_for=") && takeovers() == 1, "%g takeovers, and the log is:\n%s", takeovers(), log)
	stop()
	f.MustAppend(noted("c-1"))
	deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 2)
	must.Equal(t, takeovers(), 1, "takeovers, though the publisher was released")
}

// A holder that has lost its publisher says what happened.
func TestRelay_saysHowItLostAPublisher(t *testing.T) {
	t.Parallel()
	for says, happen := range map[string]func(*fixture, operator.SubscriptionName) error{
		"the journal went back to an earlier state": func(f *fixture, _ operator.SubscriptionName) error {
			return storetest.No(f.JournalDB.Exec(`update publisher_progress set lease_epoch = lease_epoch - 1, position = 0`))
		},
		"another process took the publisher over": func(f *fixture, _ operator.SubscriptionName) error {
			return storetest.No(f.JournalDB.Exec(`update publisher_progress set lease_epoch = lease_epoch + 1, lease_owner = 'other'`))
		},
		"an operator moved the publisher": func(f *fixture, name operator.SubscriptionName) error {
			return storetest.No(f.progress.Seek(f.Ctx, ana("once more"), name, subscription.SeekTarget{Beginning: true}, nil))
		},
	} {
		t.Run(says, func(t *testing.T) {
			f := own(t, live)
			c, sub, log := overheard(f, "one")
			deliver(t, f, c)
			f.mustStandAt(t, sub.SubscriptionName, 1)
			must.OK(t, happen(f, sub.SubscriptionName))
			must.Eventually(t, "it says "+says, func() bool { return log.Says(says) })
		})
	}
}

// A destination that goes away between two events is asked when the second one fails, and before it is
// tried again after a resume.
func TestRelay_asksForHealthWhenADeliveryFails(t *testing.T) {
	f := own(t, live)
	f.MustAppend(noted("c-1"))
	var away atomic.Bool
	var calls atomic.Int64
	sub := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
			if calls.Add(1); away.Load() {
				return 0, errors.New("no route")
			}
			return len(events), nil
		},
		Healthy: func(context.Context) error {
			if away.Load() {
				return errors.New("the line is cut")
			}
			return nil
		},
	})
	sub.Pause, sub.MaxErrors = event.Retry{Base: time.Hour, Max: time.Hour}, 10
	var relay *publishing.Relay
	deliverCustom(t, f, "one", sub, func(r *publishing.Relay) { relay = r })
	f.mustStandAt(t, sub.SubscriptionName, 1)
	away.Store(true)
	f.MustAppend(noted("c-1"))
	must.Eventually(t, "an error", func() bool { return f.publisher(sub.SubscriptionName).ErrorCount == 1 })
	p := f.publisher(sub.SubscriptionName)
	must.Hold(t, p.ErrorKind == operator.DestinationError && strings.Contains(p.LastError, "the line is cut") && strings.Contains(p.LastError, "no route") && p.Healthy != nil && !*p.Healthy, "the first failure is told as %+v", p)
	before := calls.Load()
	must.Get(f.progress.Resume(t.Context(), ana("try"), sub.SubscriptionName)).Or(t)
	relay.Wake()
	must.Eventually(t, "an error after the resume", func() bool { return f.publisher(sub.SubscriptionName).ErrorCount == 1 })
	must.Equal(t, calls.Load(), before, "deliveries were tried after the resume, though the publisher is not healthy")
}

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
func advised(tb testing.TB, p subscription.Publisher) (blame, todo, phrase string) {
	for _, r := range alerts.AlertRules() {
		if causes := r.Causes(facts.Facts{Publishers: []subscription.Publisher{p}}.Judged(time.Now())); r.What == alerts.AlertPublisher {
			must.Need(tb, len(causes) == 1, "alerts have %+v", causes)
			todo = causes[0].Todo
		}
	}
	return p.Blame(), todo, operator.ActionPublisherSkip.Phrase(operator.Reach{Blames: p.ErrorKind})
}

// Whether an event or its receiver is at fault is not said before another event was taken or refused, and
// what is said then is right: doing it delivers what waits.
func TestRelay_blamesNoEventBeforeAnotherWasTakenOrRefused(t *testing.T) {
	const unknown, atDestination, atEvent = "It is not known", "A test event was not taken either", "A test event was taken"
	type given struct {
		refuses func(body []byte) bool
		slow    bool
		first   string // what is said before a test event
		tested  string // and after it
		skips   int    // the events that it leads to skip; else the receiver is mended
	}
	storetest.Each(t, own, map[string]given{
		"down for everything": {refuses: func([]byte) bool { return true }, first: unknown, tested: atDestination},
		"down for one event":  {refuses: func(b []byte) bool { return bytes.Contains(b, []byte(`"id":"2"`)) }, first: unknown, tested: atEvent, skips: 1},
		"down for one type":   {refuses: func(b []byte) bool { return bytes.Contains(b, []byte(`"type":"opened"`)) }, first: unknown, tested: atEvent, skips: 2},
		"slow":                {refuses: func([]byte) bool { return true }, slow: true, first: "The destination is unreachable, overloaded", tested: atDestination},
	}, func(t *testing.T, f *fixture, c given) {
		f.MustAppend(noted("c-1"), opened("c-1"), opened("c-2"), noted("c-2"))
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
		deliverCustom(t, f, "one", sub)
		test := func() {
			must.Get(f.progress.Test(t.Context(), ana("whose fault is it"), sub.SubscriptionName, func(ctx context.Context) (subscription.TestDelivery, error) {
				_, failure := must.Get(sub.Open(destination.Options{})).Or(t).Publish(ctx, []*destination.Event{destination.TestEvent("here", "test-1")})
				return subscription.TestDelivery{SubscriptionName: sub.SubscriptionName, OK: failure == nil}, nil
			})).Or(t)
		}
		for range max(c.skips, 1) {
			p := f.failed(sub)
			blame, todo, phrase := advised(t, p)
			must.Hold(t, strings.HasPrefix(blame, c.first) && !strings.Contains(todo, "kip") && phrase != "", "before a test event: %q; to do: %q; a skip asks for %q", blame, todo, phrase)
			test()
			seen := f.publisher(sub.SubscriptionName).ErrorCount
			must.Eventually(t, "failed again", func() bool { return f.publisher(sub.SubscriptionName).ErrorCount > seen })
			p = f.failed(sub)
			blame, todo, phrase = advised(t, p)
			must.Hold(t, strings.HasPrefix(blame, c.tested) && strings.Contains(todo, "skip") == (c.skips > 0) && (phrase == "") == (c.skips > 0), "after a test event: %q; to do: %q; a skip asks for %q", blame, todo, phrase)
			if c.skips > 0 {
				refused := storetest.No(f.progress.SkipEvent(t.Context(), ana("they do not want it"), sub.SubscriptionName, p.ErrorPosition+1))
				must.Hold(t, errors.Is(refused, event.ErrConflict), "the skip of another event: %v", refused)
				must.Get(f.progress.SkipEvent(t.Context(), ana("they do not want it"), sub.SubscriptionName, p.ErrorPosition)).Or(t)
			}
		}
		mended.Store(c.skips == 0)
		f.mustStandAt(t, sub.SubscriptionName, 4)
		p := f.publisher(sub.SubscriptionName)
		must.Hold(t, p.Delivered == int64(4-c.skips) && p.ErrorCount == 0 && p.TestTaken == nil, "afterwards: %+v", p)
	}, live)
}
