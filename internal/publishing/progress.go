// Package publishing delivers the journal's events to other systems. Progress stores in the journal
// database each publisher's position, holder, history and operators' actions: its tables are those
// whose names begin with publisher. Relay is the loop that delivers.
package publishing

import (
	"context"
	"sync/atomic"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Progress is the state of publishers in the journal database: their positions, their holders, and
// operators' actions.
//
// It is safe for concurrent use, also by several processes.
type Progress struct {
	core    *store.Store
	subs    store.Snapshot[[]outbox.Publisher]
	sampled atomic.Int64 // the minute for which this process has sampled the subscriptions
}

// NewProgress must be called once per store, before the store is used.
func NewProgress(core *store.Store) *Progress {
	pr := &Progress{core: core}
	core.OnChange(pr.subs.Forget)
	core.OnSample(pr.sample)
	core.OnEndLeases(pr.endLeases)
	return pr
}

// tx is a transaction on the journal.
type tx struct{ *store.Tx }

func (pr *Progress) read(ctx context.Context, fn func(*tx) error) error {
	return pr.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

func (pr *Progress) write(ctx context.Context, fn func(*tx) error) error {
	return pr.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// perform is store.Perform with a transaction of this package.
func perform[R any](ctx context.Context, pr *Progress, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, pr.core, a, func(t *store.Tx, now int64) (R, error) { return change(&tx{t}, now) })
}
