package handlers

import (
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// filledPages are the addresses of pages that a site seeded by fill has.
var filledPages = []string{
	"/", "/rows", "/rows?status=dead", "/rows?status=pending", "/campaigns/c-1/events/2", "/campaigns/c-1/events/3", "/campaigns/c-1/events/1", "/rows/c-1/2/requeue", "/campaigns/c-5/events/1", "/campaigns/c-5/events/2", "/campaigns/c-6/events/1",
	"/rows/c-1/2/dry-run", "/operations", "/operations/new", "/operations/new?campaign=c-1", "/operations/1", "/operations/2", "/campaigns", "/campaigns/c-1", "/campaigns/c-2", "/campaigns/c-3",
	"/campaigns/c-4", "/campaigns/c-5", "/campaigns/c-1/events/2?tab=payload", "/campaigns/c-1/events/2?tab=neighbours", "/campaigns/c-1/events/2?tab=details", "/campaigns/c-1/events/2/tree", "/failures", "/runs", "/runs/1", "/runs/2", "/runs/3", "/runs/new", "/runs/new?kind=rebuild&campaign_ids=c-1", "/runs/new?kind=verify&campaign_ids=c-3", "/rehearsals/new",
	"/projections", "/projections/campaigns", "/publishers", "/publishers/scenes/archive", "/publishers/scenes/overcome", "/publishers/scenes/archive/seek", "/publishers/scenes/archive/seek?to=head",
	"/intake", "/intake/shop", "/alerts", "/instances", "/audit", "/about",
}

// askingPages preview an action and ask for confirmation; a control that links to one offers the
// action.
var askingPages = map[string]outbox.Action{
	"/operations/new": outbox.ActionOperationStart, "/runs/new": outbox.ActionRunStart, "/rows/requeue": outbox.ActionOperationStart, "/rehearsals/new": outbox.ActionRehearse,
	"/rows/{campaign}/{seq}/requeue": outbox.ActionRequeue, "/publishers/{topic}/{publisher}/seek": outbox.ActionPublisherSeek,
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
	role outbox.Role
}

// offers are the controls of a page that act or link to an action.
func (s *site) offers(page, body string) map[string]offer {
	s.t.Helper()
	all := map[string]offer{}
	here := s.entry(s.t, "GET", page).pattern
	posts := func(kind, target string) {
		target = html.UnescapeString(target)
		r := s.entry(s.t, "POST", target)
		if strings.HasPrefix(r.pattern, "/views") { // the reader's own
			return
		}
		if r.action == "" && r.role != outbox.RoleViewer {
			s.t.Errorf("%s offers %s, which does nothing", page, target)
		}
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
	if shown := strings.Count(text, curlSends); len(curls) != shown {
		s.t.Errorf("%s shows %d curl lines that send something, of which %d are understood", page, shown, len(curls))
	}
	return all
}

func curlsOf(offers map[string]offer) (n int) {
	for key := range offers {
		if strings.HasPrefix(key, "curl ") {
			n++
		}
	}
	return n
}

// TestPages_offerExactlyWhatTheRoleAllows compares each role's controls on every page with an
// admin's, less those that the table of roles forbids. A read-only server offers none.
func TestPages_offerExactlyWhatTheRoleAllows(t *testing.T) {
	g := newGuarded(t).fill()
	seen, curls, offering := map[string]int{}, 0, map[string]bool{}
	for _, page := range filledPages {
		admins := g.offers(page, g.get(page, people[outbox.RoleAdmin]).want(t, 200).lacks(t, `data-testid="withheld"`).body)
		curls += curlsOf(admins)
		offering[page] = len(admins) > 0
		for _, role := range outbox.Roles {
			a := g.get(page, people[role]).want(t, 200, `data-testid="role">`+string(role)+"<")
			want, missing := map[string]offer{}, map[outbox.Role]bool{}
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
				if !regexp.MustCompile(`data-testid="withheld">[^<]* needs? the role ` + string(needed)).MatchString(a.body) {
					t.Errorf("%s does not tell a %s what needs the role %s", page, role, needed)
				}
			}
			seen[string(role)] += len(got)
		}
	}
	must.Hold(t, seen["viewer"] == 0 && seen["operator"] >= 50 && seen["admin"] > seen["operator"], "controls on all pages: %v", seen)
	must.Hold(t, curls != 0, "no page shows an admin a curl line that acts")
	offered := g.offered()
	for key, r := range g.srv.routes {
		must.Hold(t, r.action == "" || strings.Contains(key, apiPrefix) || offered[r.pattern], "no page of this test offers %s", key)
	}

	g.srv.ReadOnly = true
	for _, c := range g.srv.overviews.ranges {
		c.rendered = nil // a server does not become read-only after its start
	}
	for i, page := range filledPages {
		a := g.get(page, people[outbox.Roles[i%len(outbox.Roles)]]).want(t, 200, "read-only")
		if got := g.offers(page, a.body); len(got) > 0 {
			t.Errorf("a read-only server offers on %s %v", page, slices.Sorted(maps.Keys(got)))
		}
		if admins := g.get(page, people[outbox.RoleAdmin]); offering[page] && !strings.Contains(admins.body, "This server is read-only.") {
			t.Errorf("%s does not say why it offers nothing", page)
		}
	}
}

// offered are the patterns of the actions that pages offer an admin in forms.
func (g *guarded) offered() map[string]bool {
	g.t.Helper()
	patterns := map[string]bool{}
	for _, page := range append([]string{"/tokens"}, filledPages...) { // tokens are for admins to see
		for _, o := range g.offers(page, g.get(page, people[outbox.RoleAdmin]).body) {
			kind, target, _ := strings.Cut(o.what, " ")
			if kind != "leads" {
				patterns[g.entry(g.t, "POST", target).pattern] = true
			}
		}
	}
	return patterns
}

// TestOverview_isRenderedForEachRole reads the overview with one role after the other, within the
// second in which its data is shared.
func TestOverview_isRenderedForEachRole(t *testing.T) {
	g := newGuarded(t)
	g.trouble()
	for range 2 {
		for _, role := range outbox.Roles {
			a := g.get("/", people[role]).want(t, 200)
			must.Equal(t, strings.Contains(a.body, `data-testid="requeue-group"`), role != outbox.RoleViewer, "the overview offers a", role, "to requeue")
			live := g.get("/", people[role], header("HX-Target", "live")).want(t, 200)
			must.Hold(t, strings.Contains(a.body, live.body), "the live part that a %s reads is none of the page", role)
			live.lacks(t, "zoe", "otto") // and ada has acted
		}
	}
}

func TestHeader_namesTheReader(t *testing.T) {
	newSite(t).get("/").want(t, 200).lacks(t, `data-testid="me"`)
	g := newGuarded(t)
	g.get("/rows", people[outbox.RoleOperator]).want(t, 200, `title="otto, operator (proxy-header); groups: ops"`, "<bdi>otto</bdi>", `data-testid="role">operator<`)
	g.get("/about", people[outbox.RoleOperator]).want(t, 200, "<bdi>otto, operator (proxy-header); groups: ops</bdi>")
	g.get("/rows", g.byToken("viewer")).want(t, 200, "token 1: viewer, viewer (token)")
}
