package destination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// calls makes the calls of one subscription: with a time limit that holds even if a call ignores its
// context, and so that a panic is an error. All publishers that are opened for the subscription share it.
type calls struct {
	name    operator.SubscriptionName
	what    string                     // is called: a function, or a publisher
	kind    operator.DeliveryErrorKind // of a call that does not return
	timeout time.Duration
	free    chan struct{} // has an element for each call that runs; its capacity is how many may

	mu      sync.Mutex
	hanging []*running // calls that nobody waits for any more, the first one first
}

// running is a call.
type running struct {
	began  time.Time
	events int // to deliver
}

// returnGrace is how long a call may take to return after its context has ended.
const returnGrace = time.Second

// outcome is what a call returned.
type outcome struct {
	delivered int
	err       error
	unclear   bool // which event the error is about
}

// call calls f, which is to deliver so many events, unless an earlier call has not returned.
func (c *calls) call(ctx context.Context, log *slog.Logger, events int, f func(context.Context) (int, error)) outcome {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx = within{limited, ctx}
	this, err := c.enter(ctx, events)
	if err != nil {
		return outcome{err: err}
	}
	done := make(chan outcome, 1)
	go func() {
		// Goexit ends a goroutine too, and leaves nothing to recover.
		o := outcome{err: outbound.Refusal("the %s ended its goroutine", c.what), unclear: true}
		defer func() {
			if r := recover(); r != nil {
				log.Error("a "+c.what+" of a publisher panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				o.err = outbound.Refusal("the %s panicked: %v", c.what, r)
			}
			done <- o
			c.leave(this)
		}()
		n, err := f(ctx)
		o = outcome{delivered: n, err: err}
	}()
	select {
	case o := <-done:
		return c.inTime(ctx, o)
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return c.inTime(ctx, o)
	case <-time.After(returnGrace):
	}
	return c.abandon(this, done)
}

// within is a context that ends with another, which may end by the clock before its timers fire.
type within struct {
	context.Context
	outer context.Context
}

func (w within) Err() error {
	if err := w.outer.Err(); err != nil {
		return err
	}
	return w.Context.Err()
}

// inTime explains the error of a call that its context has stopped.
func (c *calls) inTime(ctx context.Context, o outcome) outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(o.err, context.DeadlineExceeded) {
		o.err = fmt.Errorf("the %s did not finish within %v: %w", c.what, c.timeout, o.err)
	}
	return o
}

// errNotReturned is in the errors of calls that were not made, or have not returned.
var errNotReturned = errors.New("no other call starts before it returns")

func (c *calls) notReturned(call *running) error {
	with := ""
	if call.events > 1 {
		with = fmt.Sprintf(" with %d events, any of which may be at fault,", call.events)
	}
	return &Error{Kind: c.kind, Err: fmt.Errorf("the call of %s%s has not returned for %s, though its time limit is %v; %w",
		c.name, with, event.Age(time.Since(call.began)), c.timeout, errNotReturned)}
}

// HangingSince is when the call of the subscription began that has not returned though its time limit is
// over; zero without one.
func (p Subscription) HangingSince() time.Time {
	c := p.settings.calls
	if c == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hanging) == 0 {
		return time.Time{}
	}
	return c.hanging[0].began
}

// enter waits until a call may run. It does not wait for an abandoned one.
func (c *calls) enter(ctx context.Context, events int) (*running, error) {
	c.mu.Lock()
	if len(c.hanging) > 0 {
		defer c.mu.Unlock()
		return nil, c.notReturned(c.hanging[0])
	}
	c.mu.Unlock()
	select {
	case c.free <- struct{}{}:
	case <-ctx.Done():
		return nil, &Error{Kind: c.kind, Err: fmt.Errorf("another call of %s is in progress; %w: %w", c.name, errNotReturned, ctx.Err())}
	}
	return &running{began: time.Now(), events: events}, nil
}

// abandon gives a call up, unless it has returned just now.
func (c *calls) abandon(call *running, done <-chan outcome) outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case o := <-done:
		return o
	default:
	}
	c.hanging = append(c.hanging, call)
	return outcome{err: c.notReturned(call)}
}

func (c *calls) leave(call *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = slices.DeleteFunc(c.hanging, func(other *running) bool { return other == call })
	<-c.free
}

// bounded is a publisher of this package, whose calls end even if it does not keep its own time limits.
type bounded struct {
	*calls
	to    Publisher
	log   *slog.Logger
	using chan struct{} // has an element while to is called
}

// mostCalls is how many calls of one subscription run at a time: a delivery, and a test beside it.
const mostCalls = 2

// callsOf makes the calls of a configured subscription. A publisher may go on for its patience, and may
// then need two calls of the destination more.
func callsOf(p Subscription) *calls {
	return &calls{name: p.SubscriptionName, what: "publisher", kind: operator.DestinationError,
		timeout: 2 * (patience + p.Timeout + outbound.LongestAnswer), free: make(chan struct{}, mostCalls)}
}

func (b *bounded) Publish(ctx context.Context, events []*Event) (int, error) {
	o := b.call(ctx, b.log, len(events), func(ctx context.Context) (int, error) {
		b.using <- struct{}{}
		defer func() { <-b.using }()
		return b.to.Publish(ctx, events)
	})
	return o.delivered, o.err
}

// Close closes the publisher as soon as no call uses it, and waits a moment for that.
func (b *bounded) Close() error {
	closed := make(chan error, 1)
	go func() {
		b.using <- struct{}{}
		defer func() { <-b.using }()
		closed <- b.to.Close()
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeTime):
		return fmt.Errorf("it has not closed within %v", closeTime)
	}
}

// closeTime is how long closing a publisher may take.
const closeTime = 5 * time.Second
