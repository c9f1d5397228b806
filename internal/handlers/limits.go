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
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
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
			s.fail(w, r, &outbox.Refusal{Err: errAddress, Detail: fmt.Sprintf("the URL is %d bytes long; the limit is %d", len(r.RequestURI), maxAddress)})
		case headers > maxHeaders:
			s.fail(w, r, &outbox.Refusal{Err: errHeaders, Detail: fmt.Sprintf("the request has headers of %d names; the limit is %d", headers, maxHeaders)})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Concurrent requests of expensive kinds. Further requests wait a little, less than the database's
// timeout, and are then told to retry.
const (
	exportsAtATime  = 4 // reading and encoding a page; while a client receives it, others may
	previewsAtATime = 4 // of operations, runs and seeks
	dryRunsAtATime  = 2 // dry runs copy rows
	documentReaders = 8 // reading a whole document; sending it happens outside the slot
	roomWait        = 2 * time.Second
)

// limiter bounds concurrency. It is safe for concurrent use.
type limiter struct {
	places chan struct{}
	others string // what the others are doing, as in "others are … just now"
}

func newLimiter(places int, others string) limiter {
	return limiter{places: make(chan struct{}, places), others: others}
}

// acquire waits for a slot; call leave once to release it. No slot within wait is outbox.ErrBusy.
func (m limiter) acquire(ctx context.Context, wait time.Duration) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case m.places <- struct{}{}:
		return func() { <-m.places }, nil
	case <-ctx.Done():
		return nil, &outbox.Refusal{Err: outbox.ErrBusy, Detail: "too many others are " + m.others + "; try again in a moment"}
	}
}

// withSlot calls f while holding a slot.
func withSlot[T any](ctx context.Context, m limiter, f func() (T, error)) (result T, err error) {
	leave, err := m.acquire(ctx, roomWait)
	if err != nil {
		return result, err
	}
	defer leave()
	return f()
}

func (s *server) previewOperation(ctx context.Context, selection outbox.Selection, rehearsal int64) (outbox.OperationPreview, error) {
	return withSlot(ctx, s.previewing, func() (outbox.OperationPreview, error) {
		return s.Operations.Preview(ctx, selection, rehearsal)
	})
}

func (s *server) previewRun(ctx context.Context, order outbox.RunRequest) (outbox.RunPreview, error) {
	return withSlot(ctx, s.previewing, func() (outbox.RunPreview, error) { return s.Runs.Preview(ctx, order, s.Projections) })
}

func (s *server) previewSeekTo(ctx context.Context, name outbox.SubscriptionName, target outbox.SeekTarget) (outbox.Seek, error) {
	return withSlot(ctx, s.previewing, func() (outbox.Seek, error) { return s.Publishers.PreviewSeek(ctx, name, target) })
}

// maxPaced is how many identities are tracked at a time.
const maxPaced = 10_000

// rateLimiter limits the rate of actions per identity. It is safe for concurrent use. The zero
// value has no limit.
type rateLimiter struct {
	limit rate.Limit // actions per second
	burst int

	mu    sync.Mutex
	known map[paced]*rate.Limiter
}

// paced is the state of one identity.
type paced struct {
	auth outbox.Auth
	name string
}

// newRateLimiter returns a limiter of so many actions per second, with bursts of twice as many.
func newRateLimiter(perSecond float64) *rateLimiter {
	return &rateLimiter{limit: rate.Limit(perSecond), burst: max(1, int(2*perSecond)), known: map[paced]*rate.Limiter{}}
}

// allow counts an action of an identity. If it is over the limit, wait is the time to wait.
func (p *rateLimiter) allow(who outbox.Identity, now time.Time) (wait time.Duration) {
	if p.limit == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := paced{who.Auth, who.Name}
	l := p.known[key]
	if l == nil {
		p.evict(now)
		l = rate.NewLimiter(p.limit, p.burst)
		p.known[key] = l
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - l.TokensAt(now)) / float64(p.limit) * float64(time.Second))
}

// evict drops identities once there are many: those whose burst has recovered but for one action,
// or else the one closest to that.
func (p *rateLimiter) evict(now time.Time) {
	if len(p.known) < maxPaced {
		return
	}
	var calmest paced
	most := math.Inf(-1)
	for who, l := range p.known {
		tokens := l.TokensAt(now)
		if tokens >= float64(max(1, p.burst-1)) {
			delete(p.known, who)
		}
		if tokens > most {
			calmest, most = who, tokens
		}
	}
	delete(p.known, calmest)
}

// checkRate refuses an action of an identity that is over its rate.
func (s *server) checkRate(r *http.Request, t route) error {
	if !t.action.Audited() {
		return nil
	}
	wait := s.acting.allow(me(r), s.Now())
	if wait == 0 {
		return nil
	}
	seconds := int(math.Ceil(wait.Seconds()))
	return &outbox.Refusal{Err: errRate, RetryAfter: wait, Detail: fmt.Sprintf(
		"too many actions by %s: this server accepts %g per second per identity; nothing was done, try again in %d s", me(r).Name, s.ActRate, seconds)}
}

// limits are the limits that /about shows.
func (s *server) limits() []templates.Limit {
	acts := "no limit"
	if s.ActRate > 0 {
		acts = fmt.Sprintf("%g per second, bursts of %d", s.ActRate, s.acting.burst)
	}
	return []templates.Limit{
		{Name: "URL of a request", Value: outbox.Bytes(maxAddress)},
		{Name: "Headers of a request", Value: fmt.Sprintf("%s, %d names", outbox.Bytes(maxHeader), maxHeaders)},
		{Name: "Body of an append", Value: outbox.Bytes(maxAppendBody)},
		{Name: "Events of an append", Value: fmt.Sprintf("%s, with %s tags in total", outbox.Number(int64(s.MaxAppendEvents)), outbox.Number(int64(tagsPerEvent*s.MaxAppendEvents)))},
		{Name: "Appends over " + outbox.Bytes(smallBody), Value: fmt.Sprintf("%s in memory at a time; up to %d more wait up to %s; each must send %s every %s", outbox.Bytes(bodyRoom), bodiesWaiting, outbox.Limit(roomWait), outbox.Bytes(bodyStep), outbox.Limit(bodyPace))},
		{Name: "Body with a selection of rows or campaigns", Value: outbox.Bytes(maxSelectionBody)},
		{Name: "Body with changed projection files", Value: outbox.Bytes(maxRehearsalBody)},
		{Name: "Body of another action", Value: outbox.Bytes(maxActBody)},
		{Name: "Time to send the headers", Value: outbox.Limit(defaultPatience.Header)},
		{Name: "Time to send a request", Value: outbox.Limit(defaultPatience.Read)},
		{Name: "Time to process a request", Value: outbox.Limit(requestTime)},
		{Name: "Time to receive a response", Value: fmt.Sprintf("%s; exports %s per page", outbox.Limit(defaultPatience.Write), outbox.Limit(exportPatience))},
		{Name: "Idle time of a connection", Value: outbox.Limit(defaultPatience.Idle)},
		{Name: "Actions per identity", Value: acts},
		{Name: "Concurrent requests", Value: fmt.Sprintf("%d exports, %d previews, %d dry runs, %d documents; more wait up to %s", exportsAtATime, previewsAtATime, dryRunsAtATime, documentReaders, outbox.Limit(roomWait))},
		{Name: "Items on a page of a list", Value: fmt.Sprintf("%d by default, at most %d", outbox.DefaultPage, outbox.MaxPage)},
		{Name: "Rows requeued at once", Value: fmt.Sprintf("%d by default, at most %s", outbox.DefaultRequeue, outbox.Number(outbox.MaxRequeue))},
		{Name: "Waiting for projections", Value: fmt.Sprintf("%s by default, at most %s; %s requests at a time, %s per identity", outbox.Limit(defaultWait), outbox.Limit(longestWait), outbox.Number(waitsAtATime), outbox.Number(waitsOfOne))},
	}
}
