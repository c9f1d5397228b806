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

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Progress is the state of publishers in the journal database: their positions, their holders, and
// operators' actions.
//
// It is safe for concurrent use, also by several processes.
type Progress struct {
	core    *store.Store
	subs    store.Snapshot[[]subscription.Publisher]
	looks   looks
	sampled atomic.Int64 // the minute for which this process has sampled the subscriptions

	mu   sync.Mutex
	sent map[operator.SubscriptionName]int64 // the highest positions that this process has delivered
}

// NewProgress must be called once per store, before the store is used.
func NewProgress(core *store.Store) *Progress {
	pr := &Progress{core: core, looks: looks{window: 10_000, together: 30_000, least: 500, seek: 100_000}, sent: map[operator.SubscriptionName]int64{}}
	core.OnChange(pr.subs.Forget)
	core.OnSample(pr.sample)
	core.OnWentBack(pr.tellLost)
	return pr
}

// tx is a transaction on the journal.
type tx struct {
	*store.Tx
	looks looks
}

// looks says how many events are examined for a count.
type looks struct {
	// window is how many after a subscription's position are examined to count its lag, and together
	// how many for all subscriptions of one answer: if they are at distant positions, fewer than the
	// window are examined for each, but no fewer than least.
	window, together, least int64
	seek                    int64 // for what a seek repeats or skips
}

func (pr *Progress) in(t *store.Tx) *tx { return &tx{t, pr.looks} }

func (pr *Progress) read(ctx context.Context, fn func(*tx) error) error {
	return pr.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(pr.in(t)) })
}

func (pr *Progress) write(ctx context.Context, fn func(*tx) error) error {
	return pr.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(pr.in(t)) })
}

// perform is store.Perform with a transaction of this package.
func perform[R any](ctx context.Context, pr *Progress, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, pr.core, a, func(t *store.Tx, now int64) (R, error) { return change(pr.in(t), now) })
}

// delivered records that an event was delivered.
func (pr *Progress) delivered(name operator.SubscriptionName, position int64) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.sent[name] = max(pr.sent[name], position)
}

// tellLost adds what this process had delivered of the events that are gone.
func (pr *Progress) tellLost(w *campaign.WentBack) (recorded func()) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, name := range byName(slices.Collect(maps.Keys(pr.sent)), func(n operator.SubscriptionName) operator.SubscriptionName { return n }) {
		if to := pr.sent[name]; to >= w.Gone {
			w.Publishers = append(w.Publishers, campaign.LostDelivery{SubscriptionName: name, From: w.Gone, To: to})
		}
	}
	return func() {
		pr.mu.Lock()
		defer pr.mu.Unlock()
		clear(pr.sent)
	}
}
