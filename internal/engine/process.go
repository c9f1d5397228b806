package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// Config is what one process does. Engine, Set, Metrics and Logger are required; other zero values
// mean the defaults of the packages that take them.
type Config struct {
	Engine  *Engine
	Set     *projection.Set
	Metrics *metrics.Metrics // of NewMetrics
	Logger  *slog.Logger
	Version string // of the program
	Redact  *redact.Redactor
	Flags
	// NoWorker leaves applying, runs and operations to other processes.
	NoWorker    bool
	Campaigns   campaign.Scope // to apply
	KeepAudit   time.Duration  // 0 keeps records forever
	KeepHistory time.Duration
	// Subscriptions are the publishers that this process knows, and delivers for unless NoPublish.
	Subscriptions []destination.Subscription
	NoPublish     bool
	Destinations  destination.Options
	Alerts        *alerts.Alerts
	// NoIntake leaves the sources, which are the Engine's Intake.Settings, to other processes.
	NoIntake   bool
	MaxPayload int  // of an event, in bytes
	NoRehearse bool // refuse rehearsals of changed projection files over HTTP
}

// Flags are what the command serve takes as it is: the tags make its flags, with their keys, variables and
// documents. New and StoreOptions pass each on.
type Flags struct {
	EventSource  string        `placeholder:"URI" help:"The CloudEvents source of published events; by default a URN with the journal's id."`
	PollInterval time.Duration `default:"${default_poll}" least:"${least_wait}" help:"How often the worker polls for due rows."`
	BatchSize    int           `default:"1000" placeholder:"N" least:"1" most:"${max_batch}" help:"Maximum rows per wave."`
	BatchBytes   int64         `default:"33554432" placeholder:"BYTES" least:"1" help:"Maximum bytes of payloads that a wave and its read-ahead hold in memory; a larger event is processed by itself."`
	Lease        time.Duration `default:"${default_lease}" least:"${least_lease}" help:"How long a campaign's lease lasts without renewal."`
	RunParallel  int           `default:"${default_run_parallel}" placeholder:"N" least:"1" most:"32" help:"Campaigns that a run (replay, verify, rebuild) processes at a time."`
	RunRate      int64         `placeholder:"N" least:"0" help:"Maximum events per second replayed by all runs of this process; 0 for no limit. Runs yield to applying in any case."`
	VerifyEvery  time.Duration `default:"5m" placeholder:"DURATION" help:"Verify one campaign in the background this often, cycling through all of them; 0 to disable."`
	MaxEvents    int           `name:"max-events-per-append" default:"10000" placeholder:"N" least:"1" most:"100000" help:"Maximum events per append over HTTP; tags are limited to twice as many in total."`
	Concurrency  int           `default:"${default_concurrency}" placeholder:"N" least:"1" most:"32" help:"Waves in progress at a time: one is applied while others are claimed and settled. More than 2 helps only on PostgreSQL."`
	EventTimeout time.Duration `default:"${default_event_timeout}" least:"${least_wait}" help:"Maximum time to apply one event."`
	MaxAttempts  int           `default:"8" placeholder:"N" least:"1" help:"Failed attempts after which a row is dead; a projection may override it with -- max-attempts."`
	RetryBase    time.Duration `default:"1s" least:"${least_wait}" help:"The delay after the first failure; it doubles with each."`
	RetryMax     time.Duration `default:"5m" help:"The maximum delay between attempts."`
}

// StoreOptions completes the options of the store.
func (f Flags) StoreOptions(o store.Options) store.Options {
	o.EventTimeout, o.Lease, o.Concurrency = f.EventTimeout, f.Lease, f.Concurrency
	o.Retry = event.Retry{MaxAttempts: f.MaxAttempts, Base: f.RetryBase, Max: f.RetryMax}
	return o
}

// Process is the loops of one process, and the handler of its requests.
type Process struct {
	Config
	worker *worker.Worker
	relay  *publishing.Relay
	watch  *alerts.Worker
	intake *intake.Worker // nil with NoIntake
	travel *timetravel.Travel

	mu      sync.Mutex
	running map[string]bool // the parts of Run, by name
}

// NewMetrics makes the collectors of a process. It must come before New.
func NewMetrics(e *Engine, version, revision string) *metrics.Metrics {
	m := metrics.New(e.Summary)
	m.WatchRuns(e.Runs.Tallies)
	m.WatchBehind(e.Runs.Behind)
	m.WatchPublishers(e.Publishing.Publishers)
	m.WatchIntake(e.Intake.States)
	m.WatchFindings(e.Facts.Findings)
	m.WatchConnections(e.Connections)
	m.WatchWALs(e.LogBytes)
	m.AddBuild(version, revision)
	e.OnAppend(m.Append)
	return m
}

// New makes a process, which does nothing until Run.
func New(c Config) *Process {
	e := c.Engine
	w := worker.New(worker.Config{Queue: e.Queue, Samples: e.Samples, Set: c.Set, Metrics: c.Metrics, Logger: c.Logger, Mode: e.Mode(), Campaigns: c.Campaigns, BatchSize: c.BatchSize, BatchBytes: c.BatchBytes,
		PollInterval: c.PollInterval, Lease: c.Lease, Build: c.Version, Concurrency: c.Concurrency, Redact: c.Redact})
	e.WorkOnRuns(w, runs.WorkerConfig{PollInterval: w.PollInterval, Lease: w.Lease, Parallel: c.RunParallel, Rate: c.RunRate, VerifyEvery: c.VerifyEvery})
	if w.Mode != campaign.ModeShadow {
		w.Beside = append(w.Beside, func(ctx context.Context) { e.Operations.Work(ctx, w.PollInterval, c.Logger) })
	}
	delivering := c.Subscriptions
	if c.NoPublish {
		delivering = nil
	}
	relay := publishing.NewRelay(publishing.RelayConfig{Progress: e.Publishing, Pairs: delivering, Metrics: c.Metrics, Logger: c.Logger, ID: w.ID(), Options: c.Destinations,
		Source: c.EventSource, PollInterval: w.PollInterval, Lease: w.Lease})
	var drain *intake.Worker
	if !c.NoIntake {
		drain = e.intakeWorker(c, w)
	}
	e.OnWork(func() {
		w.Wake()
		relay.Wake()
		drain.Wake()
	})
	e.OnWentBack(func(back *campaign.WentBack) func() {
		return func() {
			c.Logger.Error(back.Says(), "remembered", back.Remembered, "gone", back.Gone, "head", back.Head)
		}
	})
	e.Facts.Loaded, e.Facts.Build = c.Set.Infos(), c.Version
	return &Process{Config: c, running: map[string]bool{}, worker: w, intake: drain, relay: relay, travel: timetravel.New(timetravel.Config{Store: e.Store, Set: c.Set}),
		watch: alerts.NewWorker(alerts.WorkerConfig{Alerts: c.Alerts, Facts: e.Facts.Read, ID: w.ID(), Metrics: c.Metrics, Logger: c.Logger})}
}

// intakeWorker returns what moves the rows of the sources to the journal.
func (e *Engine) intakeWorker(c Config, w *worker.Worker) *intake.Worker {
	config := intake.WorkerConfig{Intake: e.Intake, ID: w.ID(), Metrics: c.Metrics, Logger: c.Logger, Lease: w.Lease, MaxPayload: c.MaxPayload}
	if e.Mode() == campaign.ModeInline {
		config.Inline = w.ApplyInline
	}
	return intake.NewWorker(config)
}

// Run works until ctx ends or the worker fails. It then stops claiming, lets work in progress finish,
// and returns.
func (p *Process) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var workErr, publishErr error
	part := func(name string, run func()) {
		running.Go(func() {
			p.note(name, true)
			defer p.note(name, false)
			run()
		})
	}
	part("keeping of history", func() { Keeper{p.Engine, p.KeepAudit, p.KeepHistory, p.Logger}.Run(ctx) })
	if !p.Engine.ReadOnly() {
		part("ends of pauses", func() {
			loop.Loop{Name: "ends of pauses", Step: p.endPauses, Interval: func(context.Context) time.Duration { return pauseEndsEvery }, Logger: p.Logger}.Run(ctx)
		})
		part("owners of findings", func() {
			loop.Loop{Name: "owners of findings", Step: p.Engine.Facts.ForgetOwners, Interval: loop.Every(alerts.Every), Logger: p.Logger}.Run(ctx)
		})
	}
	part("alerts", func() { p.watch.Run(ctx) })
	part("publishers", func() { publishErr = p.relay.Run(ctx) })
	if p.intake != nil {
		part("intake", func() { p.intake.Run(ctx) })
	}
	if !p.NoWorker {
		part("worker", func() {
			if workErr = p.worker.Run(ctx); workErr != nil {
				cancel()
			}
		})
	}
	<-ctx.Done()
	running.Wait()
	p.endLeases(context.WithoutCancel(ctx))
	if errors.Is(workErr, context.Canceled) {
		workErr = nil
	}
	return errors.Join(workErr, publishErr)
}

// endLeases ends what a part of the process still leases: a claim whose answer the end cut off is known to
// nobody. Otherwise others would wait for it until the lease expires.
func (p *Process) endLeases(ctx context.Context) {
	err := p.Engine.InPlace()
	if err == nil {
		err = loop.AtEnd(func() error { return p.Engine.EndLeases(ctx, p.worker.ID()) })
	}
	if err != nil {
		p.Logger.Warn("what this process leases could not be released; it is free when its leases expire", "error", err)
	}
}

func (p *Process) note(part string, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[part] = runs; !runs {
		delete(p.running, part)
	}
}

// Running names the parts of Run that have not ended.
func (p *Process) Running() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.running))
}

// Close frees what pages keep. No request may be in progress.
func (p *Process) Close() { p.travel.Close() }

// ApplyInline applies a campaign's unapplied events at once, for mode inline_apply_only.
func (p *Process) ApplyInline(ctx context.Context, campaign string) error {
	return p.worker.ApplyInline(ctx, campaign)
}

// Refused counts refused requests, for auth.Config.
func (p *Process) Refused() func(why string) {
	return func(why string) { p.Metrics.IdentityRefused.WithLabelValues(why).Inc() }
}

// Handler returns the handler of all requests. h says how the server is reached and who may do what;
// what comes from the process is filled in.
func (p *Process) Handler(h handlers.Config) http.Handler {
	e := p.Engine
	h.Queue, h.Samples, h.Search, h.Operations, h.Runs, h.Tokens, h.Publishers, h.Alerts = e.Queue, e.Samples, e.Search, e.Operations, e.Runs, e.Tokens, e.Publishing, p.Alerts
	h.Intake, h.Facts = e.Intake, e.Facts
	h.Mode, h.Version, h.Projections, h.Redact, h.Metrics, h.Logger = e.Mode(), p.Version, p.Set.Infos(), p.Redact, p.Metrics, p.Logger
	h.MaxAppendEvents = p.MaxEvents
	h.Travel, h.Explain = p.travel, e.Explainer(p.Set, p.travel, time.Second)
	h.DryRun = func(ctx context.Context, trial replay.Trial) (replay.RunResult, error) {
		return runs.DryRun(ctx, e.Store, p.Set, trial)
	}
	h.Fixture = func(ctx context.Context, hide projection.Hider, on event.RowKey) (projection.Fixture, error) {
		return runs.MakeFixture(ctx, e.Queue, p.Set, hide, on)
	}
	if !p.NoRehearse {
		h.Rehearse = func(ctx context.Context, o operator.Command, order replay.RehearsalRequest) (replay.Run, error) {
			return e.Runs.Rehearse(ctx, o, order, p.Set)
		}
		h.ProjectionFile = p.loadedFile
	}
	h.TestPublisher = p.testPublisher
	if e.Mode() == campaign.ModeInline {
		h.InlineApply = p.ApplyInline
	}
	return handlers.New(h)
}

// loadedFile returns the loaded file of a projection; an empty one if it has none.
func (p *Process) loadedFile(name string) campaign.RehearsalFile {
	for _, f := range p.Set.Files() {
		if f.Projection == name {
			return campaign.RehearsalFile{Name: f.Name, Text: f.Text}
		}
	}
	return campaign.RehearsalFile{}
}

// Explainer explains why projections of the set fail, and waits for so long to learn which event made
// the row that is in the way.
func (e *Engine) Explainer(set *projection.Set, travel *timetravel.Travel, wait time.Duration) func(context.Context, projection.Hider, string, int64) (projection.EventExplanation, error) {
	return func(ctx context.Context, hide projection.Hider, campaign string, seq int64) (projection.EventExplanation, error) {
		x, err := runs.Explain(ctx, e.Queue, set, hide, campaign, seq)
		if err == nil {
			travel.NameEvents(ctx, &x, wait)
		}
		return x, err
	}
}
