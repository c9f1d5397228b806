// Package operations requeues many dead rows with care: it freezes which, lets a
// canary go first and waves follow, and stops a group of them in which something
// fails again. Its tables are those whose names begin with operation, in the
// journal database.
package operations

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"outboxweb/internal/loop"
	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/sqldb"
	"outboxweb/internal/store"
)

// Operations starts, steps and ends operations, and reads how they stand.
//
// It is safe for concurrent use, by several processes too.
type Operations struct {
	core    *store.Store
	started loop.Signal  // an operation was, by a caller of this process
	pause   atomic.Int64 // until operations are looked at again, in nanoseconds; 0 when none was running
}

// New is called once for a store, before it is used. From then on the
// rows that an operation requeued die of their first failure, whoever settles it.
func New(core *store.Store) *Operations {
	core.OnFailure(failedAgain)
	core.OnSummary(func(context.Context, *outbox.Summary) func(*store.Tx, *outbox.Summary) error { return count })
	return &Operations{core: core, started: loop.NewSignal(1)}
}

// tx is a transaction on the journal.
type tx struct{ *store.Tx }

func (ops *Operations) read(ctx context.Context, fn func(*tx) error) error {
	return ops.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

func (ops *Operations) write(ctx context.Context, fn func(*tx) error) error {
	return ops.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// perform is store.Perform with a transaction of this package.
func perform[R any](ctx context.Context, ops *Operations, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, ops.core, a, func(t *store.Tx, now int64) (R, error) { return change(&tx{t}, now) })
}

// failWatched ends the watch of a row that an operation requeued. Its
// operation, if it has one, is one that runs: the others watch nothing.
const failWatched = `
update operation_rows
set status = 'failed_again', detail = $3, failed_fingerprint = $4, finished_at = $5
where campaign_id = $1
  and seq = $2
  and status = 'requeued'
  and finished_at is null`

// failedAgain notes the failure of a row that an operation requeued, and
// reports whether it was one. Such a row gets one attempt: it dies of its first
// failure, in the transaction that settles it, so that an operation which meets
// the old error costs one more failure and not eight.
func failedAgain(t *store.Tx, campaign string, seq int64, f readmodel.Failure, now int64) (bool, error) {
	detail, _, _ := strings.Cut(f.Message, "\n")
	n, err := t.Exec(failWatched, campaign, seq, sqldb.Clip(detail, exampleLimit), f.Fingerprint, now)
	if err != nil {
		return false, fmt.Errorf("note that seq %d failed again: %w", seq, err)
	}
	return n > 0, nil
}
