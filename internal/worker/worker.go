// Package worker holds the loops that make projections follow the journal: applying waves of
// outbox rows, rehearsing them in shadow mode, applying on the request path in inline mode, and
// reconciling the two databases. It contains no SQL and no HTTP.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Config is the configuration of a worker. Zero values are the defaults.
type Config struct {
	Queue        *outbox.Queue
	Samples      *samples.Samples // of the store; nil makes them
	Set          *projection.Set
	Metrics      *metrics.Metrics
	Logger       *slog.Logger
	Mode         campaign.Mode
	Campaigns    campaign.Scope // the campaigns to apply
	BatchSize    int            // rows per wave; 0 means 1000
	BatchBytes   int64          // total document size of a wave and of the events read ahead, unless one event alone is larger; 0 means 32 MB
	PollInterval time.Duration  // 0 means event.DefaultPoll
	Lease        time.Duration  // 0 means event.DefaultLease
	Build        string         // version of the program, for the history of attempts
	Concurrency  int            // waves at a time; 0 means event.DefaultConcurrency
	// Beside are loops of other packages that run in this process from the worker's arrival until
	// their context ends.
	Beside []func(context.Context)
	// Redact hides secrets in the text that errors are grouped by. nil means the built-in rules.
	Redact *redact.Redactor
}

// Worker applies outbox rows to projections. Several may run, in one process or in many: leases
// distribute the campaigns, and fencing prevents conflicting writes.
type Worker struct {
	Config
	Store       *store.Store // of the queue
	maintenance *maintenance.Maintenance
	who         outbox.Worker
	wake        loop.Signal

	troubles    healthState
	quiet       quiet
	nextSuspect atomic.Int64 // next check for suspects, in nanoseconds since 1970

	waves    atomic.Int64 // running waves
	lastWave atomic.Int64 // end of the last one, in nanoseconds since 1970

	applied, failed, fenced atomic.Int64

	busy     busyTime
	costs    samples.Costs
	spenders []campaign.Spender           // the set's statements
	metered  atomic.Bool                  // a wave was measured
	measures func(events int) (waves int) // see measured

	// lineage is that of both databases when they were last reconciled because one had gone back.
	lineage atomic.Int64

	ahead    ahead
	inline   keyedMutex
	beat     heartbeat
	rehearse rehearsals

	faultPause, selfCheckEvery, heartbeatEvery time.Duration
	eventLimit                                 func(*event.Event) time.Duration // the most time that an event may take
}

// New creates a worker with a new id. Run starts it.
func New(c Config) *Worker {
	if c.BatchSize <= 0 {
		c.BatchSize = 1000
	}
	if c.BatchBytes <= 0 {
		c.BatchBytes = 32 << 20
	}
	if c.PollInterval <= 0 {
		c.PollInterval = event.DefaultPoll
	}
	if c.Lease <= 0 {
		c.Lease = event.DefaultLease
	}
	if c.Concurrency <= 0 {
		c.Concurrency = event.DefaultConcurrency
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Samples == nil {
		c.Samples = samples.New(c.Queue.Store)
	}
	if c.Redact == nil {
		c.Redact = redact.Builtin()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := host + "-" + uuid.NewString()[:8]
	w := &Worker{Config: c, Store: c.Queue.Store, maintenance: maintenance.New(c.Queue), who: outbox.Worker{ID: id, Build: c.Build, Serves: c.Campaigns}, wake: loop.NewSignal(1),
		faultPause: loop.FaultPause, selfCheckEvery: selfCheckInterval, heartbeatEvery: samples.HeartbeatInterval,
		eventLimit: func(*event.Event) time.Duration { return c.Queue.EventTimeout() }}
	w.measures = w.measured
	if c.Set != nil {
		w.spenders = c.Set.Spenders()
	}
	w.beat.state = campaign.InstanceState{ID: id, Host: host, PID: os.Getpid(), Version: c.Build, Mode: c.Mode, Campaigns: c.Campaigns}
	w.who.Loaded = campaign.SetOf(w.definitions())
	if c.Queue.Shared() {
		w.beat.state.BeatEvery = samples.HeartbeatInterval
	}
	return w
}

// ID is the worker's name in leases and histories.
func (w *Worker) ID() string { return w.who.ID }

// Name is the worker's identity in claims.
func (w *Worker) Name() outbox.Worker { return w.who }

// Wake makes the worker check for due rows now instead of at the next poll. It never blocks.
func (w *Worker) Wake() {
	w.wake.Raise()
}

// reconcileInterval is how often both databases are reconciled.
const reconcileInterval = time.Hour

// pruneKeysInterval is how often expired append keys are deleted.
const pruneKeysInterval = time.Hour

// Run works until ctx ends; then it claims nothing more, finishes running waves, releases its
// leases and returns nil. Database faults are logged and retried; they do not end it.
func (w *Worker) Run(ctx context.Context) error {
	w.Store.SetHere(w.ID())
	w.atLast(ctx, "arrive", w.arrive)
	if err := w.leaveOthers(ctx); err != nil && ctx.Err() == nil { // a worker that ends applies nothing
		w.Logger.Warn("projections that are not loaded could not be recorded as left; their rows may lack events", "error", err)
	}
	s := &starting{ended: make(chan struct{})}
	var loops sync.WaitGroup
	if w.Mode == campaign.ModeShadow {
		loops.Go(func() {
			s.once(ctx, func(ctx context.Context) { w.loop(ctx, "rehearse", loop.Every(w.PollInterval), w.wake, w.Rehearse) })
		})
	} else {
		for range w.Concurrency {
			loops.Go(func() { w.loop(ctx, "apply", w.untilDue, w.wake, w.Pass) })
		}
	}
	work := append(slices.Clone(w.Beside), func(ctx context.Context) { w.loop(ctx, "self-check", loop.Every(w.selfCheckEvery), nil, w.selfCheck()) })
	for _, work := range work {
		loops.Go(func() { s.once(ctx, work) })
	}
	loops.Go(func() {
		w.atLast(ctx, "reconcile", func(ctx context.Context) (bool, error) { return w.reconcileFirst(ctx, s) })
		w.loop(ctx, "reconcile", loop.Every(reconcileInterval), nil, loop.ExceptFirst(w.reconcile))
	})
	loops.Go(func() {
		w.loop(ctx, "prune keys", loop.Every(pruneKeysInterval), nil, loop.ExceptFirst(w.maintenance.PruneAppendKeys))
	})
	loops.Go(func() { w.loop(ctx, "heartbeat", loop.Every(w.heartbeatEvery), nil, w.heartbeat) })
	loops.Go(func() { w.loop(ctx, "sample", loop.UntilNextMinute, nil, loop.ExceptFirst(w.sample)) })
	loops.Wait()
	return w.stop(context.WithoutCancel(ctx))
}

// leaveOthers records that events are applied without the projections that are not loaded.
func (w *Worker) leaveOthers(ctx context.Context) error {
	if w.Set == nil || w.Mode == campaign.ModeShadow {
		return nil
	}
	var named []string
	for _, p := range w.Set.Projections() {
		named = append(named, p.Name)
	}
	return w.Store.ReadModel().Leave(ctx, named)
}

// Attend registers the process as an instance that applies nothing, and runs only the loops in
// Beside, until ctx ends.
func (w *Worker) Attend(ctx context.Context) error {
	if _, err := w.arrive(ctx); err != nil {
		return err
	}
	var loops sync.WaitGroup
	for _, work := range w.Beside {
		loops.Go(func() { work(ctx) })
	}
	loops.Wait()
	return w.stop(context.WithoutCancel(ctx))
}

// liveFor is how long after a wave applying counts as active.
const liveFor = 20 * time.Millisecond

// Applying reports whether waves are being applied or were just now.
func (w *Worker) Applying(now time.Time) bool {
	return w.waves.Load() > 0 || now.Sub(time.Unix(0, w.lastWave.Load())) < liveFor
}

// loop runs one of the worker's loops.
func (w *Worker) loop(ctx context.Context, name string, interval loop.Interval, wake <-chan struct{}, step loop.Step) {
	loop.Loop{Name: name, Step: step, Interval: interval, Wake: wake, Logger: w.Logger, FaultPause: w.faultPause}.Run(ctx)
}

// sample records the current state for the charts, as that of the minute that has just begun.
func (w *Worker) sample(ctx context.Context) (bool, error) { return false, w.Samples.Sample(ctx) }

// untilDue is the poll interval, or less when a campaign is due sooner: a failed head is
// retried on time, and a dead worker's campaigns are taken over as soon as their leases end.
func (w *Worker) untilDue(ctx context.Context) time.Duration {
	poll := loop.Every(w.PollInterval)(ctx)
	wait, ok, err := w.Queue.UntilDue(ctx, w.Campaigns)
	if err != nil || !ok {
		return poll
	}
	if w.troubles.except() != nil { // excluded campaigns are due all the time
		wait = max(wait, w.faultPause)
	}
	return min(poll, max(wait, time.Millisecond))
}

// reconciledNamed is the maximum number of changed campaigns that a reconcile logs by name.
const reconciledNamed = 5

// reconcile reconciles rows and watermarks.
func (w *Worker) reconcile(ctx context.Context) (bool, error) { return w.reconcileBeside(ctx, nil) }

// reconcileBeside is reconcile, with a function that is called after each page of campaigns.
func (w *Worker) reconcileBeside(ctx context.Context, passed func(campaigns int)) (bool, error) {
	repaired, named, err := w.maintenance.ReconcileNaming(ctx, reconciledNamed, passed)
	if err != nil && !errors.Is(err, event.ErrDamaged) {
		return false, err
	}
	if repaired.Campaigns > 0 {
		w.Logger.Info("reconciled", "campaigns", repaired.Campaigns, "named", named, "rows_inserted", repaired.Inserted, "rows_removed", repaired.Removed, "diverged", repaired.Diverged)
	}
	if err == nil {
		err = w.warnOfOtherJournal(context.WithoutCancel(ctx), repaired.Diverged)
	}
	if errors.Is(err, event.ErrDamaged) { // whatever is readable has been reconciled and can be applied
		w.Logger.Error("part of a database cannot be read; outboxweb check lists what is affected", "error", err)
		w.troubles.damaged(err)
		return false, nil
	}
	if err == nil {
		w.troubles.damaged(nil)
	}
	return false, err
}

// warnOfOtherJournal logs a warning when projections were built from another journal. found is
// the number of newly diverged campaigns.
func (w *Worker) warnOfOtherJournal(ctx context.Context, found int64) error {
	summary, err := w.Store.Summary(ctx)
	if err != nil {
		return err
	}
	n := max(found, summary.Campaigns.Diverged) // the summary may be slightly out of date
	if n == 0 {
		return nil
	}
	summary.OtherJournal, summary.Campaigns.Diverged = true, n
	w.Logger.Error(summary.OtherJournalText(), "campaigns", n)
	return nil
}

const (
	selfCheckInterval  = 10 * time.Second
	selfCheckCampaigns = 20
)

// selfCheck returns a step that compares the next few campaigns with their rows and watermarks,
// and repairs mismatches.
func (w *Worker) selfCheck() func(context.Context) (bool, error) {
	var at maintenance.Round
	return func(ctx context.Context) (bool, error) {
		next, found, err := w.maintenance.SelfCheck(ctx, at, selfCheckCampaigns)
		at = next
		if errors.Is(err, event.ErrDamaged) {
			w.troubles.damaged(err)
		}
		for _, f := range found {
			w.Logger.Warn("the self-check repaired a campaign", "campaign", f.CampaignID, "counts_corrected", f.Drifted, "times_corrected", f.Mistimed,
				"rows_inserted", f.Repaired.Inserted, "rows_removed", f.Repaired.Removed, "diverged", f.Repaired.Diverged > 0)
		}
		return false, err
	}
}
