// Package operations requeues many dead rows carefully: it freezes the selection, requeues a canary
// first and then waves, and stops a group of rows in which something fails again. Its tables are
// those whose names begin with operation, in the journal database.
package operations

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Operations starts, steps, ends and reads operations.
//
// It is safe for concurrent use, also by several processes.
type Operations struct {
	core    *store.Store
	samples *samples.Samples
	started loop.Signal  // signalled when a caller of this process started an operation
	pause   atomic.Int64 // time until operations are checked again, in nanoseconds; 0 when none was running
}

// New must be called once per store, before the store is used. From then on rows requeued by an
// operation die at their first failure, in whatever process settles it.
func New(q *outbox.Queue, samples *samples.Samples) *Operations {
	q.OnFailure(failedAgain)
	q.OnSummary(func(context.Context, *campaign.Summary) func(*store.Tx, *campaign.Summary) error { return count })
	return &Operations{core: q.Store, samples: samples, started: loop.NewSignal(1)}
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

// failWatched ends the watch of a row that an operation requeued. Only running operations watch
// rows.
const failWatched = `
update operation_rows
set status = 'failed_again', detail = $3, failed_fingerprint = $4, finished_at = $5
where campaign_id = $1
  and seq = $2
  and status = 'requeued'
  and finished_at is null`

// failedAgain records the failure of a row that an operation requeued, and reports whether it was
// such a row. These rows get one attempt: they die at their first failure, in the transaction that
// settles it, so that an operation which hits the old error costs one more failure rather than
// eight.
func failedAgain(t *store.Tx, campaign string, seq int64, f readmodel.Failure, now int64) (bool, error) {
	detail, _, _ := strings.Cut(f.Message, "\n")
	n, err := t.Exec(failWatched, campaign, seq, sqldb.Clip(detail, exampleLimit), f.Fingerprint, now)
	return n > 0, sqldb.Wrapf(err, "note that seq %d failed again", seq)
}
