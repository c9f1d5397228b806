// Package search finds events, and anything else by its id, in the journal database. It also keeps
// the views of lists: filters that operators named.
package search

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Search finds events and keeps views. It is safe for concurrent use.
type Search struct {
	core      *store.Store
	publisher func(context.Context, operator.SubscriptionName) (subscription.Publisher, error)
	values    store.Snapshot[EventValues]
}

// New returns the Search of a store; publisher reads one of its subscriptions, as publishing.Progress does.
func New(core *store.Store, publisher func(context.Context, operator.SubscriptionName) (subscription.Publisher, error)) *Search {
	return &Search{core: core, publisher: publisher}
}
