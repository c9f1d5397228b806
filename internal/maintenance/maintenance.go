// Package maintenance keeps both databases consistent: it checks every invariant, reconciles
// rows and watermarks, inserts missing rows, prunes old data, backs up and restores.
package maintenance

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/store"
)

// Maintenance checks both databases, reconciles them with each other, prunes old data, and
// copies them.
//
// It is safe for concurrent use, by several processes too.
type Maintenance struct{ core *store.Store }

// New returns a Maintenance for a store.
func New(core *store.Store) *Maintenance { return &Maintenance{core} }

// tx is a transaction on the journal.
type tx struct{ *store.Tx }

func (m *Maintenance) read(ctx context.Context, fn func(*tx) error) error {
	return m.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

func (m *Maintenance) write(ctx context.Context, fn func(*tx) error) error {
	return m.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// perform is store.Perform with a transaction of this package.
func perform[R any](ctx context.Context, m *Maintenance, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, m.core, a, func(t *store.Tx, now int64) (R, error) { return change(&tx{t}, now) })
}
