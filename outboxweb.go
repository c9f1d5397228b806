package outboxweb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Config says where the databases are and how the engine works. JournalDB and ProjectionsDB are
// required; other zero values are the defaults of the command's flags of the same names.
type Config struct {
	// JournalDB and ProjectionsDB are URLs: sqlite:PATH, or postgres://…. They must not be the same
	// SQLite file or PostgreSQL schema. Missing databases and tables are created.
	JournalDB, ProjectionsDB string
	// BasePath is the path under which the console is served, such as /admin/outbox; empty means /.
	BasePath string
	// PublicURL is the scheme and host at which browsers reach the service, such as
	// https://shop.example, if a proxy is in between. Forms are accepted from its pages, and links and
	// curl commands name it.
	PublicURL string
	// Hosts are the names under which the console answers, beside localhost. None means every name,
	// which is safe where Handler identifies operators by a cookie or a header.
	Hosts []string
	// FrameAncestors are the origins whose pages may show the console in a frame, such as
	// https://portal.example; 'self' in single quotes is its own. None forbids it.
	FrameAncestors []string
	// SignOut is where the console's link Sign out leads, beside the operator's name: a path, not below
	// BasePath, or an https URL. Empty shows no link.
	SignOut string
	// Projections are directories of SQL files, or builtin:NAME, beside what Project adds.
	Projections []string
	// Sources are the tables from which Run moves events to the journal, by name: lower-case letters,
	// digits, dots, _ and -. Keep a name: rejected rows are kept by it.
	Sources map[string]Source
	// Alerts are receivers and rules of alerts, as YAML: what the command's configuration file has
	// below the key alerts, such as "to: [slack+https://hooks.slack.com/services/…]". Variables of the
	// environment are not looked up. Run sends them; empty sends none.
	Alerts string
	// AuditOnly are event types that are kept in the journal and never applied.
	AuditOnly []string
	// ReadOnly refuses every append and every action.
	ReadOnly bool
	// NoMigrate refuses databases that are missing or of an older version.
	NoMigrate bool

	PollInterval time.Duration // how often the worker looks for due events; appends wake it at once. 0 means 2 s
	Lease        time.Duration // how long a worker's lease on a campaign lasts. 0 means 30 s
	EventTimeout time.Duration // how long one event may take to apply. 0 means 10 s
	BatchSize    int           // events applied in a transaction. 0 means 1000
	MaxAttempts  int           // failed attempts after which an event waits for an operator. 0 means 8
	RetryBase    time.Duration // the delay after the first failure; it doubles with each. 0 means 1 s
	RetryMax     time.Duration // the longest delay. 0 means 5 min
	MaxPayload   int           // bytes. 0 means 256 KiB
	// KeepHistory is how long the history of applied events is kept, and KeepAudit audit records; 0
	// keeps them forever.
	KeepHistory, KeepAudit time.Duration

	// Version is the version of your program. The console shows which one applied an event, and whether
	// it changed since an event failed. Empty takes a hash of the executable.
	Version string
	// Logger gets what operators should know, without secrets. nil discards it.
	Logger *slog.Logger
}

// Errors that callers may test for with errors.Is.
var (
	ErrInvalid  = event.ErrInvalid  // the arguments are wrong
	ErrTooLarge = event.ErrTooLarge // an event is larger than Config.MaxPayload
	ErrConflict = event.ErrConflict // the state does not allow it, such as an event_id that names another event of the campaign
	ErrNotFound = event.ErrNotFound // there is no such campaign
	ErrNotYet   = event.ErrNotYet   // the wait ended before it was applied
	ErrSetup    = event.ErrSetup    // the configuration, a projection or a database must be fixed first
	ErrBusy     = event.ErrBusy     // the database is busy or away; the same call may succeed later
	ErrReadOnly = event.ErrReadOnly // this process refuses every change
	ErrFull     = event.ErrFull     // the database's disk is full

	ErrUnidentified = auth.ErrUnidentified // FromProxyHeader, FromAssertion: the request names no user, or not validly
	ErrNoRole       = auth.ErrNoRole       // FromProxyHeader, FromAssertion: its user has no role
	ErrRefused      = auth.ErrRefused      // FromProxyHeader, FromAssertion: it names a user who cannot be admitted, and signing in again does not help
)

// Engine is an open journal with its read models. It is safe for concurrent use, and several
// processes may open the same databases: on PostgreSQL on many machines, on SQLite on one.
type Engine struct {
	config Config
	engine *engine.Engine
	logger *slog.Logger
	alerts alerts.Settings

	mu      sync.Mutex
	set     *projection.Set
	subs    []destination.Subscription
	process *engine.Process    // nil until the first Run or Handler
	stop    context.CancelFunc // ends Run; nil while it does not run
	ran     chan struct{}      // closed when Run has returned
	closed  bool
}

// Open opens both databases, creating or migrating them, and the projections of Config.Projections.
// Errors are ErrSetup where something must be fixed first. The caller must Close the engine.
func Open(ctx context.Context, c Config) (*Engine, error) {
	if c.JournalDB == "" || c.ProjectionsDB == "" {
		return nil, event.Setup("JournalDB and ProjectionsDB are required; give URLs such as sqlite:data/journal.db and sqlite:data/projections.db")
	}
	c.BasePath = cmp.Or(c.BasePath, "/")
	if err := c.check(); err != nil {
		return nil, err
	}
	e := &Engine{config: c, logger: c.Logger}
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if e.set, err = c.projections(ctx); err != nil {
		return nil, err
	}
	sources, err := c.sources()
	if err != nil {
		return nil, err
	}
	if e.alerts, err = c.alerts(); err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, store.Options{Journal: c.JournalDB, Projections: c.ProjectionsDB, NoCreate: c.NoMigrate, NoMigrate: c.NoMigrate, ReadOnly: c.ReadOnly,
		Embedded: true, Mode: campaign.ModeOutbox, MaxPayload: c.MaxPayload, EventTimeout: c.EventTimeout, Lease: c.Lease,
		Retry: event.Retry{MaxAttempts: c.MaxAttempts, Base: c.RetryBase, Max: c.RetryMax}, Log: e.logger})
	if err != nil {
		return nil, err
	}
	e.engine = engine.Wire(st)
	e.engine.Intake.Settings = sources
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return e, nil
}

// projections loads the projections that are files.
func (c *Config) projections(ctx context.Context) (*projection.Set, error) {
	if len(c.Projections) == 0 {
		return projection.Empty(engine.DialectOf(c.ProjectionsDB)), nil
	}
	return engine.LoadProjections(ctx, c.ProjectionsDB, c.Projections...)
}

func (c *Config) alerts() (alerts.Settings, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(c.Alerts), &document); err != nil {
		return alerts.Settings{}, event.Setup("Alerts: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return alerts.Settings{}, nil
	}
	settings, err := alerts.Parse(document.Content[0], func(string) (string, bool) { return "", false })
	if err != nil {
		return settings, event.Setup("Alerts: %s", err)
	}
	return settings, nil
}

func (e *Engine) prepare(ctx context.Context) error {
	if e.config.ReadOnly {
		return nil
	}
	if err := engine.Install(ctx, e.engine.Store, e.set); err != nil {
		return err
	}
	return e.engine.RegisterAuditOnly(ctx, e.config.AuditOnly)
}

// Close ends Run, waits until it has returned, and closes the databases. No other call and no request may
// be in progress; what comes after it is ErrSetup.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	stop, ran := e.stop, e.ran
	e.mu.Unlock()
	if stop != nil {
		stop()
		<-ran
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process != nil {
		e.process.Close()
	}
	return e.engine.Close()
}

var errClosed = event.Setup("the engine is closed; open another one")

// errStarted refuses what must come before Run and Handler.
func (e *Engine) errStarted(call string) error {
	switch {
	case e.closed:
		return errClosed
	case e.process != nil:
		return event.Setup("call %s before Run and Handler", call)
	}
	return nil
}

// Project adds a projection written in Go, and creates its tables if they are missing. It must come
// before Run and Handler. Errors are ErrSetup.
func (e *Engine) Project(p Projection) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.errStarted("Project"); err != nil {
		return err
	}
	set, err := e.set.With(p.code())
	if err != nil {
		return err
	}
	if !e.config.ReadOnly {
		if err := engine.Install(context.Background(), e.engine.Store, set); err != nil {
			return err
		}
	}
	e.set = set
	return nil
}

// started returns the process, which the first call makes.
func (e *Engine) started() *engine.Process {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process == nil {
		version := cmp.Or(e.config.Version, executable())
		told := e.engine.Alerts(e.alerts, version, alerts.Links(e.config.PublicURL, e.config.BasePath))
		e.process = engine.New(engine.Config{Engine: e.engine, Set: e.set, Metrics: engine.NewMetrics(e.engine, version, ""), Logger: e.logger, Version: version,
			Flags:     engine.Flags{PollInterval: e.config.PollInterval, Lease: e.config.Lease, BatchSize: e.config.BatchSize, VerifyEvery: verifyEvery},
			KeepAudit: e.config.KeepAudit, KeepHistory: e.config.KeepHistory, MaxPayload: e.config.MaxPayload, Subscriptions: e.subs, Destinations: destination.Options{Logger: e.logger, Version: version}, Alerts: told})
	}
	return e.process
}

// verifyEvery is how often one campaign is compared with the journal in the background.
const verifyEvery = 5 * time.Minute

// Run applies and publishes events until ctx ends. It then finishes what is in progress, releases its
// leases and returns nil. While it runs, and after Close, another call is ErrSetup.
func (e *Engine) Run(ctx context.Context) error {
	if e.config.ReadOnly {
		return event.Setup("Run applies events, and Config.ReadOnly forbids every change")
	}
	ctx, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer e.end()
	return e.started().Run(ctx)
}

// begin returns the context of Run, which Close ends.
func (e *Engine) begin(ctx context.Context) (context.Context, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, errClosed
	case e.stop != nil:
		return nil, event.Setup("the engine is already running; call Run once, and again only after it has returned")
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.ran = make(chan struct{})
	return ctx, nil
}

func (e *Engine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop()
	close(e.ran)
	e.stop = nil
}

// errIfClosed refuses what comes after Close.
func (e *Engine) errIfClosed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	return nil
}

// Append writes events to the journal in one transaction, all or none, and returns where they are.
// An event whose EventID its campaign has already is answered with the stored one if its content is the
// same, and is ErrConflict otherwise; the same EventID in another campaign is another event. Once Append
// returns, the events survive a power failure. If ctx has ended already it is ctx.Err(), and nothing is
// appended; an append that has begun is finished, even if ctx ends.
func (e *Engine) Append(ctx context.Context, events ...Event) ([]Appended, error) {
	return e.append(ctx, store.Append{}, events)
}

func (e *Engine) append(ctx context.Context, a store.Append, events []Event) ([]Appended, error) {
	if err := cmp.Or(e.errIfClosed(), ctx.Err()); err != nil {
		return nil, err
	}
	for i := range events {
		stored, err := events[i].stored()
		if err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
		}
		a.Events = append(a.Events, stored)
	}
	placed, err := e.engine.Append(ctx, a)
	if err != nil {
		return nil, err
	}
	appended := make([]Appended, len(placed))
	for i, p := range placed {
		appended[i] = Appended{CampaignID: p.CampaignID, Seq: p.Seq, Position: p.Position, EventID: p.EventID, Existed: p.Existed}
	}
	return appended, nil
}

// WaitApplied waits until the campaign's events up to seq are applied, or skipped: until the rows of
// each projection that is live for the campaign have them. It does not wait for a projection that is
// paused, that is quarantined for the campaign, or that has not caught up since; it returns nil although
// the rows of that one lack the events, and the console then says "applied in part". Nor does it wait
// for a rebuild: a projection that was added or changed after an event has it only once it is rebuilt.
//
// When ctx ends first it is ErrNotYet with what is missing; an unknown campaign is ErrNotFound.
func (e *Engine) WaitApplied(ctx context.Context, campaignID string, seq int64) error {
	if err := e.errIfClosed(); err != nil {
		return err
	}
	_, err := e.engine.WaitApplied(ctx, campaignID, seq)
	return err
}

// Handler returns the console, its JSON API and its metrics below Config.BasePath, behind the host's
// own login: who names the operator of a request and the role, or returns an error for a request
// without one, which is answered with 401; FromProxyHeader and FromAssertion make such functions. An API
// token is accepted as well; the command makes them (outboxweb token create), and the console can only
// list and revoke them.
//
// Mount it at its base path, such as mux.Handle("/admin/outbox/", e.Handler(who)), whether or not the
// router strips that path. It has its own content security policy, refuses changes that another site's
// page sends, and checks roles.
// A nil who makes every request an admin's, and answers under the name localhost only.
func (e *Engine) Handler(who func(*http.Request) (Operator, error)) http.Handler {
	p := e.started()
	names := e.config.Hosts
	var gate *auth.Gate
	if who != nil {
		identify := func(r *http.Request) (operator.Identity, error) {
			o, err := who(r)
			return operator.Identity{Name: o.Name, Auth: operator.AuthHost, Role: operator.Role(o.Role)}, err
		}
		var err error
		if gate, err = auth.New(auth.Config{Kind: auth.KindHost, Who: identify, Tokens: e.engine.ValidToken, Refused: p.Refused(), Logger: e.logger}); err != nil {
			panic(err) // nothing in it can be wrong
		}
		if len(names) == 0 {
			names = []string{hosts.Any}
		}
	}
	return p.Handler(handlers.Config{Embedded: true, ReadOnly: e.config.ReadOnly, BasePath: e.config.BasePath, Hosts: names, PublicOrigin: e.config.PublicURL,
		FrameAncestors: e.config.FrameAncestors, SignOut: e.config.SignOut, ActRate: actRate, MaxPayload: e.config.MaxPayload, Auth: gate})
}

// actRate is how many actions per second one operator may perform.
const actRate = 10
