package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/web/templates/system"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// Errors of HTTP itself.
var (
	errMethod    = errors.New("this URL does not support that method")
	errHost      = errors.New("misdirected request")
	errOrigin    = errors.New("cross-origin request")
	errPrefix    = errors.New("malformed prefix")
	errMediaType = errors.New("unsupported media type")
	errRange     = errors.New("no such range")
	errAddress   = errors.New("address too long")
	errHeaders   = errors.New("too many headers")
	errSlow      = errors.New("request sent too slowly")
	errRate      = errors.New("too many actions")
)

// statuses maps kinds of errors to answers; the first match counts. Any other error is internal,
// and its text is not shown.
var statuses = []struct {
	kind   error
	status int
	name   string
}{
	{event.ErrNotFound, http.StatusNotFound, "not-found"},
	{event.ErrTooLarge, http.StatusRequestEntityTooLarge, "too-large"},
	{event.ErrInvalid, http.StatusUnprocessableEntity, "invalid"},
	{event.ErrConflict, http.StatusConflict, "conflict"},
	{event.ErrNotYet, http.StatusGatewayTimeout, "not-yet"},
	{event.ErrReadOnly, http.StatusForbidden, "read-only"},
	{event.ErrFull, http.StatusInsufficientStorage, "full"},
	{event.ErrBusy, http.StatusServiceUnavailable, "busy"},
	{event.ErrDamaged, http.StatusInternalServerError, "damaged"},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "busy"},
	{errMethod, http.StatusMethodNotAllowed, "method"},
	{errHost, http.StatusMisdirectedRequest, "host"},
	{auth.ErrUnidentified, http.StatusUnauthorized, "unidentified"},
	{auth.ErrNoRole, http.StatusForbidden, "role"},
	{auth.ErrRefused, http.StatusForbidden, "refused"},
	{errOrigin, http.StatusForbidden, "origin"},
	{errPrefix, http.StatusBadRequest, "prefix"},
	{errMediaType, http.StatusUnsupportedMediaType, "media-type"},
	{errAddress, http.StatusRequestURITooLong, "address"},
	{errHeaders, http.StatusRequestHeaderFieldsTooLarge, "headers"},
	{errSlow, http.StatusRequestTimeout, "slow"},
	{errRate, http.StatusTooManyRequests, "rate"},
	{errHidden, http.StatusForbidden, "hidden"},
	{errRange, http.StatusRequestedRangeNotSatisfiable, "range"},
}

// problem is the body of an error, application/problem+json.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id" redact:"-"`
	// ProxyRequestID is the id that a trusted proxy gave the request.
	ProxyRequestID string            `json:"proxy_request_id,omitempty" redact:"-"`
	run            int64             // the blocking run, or 0
	source         string            // the source with what is in the way, or empty
	Errors         map[string]string `json:"errors,omitempty"`
	Confirm        string            `json:"confirm,omitempty" redact:"-"` // the phrase that the action requires: send it as confirm
	// Appended lists what was appended although waiting for the projections timed out.
	Appended []store.Appended `json:"appended,omitempty"`
	// BlockingEvent is the event that violates the condition of an append.
	BlockingEvent *event.EventRef `json:"blocking_event,omitempty"`
}

// explain turns an error into its answer; internal is true if its text is only for the log.
func explain(err error) (p problem, internal bool) {
	for _, s := range statuses {
		if errors.Is(err, s.kind) {
			p = problem{Type: "urn:outboxweb:" + s.name, Status: s.status, Detail: personText(err)}
			internal = s.status == http.StatusInternalServerError // the log has more
			break
		}
	}
	if p.Status == 0 {
		p = problem{Type: "urn:outboxweb:internal", Status: http.StatusInternalServerError,
			Detail: "internal error; see the server's log for this request id"}
		internal = true
	}
	p.Title = http.StatusText(p.Status)
	var invalid *request.Invalid
	var refusal *event.Refusal
	var late *appendedLate
	switch {
	case errors.As(err, &invalid):
		p.Errors = invalid.Fields
	case errors.As(err, &late):
		p.Appended = late.appended
	case errors.As(err, &refusal) && refusal.BlockingEvent != nil:
		p.BlockingEvent = refusal.BlockingEvent
	case errors.As(err, &refusal) && refusal.Confirm != "":
		p.Confirm, p.Errors = refusal.Confirm, map[string]string{refusal.Field: refusal.Error()}
	case errors.As(err, &refusal) && refusal.Field != "" && p.Status == http.StatusUnprocessableEntity:
		p.Errors = map[string]string{refusal.Field: refusal.Detail}
	}
	return p, internal
}

// personText returns the part of an error written for users. Retryable errors are wrapped in what
// was attempted, which is not.
func personText(err error) string {
	var refusal *event.Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal.Error()
	case errors.Is(err, event.ErrFull):
		return "the disk of the database is full; nothing was changed. Free up space and try again"
	case errors.Is(err, event.ErrDamaged):
		return "part of the database is damaged and cannot be read; outboxweb check lists what is affected, and the runbook explains how to recover, under “A database is damaged”"
	case errors.Is(err, event.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return "the database is busy or unavailable; try again in a moment"
	}
	return err.Error()
}

// fail answers with an error and logs internal ones. Secrets in its sentences are hidden: they
// quote stored values and requests.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client has disconnected
	}
	p, internal := explain(err)
	p = redact.Shown(s.Redact, p)
	var retryAfter time.Duration
	if refusal, ok := errors.AsType[*event.Refusal](err); ok {
		p.run, p.source, retryAfter = refusal.Run, refusal.Source, refusal.RetryAfter
	}
	p.RequestID, p.ProxyRequestID = requestID(r), operator.ProxyRequestID(r.Context())
	s.recordRefusal(r, p, err)
	if internal || p.Status == http.StatusInsufficientStorage {
		s.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, operator.RequestIDs(r.Context()), "err", err)
	}
	if p.Status == http.StatusServiceUnavailable {
		if me(r).Auth != "" { // the gate logs unauthenticated requests at a limited rate, so that they do not fill the disk
			s.Logger.Warn("request deferred", "method", r.Method, "path", r.URL.Path, operator.RequestIDs(r.Context()), "err", err)
		}
		retryAfter = max(retryAfter, time.Second)
	}
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="outboxweb"`)
	}
	if s.systemPath(r) != "" { // probes show the text in one line of a log, or in a terminal
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(p.Status)
		fmt.Fprintf(w, "%d %s: %s (request %s)\n", p.Status, p.Title, p.Detail, p.RequestID)
		return
	}
	if s.wantsJSON(r) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p) // the client may have disconnected
		return
	}
	s.failPage(w, r, p)
}

// Headers between a page's script and the server. statusHeader carries the status of an error that
// htmx gets with 200: browsers log every other status of a script's request to their console. The
// script sends formHeader with forms.
const (
	statusHeader = "Outboxweb-Status"
	formHeader   = "Outboxweb-Form"
)

// failStatus returns the status to answer an error with. Only 401 is sent unchanged to htmx too:
// proxies act on it.
func failStatus(w http.ResponseWriter, r *http.Request, p problem) int {
	if r.Header.Get("HX-Request") != "true" {
		return p.Status
	}
	w.Header().Set(statusHeader, strconv.Itoa(p.Status))
	if p.Status == http.StatusUnauthorized {
		return p.Status
	}
	return http.StatusOK
}

// failPage shows an error: a live part and a form, whose fields keep their input, get the sentence
// alone, and others a page, which repeats the input.
func (s *server) failPage(w http.ResponseWriter, r *http.Request, p problem) {
	h := w.Header()
	if r.Header.Get("HX-Target") == ui.LiveTarget { // its script shows the error
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(failStatus(w, r, p))
		_, _ = io.WriteString(w, ui.Visible(event.Sentence(p.Detail))) // the client may have disconnected
		return
	}
	h.Set("HX-Push-Url", "false") // the address bar keeps the page that sent the request
	frame, show := s.plainFrame(r, strconv.Itoa(p.Status)+" "+p.Title, ""), system.ProblemPage
	if r.Header.Get(formHeader) != "" {
		h.Set("HX-Retarget", "this")
		h.Set("HX-Reswap", "afterbegin show:none")
		show = system.Refusal
	}
	if err := s.render(w, r, failStatus(w, r, p), frame, pageOf(show, s.problemView(r, p))); err != nil {
		s.Logger.Error("render an error", operator.RequestIDs(r.Context()), "err", err)
	}
}

func (s *server) problemView(r *http.Request, p problem) system.Problem {
	v := system.Problem{Status: p.Status, Detail: p.Detail, Fields: p.Errors, RequestID: p.RequestID, ProxyRequestID: p.ProxyRequestID, Back: s.back(r), Run: p.run, Source: p.source, Typed: typed(r.PostForm)}
	if r.Method == http.MethodGet && r.URL.RawQuery != "" && (p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusConflict) {
		v.Whole, v.Typed = ui.URL(s.outside(r)), redact.Shown(s.Redact, typed(r.URL.Query()))
	}
	return v
}

// typed returns the input of a form, without the fields in which it keeps the state of its page.
func typed(form url.Values) map[string]string {
	values := map[string]string{}
	for name, sent := range form {
		value := strings.Join(sent, "\n")
		if value != "" && name != "idempotency_key" && name != "return_to" && name != "cursor" && !strings.HasPrefix(name, "expected_") {
			values[name] = value
		}
	}
	return values
}

// outside returns a request's path as the reader's browser sees it.
func (s *server) outside(r *http.Request) string {
	return s.linksOf(r).Base() + strings.TrimPrefix(r.URL.EscapedPath(), s.links.Base())
}

// back returns the page of the object of a refused action.
func (s *server) back(r *http.Request) ui.URL {
	if r.Method != http.MethodPost || chi.RouteContext(r.Context()) == nil {
		return ""
	}
	if sub, err := subscriptionParam(r); err == nil && sub.Topic != "" {
		return s.linksOf(r).Publisher(sub)
	}
	campaign, err := campaignParam(r)
	if err != nil {
		return ""
	}
	if seq, err := seqParam(r); err == nil && chi.RouteContext(r.Context()).RoutePattern() == operator.ActionReveal.Info().Path {
		return s.linksOf(r).EventTab(campaign, seq, ui.TabPayload)
	}
	if seq, err := seqParam(r); err == nil {
		return s.linksOf(r).Event(campaign, seq)
	}
	return s.linksOf(r).Campaign(campaign)
}

// formPage returns the page with the form that sends a POST to a path: at the path, above it, or below
// it as new; empty if there is none.
func (s *server) formPage(r *http.Request, path string) ui.URL {
	for at := path + "/new"; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		if s.router.Match(chi.NewRouteContext(), http.MethodGet, at) {
			return ui.URL(s.linksOf(r).Base() + at)
		}
	}
	return ""
}

// wantsJSON reports whether a request is to the API, whose errors are JSON.
func (s *server) wantsJSON(r *http.Request) bool {
	path := strings.TrimPrefix(r.URL.Path, s.links.Base())
	return path == "/api" || strings.HasPrefix(path, "/api/")
}
