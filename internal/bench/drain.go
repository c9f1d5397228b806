package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

//go:embed bench.sql
var projectionSQL []byte

// loadProjection loads the projection that a drain applies: one upsert per event.
func loadProjection(dialect string) (*projection.Set, error) {
	dir, err := os.MkdirTemp("", "outboxweb-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "bench.sql"), projectionSQL, 0o600); err != nil {
		return nil, err
	}
	return projection.Load(dialect, dir)
}

// campaignID is the id of a campaign, in the order of its number or in none, as UUIDs are.
func campaignID(campaign int, random bool) string {
	id := fmt.Sprintf("c-%d", campaign)
	if random {
		return uuid.NewSHA1(uuid.Nil, []byte(id)).String()
	}
	return id
}

// anEvent returns event n of a campaign, of a typical size.
func anEvent(campaign string, n int) event.Event {
	return event.Event{
		CampaignID: campaign, EventID: fmt.Sprintf("e-%d", n), EventType: "bench.moved",
		OccurredAt: time.UnixMicro(1_700_000_000_000_000 + int64(n)*1000),
		ActorType:  "participant", ActorID: "p-1", EntityType: "token", EntityID: fmt.Sprintf("t-%d", n%10_000),
		Payload: json.RawMessage(fmt.Sprintf(`{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7},"to":{"x":13,"y":7}}`, n%97)),
	}
}

// backlog is events of campaigns in turn, as they are in a real journal.
type backlog struct {
	first, campaigns int  // the campaigns' numbers
	events           int  // of all campaigns
	random           bool // the campaigns' ids
}

// append appends the events in batches.
func (l backlog) append(ctx context.Context, st *store.Store, batch int, tell func(done, total int64)) error {
	for n := 0; n < l.events && ctx.Err() == nil; {
		events := make([]event.Event, min(batch, l.events-n))
		for i := range events {
			events[i] = anEvent(campaignID(l.first+n%l.campaigns, l.random), n/l.campaigns)
			n++
		}
		if _, err := st.Append(ctx, store.Append{Events: events}); err != nil {
			return err
		}
		tell(int64(n), int64(l.events))
	}
	return ctx.Err()
}

// run measures the callers.
func (m appends) run(ctx context.Context, b *bench, o store.Options) (Measurement, error) {
	st, err := store.Open(ctx, o)
	if err != nil {
		return Measurement{}, err
	}
	each := max(1, b.scaled(m.events, 200)/m.callers/m.batch) * m.batch
	errs := make([]error, m.callers)
	var wait sync.WaitGroup
	start, before := time.Now(), processorTime()
	for i := range m.callers {
		wait.Go(func() { errs[i] = backlog{i, 1, each, false}.append(ctx, st, m.batch, func(int64, int64) {}) })
	}
	wait.Wait()
	return measured(int64(m.callers*each), time.Since(start), processorTime()-before), errors.Join(append(errs, st.Close())...)
}

// run fills databases with a backlog, and measures workers until every event is applied and its row
// deleted. The workers share nothing but the databases.
func (d drain) run(ctx context.Context, b *bench, o store.Options) (m Measurement, err error) {
	if d.campaigns > d.events {
		d.campaigns = b.scaled(d.campaigns, 1)
	} else {
		d.events = b.scaled(d.events, 1)
	}
	if err := b.fill(ctx, o, backlog{0, d.campaigns, d.campaigns * d.events, d.random}); err != nil {
		return m, fmt.Errorf("fill: %w", err)
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	p := &progress{all: int64(d.campaigns * d.events), end: end}
	o.Concurrency = d.waves
	workers := make([]*worker.Worker, d.instances)
	for i := range workers {
		if workers[i], err = b.openWorker(ctx, o, p); err != nil {
			return m, err
		}
		defer func() { err = errors.Join(err, workers[i].Store.Close()) }()
	}
	m, err = p.time(running, workers)
	if errors.Is(err, errNotApplied) {
		err = errors.Join(err, lastError(ctx, workers[0].Queue))
	}
	return m, err
}

// fill appends a backlog to new databases.
func (b *bench) fill(ctx context.Context, o store.Options, l backlog) error {
	st, err := store.Open(ctx, o)
	if err != nil {
		return err
	}
	set, end := b.Filling()
	defer end()
	return errors.Join(l.append(ctx, st, 1000, set), st.Close())
}

// lastError returns the reason why an event was not applied.
func lastError(ctx context.Context, q *outbox.Queue) error {
	page, err := q.Rows(ctx, campaign.RowFilter{Status: event.Failed, Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	return errors.New(page.Items[0].LastError)
}

// Why a measurement ends.
var (
	errDrained    = errors.New("the backlog is drained")
	errNotApplied = errors.New("an event could not be applied") // a benchmark must not measure failures
	errStopped    = errors.New("the worker stopped before the backlog was drained")
)

// progress counts what workers apply, and ends the measurement: polling the databases would slow down what
// is measured.
type progress struct {
	all, done int64
	end       context.CancelCauseFunc

	mu         sync.Mutex
	first      int64 // events of the first settlement
	firstAfter time.Duration
	began      time.Time
	spent      time.Duration // of processors, when firstAfter was over
}

func (p *progress) applied(n float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == 0 {
		p.first, p.firstAfter, p.spent = int64(n), time.Since(p.began), processorTime()
	}
	if p.done += int64(n); p.done >= p.all {
		p.end(errDrained)
	}
}

func (p *progress) failed(n float64) {
	if n > 0 {
		p.end(errNotApplied)
	}
}

// openWorker makes a worker with its own store, which the caller closes.
func (b *bench) openWorker(ctx context.Context, o store.Options, p *progress) (*worker.Worker, error) {
	st, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := engine.Install(ctx, st, b.set); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	m := metrics.New(st.Summary)
	m.Applied, m.Failed = countedFor{m.Applied, p.applied}, countedFor{m.Failed, p.failed}
	w := worker.New(worker.Config{Queue: outbox.New(st), Set: b.set, Mode: campaign.ModeOutbox, BatchSize: 1000, PollInterval: 100 * time.Millisecond,
		Lease: event.DefaultLease, Build: b.Build, Concurrency: o.Concurrency,
		Metrics: m, Logger: slog.New(slog.DiscardHandler)})
	st.OnWork(w.Wake)
	return w, nil
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

// time runs workers until the backlog is drained, or cannot be.
func (p *progress) time(running context.Context, workers []*worker.Worker) (Measurement, error) {
	errs := make([]error, len(workers))
	var wait sync.WaitGroup
	p.began, p.spent = time.Now(), processorTime()
	began := p.spent
	for i, w := range workers {
		wait.Go(func() {
			errs[i] = w.Run(running)
			p.end(errStopped)
		})
	}
	<-running.Done()
	took, spent := time.Since(p.began), processorTime()
	wait.Wait()
	err := context.Cause(running)
	if errors.Is(err, errDrained) {
		err = nil
	}
	if p.first == p.all { // too few to tell the start from the rest
		p.first, p.firstAfter, p.spent = 0, 0, began
	}
	m := measured(p.all-p.first, took-p.firstAfter, spent-p.spent)
	m.Events, m.StartSeconds = int(p.all), p.firstAfter.Seconds()
	return m, errors.Join(append(errs, err)...)
}

func measured(events int64, took, spent time.Duration) Measurement {
	return Measurement{Events: int(events), Seconds: took.Seconds(), EventsPerSecond: float64(events) / took.Seconds(), MicrosPerEvent: float64(spent.Microseconds()) / float64(events)}
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for a bad address
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
