package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestProjection_thatIsNotLoadedHasAPage(t *testing.T) {
	s := withRoster(t)
	s.get("/projections/gone").want(t, 404)
	must.OK(t, s.store.ReadModel().Install(t.Context(), []readmodel.Projection{{Name: "gone", Version: "v7"}}))
	gone := campaign.Definition{Projection: "gone", Version: "v7", File: campaign.RehearsalFile{Name: "gone.sql", Text: "-- projection: <gone>"}}
	must.OK(t, s.store.Loaded(t.Context(), campaign.InstanceState{ID: "w", Host: "h"}, []campaign.Definition{gone}))
	s.fails("gone", "c-1", 2)
	must.OK(t, s.store.ReadModel().Leave(t.Context(), []string{"campaigns"}))
	s.fresh("/").want(t, 200, "Projection gone is not loaded any more: its rows are not updated, and not verified.", `data-testid="stopped-gone"`)
	s.get("/projections").want(t, 200, `<a href="/projections/gone">`)
	s.get("/projections/gone").want(t, 200, `data-testid="unloaded"`, "not loaded", "v7", "gone.sql", "no &lt;seat&gt;", `href="/campaigns/c-1/events/2"`, "-- projection: &lt;gone&gt;", "removing-a-projection")
	s.kit.ExecProjections(`insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('c-1', 'gone', 1, 'quarantined', 1), ('c-2', 'gone', 1, 'behind', 1)`)
	const without = "Events were applied without it in 2 campaigns; it is quarantined in 1 of them."
	s.get("/projections").want(t, 200, without, "except where it is quarantined: it stays quarantined there until you start a replay of it.")
	s.get("/projections/gone").want(t, 200, without, "#a-projection-is-quarantined", `data-testid="cursor-c-1"`, `data-testid="cursor-c-2"`)
	s.get("/projections/gone?state=behind").want(t, 200, `data-testid="cursor-c-2"`).lacks(t, `data-testid="cursor-c-1"`)
	s.get("/api/v1/projections/gone/cursors").want(t, 200, `"campaign_id":"c-1","projection":"gone","applied_seq":1`, `"state":"quarantined","not_loaded":true`)
	s.get("/api/v1/projections").want(t, 200, `"name":"campaigns","not_loaded":false`, `"name":"gone","not_loaded":true,"version":"","tables":[]`)
	s.get("/api/v1/projections/gone").want(t, 200, `"name":"gone","not_loaded":true`, `"open_failures":1`)
	s.get("/api/v1/projections/none").want(t, 404, "no projection")
}

// Lists say of what is applied that a projection lacks it, as the pages of an event and a campaign do.
func TestLists_sayWhatAProjectionThatIsNotLiveLacks(t *testing.T) {
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
	s.seed("c-1", "d", "e").work()
	s.get("/events").want(t, 200, `title="Applied, but projection campaigns is paused, 2 events behind" `+inPart).times(t, 2, inPart)
	s.get("/api/v1/events").want(t, 200, applied(3)+"]", applied(4)+`{"projection":"campaigns","applied_seq":3,"lag_events":2,`, applied(5)+"{")
	const text = "Everything is applied, but projection campaigns is paused, 2 events behind"
	s.get("/campaigns").want(t, 200, behind, "current, 1 projection behind", text).times(t, 1, behind)
	s.get("/campaigns?state=current").want(t, 200, behind)
	s.get("/campaigns/c-1").want(t, 200, behind, "current, 1 projection behind", text)
	s.get("/campaigns/c-1/events/3").want(t, 200, "Applied. All events up to 5 are applied, but projection campaigns is paused, 2 events behind.").lacks(t, "applied in part")
	s.get("/campaigns/c-1/events/3").want(t, 200, "<strong>Applied").lacks(t, "Applied without", "Not applied everywhere")
	s.get("/campaigns/c-1/events/4").want(t, 200, inPart, "Applied, but projection campaigns is paused, 2 events behind.",
		"<strong>Applied without projection campaigns", "Not applied everywhere yet: projection campaigns is paused, 2 events behind.")
	s.get("/").want(t, 200, ", live projections only")
	s.get("/campaigns/c-2").want(t, 200, "Everything is applied.").lacks(t, behind, "but projection")
	s.get("/api/v1/campaigns?sort=id").want(t, 200, `"state":"current","held_projections":[{"projection":"campaigns","applied_seq":3,"lag_events":2,`, `"why":"`+text+`"`, `"held_projections":[],`)
	listed := decodeAs[event.Page[campaign.CampaignView]](t, s.get("/api/v1/campaigns?sort=id").want(t, 200)).Items[0]
	must.Equal(t, decodeAs[campaign.CampaignView](t, s.get("/api/v1/campaigns/c-1").want(t, 200)), listed, "the campaign by itself, and in the list,")
	s.get("/export/campaigns").want(t, 200, text)
	s.submit("/campaigns/c-1/pause", "reason=look").want(t, 303)
	s.get("/campaigns").want(t, 200, "paused").lacks(t, behind)
}

// A campaign that has not moved since a pause for all campaigns lacks nothing.
func TestLists_countAPauseForAllOnlyWhereEventsFollowed(t *testing.T) {
	s := withRoster(t)
	s.submit("/projections/campaigns/pause", "reason=a+bug").want(t, 303)
	must.OK(t, s.store.ReadModel().Apply(context.Background(), func(tx *readmodel.ApplyTx) error { // as a worker before the next event
		w, err := tx.Watermark("c-2")
		if err == nil {
			_, err = tx.ExcludePaused("c-2", w, nil)
		}
		return err
	}))
	s.seed("c-2", "b").work()
	s.get("/api/v1/campaigns?sort=id").want(t, 200, `"held_projections":[{"projection":"campaigns","applied_seq":3,"lag_events":0,`, `"held_projections":[{"projection":"campaigns","applied_seq":1,"lag_events":1,`, `"paused_for_all":true`)
	s.get("/campaigns").want(t, 200, "is paused for all campaigns, 1 event behind").times(t, 1, "current-in-part")
	s.get("/events").want(t, 200).times(t, 1, "applied-in-part")
	s.submit("/projections/campaigns/resume", "").want(t, 303)
	s.get("/events").want(t, 200, "is 1 event behind; run 1 is catching it up")
}

// A replay after a resume waits for a blocking verify.
func TestPages_tellOfAProjectionThatWaitsForTheEndOfARun(t *testing.T) {
	s := withRoster(t)
	s.submit("/projections/campaigns/pause", "campaign_id=c-1&reason=a+bug").want(t, 303)
	s.seed("c-1", "d", "e").work().beat("w", "test")
	verify := decodeAs[replay.Run](t, s.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true}`).want(t, 202))
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
	s := withRoster(t)
	s.beat("w", "test")
	s.kit.ExecProjections(`drop table projection_versions`)
	s.get("/").want(t, 200, "Paused projections cannot be read right now.").lacks(t, "Nothing is paused or disabled")
	s.get("/campaigns/c-1/events/1").want(t, 200, "Applied, though perhaps not to every projection")
	s.get("/campaigns").want(t, 200, "current", `data-testid="held-unknown"`)
	s.get("/events").want(t, 200, "applied", `data-testid="held-unknown"`)
	s.get("/api/v1/campaigns").want(t, 200, `"state":"current"`).lacks(t, "held_projections")
	s.get("/api/v1/events").want(t, 200, `"state":"applied"`).lacks(t, "held_projections")
	s.get("/api/v1/summary").want(t, 200, `"held_projections":null`)
	s.get("/metrics").want(t, 200, "\noutboxweb_campaigns 2\n").lacks(t, "outboxweb_paused_projections{", "outboxweb_quarantined_projections ")
}

// withRoster is a site whose one projection is also in the database, with two campaigns applied to it.
func withRoster(t *testing.T) *site {
	s := ownSite(t)
	must.OK(t, s.store.ReadModel().Install(context.Background(), []readmodel.Projection{{Name: "campaigns", Version: "v1"}}))
	s.seed("c-1", "a", "b", "c").seed("c-2", "a").work()
	return s
}

// fails records that a projection failed at an event, and what follows from it.
func (s *site) fails(projection, campaign string, seq int64, then ...func(*readmodel.ApplyTx, *event.Event) error) *site {
	must.OK(s.t, s.store.ReadModel().Apply(s.kit.Ctx, func(tx *readmodel.ApplyTx) error {
		e := &event.Event{CampaignID: campaign, Seq: seq, EventType: "b"}
		err := tx.Failed(projection, e, readmodel.Failure{Message: "no <seat>", Fingerprint: "f"})
		for _, f := range then {
			err = errors.Join(err, f(tx, e))
		}
		return err
	}))
	return s
}

// quarantine quarantines the projection in c-1 at its second event.
func (s *site) quarantine() *site {
	return s.fails("campaigns", "c-1", 2, storetest.Quarantine("campaigns"))
}

func TestProjection_pausesAreToldByPagesAndAPI(t *testing.T) {
	s := withRoster(t)
	s.beat("w", "test")
	current := func() answer { return s.get("/").want(t, 200, "All 2 campaigns are current.") }
	current().want(t, 200, "Nothing needs attention").lacks(t, "live projections only", "Paused or disabled")
	pause := decodeAs[campaign.ProjectionPause](t, s.post("/api/v1/projections/campaigns/pause", `{"campaign_id":"c-1","reason":"a bug"}`).want(t, 200))
	must.Equal(t, pause, campaign.ProjectionPause{Projection: "campaigns", CampaignID: "c-1", State: "paused", AppliedSeq: 3}, "paused as")
	s.get("/").want(t, 200, "Projection campaigns is paused for 1 campaign.", `data-testid="paused-campaigns"`, `href="/projections/campaigns?state=paused"`).
		lacks(t, "Nothing is paused or disabled", "All 2 campaigns are current.")
	s.get("/api/v1/summary").want(t, 200, `"held_projections":[{"projection":"campaigns","paused":null,"paused_campaigns":1,`)
	s.get("/metrics").want(t, 200, "\noutboxweb_paused_projections{scope=\"all\"} 0\n", "\noutboxweb_paused_projections{scope=\"campaign\"} 1\n")
	s.get("/api/v1/projections/campaigns/cursors").want(t, 200, `"campaign_id":"c-1"`, `"reason":"a bug"`, `"lag_events":0`)
	s.get("/api/v1/projections/campaigns/cursors?state=behind").want(t, 200, `"items":[]`)
	s.get("/api/v1/projections/campaigns/cursors?state=live").want(t, 422, "state")
	s.get("/api/v1/campaigns/c-1/projections").want(t, 200, `"state":"paused"`, `"paused_for_all":false`)
	s.submit("/projections/campaigns/resume", "campaign_id=c-1").want(t, 303)

	s.post("/api/v1/projections/campaigns/pause", `{"reason":"all of it"}`).want(t, 200, `"campaign_id":""`)
	s.get("/").want(t, 200, "Projection campaigns is paused for all campaigns until ", `href="/projections/campaigns"`, "all of it").lacks(t, "All 2 campaigns are current.")
	s.get("/metrics").want(t, 200, "\noutboxweb_paused_projections{scope=\"all\"} 1\n", "\noutboxweb_paused_projections{scope=\"campaign\"} 0\n")
	s.get("/api/v1/projections/campaigns").want(t, 200, `"paused":{"by":"local"`, `"reason":"all of it"`)
	s.post("/api/v1/projections/campaigns/resume", `{}`).want(t, 200, `"behind":0`)
	current()
}

func TestProjectionPages_tellWhatIsNotFollowed(t *testing.T) {
	s := withRoster(t)
	s.get("/projections").want(t, 200, "Not paused, quarantined or behind in any campaign.", `action="/projections/campaigns/pause"`)
	s.get("/projections/campaigns").want(t, 200, "No open failures.", "No actions here.").lacks(t, "not built by this version")
	s.get("/api/v1/failures").want(t, 200, `"items":[]`)
	s.quarantine()
	list := decodeAs[items[campaign.ProjectionFailure]](t, s.get("/api/v1/failures?status=open&campaign=c-1&projection=campaigns&fingerprint=f").want(t, 200)).Items
	must.Need(t, len(list) == 1 && list[0].Seq == 2 && list[0].Attempts == 1 && list[0].Message == "no <seat>" && list[0].ResolvedAt == nil, "failures %+v", list)
	s.get(fmt.Sprint("/api/v1/failures/", list[0].ID)).want(t, 200, `"status":"open"`)
	s.get("/api/v1/failures?status=resolved").want(t, 200, `"items":[]`)
	s.get("/api/v1/failures?status=lost").want(t, 422, "status")
	s.get("/api/v1/failures/99").want(t, 404)
	s.get("/api/v1/failures/x").want(t, 422)
	s.get("/api/v1/projections").want(t, 200, `"quarantined":1`, `"open_failures":1`)
	s.fresh("/runs/new?kind=rebuild&all_campaigns=true").want(t, 200, `data-testid="failing-now"`, "verify, rebuild and replay fail: fix it first")
	s.get("/metrics").want(t, 200, "\noutboxweb_quarantined_projections 1\n")
	s.get("/events").want(t, 200, "is quarantined, 2 events behind").times(t, 2, "applied-in-part")
	s.get("/campaigns").want(t, 200, "current, 1 projection behind")
	s.get("/api/v1/campaigns").want(t, 200, `"failure":{"seq":2,`)
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
	s.lands(s.submit("/projections/campaigns/pause", "reason=stop")).want(t, 200, "Paused projection campaigns for all campaigns.", "reason: <bdi>stop</bdi>", `data-testid="resume-campaigns"`)
	s.get("/").want(t, 200, "Projection campaigns is quarantined in 1 campaign.", "for all campaigns", `data-testid="quarantine"`, `href="/projections/campaigns?state=quarantined"`, "#a-projection-is-quarantined")
	s.get("/api/v1/summary").want(t, 200, `"quarantined":1`)
	s.get("/projections").want(t, 200, "Paused for all campaigns by local", `action="/projections/campaigns/resume"`)
	s.get("/campaigns/c-2").want(t, 200, "resume on the projection's page")
	s.lands(s.submit("/projections/campaigns/resume", "")).want(t, 200, "Resumed projection campaigns for all campaigns. It is still quarantined in 1 campaign: replay it there once its file is fixed.", "Paused projection campaigns for all campaigns.")
	s.get("/audit?action=projection_resume").want(t, 200, "Resumed projection campaigns for all campaigns.")
	must.Equal(t, len(must.Get(s.store.AuditLogOf(context.Background(), 10, operator.ProjectionTarget("campaigns"))).Or(t)), 3, "acts on the projection")
}

func TestProjectionsPage_saysHowOftenAnEventIsTried(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Projections = []campaign.ProjectionInfo{{Name: "patient", Version: "v1", OnFailure: "block", MaxAttempts: 3, EventTypes: []string{}, Tables: []string{}},
			{Name: "usual", Version: "v1", OnFailure: "quarantine", EventTypes: []string{}, Tables: []string{}}}
	})
	s.get("/projections").want(t, 200, "after 3 failed attempts", "after the number of failed attempts that <code class=\"flag\">--max-attempts</code> sets")
	s.get("/api/v1/projections").want(t, 200, `"max_attempts":3`, `"max_attempts":0`)
}

// verified records what a verify of events 1 and 2 of a campaign found.
func (s *site) verified(campaign string, all ...campaign.Verification) {
	for i := range all {
		all[i].CampaignID, all[i].Seq, all[i].Projection = campaign, 2, cmp.Or(all[i].Projection, "campaigns")
	}
	must.OK(s.t, s.store.RecordVerifications(s.t.Context(), all))
}

func TestVerify_whatItFindsOrCannotDoCountsWhereverStateIsShown(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b").seed("c-2", "a").seed("c-3", "a", "b").work()
	s.get("/campaigns/c-1").want(t, 200, "Everything is applied.").lacks(t, "drifted")
	note := func(verdict campaign.Verdict) {
		for _, id := range []string{"c-1", "c-3"} {
			s.verified(id, campaign.Verification{Verdict: verdict, Changed: 1}, campaign.Verification{Projection: "roster", Verdict: verdict, Changed: 1})
		}
	}
	note(campaign.VerdictDrift)
	s.seed("c-3", "a") // a new event waits, and the rows still differ

	s.fresh("/").want(t, 200, "Live rows of 2 campaigns differ from the journal", "h-bad", `data-testid="count-drifted">2<`, `href="/campaigns?state=drifted"`).lacks(t, "campaigns are current")
	const why = "The rows of 2 projections differed from the journal at the last verification"
	s.get("/campaigns/c-1").want(t, 200, "s-drifted", why, `#a-projection-is-wrong`)
	s.get("/campaigns?state=drifted").want(t, 200, `id="campaign-c-1"`, `id="campaign-c-3"`).lacks(t, `id="campaign-c-2"`)
	s.get("/api/v1/campaigns?state=drifted&sort=lag").want(t, 200, `"campaign_id":"c-1"`, `"state":"drifted"`, `"drifted":2`, `"total":2`, `"why":"`+why+`; a rebuild fixes them if the projection files are right"`)
	s.get("/api/v1/campaigns/c-2").want(t, 200, `"state":"current"`, `"drifted":0`)
	note(campaign.VerdictMatch)
	s.fresh("/api/v1/summary").want(t, 200, `drifted":0`)
	s.get("/campaigns/c-1").want(t, 200, "Everything is applied.").lacks(t, "s-drifted")

	const reason = "event 2 has changed since it was appended: its content no longer matches its hash"
	s.verified("c-1", campaign.Verification{Verdict: campaign.VerdictFailed, RunID: 7, Error: reason})
	s.fresh("/").want(t, 200, "1 campaign could not be verified", reason, `href="/runs/7/results/c-1"`, "h-bad", `data-testid="count-unverifiable">1<`, `href="/campaigns?state=unverifiable"`, "#when-a-campaign-cannot-be-verified").
		lacks(t, "campaigns are current")
	s.get("/campaigns/c-1").want(t, 200, "Could not be verified at ", ": "+reason+" (run 7)", "s-unverifiable", "could not be verified: "+reason, `href="/runs/7/results/c-1"`, "#when-a-campaign-cannot-be-verified").
		lacks(t, "Never verified", "Everything is applied.")
	s.get("/campaigns?state=unverifiable").want(t, 200, `id="campaign-c-1"`).lacks(t, `id="campaign-c-2"`)
	s.get("/api/v1/campaigns?state=unverifiable").want(t, 200, `"campaign_id":"c-1"`, `"unverifiable":1`, `"state":"unverifiable"`, `"total":1`)
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"why":"Could not be verified at `, ": "+reason+" (run 7)")
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"verdict":"failed"`, `"error":"`+reason, `"run_id":7`, `"seq":2`)
	s.get("/metrics").want(t, 200, "\noutboxweb_unverifiable_campaigns 1\n")
	s.verified("c-1", campaign.Verification{Verdict: campaign.VerdictFailed, Error: reason})
	s.get("/campaigns/c-1").want(t, 200, reason+" (in the background)")
	s.verified("c-1", campaign.Verification{Verdict: campaign.VerdictMatch})
	s.get("/campaigns/c-1").want(t, 200, "Everything is applied.").lacks(t, "not be verified")
}

// A verdict belongs to the version that it compared with: once another one is loaded it is no reason to rebuild.
func TestDrift_ofAVersionThatIsNotLoadedAsksForAVerify(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b").work()
	load := func(version string) {
		s.clock = s.clock.Add(time.Minute)
		must.OK(t, s.store.Loaded(t.Context(), campaign.InstanceState{ID: "i"}, []campaign.Definition{{Projection: "campaigns", Version: version}}))
	}
	load("bad")
	s.verified("c-1", campaign.Verification{Version: "bad", Verdict: campaign.VerdictDrift, Changed: 1, FirstSeq: 2})
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"version":"bad"`, `"outdated":false`)
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"drifted":1`, `"outdated_drift":0`, "a rebuild fixes them")
	load("v1")
	s.fresh("/").want(t, 200, "1 campaign differed from version bad of projection campaigns, which is not loaded any more; verify again with the loaded version v1")
	s.get("/").want(t, 200, "h-warn", `href="/runs/new?all_campaigns=true&amp;kind=verify&amp;projections=campaigns"`).
		lacks(t, "kind=rebuild", "differ from the journal", `data-testid="drift"`)
	s.get("/campaigns/c-1").want(t, 200, "The rows of 1 projection differed from a version that is not loaded any more; verify again with the loaded one",
		"1 row changed, compared with version bad of projection campaigns, which is not loaded any more").lacks(t, "a rebuild fixes them", "first divergence")
	s.get("/campaigns").want(t, 200, "differed from a version that is not loaded any more").lacks(t, "a rebuild fixes them")
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"outdated":true`)
	s.get("/api/v1/campaigns?state=drifted").want(t, 200, `"drifted":1`, `"outdated_drift":1`)
	load("bad")
	s.fresh("/api/v1/summary").want(t, 200, `"outdated_drift":0`)
	const could = "The last verify could not replay its events"
	for version, says := range map[string]string{"bad": could, "v1": could + "; that was with a version that is not loaded any more: verify again with the loaded one"} {
		s.verified("c-1", campaign.Verification{Version: version, Verdict: campaign.VerdictFailed})
		s.get("/api/v1/campaigns?state=unverifiable").want(t, 200, `"why":"`+says+`"`)
	}
}

func TestProjection_thatBlocksCampaignsDoesNotSayThatItFollowsThem(t *testing.T) {
	s := withRoster(t)
	for _, id := range []string{"c-1", "c-2"} {
		s.fails("campaigns", id, 2).fails("campaigns", id, 3)
	}
	s.get("/api/v1/projections/campaigns").want(t, 200, `"blocking":2`, `"open_failures":4`)
	for _, page := range []string{"/projections/campaigns", "/projections"} {
		s.get(page).want(t, 200, "An event fails in it in 2 campaigns, which wait.", "s-dead", "blocking").lacks(t, "Live in every campaign.")
	}
	s.get("/projections/campaigns").want(t, 200, "Not paused, quarantined or behind in any campaign.").lacks(t, "It has passed every event")
	// What it is set aside for goes on without it, and is not held up.
	s.quarantine().get("/api/v1/projections/campaigns").want(t, 200, `"blocking":1`, `"quarantined":1`)
	s.get("/api/v1/projections/campaigns/cursors").want(t, 200, `"lag_seconds":`, `"last_applied_at":`, `"attempts":`)
	s.get("/projections/campaigns").want(t, 200, "An event fails in it in 1 campaign, which waits.", "Not live in 1 campaign, which advances without it.", "Last applied</th>")
}

// Two instances tell of the same version, and one of another.
func TestProjection_costsTheSameOnThePageInTheAPIAndInMetrics(t *testing.T) {
	s := withRoster(t)
	version := decodeAs[campaign.ProjectionInfo](t, s.get("/api/v1/projections/campaigns").want(t, 200, `"cost":null`)).Version
	must.OK(t, s.store.ReadModel().Install(t.Context(), []readmodel.Projection{{Name: "campaigns", Version: version}}))
	s.get("/projections/campaigns").want(t, 200, "No running instance has measured it in this version yet.")
	for id, version := range map[string]string{"w-1": version, "w-2": version, "w-3": "another"} {
		on := func(statement string, seconds, p99 float64) campaign.SpentOn {
			return campaign.SpentOn{Spender: campaign.Spender{Projection: "campaigns", Version: event.ShortHash(version), Statement: statement}, Events: 100, Seconds: seconds, P99: p99}
		}
		spent := campaign.Spent{On: []campaign.SpentOn{on("", 0.5, 0.02), on("roster.sql:7", 0.1, 0.002), on("roster.sql:9", 0.4, 0.018)}}
		spent.Of.Add(10, 10, 0.2)
		must.OK(t, s.store.Heartbeat(t.Context(), campaign.InstanceState{ID: id, Host: "h", Mode: campaign.ModeOutbox, StartedAt: s.clock, BeatEvery: 2 * time.Second, Spent: spent,
			Rates: campaign.Throughput{AppliedPerSecond: 100, AppendedPerSecond: 300, BusyShare: 0.3}}))
	}
	s.store.Changed()
	cost := decodeAs[campaign.ProjectionDetail](t, s.get("/api/v1/projections/campaigns").want(t, 200)).Cost
	must.Equal(t, cost.Cost, campaign.Cost{Share: 1.0 / 6, Events: 200, Seconds: 0.005, P99: 0.02}, "of 6 s, 1 s is of this version")
	must.Equal(t, []string{cost.Statements[0].Statement, cost.Statements[1].Statement}, []string{"roster.sql:9", "roster.sql:7"}, "the costliest first")
	must.Equal(t, cost.Doubled, "the load, 300 events/s, takes 30 % of the workers' time; twice of it takes at most 60 %")
	s.get("/projections/campaigns").want(t, 200, "It takes 17 % of the time of waves, 5.0 ms per event, 99 of 100 within 20 ms.", "twice of it takes at most 60 %", "roster.sql:9")
	s.get("/metrics").want(t, 200, fmt.Sprintf("\noutboxweb_projection_time_share{projection=\"campaigns\"} %v\n", cost.Share),
		"\noutboxweb_projection_event_seconds{projection=\"campaigns\"} 0.005\n", "\noutboxweb_projection_event_p99_seconds{projection=\"campaigns\"} 0.02\n", "\noutboxweb_busy_share 0.3\n")
	s.get("/api/v1/summary").want(t, 200, `"double_load":"the load, 300 events/s, takes 30 %`)
}
