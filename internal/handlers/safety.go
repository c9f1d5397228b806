package handlers

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
)

// Limits on what requests contain, in bytes.
const (
	maxActBody        = 64 << 10
	maxSelectionBody  = 4 << 20                             // 10,000 selected rows
	maxRehearsalBody  = 2*replay.MaxRehearsalFiles + 64<<10 // the files, with what JSON escapes
	maxAppendBody     = 16 << 20
	maxIdempotencyKey = 200
	maxProxyRequestID = 128
)

// requestTime bounds the work on one request; it exceeds the longest wait.
const requestTime = longestWait + 10*time.Second

const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors "

// requestID returns the id shared by the answer, the log and the audit record.
func requestID(r *http.Request) string { return operator.RequestID(r.Context()) }

// identify gives a request its id, and counts and logs it once it is answered.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.NewString()
		w.Header().Set("X-Request-Id", id)
		a := &access{}
		ctx := context.WithValue(operator.WithRequestID(r.Context(), id, s.proxyRequestID(r)), accessKey{}, a)
		r = r.WithContext(database.WithCost(ctx, &s.cost.Cost))
		started := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			code := ww.Status()
			if code == 0 {
				code = http.StatusOK
			}
			a.route = chi.RouteContext(r.Context()).RoutePattern()
			if a.route == "" || code == http.StatusMisdirectedRequest {
				a.route = "none"
			}
			took := time.Since(started)
			s.Metrics.Request(a.route, r.Method, code, took)
			s.cost.requests.Add(1)
			s.cost.nanos.Add(int64(took))
			s.logRequest(r, a, code, ww.BytesWritten(), took)
		}()
		next.ServeHTTP(ww, r)
	})
}

// proxyRequestID returns the id that a trusted proxy gave a request; empty if there is none, or if it
// is too long or not printable ASCII.
func (s *server) proxyRequestID(r *http.Request) string {
	given := r.Header.Values("X-Request-Id")
	if len(given) != 1 || len(given[0]) > maxProxyRequestID || !s.Trusts(r) ||
		strings.ContainsFunc(given[0], func(c rune) bool { return c < ' ' || c > '~' }) {
		return ""
	}
	return given[0]
}

// recoverPanic turns a panic into an internal error. http.ErrAbortHandler is passed on: handlers
// use it to drop their connection. An answer that had begun is dropped too, so that a partial
// answer is not mistaken for the whole.
func (s *server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				panic(cause)
			default:
				err := fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
				if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
					s.Logger.Error("answer cut off", "method", r.Method, "path", r.URL.Path, operator.RequestIDs(r.Context()), "err", err)
					panic(http.ErrAbortHandler)
				}
				for _, name := range []string{"Content-Disposition", "Content-Length", "ETag", "Location"} {
					w.Header().Del(name) // headers of the abandoned answer
				}
				s.fail(w, r, err)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// setHeaders sets the headers of every answer. Browsers and proxies must not store data; embedded
// files override that.
func (s *server) setHeaders(next http.Handler) http.Handler {
	framed := cmp.Or(strings.Join(s.FrameAncestors, " "), "'none'")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Outboxweb", "1") // the page's script takes an answer without it for a proxy's
		if s.HSTS {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		h.Set("Content-Security-Policy", contentSecurityPolicy+framed)
		if len(s.FrameAncestors) == 0 {
			h.Set("X-Frame-Options", "DENY") // for browsers without frame-ancestors; it cannot name an origin
		}
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// form admits only forms sent by our own pages: current browsers name the page in Origin or
// Sec-Fetch-Site.
func (s *server) form(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
			return &event.Refusal{Err: errOrigin, Detail: "the request has neither an Origin nor a Sec-Fetch-Site header, so its origin cannot be checked. Scripts should use the JSON API under " + string(s.linksOf(r).API().Base())}
		}
		uploads := takesFiles(r) && hasMediaType(r, "multipart/form-data")
		if !uploads && !hasMediaType(r, "application/x-www-form-urlencoded") {
			return &event.Refusal{Err: errMediaType, Detail: "send forms as application/x-www-form-urlencoded"}
		}
		if err := cmp.Or(checkEncoding(r), s.refuseReadOnly()); err != nil {
			return err
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(r))
		parse := r.ParseForm
		if uploads {
			parse = func() error { return r.ParseMultipartForm(bodyLimit(r)) } // in memory
		}
		if err := parse(); err != nil {
			return bodyError(err)
		}
		if err := checkKey(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

// jsonBody admits only JSON, which another site's page cannot send without a CORS preflight.
func (s *server) jsonBody(h handler) handler {
	return s.jsonInput(func(w http.ResponseWriter, r *http.Request) error {
		if err := s.refuseReadOnly(); err != nil {
			return err
		}
		return h(w, r)
	})
}

// jsonInput is jsonBody for requests that change nothing.
func (s *server) jsonInput(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !hasMediaType(r, "application/json") {
			return &event.Refusal{Err: errMediaType, Detail: "send JSON, with the header Content-Type: application/json"}
		}
		if err := cmp.Or(checkEncoding(r), checkKey(r)); err != nil {
			return err
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(r))
		return h(w, r)
	}
}

// checkEncoding refuses compressed bodies: a small one could be large.
func checkEncoding(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &event.Refusal{Err: errMediaType, Detail: fmt.Sprintf("a body with Content-Encoding: %s is not read; send it uncompressed, in parts if it is large", encoding)}
	}
	return nil
}

// bodyLimit returns the maximum size of a request's body, in bytes.
func bodyLimit(r *http.Request) int64 {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/events"):
		return maxAppendBody
	case strings.HasSuffix(path, "/operations"), strings.HasSuffix(path, "/operations/preview"), strings.HasSuffix(path, "/runs"):
		return maxSelectionBody
	case takesFiles(r):
		return maxRehearsalBody
	}
	return maxActBody
}

// takesFiles reports whether the address takes projection files.
func takesFiles(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/rehearsals") }

// idempotencyKey returns the header of that name or, in a page's form, the field.
func idempotencyKey(r *http.Request) string {
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return key
	}
	return r.PostForm.Get("idempotency_key")
}

// checkKey validates the key that an action stores with its record.
func checkKey(r *http.Request) error {
	key := idempotencyKey(r)
	switch {
	case len(key) > maxIdempotencyKey:
		return event.Invalid("Idempotency-Key", "the Idempotency-Key is %d bytes long; the limit is %d", len(key), maxIdempotencyKey)
	case !request.IsText(key):
		return event.Invalid("Idempotency-Key", "the Idempotency-Key is not valid UTF-8, or contains a NUL character")
	}
	return nil
}

func hasMediaType(r *http.Request, want string) bool {
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && got == want
}

func (s *server) refuseReadOnly() error {
	if s.ReadOnly {
		return &event.Refusal{Err: event.ErrReadOnly, Detail: "this server is read-only and refuses every change"}
	}
	return nil
}
