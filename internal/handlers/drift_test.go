package handlers

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// noteDrift records the result of a background verify.
func (s *site) noteDrift(campaign string, verdict outbox.Verdict) {
	s.t.Helper()
	for _, name := range []string{"campaigns", "roster"} {
		must.OK(s.t, s.store.RecordVerifications(context.Background(), []outbox.Verification{{CampaignID: campaign, Projection: name, Seq: 2, Verdict: verdict, Changed: 1}}))
	}
}

func TestDrift_thatAVerifyFoundCountsWhereverStateIsShown(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b")
	s.seed("c-2", "a")
	s.seed("c-3", "a", "b")
	s.work()
	s.get("/api/v1/summary").want(t, 200, `"drifted":0`)
	s.get("/campaigns/c-1").want(t, 200, "Everything is applied.").lacks(t, "drifted")
	s.noteDrift("c-1", outbox.VerdictDrift)
	s.noteDrift("c-3", outbox.VerdictDrift)
	s.seed("c-3", "a") // a new event waits, and the rows still differ

	s.fresh("/api/v1/summary").want(t, 200, `drifted":2`)
	s.fresh("/").want(t, 200, `2 campaigns drifted`)
	s.get("/").want(t, 200, `h-bad`, `data-testid="count-drifted">2<`, `href="/campaigns?state=drifted"`, `data-testid="drifted"`).lacks(t, "campaigns are current")
	s.get("/campaigns/c-1").want(t, 200, "s-drifted", "drifted", "The rows of 2 projections differed from the journal at the last verification", `#a-projection-is-wrong`)
	s.get("/campaigns?state=drifted").want(t, 200, `id="campaign-c-1"`, `id="campaign-c-3"`).lacks(t, `id="campaign-c-2"`)
	s.get("/campaigns?state=drifted&sort=lag").want(t, 200, `id="campaign-c-1"`)
	s.get("/api/v1/campaigns?state=drifted").want(t, 200, `"campaign_id":"c-1"`, `"state":"drifted"`, `"drifted":2`, `"total":2`)
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"state":"drifted"`, `"why":"The rows of 2 projections differed from the journal at the last verification; a rebuild fixes them if the projection files are right"`)
	s.get("/api/v1/campaigns/c-2").want(t, 200, `"state":"current"`, `"drifted":0`)

	m := metrics.New(s.store.Summary)
	if body := scraped(t, m); !strings.Contains(body, "\noutboxweb_drifted_campaigns 2\n") {
		t.Error("the gauge that the alarm watches does not say that two campaigns have drifted")
	}
	s.noteDrift("c-1", outbox.VerdictMatch)
	s.noteDrift("c-3", outbox.VerdictMatch)
	s.fresh("/api/v1/summary").want(t, 200, `drifted":0`)
	s.get("/campaigns/c-1").want(t, 200, "Everything is applied.").lacks(t, "s-drifted")
}

// A verdict belongs to the version that it compared with: once another one is loaded it is no reason to
// rebuild.
func TestDrift_ofAVersionThatIsNotLoadedAsksForAVerify(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b")
	s.work()
	load := func(version string) {
		t.Helper()
		s.clock = s.clock.Add(time.Minute)
		must.OK(t, s.store.Loaded(t.Context(), outbox.InstanceState{ID: "i"}, []outbox.Definition{{Projection: "campaigns", Version: version}}))
	}
	load("bad")
	must.OK(t, s.store.RecordVerifications(t.Context(), []outbox.Verification{{CampaignID: "c-1", Projection: "campaigns", Version: "bad", Seq: 2, Verdict: outbox.VerdictDrift, Changed: 1, FirstSeq: 2}}))
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"version":"bad"`, `"outdated":false`)
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"drifted":1`, `"outdated_drift":0`, "a rebuild fixes them")
	load("v1")
	s.fresh("/api/v1/summary").want(t, 200, `"outdated_drift":1`)
	s.fresh("/").want(t, 200, "1 campaign differed from version bad of projection campaigns, which is not loaded any more; verify again with the loaded version v1")
	s.get("/").want(t, 200, "h-warn", "1 campaign differed from versions of projections that are not loaded any more: verify again.", `href="/runs/new?all=1&amp;kind=verify&amp;projection=campaigns"`).
		lacks(t, "kind=rebuild", "differ from the journal", `data-testid="drifted"`)
	s.get("/campaigns/c-1").want(t, 200, "The rows of 1 projection differed from a version that is not loaded any more; verify again with the loaded one",
		"1 row changed, compared with version bad of projection campaigns, which is not loaded any more").lacks(t, "a rebuild fixes them", "first divergence")
	s.get("/campaigns").want(t, 200, "differed from a version that is not loaded any more").lacks(t, "a rebuild fixes them")
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"outdated":true`)
	s.get("/api/v1/campaigns?state=drifted").want(t, 200, `"drifted":1`, `"outdated_drift":1`)
	load("bad")
	s.fresh("/api/v1/summary").want(t, 200, `"outdated_drift":0`)
	const could = "The last verify could not replay its events"
	for version, says := range map[string]string{"bad": could, "v1": could + "; that was with a version that is not loaded any more: verify again with the loaded one"} {
		must.OK(t, s.store.RecordVerifications(t.Context(), []outbox.Verification{{CampaignID: "c-1", Projection: "campaigns", Version: version, Seq: 2, Verdict: outbox.VerdictFailed}}))
		s.get("/api/v1/campaigns?state=unverifiable").want(t, 200, `"why":"`+says+`"`)
	}
}

func TestVerify_thatCouldNotBeMadeCountsWhereverStateIsShown(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b")
	s.seed("c-2", "a")
	s.work()
	m := metrics.New(s.store.Summary)
	const reason = "event 2 has changed since it was appended: its content no longer matches its hash"
	note := func(v outbox.Verification) {
		t.Helper()
		v.CampaignID, v.Projection, v.Seq = "c-1", "campaigns", 2
		must.OK(t, s.store.RecordVerifications(context.Background(), []outbox.Verification{v}))
	}
	note(outbox.Verification{Verdict: outbox.VerdictFailed, RunID: 7, Error: reason})
	s.fresh("/api/v1/summary").want(t, 200, `"unverifiable":1`)
	s.fresh("/").want(t, 200, "1 campaign could not be verified")
	s.get("/").want(t, 200, reason, `href="/runs/7/results/c-1"`, "h-bad", `data-testid="count-unverifiable">1<`, `href="/campaigns?state=unverifiable"`, "#when-a-campaign-cannot-be-verified").lacks(t, "campaigns are current")
	s.get("/campaigns/c-1").want(t, 200, "Could not be verified at ", ": "+reason+" (run 7)", "s-unverifiable", "could not be verified: "+reason, `href="/runs/7/results/c-1"`, "#when-a-campaign-cannot-be-verified").
		lacks(t, "Never verified", "Everything is applied.")
	s.get("/campaigns?state=unverifiable").want(t, 200, `id="campaign-c-1"`).lacks(t, `id="campaign-c-2"`)
	s.get("/api/v1/campaigns?state=unverifiable").want(t, 200, `"campaign_id":"c-1"`, `"unverifiable":1`, `"state":"unverifiable"`, `"total":1`)
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"why":"Could not be verified at `, ": "+reason+" (run 7)", `"unverifiable":1`)
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"verdict":"failed"`, `"error":"`+reason, `"run_id":7`, `"seq":2`)
	if body := scraped(t, m); !strings.Contains(body, "\noutboxweb_unverifiable_campaigns 1\n") {
		t.Error("the gauge that the alarm watches does not tell of the campaign")
	}
	note(outbox.Verification{Verdict: outbox.VerdictFailed, Error: reason})
	s.get("/campaigns/c-1").want(t, 200, reason+" (in the background)", "in the background")

	note(outbox.Verification{Verdict: outbox.VerdictMatch})
	s.fresh("/api/v1/summary").want(t, 200, `"unverifiable":0`)
	s.get("/campaigns/c-1").want(t, 200, "Everything is applied.").lacks(t, "not be verified")
}

func TestProjection_thatBlocksCampaignsDoesNotSayThatItFollowsThem(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	for _, id := range []string{"c-1", "c-2"} {
		seq := int64(2)
		err := s.store.ReadModel().Apply(context.Background(), func(tx *readmodel.ApplyTx) error {
			return errors.Join(tx.Failed("campaigns", &outbox.Event{CampaignID: id, Seq: seq, EventType: "b"}, readmodel.Failure{Message: "no seat", Fingerprint: "f"}),
				tx.Failed("campaigns", &outbox.Event{CampaignID: id, Seq: seq + 1, EventType: "b"}, readmodel.Failure{Message: "no seat", Fingerprint: "f"}))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.get("/api/v1/projections/campaigns").want(t, 200, `"blocking":2`, `"open_failures":4`)
	for _, page := range []string{"/projections/campaigns", "/projections"} {
		s.get(page).want(t, 200, "An event fails in it in 2 campaigns, which wait.", "s-dead", "blocking").lacks(t, "Live in every campaign.")
	}
	s.get("/projections/campaigns").want(t, 200, "Not paused, quarantined or behind in any campaign.").lacks(t, "It has passed every event")
	// What it is set aside for goes on without it, and is not held up.
	s.quarantine()
	s.get("/api/v1/projections/campaigns").want(t, 200, `"blocking":1`, `"quarantined":1`)
	s.get("/api/v1/projections/campaigns/cursors").want(t, 200, `"lag_seconds":`, `"last_applied_at":`, `"attempts":`)
	s.get("/projections/campaigns").want(t, 200, "An event fails in it in 1 campaign, which waits.", "Not live in 1 campaign, which advances without it.", "Last applied</th>")
}

// scraped is what Prometheus reads.
func scraped(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}
