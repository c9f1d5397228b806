package outboxweb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Topic selects events for publishers. Each field narrows it; at least one is required. An event type
// of "*" selects every event.
type Topic struct {
	Name         string            // begins with a lower-case letter or a digit; then also dots, dashes and underscores
	EventTypes   []string          // types, in which * stands for any characters
	Campaigns    []string          // campaign ids as they are: * is no wildcard here
	RequiredTags []string          // tags that an event must have, all of them
	AnyOfTags    []string          // tags of which an event must have one
	ExactTags    map[string]string // tags with these values

	// StartAtHead begins with the next appended event; without it a new publisher begins with the
	// first event of the journal.
	StartAtHead  bool
	BatchSize    int           // events per call; 0 means 100
	PollInterval time.Duration // 0 means 1 s; appends of this process wake publishers at once
	Timeout      time.Duration // of one call; 0 means 10 s
	MaxErrors    int           // errors in a row after which the publisher has failed, and is retried every 5 min; 0 means 10
}

// Publisher delivers events to another system: in order of position, each at least once. A repeated
// call begins with an event that was sent before; Event.Position tells them apart. A Publisher that
// also has a method Healthy(context.Context) error is asked before the first delivery and while
// errors last; the console shows what it says.
type Publisher interface {
	// Publish delivers all events. An *EventError says how many it delivered and that the next one is
	// at fault; those before it do not come again. After any other error, and after a panic, all of
	// them come again one by one, to find the one that fails, and nobody knows whether that event or
	// its destination is at fault. Whatever failed is tried again later. ctx ends after Topic.Timeout.
	Publish(ctx context.Context, events []Event) error
}

// EventError is the error of a Publisher that knows which event of a batch is at fault: the one after
// the first Delivered events, which are delivered. The error that Publish returns may wrap it.
type EventError struct {
	Delivered int
	Err       error
}

func (e *EventError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *EventError) Unwrap() error { return e.Err }

// PublisherFunc is a function that is a Publisher.
type PublisherFunc func(ctx context.Context, events []Event) error

// Publish calls the function.
func (f PublisherFunc) Publish(ctx context.Context, events []Event) error { return f(ctx, events) }

// Publish delivers the events that a topic selects to p, under a name that is unique in the topic.
// Both names begin with a lower-case letter or a digit and continue with lower-case letters, digits,
// dots, dashes and underscores, at most 100 characters. The position is kept in the journal, by both
// names, and one process at a time delivers. It must come before Run and Handler. Errors are ErrSetup.
func (e *Engine) Publish(topic Topic, name string, p Publisher) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.errStarted("Publish"); err != nil {
		return err
	}
	full := operator.SubscriptionName{Topic: topic.Name, Publisher: name}
	for _, other := range e.subs {
		if other.SubscriptionName == full {
			return event.Setup("publisher %s already exists", full)
		}
	}
	if f, is := p.(PublisherFunc); p == nil || is && f == nil {
		return event.Setup("publisher %s is nil", full)
	}
	f := destination.Functions{Deliver: func(ctx context.Context, stored []*destination.Event) (int, error) {
		events := make([]Event, len(stored))
		for i, s := range stored {
			var err error
			if events[i], err = eventOf(&s.Event); err != nil {
				return 0, fmt.Errorf("read the tags of event %d of campaign %q: %w", s.Seq, s.CampaignID, err)
			}
		}
		err := p.Publish(ctx, events)
		var at *EventError
		switch {
		case err == nil:
			return len(events), nil
		case errors.As(err, &at):
			return at.Delivered, &destination.Error{Kind: operator.EventError, Err: err}
		}
		return 0, err
	}}
	if h, ok := p.(interface{ Healthy(context.Context) error }); ok {
		f.Healthy = h.Healthy
	}
	to := subscription.FunctionDestination
	if _, is := p.(PublisherFunc); !is {
		to += fmt.Sprintf("%T", p)
	}
	sub, err := destination.Custom(destination.Subscription{SubscriptionName: full, Destination: to, StartAtHead: topic.StartAtHead,
		Match:    subscription.Match{EventTypes: topic.EventTypes, Campaigns: topic.Campaigns, RequiredTags: topic.RequiredTags, AnyOfTags: topic.AnyOfTags, ExactTags: topic.ExactTags},
		Settings: destination.Settings{BatchSize: topic.BatchSize, PollInterval: topic.PollInterval, Timeout: topic.Timeout, MaxErrors: topic.MaxErrors}}, f, destination.Settings{})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	e.subs = append(e.subs, sub)
	return nil
}
