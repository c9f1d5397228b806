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

// pairs are the publishers that the configuration file describes. An error
// names the file and the line at fault.
func (c *Common) pairs() ([]destination.Pair, error) {
	if c.topics == nil {
		return nil, nil
	}
	pairs, err := destination.Parse(c.topics, os.LookupEnv)
	if refusal, ok := errors.AsType[*outbox.Refusal](err); ok {
		return nil, usagef("--config: %s %s", c.Config, refusal)
	}
	return pairs, err
}

// pair is one of pairs.
func (c *Common) pair(name outbox.PairName) (destination.Pair, error) {
	pairs, err := c.pairs()
	if err != nil {
		return destination.Pair{}, err
	}
	pair, found := pairNamed(pairs, name)
	if !found {
		return pair, usagef("publisher %s is not in the configuration of this command; name the file with --config", name)
	}
	return pair, nil
}

func pairNamed(pairs []destination.Pair, name outbox.PairName) (destination.Pair, bool) {
	i := slices.IndexFunc(pairs, func(p destination.Pair) bool { return p.PairName == name })
	if i < 0 {
		return destination.Pair{}, false
	}
	return pairs[i], true
}

// publishOptions are what destinations need, but for the journal's id.
func (a *app) publishOptions() destination.Options {
	return destination.Options{Logger: a.logger(), Version: version}
}

// publisherTester sends made-up events to the destinations of pairs.
func (c *serveCmd) publisherTester(a *app, st *engine, pairs []destination.Pair) func(context.Context, outbox.PairName) (outbox.TestDelivery, error) {
	return func(ctx context.Context, name outbox.PairName) (outbox.TestDelivery, error) {
		pair, found := pairNamed(pairs, name)
		if !found {
			return outbox.TestDelivery{}, outbox.Conflict("publisher %s is not in this server's configuration; send the test from a server that has it", name)
		}
		return testPublisher(ctx, st, pair, a.publishOptions(), c.EventSource)
	}
}

// testPublisher sends a made-up event to the destination of a pair. That the
// destination does not take it is no error.
func testPublisher(ctx context.Context, st *engine, pair destination.Pair, o destination.Options, source string) (outbox.TestDelivery, error) {
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
	sent := outbox.TestDelivery{PairName: pair.PairName, ID: "test-" + uuid.NewString()}
	began := time.Now()
	_, failure := to.Publish(ctx, []*destination.Event{destination.TestEvent(source, sent.ID)})
	sent.Seconds = time.Since(began).Seconds()
	if failure = errors.Join(failure, to.Close()); failure != nil {
		sent.Error = failure.Error()
	}
	sent.OK = failure == nil
	return sent, nil
}
