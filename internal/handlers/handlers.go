// Package handlers is the HTTP face of outboxweb: the pages, the JSON API of
// the same, probes and metrics.
//
//	/                                   overview
//	/rows                               rows, filtered
//	/rows/{campaign}/{seq}              one row; POST …/requeue, …/retry, …/skip
//	/campaigns, /campaigns/{id}         campaigns; POST …/pause, …/resume, …/replay
//	/operations, /operations/{operation} requeues of many rows; GET …/new asks, POST starts; POST …/cancel, …/acknowledge
//	/runs, /runs/{run}                  replays, rebuilds and verifies; GET …/new asks, POST starts; POST …/cancel, …/resume
//	/runs/{run}/results/{campaign}      what became of one campaign
//	/rows/{campaign}/{seq}/dry-run      what applying a row's event would do
//	/failures                           errors that rows have in common; POST /failures/groups/note, …/retry
//	/campaigns/{id}/events/{seq}        one event; …/tree a part of its documents, …/payload a file; POST …/unskip
//	/projections, /projections/{name}   projections; POST …/pause, …/resume
//	/publishers                         where events go beside the projections
//	/publishers/{topic}/{publisher}     one publisher; POST …/pause, …/resume, …/reset, …/skip, …/test
//	/publishers/{topic}/{publisher}/seek asks where it shall go on, and says what that would do; POST does it
//	/instances /audit /about
//	/operating                          the runbook, which pages lead to
//	/export/rows, …/campaigns, …/audit  the lists as CSV or JSON files
//	/api/v1/…                           the JSON twins, and appending; see openapi.json
//	/healthz /readyz /metrics           for probes and scrapers, with and without the base path
//	/static/HASH/NAME                   embedded files
//
// Pages and API parse alike and make the same store call, so that a button and
// a curl cannot differ. A handler returns its error; problem.go turns it into
// an answer.
package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"outboxweb/internal/metrics"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/web/static"
	"outboxweb/web/templates"
)

// Config is what the handlers work with. Store and Metrics are required.
type Config struct {
	Store    *store.Store
	Mode     outbox.Mode
	ReadOnly bool // acts and appends are refused, and pages offer none
	// ReasonFrom is the number of released rows from which an act needs a
	// reason, as the store was told; 0 means that none does.
	ReasonFrom int64
	// BasePath is where the pages live, such as "/" or "/outbox".
	BasePath string
	// Hosts are the names, beside the loopback ones, that a request may name
	// in its Host header: "ops.example", or "ops.example:8443" for one port.
	Hosts       []string
	Version     string
	Projections []outbox.ProjectionInfo // as they were loaded
	// InlineApply applies what a campaign still owes. It is nil unless the
	// mode is inline_apply_only; then an append answers after it.
	InlineApply func(ctx context.Context, campaignID string) error
	// DryRun tries the events of a campaign up to seq and next more, and changes
	// nothing. nil means that it is not offered.
	DryRun func(ctx context.Context, campaign string, seq, next int64) (outbox.DryRun, error)
	// TestPublisher sends a made-up event to a publisher's destination; what the
	// destination says of it is no error. nil means that this process has no
	// publisher in its configuration.
	TestPublisher func(ctx context.Context, name outbox.PairName) (outbox.TestDelivery, error)
	// Stopping is closed when the server begins to shut down: whoever waits
	// for the projections then gets an answer at once. nil is never closed.
	Stopping <-chan struct{}
	// Settings are how this process was set up, without secrets.
	Settings []outbox.Setting
	Metrics  *metrics.Metrics
	Logger   *slog.Logger     // nil means slog.Default()
	Now      func() time.Time // nil means time.Now
}

type server struct {
	Config
	links     templates.Links
	router    *chi.Mux
	overviews map[outbox.Span]*overviewCache
	cost      cost
	reading   chan struct{} // room for the documents that are in memory
	trying    chan struct{} // room for dry runs
}

// New makes the handler of everything the server answers.
func New(c Config) http.Handler { return newServer(c).router }

func newServer(c Config) *server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &server{Config: c, links: templates.NewLinks(c.BasePath), router: chi.NewRouter(),
		overviews: map[outbox.Span]*overviewCache{}, reading: make(chan struct{}, documentReaders), trying: make(chan struct{}, dryRunsAtATime)}
	for _, span := range outbox.Spans {
		s.overviews[span] = new(overviewCache)
	}
	s.router.Use(s.identify, s.recoverPanic, s.protectHost, s.setHeaders, s.stripBase, s.protectOrigin, middleware.GetHead)
	s.router.NotFound(s.handle(s.notFound))
	s.router.MethodNotAllowed(s.handle(s.methodNotAllowed))
	s.routeSystem()
	s.routePages()
	s.routeAPI()
	return s
}

// handler is a handler that returns its error instead of writing it.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle turns a handler into one that net/http knows, and bounds its time.
func (s *server) handle(h handler) http.HandlerFunc {
	unbounded := s.stream(h)
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		unbounded(w, r.WithContext(ctx))
	}
}

// stream is handle for what may take as long as its client reads.
func (s *server) stream(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	}
}

func (s *server) routeSystem() {
	s.router.Get("/healthz", s.handle(s.healthz))
	s.router.Get("/readyz", s.handle(s.readyz))
	s.router.Method(http.MethodGet, "/metrics", s.Metrics.Handler())
	s.router.Get("/static/*", s.handle(s.asset))
}

func (s *server) routePages() {
	get := func(pattern string, h handler) { s.router.Get(pattern, s.handle(h)) }
	post := func(pattern string, h handler) { s.router.Post(pattern, s.handle(s.form(h))) }
	get("/", s.overviewPage)
	get("/rows", s.rowsPage)
	get("/rows/requeue", s.requeueDeadPage)
	get("/rows/{campaign}/{seq}", s.rowPage)
	get("/rows/{campaign}/{seq}/requeue", s.requeueRowPage)
	post("/rows/{campaign}/{seq}/requeue", s.requeueRowForm)
	post("/rows/{campaign}/{seq}/retry", s.retryRowForm)
	post("/rows/{campaign}/{seq}/skip", s.skipForm)
	get("/campaigns", s.campaignsPage)
	get("/campaigns/{campaign}", s.campaignPage)
	get("/campaigns/{campaign}/events/{seq}", s.eventPage)
	get("/campaigns/{campaign}/events/{seq}/tree", s.treePage)
	get("/campaigns/{campaign}/events/{seq}/payload", s.payload)
	post("/campaigns/{campaign}/events/{seq}/unskip", s.unskipForm)
	post("/campaigns/{campaign}/pause", s.pauseForm)
	post("/campaigns/{campaign}/resume", s.resumeForm)
	post("/campaigns/{campaign}/replay", s.replayForm)
	get("/failures", s.failuresPage)
	post("/failures/groups/note", s.noteGroupForm)
	post("/failures/groups/retry", s.retryGroupForm)
	get("/operations", s.operationsPage)
	get("/operations/new", s.newOperationPage)
	post("/operations", s.startOperationForm)
	get("/operations/{operation}", s.operationPage)
	post("/operations/{operation}/cancel", s.cancelOperationForm)
	post("/operations/{operation}/acknowledge", s.acknowledgeOperationForm)
	get("/runs", s.runsPage)
	get("/runs/new", s.newRunPage)
	post("/runs", s.startRunForm)
	get("/runs/{run}", s.runPage)
	post("/runs/{run}/cancel", s.cancelRunForm)
	post("/runs/{run}/resume", s.resumeRunForm)
	get("/runs/{run}/results/{campaign}", s.runResultPage)
	get("/rows/{campaign}/{seq}/dry-run", s.dryRunPage)
	get("/projections", s.projectionsPage)
	get("/projections/{name}", s.projectionPage)
	post("/projections/{name}/pause", s.pauseProjectionForm)
	post("/projections/{name}/resume", s.resumeProjectionForm)
	s.routePublishers(get, post)
	get("/instances", s.instancesPage)
	get("/audit", s.auditPage)
	get("/about", s.aboutPage)
	get("/operating", s.operatingPage)
	s.routeExports("")
}

// routeExports adds the lists as files. They have a place of their own, since
// /campaigns/export is the page of a campaign of that name.
func (s *server) routeExports(prefix string) {
	s.router.Get(prefix+"/export/rows", s.stream(s.exportRows))
	s.router.Get(prefix+"/export/campaigns", s.stream(s.exportCampaigns))
	s.router.Get(prefix+"/export/audit", s.stream(s.exportAudit))
}

// apiPrefix is where the JSON API lives, below the base path.
const apiPrefix = "/api/v1"

func (s *server) routeAPI() {
	get := func(pattern string, h handler) { s.router.Get(apiPrefix+pattern, s.handle(h)) }
	post := func(pattern string, h handler) { s.router.Post(apiPrefix+pattern, s.handle(s.jsonBody(h))) }
	get("/summary", s.apiSummary)
	get("/history", s.apiHistory)
	get("/rows", s.apiRows)
	post("/rows/requeue", s.apiRequeueDead)
	post("/rows/retry", s.apiRetryFailed)
	get("/rows/{campaign}/{seq}", s.apiRow)
	post("/rows/{campaign}/{seq}/requeue", s.apiRequeueRow)
	post("/rows/{campaign}/{seq}/retry", s.apiRetryRow)
	post("/rows/{campaign}/{seq}/skip", s.apiSkipEvent)
	get("/campaigns", s.apiCampaigns)
	get("/campaigns/{campaign}", s.apiCampaign)
	get("/campaigns/{campaign}/events", s.apiEvents)
	post("/campaigns/{campaign}/events", s.apiAppend)
	get("/campaigns/{campaign}/events/{seq}", s.apiEvent)
	get("/campaigns/{campaign}/events/{seq}/payload", s.payload)
	get("/campaigns/{campaign}/projections", s.apiCursors)
	post("/campaigns/{campaign}/events/{seq}/unskip", s.apiUnskipEvent)
	get("/campaigns/{campaign}/skips", s.apiSkips)
	post("/campaigns/{campaign}/pause", s.apiPause)
	post("/campaigns/{campaign}/resume", s.apiResume)
	post("/campaigns/{campaign}/replay", s.apiReplay)
	get("/campaigns/{campaign}/history", s.apiCampaignHistory)
	get("/failures/groups", s.apiFailureGroups)
	post("/failures/groups/note", s.apiNoteGroup)
	get("/operations", s.apiOperations)
	post("/operations", s.apiStartOperation)
	s.router.Post(apiPrefix+"/operations/preview", s.handle(s.jsonInput(s.apiPreviewOperation)))
	get("/operations/{operation}", s.apiOperation)
	get("/operations/{operation}/rows", s.apiOperationRows)
	post("/operations/{operation}/cancel", s.apiCancelOperation)
	post("/operations/{operation}/acknowledge", s.apiAcknowledgeOperation)
	get("/runs", s.apiRuns)
	post("/runs", s.apiStartRun)
	get("/runs/{run}", s.apiRun)
	post("/runs/{run}/cancel", s.apiCancelRun)
	post("/runs/{run}/resume", s.apiResumeRun)
	get("/runs/{run}/results", s.apiRunResults)
	get("/runs/{run}/results/{campaign}", s.apiRunResult)
	get("/runs/{run}/log", s.apiRunLog)
	get("/campaigns/{campaign}/verifications", s.apiVerifications)
	get("/rows/{campaign}/{seq}/dry-run", s.apiDryRun)
	get("/journal", s.apiJournal)
	get("/gaps", s.apiGaps)
	post("/gaps/repair", s.apiRepairGaps)
	get("/projections", s.apiProjections)
	get("/projections/{name}", s.apiProjection)
	get("/projections/{name}/cursors", s.apiProjectionCursors)
	post("/projections/{name}/pause", s.apiPauseProjection)
	post("/projections/{name}/resume", s.apiResumeProjection)
	get("/failures", s.apiFailures)
	get("/failures/{failure}", s.apiFailure)
	get("/publishers", s.apiPublishers)
	get("/publishers/{topic}/{publisher}", s.apiPublisher)
	get("/publishers/{topic}/{publisher}/history", s.apiPublisherHistory)
	post("/publishers/{topic}/{publisher}/pause", s.apiPausePublisher)
	post("/publishers/{topic}/{publisher}/resume", s.apiResumePublisher)
	post("/publishers/{topic}/{publisher}/reset", s.apiResetPublisher)
	post("/publishers/{topic}/{publisher}/skip", s.apiSkipPublisherEvent)
	post("/publishers/{topic}/{publisher}/test", s.apiTestPublisher)
	s.router.Post(apiPrefix+"/publishers/{topic}/{publisher}/seek", s.handle(s.jsonInput(s.apiSeekPublisher)))
	get("/instances", s.apiInstances)
	get("/audit", s.apiAudit)
	get("/about", s.apiAbout)
	get("/openapi.json", s.apiDocument)
	s.routeExports(apiPrefix)
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // a probe that went away needs no answer
	return nil
}

// readiness is the body of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	reasons := s.Store.Ready(ctx)
	if len(reasons) > 0 {
		return writeJSON(w, http.StatusServiceUnavailable, readiness{Reasons: reasons})
	}
	return writeJSON(w, http.StatusOK, readiness{Ready: true, Reasons: []string{}})
}

func (s *server) asset(w http.ResponseWriter, r *http.Request) error {
	if !static.Serve(w, r, chi.URLParam(r, "*")) {
		return outbox.NotFound("there is no such file")
	}
	return nil
}

func (s *server) notFound(_ http.ResponseWriter, _ *http.Request) error {
	return outbox.NotFound("there is nothing at this address")
}

func (s *server) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if s.router.Match(chi.NewRouteContext(), method, chi.RouteContext(r.Context()).RoutePath) {
			w.Header().Add("Allow", method)
		}
	}
	return errMethod
}
