package handlers

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// withRoster is a site whose one projection is also in the database, with two campaigns applied to
// it.
func withRoster(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	must.OK(t, s.store.ReadModel().Install(context.Background(), []readmodel.Projection{{Name: "campaigns", Version: "v1"}}))
	s.seed("c-1", "a", "b", "c")
	s.seed("c-2", "a")
	s.work()
	return s
}

// quarantine quarantines the projection in c-1 at its second event.
func (s *site) quarantine() {
	s.t.Helper()
	err := s.store.ReadModel().Apply(context.Background(), func(tx *readmodel.ApplyTx) error {
		e := &outbox.Event{CampaignID: "c-1", Seq: 2, EventType: "b"}
		return errors.Join(tx.Failed("campaigns", e, readmodel.Failure{Message: "no <seat>", Fingerprint: "f"}), tx.Quarantine("campaigns", e))
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestProjection_pausesAreReadThroughTheAPI(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.post("/api/v1/projections/campaigns/pause", `{"reasons":""}`).want(t, 422)
	hold := decodeAs[outbox.ProjectionPause](t, s.post("/api/v1/projections/campaigns/pause", `{"campaign_id":"c-1","reason":"a bug"}`).want(t, 200))
	if hold != (outbox.ProjectionPause{Projection: "campaigns", CampaignID: "c-1", State: "paused", AppliedSeq: 3}) {
		t.Errorf("paused as %+v", hold)
	}
	s.get("/api/v1/projections/campaigns/cursors").want(t, 200, `"campaign_id":"c-1"`, `"reason":"a bug"`, `"lag_events":0`)
	s.get("/api/v1/projections/campaigns/cursors?state=behind").want(t, 200, `"items":[]`)
	s.get("/api/v1/projections/campaigns/cursors?state=live").want(t, 422, "state")
	s.get("/api/v1/campaigns/c-1/projections").want(t, 200, `"state":"paused"`, `"paused_for_all":false`)
	s.post("/api/v1/projections/campaigns/pause", `{"reason":"all of it"}`).want(t, 200, `"campaign_id":""`)
	s.get("/api/v1/projections/campaigns").want(t, 200, `"paused":{"by":"local"`, `"reason":"all of it"`)
	s.post("/api/v1/projections/campaigns/resume", `{}`).want(t, 200, `"behind":0`)
}

func TestFailures_ofProjectionsThroughTheAPI(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.get("/api/v1/failures").want(t, 200, `"items":[]`)
	s.quarantine()
	list := decodeAs[items[outbox.ProjectionFailure]](t, s.get("/api/v1/failures?status=open&campaign=c-1&projection=campaigns&fingerprint=f").want(t, 200)).Items
	if len(list) != 1 || list[0].Seq != 2 || list[0].Attempts != 1 || list[0].Message != "no <seat>" || list[0].ResolvedAt != nil {
		t.Fatalf("failures %+v", list)
	}
	s.get(fmt.Sprint("/api/v1/failures/", list[0].ID)).want(t, 200, `"status":"open"`)
	s.get("/api/v1/failures?status=resolved").want(t, 200, `"items":[]`)
	s.get("/api/v1/failures?status=lost").want(t, 422, "status")
	s.get("/api/v1/failures/99").want(t, 404)
	s.get("/api/v1/failures/x").want(t, 422)
	s.get("/api/v1/projections").want(t, 200, `"quarantined":1`, `"open_failures":1`)
}

func TestProjectionPages_tellWhatIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.get("/projections").want(t, 200, "Not paused, quarantined or behind in any campaign.", `action="/projections/campaigns/pause"`)
	s.get("/projections/campaigns").want(t, 200, "No open failures.", "No actions here.").lacks(t, "not built by this version")
	s.get("/projections/nothing").want(t, 404)
	s.quarantine()
	s.get("/projections/campaigns?state=quarantined").want(t, 200, `data-testid="cursor-c-1"`, `href="/campaigns/c-1/events/2"`, "no &lt;seat&gt;")
	s.get("/projections/campaigns?state=paused").want(t, 200, "Not paused in any campaign.").lacks(t, `data-testid="cursor-c-1"`)
	s.get("/failures").want(t, 200, "Projection failures", `href="/projections/campaigns"`, "no &lt;seat&gt;",
		"No row is failed or dead: campaigns continue without the projections that are quarantined.", `data-testid="quarantined-by-f"`, `>1 campaign</a>`).lacks(t, "No failed or dead rows.")
	s.get("/failures?projection=other").lacks(t, `data-testid="quarantined-by-f"`)
	s.get("/api/v1/failures/groups").want(t, 200, `"items":[]`, `"quarantined":[{"projection":"campaigns","fingerprint":"f","example":"no <seat>","campaigns":1,`)
	s.get("/failures?status=resolved").want(t, 200, "No matching failures.")
	s.get("/failures?projection=other").want(t, 200, "only <bdi>other</bdi>; show all")
	s.get("/campaigns/c-1").want(t, 200, "quarantined").lacks(t, `data-testid="pause-campaigns"`)
	s.get("/campaigns/c-1/events/1").want(t, 200, "Applied. All events up to 3 are applied, but projection campaigns is quarantined, ")

	s.lands(s.submit("/projections/campaigns/pause", "campaign_id=c-2&reason=look&return_to=campaign")).want(t, 200, "Paused projection campaigns for campaign c-2, at event 1.", `data-testid="resume-campaigns"`)
	s.lands(s.submit("/projections/campaigns/pause", "reason=stop")).want(t, 200, "Paused projection campaigns for all campaigns.", "reason: stop", `data-testid="resume-campaigns"`)
	s.get("/").want(t, 200, "1 projection is quarantined", "for all campaigns", `data-testid="quarantined-campaigns"`)
	s.get("/api/v1/summary").want(t, 200, `"quarantined":1`)
	s.get("/projections").want(t, 200, "Paused for all campaigns by local", `action="/projections/campaigns/resume"`)
	s.get("/campaigns/c-2").want(t, 200, "resume on the projection's page")
	s.lands(s.submit("/projections/campaigns/resume", "")).want(t, 200, "Resumed projection campaigns for all campaigns. It is still quarantined in 1 campaign: replay it there once its file is fixed.", "Paused projection campaigns for all campaigns.")
	s.get("/audit?action=projection_resume").want(t, 200, "Resumed projection campaigns for all campaigns.")
	if n := len(must.Get(s.store.AuditLogOf(context.Background(), 10, outbox.ProjectionTarget("campaigns"))).Or(t)); n != 3 {
		t.Errorf("%d acts on the projection, want 3", n)
	}
}

func TestProjectionsPage_saysHowOftenAnEventIsTried(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Projections = []outbox.ProjectionInfo{{Name: "patient", Version: "v1", OnFailure: "block", MaxAttempts: 3, EventTypes: []string{}, Tables: []string{}},
			{Name: "usual", Version: "v1", OnFailure: "quarantine", EventTypes: []string{}, Tables: []string{}}}
	})
	s.get("/projections").want(t, 200, "after 3 failed attempts", "after the number of failed attempts that <code class=\"flag\">--max-attempts</code> sets")
	s.get("/api/v1/projections").want(t, 200, `"max_attempts":3`, `"max_attempts":0`)
}
