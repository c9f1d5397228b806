// Package runs replays the journal: to verify that live rows match their events, to rebuild them
// beside the live ones and swap them in, and to catch up projections. The journal database stores
// the runs, the processes that work on them, and the pauses of projections, after which a replay is
// owed. Its tables are those whose names begin with run.
package runs

import (
	"context"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Runs starts, leases, reports and ends runs; it tracks which projections are not caught up with
// their campaigns, and starts the replays that they are owed.
//
// It is safe for concurrent use, also by several processes.
type Runs struct {
	core    *store.Store
	queue   *outbox.Queue
	started loop.Signal // raised when a caller of this process started, resumed or cancelled a run
	// owedWait is how long a check waits for a run of each projection that is behind.
	owedWait time.Duration

	claiming sync.Mutex
	working  map[int64]int64 // the epochs of the runs that this process works on, by id
}

// New must be called once per store, before the store is used. From then on summaries include held
// projections, a check reports projections that no run catches up, and a reconcile starts owed
// replays.
func New(q *outbox.Queue) *Runs {
	rs := &Runs{core: q.Store, queue: q, started: loop.NewSignal(workerLoops), owedWait: 5 * time.Second, working: make(map[int64]int64)}
	q.OnSummary(rs.prepareHeld)
	q.OnCheck("projections that are behind", rs.checkBehind)
	q.OnReconcile(rs.startOwed)
	return rs
}

// prepareHeld reads held projections for a summary. It reads the projections before the journal, as
// Behind does; it returns nil on an error.
func (rs *Runs) prepareHeld(ctx context.Context, sum *campaign.Summary) func(*store.Tx, *campaign.Summary) error {
	var behind []behindCursor
	var versions map[string]readmodel.Version
	sum.Held, behind, versions, _ = rs.heldProjections(ctx)
	return func(t *store.Tx, sum *campaign.Summary) error {
		loads, err := t.Loads()
		if err != nil {
			return err
		}
		sum.Installed = make(map[string]campaign.Installed, len(versions))
		for name, v := range versions {
			v.Loads = loads[name]
			sum.Installed[name] = v.Installed
		}
		for i := range sum.Held {
			if h := &sum.Held[i]; h.Paused != nil {
				h.PausedCampaigns = sum.Campaigns.Total
			}
		}
		return (&tx{t}).fillRuns(sum.Held, behind)
	}
}

// tx is a transaction on the journal.
type tx struct{ *store.Tx }

func (rs *Runs) read(ctx context.Context, fn func(*tx) error) error {
	return rs.core.Journal().Read(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// reading is store.Reading with a transaction of this package.
func reading[R any](ctx context.Context, rs *Runs, what string, read func(*tx) (R, error)) (R, error) {
	return store.Reading(ctx, rs.core, what, func(t *store.Tx) (R, error) { return read(&tx{t}) })
}

func (rs *Runs) write(ctx context.Context, fn func(*tx) error) error {
	return rs.core.Journal().Write(ctx, func(t *store.Tx) error { return fn(&tx{t}) })
}

// readModel reads the projections, in a transaction that has none of the journal's methods.
func (rs *Runs) readModel(ctx context.Context, fn func(*sqldb.Tx) error) error {
	return rs.core.ReadModel().Read(ctx, fn)
}

// perform is Perform with a transaction of this package.
func perform[R any](ctx context.Context, rs *Runs, a *store.Change, change func(*tx, int64) (R, error)) (R, error) {
	return store.Perform(ctx, rs.core, a, func(t *store.Tx, now int64) (R, error) { return change(&tx{t}, now) })
}

// ClaimCampaigns leases campaigns for the run of a lease; see store.Queue.ClaimForRun. A process that has
// lost the run gets event.ErrLeaseLost.
func (rs *Runs) ClaimCampaigns(ctx context.Context, l Lease, w outbox.Worker, campaigns []string, lease time.Duration) ([]outbox.RunClaim, error) {
	return rs.queue.ClaimForRun(ctx, func(t *store.Tx) error {
		_, err := (&tx{t}).leasedRun(l)
		return err
	}, w, campaigns, lease)
}
