// Package destination delivers events of the journal to other systems. A Pair is
// one publisher of one topic as the configuration file describes it; opened, it
// is a Publisher for the kind of destination that its URL names:
//
//	log:                          the process's own log
//	file:///path.ndjson           a file of JSON lines
//	https://…                     a webhook
//	nats://host:4222/subject      a NATS JetStream subject
//	kafka://broker:9092/topic     a Kafka topic
//
// Events travel as CloudEvents 1.0 in JSON. Which events are delivered when,
// and what is done about errors, is the business of publishing.Relay.
package destination

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"outboxweb/internal/outbox"
)

// Publisher delivers events to one destination. One goroutine at a time uses
// it.
type Publisher interface {
	// Publish delivers events, which are in the order of their positions, and
	// returns how many of them, from the first on, the destination has
	// acknowledged. It may stop early without an error where deliveries take
	// long; the caller then goes on with the rest. An error is why the next
	// one was not delivered; *Error says whom to blame. Once ctx ends nothing
	// more is sent: another process may be delivering by then.
	Publish(ctx context.Context, events []*Event) (delivered int, err error)
	// Close gives up what the publisher holds. It does not wait for a
	// destination that does not answer.
	Close() error
}

// Error is why a destination did not take an event. An error that is none is
// taken as one of the destination.
type Error struct {
	Kind outbox.DeliveryErrorKind
	// RetryAfter is the least time until the next try that the destination
	// asked for; 0 when it did not.
	RetryAfter time.Duration
	// Gone means that the destination does not want to be asked again.
	Gone bool
	Err  error // in full, for an operator
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Cause is what an error of Publish says about its cause.
func Cause(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: outbox.DestinationError, Err: err}
}

// Defaults of a subscription.
const (
	DefaultPollInterval = time.Second
	DefaultBatchSize    = 100
	DefaultTimeout      = 10 * time.Second
	DefaultRetryBase    = time.Second
	DefaultRetryMax     = time.Minute
	DefaultMaxErrors    = 10
	DefaultFailedRetry  = 5 * time.Minute
)

// Subscription is one publisher of one topic, as the configuration file describes it.
type Subscription struct {
	outbox.SubscriptionName
	Match        outbox.Match
	URL          string // of the destination, with secrets
	Destination  string // the same without
	StartAtHead  bool   // start: head instead of beginning
	PollInterval time.Duration
	BatchSize    int           // events handed to Publish at a time at the most
	Timeout      time.Duration // of one call of the destination
	Pause        outbox.Retry  // the wait after errors in a row: from Base, doubled with each, to Max
	MaxErrors    int           // in a row, after which the subscription has failed
	FailedRetry  time.Duration // how often a failed subscription is tried again

	settings settings
}

// LogValue keeps secrets out of logs.
func (p Subscription) LogValue() slog.Value {
	return slog.GroupValue(slog.String("pair", p.String()), slog.String("destination", p.Destination))
}

// Definition is what the store keeps of the subscription.
func (p Subscription) Definition() outbox.PublisherDefinition {
	return outbox.PublisherDefinition{SubscriptionName: p.SubscriptionName, Destination: p.Destination, Match: p.Match, StartAtHead: p.StartAtHead, MaxErrors: p.MaxErrors}
}

// Options are what destinations need of the process that opens them.
type Options struct {
	Logger  *slog.Logger
	Journal string // the journal's id, which receivers see
	Version string // of the program
}
