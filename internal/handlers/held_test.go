package handlers

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
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
	must.OK(t, s.store.ReadModel().Leave(t.Context(), []string{"roster"}))
	s.fresh("/").want(t, 200, note)
	s.get("/").want(t, 200, "All 2 campaigns are current in the loaded projections.", "live projections only", `data-testid="left-campaigns"`).lacks(t, "Nothing is paused or disabled")
	s.get("/projections").want(t, 200, `data-testid="left-campaigns"`).lacks(t, `data-testid="left-roster"`)
	s.get("/api/v1/summary").want(t, 200, `"held_projections":[{"projection":"campaigns","paused":null,`, `"not_loaded":true`)
}

// The journal knows a projection that is not loaded, and its page says what to do with it.
func TestProjection_thatIsNotLoadedHasAPage(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.get("/projections/gone").want(t, 404)
	must.OK(t, s.store.ReadModel().Install(t.Context(), []readmodel.Projection{{Name: "gone", Version: "v7"}}))
	gone := outbox.Definition{Projection: "gone", Version: "v7", File: outbox.RehearsalFile{Name: "gone.sql", Text: "-- projection: <gone>"}}
	must.OK(t, s.store.Loaded(t.Context(), outbox.InstanceState{ID: "w", Host: "h"}, []outbox.Definition{gone}))
	err := s.store.ReadModel().Apply(t.Context(), func(tx *readmodel.ApplyTx) error {
		return tx.Failed("gone", &outbox.Event{CampaignID: "c-1", Seq: 2, EventType: "b"}, readmodel.Failure{Message: "no <seat>", Fingerprint: "f"})
	})
	if err != nil {
		t.Fatal(err)
	}
	must.OK(t, s.store.ReadModel().Leave(t.Context(), []string{"campaigns"}))
	s.get("/projections").want(t, 200, `<a href="/projections/gone">`)
	s.get("/projections/gone").want(t, 200, `data-testid="unloaded"`, "not loaded", "v7", "gone.sql", "no &lt;seat&gt;", `href="/campaigns/c-1/events/2"`, "-- projection: &lt;gone&gt;", "removing-a-projection")
	s.changeProjections(`insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('c-1', 'gone', 1, 'quarantined', 1), ('c-2', 'gone', 1, 'behind', 1)`)
	const without = "Events were applied without it in 2 campaigns; it is quarantined in 1 of them."
	s.get("/projections").want(t, 200, without, "except where it is quarantined: it stays quarantined there until you start a replay of it.")
	s.get("/projections/gone").want(t, 200, without, "#a-projection-is-quarantined", `data-testid="cursor-c-1"`, `data-testid="cursor-c-2"`)
	s.get("/projections/gone?state=behind").want(t, 200, `data-testid="cursor-c-2"`).lacks(t, `data-testid="cursor-c-1"`)
	s.get("/api/v1/projections/gone/cursors").want(t, 200, `"campaign_id":"c-1","projection":"gone","applied_seq":1`, `"state":"quarantined","not_loaded":true`)
	s.get("/api/v1/projections").want(t, 200, `"name":"campaigns","not_loaded":false`, `"name":"gone","not_loaded":true,"version":"","tables":[]`)
	s.get("/api/v1/projections/gone").want(t, 200, `"name":"gone","not_loaded":true`, `"open_failures":1`)
	s.get("/api/v1/projections/none").want(t, 404, "no projection")
}

func TestOverview_namesWhatIsQuarantined(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.beat("w", "test")
	s.get("/metrics").want(t, 200, "\noutboxweb_quarantined_projections 0\n")
	s.quarantine()
	s.fresh("/").want(t, 200, "1 projection is quarantined.")
	s.get("/").want(t, 200, `data-testid="quarantined-campaigns"`, `href="/projections/campaigns?state=quarantined"`, "#a-projection-is-quarantined", "for 1 campaign").
		lacks(t, "All 2 campaigns are current.")
	s.get("/runs/new?kind=rebuild&all=1").want(t, 200, `data-testid="failing-now"`, "verify, rebuild and replay fail where it does")
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
	s.get("/campaigns/c-1/events/3").want(t, 200, "Applied. All events up to 5 are applied, but projection campaigns is paused, 2 events behind.").lacks(t, "applied in part")
	s.get("/campaigns/c-1/events/4").want(t, 200, `data-testid="applied-in-part"`, "Applied, but projection campaigns is paused, 2 events behind.")
	s.get("/").want(t, 200, "in 0 campaigns, live projections only")
	s.get("/campaigns/c-2").want(t, 200, "Everything is applied.").lacks(t, "but projection")
	s.get("/api/v1/campaigns/c-2").want(t, 200, `"held_projections":[]`)
}

// Lists say of what is applied that a projection lacks it, as the pages of an event and a campaign do.
func TestLists_sayWhatAProjectionThatIsNotLiveLacks(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	const inPart, behind = `data-testid="applied-in-part"`, `data-testid="current-in-part"`
	applied := func(seq int) string {
		return fmt.Sprintf(`"campaign_id":"c-1","seq":%d,"state":"applied","waits_behind":0,"held_projections":[`, seq)
	}
	s.get("/events").want(t, 200, "applied").lacks(t, inPart, "held-unknown")
	s.get("/campaigns").want(t, 200, "Everything is applied").lacks(t, behind, "but projection", "held-unknown")
	s.get("/api/v1/campaigns").want(t, 200, `"held_projections":[]`).lacks(t, `"held_projections":[{`)
	s.submit("/projections/campaigns/pause", "campaign_id=c-1&reason=a+bug").want(t, 303)
	for _, page := range []string{"/campaigns", "/campaigns/c-1"} { // nothing is behind yet
		s.get(page).want(t, 200, "but projection campaigns is paused").lacks(t, behind)
	}
	s.seed("c-1", "d", "e")
	s.work()
	if n := strings.Count(s.get("/events").want(t, 200, `title="Applied, but projection campaigns is paused, 2 events behind" `+inPart).body, inPart); n != 2 {
		t.Errorf("%d events are applied in part, want 2", n)
	}
	s.get("/api/v1/events").want(t, 200, applied(3)+"]", applied(4)+`{"projection":"campaigns","applied_seq":3,"lag_events":2,`, applied(5)+"{")
	const text = "Everything is applied, but projection campaigns is paused, 2 events behind"
	list := s.get("/campaigns").want(t, 200, behind, "current, 1 projection behind", text)
	if n := strings.Count(list.body, behind); n != 1 {
		t.Errorf("%d campaigns are marked, want 1", n)
	}
	s.get("/campaigns?state=current").want(t, 200, behind)
	s.get("/campaigns/c-1").want(t, 200, behind, "current, 1 projection behind")
	s.get("/campaigns/c-2").want(t, 200).lacks(t, behind)
	s.get("/api/v1/campaigns?sort=id").want(t, 200, `"state":"current","held_projections":[{"projection":"campaigns","applied_seq":3,"lag_events":2,`, `"why":"`+text+`"`, `"held_projections":[],`)
	if one := decodeAs[outbox.CampaignView](t, s.get("/api/v1/campaigns/c-1").want(t, 200)); !reflect.DeepEqual(one, decodeAs[outbox.Page[outbox.CampaignView]](t, s.get("/api/v1/campaigns?sort=id").want(t, 200)).Items[0]) {
		t.Errorf("the campaign by itself is %+v, which the list does not say", one)
	}
	s.get("/export/campaigns").want(t, 200, text)
	s.submit("/campaigns/c-1/pause", "reason=look").want(t, 303)
	s.get("/campaigns").want(t, 200, "paused").lacks(t, behind)
}

// A campaign that has not moved since a pause for all campaigns lacks nothing.
func TestLists_countAPauseForAllOnlyWhereEventsFollowed(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.submit("/projections/campaigns/pause", "reason=a+bug").want(t, 303)
	err := s.store.ReadModel().Apply(context.Background(), func(tx *readmodel.ApplyTx) error { // as a worker before the next event
		w, err := tx.Watermark("c-2")
		if err == nil {
			_, err = tx.ExcludePaused("c-2", w, nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.seed("c-2", "b")
	s.work()
	s.get("/api/v1/campaigns?sort=id").want(t, 200, `"held_projections":[{"projection":"campaigns","applied_seq":3,"lag_events":0,`, `"held_projections":[{"projection":"campaigns","applied_seq":1,"lag_events":1,`, `"paused_for_all":true`)
	if n := strings.Count(s.get("/campaigns").want(t, 200, "is paused for all campaigns, 1 event behind").body, "current-in-part"); n != 1 {
		t.Errorf("%d campaigns are marked, want 1", n)
	}
	if n := strings.Count(s.get("/events").want(t, 200).body, "applied-in-part"); n != 1 {
		t.Errorf("%d events are marked, want 1", n)
	}
	s.submit("/projections/campaigns/resume", "").want(t, 303)
	s.get("/events").want(t, 200, "is 1 event behind; run 1 is catching it up")
}

func TestLists_tellOfAQuarantine(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.quarantine()
	if n := strings.Count(s.get("/events").want(t, 200, "is quarantined, 2 events behind").body, "applied-in-part"); n != 2 {
		t.Errorf("%d events are marked, want 2", n)
	}
	s.get("/campaigns").want(t, 200, "current, 1 projection behind")
	s.get("/api/v1/campaigns").want(t, 200, `"failure":{"seq":2,`)
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
	replay := must.Get(s.runs.Active(context.Background())).Or(t)[0]
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
	s.changeProjections(`drop table projection_versions`)
	s.get("/").want(t, 200, "Paused projections cannot be read right now.").lacks(t, "Nothing is paused or disabled")
	s.get("/campaigns/c-1/events/1").want(t, 200, "Applied, though perhaps not to every projection")
	s.get("/campaigns").want(t, 200, "current", `data-testid="held-unknown"`)
	s.get("/events").want(t, 200, "applied", `data-testid="held-unknown"`)
	s.get("/api/v1/campaigns").want(t, 200, `"state":"current"`).lacks(t, "held_projections")
	s.get("/api/v1/events").want(t, 200, `"state":"applied"`).lacks(t, "held_projections")
	s.get("/api/v1/summary").want(t, 200, `"held_projections":null`)
	s.get("/metrics").want(t, 200, "\noutboxweb_campaigns 2\n").lacks(t, "outboxweb_paused_projections{", "outboxweb_quarantined_projections ")
}
