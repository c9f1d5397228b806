package handlers

import (
	"context"
	"net/http"

	"outboxweb/internal/auth"
	"outboxweb/internal/outbox"
	"outboxweb/web/templates"
)

// route is an address that the server answers, with the least role that may
// ask there.
type route struct {
	method, pattern string
	role            outbox.Role   // RoleNone: whoever asks
	action          outbox.Action // what a POST does; empty when it changes nothing
	api             endpoint      // of a route of the API
}

func (r route) key() string { return r.method + " " + r.pattern }

// add makes a route known to the router and to the table of roles. There is no
// other way to the router: what is not in the table is open to nobody.
func (s *server) add(t route, h http.Handler) {
	s.routes[t.key()] = t
	s.router.Method(t.method, t.pattern, s.admit(t, h))
}

// open adds what everybody may read: probes, and the files that an error page
// needs.
func (s *server) open(pattern string, h http.Handler) {
	s.add(route{method: http.MethodGet, pattern: pattern}, h)
}

// view adds what a role may read.
func (s *server) view(role outbox.Role, pattern string, h http.Handler) {
	s.add(route{method: http.MethodGet, pattern: pattern, role: role}, h)
}

// get adds what every viewer may read, with the time it takes bounded.
func (s *server) get(pattern string, h handler) { s.view(outbox.RoleViewer, pattern, s.handle(h)) }

// formAction adds an action that a page's form asks for.
func (s *server) formAction(action outbox.Action, h handler) {
	s.formActionAt(action, action.Info().Path, h)
}

// formActionAt is formAction at another address than that of the API.
func (s *server) formActionAt(action outbox.Action, pattern string, h handler) {
	s.add(route{method: http.MethodPost, pattern: pattern, role: action.Role(), action: action}, s.handle(s.form(h)))
}

// apiAdd adds a route of the API, whose pattern is below apiPrefix.
func (s *server) apiAdd(t route, h http.Handler, e endpoint) {
	t.pattern, t.api = apiPrefix+t.pattern, e
	s.add(t, h)
}

// apiView adds what a role may read of the API.
func (s *server) apiView(role outbox.Role, pattern string, h http.Handler, e endpoint) {
	s.apiAdd(route{method: http.MethodGet, pattern: pattern, role: role}, h, e)
}

// apiGet adds what every viewer may read of the API.
func (s *server) apiGet(pattern string, h handler, e endpoint) {
	s.apiView(outbox.RoleViewer, pattern, s.handle(h), e)
}

// apiAction adds an action of the API.
func (s *server) apiAction(action outbox.Action, h handler, e endpoint) {
	s.apiAdd(route{method: http.MethodPost, pattern: action.Info().Path, role: action.Role(), action: action}, s.handle(s.jsonBody(h)), e)
}

// apiQuestion adds a question to the API that is too long for an address.
func (s *server) apiQuestion(role outbox.Role, pattern string, h handler, e endpoint) {
	s.apiAdd(route{method: http.MethodPost, pattern: pattern, role: role}, s.handle(s.jsonInput(h)), e)
}

// reply makes one call with what an address asks for, and answers with what that
// returns.
func reply[Q, R any](s *server, ask func(*http.Request) (Q, error), read func(context.Context, Q) (R, error)) handler {
	return serveJSON(s, func(r *http.Request) (result R, err error) {
		asked, err := ask(r)
		if err != nil {
			return result, err
		}
		return read(r.Context(), asked)
	})
}

// serveJSON answers with what is read for a request.
func serveJSON[R any](s *server, read func(*http.Request) (R, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		result, err := read(r)
		if err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, result)
	}
}

// serveJSONList answers with the whole of a list.
func serveJSONList[T any](s *server, read func(context.Context) ([]T, error)) handler {
	return serveJSON(s, func(r *http.Request) (items[T], error) {
		all, err := read(r.Context())
		return listOf(all), err
	})
}

// ofRow is what the store reads of a row or an event, by its key.
func ofRow[R any](read func(ctx context.Context, campaign string, seq int64) (R, error)) func(context.Context, outbox.RowKey) (R, error) {
	return func(ctx context.Context, row outbox.RowKey) (R, error) { return read(ctx, row.CampaignID, row.Seq) }
}

type identityKey struct{}

// me is who makes the request.
func me(r *http.Request) outbox.Identity {
	who, _ := r.Context().Value(identityKey{}).(outbox.Identity)
	return who
}

// admit lets those through whom the route's role is granted, and changes only
// that no other site's page asked for.
func (s *server) admit(t route, h http.Handler) http.Handler {
	if t.role == outbox.RoleNone {
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
			err = s.checkRate(w, r, t)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// needs refuses whoever makes the request without a role that includes least.
func needs(r *http.Request, least outbox.Role) error {
	who := me(r)
	if who.Role.Includes(least) {
		return nil
	}
	return &outbox.Refusal{Err: auth.ErrNoRole, Detail: who.Lacks(least)}
}

type linksKey struct{}

// linksOf makes links as the one who asks can follow them: below the base path,
// and below the prefix under which a trusted proxy offers it.
func (s *server) linksOf(r *http.Request) templates.Links {
	if links, told := r.Context().Value(linksKey{}).(templates.Links); told {
		return links
	}
	return s.links
}
