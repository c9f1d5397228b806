package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

//go:embed bench.sql
var benchSQL []byte

// benchProjection loads the projection that a drain applies: one upsert per event.
func benchProjection(dialect string) (*projection.Set, error) {
	dir, err := os.MkdirTemp("", "outboxweb-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "bench.sql"), benchSQL, 0o600); err != nil {
		return nil, err
	}
	return projection.Load(dialect, dir)
}

// drain fills databases with a backlog and measures workers on them.
func (b *bench) drain(ctx context.Context, p drainPlan) (m measurement, err error) {
	d, err := b.ground.fresh(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.ground.remove(ctx, d)) }()
	if err := b.fill(ctx, d, p.shape); err != nil {
		return m, fmt.Errorf("fill: %w", err)
	}
	took, err := b.drainByWorkers(ctx, d, p)
	if err != nil {
		return m, err
	}
	return rate(p.total(), took), nil
}

// fill appends a backlog to new databases.
func (b *bench) fill(ctx context.Context, d databases, s shape) error {
	st, err := store.Open(ctx, d.options())
	if err != nil {
		return err
	}
	return errors.Join(b.appendBacklog(ctx, st, s), st.Close())
}

// appendBacklog writes a backlog, the campaigns' events interleaved as they
// are in a real journal.
func (b *bench) appendBacklog(ctx context.Context, st *store.Store, s shape) error {
	bar := b.app.progress("fill")
	defer bar.end()
	const size = 1000
	batch := make([]outbox.Event, 0, size)
	for n := 0; n < s.total() && ctx.Err() == nil; n++ {
		batch = append(batch, benchEvent(fmt.Sprintf("c-%d", n%s.campaigns), n/s.campaigns))
		if len(batch) < size && n+1 < s.total() {
			continue
		}
		if _, err := st.Append(ctx, store.Append{Events: batch}); err != nil {
			return err
		}
		batch = batch[:0]
		bar.set(int64(n+1), int64(s.total()))
	}
	return ctx.Err()
}

// drainByWorkers runs workers until every event is applied and its row deleted, and returns the
// time that took from their start. The workers share nothing but the databases.
func (b *bench) drainByWorkers(ctx context.Context, d databases, p drainPlan) (took time.Duration, err error) {
	progress := &drained{ended: make(chan struct{})}
	progress.left.Store(int64(p.total()))
	workers := make([]*worker.Worker, p.instances)
	for i := range workers {
		if workers[i], err = b.openWorker(ctx, d, p.waves, progress); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, workers[i].Store.Close()) }()
	}
	took, err = progress.run(ctx, workers)
	if errors.Is(err, errNotApplied) {
		err = errors.Join(err, lastError(ctx, workers[0].Store))
	}
	return took, err
}

// lastError returns the reason why an event was not applied.
func lastError(ctx context.Context, st *store.Store) error {
	page, err := st.Rows(ctx, outbox.RowFilter{Status: outbox.Failed, Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	return errors.New(page.Items[0].LastError)
}

// openWorker makes a worker with its own store, which the caller closes.
func (b *bench) openWorker(ctx context.Context, d databases, waves int, progress *drained) (*worker.Worker, error) {
	o := d.options()
	o.Concurrency = waves
	st, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := engine.Install(ctx, st, b.set); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	m := metrics.New(st.Summary)
	m.Applied, m.Failed = countedFor{m.Applied, progress.applied}, countedFor{m.Failed, progress.failed}
	w := worker.New(worker.Config{Store: st, Set: b.set, Mode: outbox.ModeOutbox, BatchSize: 1000, PollInterval: 100 * time.Millisecond,
		Lease: outbox.DefaultLease, Build: version, Concurrency: waves,
		Metrics: m, Logger: slog.New(slog.DiscardHandler)})
	st.OnWork(w.Wake)
	return w, nil
}

// drained detects when a backlog is drained. Polling the databases would slow down what is
// measured.
type drained struct {
	left  atomic.Int64
	once  sync.Once
	ended chan struct{}
	err   error // why it ended before the backlog was drained
}

var (
	errNotApplied = errors.New("an event could not be applied")
	errStopped    = errors.New("the worker stopped before the backlog was drained")
)

// end ends the measurement, once.
func (d *drained) end(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.ended)
	})
}

func (d *drained) applied(n float64) {
	if d.left.Add(-int64(n)) <= 0 {
		d.end(nil)
	}
}

func (d *drained) failed(n float64) {
	if n > 0 {
		d.end(errNotApplied)
	}
}

// countedFor is a counter that passes on what is added to it.
type countedFor struct {
	prometheus.Counter
	tell func(float64)
}

// Add implements prometheus.Counter.
func (c countedFor) Add(n float64) {
	c.Counter.Add(n)
	c.tell(n)
}

// run runs the workers until the backlog is drained. A failed event ends the run: a benchmark must
// not measure failures.
func (d *drained) run(ctx context.Context, workers []*worker.Worker) (time.Duration, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(workers))
	var wait sync.WaitGroup
	start := time.Now()
	for i, w := range workers {
		wait.Go(func() {
			errs[i] = w.Run(running)
			d.end(errStopped)
		})
	}
	<-d.ended
	took := time.Since(start)
	stop()
	wait.Wait()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return took, errors.Join(append(errs, d.err)...)
}
