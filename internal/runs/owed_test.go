package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// behind creates campaigns in which a projection was paused at event 2 and is resumed at event 5. It returns the replay that is catching it up.
func behind(f *fixture, loaded []campaign.ProjectionInfo, projection string, campaigns ...string) (run int64) {
	for _, id := range campaigns {
		run = resumedBehind(f, loaded, projection, id).RunID
	}
	return run
}

func resumedBehind(f *fixture, loaded []campaign.ProjectionInfo, projection, campaignID string) campaign.ProjectionPause {
	f.Applied(campaignID, 2)
	must.Get(f.Runs.PauseProjection(f.Ctx, ana("later"), projection, campaignID, loaded)).Or(f.TB)
	f.Applied(campaignID, 3)
	h, err := f.Runs.ResumeProjection(f.Ctx, ana("now"), projection, campaignID, loaded)
	must.Need(f.TB, err == nil && h.State == campaign.CursorBehind, "resumed as %+v, %v", h, err)
	return h
}

func reconciled(f *fixture) { must.Get(f.Reconcile(f.Ctx)).Or(f.TB) }

func behindAlone(f *fixture, want int64) {
	n, err := f.Runs.Behind(f.Ctx)
	must.Hold(f.TB, n.Alone == want && err == nil, "%+v projections are behind (%v), want %d without a run", n, err, want)
}

func claimAs(f *fixture, loaded []campaign.ProjectionInfo) runs.Lease {
	versions := map[string]string{}
	for _, p := range loaded {
		versions[p.Name] = p.Version
	}
	l, ok, err := f.Runs.Claim(f.Ctx, one, versions, lease)
	must.Need(f.TB, err == nil && ok, "claimed %v, %v", ok, err)
	return l
}

// An operator who cancels a replay, or examines its failure, decides what is next.
func TestReconcile_startsNoReplayAgainThatWasTried(t *testing.T) {
	type given struct {
		as  replay.RunStatus
		why string
	}
	storetest.Each(t, own, map[string]given{
		"cancelled":   {replay.RunCancelled, ""},
		"failed":      {replay.RunFailed, "the disk is broken"},
		"interrupted": {replay.RunInterrupted, "three processes died"},
		"completed":   {replay.RunCompleted, ""},
	}, func(t *testing.T, f *fixture, ends given) {
		loaded := f.WithProjections("roster")
		id := behind(f, loaded, "roster", "a")
		if ends.as == replay.RunCancelled {
			must.Get(f.Runs.Cancel(f.Ctx, ana(""), id)).Or(t)
		} else {
			f.FinishRun(claimAs(f, loaded), ends.as, ends.why)
		}
		f.Clock.Advance(24 * time.Hour)
		f.Unchanged(func() { reconciled(f) })
		must.Equal(t, len(f.ActiveRuns()), 0, "active")
		behindAlone(f, 1)
	})
}

func TestReconcile_startsAReplayAgain(t *testing.T) {
	resumedLater := func(f *fixture) {
		f.Clock.Advance(time.Hour)
		f.ExecProjections(`update projection_cursors set updated_at = $1`, f.Clock.Now().UnixMicro())
	}
	storetest.Each(t, own, map[string]func(f *fixture, loaded []campaign.ProjectionInfo){
		"that was of another version of the projection": func(f *fixture, loaded []campaign.ProjectionInfo) {
			f.FinishRun(claimAs(f, loaded), replay.RunInterrupted, "the file has changed")
			must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{{Name: "roster", Version: "w"}}))
		},
		"that failed before it was resumed again": func(f *fixture, loaded []campaign.ProjectionInfo) {
			f.FinishRun(claimAs(f, loaded), replay.RunFailed, "the disk is broken")
			resumedLater(f)
		},
		"that began before it was resumed again": func(f *fixture, loaded []campaign.ProjectionInfo) {
			l := claimAs(f, loaded)
			resumedLater(f)
			f.FinishRun(l, replay.RunCompleted, "")
		},
	}, func(t *testing.T, f *fixture, end func(f *fixture, loaded []campaign.ProjectionInfo)) {
		loaded := f.WithProjections("roster")
		first := behind(f, loaded, "roster", "a")
		end(f, loaded)
		must.Get(f.Summary(f.Ctx)).Or(t) // it is kept for a while
		reconciled(f)
		sum, err := f.Summary(f.Ctx)
		must.Hold(t, err == nil && len(sum.Held) == 1 && sum.Held[0].RunID != 0, "the summary says that the projection%s (%v)", sum.Held[0].CatchUp(), err)
		runs := f.ActiveRuns()
		must.Hold(t, len(runs) == 1 && runs[0].ID != first && runs[0].CampaignID == "a" && runs[0].Kind == replay.RunReplay && runs[0].Reason != "", "runs %+v are active, want a replay", runs)
		behindAlone(f, 0)
		f.Unchanged(func() { reconciled(f) })
	})
}

func TestFinishRun_endsAReplayOfAResumeInTheFuture(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster")
	behind(f, loaded, "roster", "a")
	f.ExecProjections(`update projection_cursors set updated_at = $1`, f.Clock.Now().Add(time.Hour).UnixMicro())
	for range 2 { // the second one is that of the future
		f.FinishRun(claimAs(f, loaded), replay.RunFailed, "the disk is broken")
	}
	runs := f.ActiveRuns()
	must.Hold(t, len(runs) == 0, "runs %+v are active", runs)
}

func TestFinishRun_startsOneReplayForEachProjectionThatIsBehind(t *testing.T) {
	f := own(t, func(o *store.Options) { o.ReasonFrom = 1 })
	loaded := f.WithProjections("roster", "history")
	f.Applied("c", 1)
	verify := must.Get(f.Runs.Start(f.Ctx, ana("looks odd"), enginetest.Everything, loaded)).Or(t)
	for _, projection := range []string{"roster", "history"} {
		for _, id := range []string{"a", "b"} {
			must.Equal(t, resumedBehind(f, loaded, projection, id).BlockedByRun, verify.ID, "resumed as")
		}
	}
	behindAlone(f, 0)
	f.Sound()
	f.FinishRun(claimAs(f, loaded), replay.RunCompleted, "")
	var scopes []string
	for _, r := range f.ActiveRuns() {
		scopes = append(scopes, fmt.Sprint(r.Kind, r.Projections, r.CampaignIDs))
	}
	must.Equal(t, fmt.Sprint(scopes), "[replay[history] [a b] replay[roster] [a b]]", "active")
	f.Sound()
}

func TestReplaysThatStartByThemselves_areRecorded(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster")
	atOnce := behind(f, loaded, "roster", "a")
	mustHaveStarted(f, atOnce)
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`) // resumed again
	f.FinishRun(claimAs(f, loaded), replay.RunCompleted, "")
	later := f.ActiveRuns()[0].ID
	mustHaveStarted(f, later, atOnce)
	acts := f.ActionsOf("projection_resume")
	must.Hold(t, len(acts) == 1 && acts[0].Actor == "ana", "resumes are %+v", acts)
}

func mustHaveStarted(f *fixture, runs ...int64) {
	var got []int64
	for _, a := range f.ActionsOf("run_start") {
		var after struct {
			RunID int64 `json:"run_id"`
		}
		err := json.Unmarshal(a.After, &after)
		must.Hold(f.TB, err == nil && a.Actor == "outboxweb" && a.Via == "system" && a.CampaignID == "a" && a.Reason != "" && a.Target == operator.RunTarget(after.RunID), "the record is %+v (%v)", a, err)
		got = append(got, after.RunID)
	}
	must.Equal(f.TB, got, runs, "runs", "have a record")
}

func TestBehind_countsWhatWaitsForTheEndOfARun(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster")
	verify := must.Get(f.Runs.Start(f.Ctx, ana("looks odd"), enginetest.Everything, loaded)).Or(t)
	resumedBehind(f, loaded, "roster", "a")
	mustTellHeld(f, campaign.BehindCounts{Waiting: 1}, campaign.HeldProjection{Projection: "roster", Behind: 1, BlockedByRun: verify.ID})
	f.FinishRun(claimAs(f, loaded), replay.RunCompleted, "")
	r := f.ActiveRuns()[0].ID
	mustTellHeld(f, campaign.BehindCounts{CatchUps: 1}, campaign.HeldProjection{Projection: "roster", Behind: 1, RunID: r})
	f.FinishRun(claimAs(f, loaded), replay.RunFailed, "the disk is broken")
	mustTellHeld(f, campaign.BehindCounts{Alone: 1}, campaign.HeldProjection{Projection: "roster", Behind: 1})
}

func mustTellHeld(f *fixture, behind campaign.BehindCounts, held ...campaign.HeldProjection) {
	n, err := f.Runs.Behind(f.Ctx)
	must.Hold(f.TB, n == behind && err == nil, "behind are %+v (%v), want %+v", n, err, behind)
	f.Clock.Advance(time.Minute)
	must.Equal(f.TB, must.Get(f.Beside(func(*store.Options) {}).Summary(f.Ctx)).Or(f.TB).Held, held, "the summary holds", ")")
}

func TestReconcile_startsAReplayOfWhatIsFree(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster")
	behind(f, loaded, "roster", "a", "b")
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`)
	f.FinishRun(claimAs(f, loaded), replay.RunCompleted, "") // of a, while that of b is queued
	runs := f.ActiveRuns()
	must.Hold(t, len(runs) == 2 && runs[0].CampaignID == "b" && runs[1].CampaignID == "a", "active are %+v", runs)
}

func TestReconcile_leavesAProjectionBehindThatIsPausedForAll(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster")
	run := behind(f, loaded, "roster", "a")
	must.Get(f.Runs.PauseProjection(f.Ctx, ana("all"), "roster", "", loaded)).Or(t)
	f.FinishRun(claimAs(f, loaded), replay.RunCompleted, "")
	f.Unchanged(func() { reconciled(f) })
	behindAlone(f, 0)
	f.Sound()
	f.AppendN("b", 1)
	verify := must.Get(f.Runs.Start(f.Ctx, ana(""), replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"b"}}, loaded)).Or(t)
	f.Clock.Advance(time.Second)
	h, err := f.Runs.ResumeProjection(f.Ctx, ana(""), "roster", "", loaded)
	must.Hold(t, err == nil && h.RunID == 0 && h.BlockedByRun == verify.ID, "resumed as %+v, %v", h, err)
	f.FinishRun(claimAs(f, loaded), replay.RunCompleted, "")
	runs := f.ActiveRuns()
	must.Hold(t, len(runs) == 1 && runs[0].ID != run && runs[0].CampaignID == "a", "active are %+v, want a replay of what was behind before the pause", runs)
}

func TestReconcile_inShadowModeStartsNoReplay(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster")
	must.Get(f.Runs.Cancel(f.Ctx, ana(""), behind(f, loaded, "roster", "a"))).Or(t)
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`)
	shadow := f.Beside(storetest.InMode(campaign.ModeShadow))
	f.Unchanged(func() { reconciled(shadow) })
	reconciled(f)
	must.Equal(t, len(f.ActiveRuns()), 1, "active")
}

// behindOf is what check reports about projections that nothing catches up.
func behindOf(tb testing.TB, b *enginetest.Engine) (details []string) {
	for _, v := range must.Get(b.Check(context.Background(), func(int64, int64) {})).Or(tb).Violations {
		must.Equal(tb, v.Invariant, "replay_owed", "check")
		details = append(details, v.CampaignID+": "+v.Detail)
	}
	return details
}

func runsOf(tb testing.TB, b *enginetest.Engine, kind replay.RunKind) []replay.Run {
	page := must.Get(b.Runs.List(context.Background(), replay.RunFilter{Kind: kind})).Or(tb)
	slices.Reverse(page.Items)
	return page.Items
}

func TestResume_besideARunIsCaughtUpOnceThatRunEnds(t *testing.T) {
	t.Parallel()
	for _, campaignID := range []string{"a", ""} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally))
		b.Feed(enginetest.Notes("a b", 3)...).PauseProjection("tally", campaignID).Feed(enginetest.Notes("a", 5)...)
		verify := b.StartRun(enginetest.Everything)
		h := b.ResumeProjection("tally", campaignID)
		must.Hold(t, h.Behind == 1 && h.RunID == 0 && h.BlockedByRun == verify.ID, "resumed as %+v, want that run %d blocks the replay", h, verify.ID)
		b.MustHaveCursors("a tally 3 behind")
		b.Sound() // the replay will start automatically

		b.StepRuns().MustHaveCursors("a tally 8 live").MustHaveTold("tally", "a", 8)
		replays := runsOf(t, b, replay.RunReplay)
		must.Hold(t, len(replays) == 1 && replays[0].Status == replay.RunCompleted && replays[0].CampaignID == "a" && slices.Equal(replays[0].Projections, []string{"tally"}) && replays[0].RequestedBy == "outboxweb" && replays[0].Via == "system", "replays are %+v", replays)
		b.Feed(enginetest.Noted("a")).MustHaveTold("tally", "a", 9).Sound()
		for seq, want := range map[int64]string{3: "", 4: "tally", 8: "tally", 9: ""} {
			h, err := b.Runs.EventHistory(t.Context(), "a", seq)
			got := ""
			if last := h.Steps[len(h.Steps)-1]; last.Kind == campaign.StepReplayed && last.Replay.RunID == replays[0].ID && last.Replay.Kind == string(replay.RunReplay) {
				got = last.Replay.Projection
			}
			must.Hold(t, err == nil && got == want, "event %d got to %q by the replay, want %q: %+v, %v", seq, got, want, h.Steps, err)
		}
	}
}

func TestResume_besideAQueuedRunIsCaughtUpWhenThatIsCancelled(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Tally})
	b.Feed(enginetest.Notes("a", 3)...).PauseProjection("tally", "a").Feed(enginetest.Notes("a", 2)...)
	verify := b.StartRun(enginetest.Everything)
	b.ResumeProjection("tally", "a")
	must.Get(b.Runs.Cancel(t.Context(), enginetest.Operator, verify.ID)).Or(t)
	b.StepRuns().MustHaveCursors("a tally 5 live").Sound()
}

// A process may die when the projection is resumed and the journal has not recorded it yet.
func TestReconcile_catchesUpAProjectionThatNoRunDoes(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Tally})
	b.Feed(append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...)...).PauseProjection("tally", "a")
	b.Feed(enginetest.Notes("a", 2)...)
	b.ExecProjections(`update projection_cursors set state = 'behind', paused_by = '', paused_at = null`)
	b.Runs.WaitForOwed(0) // for a process that died nothing comes
	found := behindOf(t, b)
	must.Hold(t, len(found) == 1 && strings.HasPrefix(found[0], "a: ") && strings.Contains(found[0], `projection "tally"`), "check found %q", found)
	n, err := b.Runs.Behind(t.Context())
	must.Hold(t, n == (campaign.BehindCounts{Alone: 1}) && err == nil, "%+v projections are behind, want 1 without a run; %v", n, err)
	for range 2 { // the second one finds the run
		must.Get(b.Reconcile(t.Context())).Or(t)
	}
	must.Equal(t, len(runsOf(t, b, replay.RunReplay)), 1, "replays")
	n, err = b.Runs.Behind(t.Context())
	must.Hold(t, n.Alone == 0 && err == nil, "%+v projections are behind, want none without a run; %v", n, err)
	b.Sound()
	b.StepRuns().MustHaveCursors("a tally 5 live").MustHaveTold("tally", "a", 5).Sound()
}

// orders needs two fields of an event of type ordered.
const orders = `-- projection: orders
-- tables: orders

-- schema
create table orders (campaign_id text not null, seq bigint not null, sku text not null, number text not null, primary key (campaign_id, seq));

-- on: ordered
insert into orders (campaign_id, seq, sku, number) values (:campaign_id, :seq, :payload.sku!, :payload.number!);
`

// withoutSKU is orders, but an event needs no sku.
var withoutSKU = strings.ReplaceAll(orders, ":payload.sku!", "coalesce(:payload.sku, 'none')")

// lacksSKU and lacksNumber are events that orders fails on, each with an error of its own.
func lacksSKU(campaign string) event.Event {
	return enginetest.EventOf(campaign, "ordered", `{"number":"1"}`)
}

func lacksNumber(campaign string) event.Event {
	return enginetest.EventOf(campaign, "ordered", `{"sku":"s"}`)
}

// loadedAfterRehearsal is an engine whose campaigns orders had blocked at these events before a changed file was rehearsed and loaded.
func loadedAfterRehearsal(t *testing.T, changed string, blocked ...event.Event) (*enginetest.Engine, replay.FixRehearsal) {
	before := enginetest.Own(t, []string{orders}, enginetest.MaxAttempts(1), enginetest.At(storetest.NewClock()))
	before.Feed(blocked...)
	d := mustRehearse(t, before, replay.RehearsalRequest{Files: changedTo(changed)})
	before.Clock.Advance(time.Minute)
	return enginetest.OpenPair(t, before.Pair, enginetest.Define(t, changed), enginetest.MaxAttempts(1), enginetest.At(before.Clock)), d
}

// rehearsedWithoutSKU has two campaigns that lack a sku and passed the rehearsal of a file that needs
// none, and one more campaign of either error that was blocked after it.
func rehearsedWithoutSKU(t *testing.T) (*enginetest.Engine, replay.FixRehearsal) {
	b := enginetest.Own(t, []string{orders, enginetest.Ledger}, enginetest.MaxAttempts(1), enginetest.At(storetest.NewClock()))
	b.Feed(lacksSKU("a"), lacksSKU("b"))
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(withoutSKU)})
	must.Need(t, d.Passed(), "the rehearsal says %q", d.Answer)
	b.Clock.Advance(time.Minute)
	b.Feed(lacksSKU("later"), lacksNumber("other"))
	return b, d
}

// assessed is the error that blocks a campaign, as pages show it.
func assessed(t *testing.T, b *enginetest.Engine, campaignID string) campaign.AssessedGroup {
	all, versions := must.Get(b.Store.ErrorGroups(t.Context())).Or(t), map[string]string{}
	for _, p := range b.Infos {
		versions[p.Name] = p.Version
	}
	groups := all.Assessed(campaign.Running{Build: "test", Versions: versions}, nil)
	must.OK(t, b.Runs.RestOnRehearsals(t.Context(), groups, b.Infos))
	of := b.MustRow(campaignID, b.MustCampaign(campaignID).HeadSeq).Row.Fingerprint
	at := slices.IndexFunc(groups, func(g campaign.AssessedGroup) bool { return g.Fingerprint == of })
	must.Need(t, at >= 0, "no error blocks campaign %s", campaignID)
	return groups[at]
}

func TestRestOn_leavesOutRowsThatWereRetriedSince(t *testing.T) {
	before, d := rehearsedWithoutSKU(t)
	before.MustRequeue("b", 1)
	before.Drain()
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(before.Clock))
	selection := operations.Selection{Rows: []event.RowKey{{CampaignID: "a", Seq: 1}, {CampaignID: "b", Seq: 1}}}
	p, err := b.Operations.Preview(t.Context(), selection, d.Run.ID)
	must.Hold(t, err == nil && p.Rows == 2 && p.Rehearsed == 1 && p.RehearsedFailing == 0, "it covers %d of %d rows, %d failing (%v)", p.Rehearsed, p.Rows, p.RehearsedFailing, err)
	passed, err := b.Operations.PassedHeads(t.Context(), d.Run.ID)
	must.Hold(t, err == nil && len(passed) == 1 && passed[0].CampaignID == "a", "those that would pass are %v (%v), want that of a", passed, err)
	b.Clock.Advance(time.Second)
	op := must.Get(b.Operations.Start(t.Context(), enginetest.Operator, operations.OperationRequest{Selection: selection, Rehearsal: d.Run.ID})).Or(t)
	must.Equal(t, b.Operation(op.ID).CoverText(), "1 of the operation's 2 rows passed it", "the operation that rests on it")
}

func TestRestOn_callsOnARehearsalOnlyForWhatItTried(t *testing.T) {
	before, d := rehearsedWithoutSKU(t)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(before.Clock))
	g := assessed(t, b, "other")
	must.Hold(t, g.Rehearsal == 0 && !strings.Contains(g.Verdict, "rehearsal"), "of an error that it never tried: rehearsal %d: %s", g.Rehearsal, g.Verdict)
	partly := assessed(t, b, "later")
	if want := "2 of these 3 campaigns passed rehearsal 1; the other 1 was not tried in it, or retried since: rehearse again"; !strings.HasSuffix(partly.Verdict, want) || partly.RehearsedHeads != 2 || partly.Remedy() != campaign.RemedyRehearse {
		t.Errorf("of three campaigns of which it tried two: %q, remedy %s", partly.Verdict, partly.Remedy())
	}
	again := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(withoutSKU), Fingerprint: partly.Fingerprint}) // the loaded file
	g = assessed(t, b, "later")
	must.Hold(t, again.Loaded && g.Rehearsal == again.Run.ID && g.RehearsedHeads == 3 && g.Remedy() == campaign.RemedyRequeue, "rehearsed again with what is loaded: %q", g.Verdict)
	every := operations.Selection{}
	p, err := b.Operations.Preview(t.Context(), every, d.Run.ID)
	must.Hold(t, err == nil && p.Rows == 4 && p.Rehearsed == 2, "it covers %d of %d rows (%v), want 2 of 4", p.Rehearsed, p.Rows, err)
	tried, err := b.Operations.PassedHeads(t.Context(), d.Run.ID)
	want := []event.RowKey{{CampaignID: "a", Seq: 1}, {CampaignID: "b", Seq: 1}}
	must.Hold(t, err == nil && len(tried) == 2 && tried[0] == want[0] && tried[1] == want[1], "it tried %v (%v), want %v", tried, err, want)
	op := must.Get(b.Operations.Start(t.Context(), enginetest.Operator, operations.OperationRequest{Selection: every, Rehearsal: d.Run.ID})).Or(t)
	o := b.Operation(op.ID)
	must.Hold(t, o.Rehearsed == 2 && o.CoverText() == "2 of the operation's 4 rows passed it", "the operation that rests on it: %s", o.CoverText())
	b.MustSkip("later", 1)
	g = assessed(t, b, "a")
	must.Hold(t, strings.HasSuffix(g.Verdict, "every blocked campaign passed rehearsal 2: requeue with a canary"), "of the campaigns that it tried: %q", g.Verdict)
}

// A rehearsal that fixes one cause everywhere, one in part and one nowhere says so of each, and what rests on it takes what passed.
func TestRestOn_saysWhatFailedInTheRehearsal(t *testing.T) {
	// A longer number fails in the changed file only.
	fixed := strings.ReplaceAll(withoutSKU, "number text not null", "number text not null check (length(number) < 5)")
	b, d := loadedAfterRehearsal(t, fixed, lacksSKU("a"), lacksSKU("b"), lacksNumber("c"), enginetest.EventOf("long", "ordered", `{"number":"12345"}`))
	mustCount(t, d, rehearsedCounts{Passes: 2, FailsSame: 1, FailsDifferently: 1})
	some, none := assessed(t, b, "a"), assessed(t, b, "c")
	want := ", and with the loaded files 2 of these 3 campaigns passed rehearsal 1, 1 failed in it: requeue those that passed with a canary, and fix the cause for the others"
	must.Hold(t, strings.HasSuffix(some.Verdict, want) && some.Remedy() == campaign.RemedyRequeue && some.RehearsedFailing == 1, "of a cause that it fixes in part: %s, %d failing: %s", some.Remedy(), some.RehearsedFailing, some.Verdict)
	want = ", and with the loaded files every blocked campaign failed in rehearsal 1: requeuing will fail again until the cause is fixed"
	must.Hold(t, strings.HasSuffix(none.Verdict, want) && none.Remedy() == campaign.RemedyInspect && none.Rehearsal == d.Run.ID, "of a cause that it does not fix: %s: %s", none.Remedy(), none.Verdict)
	every := operations.Selection{}
	p, err := b.Operations.Preview(t.Context(), every, d.Run.ID)
	must.Hold(t, err == nil && p.Rows == 2 && p.Rehearsed == 2 && p.RehearsedFailing == 2, "an operation that rests on it takes %d rows, %d of them passed, %d failed (%v)", p.Rows, p.Rehearsed, p.RehearsedFailing, err)
	only := operations.OperationRequest{Selection: operations.Selection{Filter: campaign.RequeueFilter{Fingerprint: none.Fingerprint}}, Rehearsal: d.Run.ID}
	_, err = b.Operations.Start(t.Context(), enginetest.Operator, only)
	must.Hold(t, errors.Is(err, event.ErrConflict) && strings.Contains(err.Error(), "rehearsal 1 found all matching dead rows failing"), "an operation on what failed: %v", err)
	op := must.Get(b.Operations.Start(t.Context(), enginetest.Operator, operations.OperationRequest{Selection: every, Rehearsal: d.Run.ID})).Or(t)
	o := b.Operation(op.ID)
	must.Hold(t, o.Totals.Chosen == 2 && o.CoverText() == "2 of the operation's 2 rows passed it", "the operation that rests on it has %d rows: %s", o.Totals.Chosen, o.CoverText())
}

// A head that would be applied, with an event behind it that fails, is no reason to call its cause unfixed.
func TestRestOn_tellsALaterEventFromTheHead(t *testing.T) {
	b, d := loadedAfterRehearsal(t, withoutSKU, lacksSKU("a"), lacksNumber("a"))
	g := assessed(t, b, "a")
	want := "every blocked campaign passed this event in rehearsal 1, and failed at a later one: requeue with a canary to get there, or fix that first"
	must.Hold(t, countsOf(d).FailsDifferently == 1 && strings.HasSuffix(g.Verdict, want) && g.Outlook == campaign.OutlookSome && g.RehearsedLater == 1, "%s, %d later: %s", g.Outlook, g.RehearsedLater, g.Verdict)
}

func TestRestOn_alsoOfRowsThatWereNotRetried(t *testing.T) {
	changed := strings.ReplaceAll(orders, "-- on: ordered", "-- on: ordered\n-- changed")
	b, d := loadedAfterRehearsal(t, changed, lacksSKU("a"), lacksSKU("b"), lacksSKU("c"))
	b.MustRequeue("a", 1)
	b.Drain()
	g := assessed(t, b, "b")
	must.Hold(t, strings.HasPrefix(g.Verdict, "1 of 3 rows failed with the loaded version of projection orders, and the others with an earlier one alone, and with the loaded files 0 of these 3 campaigns passed rehearsal 1, 2 failed in it; the other 1 was not tried in it, or retried since") && g.Rehearsal == d.Run.ID, "with one of three retried: %s", g.Verdict)
	b.MustRequeue("b", 1)
	b.MustRequeue("c", 1)
	b.Drain()
	g = assessed(t, b, "b")
	must.Hold(t, g.Outlook == campaign.OutlookNone && g.Rehearsal == 0, "with all retried: %s: %s", g.Outlook, g.Verdict)
}

func TestRestOn_isRefutedByARetry(t *testing.T) {
	before, _ := rehearsedWithoutSKU(t)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(before.Clock))
	b.ExecProjections("insert into orders (campaign_id, seq, sku, number) values ('a', 1, '', '')")
	b.MustRequeue("a", 1)
	b.Drain()
	d, err := b.Runs.RehearsalOf(t.Context(), b.MustRow("a", 1).Row.Fingerprint, b.Infos)
	must.Hold(t, d == nil && err == nil, "a campaign that failed again: %+v (%v)", d, err)
	must.Equal(t, assessed(t, b, "b").RehearsedHeads, 1, "campaigns are vouched for")
}

func TestRestOn_needsEveryProjectionAsRehearsed(t *testing.T) {
	before, d := rehearsedWithoutSKU(t)
	for name, c := range map[string]struct {
		sources []string
		says    string
	}{
		"another one changed":  {[]string{withoutSKU, enginetest.Ledger + "-- changed\n"}, "ran with another version of projection ledger; rehearse again"},
		"another one is gone":  {[]string{withoutSKU}, "ran with projection ledger, which is not loaded any more; rehearse again without it"},
		"another one is there": {[]string{withoutSKU, enginetest.Ledger, gate}, "ran without projection gate, which is loaded; rehearse again with it: on the server's page, or with its file in the command's --projections"},
	} {
		b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, c.sources...), enginetest.MaxAttempts(1), enginetest.At(before.Clock))
		must.Equal(t, assessed(t, b, "a").Rehearsal, 0, name)
		r := mustReadRehearsal(t, b, d.Run.ID)
		must.Hold(t, !r.Loaded && r.Outdated() && len(r.Others) == 1, "%s: loaded: %v, the others: %+v", name, r.Loaded, r.Others)
		storetest.Refused(t, b.Runs.RestOn(t.Context(), d.Run.ID, b.Infos), event.ErrConflict, c.says)
	}
}
