package publishing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

func live(o *store.Options) { o.Now = time.Now }

func noted(campaign string) event.Event  { return storetest.Event(campaign, "noted") }
func opened(campaign string) event.Event { return storetest.Event(campaign, "opened") }

func notes(campaign string, n int) []event.Event {
	return slices.Repeat([]event.Event{noted(campaign)}, n)
}

// receiver is an external system: it records what it accepted, once answer, if set, has permitted
// it.
type receiver struct {
	answer func(ctx context.Context, events []*destination.Event) (int, error)

	mu        sync.Mutex
	positions []int64
	calls     int
}

func (r *receiver) Publish(ctx context.Context, events []*destination.Event) (int, error) {
	n, err := len(events), error(nil)
	if r.answer != nil {
		n, err = r.answer(ctx, events)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for _, e := range events[:n] {
		r.positions = append(r.positions, e.Position)
	}
	return n, err
}

func (r *receiver) Close() error { return nil }

func (r *receiver) got() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.positions)
}

func (r *receiver) called() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

var everyEvent = subscription.Match{EventTypes: []string{"*"}}

func subscriptionOf(topic, publisher string, match subscription.Match) destination.Subscription {
	return destination.Subscription{SubscriptionName: operator.SubscriptionName{Topic: topic, Publisher: publisher}, Match: match, Destination: "test:" + publisher,
		Settings: destination.Settings{PollInterval: 20 * time.Millisecond, BatchSize: 100, Timeout: time.Second, Pause: event.Retry{Base: destination.DefaultRetryBase, Max: destination.DefaultRetryMax}, MaxErrors: 10, FailedRetry: 5 * time.Minute}}
}

type receivers map[string]*receiver

// answering is a receiver, one, that gives an answer, and a subscription of it to every event.
func answering(answer func(ctx context.Context, events []*destination.Event) (int, error)) (receivers, destination.Subscription) {
	return receivers{"one": {answer: answer}}, subscriptionOf("everything", "one", everyEvent)
}

// everythingToOne is a receiver, one, that takes every event.
func everythingToOne() (receivers, destination.Subscription) { return answering(nil) }

func (r receivers) config(f *fixture, id string, subs ...destination.Subscription) publishing.RelayConfig {
	return publishing.RelayConfig{Progress: f.progress, Pairs: subs, Metrics: metrics.New(f.Summary), ID: id, PollInterval: 20 * time.Millisecond, Lease: lease,
		Logger: slog.New(slog.DiscardHandler),
		Open: func(p destination.Subscription, _ destination.Options) (destination.Publisher, error) {
			to := r[p.Publisher]
			if to == nil {
				return nil, fmt.Errorf("there is no receiver %s", p.Publisher)
			}
			return to, nil
		}}
}

// deliver runs a Relay until stop is called or the test ends, woken by changes in the store.
func deliver(tb testing.TB, f *fixture, c publishing.RelayConfig, changes ...func(*publishing.Relay)) (stop func()) {
	var subs []subscription.PublisherDefinition
	for _, p := range c.Pairs {
		subs = append(subs, p.Definition())
	}
	must.OK(tb, f.progress.Register(tb.Context(), subs)) // so that the test finds them
	relay := publishing.NewRelay(c)
	for _, change := range changes {
		change(relay)
	}
	f.OnWork(relay.Wake)
	ctx, cancel := context.WithCancel(context.Background())
	ended := storetest.Begin(func() error { return relay.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		err := <-ended
		must.Hold(tb, err == nil, "run: %v", err)
	})
	tb.Cleanup(stop)
	return stop
}

// upTo are the positions 1 to n. Only tests that say so roll back appends.
func upTo(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i) + 1
	}
	return all
}

// standing is the row of a subscription.
type standing struct {
	status              string
	position, delivered int64
	errors              int
	owner               string
}

func (f *fixture) standing(name operator.SubscriptionName) (s standing) {
	row := f.JournalDB.QueryRow(`select status, position, delivered, error_count, lease_owner from publisher_progress where topic = $1 and publisher = $2`, name.Topic, name.Publisher)
	must.OK(f.TB, row.Scan(&s.status, &s.position, &s.delivered, &s.errors, &s.owner))
	return s
}

func (f *fixture) mustStandAt(tb testing.TB, name operator.SubscriptionName, position int64) {
	must.Eventually(tb, fmt.Sprintf("%s at position %d", name, position), func() bool { return f.standing(name).position == position })
}

func TestRelay_deliversInOrderWhatTheTopicSelects(t *testing.T) {
	f := own(t, live)
	f.MustAppend(notes("c-1", 250)...)
	f.MustAppend(opened("c-2"), opened("c-1"))
	r := receivers{"all": {}, "some": {}, "none": {}}
	all, some, none := subscriptionOf("everything", "all", everyEvent), subscriptionOf("opened", "some", subscription.Match{EventTypes: []string{"open*"}, Campaigns: []string{"c-2"}}),
		subscriptionOf("nothing", "none", subscription.Match{EventTypes: []string{"never"}})
	stop := deliver(t, f, r.config(f, "one", all, some, none))
	f.mustStandAt(t, all.SubscriptionName, 252)
	f.MustAppend(noted("c-3"))
	for _, p := range []destination.Subscription{all, some, none} {
		f.mustStandAt(t, p.SubscriptionName, 253) // no later event is of a topic that selects little
	}
	stop()
	must.Equal(t, r["all"].got(), upTo(253), "everything: got")
	must.Equal(t, r["some"].got(), []int64{251}, "opened in c-2: got")
	got := r["none"].got()
	must.Hold(t, len(got) <= 0, "nothing: got %v", got)
	at := f.standing(all.SubscriptionName)
	must.Hold(t, at.delivered == 253 && at.owner == "", "after the end %d deliveries are counted and %q holds the pair, want 253 and nobody", at.delivered, at.owner)
}

func TestRelay_aDestinationHoldsUpNobody(t *testing.T) {
	f, hang := own(t, live), make(chan struct{})
	r := receivers{
		"slow": {answer: func(ctx context.Context, _ []*destination.Event) (int, error) {
			select {
			case <-hang:
			case <-ctx.Done():
			}
			return 0, ctx.Err()
		}},
		"down":     {answer: func(context.Context, []*destination.Event) (int, error) { return 0, errors.New("connection refused") }},
		"panicky":  {answer: func(context.Context, []*destination.Event) (int, error) { panic("boom") }},
		"idle":     {answer: func(context.Context, []*destination.Event) (int, error) { return 0, nil }}, // and gives no reason
		"healthy":  {},
		"refusing": {answer: func(_ context.Context, events []*destination.Event) (int, error) { return refuse(events, 7) }},
	}
	defer close(hang)
	var subs []destination.Subscription
	for name := range r {
		subs = append(subs, subscriptionOf("everything", name, everyEvent))
	}
	deliver(t, f, r.config(f, "one", subs...))
	for range 10 {
		f.MustAppend(notes("c-1", 50)...)
	}
	f.mustStandAt(t, operator.SubscriptionName{Topic: "everything", Publisher: "healthy"}, 500)
	f.mustStandAt(t, operator.SubscriptionName{Topic: "everything", Publisher: "refusing"}, 6)
	for name, want := range map[string]operator.DeliveryErrorKind{"down": operator.DestinationError, "idle": operator.DestinationError, "panicky": operator.UnknownError, "refusing": operator.EventError} {
		must.Eventually(t, name+" has its error noted", func() bool {
			var kind string
			var position int64
			must.OK(t, f.JournalDB.QueryRow(`select error_kind, error_position from publisher_progress where publisher = $1`, name).Scan(&kind, &position))
			wantAt := int64(1)
			if name == "refusing" {
				wantAt = 7
			}
			return kind == string(want) && position == wantAt
		})
	}
	must.Equal(t, r["refusing"].got(), upTo(6), "up to the event that is refused: got")
}

// refuse accepts events before a position, and refuses the event there.
func refuse(events []*destination.Event, position int64) (int, error) {
	for i, e := range events {
		if e.Position == position {
			return i, &destination.Error{Kind: operator.EventError, Err: fmt.Errorf("event %d is refused", position)}
		}
	}
	return len(events), nil
}

// steps is a clock whose waits end when the test says so.
type steps struct {
	*storetest.Clock
	waits chan wait
}

type wait struct {
	long time.Duration
	end  chan time.Time
}

func newSteps(c *storetest.Clock) *steps { return &steps{Clock: c, waits: make(chan wait)} }

func (s *steps) after(d time.Duration) (<-chan time.Time, func()) {
	w, stopped := wait{long: d, end: make(chan time.Time, 1)}, make(chan struct{})
	go func() {
		select {
		case s.waits <- w:
		case <-stopped:
		}
	}()
	return w.end, sync.OnceFunc(func() { close(stopped) })
}

func (s *steps) next(tb testing.TB) wait {
	return must.Receive(tb, s.waits, "the delivery does not wait")
}

func (s *steps) pass(w wait) {
	s.Advance(w.long)
	w.end <- s.Now()
}

// passes wants waits of these lengths, and lets them pass.
func (s *steps) passes(tb testing.TB, lengths ...time.Duration) {
	for i, want := range lengths {
		w := s.next(tb)
		must.Need(tb, w.long == want, "wait %d is %s, want %s", i+1, w.long, want)
		s.pass(w)
	}
}

func (s *steps) on(c publishing.RelayConfig) publishing.RelayConfig {
	c.Clock = publishing.Clock{Now: s.Now, After: s.after}
	return c
}

func TestRelay_waitsLongerAfterEmptyPolls(t *testing.T) {
	f := own(t)
	s := newSteps(f.Clock)
	r, sub := everythingToOne()
	sub.PollInterval = time.Second
	deliver(t, f, s.on(r.config(f, "one", sub)))
	second := time.Second
	s.passes(t, second, second, second, 2*second, 4*second, 8*second, 16*second, 32*second, 60*second, 60*second)
	s.next(t)
	f.MustAppend(noted("c-1")) // wakes
	w := s.next(t)
	must.Eventually(t, "the event arrives", func() bool { return len(r["one"].got()) == 1 })
	waits := 0
	for ; w.long == second; waits++ {
		s.pass(w)
		w = s.next(t)
	}
	// An append may wake twice, the second time when its hint is received: there is nothing to
	// deliver then, and the count of empty polls restarts.
	must.Hold(t, waits >= 3 && waits <= 7 && w.long == 2*second, "after an event it waits %d times for a second and then for %s", waits, w.long)
}

func TestRelay_waitsLongerAfterErrors(t *testing.T) {
	f := own(t)
	s := newSteps(f.Clock)
	var fails sync.Map
	fails.Store("on", true)
	r, sub := answering(func(_ context.Context, events []*destination.Event) (int, error) {
		if on, _ := fails.Load("on"); on == true {
			return 0, errors.New("connection refused")
		}
		return len(events), nil
	})
	f.MustAppend(notes("c-1", 3)...)
	deliver(t, f, s.on(r.config(f, "one", sub)))
	second := time.Second
	for i, want := range []time.Duration{second, 2 * second, 4 * second, 8 * second, 16 * second, 32 * second, 60 * second, 60 * second, 60 * second, 5 * time.Minute, 5 * time.Minute} {
		w := s.next(t)
		must.Need(t, w.long == want, "wait %d is %s, want %s", i+1, w.long, want)
		at := f.standing(sub.SubscriptionName)
		wantStatus := map[bool]string{false: "active", true: "failed"}[i >= 9]
		must.Need(t, at.status == wantStatus && at.position == 0 && at.errors == i+1, "after error %d it is %+v, want %s at 0", i+1, at, wantStatus)
		f.MustAppend(noted("c-1")) // new events do not shorten the wait
		got := r["one"].called()
		must.Need(t, got == i+1, "%d calls after error %d", got, i+1)
		if i == 10 {
			fails.Store("on", false)
		}
		s.pass(w)
	}
	f.mustStandAt(t, sub.SubscriptionName, 14)
	at := f.standing(sub.SubscriptionName)
	got := r["one"].got()
	must.Hold(t, at.status == "active" && at.errors == 0 && slices.Equal(got, upTo(14)), "once it is repaired it is %+v and got %v", at, got)
}

func TestRelay_obeysTheDestination(t *testing.T) {
	f := own(t)
	s := newSteps(f.Clock)
	answers := []*destination.Error{
		{Kind: operator.DestinationError, RetryAfter: 90 * time.Second, Err: errors.New("overloaded")},
		{Kind: operator.DestinationError, Gone: true, Err: errors.New("gone")},
	}
	r, sub := answering(func(_ context.Context, events []*destination.Event) (int, error) {
		if len(answers) == 0 {
			return len(events), nil
		}
		next := answers[0]
		answers = answers[1:]
		return 0, next
	})
	f.MustAppend(noted("c-1"))
	deliver(t, f, s.on(r.config(f, "one", sub)))
	w := s.next(t)
	must.Need(t, w.long == 90*time.Second, "the destination asked for 90 s, the wait is %s", w.long)
	s.pass(w)
	must.Eventually(t, "the pair is given up", func() bool {
		return f.standing(sub.SubscriptionName).status == "failed" && f.standing(sub.SubscriptionName).owner == ""
	})
	f.MustAppend(noted("c-1"))
	must.Equal(t, r["one"].called(), 2, "how often a destination that is gone was called")
}

func TestRelay_sharesReads(t *testing.T) {
	f := own(t, live)
	const events = 3000
	f.MustAppend(notes("c-1", events)...)
	r := receivers{}
	var subs []destination.Subscription
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		r[name] = &receiver{}
		sub := subscriptionOf("everything", name, everyEvent)
		sub.PollInterval = time.Hour
		subs = append(subs, sub)
	}
	c := r.config(f, "one", subs...)
	deliver(t, f, c)
	for _, p := range subs {
		f.mustStandAt(t, p.SubscriptionName, events)
		must.Equal(t, r[p.Publisher].got(), upTo(events), p.Publisher)
	}
	// One read per block, and one each to detect the end.
	reads := counted(t, c.Metrics.PublisherReads)
	must.Hold(t, reads <= events/1000+5, "%d events were read %v times for five pairs", events, reads)
}

// Another process appends without a notification.
func TestRelay_noticesAppendsOfOthers(t *testing.T) {
	f := own(t, live)
	r, sub := everythingToOne()
	sub.PollInterval = time.Hour
	deliver(t, f, r.config(f, "one", sub))
	must.Eventually(t, "the pair is held", func() bool { return f.standing(sub.SubscriptionName).owner == "one" })
	f.OnWork(func() {})
	f.beside(live).MustAppend(notes("c-1", 3)...)
	f.mustStandAt(t, sub.SubscriptionName, 3)
	must.Equal(t, r["one"].got(), upTo(3))
}

func TestRelay_subscriptionsSpread(t *testing.T) {
	f := own(t, live)
	other, r := f.beside(live), receivers{}
	var subs []destination.Subscription
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		r[name] = &receiver{}
		subs = append(subs, subscriptionOf("everything", name, everyEvent))
	}
	holdings := func() map[string]int {
		counts := map[string]int{}
		for _, p := range subs {
			counts[f.standing(p.SubscriptionName).owner]++
		}
		return counts
	}
	stop := deliver(t, f, r.config(f, "one", subs...))
	must.Eventually(t, "the first process has all", func() bool { return holdings()["one"] == 5 })
	deliver(t, other, r.config(other, "two", subs...))
	must.Eventually(t, "they share", func() bool { h := holdings(); return h["one"] == 3 && h["two"] == 2 })
	stop()
	must.Eventually(t, "the other one has all", func() bool { return holdings()["two"] == 5 })
	f.MustAppend(notes("c-1", 20)...)
	for _, p := range subs {
		f.mustStandAt(t, p.SubscriptionName, 20)
		must.Equal(t, r[p.Publisher].got(), upTo(20), p.Publisher)
	}
}

func counted(tb testing.TB, c prometheus.Counter) float64 {
	var m dto.Metric
	must.OK(tb, c.Write(&m))
	return m.GetCounter().GetValue()
}
