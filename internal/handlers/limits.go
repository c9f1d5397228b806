package handlers

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/system"
)

// Limits on a request's head. Heads of more than maxHeader bytes are refused by net/http itself.
const (
	maxHeader  = 128 << 10 // bytes, including the request line
	maxHeaders = 100       // names; a proxy may repeat one for each of the user's groups
	maxAddress = 16 << 10  // bytes
)

// Patience is how long the server waits for clients; zero values mean the defaults. A slower client
// is cut off.
type Patience struct {
	Header time.Duration // for a request's header: 5 s
	Read   time.Duration // for the whole request: 30 s
	Write  time.Duration // until the whole answer is received, starting with the header: 90 s
	Idle   time.Duration // for the next request on a connection: 2 min
}

// defaultPatience allows an answer the longest wait for projections.
var defaultPatience = Patience{Header: 5 * time.Second, Read: 30 * time.Second, Write: 90 * time.Second, Idle: 2 * time.Minute}

// NewHTTPServer returns the server for the handler. Connection errors are logged to log as
// warnings.
//
// The number of connections is limited only by the system's open files. An idle one costs some 20
// KB, a slow reader the rest of its answer, and neither holds anything that others wait for.
func NewHTTPServer(h http.Handler, p Patience, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: cmp.Or(p.Header, defaultPatience.Header),
		ReadTimeout:       cmp.Or(p.Read, defaultPatience.Read),
		WriteTimeout:      cmp.Or(p.Write, defaultPatience.Write),
		IdleTimeout:       cmp.Or(p.Idle, defaultPatience.Idle),
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ConnContext:       limitAhead,
	}
}

// sendAhead is about how much of an answer the system may buffer ahead of the client, in bytes. The
// system's default is megabytes, and an export to a client that reads nothing would be read and
// encoded that far.
const sendAhead = 128 << 10

// limitAhead limits the send buffer of a new connection, where the system permits it.
func limitAhead(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if c, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = c.SetWriteBuffer(sendAhead)
	}
	return ctx
}

// limitHead refuses requests with a longer address or more headers than any browser or script of
// ours would send.
func (s *server) limitHead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch headers := len(r.Header); {
		case len(r.RequestURI) > maxAddress:
			s.fail(w, r, &event.Refusal{Err: errAddress, Detail: fmt.Sprintf("the URL is %d bytes long; the limit is %d", len(r.RequestURI), maxAddress)})
		case headers > maxHeaders:
			s.fail(w, r, &event.Refusal{Err: errHeaders, Detail: fmt.Sprintf("the request has headers of %d names; the limit is %d", headers, maxHeaders)})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Concurrent requests of expensive kinds.
const (
	exportsAtATime  = 4 // reading and encoding a page; while a client receives it, others may
	previewsAtATime = 4 // of operations, runs and seeks
	dryRunsAtATime  = 2 // dry runs copy rows
	documentReaders = 8 // reading a whole document; sending it happens outside the slot

	bodyRoom      = 2 * maxAppendBody // bytes of large bodies in memory
	bodiesWaiting = 32                // requests waiting for that; further ones are refused at once

	waitsAtATime = 2000 // requests that wait for the projections
	waitsOfOne   = 500  // of one identity
)

// rooms admit requests.
type rooms struct {
	reading    *admission.Room // documents
	trying     *admission.Room // dry runs
	previewing *admission.Room // large actions
	exporting  *admission.Room // pages of exports
	bodies     *admission.Room // bytes of large bodies
	waiting    *admission.Room // for the projections
	waitsOf    *admission.Shares[admission.Caller]
	appending  *admission.Shares[appendKey]
	acting     *admission.Limiter
}

func newRooms(actRate float64) rooms {
	m := rooms{
		reading: admission.BusyRoom(documentReaders, "reading large documents"), trying: admission.BusyRoom(dryRunsAtATime, "running dry runs"),
		previewing: admission.BusyRoom(previewsAtATime, "previewing actions"), exporting: admission.BusyRoom(exportsAtATime, "exporting lists"),
		bodies:  admission.NewRoom(bodyRoom, "too many large appends are in progress; nothing was appended. Try again in a moment"),
		waiting: admission.NewRoom(waitsAtATime, fmt.Sprintf("%d requests are waiting for projections, the limit of this server; nothing was done. Try again in a moment, or do not wait", waitsAtATime)),
		waitsOf: admission.NewShares[admission.Caller](waitsOfOne), appending: admission.NewShares[appendKey](1), acting: admission.NewLimiter(actRate),
	}
	m.bodies.Queue, m.waiting.Wait = bodiesWaiting, 0
	return m
}

// enterWait lets a request wait for the projections, until leave is called. Over the limit it is
// refused: with errRate for the sender's own limit, and otherwise with event.ErrBusy.
func (m rooms) enterWait(r *http.Request) (leave func(), err error) {
	mine, ok := m.waitsOf.Enter(admission.CallerOf(me(r)))
	if !ok {
		return nil, &event.Refusal{Err: errRate, RetryAfter: time.Second, Detail: fmt.Sprintf(
			"%d requests by %s are waiting for projections, the limit per identity; nothing was done. Try again in a moment, or do not wait", waitsOfOne, me(r).Name)}
	}
	all, err := m.waiting.Enter(r.Context(), 1)
	if err != nil {
		mine()
		return nil, err
	}
	return func() {
		all()
		mine()
	}, nil
}

func (s *server) previewOperation(ctx context.Context, selection operations.Selection, rehearsal int64) (operations.OperationPreview, error) {
	return admission.Within(ctx, s.previewing, func() (operations.OperationPreview, error) {
		return s.Operations.Preview(ctx, selection, rehearsal)
	})
}

func (s *server) previewRun(ctx context.Context, order replay.RunRequest) (replay.RunPreview, error) {
	return admission.Within(ctx, s.previewing, func() (replay.RunPreview, error) { return s.Runs.Preview(ctx, order, s.Projections) })
}

// checkRate refuses an action of an identity that is over its rate.
func (s *server) checkRate(r *http.Request, t route) error {
	if !t.action.Audited() {
		return nil
	}
	wait := s.acting.Allow(me(r), s.Now())
	if wait == 0 {
		return nil
	}
	seconds := int(math.Ceil(wait.Seconds()))
	return &event.Refusal{Err: errRate, RetryAfter: wait, Detail: fmt.Sprintf(
		"too many actions by %s: this server accepts %g per second per identity; nothing was done, try again in %d s", me(r).Name, s.ActRate, seconds)}
}

// limits are the limits that /about shows.
func (s *server) limits() []system.Limit {
	acts := "no limit"
	if s.ActRate > 0 {
		acts = fmt.Sprintf("%g per second, bursts of %d", s.ActRate, s.acting.Burst)
	}
	return []system.Limit{
		{Name: "URL of a request", Value: event.Bytes(maxAddress)},
		{Name: "Headers of a request", Value: fmt.Sprintf("%s, %d names", event.Bytes(maxHeader), maxHeaders)},
		{Name: "Body of an append", Value: event.Bytes(maxAppendBody)},
		{Name: "Events of an append", Value: fmt.Sprintf("%s, with %s tags in total", event.Number(int64(s.MaxAppendEvents)), event.Number(int64(appendbody.TagsPerEvent*s.MaxAppendEvents)))},
		{Name: "Appends over " + event.Bytes(smallBody), Value: fmt.Sprintf("%s in memory at a time; up to %d more wait up to %s; each must send %s every %s", event.Bytes(bodyRoom), bodiesWaiting, event.Limit(admission.RoomWait), event.Bytes(bodyStep), event.Limit(bodyPace))},
		{Name: "Body with a selection of rows or campaigns", Value: event.Bytes(maxSelectionBody)},
		{Name: "Body with changed projection files", Value: event.Bytes(maxRehearsalBody)},
		{Name: "Body of another action", Value: event.Bytes(maxActBody)},
		{Name: "Time to send the headers", Value: event.Limit(defaultPatience.Header)},
		{Name: "Time to send a request", Value: event.Limit(defaultPatience.Read)},
		{Name: "Time to process a request", Value: event.Limit(requestTime)},
		{Name: "Time to receive a response", Value: fmt.Sprintf("%s; exports %s per page", event.Limit(defaultPatience.Write), event.Limit(exportPatience))},
		{Name: "Idle time of a connection", Value: event.Limit(defaultPatience.Idle)},
		{Name: "Actions per identity", Value: acts},
		{Name: "Concurrent requests", Value: fmt.Sprintf("%d exports, %d previews, %d dry runs, %d documents; more wait up to %s", exportsAtATime, previewsAtATime, dryRunsAtATime, documentReaders, event.Limit(admission.RoomWait))},
		{Name: "Items on a page of a list", Value: fmt.Sprintf("%d by default, at most %d", event.DefaultPage, event.MaxPage)},
		{Name: "Rows requeued at once", Value: fmt.Sprintf("%d by default, at most %s", event.DefaultRequeue, event.Number(event.MaxRequeue))},
		{Name: "Waiting for projections", Value: fmt.Sprintf("%s by default, at most %s; %s requests at a time, %s per identity", event.Limit(defaultWait), event.Limit(longestWait), event.Number(waitsAtATime), event.Number(waitsOfOne))},
	}
}
