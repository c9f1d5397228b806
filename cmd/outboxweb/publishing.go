package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// subscriptions returns the publishers that the configuration file describes. An error names the
// file and the line at fault.
func (c *Common) subscriptions() ([]destination.Subscription, error) {
	if c.topics == nil {
		return nil, nil
	}
	subs, err := destination.Parse(c.topics, os.LookupEnv)
	if refusal, ok := errors.AsType[*outbox.Refusal](err); ok {
		return nil, usagef("--config: %s %s", c.Config, refusal)
	}
	return subs, err
}

// subscription returns the named publisher of the configuration file.
func (c *Common) subscription(name outbox.SubscriptionName) (destination.Subscription, error) {
	subs, err := c.subscriptions()
	if err != nil {
		return destination.Subscription{}, err
	}
	sub, found := subscriptionNamed(subs, name)
	if !found {
		return sub, usagef("publisher %s is not in the configuration of this command; name the file with --config", name)
	}
	return sub, nil
}

func subscriptionNamed(subs []destination.Subscription, name outbox.SubscriptionName) (destination.Subscription, bool) {
	i := slices.IndexFunc(subs, func(p destination.Subscription) bool { return p.SubscriptionName == name })
	if i < 0 {
		return destination.Subscription{}, false
	}
	return subs[i], true
}

// publishOptions returns the options of destinations, without the journal's id.
func (a *app) publishOptions() destination.Options {
	return destination.Options{Logger: a.logger(), Version: version}
}

// publisherTester returns a function that sends made-up events to the destinations of
// subscriptions.
func (c *serveCmd) publisherTester(a *app, st *engine, subs []destination.Subscription) func(context.Context, outbox.SubscriptionName) (outbox.TestDelivery, error) {
	return func(ctx context.Context, name outbox.SubscriptionName) (outbox.TestDelivery, error) {
		sub, found := subscriptionNamed(subs, name)
		if !found {
			return outbox.TestDelivery{}, outbox.Conflict("publisher %s is not in this server's configuration; send the test from a server that has it", name)
		}
		return testPublisher(ctx, st, sub, a.publishOptions(), c.EventSource)
	}
}

// testPublisher sends a made-up event to a subscription's destination. A delivery failure is part
// of the result, not an error.
func testPublisher(ctx context.Context, st *engine, sub destination.Subscription, o destination.Options, source string) (outbox.TestDelivery, error) {
	journal, err := st.JournalID(ctx)
	if err != nil {
		return outbox.TestDelivery{}, err
	}
	if o.Journal = journal; source == "" {
		source = destination.Source(journal)
	}
	to, err := sub.Open(o)
	if err != nil {
		return outbox.TestDelivery{}, err
	}
	sent := outbox.TestDelivery{SubscriptionName: sub.SubscriptionName, ID: "test-" + uuid.NewString()}
	began := time.Now()
	_, failure := to.Publish(ctx, []*destination.Event{destination.TestEvent(source, sent.ID)})
	sent.Seconds = time.Since(began).Seconds()
	if failure = errors.Join(failure, to.Close()); failure != nil {
		sent.Error = failure.Error()
	}
	sent.OK = failure == nil
	return sent, nil
}
