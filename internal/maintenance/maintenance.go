// Package maintenance keeps both databases sound: it checks every invariant, brings
// rows and watermarks in line, gives events that lack one their row, prunes what is
// old, and backs up and restores.
package maintenance

import (
	"context"

	"outboxweb/internal/sqldb"
	"outboxweb/internal/store"
)

// Maintenance keeps both databases sound: it checks them, brings them in line with
// each other, prunes what is old, and copies them.
//
// It is safe for concurrent use, by several processes too.
type Maintenance struct{ core *store.Store }

// New works on a store.
func New(core *store.Store) *Maintenance { return &Maintenance{core} }

// tx is a transaction on the journal.
type tx struct{ *store.Tx }

func (m *Maintenance) read(ctx context.Context, fn func(*tx) error) error {
	return m.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

func (m *Maintenance) write(ctx context.Context, fn func(*tx) error) error {
	return m.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// readModel reads the projections, in a transaction that has none of the journal's
// methods.
func (m *Maintenance) readModel(ctx context.Context, fn func(*sqldb.Tx) error) error {
	return m.core.ReadModel().Read(ctx, fn)
}

// perform is Perform with a transaction of this package.
func perform[R any](ctx context.Context, m *Maintenance, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, m.core, a, func(t *store.Tx, now int64) (R, error) { return change(&tx{t}, now) })
}
