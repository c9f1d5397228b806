// Package search finds events, and anything else by its id, in the journal database. It also keeps
// the views of lists: filters that operators named.
package search

import "github.com/outboxweb/outboxweb/internal/store"

// Search finds events and keeps views. It is safe for concurrent use.
type Search struct {
	core   *store.Store
	values store.Snapshot[EventValues]
}

// New returns the Search of a store.
func New(core *store.Store) *Search { return &Search{core: core} }
