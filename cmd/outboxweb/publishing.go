package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing/destination"
)

// subscriptions are the publishers that the configuration file describes. An error
// names the file and the line at fault.
func (c *Common) subscriptions() ([]destination.Subscription, error) {
	if c.topics == nil {
		return nil, nil
	}
	pairs, err := destination.Parse(c.topics, os.LookupEnv)
	if refusal, ok := errors.AsType[*outbox.Refusal](err); ok {
		return nil, usagef("--config: %s %s", c.Config, refusal)
	}
	return pairs, err
}

// subscription is one of pairs.
func (c *Common) subscription(name outbox.SubscriptionName) (destination.Subscription, error) {
	pairs, err := c.subscriptions()
	if err != nil {
		return destination.Subscription{}, err
	}
	pair, found := subscriptionNamed(pairs, name)
	if !found {
		return pair, usagef("publisher %s is not in the configuration of this command; name the file with --config", name)
	}
	return pair, nil
}

func subscriptionNamed(pairs []destination.Subscription, name outbox.SubscriptionName) (destination.Subscription, bool) {
	i := slices.IndexFunc(pairs, func(p destination.Subscription) bool { return p.SubscriptionName == name })
	if i < 0 {
		return destination.Subscription{}, false
	}
	return pairs[i], true
}

// publishOptions are what destinations need, but for the journal's id.
func (a *app) publishOptions() destination.Options {
	return destination.Options{Logger: a.logger(), Version: version}
}

// publisherTester sends made-up events to the destinations of pairs.
func (c *serveCmd) publisherTester(a *app, st *engine, pairs []destination.Subscription) func(context.Context, outbox.SubscriptionName) (outbox.TestDelivery, error) {
	return func(ctx context.Context, name outbox.SubscriptionName) (outbox.TestDelivery, error) {
		pair, found := subscriptionNamed(pairs, name)
		if !found {
			return outbox.TestDelivery{}, outbox.Conflict("publisher %s is not in this server's configuration; send the test from a server that has it", name)
		}
		return testPublisher(ctx, st, pair, a.publishOptions(), c.EventSource)
	}
}

// testPublisher sends a made-up event to the destination of a pair. That the
// destination does not take it is no error.
func testPublisher(ctx context.Context, st *engine, pair destination.Subscription, o destination.Options, source string) (outbox.TestDelivery, error) {
	journal, err := st.JournalID(ctx)
	if err != nil {
		return outbox.TestDelivery{}, err
	}
	if o.Journal = journal; source == "" {
		source = destination.Source(journal)
	}
	to, err := pair.Open(o)
	if err != nil {
		return outbox.TestDelivery{}, err
	}
	sent := outbox.TestDelivery{SubscriptionName: pair.SubscriptionName, ID: "test-" + uuid.NewString()}
	began := time.Now()
	_, failure := to.Publish(ctx, []*destination.Event{destination.TestEvent(source, sent.ID)})
	sent.Seconds = time.Since(began).Seconds()
	if failure = errors.Join(failure, to.Close()); failure != nil {
		sent.Error = failure.Error()
	}
	sent.OK = failure == nil
	return sent, nil
}
