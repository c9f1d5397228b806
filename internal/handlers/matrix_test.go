package handlers

import (
	"html"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/size"
)

// routed is a request and its entry in the table of routes.
type routed struct {
	sent
	entry route
}

// everyRoute is one request for each entry of the table.
func everyRoute(t *testing.T, s *site) (all []routed) {
	for _, r := range everyRequest(t, s) {
		all = append(all, routed{r, s.entry(t, r.method, r.target)})
	}
	must.Need(t, len(all) >= 100 && len(all) == len(s.srv.routes), "%d requests for %d entries of the table", len(all), len(s.srv.routes))
	return all
}

// least is the role required for the request: at addresses that also preview, the requests of these tests act.
func (r routed) least() operator.Role {
	if r.entry.action != "" {
		return r.entry.action.Role()
	}
	return r.entry.role
}

func (s *site) ask(r sent, as func(*http.Request)) answer {
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
		key := r.entry.key()
		must.Equal(t, r.entry.role == operator.RoleNone, open[key], key, "is open")
		must.Hold(t, r.entry.action == "" || r.method == http.MethodPost && r.entry.action.Known(), "%s does %q, which nobody knows, or that on GET", key, r.entry.action)
		must.Hold(t, r.method == http.MethodGet || r.entry.action != "" || key == "POST "+apiPrefix+"/operations/preview" || strings.HasPrefix(key, "POST /views"), "%s does nothing that the table knows", key)
	}
	routes := s.srv.routes
	for _, action := range append(operator.AuditedActions(), operator.ActionAppend) {
		path := action.Info().Path
		page, onPages := routes[http.MethodPost+" "+path]
		must.Hold(t, path == "" || routes[http.MethodPost+" "+apiPrefix+path].action == action && (!onPages || page.action == action), "%s is not asked for at %s", action, path)
	}
}

// TestRoutes_letInWhomTheTableNames requests every address with every role, by a proxy or by a token, and with
// some of those who have none; a soak requests it with every identity. Whoever reads changes nothing.
func TestRoutes_letInWhomTheTableNames(t *testing.T) {
	g := newGuarded(t).fill()
	every := everyRoute(t, g.site)
	ask := func(all []asker, step int, chosen func(asker, routed) bool) {
		for i, who := range all {
			for j := i % step; j < len(every); j += step {
				if chosen(who, every[j]) {
					g.wantAdmission(who, every[j])
				}
			}
		}
	}
	may := func(who asker, r routed) bool { return who.role.Includes(r.least()) }
	before := g.kit.Dump("tokens")
	ask(g.known(), size.Of(2, 2, 1), func(who asker, r routed) bool { return r.method == http.MethodGet && may(who, r) })
	must.Equal(t, g.kit.Dump("tokens"), before, "after requests that read")
	ask(g.strangers(), size.Of(8, 3, 1), func(asker, routed) bool { return true })
	ask(g.known(), size.Of(2, 2, 1), func(who asker, r routed) bool { return !may(who, r) })
	for _, who := range g.known() { // all are told what a seek would do
		g.post(archivePath+"/seek", `{"to":"head","dry_run":true}`, who.as).want(t, 200, `"skips":`)
	}
	must.Equal(t, g.kit.Dump("tokens"), before, "after requests that are refused, or ask")
	ask(g.known(), size.Of(2, 1, 1), func(who asker, r routed) bool { return r.method == http.MethodPost && may(who, r) })
	must.Hold(t, before != g.kit.Dump("tokens"), "a change goes unnoticed, so this test proves nothing")
}

// wantAdmission fails the test unless the table's role decides the answer.
func (g *guarded) wantAdmission(who asker, r routed) {
	a := g.ask(r.sent, who.as)
	api, id, challenge := strings.HasPrefix(r.target, apiPrefix), a.Header.Get("X-Request-Id"), a.Header.Get("WWW-Authenticate")
	is := func(holds bool, texts ...string) {
		for _, text := range texts {
			holds = holds && strings.Contains(a.body, text)
		}
		must.Hold(g.t, holds, "%s asks for %s and is answered with %d %v, want %q: %.700s", who.name, r, a.StatusCode, a.Header, texts, a.body)
	}
	tellsNothing := func(of ...string) {
		if !api && r.target != "/metrics" {
			a.lacks(g.t, append(of, "<nav", string(g.srv.Mode), "outboxweb test", "10.0.0.0")...)
		}
	}
	switch {
	case r.entry.role == operator.RoleNone:
		is(a.StatusCode != http.StatusUnauthorized && a.StatusCode != http.StatusForbidden)
	case who.told != "":
		is(a.StatusCode == http.StatusForbidden && challenge == "", who.told[1:], "; ask the platform team, #ops", id)
		is(api || r.target == "/metrics" || strings.Contains(a.body, "Not allowed"))
		tellsNothing()
	case who.role == operator.RoleNone:
		is(a.StatusCode == http.StatusUnauthorized && strings.HasPrefix(challenge, "Bearer"), id, map[bool]string{true: "urn:outboxweb:unidentified"}[api])
		is(api || strings.Contains(a.body, map[bool]string{true: "401 Unauthorized: ", false: "Sign-in required"}[r.target == "/metrics"]))
		tellsNothing("zoe")
	case !who.role.Includes(r.least()):
		is(a.StatusCode == http.StatusForbidden, "his needs the role "+string(r.least()), "you are ", map[bool]string{true: "urn:outboxweb:role"}[api])
	default:
		is(a.StatusCode != http.StatusUnauthorized && a.StatusCode != http.StatusForbidden && a.StatusCode < 500)
	}
}

func TestRoutes_whatThereIsNotIsForThoseWhoMayLook(t *testing.T) {
	g := newGuarded(t)
	for _, target := range []string{"/nowhere", "/api/v1/nowhere", "/rows/c-1/2/requeue/x"} {
		g.get(target).want(t, 401)
		g.get(target, people[operator.RoleViewer]).want(t, 404)
	}
	g.do("PUT", "/rows", "").want(t, 401)
	g.do("PUT", "/rows", "", people[operator.RoleViewer]).want(t, 405)
	g.do("HEAD", "/rows", "").want(t, 401)
	g.do("HEAD", "/rows", "", people[operator.RoleViewer]).want(t, 200)
	g.get("/rows", byProxy("eve", "sales")).want(t, 403, "You are signed in as", "eve", "in the groups", "and have no role here", "Try again").lacks(t, "<nav", "outbox_apply_only", "applied by workers")
}

// TestActions_areTakenFromOwnPagesAndScriptsAlone sends every form and action from another site, and in other media types: the database
// sees none of them. TestOrigin says what counts as another site.
func TestActions_areTakenFromOwnPagesAndScriptsAlone(t *testing.T) {
	g := newGuarded(t).fill()
	var taken []func()
	before := g.kit.Dump()
	for _, r := range everyRoute(t, g.site) {
		if r.method != http.MethodPost {
			continue
		}
		api := strings.HasPrefix(r.target, apiPrefix)
		right, wrong := "application/x-www-form-urlencoded", "application/json"
		if api {
			right, wrong = wrong, right
		}
		send := func(kind, origin, want string) {
			a := g.do(r.method, r.target, r.body, people[operator.RoleAdmin], header("Origin", origin), func(req *http.Request) {
				if kind != "" {
					req.Header.Set("Content-Type", kind)
				}
			})
			got := map[int]string{http.StatusForbidden: "urn:outboxweb:origin", http.StatusUnsupportedMediaType: "urn:outboxweb:media-type", http.StatusUnauthorized: "401"}[a.StatusCode]
			must.Hold(t, got == want && (!api || strings.Contains(a.body, want)), "%s as %q with Origin %q is answered with %d, want %q: %.300s", r, kind, origin, a.StatusCode, want, a.body)
		}
		send(right, "https://evil.example", "urn:outboxweb:origin")
		for _, kind := range []string{wrong, "text/plain", ""} {
			send(kind, publicOrigin, "urn:outboxweb:media-type")
		}
		taken = append(taken, func() { send(right+"; charset=utf-8", publicOrigin, "") })
	}
	must.Equal(t, g.kit.Dump(), before, "after refused forms and actions")
	for _, send := range taken {
		send()
	}
}

func (s *site) entry(t testing.TB, method, target string) route {
	path, _, _ := strings.Cut(target, "?")
	path, _, _ = strings.Cut(path, "#")
	found := chi.NewRouteContext()
	must.Hold(t, s.srv.router.Match(found, method, path), "%s %s leads nowhere", method, target)
	return s.srv.routes[method+" "+found.RoutePattern()]
}

// filledPages are the addresses of pages that a site seeded by fill has.
var filledPages = []string{
	"/", "/rows", "/rows?status=dead", "/rows?status=pending", "/campaigns/c-1/events/2", "/campaigns/c-1/events/3", "/campaigns/c-1/events/1", "/rows/c-1/2/requeue", "/campaigns/c-5/events/1", "/campaigns/c-5/events/2", "/campaigns/c-6/events/1",
	"/rows/c-1/2/dry-run", "/operations", "/operations/new", "/operations/new?campaign=c-1", "/operations/1", "/operations/2", "/campaigns", "/campaigns/c-1", "/campaigns/c-2", "/campaigns/c-3",
	"/campaigns/c-4", "/campaigns/c-5", "/campaigns/c-1/events/2?tab=payload", "/campaigns/c-1/events/2?tab=neighbours", "/campaigns/c-1/events/2?tab=details", "/campaigns/c-1/events/2/tree", "/failures", "/runs", "/runs/1", "/runs/2", "/runs/3", "/runs/new", "/runs/new?kind=rebuild&campaign_ids=c-1", "/runs/new?kind=verify&campaign_ids=c-3", "/rehearsals/new",
	"/projections", "/projections/campaigns", "/publishers", "/publishers/scenes/archive", "/publishers/scenes/overcome", "/publishers/scenes/archive/seek", "/publishers/scenes/archive/seek?to=head",
	"/charts", "/handover", "/intake", "/intake/shop", "/alerts", "/instances", "/audit", "/about",
}

// askingPages preview an action and ask for confirmation; a control that links to one offers the action.
var askingPages = map[string]operator.Action{
	"/operations/new": operator.ActionOperationStart, "/runs/new": operator.ActionRunStart, "/rows/requeue": operator.ActionOperationStart, "/rehearsals/new": operator.ActionRehearse,
	"/rows/{campaign}/{seq}/requeue": operator.ActionRequeue, "/publishers/{topic}/{publisher}/seek": operator.ActionPublisherSeek,
}

var (
	formTag   = regexp.MustCompile(`<form[^>]*>`)
	buttonTag = regexp.MustCompile(`<button[^>]* formaction="([^"]*)"`)
	linkTag   = regexp.MustCompile(`<a [^>]*href="([^"]*)"`)
	actionOf  = regexp.MustCompile(` action="([^"]*)"`)
	curlPost  = regexp.MustCompile(`curl [^<]*?` + curlSends + `[^<]*?https?://[^/\s']+(/[^\s'<]*)`)
)

// curlSends is in each curl line that changes something, and in no other.
const curlSends = "Content-Type: application/json"

// offer is a control of a page, and the roles that may use it.
type offer struct {
	what string
	role operator.Role
}

// offers are the controls of a page that act or link to an action.
func (s *site) offers(page, body string) map[string]offer {
	all, here := map[string]offer{}, s.entry(s.t, "GET", page).pattern
	posts := func(kind, target string) {
		target = html.UnescapeString(target)
		r := s.entry(s.t, "POST", target)
		if strings.HasPrefix(r.pattern, "/views") { // the reader's own
			return
		}
		must.Hold(s.t, r.action != "" || r.role == operator.RoleViewer, "%s offers %s, which does nothing", page, target)
		all[kind+" "+target] = offer{kind + " " + target, routed{entry: r}.least()}
	}
	leads := func(target string) {
		target = html.UnescapeString(target)
		if strings.HasPrefix(target, "#") {
			return
		}
		r := s.entry(s.t, "GET", target)
		if action, asks := askingPages[r.pattern]; asks && r.pattern != here {
			all["leads to "+target] = offer{"leads to " + target, action.Role()}
		}
	}
	for _, tag := range formTag.FindAllString(body, -1) {
		to := actionOf.FindStringSubmatch(tag)
		switch {
		case to == nil: // of the dialog
		case strings.Contains(tag, `method="post"`):
			posts("form", to[1])
		default:
			leads(to[1])
		}
	}
	for _, m := range buttonTag.FindAllStringSubmatch(body, -1) {
		posts("button", m[1])
	}
	for _, m := range linkTag.FindAllStringSubmatch(body, -1) {
		leads(m[1])
	}
	text := html.UnescapeString(body)
	curls := curlPost.FindAllStringSubmatch(text, -1)
	for _, m := range curls {
		posts("curl", m[1])
	}
	shown := strings.Count(text, curlSends)
	must.Hold(s.t, len(curls) == shown, "%s shows %d curl lines that send something, of which %d are understood", page, shown, len(curls))
	return all
}

// TestPages_offerExactlyWhatTheRoleAllows compares each role's controls on every page with an
// admin's, less those that the table of roles forbids. A read-only server offers none, and does nothing.
func TestPages_offerExactlyWhatTheRoleAllows(t *testing.T) {
	g, admin := newGuarded(t).fill(), people[operator.RoleAdmin]
	seen, offering, offered := map[string]int{}, map[string]bool{}, map[string]bool{}
	adminsOn := func(page string) map[string]offer {
		admins := g.offers(page, g.get(page, admin).want(t, 200).lacks(t, `data-testid="withheld"`).body)
		offering[page] = len(admins) > 0
		for _, o := range admins {
			kind, target, _ := strings.Cut(o.what, " ")
			if seen[kind]++; kind != "leads" {
				offered[g.entry(t, "POST", target).pattern] = true
			}
		}
		return admins
	}
	adminsOn("/tokens") // for admins to see
	for _, page := range filledPages {
		admins := adminsOn(page)
		for _, role := range operator.Roles {
			a := g.get(page, people[role]).want(t, 200, `data-testid="role">`+string(role)+"<")
			want, missing := map[string]offer{}, map[operator.Role]bool{}
			for key, o := range admins {
				if role.Includes(o.role) {
					want[key] = o
				} else {
					missing[o.role] = true
				}
			}
			got := g.offers(page, a.body)
			must.Equal(t, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), page, "offers a", role)
			for needed := range missing {
				must.Hold(t, regexp.MustCompile(`data-testid="withheld">[^<]* needs? the role `+string(needed)).MatchString(a.body), "%s does not tell a %s what needs the role %s", page, role, needed)
			}
			seen[string(role)] += len(got)
			if page == "/" { // its data is shared for a second
				a.want(t, 200, g.get(page, people[role], header("HX-Target", "live")).want(t, 200).lacks(t, "zoe", "otto").body)
			}
		}
	}
	must.Hold(t, seen["viewer"] == 0 && seen["operator"] >= 50 && seen["admin"] > seen["operator"] && seen["curl"] > 0, "controls on all pages: %v", seen)
	for key, r := range g.srv.routes {
		must.Hold(t, r.action == "" || strings.Contains(key, apiPrefix) || offered[r.pattern], "no page of this test offers %s", key)
	}

	g.srv.ReadOnly = true
	for _, c := range g.srv.overviews.ranges {
		c.rendered = nil // a server does not become read-only after its start
	}
	for i, page := range filledPages {
		a := g.get(page, people[operator.Roles[i%len(operator.Roles)]]).want(t, 200, "read-only")
		must.Equal(t, len(g.offers(page, a.body)), 0, "a read-only server offers on", page)
		must.Hold(t, !offering[page] || strings.Contains(g.get(page, admin).body, "This server is read-only."), "%s does not say why it offers nothing", page)
	}
	before := g.kit.Dump("tokens")
	for _, r := range everyRoute(t, g.site) {
		if r.entry.action != "" {
			a := g.ask(r.sent, admin)
			must.Hold(t, a.StatusCode == http.StatusForbidden && strings.Contains(a.body, "read-only"), "%s is answered with %d %.300s", r, a.StatusCode, a.body)
		}
	}
	g.post(archivePath+"/seek", `{"to":"head","dry_run":true}`, admin).want(t, 200, `"skips":`)
	g.post(apiPrefix+"/operations/preview", `{"filter":{}}`, admin).want(t, 200, `"rows":`)
	must.Equal(t, g.kit.Dump("tokens"), before, "after a read-only server was asked to act")
}
