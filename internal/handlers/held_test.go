package handlers

import (
	"context"
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestOverview_namesWhatIsPausedAmongProjections(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.beat("w", "test")
	s.get("/").want(t, 200, "All 2 campaigns are current.", "Nothing is paused or disabled", "in 0 campaigns").lacks(t, "live projections only")
	s.submit("/projections/campaigns/pause", "campaign_id=c-1&reason=a+bug").want(t, 303)
	s.get("/").want(t, 200, "Projection campaigns is paused for 1 campaign.", `data-testid="paused-campaigns"`, `href="/projections/campaigns?state=paused"`, "for 1 campaign").
		lacks(t, "Nothing is paused or disabled", "All 2 campaigns are current.")
	s.get("/api/v1/summary").want(t, 200, `"held_projections":[{"projection":"campaigns","paused":null,"paused_campaigns":1,`)
	s.get("/metrics").want(t, 200, "\noutboxweb_paused_projections{scope=\"all\"} 0\n", "\noutboxweb_paused_projections{scope=\"campaign\"} 1\n")

	s.submit("/projections/campaigns/resume", "campaign_id=c-1").want(t, 303)
	s.submit("/projections/campaigns/pause", "reason=a+bug").want(t, 303)
	s.get("/").want(t, 200, "Projection campaigns is paused for all campaigns.", `href="/projections/campaigns"`, "for all campaigns", "a bug").
		lacks(t, "All 2 campaigns are current.")
	s.get("/metrics").want(t, 200, "\noutboxweb_paused_projections{scope=\"all\"} 1\n", "\noutboxweb_paused_projections{scope=\"campaign\"} 0\n")
	s.submit("/projections/campaigns/resume", "").want(t, 303)
	s.get("/").want(t, 200, "All 2 campaigns are current.")
}

// Rows of a projection whose file was taken away stay as they are, and no verify covers them.
func TestPages_nameAProjectionThatIsNotLoadedAnyMore(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.beat("w", "test")
	const note = "Projection campaigns is not loaded any more: its rows are not updated, and not verified."
	s.get("/").want(t, 200, "All 2 campaigns are current.").lacks(t, note)
	if err := s.store.ReadModel().Leave(t.Context(), []string{"roster"}); err != nil {
		t.Fatal(err)
	}
	s.comes("/", note)
	s.get("/").want(t, 200, "All 2 campaigns are current in the loaded projections.", "live projections only", `data-testid="left-campaigns"`).lacks(t, "Nothing is paused or disabled")
	s.get("/projections").want(t, 200, `data-testid="left-campaigns"`).lacks(t, `data-testid="left-roster"`)
	s.get("/api/v1/summary").want(t, 200, `"held_projections":[{"projection":"campaigns","paused":null,`, `"not_loaded":true`)
}

func TestOverview_namesWhatIsQuarantined(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.beat("w", "test")
	s.get("/metrics").want(t, 200, "\noutboxweb_quarantined_projections 0\n")
	s.quarantine()
	s.comes("/", "1 projection is quarantined.")
	s.get("/").want(t, 200, `data-testid="quarantined-campaigns"`, `href="/projections/campaigns?state=quarantined"`, "#a-projection-is-quarantined", "for 1 campaign").
		lacks(t, "All 2 campaigns are current.")
	s.get("/api/v1/summary").want(t, 200, `"held_projections":[{"projection":"campaigns","paused":null,"paused_campaigns":0,`, `"quarantined":1`)
	s.get("/metrics").want(t, 200, "\noutboxweb_quarantined_projections 1\n")
}

func TestCampaign_tellsWhichProjectionsDoNotFollow(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.submit("/projections/campaigns/pause", "campaign_id=c-1&reason=a+bug").want(t, 303)
	const paused = "Everything is applied, but projection campaigns is paused"
	s.get("/campaigns/c-1").want(t, 200, paused)
	s.seed("c-1", "d", "e")
	s.work()
	s.get("/campaigns/c-1").want(t, 200, paused+", 2 events behind")
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"why":"`+paused+`, 2 events behind"`, `"held_projections":[{"projection":"campaigns","applied_seq":3,"lag_events":2,`)
	s.get("/campaigns/c-1/events/3").want(t, 200, "Applied. All events up to 5 are applied.").lacks(t, "applied in part")
	s.get("/campaigns/c-1/events/4").want(t, 200, `data-testid="applied-in-part"`, "Applied, but projection campaigns is paused, 2 events behind.")
	s.get("/").want(t, 200, "in 0 campaigns, live projections only")
	s.get("/campaigns/c-2").want(t, 200, "Everything is applied.").lacks(t, "but projection")
	s.get("/api/v1/campaigns/c-2").want(t, 200, `"held_projections":[]`)
}

// A replay after a resume waits for a blocking verify.
func TestPages_tellOfAProjectionThatWaitsForTheEndOfARun(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.submit("/projections/campaigns/pause", "campaign_id=c-1&reason=a+bug").want(t, 303)
	s.seed("c-1", "d", "e")
	s.work()
	s.beat("w", "test")
	verify := decodeAs[outbox.Run](t, s.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true}`).want(t, 202))
	to := s.submit("/projections/campaigns/resume", "campaign_id=c-1").want(t, 303).Header.Get("Location")
	waits := fmt.Sprintf("waits for run %d to end", verify.ID)
	linked := fmt.Sprintf(`waits for <a href="/runs/%[1]d">run %[1]d</a> to end`, verify.ID)
	standing := "but projection campaigns is 2 events behind"
	s.get(to).want(t, 200, waits)
	s.get("/projections/campaigns").want(t, 200, "Where it is behind,", linked)
	s.get("/projections").want(t, 200, linked)
	s.get("/campaigns/c-1").want(t, 200, standing+" and "+waits, "it "+linked)
	s.get("/").want(t, 200, "Projection campaigns is behind in 1 campaign and "+waits).lacks(t, "All 2 campaigns are current.")
	s.get("/api/v1/campaigns/c-1/projections").want(t, 200, fmt.Sprintf(`"run_id":0,"blocked_by_run":%d`, verify.ID))
	s.get("/api/v1/projections/campaigns/cursors").want(t, 200, fmt.Sprintf(`"run_id":0,"blocked_by_run":%d`, verify.ID))

	s.submit(fmt.Sprintf("/runs/%d/cancel", verify.ID), "").want(t, 303)
	replay := must(s.runs.Active(context.Background()))[0]
	catches := fmt.Sprintf("; run %d is catching it up", replay.ID)
	s.get("/campaigns/c-1").want(t, 200, standing+catches)
	s.get("/").want(t, 200, "is behind in 1 campaign"+catches)
	s.submit(fmt.Sprintf("/runs/%d/cancel", replay.ID), "").want(t, 303)
	s.get("/campaigns/c-1").want(t, 200, standing+", and no run is catching it up")
	s.get("/").want(t, 200, "is behind in 1 campaign, and no run is catching it up")

	// The end of a run that began later starts no replay.
	s.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true}`).want(t, 202)
	s.get("/campaigns/c-1").want(t, 200, standing+", and no run is catching it up")
}

// The journal is shown without the projections.
func TestOverview_saysThatPausesCannotBeRead(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.beat("w", "test")
	if _, err := dbtest.Open(t, s.sub.Projections).Exec(`drop table projection_versions`); err != nil {
		t.Fatal(err)
	}
	s.get("/").want(t, 200, "Paused projections cannot be read right now.").lacks(t, "Nothing is paused or disabled")
	s.get("/campaigns/c-1/events/1").want(t, 200, "Applied, though perhaps not to every projection")
	s.get("/api/v1/summary").want(t, 200, `"held_projections":null`)
	s.get("/metrics").want(t, 200, "\noutboxweb_campaigns 2\n").lacks(t, "outboxweb_paused_projections{", "outboxweb_quarantined_projections ")
}
