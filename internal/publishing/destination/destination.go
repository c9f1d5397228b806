// Package destination delivers events of the journal to other systems. A Subscription is one
// publisher of one topic as the configuration file describes it; opened, it is a Publisher for the
// kind of destination of its URL:
//
//	log:                          the process's own log
//	file:///path.ndjson           a file of JSON lines
//	https://…                     a webhook
//	nats://host:4222/subject      a NATS JetStream subject
//	kafka://broker:9092/topic     a Kafka topic
//	statistics:                   counts of types and tags, for the log and metrics
//
// Custom makes a Subscription that a Go function delivers.
//
// Events are sent as CloudEvents 1.0 in JSON. publishing.Relay decides which events are delivered
// when, and handles errors.
package destination

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Publisher delivers events to one destination. It is used by one goroutine at a time.
type Publisher interface {
	// Publish delivers events, which are in order of position, and returns how many of them, from
	// the first on, the destination has acknowledged. It may stop early without an error if
	// deliveries are slow; the caller then continues with the rest. An error is the reason why the
	// next event was not delivered; *Error says whether the event or the destination is to blame.
	// Nothing is sent after ctx ends: another process may be delivering by then.
	Publish(ctx context.Context, events []*Event) (delivered int, err error)
	// Close releases the publisher's resources. It does not wait for an unresponsive destination.
	Close() error
}

// Healthy is implemented by publishers that know whether they can deliver. It is asked before the
// first delivery, when a delivery fails, before each retry, and after an operator's action; an error is
// why they cannot, and nothing is delivered then.
type Healthy interface {
	Healthy(ctx context.Context) error
}

// CheckHealth asks a publisher whether it is healthy, if it knows, and returns why nothing can be
// delivered. It has not said so itself if a call of it does not return.
func CheckHealth(ctx context.Context, p Publisher) (said bool, reason error) {
	h, knows := p.(Healthy)
	if !knows {
		return false, nil
	}
	reason = h.Healthy(ctx)
	return !errors.Is(reason, errNotReturned), reason
}

// NotHealthy is the error of a delivery that was not attempted for a reason of CheckHealth; nil
// without one.
func NotHealthy(reason error) error {
	if reason == nil || errors.Is(reason, errNotReturned) {
		return reason
	}
	return outbound.DestinationError("the publisher is not healthy: %w", reason)
}

// Error is why a destination did not accept an event. Other errors count as errors of the
// destination.
type Error = outbound.Error

// Cause returns the *Error of an error of Publish.
func Cause(err error) *Error { return outbound.Cause(err) }

// Subscription is one publisher of one topic, as the configuration file describes it.
type Subscription struct {
	operator.SubscriptionName
	Match       subscription.Match
	URL         string // of the destination, with secrets
	Destination string // the URL without secrets
	StartAtHead bool   // start: head instead of beginning
	Settings

	settings settings
}

// LogValue keeps secrets out of logs.
func (p Subscription) LogValue() slog.Value {
	return slog.GroupValue(slog.String("pair", p.String()), slog.String("destination", p.Destination))
}

// Definition returns the part of the subscription that the store keeps.
func (p Subscription) Definition() subscription.PublisherDefinition {
	return subscription.PublisherDefinition{SubscriptionName: p.SubscriptionName, Destination: p.Destination, Match: p.Match, StartAtHead: p.StartAtHead, MaxErrors: p.MaxErrors, Settings: p.Settings.view()}
}

// Options are what destinations need from the process.
type Options struct {
	Logger  *slog.Logger
	Journal string // the journal's id, visible to receivers
	Version string // of the program
	// Published counts deliveries to statistics: for metrics; nil counts nothing.
	Published Counters
}

// Counters count events that were published to statistics:.
type Counters interface {
	CountType(of operator.SubscriptionName, eventType string, events int)
	CountTag(of operator.SubscriptionName, tag, value string, events int)
}
