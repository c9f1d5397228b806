package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// testPublisher sends a made-up event to the destination of a publisher that this process knows.
func (p *Process) testPublisher(ctx context.Context, name operator.SubscriptionName) (subscription.TestDelivery, error) {
	i := slices.IndexFunc(p.Subscriptions, func(sub destination.Subscription) bool { return sub.SubscriptionName == name })
	if i < 0 {
		return subscription.TestDelivery{}, event.Conflict("publisher %s is not in this server's configuration; send the test from a server that has it", name)
	}
	return p.Engine.TestPublisher(ctx, p.Subscriptions[i], p.Destinations, p.EventSource)
}

// TestPublisher sends a made-up event to a subscription's destination. A delivery failure is part
// of the result, not an error.
func (e *Engine) TestPublisher(ctx context.Context, sub destination.Subscription, o destination.Options, source string) (subscription.TestDelivery, error) {
	journal, err := e.JournalID(ctx)
	if err != nil {
		return subscription.TestDelivery{}, err
	}
	if o.Journal = journal; source == "" {
		source = destination.Source(journal)
	}
	to, err := sub.Open(o)
	if err != nil {
		return subscription.TestDelivery{}, err
	}
	sent := subscription.TestDelivery{SubscriptionName: sub.SubscriptionName, ID: "test-" + uuid.NewString()}
	began := time.Now()
	_, reason := destination.CheckHealth(ctx, to)
	failure := destination.NotHealthy(reason)
	if failure == nil {
		_, failure = to.Publish(ctx, []*destination.Event{destination.TestEvent(source, sent.ID)})
	}
	sent.Seconds = time.Since(began).Seconds()
	if failure = errors.Join(failure, to.Close()); failure != nil {
		sent.Error = failure.Error()
	}
	sent.OK = failure == nil
	return sent, nil
}
