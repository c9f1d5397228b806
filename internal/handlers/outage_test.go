package handlers

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
)

// tryOnStore lets a site dry-run and explain the events of a campaign.
func tryOnStore(c *Config) {
	s := c.Queue
	c.DryRun = func(ctx context.Context, t replay.Trial) (replay.RunResult, error) {
		campaign, seq := t.CampaignID, t.Seq
		_, err := s.EventWithin(ctx, campaign, seq, 0)
		return replay.RunResult{CampaignID: campaign, Outcome: replay.OutcomeReplayed, Seq: seq, Projections: []replay.ProjectionResult{}, Rehearsed: &replay.Rehearsed{Head: seq, Applied: 1}}, err
	}
	c.Explain = func(ctx context.Context, _ projection.Hider, campaign string, seq int64) (projection.EventExplanation, error) {
		_, err := s.EventWithin(ctx, campaign, seq, 0)
		return projection.EventExplanation{CampaignID: campaign, Seq: seq, Failures: []projection.ExplainedFailure{}}, err
	}
	c.Rehearse = func(ctx context.Context, _ operator.Command, _ replay.RehearsalRequest) (replay.Run, error) {
		_, err := s.EventWithin(ctx, "c-1", 1, 0)
		return rehearsalQueued, err
	}
	c.ProjectionFile = func(name string) campaign.RehearsalFile { return campaign.RehearsalFile{Name: name + ".sql"} }
}

func everyRequest(t testing.TB, s *site) []sent {
	var all []sent
	must.OK(t, chi.Walk(s.srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		r := sent{method: method, target: plain.Replace(route)}
		switch {
		case method == http.MethodPost && strings.HasPrefix(route, apiPrefix):
			r.kind = "application/json"
		case method == http.MethodPost:
			r.kind = "application/x-www-form-urlencoded"
		}
		if method == http.MethodPost {
			r.body = neededBodies[route]
		}
		all = append(all, r)
		return nil
	}))
	return all
}

// neededBodies are for the routes that refuse a request without one.
var neededBodies = map[string]string{
	apiPrefix + "/campaigns/{campaign}/events": `{"event_type":"a","payload":{}}`,
	apiPrefix + "/operations":                  `{"filter":{}}`,
	apiPrefix + "/operations/preview":          `{"filter":{}}`,
	apiPrefix + "/runs":                        `{"kind":"verify","all_campaigns":true}`,
	"/runs":                                    "kind=verify&all_campaigns=true",
	apiPrefix + "/rehearsals":                  `{"files":[{"name":"a.sql","text":"-- projection: a"}]}`,
	"/rehearsals":                              "projection=a&text=changed",
	apiPrefix + "/failures/groups/note":        `{"fingerprint":"f","note":"n"}`,
	"/failures/groups/note":                    "fingerprint=f&note=n",
	"/failures/groups/retry":                   "fingerprint=f",

	apiPrefix + "/publishers/{topic}/{publisher}/seek": `{"to":"beginning"}`,
	apiPrefix + "/publishers/{topic}/{publisher}/skip": `{"position":1,"reason":"x"}`,
	"/publishers/{topic}/{publisher}/skip":             "position=1&reason=x",
	"/publishers/{topic}/{publisher}/seek":             "to=beginning",

	apiPrefix + "/findings/take":            `{"kind":"drift"}`,
	"/findings/take":                        "kind=drift",
	apiPrefix + "/alerts/rules/{rule}/mute": `{"for":"1h"}`,
	"/alerts/rules/{rule}/mute":             "for=1h",

	apiPrefix + "/intake/{source}/rejections/{rejection}/discard": `{"reason":"x","confirm":"x"}`,
	"/intake/{source}/rejections/{rejection}/discard":             "reason=x&confirm=x",
}

// answered is the longest acceptable wait for an answer while the database is down. It is less than requestTime, which ends any request.
const answered = 35 * time.Second

// TestPostgresAway_everybodyIsToldInTimeAndItHeals stops the server under the site and sends all
// requests, many at once, as open pages and scripts do.
func TestPostgresAway_everybodyIsToldInTimeAndItHeals(t *testing.T) {
	t.Parallel()
	server := must.Get(pgtest.Start()).Or(t)
	t.Cleanup(func() { must.OK(t, server.Stop()) })
	url := server.URL("outboxweb")
	pair := dbtest.Pair{Journal: dbtest.InSchema(url, "journal"), Projections: dbtest.InSchema(url, "projections")}
	patient := newSiteWith(t, pair, store.Options{}).trouble()
	s := newSiteWith(t, pair, store.Options{Wait: size.Of(2*time.Second, 2*time.Second, 0)}, tryOnStore)
	s.clock = patient.clock
	// It is cached for a second, so that the overview fails later on.
	must.Eventually(t, "the summary", func() bool { return s.get("/api/v1/summary").StatusCode == 200 })
	must.OK(t, server.Crash())
	var wg sync.WaitGroup
	for range size.Of(1, 1, 4) {
		for _, r := range everyRequest(t, s) {
			wg.Go(func() {
				asked := time.Now()
				a := s.send(r)
				waited := time.Since(asked)
				must.Hold(t, waited <= answered, "%s was answered after %s", r, waited)
				s.wantAway(r, a)
			})
		}
	}
	wg.Wait()
	s.heals(server)
}

// wantAway fails the test unless the answer is suitable for a database that is down.
func (s *site) wantAway(r sent, a answer) {
	want := 503
	switch r.target {
	case "/healthz", "/metrics", "/docs", "/runs/new", "/rehearsals/new", "/search/suggestions", apiPrefix + "/find", apiPrefix + "/openapi.json":
		want = 200
	case "/static/none", "/docs/{document}", "/alerts/receivers/chat/test", apiPrefix + "/alerts/receivers/chat/test": // this server has no receiver
		want = 404
	case "/operating":
		want = 308
	case "/campaigns/c-1/read-model/cell", apiPrefix + "/campaigns/c-1/read-model", apiPrefix + "/campaigns/c-1/read-model/cell", apiPrefix + "/campaigns/c-1/events/2/changes", // this server replays no read models
		"/campaigns/c-1/events/2/fixture", apiPrefix + "/campaigns/c-1/events/2/fixture":
		want = 404
	case "/rows/requeue", "/search":
		want = 303
	case "/views", "/views/{view}/rename", "/views/{view}/remove": // nothing was given
		want = 422
	case apiPrefix + "/summary", "/watch", apiPrefix + "/findings", "/intake", "/intake/shop", apiPrefix + "/intake", apiPrefix + "/intake/shop/rejections", "/publishers", apiPrefix + "/publishers":
		if a.StatusCode < 500 { // of a shared one
			return
		}
	}
	kind := a.Header.Get("Content-Type")
	switch {
	case a.StatusCode != want:
		s.t.Errorf("%s is answered with %d while the database is away: %.300s", r, a.StatusCode, a.body)
	case want != 503:
	case r.target == "/readyz":
		must.Hold(s.t, strings.Contains(a.body, `"reasons":["the journal database cannot be r`) && strings.Contains(a.body, `"the projections database cannot be r`), "/readyz gives no reasons: %s", a.body)
	case a.Header.Get("Retry-After") != "" && strings.Contains(a.body, "oo many others are ") && strings.Contains(a.body, "; try again in a moment"): // there is room for few at a time
	case a.Header.Get("Retry-After") == "" || !strings.Contains(a.body, "unavailable; try again") || strings.Contains(a.body, "locked"):
		s.t.Errorf("%s is answered with %v %.300s", r, a.Header, a.body)
	case strings.HasPrefix(r.target, apiPrefix) && kind != "application/problem+json", !strings.HasPrefix(r.target, apiPrefix) && kind != "text/html; charset=utf-8":
		s.t.Errorf("%s is answered as %s", r, kind)
	}
}

// heals fails the test unless the site works again once the server does.
func (s *site) heals(server *pgtest.Server) {
	waiting := make(chan answer, 1)
	go func() {
		waiting <- s.post("/api/v1/campaigns/c-9/events", `{"event_id":"e-1","event_type":"a","payload":{}}`)
	}()
	ctx, cancel := context.WithTimeout(s.t.Context(), must.Patience)
	defer cancel()
	must.OK(s.t, server.Launch(ctx))
	a := <-waiting
	must.Hold(s.t, a.StatusCode == 201 || a.StatusCode == 503, "an append that waited for the server is answered with %d %s", a.StatusCode, a.body)
	must.Eventually(s.t, "readiness", func() bool { return s.get("/readyz").StatusCode == 200 })
	must.Eventually(s.t, "an append", func() bool {
		return s.post("/api/v1/campaigns/c-9/events", `{"event_type":"a","payload":{}}`).StatusCode == 201
	})
	for _, r := range everyRequest(s.t, s) { // what failed is shared for as long as what was read
		must.Eventually(s.t, r.String(), func() bool { return s.send(r).StatusCode < 500 })
	}
}

func TestSQLiteDamaged_namesTheWayOut(t *testing.T) {
	t.Parallel()
	pair := dbtest.Files(t.TempDir())
	before := newSiteOn(t, pair)
	before.seed("c-1", "noted")
	journal := dbtest.Open(t, pair.Journal)
	var root int64
	must.OK(t, journal.QueryRow(`select rootpage from sqlite_master where name = 'campaigns'`).Scan(&root))
	must.OK(t, journal.Close())
	must.OK(t, before.store.Close())
	file := must.Get(os.OpenFile(filepath.Join(pair.Dir, "journal.db"), os.O_WRONLY, 0)).Or(t)
	must.Get(file.WriteAt(make([]byte, 4096), (root-1)*4096)).Or(t)
	must.OK(t, file.Close())
	s := newSiteOn(t, pair)
	const says = "part of the database is damaged and cannot be read; outboxweb check lists what is affected, and the runbook explains how to recover, under “A database is damaged”"
	for _, at := range []string{"/", "/campaigns"} {
		s.get(at).want(t, 500, says[1:], `href="/docs/operating`)
	}
	s.get("/api/v1/campaigns").want(t, 500, says)
	s.get("/docs/operating").want(t, 200, `id="a-database-is-damaged"`, "A database is damaged")
	s.get("/readyz").want(t, 503, "the file of the journal database is malformed")
}
