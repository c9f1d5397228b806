package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// aboveTheDatabase are tests of addresses, headers, limits, logs and words, in which the database has no part: a full run has them on SQLite alone.
const aboveTheDatabase = `^(TestSQLite|Fuzz|Test(About|AccessLog|ActRate|AdviceFor|Answers|Assets|AtFault|Bodies|Charts|CSVRow|Docs|Document|Endpoints|Errors|Fail|FileName|Head|Headers|Host|` +
	`Identity|Navigation|Origin|Pace|Panic|Prefix|Queries|Redaction|RefusedForm|RequestID|Room|Rooms|Routes|Shares|SlowClients|Tree|UnknownThings)_|` +
	`TestActions_areTaken|TestPages_(areSmall|haveNoInline|linkTo|ofWhatIsNot|offerExactly|tellTheir))`

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, "^TestPostgres_", func(p dbtest.Pair) error {
		if dbtest.Postgres() && flag.Lookup("test.run").Value.String() == "" {
			if err := flag.Set("test.skip", aboveTheDatabase); err != nil {
				return err
			}
		}
		s, err := store.Open(context.Background(), store.Options{Journal: p.Journal, Projections: p.Projections})
		if err != nil {
			return err
		}
		return s.Close()
	}))
}

// site is the real router over a real store, with a hand-driven worker.
type site struct {
	t          testing.TB
	sub        dbtest.Pair
	kit        *storetest.Fixture
	store      *store.Store
	operations *operations.Operations
	runs       *runs.Runs
	tokens     *tokens.Tokens
	http       http.Handler
	srv        *server
	clock      time.Time
}

var testWorker = outbox.Worker{ID: "test-1", Build: "test"}

// poison is the event type that the hand-driven worker cannot apply.
const poison = "poison.pill"

// hopeless is an event type that it can never apply with this version of the projection.
const hopeless = "hopeless"

func newSite(t testing.TB, change ...func(*Config)) *site {
	return newSiteOn(t, dbtest.New(t), change...)
}

// ownSite is newSite for a test that runs beside others.
func ownSite(t *testing.T, change ...func(*Config)) *site {
	t.Parallel()
	return newSite(t, change...)
}

// newSiteOn is newSite on databases that the test has made itself.
func newSiteOn(t testing.TB, sub dbtest.Pair, change ...func(*Config)) *site {
	return newSiteWith(t, sub, store.Options{}, change...)
}

func newSiteWith(t testing.TB, sub dbtest.Pair, o store.Options, change ...func(*Config)) *site {
	s := &site{t: t, sub: sub, clock: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}
	now := func() time.Time { return s.clock }
	o.Journal, o.Projections, o.Retry, o.Now = sub.Journal, sub.Projections, event.Retry{MaxAttempts: 2}, now
	s.store = must.Get(store.Open(context.Background(), o)).Or(t)
	t.Cleanup(func() { must.OK(t, s.store.Close()) })
	s.kit = storetest.Around(t, s.store, sub, nil)
	s.operations, s.runs, s.tokens = operations.New(s.kit.Queue, s.kit.Samples), runs.New(s.kit.Queue), tokens.New(s.store)
	publishers := publishing.NewProgress(s.store)
	c := Config{
		Queue: s.kit.Queue, Samples: s.kit.Samples, Operations: s.operations, Runs: s.runs, Tokens: s.tokens, Publishers: publishers, Search: search.New(s.store, publishers.Publisher), Intake: intake.New(s.store), Mode: campaign.ModeOutbox, Version: "test", Metrics: metrics.New(s.store.Summary), Now: now,
		Logger: slog.New(slog.DiscardHandler),
		Projections: []campaign.ProjectionInfo{{Name: "campaigns", Version: "v1", Tables: []string{"campaigns"},
			EventTypes: []string{"campaign.created"}, OnFailure: "block", Source: "builtin:campaigns"}},
	}
	for _, f := range change {
		f(&c)
	}
	c.Facts = &facts.Reader{Store: c.Queue.Store, Operations: c.Operations, Runs: c.Runs, Publishing: c.Publishers, Intake: c.Intake, Loaded: c.Projections, Build: c.Version}
	c.Facts.Begin()
	s.srv = newServer(c)
	s.http = s.srv.router
	return s
}

func (s *site) seed(campaign string, types ...string) *site {
	var events []event.Event
	for _, eventType := range types {
		events = append(events, event.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(`{"n":1}`)})
	}
	s.kit.MustAppend(events...)
	return s
}

// work applies everything that is due; a poison.pill fails. Time passes between its passes, so that a failed row is dead when it returns.
func (s *site) work() *site {
	for range 10 {
		s.pass()
		s.clock = s.clock.Add(time.Minute)
	}
	return s
}

// failures are those of the hand-driven worker, by the type of the event.
var failures = map[string]readmodel.Failure{
	poison:   {Message: `seat "7" is <taken>`, Fingerprint: event.Fingerprint(`seat "7" is <taken>`)},
	hopeless: {Message: "payload.name is required, and the event does not have it", Fingerprint: event.Fingerprint("payload.name is required, and the event does not have it"), Projection: "campaigns", Version: "v1", Permanent: true},
}

func (s *site) pass() {
	claims := must.Get(s.kit.Claim(s.kit.Ctx, testWorker, outbox.ClaimLimits{Rows: 1000, Lease: time.Minute})).Or(s.t)
	if len(claims) == 0 {
		return
	}
	var results []outbox.Result
	must.OK(s.t, s.store.ReadModel().Apply(s.kit.Ctx, func(tx *readmodel.ApplyTx) error {
		var errs []error
		for _, c := range claims {
			r, hash := outbox.Result{Claim: c, Applied: c.First - 1}, ""
			_, err := tx.Watermark(c.CampaignID)
			errs = append(errs, err)
			for _, e := range must.Get(s.kit.LoadClaim(c)).Or(s.t) {
				if failure, fails := failures[e.EventType]; fails && e.Skipped == nil {
					r.Failure = &failure
					break
				} else if e.Skipped != nil {
					errs = append(errs, tx.PassOver(&e))
				}
				r.Applied, hash = e.Seq, e.ChainHash
			}
			if r.Applied >= c.First {
				errs = append(errs, tx.Advance(c.CampaignID, c.Epoch, c.First-1, r.Applied, hash))
			}
			results = append(results, r)
		}
		return errors.Join(errs...)
	}))
	must.Get(s.kit.Settle(s.kit.Ctx, testWorker, results)).Or(s.t)
}

type answer struct {
	*http.Response
	body string
}

// do sends a request to 127.0.0.1; change may adjust it.
func (s *site) do(method, target, body string, change ...func(*http.Request)) answer {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:5555"
	for _, f := range change {
		f(r)
	}
	rec := httptest.NewRecorder()
	s.http.ServeHTTP(rec, r)
	res := rec.Result()
	if res.Header.Get("Content-Encoding") == "" {
		checkDocumented(s.t, s.srv, r, rec)
	}
	text := must.Get(io.ReadAll(res.Body)).Or(s.t)
	return answer{res, string(text)}
}

func (s *site) get(target string, change ...func(*http.Request)) answer {
	return s.do("GET", target, "", change...)
}

// fresh reads a page without anything that readers have shared.
func (s *site) fresh(target string) answer {
	s.store.Changed()
	return s.get(target)
}

// post sends JSON, as a script does that keeps to the document.
func (s *site) post(target, body string, change ...func(*http.Request)) answer {
	again := func(r *http.Request) {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	}
	return s.do("POST", target, body, append([]func(*http.Request){header("Content-Type", "application/json"), again}, change...)...)
}

// submit sends a form, as a browser without JavaScript does.
func (s *site) submit(target, body string, change ...func(*http.Request)) answer {
	return s.do("POST", target, body, append([]func(*http.Request){
		header("Content-Type", "application/x-www-form-urlencoded"), header("Sec-Fetch-Site", "same-origin"),
		header("Origin", "http://127.0.0.1:8080"),
	}, change...)...)
}

func (s *site) lands(a answer) answer {
	return s.get(a.want(s.t, http.StatusSeeOther).Header.Get("Location"))
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// want fails the test unless the answer has the status and holds the texts.
func (a answer) want(t testing.TB, status int, texts ...string) answer {
	must.Need(t, a.StatusCode == status, "status %d, want %d: %s", a.StatusCode, status, a.body)
	for _, text := range texts {
		must.Hold(t, strings.Contains(a.body, text), "the answer lacks %q:\n%s", text, a.body)
	}
	return a
}

func (a answer) lacks(t testing.TB, texts ...string) answer {
	for _, text := range texts {
		must.Hold(t, !strings.Contains(a.body, text), "the answer holds %q:\n%s", text, a.body)
	}
	return a
}

func (a answer) times(t testing.TB, n int, text string) {
	must.Equal(t, strings.Count(a.body, text), n, "the answer holds", text, "times")
}

func (a answer) header(t testing.TB, name, want string) {
	must.Equal(t, a.Header.Get(name), want, name, "is")
}

func (a answer) leads(t testing.TB, to string) {
	got := a.Header.Get("Location")
	must.Hold(t, strings.HasPrefix(got, to), "it leads to %q, want %q", got, to)
}

func decodeAs[T any](t testing.TB, a answer) T {
	var v T
	err := json.Unmarshal([]byte(a.body), &v)
	must.Need(t, err == nil, "%v in %s", err, a.body)
	return v
}

// guarded is a site behind an authenticating proxy, with API tokens.
type guarded struct {
	*site
	tokens map[string]string // texts, by state
}

const publicOrigin = "https://ops.example"

func newGuarded(t *testing.T, change ...func(*Config)) *guarded {
	t.Parallel()
	g := &guarded{tokens: map[string]string{}}
	g.site = newSite(t, append([]func(*Config){func(c *Config) {
		gate := must.Get(auth.New(auth.Config{
			Kind: auth.KindProxyHeader, UserHeader: "Remote-User", GroupsHeader: "Remote-Groups", GroupsFormat: auth.FormatJSON, Contact: "the platform team, #ops",
			Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
			Grants:  operator.Grants{operator.RoleViewer: {"user:zoe"}, operator.RoleOperator: {"group:ops"}, operator.RoleAdmin: {"user:ada"}},
			Tokens:  c.Tokens.TokenByHash, Logger: c.Logger, Now: c.Now,
		})).Or(t)
		c.Auth, c.PublicOrigin, c.Hosts = gate, publicOrigin, []string{"ops.example"}
		c.TestPublisher = func(_ context.Context, name operator.SubscriptionName) (subscription.TestDelivery, error) {
			return subscription.TestDelivery{SubscriptionName: name}, nil
		}
		withAlerts(t, "chat: {url: 'slack+http://127.0.0.1:9/x', allow_private: true}")(c)
		tryOnStore(c)
	}}, change...)...)
	for _, role := range operator.Roles {
		g.addToken(string(role), role, time.Hour)
	}
	revoked := g.addToken("revoked", operator.RoleAdmin, time.Hour)
	must.Get(g.site.tokens.RevokeToken(context.Background(), g.byAda(), revoked.ID)).Or(t)
	g.clock = g.clock.Add(10 * time.Minute)
	return g
}

func (g *guarded) byAda() operator.Command {
	return operator.Command{By: operator.Identity{Name: "ada", Auth: operator.AuthProxyHeader, Role: operator.RoleAdmin}.Operator("cli", ""), RequestID: "seed", Reason: "seed"}
}

func (g *guarded) addToken(name string, role operator.Role, lasts time.Duration) operator.Token {
	text, hash := auth.NewToken()
	g.tokens[name] = text
	return must.Get(g.site.tokens.CreateToken(context.Background(), g.byAda(), hash, role, name, g.clock.Add(lasts))).Or(g.t)
}

// asker is a client and its expected identity.
type asker struct {
	name string
	role operator.Role // RoleNone: is not admitted
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
var people = map[operator.Role]func(*http.Request){operator.RoleViewer: byProxy("zoe", "sales"), operator.RoleOperator: byProxy("otto", "sales", "ops"), operator.RoleAdmin: byProxy("ada")}

// strangers have no role: they cannot be authenticated, or are signed in and refused. Package auth tests each reason.
func (g *guarded) strangers() []asker {
	ada := people[operator.RoleAdmin]
	return []asker{
		{name: "nobody", as: func(*http.Request) {}},
		{name: "nobody, through the proxy", as: func(r *http.Request) { r.RemoteAddr = "10.0.0.7:4444" }},
		{name: "a revoked token", as: g.byToken("revoked")},
		{name: "a token and the proxy's header", as: func(r *http.Request) { ada(r); g.byToken("admin")(r) }},
		{name: "a stranger with the proxy's header", as: func(r *http.Request) { ada(r); r.RemoteAddr = "10.0.1.7:4444" }},
		{name: "a user without a role", as: byProxy("eve", "sales, ops, and friends"), told: "you are signed in as"},
		{name: "a list of users", as: byProxy("zoe,ada"), told: "and that name is a list of names"},
		{name: "groups in another format", as: func(r *http.Request) { byProxy("otto")(r); r.Header.Add("Remote-Groups", "ops") }, told: "not a JSON array of strings"},
	}
}

// known are clients with a role, each authenticated in both ways.
func (g *guarded) known() []asker {
	var all []asker
	for _, role := range operator.Roles {
		all = append(all, asker{name: string(role) + " by the proxy", role: role, as: people[role]}, asker{name: string(role) + " by token", role: role, as: g.byToken(string(role))})
	}
	return append(all, asker{name: "a viewer in a group with the operators' name among commas", role: operator.RoleViewer, as: byProxy("zoe", "book club, ops, and friends")})
}

// fill gives the site at least one object of every action.
func (g *guarded) fill() *guarded {
	asAdmin := people[operator.RoleAdmin]
	act := func(path, body string) {
		a := g.post(apiPrefix+path, body, asAdmin)
		must.Need(g.t, a.StatusCode < 300, "%s is answered with %d %s", path, a.StatusCode, a.body)
	}
	must.OK(g.t, g.store.Loaded(g.t.Context(), campaign.InstanceState{ID: "w"}, []campaign.Definition{{Projection: "campaigns", Version: "v1"}}))
	g.trouble().reject().disown("another")
	g.seed("c-3", poison).seed("c-6", poison).work()
	act("/rows/c-3/1/skip", fmt.Sprintf(`{"reason":"seed","confirm":%q}`, operator.ActionSkip.Phrase(operator.Reach{Skipped: event.RowKey{CampaignID: "c-3", Seq: 1}})))
	g.work().seed("c-4", "a", "b")
	act("/alerts/rules/drift/mute", `{"for":"8h","reason":"seed"}`)
	act("/campaigns/c-4/pause", `{"reason":"seed"}`)
	g.seed("c-5", poison, "a").pass()
	const requeue, verify = `{"filter":{"campaign_id":"c-6"}}`, `{"kind":"verify","campaign_id":"c-2"}`
	for _, a := range [][2]string{{"/operations", requeue}, {"/operations/1/cancel", ""}, {"/operations", requeue},
		{"/runs", verify}, {"/runs/1/cancel", ""}, {"/runs", verify}, {"/runs/2/cancel", ""}, {"/runs", `{"kind":"verify","campaign_id":"c-1"}`}} {
		act(a[0], a[1])
	}
	g.kit.Exec(`update runs set status = 'interrupted' where id = 2`)
	act("/projections/campaigns/pause", `{"campaign_id":"c-2"}`)
	g.withPublisher(1).publisherFails(3, "event")
	g.kit.Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, lease_owner, lease_expires_at, last_error, last_error_at)
values ('scenes', 'overcome', 'log:', '{"event_types":["*"]}', 10, 4, 1, 1, 'w', 4102444800000000, 'status 500', 1),
  ('audit', 'archive', 'log:', '{"event_types":["*"]}', 10, 4, 1, 1, 'w', 4102444800000000, '', 0)`)
	return g
}
