package main

import (
	"cmp"
	"slices"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// subscriptions returns the publishers that the configuration file describes. An error names the
// file and the line at fault.
func (c *Common) subscriptions() ([]destination.Subscription, error) {
	var e environment
	subs, _, err := destination.Config{Topics: c.sections[destination.TopicsKey], Defaults: c.sections[destination.DefaultsKey], Getenv: e.lookup}.Parse()
	return subs, c.inConfig(cmp.Or(e.err, err))
}

// subscription returns the named publisher of the configuration file.
func (c *Common) subscription(name operator.SubscriptionName) (destination.Subscription, error) {
	subs, err := c.subscriptions()
	if err != nil {
		return destination.Subscription{}, err
	}
	i := slices.IndexFunc(subs, func(p destination.Subscription) bool { return p.SubscriptionName == name })
	if i < 0 {
		return destination.Subscription{}, usagef("publisher %s is not in the configuration of this command; name the file with --config", name)
	}
	return subs[i], nil
}

// publishOptions returns the options of destinations, without the journal's id.
func (a *app) publishOptions() destination.Options {
	return destination.Options{Logger: a.logger(), Version: version}
}
