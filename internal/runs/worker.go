package runs

import (
	"log/slog"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// WorkerConfig configures how a process executes runs. Runs, Set, Worker and Failure are required;
// zero values of the others are the defaults.
type WorkerConfig struct {
	Runs         *Runs
	Set          *projection.Set
	Worker       outbox.Worker // the claiming worker
	Logger       *slog.Logger
	PollInterval time.Duration // 0 means event.DefaultPoll
	Lease        time.Duration // 0 means event.DefaultLease
	Parallel     int           // campaigns that a run works on concurrently; 0 means event.DefaultRunParallel
	Rate         int64         // maximum events per second of all runs of this process; 0 is no limit
	// VerifyEvery is how often a campaign is verified in the background; 0 means never.
	VerifyEvery time.Duration
	// Applying reports whether this process is applying waves: runs yield to them. nil means never.
	Applying func(now time.Time) bool
	// Failure converts an error to its stored form.
	Failure func(error) *readmodel.Failure
}

// Worker executes runs: it replays the journal to verify, rebuild or catch up. There may be
// several, in one process or in many; leases distribute runs and campaigns over them.
type Worker struct {
	WorkerConfig
	rate *allowance // nil without a limit
}

// pruneInterval is how often the results of old runs are deleted.
const pruneInterval = time.Hour

// NewWorker returns a worker. Work starts it.
func NewWorker(c WorkerConfig) *Worker {
	if c.PollInterval <= 0 {
		c.PollInterval = event.DefaultPoll
	}
	if c.Lease <= 0 {
		c.Lease = event.DefaultLease
	}
	if c.Parallel <= 0 {
		c.Parallel = event.DefaultRunParallel
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
