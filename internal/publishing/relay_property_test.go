package publishing_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

var (
	publishingSeed  = flag.Uint64("publishing-seed", 0, "the seed of the random history of publishers; 0 for another each time")
	publishingSteps = flag.Int("publishing-steps", 0, "the length of the random history of publishers; 0 is 100, in a short run 60, in a soak 1,000")
)

type stream struct {
	sub      destination.Subscription
	opened   func(position int64) bool // whether the event there is of that type
	mu       sync.Mutex
	dice     *rand.Rand
	clumsy   bool  // it fails occasionally
	floor    int64 // everything that the subscription selects up to here has arrived, or was skipped by an operator
	wrong    []string
	received int
}

func (s *stream) selects(position int64) bool {
	return s.sub.Match.EventTypes[0] == "*" || s.opened(position)
}

func (s *stream) take(events []*destination.Event) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(events)
	if s.clumsy && s.dice.IntN(3) == 0 {
		n = s.dice.IntN(n)
	}
	for _, e := range events[:n] {
		s.expect(e.Position)
		s.floor = max(s.floor, e.Position)
		s.received++
	}
	switch kind := operator.EventError; {
	case n == len(events) && (!s.clumsy || s.dice.IntN(8) > 0):
		return n, nil
	case s.dice.IntN(2) == 0:
		kind = operator.DestinationError
		fallthrough
	default:
		if s.dice.IntN(8) == 0 {
			n = 0 // they have arrived, but the answer is lost
		}
		return min(n, len(events)-1), &destination.Error{Kind: kind, Err: errors.New("refused")}
	}
}

// expect records that events the subscription selects before a position have not arrived.
func (s *stream) expect(position int64) {
	for p := s.floor + 1; p < position; p++ {
		if s.selects(p) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %d is missing between %d and %d", s.sub.SubscriptionName, p, s.floor, position))
			return
		}
	}
}

// skipped must be called before an operator moves the subscription past a position.
func (s *stream) skipped(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = max(s.floor, position)
}

func (s *stream) behave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clumsy = false
}

func (s *stream) verdict() (wrong []string, floor int64, received int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong, s.floor, s.received
}

type process struct {
	relay  *publishing.Relay
	cancel context.CancelFunc
	ended  <-chan error
}

// history is random operations on publishers. Two stores represent two machines, each with some
// processes.
type history struct {
	testing.TB
	dice      *rand.Rand
	stores    []*fixture
	ahead     atomic.Int64 // of the clock, in microseconds
	mu        sync.Mutex
	types     []bool // by position, from 1 on: whether it is opened
	streams   map[operator.SubscriptionName]*stream
	subs      []destination.Subscription
	processes []*process
	started   int
	came      chan struct{} // something has arrived
}

func (h *history) now() time.Time {
	return time.Now().Add(time.Duration(h.ahead.Load()) * time.Microsecond)
}

func (h *history) opened(position int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.types[position-1]
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{TB: t, dice: rand.New(rand.NewPCG(seed, 1)), streams: map[operator.SubscriptionName]*stream{}, came: make(chan struct{}, 1)}
	clock := func(o *store.Options) { o.Now = h.now }
	first := open(t, clock)
	h.stores = []*fixture{first, first.beside(clock)}
	var definitions []subscription.PublisherDefinition
	for name, match := range map[string]subscription.Match{"all": everyEvent, "clumsy": everyEvent, "some": {EventTypes: []string{"opened"}}} {
		sub := subscriptionOf("t", name, match)
		sub.PollInterval, sub.BatchSize, sub.MaxErrors = time.Millisecond, 7, 3
		sub.Pause, sub.FailedRetry = event.Retry{Base: time.Millisecond, Max: 4 * time.Millisecond}, 20*time.Millisecond
		h.subs = append(h.subs, sub)
		h.streams[sub.SubscriptionName] = &stream{sub: sub, opened: h.opened, clumsy: name != "all", dice: rand.New(rand.NewPCG(seed, uint64(len(name))))}
		definitions = append(definitions, sub.Definition())
	}
	must.OK(t, first.progress.Register(t.Context(), definitions))
	return h
}

func (h *history) some() *fixture { return h.stores[h.dice.IntN(len(h.stores))] }

func (h *history) sub() *stream { return h.streams[h.subs[h.dice.IntN(len(h.subs))].SubscriptionName] }

func (h *history) append() {
	var events []event.Event
	h.mu.Lock()
	for range 1 + h.dice.IntN(30) {
		is := h.dice.IntN(5) == 0
		h.types = append(h.types, is)
		if is {
			events = append(events, opened("c-1"))
		} else {
			events = append(events, noted("c-2"))
		}
	}
	h.mu.Unlock()
	h.some().MustAppend(events...)
}

func (h *history) start() {
	if len(h.processes) > 3 {
		return
	}
	h.started++
	f := h.some()
	relay := publishing.NewRelay(publishing.RelayConfig{Progress: f.progress, Pairs: h.subs, Metrics: metrics.New(f.Summary), ID: fmt.Sprint("process-", h.started),
		PollInterval: 5 * time.Millisecond, Lease: lease, Logger: slog.New(slog.DiscardHandler), Clock: publishing.Clock{Now: h.now},
		Open: func(sub destination.Subscription, _ destination.Options) (destination.Publisher, error) {
			s := h.streams[sub.SubscriptionName]
			return &receiver{answer: func(_ context.Context, events []*destination.Event) (int, error) {
				defer h.arrived()
				return s.take(events)
			}}, nil
		}})
	ctx, cancel := context.WithCancel(context.Background())
	h.processes = append(h.processes, &process{relay: relay, cancel: cancel, ended: storetest.Begin(func() error { return relay.Run(ctx) })})
}

func (h *history) arrived() {
	select {
	case h.came <- struct{}{}:
	default:
	}
}

func (h *history) end(kill bool) {
	if len(h.processes) == 0 {
		return
	}
	i := h.dice.IntN(len(h.processes))
	p := h.processes[i]
	h.processes = append(h.processes[:i:i], h.processes[i+1:]...)
	if kill {
		p.relay.Die()
	}
	p.cancel()
	if err := <-p.ended; err != nil {
		h.Error(err)
	}
}

// act performs an operator's action, which may be refused.
func (h *history) act(do func(f *fixture, o operator.Command, s *stream) error) {
	o := operator.Command{By: operator.Operator{Name: "ana", Via: "api"}, Reason: "a test", Confirm: "skip anyway"}
	var refusal *event.Refusal
	if err := do(h.some(), o, h.sub()); err != nil && !errors.As(err, &refusal) {
		h.Error(err)
	}
}

func (h *history) seek(f *fixture, o operator.Command, s *stream) error {
	to := h.dice.Int64N(int64(len(h.types)) + 1)
	s.skipped(to)
	o.Confirm = fmt.Sprintf("skip %d events", len(h.types)) // a phrase that also confirms fewer
	return storetest.No(f.progress.Seek(h.Context(), o, s.sub.SubscriptionName, subscription.SeekTarget{Position: &to}, nil))
}

func (h *history) skip(f *fixture, o operator.Command, s *stream) error {
	v, err := f.progress.Publisher(h.Context(), s.sub.SubscriptionName)
	if err != nil || v.ErrorPosition == 0 {
		return err
	}
	s.mu.Lock()
	s.expect(v.ErrorPosition)
	s.mu.Unlock()
	s.skipped(v.ErrorPosition)
	return storetest.No(f.progress.SkipEvent(h.Context(), o, s.sub.SubscriptionName, v.ErrorPosition))
}

func (h *history) step() {
	switch h.dice.IntN(14) {
	case 0, 1, 2:
		h.append()
	case 3, 4:
		h.start()
	case 5:
		h.end(false)
	case 6, 7:
		h.end(true)
	case 8: // leases expire, also those of running processes
		h.ahead.Add((lease + time.Second).Microseconds())
	case 9:
		h.act(func(f *fixture, o operator.Command, s *stream) error {
			return storetest.No(f.progress.Pause(h.Context(), o, s.sub.SubscriptionName))
		})
	case 10, 11:
		h.act(func(f *fixture, o operator.Command, s *stream) error {
			return storetest.No(f.progress.Resume(h.Context(), o, s.sub.SubscriptionName))
		})
	case 12:
		h.act(h.seek)
	case 13:
		h.act(h.skip)
	}
}

func (h *history) settle() {
	for _, s := range h.streams {
		s.behave()
		_, err := h.stores[0].progress.Resume(h.Context(), ana("mended"), s.sub.SubscriptionName)
		if err != nil && !errors.Is(err, event.ErrConflict) {
			h.Fatal(err)
		}
	}
	h.start()
	h.append()
	h.ahead.Add((lease + time.Second).Microseconds())
	for _, sub := range h.subs {
		h.stores[0].mustStandAt(h, sub.SubscriptionName, int64(len(h.types)))
	}
	for len(h.processes) > 0 {
		h.end(false)
	}
}

// Whatever happens to processes, destinations and subscriptions, a receiver gets the journal in
// order, possibly with repeats, and nothing is missing.
func TestRelay_missesNothingWhateverHappened(t *testing.T) {
	t.Parallel()
	seed := *publishingSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	h := newHistory(t, seed)
	defer func() {
		for len(h.processes) > 0 {
			h.end(false)
		}
	}()
	h.start()
	for range cmp.Or(*publishingSteps, size.Of(60, 100, 1_000)) {
		h.step()
		if h.dice.IntN(3) == 0 {
			h.wait()
		}
	}
	h.settle()
	for _, s := range h.streams {
		wrong, floor, received := s.verdict()
		for p := floor + 1; p <= int64(len(h.types)); p++ {
			if s.selects(p) {
				wrong = append(wrong, fmt.Sprintf("%s: %d never came", s.sub.SubscriptionName, p))
			}
		}
		must.Hold(t, len(wrong) <= 0 && received != 0, "%s got %d events, %v; try -publishing-seed %d", s.sub.SubscriptionName, received, wrong, seed)
	}
}

// wait lets the processes make progress, if there is anything to do.
func (h *history) wait() {
	enough := time.NewTimer(15 * time.Millisecond)
	defer enough.Stop()
	select {
	case <-h.came:
	case <-enough.C:
	}
}
