// Package handlers serves outboxweb over HTTP: pages, the JSON API, probes and metrics.
//
//	/                                   overview
//	/rows                               rows, filtered
//	/rows/{campaign}/{seq}              leads to the row's event; POST …/requeue, …/retry, …/dead-letter, …/skip
//	/campaigns, /campaigns/{id}         campaigns; POST …/pause, …/resume, …/replay
//	/events                             events of all campaigns, filtered
//	/search                             anything by its id; …/suggestions the options of the search box
//	/views                              POST keeps a filtered list by name; POST …/{view}/rename, …/remove
//	/operations, /operations/{operation} requeues of many rows; GET …/new previews, POST starts; POST …/cancel, …/acknowledge
//	/runs, /runs/{run}                  replays, rebuilds and verifies; GET …/new previews, POST starts; POST …/cancel, …/resume
//	/runs/{run}/results/{campaign}      the result of one campaign
//	/rehearsals/new                     changed projection files to try on blocked campaigns, for admins; POST /rehearsals starts
//	/rows/{campaign}/{seq}/dry-run      what applying a row's event would do
//	/failures                           errors that rows have in common; POST /failures/groups/note, …/retry
//	/campaigns/{id}/read-model          the rows of its projections as of any event; …/cell one value and what set it
//	/campaigns/{id}/events/{seq}        one event and its row; …/tree part of its documents, …/payload a file; POST …/unskip, …/reveal
//	/projections, /projections/{name}   projections; POST …/pause, …/resume
//	/projections/{name}/versions/{version} the campaigns that a version built
//	/publishers                         deliveries of events to destinations
//	/publishers/{topic}/{publisher}     one publisher; POST …/pause, …/resume, …/reset, …/skip, …/test
//	/publishers/{topic}/{publisher}/seek previews a move of its position; POST moves it
//	/intake                             sources of events
//	/intake/{source}                    a source with its rejected rows; POST …/rejections/{rejection}/retry, …/discard, …/hand-over
//	/alerts                             rules, receivers and messages; POST …/receivers/{receiver}/test, …/rules/{rule}/mute, …/unmute
//	/instances /audit /about
//	/tokens                             API tokens, for admins; POST …/{token}/revoke
//	/docs, /docs/{document}             the documentation; pages link to the runbook, /docs/operating
//	/export/rows, …/campaigns, …/audit  the lists as CSV or JSON files
//	/api/v1/…                           the JSON equivalents, and appending; see openapi.json
//	/healthz /readyz /metrics           for probes and scrapers, with and without the base path
//	/static/HASH/NAME                   embedded files
//
// Pages and API parse alike and make the same store call, so that a button and a curl cannot
// differ. A handler returns its error; problem.go turns it into an answer. Values from the store
// contain secrets, which are hidden where a value leaves; see doors.go.
package handlers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/internal/tokens"
	"github.com/outboxweb/outboxweb/web/static"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// Config configures the handlers. Queue, Samples, Search, Operations, Runs, Tokens, Publishers, Intake and Metrics
// are required.
type Config struct {
	Queue      *outbox.Queue
	Samples    *samples.Samples
	Search     *search.Search
	Operations *operations.Operations
	Runs       *runs.Runs
	Tokens     *tokens.Tokens
	Publishers *publishing.Progress
	Intake     *intake.Intake
	// Facts are what is known of the whole system, of which pages and answers find what is wrong.
	Facts *facts.Reader
	// Alerts are the alerts of this process's configuration; nil means none.
	Alerts   *alerts.Alerts
	Mode     campaign.Mode
	ReadOnly bool // refuse actions and appends, and offer none on pages
	// Embedded says that a program of somebody else's serves the pages: they name settings as that
	// program has them, not as flags of the command.
	Embedded bool
	// ReasonFrom is the number of released rows from which an action requires a reason, as
	// configured in the store; 0 means never.
	ReasonFrom int64
	// BasePath is the path of the pages, such as "/" or "/outbox".
	BasePath string
	// Hosts are the host names, beside the loopback ones, that a request may have in its Host
	// header: "ops.example", or "ops.example:8443" for one port; Any allows every name, which
	// gives up the protection from DNS rebinding.
	Hosts []string
	// PublicOrigin is the origin at which a proxy serves the pages, as normalized by Origin:
	// changes are accepted from its pages, its host is allowed, and curl lines name it. Empty if
	// browsers reach this server directly.
	PublicOrigin string
	// FrameAncestors are the origins whose pages may frame these pages, as in the policy
	// frame-ancestors; none forbids framing.
	FrameAncestors []string
	// SignOut is where the link that ends a reader's session leads: a path of the host, not below
	// BasePath, or an https URL. Empty for no link.
	SignOut     string
	Version     string
	Projections []campaign.ProjectionInfo // the loaded definitions
	// InlineApply applies a campaign's unapplied events. It is nil unless the mode is
	// inline_apply_only; an append then answers after it.
	InlineApply func(ctx context.Context, campaignID string) error
	// DryRun tries the events of a campaign up to seq and the next ones after it, and changes
	// nothing. nil means that dry runs are not offered.
	DryRun func(context.Context, replay.Trial) (replay.RunResult, error)
	// Explain says why projections fail at an event, with what the hider hides. nil means that errors
	// are shown as they are.
	Explain func(ctx context.Context, hide projection.Hider, campaign string, seq int64) (projection.EventExplanation, error)
	// Fixture makes a fixture of an event that projections refuse, with what the hider hides. nil means that none is
	// offered.
	Fixture func(ctx context.Context, hide projection.Hider, on event.RowKey) (projection.Fixture, error)
	// Travel shows read models as of any event. nil means that they are not offered.
	Travel *timetravel.Travel
	// Rehearse starts a rehearsal of changed projection files, and ProjectionFile returns the loaded
	// file of a projection. nil means that rehearsals are not offered.
	Rehearse       func(context.Context, operator.Command, replay.RehearsalRequest) (replay.Run, error)
	ProjectionFile func(projection string) campaign.RehearsalFile
	// TestPublisher sends a made-up event to a publisher's destination; a delivery failure is not
	// an error. nil means that this process has no publisher in its configuration.
	TestPublisher func(ctx context.Context, name operator.SubscriptionName) (subscription.TestDelivery, error)
	// Stopping is closed when the server begins to shut down: requests that wait for the
	// projections are then answered at once. nil is never closed.
	Stopping <-chan struct{}
	// ActRate is how many actions per second one identity may perform, with bursts of twice as
	// many; 0 means no limit.
	ActRate float64
	// MaxPayload is the store's option of the same name, in bytes; 0 means
	// event.DefaultMaxPayload. MaxAppendEvents is the maximum number of events in one append; 0
	// means DefaultMaxEvents.
	MaxPayload, MaxAppendEvents int
	// HSTS makes browsers use HTTPS only, for a year. It is for servers that terminate TLS
	// themselves.
	HSTS bool
	// Auth authenticates requests. nil admits everyone as the local operator.
	Auth *auth.Gate
	// Redact hides secrets in answers. nil hides the built-in patterns.
	Redact *redact.Redactor
	// Trusts reports whether a request's peer is a proxy that may set the path prefix of the pages.
	// nil asks Auth.
	Trusts func(r *http.Request) bool
	// CommandFlags are the flags with which a command uses the same databases from any directory,
	// without secrets. Pages show them.
	CommandFlags []string
	// Settings are this process's settings, without secrets.
	Settings []database.Setting
	Metrics  *metrics.Metrics
	Logger   *slog.Logger     // nil means slog.Default()
	Now      func() time.Time // nil means time.Now
}

type server struct {
	Config
	Store       *store.Store // of the queue
	maintenance *maintenance.Maintenance
	links       ui.Links // below the base path; linksOf also adds a proxy's prefix
	router      *chi.Mux
	routes      map[string]route // all routes, by method and pattern
	overviews   overviewCaches
	cost        cost
	rooms
	// crossOrigin detects changes requested by another site's page.
	crossOrigin *http.CrossOriginProtection
}

// New returns the handler of all requests.
func New(c Config) http.Handler {
	s := newServer(c)
	if c.Embedded {
		return s.mounted()
	}
	return s.router
}

func newServer(c Config) *server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Alerts == nil {
		c.Alerts = alerts.New(c.Queue.Store, alerts.Options{})
	}
	if c.Redact == nil {
		c.Redact = redact.Builtin()
	}
	c.MaxPayload = cmp.Or(c.MaxPayload, event.DefaultMaxPayload)
	c.MaxAppendEvents = cmp.Or(c.MaxAppendEvents, appendbody.DefaultMaxEvents)
	if c.Trusts == nil {
		c.Trusts = c.Auth.Trusts
	}
	if host := c.publicHost(); host != "" {
		c.Hosts = append(slices.Clip(c.Hosts), host)
	}
	s := &server{Config: c, Store: c.Queue.Store, maintenance: maintenance.New(c.Queue), crossOrigin: hosts.Trusting(c.PublicOrigin), links: ui.NewLinks(c.BasePath), router: chi.NewRouter(), routes: map[string]route{},
		rooms: newRooms(c.ActRate)}
	s.Store.OnChange(s.overviews.invalidate)
	s.router.Use(s.identify, s.setHeaders, s.resolvePrefix, s.recoverPanic, s.limitHead, s.protectHost, s.stripBase, middleware.GetHead, compress)
	anything := route{role: operator.RoleViewer} // unknown addresses are only told to users who may read
	s.router.NotFound(s.admit(anything, s.handle(s.notFound)).ServeHTTP)
	s.router.MethodNotAllowed(s.admit(anything, s.handle(s.methodNotAllowed)).ServeHTTP)
	s.routeSystem()
	s.routePages()
	s.routeAPI()
	return s
}

// handler is an HTTP handler that returns its error instead of writing it.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle turns a handler into an http.HandlerFunc and bounds its time.
func (s *server) handle(h handler) http.HandlerFunc {
	unbounded := s.stream(h)
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		unbounded(w, r.WithContext(ctx))
	}
}

// stream is handle without a time limit, for answers that last as long as the client reads.
func (s *server) stream(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	}
}

func (s *server) routeSystem() {
	s.open("/healthz", s.handle(s.healthz))
	s.open("/readyz", s.handle(s.readyz))
	s.open("/static/*", s.handle(s.asset))
	s.view(operator.RoleViewer, "/metrics", s.Metrics.Handler(), nil)
}

func (s *server) routePages() {
	s.get("/", s.overviewPage, rangeQuery{})
	s.get("/charts", s.chartsPage, chartsQuery{})
	s.get("/handover", s.handOverPage, handOverQuery{})
	s.get("/rows", s.rowsPage, campaign.RowFilter{})
	s.get("/rows/requeue", s.requeueDeadPage, operationForm{})
	s.get("/rows/{campaign}/{seq}", s.rowRedirect, eventPageQuery{})
	s.get("/rows/{campaign}/{seq}/requeue", s.requeueRowPage)
	s.get("/campaigns", s.campaignsPage, campaign.CampaignFilter{}, rangeQuery{})
	s.get("/campaigns/{campaign}", s.campaignPage, campaignPageQuery{}, rangeQuery{})
	s.get("/campaigns/{campaign}/read-model", s.readModelPage, modelPageQuery{})
	s.get("/campaigns/{campaign}/read-model/cell", s.modelCellPage, modelCellQuery{})
	s.get("/campaigns/{campaign}/events/{seq}", s.eventPage, eventPageQuery{})
	s.get("/campaigns/{campaign}/events/{seq}/tree", s.treePage, treeQuery{})
	s.get("/campaigns/{campaign}/events/{seq}/payload", s.payload)
	s.get("/campaigns/{campaign}/events/{seq}/fixture", s.fixture)
	s.formAction(operator.ActionReveal, s.revealForm)
	s.get("/failures", s.failuresPage, campaign.FailureFilter{})
	s.formActionAt(operator.ActionRetryMany, "/failures/groups/retry", s.retryGroupForm)
	s.get("/operations", s.operationsPage, operations.OperationFilter{})
	s.get("/operations/new", s.newOperationPage, operationForm{})
	s.get("/operations/{operation}", s.operationPage, operations.OperationRowFilter{})
	s.get("/runs", s.runsPage, replay.RunFilter{})
	s.get("/runs/new", s.newRunPage, runForm{})
	s.get("/runs/{run}", s.runPage, replay.ResultFilter{}, runLogQuery{})
	s.get("/rehearsals/new", s.newRehearsalPage, rehearsalQuery{})
	s.get("/runs/{run}/results/{campaign}", s.runResultPage)
	s.get("/rows/{campaign}/{seq}/dry-run", s.dryRunPage, dryRunQuery{})
	s.get("/projections", s.projectionsPage, rangeQuery{})
	s.get("/projections/{name}", s.projectionPage, campaign.CursorFilter{}, rangeQuery{})
	s.get("/projections/{name}/versions/{version}", s.versionPage, campaign.BuiltFilter{})
	s.get("/publishers", s.publishersPage, rangeQuery{}, paging{})
	s.get("/publishers/{topic}/{publisher}", s.publisherPage, rangeQuery{})
	s.get("/publishers/{topic}/{publisher}/seek", s.seekPage, seekForm{})
	s.formAction(operator.ActionPublisherSeek, s.seekForm)
	s.get("/events", s.eventsPage, search.EventFilter{})
	s.get("/search", s.searchPage, searchQuery{})
	s.get("/search/suggestions", s.suggestions, searchQuery{})
	s.routeViews()
	s.get("/intake", s.intakePage)
	s.get("/intake/{source}", s.sourcePage, paging{})
	s.get("/alerts", s.alertsPage)
	s.get("/instances", s.instancesPage, rangeQuery{})
	s.get("/audit", s.auditPage, operator.AuditFilter{})
	s.get("/about", s.aboutPage)
	s.get("/watch", s.watch)
	s.view(operator.RoleAdmin, "/tokens", s.handle(s.tokensPage), nil)
	s.get("/docs", s.docsPage, docsQuery{})
	s.get("/docs/{document}", s.docPage)
	s.get("/operating", s.operating)
	// The lists as files have their own path: /campaigns/export is the page of a campaign of that name.
	s.view(operator.RoleViewer, "/export/rows", s.stream(s.exportRows), rowsFile)
	s.view(operator.RoleViewer, "/export/campaigns", s.stream(s.exportCampaigns), campaignsFile)
	s.view(operator.RoleViewer, "/export/audit", s.stream(s.exportAudit), auditFile)
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // the probe may have disconnected
	return nil
}

// readiness is the body of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	// Warnings are asked for with ?verbose: what does not keep the server from working.
	Warnings []string `json:"warnings,omitempty"`
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	state, status := readiness{Reasons: append([]string{}, s.Store.Ready(ctx)...)}, http.StatusServiceUnavailable
	if len(state.Reasons) == 0 {
		state.Ready, status = true, http.StatusOK
	}
	if r.URL.Query().Has("verbose") {
		if trouble := s.Auth.Trouble(); trouble != "" {
			state.Warnings = append(state.Warnings, trouble)
		}
		all, _ := s.findings(ctx) // what cannot be read is a reason
		for _, f := range all {
			state.Warnings = append(state.Warnings, f.Says)
		}
	}
	return s.writeJSON(w, status, state)
}

func (s *server) asset(w http.ResponseWriter, r *http.Request) error {
	if !static.Serve(w, r, chi.URLParam(r, "*")) {
		return event.NotFound("there is no such file")
	}
	return nil
}

func (s *server) notFound(w http.ResponseWriter, r *http.Request) error {
	path := chi.RouteContext(r.Context()).RoutePath
	if at := strings.TrimRight(path, "/"); at != "" && at != path && !s.wantsJSON(r) && s.router.Match(chi.NewRouteContext(), http.MethodGet, at) {
		query := map[bool]string{true: "?" + r.URL.RawQuery}[r.URL.RawQuery != ""]
		http.Redirect(w, r, s.linksOf(r).Base()+at+query, http.StatusPermanentRedirect)
		return nil
	}
	return event.NotFound("there is nothing at this URL%s", s.unstripped(r))
}

func (s *server) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	for _, allowed := range []string{"GET, HEAD", "POST"} {
		method, _, _ := strings.Cut(allowed, ",")
		if s.router.Match(chi.NewRouteContext(), method, chi.RouteContext(r.Context()).RoutePath) {
			w.Header().Add("Allow", allowed)
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errMethod
	}
	// A proxy whose login a form has led to comes back to its address.
	if page := s.formPage(r, chi.RouteContext(r.Context()).RoutePath); page != "" && !s.wantsJSON(r) && strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, string(page), http.StatusSeeOther)
		return nil
	}
	return fmt.Errorf("%w: it takes what a form sends, and shows no page", errMethod)
}
