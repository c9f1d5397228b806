// Package publishing delivers the journal's events to other systems. Progress stores in the journal
// database each publisher's position, holder, history and operators' actions: its tables are those
// whose names begin with publisher. Relay is the loop that delivers.
package publishing

import (
	"context"
	"maps"
	"slices"
	"sync"
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

	mu   sync.Mutex
	sent map[outbox.SubscriptionName]int64 // the highest positions that this process has delivered
}

// NewProgress must be called once per store, before the store is used.
func NewProgress(core *store.Store) *Progress {
	pr := &Progress{core: core, sent: map[outbox.SubscriptionName]int64{}}
	core.OnChange(pr.subs.Forget)
	core.OnSample(pr.sample)
	core.OnEndLeases(pr.endLeases)
	core.OnWentBack(pr.tellLost)
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

// delivered records that an event was delivered.
func (pr *Progress) delivered(name outbox.SubscriptionName, position int64) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.sent[name] = max(pr.sent[name], position)
}

// tellLost adds what this process had delivered of the events that are gone.
func (pr *Progress) tellLost(w *outbox.WentBack) (recorded func()) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, name := range byName(slices.Collect(maps.Keys(pr.sent)), func(n outbox.SubscriptionName) outbox.SubscriptionName { return n }) {
		if to := pr.sent[name]; to >= w.Gone {
			w.Publishers = append(w.Publishers, outbox.LostDelivery{SubscriptionName: name, From: w.Gone, To: to})
		}
	}
	return func() {
		pr.mu.Lock()
		defer pr.mu.Unlock()
		clear(pr.sent)
	}
}
