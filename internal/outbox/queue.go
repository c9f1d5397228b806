// Package outbox is the outbox: who may claim rows, what becomes of them when they are settled, and
// what operators do to them. Claiming, settling, requeuing, skipping and repairing are use cases in
// one transaction per database, on rows and campaigns of package store. Claims are leases with a
// fence in the projections, so that whoever lost one changes nothing.
package outbox

import (
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Queue is the outbox of a store, and the store.
//
// It is safe for concurrent use, also by several processes.
type Queue struct {
	*store.Store
	passed    passed
	onFailure []func(t *store.Tx, campaign string, seq int64, f readmodel.Failure, now int64) (dies bool, err error)
}

// New must be called once per store, before the store is used.
func New(core *store.Store) *Queue { return &Queue{Store: core} }

// OnFailure registers a function to be called for every failed attempt with a retry left, in
// the transaction that settles it. It returns whether the row is to be marked dead instead. It
// must not be called once the store is in use.
func (q *Queue) OnFailure(failed func(t *store.Tx, campaign string, seq int64, f readmodel.Failure, now int64) (dies bool, err error)) {
	q.onFailure = append(q.onFailure, failed)
}
