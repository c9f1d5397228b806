package handlers

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

func TestMain(m *testing.M) {
	os.Exit(dbtest.Main(m, "", func(p dbtest.Pair) error {
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
	store      *store.Store
	operations *operations.Operations
	runs       *runs.Runs
	tokens     *tokens.Tokens
	http       http.Handler
	srv        *server
	clock      time.Time
}

var testWorker = store.Worker{ID: "test-1", Build: "test"}

// poison is the event type that the hand-driven worker cannot apply.
const poison = "poison.pill"

// hopeless is an event type that it can never apply with this version of the
// projection.
const hopeless = "hopeless"

func newSite(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	return newSiteOn(t, dbtest.New(t), change...)
}

// ownSite is newSite for a test that runs beside others.
func ownSite(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	t.Parallel()
	return newSite(t, change...)
}

// change changes the journal behind the program's back, and changeProjections the projections.
func (s *site) change(statement string, args ...any) {
	s.t.Helper()
	changeAt(s.t, s.sub.Journal, statement, args...)
}

func (s *site) changeProjections(statement string, args ...any) {
	s.t.Helper()
	changeAt(s.t, s.sub.Projections, statement, args...)
}

func changeAt(t testing.TB, url, statement string, args ...any) {
	t.Helper()
	_, err := dbtest.Open(t, url).Exec(statement, args...)
	must.Need(t, err == nil, "%s: %v", statement, err)
}

// newSiteOn is newSite on databases that the test has made itself.
func newSiteOn(t testing.TB, sub dbtest.Pair, change ...func(*Config)) *site {
	t.Helper()
	s := &site{t: t, sub: sub, clock: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}
	now := func() time.Time { return s.clock }
	var err error
	s.store, err = store.Open(context.Background(), store.Options{
		Journal:     sub.Journal,
		Projections: sub.Projections,
		Retry:       outbox.Retry{MaxAttempts: 2},
		Now:         now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	s.operations, s.runs, s.tokens = operations.New(s.store), runs.New(s.store), tokens.New(s.store)
	c := Config{
		Store: s.store, Search: search.New(s.store), Operations: s.operations, Runs: s.runs, Tokens: s.tokens, Publishers: publishing.NewProgress(s.store), Intake: intake.New(s.store), Mode: outbox.ModeOutbox, Version: "test", Metrics: metrics.New(s.store.Summary), Now: now,
		Logger: slog.New(slog.DiscardHandler),
		Projections: []outbox.ProjectionInfo{{Name: "campaigns", Version: "v1", Tables: []string{"campaigns"},
			EventTypes: []string{"campaign.created"}, OnFailure: "block", Source: "builtin:campaigns"}},
	}
	for _, f := range change {
		f(&c)
	}
	c.Facts = &facts.Facts{Store: c.Store, Operations: c.Operations, Runs: c.Runs, Publishing: c.Publishers, Intake: c.Intake, Loaded: c.Projections}
	c.Facts.Begin()
	s.srv = newServer(c)
	s.http = s.srv.router
	return s
}

func (s *site) seed(campaign string, types ...string) {
	s.t.Helper()
	var events []outbox.Event
	for _, eventType := range types {
		events = append(events, outbox.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(`{"n":1}`)})
	}
	must.Get(s.store.Append(context.Background(), store.Append{Events: events})).Or(s.t)
}

// work applies everything that is due; a poison.pill fails. Time passes
// between its passes, so that a failed row is dead when it returns.
func (s *site) work() {
	s.t.Helper()
	for range 10 {
		s.pass()
		s.clock = s.clock.Add(time.Minute)
	}
}

func (s *site) pass() {
	s.t.Helper()
	ctx := context.Background()
	claims := must.Get(s.store.Claim(ctx, testWorker, store.ClaimLimits{Rows: 1000, Lease: time.Minute})).Or(s.t)
	if len(claims) == 0 {
		return
	}
	ranges := make([]store.Range, len(claims))
	for i, c := range claims {
		ranges[i] = c.Range()
	}
	loaded, _, err := s.store.Load(ctx, ranges, 1<<30)
	if err != nil {
		s.t.Fatal(err)
	}
	var results []store.Result
	must.OK(s.t, s.store.ReadModel().Apply(ctx, func(a *readmodel.ApplyTx) error {
		for i, claim := range claims {
			r, err := applyOne(a, claim, loaded[i].Events)
			if err != nil {
				return err
			}
			results = append(results, r)
		}
		return nil
	}))
	must.Get(s.store.Settle(ctx, testWorker, results)).Or(s.t)
}

func applyOne(a *readmodel.ApplyTx, claim store.Claim, events []outbox.Event) (store.Result, error) {
	r := store.Result{Claim: claim, Applied: claim.First - 1}
	if _, err := a.Watermark(claim.CampaignID); err != nil {
		return r, err
	}
	var hash string
	for _, e := range events {
		if e.Skipped != nil {
			if err := a.PassOver(&e); err != nil {
				return r, err
			}
		} else if e.EventType == poison {
			message := `seat "7" is <taken>`
			r.Failure = &readmodel.Failure{Message: message, Fingerprint: outbox.Fingerprint(message)}
			break
		} else if e.EventType == hopeless {
			message := "payload.name is required, and the event does not have it"
			r.Failure = &readmodel.Failure{Message: message, Fingerprint: outbox.Fingerprint(message), Projection: "campaigns", Version: "v1", Permanent: true}
			break
		}
		r.Applied, hash = e.Seq, e.ChainHash
	}
	if r.Applied < claim.First {
		return r, nil
	}
	return r, a.Advance(claim.CampaignID, claim.Epoch, claim.First-1, r.Applied, hash)
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body string
}

// do sends a request to 127.0.0.1; change may adjust it.
func (s *site) do(method, target, body string, change ...func(*http.Request)) answer {
	s.t.Helper()
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
	s.t.Helper()
	return s.do("GET", target, "", change...)
}

// fresh reads a page without anything that readers have shared.
func (s *site) fresh(target string) answer {
	s.t.Helper()
	s.store.Changed()
	return s.get(target)
}

// post sends JSON, as a script does that keeps to the document.
func (s *site) post(target, body string, change ...func(*http.Request)) answer {
	s.t.Helper()
	again := func(r *http.Request) {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	}
	return s.do("POST", target, body, append([]func(*http.Request){header("Content-Type", "application/json"), again}, change...)...)
}

// submit sends a form, as a browser without JavaScript does.
func (s *site) submit(target, body string, change ...func(*http.Request)) answer {
	s.t.Helper()
	return s.do("POST", target, body, append([]func(*http.Request){
		header("Content-Type", "application/x-www-form-urlencoded"), header("Sec-Fetch-Site", "same-origin"),
		header("Origin", "http://127.0.0.1:8080"),
	}, change...)...)
}

// refusedAsk is a request of the API and how it is refused.
type refusedAsk struct {
	method, target, body string
	status               int
	says                 string
}

func (s *site) refuses(asks []refusedAsk) {
	s.t.Helper()
	for _, c := range asks {
		a := s.do(c.method, apiPrefix+c.target, c.body, header("Content-Type", "application/json"))
		if a.StatusCode != c.status || !strings.Contains(a.body, c.says) {
			s.t.Errorf("%s %s %s answers %d %s, want %d with %q", c.method, c.target, c.body, a.StatusCode, a.body, c.status, c.says)
		}
	}
}

func (s *site) lands(a answer) answer {
	s.t.Helper()
	return s.get(a.want(s.t, http.StatusSeeOther).Header.Get("Location"))
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// want fails the test unless the answer has the status and holds the texts.
func (a answer) want(t testing.TB, status int, texts ...string) answer {
	t.Helper()
	must.Need(t, a.StatusCode == status, "status %d, want %d: %s", a.StatusCode, status, a.body)
	for _, text := range texts {
		must.Hold(t, strings.Contains(a.body, text), "the answer lacks %q:\n%s", text, a.body)
	}
	return a
}

func (a answer) lacks(t testing.TB, texts ...string) answer {
	t.Helper()
	for _, text := range texts {
		must.Hold(t, !strings.Contains(a.body, text), "the answer holds %q:\n%s", text, a.body)
	}
	return a
}

func (a answer) times(t testing.TB, n int, text string) {
	t.Helper()
	must.Equal(t, strings.Count(a.body, text), n, "the answer holds", text, "times")
}

func (a answer) header(t testing.TB, name, want string) {
	t.Helper()
	must.Equal(t, a.Header.Get(name), want, name, "is")
}

func (a answer) leads(t testing.TB, to string) {
	t.Helper()
	got := a.Header.Get("Location")
	must.Hold(t, strings.HasPrefix(got, to), "it leads to %q, want %q", got, to)
}

func decodeAs[T any](t testing.TB, a answer) T {
	t.Helper()
	var v T
	err := json.Unmarshal([]byte(a.body), &v)
	must.Need(t, err == nil, "%v in %s", err, a.body)
	return v
}
