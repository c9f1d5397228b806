package handlers

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
)

// routed is a request and its entry in the table of routes.
type routed struct {
	sent
	entry route
}

// everyRoute is one request for each entry of the table.
func everyRoute(t *testing.T, s *site) []routed {
	t.Helper()
	var all []routed
	for _, r := range everyRequest(t, s) {
		all = append(all, routed{r, s.entry(t, r.method, r.target)})
	}
	if len(all) < 100 || len(all) != len(s.srv.routes) {
		t.Fatalf("%d requests for %d entries of the table", len(all), len(s.srv.routes))
	}
	return all
}

// least is the role required for the request: at addresses that also preview, the requests of these
// tests act.
func (r routed) least() outbox.Role {
	if r.entry.action != "" {
		return r.entry.action.Role()
	}
	return r.entry.role
}

func (s *site) ask(r sent, as func(*http.Request)) answer {
	s.t.Helper()
	return s.do(r.method, r.target, r.body, func(req *http.Request) {
		if r.method == http.MethodPost {
			req.Header.Set("Content-Type", r.kind)
			req.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		as(req)
	})
}

func TestRoutes_theTableNamesARoleForEach(t *testing.T) {
	s := ownSite(t)
	open := map[string]bool{"GET /healthz": true, "GET /readyz": true, "GET /static/*": true}
	for _, r := range everyRoute(t, s) {
		switch {
		case open[r.entry.key()] != (r.entry.role == outbox.RoleNone):
			t.Errorf("%s is for %q", r.entry.key(), r.entry.role)
		case r.method == http.MethodGet && r.entry.action != "":
			t.Errorf("%s acts on GET", r.entry.key())
		case r.method == http.MethodPost && r.entry.action == "" && r.entry.key() != "POST "+apiPrefix+"/operations/preview" && !strings.HasPrefix(r.entry.key(), "POST /views"):
			t.Errorf("%s does nothing that the table knows", r.entry.key())
		case r.entry.action != "" && !r.entry.action.Known():
			t.Errorf("%s does %q, which nobody knows", r.entry.key(), r.entry.action)
		}
	}
}

func TestActions_areAskedForWhereTheirTableSays(t *testing.T) {
	t.Parallel()
	routes := newSite(t).srv.routes
	for _, action := range append(outbox.AuditedActions(), outbox.ActionAppend) {
		path := action.Info().Path
		if r := routes[http.MethodPost+" "+apiPrefix+path]; path != "" && r.action != action {
			t.Errorf("POST %s does %q, want %q", r.pattern, r.action, action)
		}
		if r, onPages := routes[http.MethodPost+" "+path]; onPages && r.action != action {
			t.Errorf("POST %s does %q, want %q", r.pattern, r.action, action)
		}
	}
}

// TestRoutes_letInWhomTheTableNames requests every address with every role, by a proxy or by a token, and with
// some of those who have none; a soak requests it with every identity.
func TestRoutes_letInWhomTheTableNames(t *testing.T) {
	g := newGuarded(t).fill()
	every := everyRoute(t, g.site)
	before := g.dump("audit_log", "tokens")
	for i, who := range slices.Concat(g.strangers(), g.refused(), g.known()) {
		step := size.Of(2, 2, 1)
		if who.role == outbox.RoleNone {
			step = size.Of(8, 5, 1)
		}
		for j := i % step; j < len(every); j += step {
			r := every[j]
			if allowed := who.role.Includes(r.least()); allowed && r.method != http.MethodGet && r.least() != outbox.RoleNone {
				continue // it changes something: below
			}
			g.wantAdmission(who, r)
		}
	}
	g.wantSame("a request that is refused, or reads,", before, g.dump("audit_log", "tokens"))
	for _, who := range g.known() {
		for _, r := range every {
			if r.method == http.MethodPost && who.role.Includes(r.least()) {
				g.wantAdmission(who, r)
			}
		}
	}
}

// wantAdmission fails the test unless the table's role decides the answer.
func (g *guarded) wantAdmission(who asker, r routed) {
	g.t.Helper()
	a := g.ask(r.sent, who.as)
	says := func(texts ...string) {
		g.t.Helper()
		for _, text := range texts {
			if !strings.Contains(a.body, text) {
				g.t.Errorf("%s asks for %s and is not told %q: %.700s", who.name, r, text, a.body)
			}
		}
	}
	switch {
	case r.entry.role == outbox.RoleNone:
		if a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden {
			g.t.Errorf("%s asks for %s, which is open, and is answered with %d", who.name, r, a.StatusCode)
		}
	case who.told != "":
		if a.StatusCode != http.StatusForbidden || a.Header.Get("WWW-Authenticate") != "" {
			g.t.Errorf("%s asks for %s and is answered with %d %v", who.name, r, a.StatusCode, a.Header)
		}
		says(who.told[1:], "; ask the platform team, #ops", a.Header.Get("X-Request-Id"))
		if !strings.HasPrefix(r.target, apiPrefix) && r.target != "/metrics" {
			says("Not allowed")
			a.lacks(g.t, "<nav", string(g.srv.Mode), "outboxweb test", "10.0.0.0")
		}
	case who.role == outbox.RoleNone:
		if a.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
			g.t.Errorf("%s asks for %s and is answered with %d %v", who.name, r, a.StatusCode, a.Header)
		}
		switch {
		case strings.HasPrefix(r.target, apiPrefix):
			says("urn:outboxweb:unidentified", a.Header.Get("X-Request-Id"))
		case r.target == "/metrics":
			says("401 Unauthorized: ", "(request "+a.Header.Get("X-Request-Id")+")")
		default:
			says(a.Header.Get("X-Request-Id"), "Sign-in required")
			a.lacks(g.t, "<nav", string(g.srv.Mode), "outboxweb test", "zoe", "10.0.0.0")
		}
	case !who.role.Includes(r.least()):
		if a.StatusCode != http.StatusForbidden {
			g.t.Errorf("%s asks for %s and is answered with %d", who.name, r, a.StatusCode)
		}
		says("his needs the role "+string(r.least()), "you are ")
		if strings.HasPrefix(r.target, apiPrefix) {
			says("urn:outboxweb:role")
		}
	case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden || a.StatusCode >= 500:
		g.t.Errorf("%s asks for %s and is answered with %d %.300s", who.name, r, a.StatusCode, a.body)
	}
}

func TestRoutes_whatThereIsNotIsForThoseWhoMayLook(t *testing.T) {
	g := newGuarded(t)
	for _, target := range []string{"/nowhere", "/api/v1/nowhere", "/rows/c-1/2/requeue/x"} {
		g.get(target).want(t, 401)
		g.get(target, people[outbox.RoleViewer]).want(t, 404)
	}
	g.do("PUT", "/rows", "").want(t, 401)
	g.do("PUT", "/rows", "", people[outbox.RoleViewer]).want(t, 405)
	g.do("HEAD", "/rows", "").want(t, 401)
	g.do("HEAD", "/rows", "", people[outbox.RoleViewer]).want(t, 200)
	g.get("/rows", byProxy("eve", "sales")).want(t, 403, "You are signed in as", "eve", "in the groups", "and have no role here", "Try again").lacks(t, "<nav", "outbox_apply_only", "applied by workers")
}

func TestSeek_isAskedAboutByViewersAndDoneByAdmins(t *testing.T) {
	g := newGuarded(t).fill()
	for _, who := range g.known() {
		g.post(archivePath+"/seek", `{"to":"head","dry_run":true}`, who.as).want(t, 200, `"skips":`)
		if who.role != outbox.RoleAdmin {
			g.post(archivePath+"/seek", `{"to":"head","reason":"x"}`, who.as).want(t, 403, "urn:outboxweb:role")
		}
	}
}

func TestReadOnly_refusesEveryAct(t *testing.T) {
	g := newGuarded(t)
	g.fill()
	g.srv.ReadOnly = true
	before := g.dump("tokens")
	for _, r := range everyRoute(t, g.site) {
		if r.entry.action == "" {
			continue
		}
		a := g.ask(r.sent, people[outbox.RoleAdmin])
		must.Hold(t, a.StatusCode == http.StatusForbidden && strings.Contains(a.body, "read-only"), "%s is answered with %d %.300s", r, a.StatusCode, a.body)
	}
	g.post(archivePath+"/seek", `{"to":"head","dry_run":true}`, people[outbox.RoleAdmin]).want(t, 200, `"skips":`)
	g.wantSame("a read-only server", before, g.dump("tokens"))
}

// origins and the others are header values that a browser, or a client pretending to be one, may
// send with an action; empty means absent.
var (
	sites   = []string{"", "same-origin", "same-site", "cross-site", "none", "junk"}
	origins = []string{"", "http://127.0.0.1:8080", publicOrigin, "https://evil.example", "null", "::junk"}
	right   = map[bool]string{true: "application/json", false: "application/x-www-form-urlencoded"}
	wrong   = map[bool]string{false: "application/json", true: "application/x-www-form-urlencoded"}
)

// fromHere is whether an action with these headers can have come from a page of ours or from a
// script, which sends neither header; other sites' pages send both.
func fromHere(form bool, site, origin string) bool {
	if origin == publicOrigin { // it is configured as trusted, as the proxy may rewrite Host
		return true
	}
	switch site {
	case "same-origin", "none": // only browsers set it, and these values are ours
		return true
	case "":
		return origin == "http://127.0.0.1:8080" || origin == "" && !form
	}
	return false
}

// TestActions_areTakenFromOwnPagesAndScriptsAlone sends every form and action with every combination of
// headers about its origin, or with some of them for each: the database sees none of them.
func TestActions_areTakenFromOwnPagesAndScriptsAlone(t *testing.T) {
	g := newGuarded(t).fill()
	var taken []func()
	tried := 0
	before := g.dump("audit_log")
	for _, r := range everyRoute(t, g.site) {
		if r.method != http.MethodPost {
			continue
		}
		form := !strings.HasPrefix(r.target, apiPrefix)
		for _, kind := range []string{right[!form], right[!form] + "; charset=utf-8", wrong[!form], "text/plain", ""} {
			for _, site := range sites {
				for _, origin := range origins {
					if tried++; tried%size.Of(29, 7, 1) != 0 {
						continue // each combination is tried on some of the routes
					}
					want := "taken"
					if !fromHere(form, site, origin) {
						want = "403 urn:outboxweb:origin"
					} else if !strings.HasPrefix(kind, right[!form]) {
						want = "415 urn:outboxweb:media-type"
					}
					send := func() { g.wantOrigin(r, kind, site, origin, want) }
					if want == "taken" {
						taken = append(taken, send)
					} else {
						send()
					}
				}
			}
		}
	}
	g.wantSame("a refused form or action", before, g.dump("audit_log"))
	for _, send := range taken {
		send()
	}
}

func (g *guarded) wantOrigin(r routed, kind, site, origin, want string) {
	g.t.Helper()
	req := r.sent
	req.kind = kind
	a := g.do(req.method, req.target, req.body, people[outbox.RoleAdmin], func(r *http.Request) {
		for name, value := range map[string]string{"Content-Type": kind, "Sec-Fetch-Site": site, "Origin": origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
	})
	got := "taken"
	switch a.StatusCode {
	case http.StatusForbidden:
		got = "403 urn:outboxweb:origin"
	case http.StatusUnsupportedMediaType:
		got = "415 urn:outboxweb:media-type"
	case http.StatusUnauthorized:
		got = "401"
	}
	if strings.HasPrefix(r.target, apiPrefix) && got != "taken" && !strings.Contains(a.body, strings.TrimLeft(got, "0123456789 ")) || got != want {
		g.t.Errorf("%s as %q with Sec-Fetch-Site %q and Origin %q is %s, want %s: %.300s", r, kind, site, origin, got, want, a.body)
	}
	if want == "403 urn:outboxweb:origin" && !strings.Contains(a.body, "Origin") && !strings.Contains(a.body, "Sec-Fetch-Site") {
		g.t.Errorf("%s with Sec-Fetch-Site %q and Origin %q: the refusal names neither header: %s", r, site, origin, a.body)
	}
}

func (s *site) entry(t testing.TB, method, target string) route {
	t.Helper()
	path, _, _ := strings.Cut(target, "?")
	path, _, _ = strings.Cut(path, "#")
	found := chi.NewRouteContext()
	must.Hold(t, s.srv.router.Match(found, method, path), "%s %s leads nowhere", method, target)
	return s.srv.routes[method+" "+found.RoutePattern()]
}
