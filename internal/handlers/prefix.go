package handlers

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// prefixHeader names the path prefix that a proxy has stripped.
const prefixHeader = "X-Forwarded-Prefix"

// prefixOf returns the prefix that a trusted proxy has stripped from a request's address: empty, or
// such as "/ops". The header is ignored from others.
func (s *server) prefixOf(r *http.Request) (string, error) {
	told := r.Header.Values(prefixHeader)
	if len(told) == 0 || !s.Trusts(r) {
		return "", nil
	}
	if len(told) > 1 {
		return "", &event.Refusal{Err: errPrefix, Detail: "the header " + prefixHeader + " appears more than once; let the proxy replace it instead of adding to it"}
	}
	if err := hosts.CheckPath(told[0]); err != nil {
		return "", &event.Refusal{Err: errPrefix, Detail: "the header " + prefixHeader + " is " + hosts.Quoted(told[0]) + ", which " + err.Error() + "; let the proxy send the path it strips, such as /ops"}
	}
	return strings.TrimSuffix(told[0], "/"), nil
}

// resolvePrefix makes links that work for a request's reader: below the stripped prefix and the
// base path.
func (s *server) resolvePrefix(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prefix, err := s.prefixOf(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if prefix != "" {
			r = r.WithContext(context.WithValue(r.Context(), linksKey{}, ui.NewLinks(prefix+s.links.Base())))
		}
		next.ServeHTTP(w, r)
	})
}

// unstripped completes the sentence about an unknown address if the proxy did not strip the prefix
// that it announces.
func (s *server) unstripped(r *http.Request) string {
	prefix, err := s.prefixOf(r)
	if err != nil || prefix == "" || !strings.HasPrefix(r.URL.EscapedPath(), prefix+"/") {
		return ""
	}
	return "; the proxy's " + prefixHeader + " says that it strips " + prefix + ", but the address still begins with it: let the proxy strip it, or start outboxweb with --base-path " +
		prefix + " and send no " + prefixHeader
}

// mounted serves the requests of a host program's router, which may have stripped the base path, and
// which may be chi: its patterns and parameters would mix with those of this one.
func (s *server) mounted() http.Handler {
	base := s.links.Base()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, nil))
		if path := r.URL.EscapedPath(); path != base && !strings.HasPrefix(path, base+"/") {
			u := *r.URL
			u.Path, u.RawPath = base+u.Path, base+path
			r.URL = &u
		}
		s.router.ServeHTTP(w, r)
	})
}

// stripBase routes by the escaped path below the base path, so that a parameter is exactly what the
// client escaped. Probes and metrics also answer without the base path.
func (s *server) stripBase(next http.Handler) http.Handler {
	base := s.links.Base()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		rest, below := strings.CutPrefix(path, base)
		switch {
		case base != "" && path == base:
			http.Redirect(w, r, string(s.linksOf(r).Overview()), http.StatusMovedPermanently)
			return
		case below && strings.HasPrefix(rest, "/"):
			path = rest
		case s.systemPath(r) == "":
			s.fail(w, r, event.NotFound("there is nothing at this URL; the pages are under %s", s.linksOf(r).Overview()))
			return
		}
		chi.RouteContext(r.Context()).RoutePath = path
		next.ServeHTTP(w, r)
	})
}
