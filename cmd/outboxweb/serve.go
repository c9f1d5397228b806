package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/sample"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// shutdownLimit bounds how long requests in progress may take to finish after the process was asked
// to stop.
const shutdownLimit = 15 * time.Second

// stopLimit bounds the whole end of the process, and is less than what service managers are told to wait
// for it. What it cuts off is as after a kill.
const stopLimit = 40 * time.Second

// serveCmd runs the dashboard, the API and the worker.
type serveCmd struct {
	Listening
	Host       []string `placeholder:"NAME" help:"An additional allowed host name, or * for any, which needs --auth or --read-only. Repeatable."`
	BasePath   string   `default:"/" placeholder:"PATH" help:"The path prefix at which the dashboard is served."`
	ReadOnly   bool     `help:"Refuse every append and action over HTTP."`
	NoRehearse bool     `help:"Refuse rehearsals of changed projection files over HTTP: they run an admin's SQL on copies of rows."`
	Sample     bool     `help:"Fill an empty journal with a sample that has a few failing campaigns."`
	Worker     bool     `default:"true" negatable:"" help:"Run the embedded worker."`
	Campaigns  []string `placeholder:"PATTERN" help:"Apply only these campaigns: ids, or prefixes followed by *. Other campaigns wait for another instance. Does not limit runs, operations and publishers. Repeatable."`
	Publish    bool     `default:"true" negatable:"" help:"Run the publishers of the configuration file."`
	Intake     bool     `default:"true" negatable:"" help:"Move events from the sources of the configuration file to the journal."`

	engine.Flags

	KeepAudit   daysFlag `default:"0" placeholder:"DURATION" help:"Delete audit records, with the idempotency keys of their actions, older than this, such as 8760h or 365d; 0 keeps them forever. At least 24h."`
	KeepHistory daysFlag `default:"90d" placeholder:"DURATION" help:"Delete the history of applied events (when, by whom, failed attempts) older than this, such as 2160h or 90d; 0 keeps it forever. At least 24h."`

	originFlags
	authFlags
	redactFlags

	scope      campaign.Scope            // of Campaigns
	fileTokens map[string]operator.Token // of TokensFile, by hash
}

// Run serves until ctx ends, then finishes the work in progress.
func (c *serveCmd) Run(ctx context.Context, a *app) (err error) {
	if a.redact, err = c.redactor(); err != nil {
		return err
	}
	if a.err == os.Stderr {
		slog.SetDefault(a.logger()) // for code without its own logger, such as libraries that use package log
	}
	if len(c.Campaigns) == 0 && a.sources["campaigns"] != fromDefault {
		return usagef("--campaigns: no pattern is given; leave it out to serve every campaign")
	}
	if campaign.Mode(a.Mode) == campaign.ModeShadow && !c.scope.Every() {
		return usagef("--campaigns cannot be used in mode %s, which applies no events of any campaign", campaign.ModeShadow)
	}
	subs, err := a.subscriptions()
	if err != nil {
		return err
	}
	alerting, err := section(&a.Common, alertsKey, alerts.Parse)
	if err != nil {
		return err
	}
	sources, err := section(&a.Common, sourcesKey, intake.Parse)
	if err != nil {
		return err
	}
	tlsConfig, err := c.tlsConfig(a.logger())
	if err != nil {
		return err
	}
	tuneCollector(c.BatchBytes)
	signal.Ignore(syscall.SIGPIPE) // a write to a log that nobody reads fails, and ends nothing
	defer ignoreHangups(a.logger())()
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	st, set, err := a.openWhenDiskHasSpace(ctx, c.storeOptions(a, subs, alerting, sources), listener, tlsConfig)
	if err != nil {
		return err
	}
	defer st.Close()
	st.Intake.Settings = sources
	told := alerts.New(st.Store, alerts.Options{Settings: alerting, Version: version, Link: alerts.Links(c.PublicOrigin, c.BasePath), Hide: a.redact.Text})
	s, err := c.newServer(a, st, set, subs, told, listener.Addr())
	if err != nil {
		return err
	}
	s.http.TLSConfig = tlsConfig
	if c.Sample {
		if err := s.fillWithSample(ctx); err != nil {
			return err
		}
	}
	c.announce(a, st, listener.Addr(), len(subs))
	return s.run(ctx, listener)
}

// announce logs what has started and prints the address on stdout.
func (c *serveCmd) announce(a *app, st *engine.Engine, addr net.Addr, publishers int) {
	if !c.Publish {
		publishers = 0
	}
	address := c.address(addr)
	a.logger().Info("started", "version", version, "revision", revision(), "go", runtime.Version(), "pid", os.Getpid(), "listen", address, "base_path", c.BasePath,
		"journal_db", withoutPassword(a.JournalDB), "projections_db", withoutPassword(a.ProjectionsDB), "mode", st.Mode(), "config", string(a.Config), "projections", strings.Join(a.ProjectionFiles, ", "),
		"authentication", c.kind(), "read_only", c.ReadOnly, "worker", c.Worker, "campaigns", c.scope.String(), "publishers", publishers)
	if a.LogFormat == "json" { // container logs merge both streams
		a.loggerTo(a.out).Info("listening on " + address)
		return
	}
	fmt.Fprintln(a.out, "listening on", address)
}

// ignoreHangups ignores SIGHUP, which asks other servers to reload their configuration, until stop
// is called.
func ignoreHangups(log *slog.Logger) (stop func()) {
	hangups, stopping := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP is ignored: restart the server to reload its configuration")
			case <-stopping:
				return
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		close(stopping)
		ended.Wait()
	}
}

// storeOptions returns the store's options for serve with these publishers, alerts and sources.
func (c *serveCmd) storeOptions(a *app, publishers []destination.Subscription, told alerts.Settings, sources intake.Settings) store.Options {
	o := a.storeOptions()
	o.NoCreate, o.NoMigrate = a.NoMigrate, a.NoMigrate
	o.ReadOnly = c.ReadOnly && !c.Worker && !(c.Publish && len(publishers) > 0) && len(told.Receivers) == 0 && !(c.Intake && len(sources.Sources) > 0)
	return c.StoreOptions(o)
}

// tuneCollector lets the heap grow further between collections. The live heap is a few megabytes,
// so that at the runtime's default of 100 % a busy server collects hundreds of times a second:
// pages take a third longer, and the slowest of a hundred twice as long. Waves of large events
// produce garbage of that size too and trigger collections sooner: from four times the size of a
// wave. GOGC and GOMEMLIMIT take precedence when set.
func tuneCollector(batchBytes int64) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(400)
	}
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(max(4*batchBytes, 128<<20))
	}
}

// check validates what kong cannot.
func (c *serveCmd) check() error {
	if _, err := c.gate(nil, nil, nil); err != nil {
		return err
	}
	_, notURI := url.Parse(c.EventSource)
	switch {
	case !strings.HasPrefix(c.BasePath, "/"):
		return usagef("--base-path: %q must begin with /", c.BasePath)
	case hosts.CheckPath(c.BasePath) != nil:
		return usagef("--base-path: %q %v", c.BasePath, hosts.CheckPath(c.BasePath))
	case strings.ContainsAny(c.EventSource, " \t\r\n") || notURI != nil:
		return usagef("--event-source: %q is not a URI, such as https://ops.example/outboxweb", c.EventSource)
	}
	var err error
	if c.scope, err = campaign.ParseScope(c.Campaigns); err != nil {
		return usagef("--campaigns: %v", err)
	}
	if c.TokensFile != "" {
		if c.fileTokens, err = tokens.ReadFile(c.TokensFile); err != nil {
			return asFlag(err)
		}
	}
	for _, check := range []func() error{c.checkListening, c.checkKept, c.checkHosts, c.originFlags.check, c.checkDurations} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *serveCmd) checkDurations() error {
	switch {
	case c.VerifyEvery != 0 && c.VerifyEvery < time.Second:
		return usagef("--verify-every must be 0, or 1s or more")
	case c.RetryMax < c.RetryBase:
		return usagef("--retry-max must be %s or more", c.RetryBase)
	}
	return nil
}

// server is what serve runs: a process, and its HTTP server.
type server struct {
	process *engine.Process
	gate    *auth.Gate
	http    *http.Server
	log     *slog.Logger
	limit   time.Duration  // stopLimit
	exit    func(code int) // os.Exit
}

func (c *serveCmd) newServer(a *app, st *engine.Engine, set *projection.Set, subs []destination.Subscription, told *alerts.Alerts, addr net.Addr) (*server, error) {
	log := a.logger()
	collectors := engine.NewMetrics(st, version, revision())
	st.Tokens.File = c.fileTokens
	gate, err := c.gate(st, collectors, log)
	if err != nil {
		return nil, err
	}
	if c.letsProxiesAct() {
		log.Warn("users are not authenticated, so everyone whom a proxy lets through is an admin; set --auth jwt, proxy-header or token, or use --read-only")
	}
	if slices.Contains(c.Host, hosts.Any) {
		log.Warn("--host * answers for any host name, which exposes this server to DNS rebinding: a web page could read what its visitor may; name the hosts where possible")
	}
	for _, warning := range set.Warnings() {
		log.Warn(warning)
	}
	p := engine.New(engine.Config{Engine: st, Set: set, Metrics: collectors, Logger: log, Version: version, Redact: a.redact, Flags: c.Flags,
		NoWorker: !c.Worker, Campaigns: c.scope, KeepAudit: time.Duration(c.KeepAudit), KeepHistory: time.Duration(c.KeepHistory), Subscriptions: subs, NoPublish: !c.Publish,
		Destinations: a.publishOptions(), Alerts: told, NoRehearse: c.NoRehearse, NoIntake: !c.Intake, MaxPayload: a.MaxPayload})
	stopping := make(chan struct{})
	handler := p.Handler(handlers.Config{ReadOnly: c.ReadOnly, ReasonFrom: a.ReasonFrom, BasePath: c.BasePath, Hosts: c.hosts(addr), PublicOrigin: c.PublicOrigin, FrameAncestors: c.FrameAncestors,
		HSTS: c.TLSCert != "", ActRate: c.ActRate, Settings: a.settings, CommandFlags: a.flagsFromAnywhere(), MaxPayload: a.MaxPayload, Auth: gate, SignOut: gate.SignOut(), Stopping: stopping})
	s := &server{process: p, gate: gate, http: handlers.NewHTTPServer(handler, handlers.Patience{}, log), log: log, limit: stopLimit, exit: os.Exit}
	s.http.RegisterOnShutdown(func() { close(stopping) })
	return s, nil
}

// run serves and works until ctx ends or one of the two fails. It then stops claiming, lets work in
// progress finish, and returns.
func (s *server) run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	var serveErr, workErr error
	running.Go(func() {
		serveErr = serveOn(s.http, listener)
		cancel(fmt.Errorf("the HTTP server ended: %w", serveErr))
	})
	running.Go(func() {
		if workErr = s.process.Run(ctx); workErr != nil {
			cancel(fmt.Errorf("the worker ended: %w", workErr))
		}
	})
	running.Go(func() { s.gate.Run(ctx) })
	<-ctx.Done()
	defer time.AfterFunc(s.limit, s.giveUp).Stop()
	asked := time.Now()
	s.log.Info("stopping", "why", whyStopped(ctx))
	grace, cut := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cut()
	if err := s.http.Shutdown(grace); err != nil {
		s.log.Warn("some requests did not finish in time and were cut off", "limit", shutdownLimit, "error", err)
		s.http.Close()
	}
	running.Wait()
	s.process.Close()
	closeErr := s.process.Engine.Close()
	s.log.Info("stopped", "draining_seconds", time.Since(asked).Seconds())
	if errors.Is(serveErr, http.ErrServerClosed) {
		serveErr = nil
	}
	return errors.Join(serveErr, workErr, closeErr)
}

// giveUp ends the process though something in it does not end. The log may be what holds it up.
func (s *server) giveUp() {
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.log.Error("the process ends though not all of it has", "limit", s.limit, "running", cmp.Or(strings.Join(s.process.Running(), ", "), "requests, or the databases' closing"))
	}()
	select {
	case <-told:
	case <-time.After(time.Second):
	}
	s.exit(exitFailed)
}

// whyStopped returns the signal or other cause that ended ctx.
func whyStopped(ctx context.Context) string {
	switch why := context.Cause(ctx).Error(); why { // os/signal exports no type for it
	case "terminated signal received":
		return "SIGTERM"
	case "interrupt signal received":
		return "SIGINT"
	default:
		return why
	}
}

// sampleBatch is how many events of the sample journal are appended at once.
const sampleBatch = 500

// fillWithSample appends the sample to an empty journal and leaves any other journal alone.
func (s *server) fillWithSample(ctx context.Context) error {
	e := s.process.Engine
	some, err := e.Campaigns(ctx, campaign.CampaignFilter{Limit: 1})
	if err != nil || len(some.Items) > 0 {
		return err
	}
	var events []event.Event
	campaigns := map[string]bool{}
	for e := range sample.Events(sample.Config{Campaigns: 40, Events: 4000, Poison: 3, Seed: 1, End: time.Now().UTC()}) {
		events = append(events, e)
		campaigns[e.CampaignID] = true
	}
	for batch := range slices.Chunk(events, sampleBatch) {
		if _, err := e.Append(ctx, store.Append{Events: batch}); err != nil {
			return fmt.Errorf("append the sample journal: %w", err)
		}
	}
	s.log.Info("the journal was empty and now holds the sample", "events", len(events), "campaigns", len(campaigns))
	if e.Mode().Enqueues() {
		return nil
	}
	for id := range campaigns {
		if err := s.process.ApplyInline(ctx, id); err != nil {
			s.log.Warn("a campaign of the sample journal could not be fully applied", "campaign", id, "error", err)
		}
	}
	return nil
}
