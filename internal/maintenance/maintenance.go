// Package maintenance keeps both databases consistent: it checks every invariant, reconciles
// rows and watermarks, inserts missing rows, prunes old data, backs up and restores.
package maintenance

import (
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Maintenance checks both databases, reconciles them with each other, prunes old data, and
// copies them.
//
// It is safe for concurrent use, by several processes too.
type Maintenance struct {
	core  *store.Store
	queue *outbox.Queue
}

// New returns a Maintenance for a store.
func New(q *outbox.Queue) *Maintenance { return &Maintenance{q.Store, q} }
