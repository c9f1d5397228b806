package runs

import (
	"log/slog"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
)

// WorkerConfig says how a process works on runs. Runs, Set, Worker and Failure are
// required; other zero values are the defaults.
type WorkerConfig struct {
	Runs         *Runs
	Set          *projection.Set
	Worker       store.Worker // who claims
	Logger       *slog.Logger
	PollInterval time.Duration // 0 means outbox.DefaultPoll
	Lease        time.Duration // 0 means outbox.DefaultLease
	Parallel     int           // campaigns that a run works on at a time; 0 means outbox.DefaultRunParallel
	Rate         int64         // events per second of all runs of this process at the most; 0 is no limit
	// VerifyEvery is how often a campaign is verified in the background; 0 means
	// never.
	VerifyEvery time.Duration
	// Applying reports whether this process applies waves now: runs give way to
	// them. nil never does.
	Applying func(now time.Time) bool
	// Failure makes of an error what is kept of it.
	Failure func(error) *readmodel.Failure
}

// Worker works on runs: it replays the journal again to verify, rebuild or catch up.
// Several may, in one process or in many; leases spread runs and campaigns over them.
type Worker struct {
	WorkerConfig
	rate *allowance // nil when there is no limit
}

// pruneInterval is how often the results of old runs are deleted.
const pruneInterval = time.Hour

// NewWorker makes a worker. Work starts it.
func NewWorker(c WorkerConfig) *Worker {
	if c.PollInterval <= 0 {
		c.PollInterval = outbox.DefaultPoll
	}
	if c.Lease <= 0 {
		c.Lease = outbox.DefaultLease
	}
	if c.Parallel <= 0 {
		c.Parallel = outbox.DefaultRunParallel
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Applying == nil {
		c.Applying = func(time.Time) bool { return false }
	}
	w := &Worker{WorkerConfig: c}
	if c.Rate > 0 {
		w.rate = newAllowance(c.Rate)
	}
	return w
}

func (w *Worker) mode() outbox.Mode { return w.Runs.core.Mode() }
