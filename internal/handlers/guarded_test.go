package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// guarded is a site behind an authenticating proxy, with API tokens.
type guarded struct {
	*site
	tokens map[string]string // texts, by state
}

const publicOrigin = "https://ops.example"

// newGuarded is for a test that runs beside others.
func newGuarded(t *testing.T, change ...func(*Config)) *guarded {
	t.Helper()
	t.Parallel()
	g := &guarded{tokens: map[string]string{}}
	g.site = newSite(t, append([]func(*Config){func(c *Config) {
		gate := must.Get(auth.New(auth.Config{
			Kind: auth.KindProxyHeader, UserHeader: "Remote-User", GroupsHeader: "Remote-Groups", GroupsFormat: auth.FormatJSON, Contact: "the platform team, #ops",
			Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
			Grants:  outbox.Grants{outbox.RoleViewer: {"user:zoe"}, outbox.RoleOperator: {"group:ops"}, outbox.RoleAdmin: {"user:ada"}},
			Tokens:  c.Tokens.TokenByHash, Logger: c.Logger, Now: c.Now,
		})).Or(t)
		c.Auth, c.PublicOrigin, c.Hosts = gate, publicOrigin, []string{"ops.example"}
		c.Rehearse = func(context.Context, outbox.Command, outbox.RehearsalRequest) (outbox.Run, error) {
			return outbox.Run{}, outbox.Conflict("nothing is blocked")
		}
		c.ProjectionFile = func(name string) outbox.RehearsalFile {
			return outbox.RehearsalFile{Name: name + ".sql", Text: "-- projection: " + name + "\n"}
		}
		c.TestPublisher = func(_ context.Context, name outbox.SubscriptionName) (outbox.TestDelivery, error) {
			return outbox.TestDelivery{SubscriptionName: name}, nil
		}
		withAlerts(t, "chat: {url: 'slack+http://127.0.0.1:9/x', allow_private: true}")(c)
		tryOnStore(c)
	}}, change...)...)
	for _, role := range outbox.Roles {
		g.addToken(string(role), role, time.Hour)
	}
	g.addToken("expired", outbox.RoleAdmin, time.Minute)
	revoked := g.addToken("revoked", outbox.RoleAdmin, time.Hour)
	must.Get(g.site.tokens.RevokeToken(context.Background(), g.byAda(), revoked.ID)).Or(t)
	g.clock = g.clock.Add(10 * time.Minute)
	g.tokens["unknown"], _ = auth.NewToken()
	return g
}

func (g *guarded) byAda() outbox.Command {
	return outbox.Command{By: outbox.Identity{Name: "ada", Auth: outbox.AuthProxyHeader, Role: outbox.RoleAdmin}.Operator("cli", ""), RequestID: "seed", Reason: "seed"}
}

func (g *guarded) addToken(name string, role outbox.Role, lasts time.Duration) outbox.Token {
	g.t.Helper()
	text, hash := auth.NewToken()
	g.tokens[name] = text
	return must.Get(g.site.tokens.CreateToken(context.Background(), g.byAda(), hash, role, name, g.clock.Add(lasts))).Or(g.t)
}

// asker is a client and its expected identity.
type asker struct {
	name string
	role outbox.Role // RoleNone: is not admitted
	as   func(*http.Request)
	told string // what the refusal of a signed-in user says; empty: cannot be authenticated
}

// byProxy sends a request through the proxy, which names the user and the groups.
func byProxy(user string, groups ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = "10.0.0.7:4444"
		r.Header.Set("Remote-User", user)
		if len(groups) > 0 {
			text, _ := json.Marshal(groups)
			r.Header.Set("Remote-Groups", string(text))
		}
	}
}

func (g *guarded) byToken(name string) func(*http.Request) {
	return header("Authorization", "Bearer "+g.tokens[name])
}

// people are users named by the proxy, one per role.
var people = map[outbox.Role]func(*http.Request){
	outbox.RoleViewer:   byProxy("zoe", "sales"),
	outbox.RoleOperator: byProxy("otto", "sales", "ops"),
	outbox.RoleAdmin:    byProxy("ada"),
}

// refused are signed in, and refused each for another reason.
func (g *guarded) refused() []asker {
	return []asker{
		{name: "a user without a role", as: byProxy("eve", "sales, ops, and friends"), told: "you are signed in as"},
		{name: "a list of users", as: byProxy("zoe,ada"), told: "and that name is a list of names"},
		{name: "a name that cannot be one", as: byProxy("zo\u202ee"), told: "and that name contains invisible characters"},
		{name: "groups twice", as: func(r *http.Request) { byProxy("otto", "ops")(r); r.Header.Add("Remote-Groups", "ops") }, told: "the header Remote-Groups appears 2 times"},
		{name: "groups in another format", as: func(r *http.Request) { byProxy("otto")(r); r.Header.Add("Remote-Groups", "ops") }, told: "not a JSON array of strings"},
	}
}

// strangers cannot be authenticated, each for another reason.
func (g *guarded) strangers() []asker {
	ada := people[outbox.RoleAdmin]
	return []asker{
		{name: "nobody", as: func(*http.Request) {}},
		{name: "nobody, through the proxy", as: func(r *http.Request) { r.RemoteAddr = "10.0.0.7:4444" }},
		{name: "an expired token", as: g.byToken("expired")},
		{name: "a revoked token", as: g.byToken("revoked")},
		{name: "an unknown token", as: g.byToken("unknown")},
		{name: "a token and the proxy's header", as: func(r *http.Request) { ada(r); g.byToken("admin")(r) }},
		{name: "a stranger with the proxy's header", as: func(r *http.Request) { ada(r); r.RemoteAddr = "10.0.1.7:4444" }},
		{name: "a stranger who names the proxy", as: func(r *http.Request) {
			ada(r)
			r.RemoteAddr = "192.0.2.1:4444"
			r.Header.Set("X-Forwarded-For", "10.0.0.7")
			r.Header.Set("X-Real-Ip", "10.0.0.7")
			r.Header.Set("Forwarded", "for=10.0.0.7")
		}},
		{name: "two users", as: func(r *http.Request) { ada(r); r.Header.Add("Remote-User", "ada") }},
		{name: "a header with an underscore", as: func(r *http.Request) { ada(r); r.Header["Remote_user"] = []string{"ada"} }},
		{name: "a header with an underscore alone", as: func(r *http.Request) {
			r.RemoteAddr = "10.0.0.7:4444"
			r.Header["REMOTE_USER"] = []string{"ada"}
		}},
	}
}

// known are clients with a role, each authenticated in both ways.
func (g *guarded) known() []asker {
	var all []asker
	for _, role := range outbox.Roles {
		all = append(all, asker{name: string(role) + " by the proxy", role: role, as: people[role]}, asker{name: string(role) + " by token", role: role, as: g.byToken(string(role))})
	}
	return append(all, asker{name: "a viewer in a group with the operators' name among commas", role: outbox.RoleViewer, as: byProxy("zoe", "book club, ops, and friends")})
}

// fill gives the site at least one object of every action.
func (g *guarded) fill() *guarded {
	g.t.Helper()
	asAdmin := people[outbox.RoleAdmin]
	act := func(path, body string) { g.t.Helper(); g.wantActed(g.post(apiPrefix+path, body, asAdmin)) }
	g.trouble()
	g.reject()
	g.disown("another")
	g.seed("c-3", poison)
	g.seed("c-6", poison)
	g.work()
	act("/rows/c-3/1/skip", fmt.Sprintf(`{"reason":"seed","confirm":%q}`, outbox.ActionSkip.Phrase(outbox.Reach{Skipped: outbox.RowKey{CampaignID: "c-3", Seq: 1}})))
	g.work()
	g.seed("c-4", "a", "b")
	act("/alerts/rules/drift/mute", `{"for":"8h","reason":"seed"}`)
	act("/campaigns/c-4/pause", `{"reason":"seed"}`)
	g.seed("c-5", poison, "a")
	g.pass()
	for range 2 {
		act("/operations", `{"filter":{"campaign_id":"c-6"}}`)
		if decodeAs[outbox.Page[outbox.Operation]](g.t, g.get(apiPrefix+"/operations", asAdmin)).Items[0].ID == 1 {
			act("/operations/1/cancel", "")
		}
	}
	for _, campaign := range []string{"c-2", "c-2", "c-1"} {
		act("/runs", `{"kind":"verify","campaign_id":"`+campaign+`"}`)
		if campaign == "c-2" {
			act("/runs/"+fmt.Sprint(decodeAs[outbox.Page[outbox.Run]](g.t, g.get(apiPrefix+"/runs", asAdmin)).Items[0].ID)+"/cancel", "")
		}
	}
	g.change(`update runs set status = 'interrupted' where id = 2`)
	act("/projections/campaigns/pause", `{"campaign_id":"c-2"}`)
	g.withPublisher(1)
	g.publisherFails(3, "event")
	g.change(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, lease_owner, lease_expires_at, last_error, last_error_at)
values ('scenes', 'overcome', 'log:', '{"event_types":["*"]}', 10, 4, 1, 1, 'w', 4102444800000000, 'status 500', 1),
  ('audit', 'archive', 'log:', '{"event_types":["*"]}', 10, 4, 1, 1, 'w', 4102444800000000, '', 0)`)
	return g
}

func (g *guarded) wantActed(a answer) {
	g.t.Helper()
	if a.StatusCode >= 300 {
		g.t.Fatalf("the act is answered with %d %s", a.StatusCode, a.body)
	}
}

// dump is the contents of the site's databases, without the named tables.
func (s *site) dump(except ...string) string {
	s.t.Helper()
	var out strings.Builder
	for _, url := range []string{s.sub.Journal, s.sub.Projections} {
		db := dbtest.Open(s.t, url)
		for _, table := range dbtest.Tables(s.t, db) {
			if slices.Contains(except, table) {
				continue
			}
			rows := must.Get(db.Query(`select * from "` + table + `"`)).Or(s.t)
			columns := must.Get(rows.Columns()).Or(s.t)
			var lines []string
			for rows.Next() {
				values, into := make([]any, len(columns)), make([]any, len(columns))
				for i := range values {
					into[i] = &values[i]
				}
				must.OK(s.t, rows.Scan(into...))
				lines = append(lines, fmt.Sprintf("%s %q", table, values))
			}
			must.OK(s.t, rows.Err())
			slices.Sort(lines)
			out.WriteString(strings.Join(lines, "\n") + "\n")
		}
		db.Close()
	}
	return out.String()
}

func (s *site) wantSame(what, before, after string) {
	s.t.Helper()
	if before == after {
		return
	}
	was := strings.Split(before, "\n")
	for line := range strings.SplitSeq(after, "\n") {
		if !slices.Contains(was, line) {
			s.t.Errorf("%s has changed something: %.600s", what, line)
		}
	}
	s.t.Errorf("%s has changed something", what)
}
