package handlers

import (
	"context"
	"net/http"
	"slices"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// route is an address with the least role that may use it.
type route struct {
	method, pattern string
	role            operator.Role   // RoleNone: everyone
	action          operator.Action // what a POST does; empty when it changes nothing
	takes           queryParameters // what its query may hold
	api             endpoint        // of a route of the API
}

func (r route) key() string { return r.method + " " + r.pattern }

// add registers a route with the router and the table of roles. There is no other way to the
// router: an address missing from the table is open to no one.
func (s *server) add(t route, h http.Handler) {
	s.routes[t.key()] = t
	s.router.Method(t.method, t.pattern, s.admit(t, h))
}

// open adds what everyone may read: probes, and the files that an error page needs.
func (s *server) open(pattern string, h http.Handler) {
	s.add(route{method: http.MethodGet, pattern: pattern}, h)
}

// view adds a page or file for a role. Its query may also name the action that led to it.
func (s *server) view(role operator.Role, pattern string, h http.Handler, takes queryParameters) {
	s.add(route{method: http.MethodGet, pattern: pattern, role: role, takes: slices.Concat(takes, queryOf(auditEntryQuery{}))}, h)
}

// get adds an address that every viewer may read, with a time limit; its query is as queryOf takes it.
func (s *server) get(pattern string, h handler, query ...any) {
	s.view(operator.RoleViewer, pattern, s.handle(h), queryOf(query...))
}

func (s *server) formAction(action operator.Action, h handler) {
	s.formActionAt(action, action.Info().Path, h)
}

// formActionAt is formAction at an address other than the API's.
func (s *server) formActionAt(action operator.Action, pattern string, h handler) {
	s.add(route{method: http.MethodPost, pattern: pattern, role: action.Role(), action: action}, s.handle(s.form(h)))
}

// apiAdd adds a route of the API; its pattern is below apiPrefix.
func (s *server) apiAdd(t route, h http.Handler, e endpoint) {
	t.pattern, t.takes, t.api = apiPrefix+t.pattern, e.query, e.of(t.action)
	s.add(t, h)
}

func (s *server) apiView(role operator.Role, pattern string, h http.Handler, e endpoint) {
	s.apiAdd(route{method: http.MethodGet, pattern: pattern, role: role}, h, e)
}

// apiGet adds an address of the API that every viewer may read.
func (s *server) apiGet(pattern string, h handler, e endpoint) {
	s.apiView(operator.RoleViewer, pattern, s.handle(h), e)
}

func (s *server) apiAction(action operator.Action, h handler, e endpoint) {
	s.apiAdd(route{method: http.MethodPost, pattern: action.Info().Path, role: action.Role(), action: action}, s.handle(s.jsonBody(h)), e)
}

// reply answers with the result of one call, made with what ask parses.
func reply[Q, R any](s *server, ask func(*http.Request) (Q, error), read func(context.Context, Q) (R, error)) handler {
	return serveJSON(s, func(r *http.Request) (result R, err error) {
		asked, err := ask(r)
		if err != nil {
			return result, err
		}
		return read(r.Context(), asked)
	})
}

// replyAbout is reply for a call about what the address names; ask parses the rest.
func replyAbout[K, Q, R any](s *server, about func(*http.Request) (K, error), ask func(*http.Request) (Q, error), read func(context.Context, K, Q) (R, error)) handler {
	return serveJSON(s, func(r *http.Request) (result R, err error) {
		on, err := about(r)
		if err != nil {
			return result, err
		}
		asked, err := ask(r)
		if err != nil {
			return result, err
		}
		return read(r.Context(), on, asked)
	})
}

// serveJSON answers with the value read for a request.
func serveJSON[R any](s *server, read func(*http.Request) (R, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		result, err := read(r)
		if err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, result)
	}
}

// serveJSONList answers with a whole list.
func serveJSONList[T any](s *server, read func(context.Context) ([]T, error)) handler {
	return serveJSON(s, func(r *http.Request) (items[T], error) {
		all, err := read(r.Context())
		return listOf(all), err
	})
}

// ofRow adapts a read of a row or an event to one by its key.
func ofRow[R any](read func(ctx context.Context, campaign string, seq int64) (R, error)) func(context.Context, event.RowKey) (R, error) {
	return func(ctx context.Context, row event.RowKey) (R, error) { return read(ctx, row.CampaignID, row.Seq) }
}

type identityKey struct{}

// me returns the identity that makes the request.
func me(r *http.Request) operator.Identity {
	who, _ := r.Context().Value(identityKey{}).(operator.Identity)
	return who
}

// admit admits requests whose identity has the route's role, and changes only if not requested by
// another site's page.
func (s *server) admit(t route, h http.Handler) http.Handler {
	if t.role == operator.RoleNone {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.Auth.Identify(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		accessOf(r).who = who
		r = r.WithContext(attempting(context.WithValue(r.Context(), identityKey{}, who), t.action))
		err = needs(r, t.role)
		if err == nil && t.method == http.MethodPost {
			err = s.fromHere(r)
		}
		if err == nil {
			err = t.checkQuery(r)
		}
		if err == nil {
			err = s.checkRate(r, t)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// needs refuses a request unless its identity's role includes least.
func needs(r *http.Request, least operator.Role) error {
	who := me(r)
	if who.Role.Includes(least) {
		return nil
	}
	return &event.Refusal{Err: auth.ErrNoRole, Detail: who.Lacks(least)}
}

type linksKey struct{}

// linksOf returns links that work for the reader: below the base path, and below the prefix under
// which a trusted proxy serves it. They carry on the range of charts that it asks for.
func (s *server) linksOf(r *http.Request) ui.Links {
	links, told := r.Context().Value(linksKey{}).(ui.Links)
	if !told {
		links = s.links
	}
	if r.Method == http.MethodGet && r.URL.RawQuery != "" {
		if over, err := s.readRange(r); err == nil { // the page itself refuses what is wrong
			links = links.Within(over)
		}
	}
	return links
}
