package handlers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// badDeploy kills 40 of 60 campaigns with one error, and two with others.
func (s *site) badDeploy() *site {
	s.t.Helper()
	for i := range 60 {
		types := []string{"a", "b"}
		switch {
		case i < 40:
			types = []string{"a", poison, "b", "c"}
		case i == 40:
			types = []string{hopeless, "b"}
		}
		s.seed(fmt.Sprintf("c-%02d", i), types...)
	}
	s.work()
	return s
}

func TestOverview_ofABadDeployStartsFromItsCause(t *testing.T) {
	s := ownSite(t).badDeploy()
	a := s.get("/").want(t, 200, "41 of 60 campaigns are blocked", `data-testid="events-behind">122<`, `data-testid="failing-causes">2<`,
		"40 campaigns blocked, 120 events waiting", "1 campaign blocked, 2 events waiting", `data-testid="since"`, "running now", "loaded now", "All 40 campaigns</a>", outbox.ScoreRule)
	if n := strings.Count(a.body, `data-testid="cause"`); n != 2 {
		t.Errorf("%d blocks, want 2", n)
	}
	order := []string{`data-testid="health"`, `class="hero"`, "40 campaigns blocked", "1 campaign blocked", `class="statuses"`, `class="history"`, `id="off"`}
	for i := 1; i < len(order); i++ {
		if strings.Index(a.body, order[i-1]) > strings.Index(a.body, order[i]) {
			t.Errorf("%s comes after %s", order[i-1], order[i])
		}
	}
	if n := strings.Count(a.body, `id="campaign-`); n != 4 {
		t.Errorf("%d campaigns are named, want three of one and one of the other", n)
	}
	a.lacks(t, `data-testid="requeue"`)
	if len(a.body) > 60_000 {
		t.Errorf("the page has %d bytes", len(a.body))
	}
	s.get("/api/v1/failures/groups").want(t, 200, `"campaigns":40`, `"events_waiting":120`, `"next_attempt_at":null`, `"fails_now":true`, `"operation":null`, `"worst":[{"campaign_id":"c-00","head_seq":2,"head_status":"dead"`)
	s.post("/api/v1/operations", fmt.Sprintf(`{"filter":{"fingerprint":%q},"canary":true}`, outbox.Fingerprint(`seat "7" is <taken>`))).want(t, 202)
	s.fresh("/").want(t, 200, "is retrying these: canary running")
	s.get("/").want(t, 200, "Watch operation 1").lacks(t, `href="/operations/new?fingerprint=seat`)
}

func TestOverview_mixedSaysWhenFailedRowsAreRetried(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", poison, "a")
	s.seed("c-2", "a")
	s.pass()
	s.get("/").want(t, 200, "1 campaign retrying, 2 events waiting", "next retry").lacks(t, "Requeue with a canary")
	s.submit("/campaigns/c-2/pause", "reason=x").want(t, 303)
	s.fresh("/").want(t, 200, `<a href="/campaigns/c-2"><code>c-2</code></a>`)
}

// What shadow mode found is grouped as failures are, and offers nothing that would act on rows.
func TestShadow_outcomesAreCauses(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Mode = outbox.ModeShadow })
	wrong := map[string]string{"a": "seat 7 is taken", "b": "seat 8 is taken", "c": "seat 9 is taken", "d": "too long"}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.seed(id, "x", "y")
	}
	s.get("/").want(t, 200, "No campaign is blocked or failing.").lacks(t, "Shadow mode has rehearsed")
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r := store.Rehearsal{CampaignID: id, RehearsedSeq: 2}
		if why := wrong[id]; why != "" {
			r = store.Rehearsal{CampaignID: id, RehearsedSeq: 1, FailedSeq: 2, Error: why, Fingerprint: outbox.Fingerprint(why)}
		}
		must.OK(t, s.store.RecordRehearsal(t.Context(), r))
	}
	s.store.Changed()
	for _, page := range []string{"/", "/failures"} {
		s.get(page).want(t, 200, "Shadow mode has rehearsed 10 events: 4 would fail, and the events behind those were not tried.",
			"3 campaigns would be blocked, 3 events waiting", "1 campaign would be blocked, 1 event waiting", "seat 7 is taken", "too long", `href="/campaigns/a/events/2"`, "nothing was applied: it would fail until the cause is fixed").
			lacks(t, "Requeue with a canary", "No campaign is blocked or failing", "No failed or dead rows")
	}
	s.get("/").want(t, 200, `data-testid="failing-causes">2<`)
	s.get("/failures?fingerprint=too+long").want(t, 200, "1 would fail", "too long").lacks(t, "seat 7")
	s.get("/campaigns/d/events/2").want(t, 200, `<a href="/failures?fingerprint=too+long">The cause</a>`)
	s.get("/api/v1/failures/groups").want(t, 200, `"rehearsed":{"events":10,"failing":4}`, `"rehearsed":3`, `"head_seq":2,"head_status":"pending"`, `"capped":false,"more":false`)
	s.post("/api/v1/failures/groups/note", `{"fingerprint":"too long","note":"known"}`).want(t, 200)
	s.submit("/campaigns/d/pause", "reason=x").want(t, 303) // what is stopped is not rehearsed again
	s.fresh("/failures").want(t, 200, "Shadow mode has rehearsed 8 events: 3 would fail")
	s.get("/failures").lacks(t, "too long")
}

func TestOverview_healthyIsCalm(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.work()
	s.beat("w", "test")
	s.get("/").want(t, 200, "The only campaign is current.", "No campaign is blocked or failing.", `data-testid="failing-causes">0<`).lacks(t, `data-testid="cause"`, "Other problems")
}
