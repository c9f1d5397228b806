package destination_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

var custom = destination.Subscription{SubscriptionName: operator.SubscriptionName{Topic: "scenes", Publisher: "audit"}, Match: subscription.Match{EventTypes: []string{"*"}}}

// customOf opens a publisher of functions, which logs to the writers.
func customOf(tb testing.TB, f destination.Functions, log ...io.Writer) destination.Publisher {
	s := must.Get(destination.Custom(custom, f, destination.Settings{Timeout: 3 * time.Second})).Or(tb)
	return must.Get(s.Open(destination.Options{Logger: slog.New(slog.NewTextHandler(io.MultiWriter(log...), nil))})).Or(tb)
}

func deliverAll(_ context.Context, events []*destination.Event) (int, error) { return len(events), nil }

func eventsAt(positions ...int64) (all []*destination.Event) {
	for _, p := range positions {
		all = append(all, destination.NewEvent(event.Event{Position: p, CampaignID: "c-1", Seq: p, EventType: "noted"}, "urn:x"))
	}
	return all
}

func TestCustom_hasTheRulesOfConfiguredOnes(t *testing.T) {
	t.Parallel()
	all := destination.Functions{Deliver: deliverAll}
	s, err := destination.Custom(custom, all, destination.Settings{BatchSize: 7, Idle: subscription.IdleBackoff{Off: true}})
	want := destination.DefaultSettings()
	want.BatchSize, want.Idle.Off = 7, true
	must.Hold(t, err == nil && s.Settings == want && s.Destination == "go:", "%+v to %q, %v", s.Settings, s.Destination, err)
	for says, change := range map[string]func(*destination.Subscription, *destination.Functions){
		"must begin with a lower-case letter":      func(s *destination.Subscription, _ *destination.Functions) { s.Topic = "Scenes" },
		"publisher scenes/audit selects no events": func(s *destination.Subscription, _ *destination.Functions) { s.Match = subscription.Match{} },
		"needs a function that delivers":           func(_ *destination.Subscription, f *destination.Functions) { *f = destination.Functions{} },
		"the batch size must be from 1 to 10000":   func(s *destination.Subscription, _ *destination.Functions) { s.BatchSize = 10_001 },
		"the factor of idle waits must be from 1":  func(s *destination.Subscription, _ *destination.Functions) { s.Idle.Factor = 0.5 },
		"the first wait after an error":            func(s *destination.Subscription, _ *destination.Functions) { s.Pause.Base = time.Hour },
	} {
		s, f := custom, all
		change(&s, &f)
		_, err := destination.Custom(s, f, destination.Settings{})
		must.Hold(t, err != nil && strings.Contains(err.Error(), says), "refused with %v, want %s", err, says)
	}
}

func TestCustom_aPanicIsAFailedDeliveryWithItsStackInTheLog(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("no such region") }, "ended its goroutine": runtime.Goexit} {
		var log bytes.Buffer
		var got []int64
		to := customOf(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
			for _, e := range events {
				if e.Position == 3 {
					end()
				}
			}
			for _, e := range events {
				got = append(got, e.Position)
			}
			return len(events), nil
		}}, &log)
		n, err := to.Publish(t.Context(), eventsAt(1, 2, 3, 4))
		must.Hold(t, n == 2 && err != nil && strings.Contains(err.Error(), name) && destination.Cause(err).Kind == operator.UnknownError && slices.Equal(got, []int64{1, 2}), "%d delivered: %v, %v", n, got, err)
		must.Hold(t, name != "panic" || strings.Contains(log.String(), "custom_test.go"), "the log has no stack:\n%s", log.String())
	}
}

// The function ignores its context. Nothing calls it again, or asks for its health, before it has
// returned, and then it is called again.
func TestCustom_aHangingFunctionIsCutAndNotCalledAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang, calls := make(chan struct{}), 0
		f := destination.Functions{
			Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
				calls++
				<-hang
				return len(events), nil
			},
			Healthy: func(context.Context) error { calls++; return nil },
		}
		s := must.Get(destination.Custom(custom, f, destination.Settings{Timeout: 3 * time.Second})).Or(t)
		open := func() destination.Publisher {
			return must.Get(s.Open(destination.Options{Logger: slog.New(slog.DiscardHandler)})).Or(t)
		}
		first := time.Now()
		began := first
		to := open()
		_, err := to.Publish(t.Context(), eventsAt(1))
		took := time.Since(began)
		must.Hold(t, took == 4*time.Second && err != nil && strings.Contains(err.Error(), "the call of scenes/audit has not returned for 4 s") && destination.Cause(err).Kind == operator.UnknownError, "after %s: %v", took, err)
		must.OK(t, to.Close())
		time.Sleep(time.Minute)
		to = open() // as after a lost lease
		began = time.Now()
		_, err = to.Publish(t.Context(), eventsAt(1))
		said, unhealthy := destination.CheckHealth(t.Context(), to)
		for _, err := range []error{err, unhealthy} {
			must.Hold(t, err != nil && strings.Contains(err.Error(), "has not returned for 1 min") && time.Since(began) == 0, "%v after %s", err, time.Since(began))
		}
		must.Hold(t, !said && destination.NotHealthy(unhealthy) == unhealthy, "what it has not said is %v", destination.NotHealthy(unhealthy))
		since := s.HangingSince()
		must.Hold(t, since.Equal(first), "it hangs since %s, want %s", since, first)
		must.Equal(t, calls, 1, "called", "times")
		close(hang)
		synctest.Wait()
		n, err := to.Publish(t.Context(), eventsAt(1))
		must.Hold(t, n == 1 && err == nil && calls == 2, "%d, %v after %d calls", n, err, calls)
		since = s.HangingSince()
		must.Hold(t, since.IsZero(), "after it has returned it hangs since %s", since)
	})
}

// The batch fails as a whole for its third event: one by one, the two before it are delivered. What
// the function names itself is not tried again.
func TestCustom_findsTheEventThatFails(t *testing.T) {
	t.Parallel()
	mailbox := errors.New("550 no such mailbox")
	for name, c := range map[string]struct {
		err       error
		delivered int // says the function
		kind      operator.DeliveryErrorKind
		calls     []int // events
	}{
		"it does not say which": {mailbox, 0, operator.UnknownError, []int{4, 1, 1, 1}},
		"it says which":         {&destination.Error{Kind: operator.EventError, Err: mailbox}, 2, operator.EventError, []int{4}},
		"it says how many":      {mailbox, 2, operator.UnknownError, []int{4}},
	} {
		var calls []int
		to := customOf(t, destination.Functions{Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
			calls = append(calls, len(events))
			if slices.ContainsFunc(events, func(e *destination.Event) bool { return e.Position == 3 }) {
				return c.delivered, c.err
			}
			return len(events), nil
		}})
		n, err := to.Publish(t.Context(), eventsAt(1, 2, 3, 4))
		if n != 2 || !errors.Is(err, mailbox) || err.Error() != mailbox.Error() || destination.Cause(err).Kind != c.kind || !slices.Equal(calls, c.calls) {
			t.Errorf("%s: %d delivered by calls %v, %v (%s)", name, n, calls, err, destination.Cause(err).Kind)
		}
	}
}

// Nothing is sent for a lease that has ended.
func TestCustom_doesNotGoOnOneByOneAfterItsContext(t *testing.T) {
	t.Parallel()
	for range 20 { // an ended context is noticed at random where something else is ready too
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		to := customOf(t, destination.Functions{Deliver: func(context.Context, []*destination.Event) (int, error) {
			calls++
			cancel()
			return 0, errors.New("interrupted")
		}})
		n, err := to.Publish(ctx, eventsAt(1, 2))
		must.Hold(t, n == 0 && err != nil && calls == 1, "%d delivered by %d calls, %v", n, calls, err)
	}
}

// A function that stops when it is told says how far it came.
func TestCustom_aFunctionInTimeSaysHowManyItDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := customOf(t, destination.Functions{Deliver: func(ctx context.Context, _ []*destination.Event) (int, error) {
			<-ctx.Done()
			return 2, ctx.Err()
		}})
		n, err := to.Publish(t.Context(), eventsAt(1, 2, 3))
		must.Hold(t, n == 2 && err != nil && strings.Contains(err.Error(), "did not finish within 3s"), "%d, %v", n, err)
	})
}

func TestCustom_refusesCountsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		returns int
		err     error
		n       int
		says    string
	}{
		{-1, nil, 0, "delivered -1 of 1 events"}, {3, nil, 0, "delivered 3 of 1 events"}, {0, nil, 0, "delivered nothing and returned no error"},
		{1, nil, 1, ""}, {2, errors.New("late"), 0, "delivered 2 of 1 events"}, {1, errors.New("full"), 1, "full"},
	} {
		to := customOf(t, destination.Functions{Deliver: func(context.Context, []*destination.Event) (int, error) { return c.returns, c.err }})
		n, err := to.Publish(t.Context(), eventsAt(1, 2))
		must.Hold(t, n == c.n && (err == nil) == (c.says == "") && (err == nil || strings.Contains(err.Error(), c.says)), "%d and %v became %d and %v", c.returns, c.err, n, err)
	}
}

func TestCustom_isHealthyAsItSays(t *testing.T) {
	t.Parallel()
	knows, err := destination.CheckHealth(t.Context(), customOf(t, destination.Functions{Deliver: deliverAll}))
	must.Hold(t, !knows && err == nil, "without a function: %v, %v", knows, err)
	down := errors.New("no quota")
	to := customOf(t, destination.Functions{Deliver: deliverAll, Healthy: func(context.Context) error { return down }})
	knows, err = destination.CheckHealth(t.Context(), to)
	must.Hold(t, knows && errors.Is(err, down) && destination.NotHealthy(err).Error() == "the publisher is not healthy: no quota", "%v, %v", knows, err)
}

// A log whose reader has stopped reading takes a write that does not end, whatever the context says.
func TestPublisher_endsThoughItsWritesDoNot(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"log:", "statistics:"} {
		synctest.Test(t, func(t *testing.T) {
			reader, writer := io.Pipe()
			sub := subscriptionOf(t, "url: '"+url+"'", "timeout: 2s")
			open := func() destination.Publisher {
				return must.Get(sub.Open(destination.Options{Logger: slog.New(slog.NewTextHandler(writer, nil))})).Or(t)
			}
			to, began := open(), time.Now()
			_, err := to.Publish(t.Context(), eventsAt(1, 2))
			if url == "log:" {
				must.Hold(t, err != nil && destination.Cause(err).Kind == operator.DestinationError && strings.Contains(err.Error(), "with 2 events, any of which may be at fault, has not returned for 17 s, though its time limit is 16s"), "%v", err)
				since := sub.HangingSince()
				must.Hold(t, since.Equal(began), "it hangs since %s, want %s", since, began)
				_, err := open().Publish(t.Context(), eventsAt(1))
				must.Hold(t, err != nil && strings.Contains(err.Error(), "no other call starts"), "beside it: %v", err)
			}
			err = to.Close()
			must.Hold(t, err != nil && strings.Contains(err.Error(), "has not closed within 5s"), "%s closed: %v", url, err)
			took := time.Since(began)
			must.Hold(t, took <= 30*time.Second, "%s took %s", url, took)
			go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(reader)) }()
			synctest.Wait()
			since := sub.HangingSince()
			must.Hold(t, since.IsZero(), "%s hangs since %s", url, since)
			to = open()
			n, err := to.Publish(t.Context(), eventsAt(1, 2))
			must.Hold(t, n == 2 && err == nil, "%s delivered %d, %v", url, n, err)
			must.OK(t, to.Close())
			writer.Close()
		})
	}
}

type counters map[string]int

func (c counters) CountType(of operator.SubscriptionName, eventType string, events int) {
	c[of.String()+" "+eventType] += events
}

func (c counters) CountTag(of operator.SubscriptionName, tag, value string, events int) {
	c[of.String()+" "+tag+"="+value] += events
}

func statisticsEvents(eventType string, tags string, n int) (all []*destination.Event) {
	for range n {
		all = append(all, destination.NewEvent(event.Event{EventType: eventType, Tags: json.RawMessage(tags)}, "urn:x"))
	}
	return all
}

func TestStatistics_writesCountsAtIntervals(t *testing.T) {
	t.Parallel()
	sub := subscriptionOf(t, "url: 'statistics:'", "interval: 10s", "tags: [region]")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		metrics := counters{}
		to := must.Get(sub.Open(destination.Options{Published: metrics, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})).Or(t)
		for _, events := range [][]*destination.Event{
			statisticsEvents("scene.started", `{"region":"eu","player":"ana"}`, 20), statisticsEvents("scene.ended", `{"region":"us"}`, 5), statisticsEvents("scene.ended", `{}`, 5),
		} {
			publishAll(t, to, events)
		}
		time.Sleep(35 * time.Second) // the later intervals have no events
		synctest.Wait()
		must.Get(to.Publish(t.Context(), statisticsEvents("scene.ended", `{}`, 1))).Or(t)
		time.Sleep(time.Second)
		must.OK(t, to.Close())
		time.Sleep(time.Minute) // nothing is written any more
		const want = `"level":"INFO","msg":"events published","topic":"scenes","publisher":"p","seconds":10,"events":30,"per_second":3,` +
			`"event_types":{"scene.ended":{"events":10,"per_second":1},"scene.started":{"events":20,"per_second":2}},` +
			`"tags.region":{"eu":{"events":20,"per_second":2},"us":{"events":5,"per_second":0.5}}}`
		lines := bytes.Split(bytes.TrimSpace(log.Bytes()), []byte("\n"))
		must.Hold(t, len(lines) == 2 && bytes.HasSuffix(lines[0], []byte(want)) && bytes.Contains(lines[1], []byte(`"events":1,`)), "logged\n%s", log.String())
		all := counters{"scenes/p scene.started": 20, "scenes/p scene.ended": 11, "scenes/p region=eu": 20, "scenes/p region=us": 5}
		must.Equal(t, metrics, all, "counted")
	})
}

// The bound holds for the process, however often the publisher is opened.
func TestStatistics_countsFewNamesAndTheRestTogether(t *testing.T) {
	t.Parallel()
	sub := subscriptionOf(t, "url: 'statistics:'", "tags: [player]", "max_distinct: 3")
	metrics := counters{}
	for opening := range 2 {
		to := must.Get(sub.Open(destination.Options{Published: metrics, Logger: slog.New(slog.DiscardHandler)})).Or(t)
		for i := range 10 {
			name := fmt.Sprint(opening, "-", i)
			must.Get(to.Publish(t.Context(), statisticsEvents("type-"+name, `{"player":"`+name+`"}`, 1))).Or(t)
		}
		must.OK(t, to.Close())
	}
	must.Hold(t, len(metrics) == 8 && metrics["scenes/p other"] == 17 && metrics["scenes/p player=other"] == 17 && metrics["scenes/p type-0-2"] == 1, "counted %v", metrics)
}

func TestLog_saysEachEventWithoutItsPayload(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	publisher := must.Get(subscriptionOf(t, "url: 'log:'").Open(destination.Options{Logger: logger})).Or(t)
	deliver(t, publisher, 4, 5)
	const want = `level=INFO msg=event topic=scenes publisher=p position=4 campaign_id=c-1 seq=2 event_type=character.created event_id=e-4
level=INFO msg=event topic=scenes publisher=p position=5 campaign_id=c-2 seq=2 event_type=character.created event_id=e-5
`
	must.Equal(t, out.String(), want, "logged")
}
