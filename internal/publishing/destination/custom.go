package destination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Functions deliver the events of a subscription made in Go. Each is called with a context that ends
// after the subscription's timeout, and never two at a time within a process. They must not change
// the events, nor keep them.
//
// An error that is no *Error is an operator.UnknownError.
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
// is an *event.Refusal.
func Custom(s Subscription, f Functions, defaults Settings) (Subscription, error) {
	for _, part := range [...][2]string{{"topic", s.Topic}, {"publisher", s.Publisher}} {
		if err := event.CheckName(part[0], part[1]); err != nil {
			return s, err
		}
	}
	s.Settings = s.Settings.or(defaults)
	if s.Destination == "" {
		s.Destination = subscription.FunctionDestination
	}
	switch {
	case s.Match.Empty():
		return s, event.Setup(`publisher %s selects no events; say which, or select every event with the event type "*"`, s.SubscriptionName)
	case f.Deliver == nil:
		return s, event.Setup("publisher %s needs a function that delivers", s.SubscriptionName)
	}
	if err := s.Settings.check(); err != nil {
		return s, event.Setup("publisher %s: %v", s.SubscriptionName, err)
	}
	s.settings.functions = f
	s.settings.calls = &calls{name: s.SubscriptionName, what: "function", kind: operator.UnknownError, timeout: s.Timeout, free: make(chan struct{}, 1)}
	return s, nil
}

// custom is a publisher made in Go.
type custom struct {
	Functions
	*calls
	log *slog.Logger
}

// reporting is a custom publisher that also says whether it is healthy.
type reporting struct{ *custom }

func openCustom(p Subscription, o Options) Publisher {
	c := &custom{Functions: p.settings.functions, calls: p.settings.calls, log: o.Logger.With("topic", p.Topic, "publisher", p.Publisher)}
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
	if _, is := errors.AsType[*Error](o.err); o.err != nil && !is {
		o.err, o.unclear = &Error{Kind: operator.UnknownError, Err: o.err}, o.delivered == 0
	}
	return o
}
