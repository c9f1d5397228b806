package destination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Functions deliver the events of a subscription made in Go. Each is called with a context that ends
// after the subscription's timeout, and never two at a time within a process. They must not change
// the events, nor keep them.
//
// An error that is no *Error is an outbox.UnknownError.
type Functions struct {
	// Deliver delivers events and returns how many of them, from the first on, are delivered. It may
	// stop early without an error. An *Error is the reason why the next event was not delivered. After
	// any other error, or a panic, of a call that delivered nothing the events are delivered again one
	// by one, to find the one that fails.
	Deliver func(ctx context.Context, events []*Event) (delivered int, err error)
	// Healthy returns why nothing can be delivered now; nil if something can. It is optional.
	Healthy func(ctx context.Context) error
}

// Custom returns a subscription that functions of this program deliver, by the same rules as those
// of the configuration file. Zero settings are those of defaults, and of DefaultSettings. An error
// is an *outbox.Refusal.
func Custom(s Subscription, f Functions, defaults Settings) (Subscription, error) {
	for _, part := range [...][2]string{{"topic", s.Topic}, {"publisher", s.Publisher}} {
		if err := outbox.CheckSubscriptionPart(part[0], part[1]); err != nil {
			return s, err
		}
	}
	s.Settings = s.Settings.or(defaults)
	if s.Destination == "" {
		s.Destination = outbox.FunctionDestination
	}
	switch {
	case s.Match.Empty():
		return s, outbox.Setup(`publisher %s selects no events; say which, or select every event with the event type "*"`, s.SubscriptionName)
	case f.Deliver == nil:
		return s, outbox.Setup("publisher %s needs a function that delivers", s.SubscriptionName)
	}
	if err := s.Settings.check(); err != nil {
		return s, outbox.Setup("publisher %s: %v", s.SubscriptionName, err)
	}
	s.settings.functions = &guarded{name: s.SubscriptionName, timeout: s.Timeout, Functions: f, free: make(chan struct{}, 1)}
	return s, nil
}

// guarded calls the functions of one subscription: with a time limit that holds even if a function
// ignores its context, one at a time, and so that a panic is an error. All publishers that are opened
// for the subscription share it.
type guarded struct {
	Functions
	name    outbox.SubscriptionName
	timeout time.Duration
	free    chan struct{} // has an element while a function runs

	mu      sync.Mutex
	running *running // the call that has not returned; nil between calls
}

// running is a call of a function.
type running struct {
	began     time.Time
	events    int  // to deliver
	abandoned bool // nobody waits for it any more
}

// returnGrace is how long a function may take to return after its context has ended.
const returnGrace = time.Second

// outcome is what a function returned.
type outcome struct {
	delivered int
	err       error
	unclear   bool // which event the error is about
}

func unknown(format string, args ...any) *Error {
	return &Error{Kind: outbox.UnknownError, Err: fmt.Errorf(format, args...)}
}

// call calls f, which is to deliver so many events, unless an earlier call has not returned.
func (g *guarded) call(ctx context.Context, log *slog.Logger, events int, f func(context.Context) (int, error)) outcome {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	this, err := g.enter(ctx, events)
	if err != nil {
		return outcome{err: err}
	}
	done := make(chan outcome, 1)
	go func() {
		// Goexit ends a goroutine too, and leaves nothing to recover.
		o := outcome{err: outbound.EventError("the function ended its goroutine"), unclear: true}
		defer func() {
			if r := recover(); r != nil {
				log.Error("a function of a publisher panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				o.err = outbound.EventError("the function panicked: %v", r)
			}
			done <- o
			g.leave()
		}()
		n, err := f(ctx)
		o = outcome{delivered: n, err: err}
	}()
	select {
	case o := <-done:
		return g.inTime(ctx, o)
	case <-ctx.Done():
	}
	grace := time.NewTimer(returnGrace)
	defer grace.Stop()
	select {
	case o := <-done:
		return g.inTime(ctx, o)
	case <-grace.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	this.abandoned = true
	return outcome{err: g.notReturned(this)}
}

// inTime explains the error of a function that its context has stopped.
func (g *guarded) inTime(ctx context.Context, o outcome) outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(o.err, context.DeadlineExceeded) {
		o.err = fmt.Errorf("the function did not finish within %v: %w", g.timeout, o.err)
	}
	return o
}

// errNotReturned is in the errors of calls that were not made, or have not returned.
var errNotReturned = errors.New("no other call starts before it returns")

func (g *guarded) notReturned(call *running) error {
	with := ""
	if call.events > 1 {
		with = fmt.Sprintf(" with %d events, any of which may be at fault,", call.events)
	}
	return unknown("the call of %s%s has not returned for %s, though its time limit is %v; %w", g.name, with, outbox.Age(time.Since(call.began)), g.timeout, errNotReturned)
}

// HangingSince is when the call of a Go function began that has not returned though its time limit is
// over; zero without one.
func (p Subscription) HangingSince() time.Time {
	g := p.settings.functions
	if g == nil {
		return time.Time{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil || !g.running.abandoned {
		return time.Time{}
	}
	return g.running.began
}

// enter waits until no function runs. It does not wait for an abandoned one.
func (g *guarded) enter(ctx context.Context, events int) (*running, error) {
	g.mu.Lock()
	if before := g.running; before != nil && before.abandoned {
		defer g.mu.Unlock()
		return nil, g.notReturned(before)
	}
	g.mu.Unlock()
	select {
	case g.free <- struct{}{}:
	case <-ctx.Done():
		return nil, unknown("another call of %s is in progress; %w: %w", g.name, errNotReturned, ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = &running{began: time.Now(), events: events}
	return g.running, nil
}

func (g *guarded) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = nil
	<-g.free
}

// custom is a publisher made in Go.
type custom struct {
	*guarded
	log *slog.Logger
}

// reporting is a custom publisher that also says whether it is healthy.
type reporting struct{ *custom }

func openCustom(p Subscription, o Options) Publisher {
	c := &custom{guarded: p.settings.functions, log: o.Logger.With("topic", p.Topic, "publisher", p.Publisher)}
	if c.Functions.Healthy != nil {
		return reporting{c}
	}
	return c
}

func (r reporting) Healthy(ctx context.Context) error {
	return r.call(ctx, r.log, 0, func(ctx context.Context) (int, error) { return 0, r.Functions.Healthy(ctx) }).err
}

func (c *custom) Close() error { return nil }

func (c *custom) Publish(ctx context.Context, events []*Event) (int, error) {
	o := c.deliver(ctx, events)
	if !o.unclear || len(events) == 1 {
		return o.delivered, o.err
	}
	began := time.Now()
	for i := range events {
		switch {
		case ctx.Err() != nil && i == 0:
			return 0, o.err
		case ctx.Err() != nil, i > 0 && time.Since(began) > patience:
			return i, nil
		}
		if one := c.deliver(ctx, events[i:i+1]); one.err != nil {
			return i, one.err
		}
	}
	return len(events), nil
}

// deliver calls the function that delivers once.
func (c *custom) deliver(ctx context.Context, events []*Event) outcome {
	o := c.call(ctx, c.log, len(events), func(ctx context.Context) (int, error) { return c.Deliver(ctx, events) })
	switch n := len(events); {
	case o.delivered < 0 || o.delivered > n:
		o = outcome{err: fmt.Errorf("the function returned that it delivered %d of %d events", o.delivered, n)}
	case o.delivered == 0 && o.err == nil:
		o.err = errors.New("the function delivered nothing and returned no error")
	case o.delivered == n && o.err != nil:
		o = outcome{err: fmt.Errorf("the function returned that it delivered %d of %d events, and an error: %v", n, n, o.err)}
	}
	var is *Error
	if o.err != nil && !errors.As(o.err, &is) {
		o.err, o.unclear = unknown("%w", o.err), o.delivered == 0
	}
	return o
}
