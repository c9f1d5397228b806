// Package runs replays the journal again: to verify that live rows are those of their
// events, to rebuild them beside the live ones and swap them in, and to replay what
// does not follow. It holds what runs are in the journal database, the processes that
// work on them, and the pauses of projections, after which a replay is owed. Its
// tables are those whose names begin with run.
package runs

import (
	"context"
	"time"

	"outboxweb/internal/loop"
	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
	"outboxweb/internal/store"
)

// Runs starts, leases, reports and ends runs; it knows which projections do not
// follow their campaigns, and starts the replays that they are owed.
//
// It is safe for concurrent use, by several processes too.
type Runs struct {
	core    *store.Store
	started loop.Signal // a run was, or resumed or cancelled, by a caller of this process
}

// New is called once for a store, before it is used. From then on its summaries
// tell what is held back, a check finds what no run catches up, and a reconcile
// starts what is owed.
func New(core *store.Store) *Runs {
	rs := &Runs{core: core, started: loop.NewSignal(workerLoops)}
	core.OnSummary(rs.prepareHeld)
	core.OnCheck("projections that are behind", rs.checkBehind)
	core.OnReconcile(rs.startOwed)
	core.OnEndLeases(rs.EndLeases)
	return rs
}

// prepareHeld adds to a summary what is held back. It reads the projections before
// the journal, as Behind does; nil tells of an error.
func (rs *Runs) prepareHeld(ctx context.Context, sum *outbox.Summary) func(*store.Tx, *outbox.Summary) error {
	var behind []behindCursor
	sum.Held, behind, _ = rs.heldProjections(ctx)
	return func(t *store.Tx, sum *outbox.Summary) error { return (&tx{t}).fillRuns(sum.Held, behind) }
}

// tx is a transaction on the journal.
type tx struct{ *store.Tx }

func (rs *Runs) read(ctx context.Context, fn func(*tx) error) error {
	return rs.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

func (rs *Runs) write(ctx context.Context, fn func(*tx) error) error {
	return rs.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// readModel reads the projections, in a transaction that has none of the journal's
// methods.
func (rs *Runs) readModel(ctx context.Context, fn func(*sqldb.Tx) error) error {
	return rs.core.ReadModel().Read(ctx, fn)
}

// perform is Perform with a transaction of this package.
func perform[R any](ctx context.Context, rs *Runs, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, rs.core, a, func(t *store.Tx, now int64) (R, error) { return change(&tx{t}, now) })
}

// ClaimCampaigns takes the leases of campaigns for the run of a lease; see
// Store.ClaimForRun. A process that does not hold the run any more gets
// outbox.ErrLeaseLost.
func (rs *Runs) ClaimCampaigns(ctx context.Context, l Lease, w store.Worker, campaigns []string, lease time.Duration) ([]store.RunClaim, error) {
	return rs.core.ClaimForRun(ctx, func(t *store.Tx) error {
		_, err := (&tx{t}).leasedRun(l)
		return err
	}, w, campaigns, lease)
}
