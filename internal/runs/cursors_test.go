package runs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestProjectionCursors_pagesTheCampaignsThatAreNotFollowed(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster", "history")
	for i := range 5 {
		id := fmt.Sprint("c-", i)
		f.AppendN(id, 3)
		f.Drain()
		if i%2 == 0 {
			f.Fails("roster", id, 2, storetest.Quarantine("roster"))
			continue
		}
		must.Get(f.Runs.PauseProjection(f.Ctx, ana("later"), "roster", id, loaded)).Or(t)
	}
	read := func(filter campaign.CursorFilter) []string {
		return storetest.Items(storetest.Pager(func(cursor string) event.Page[string] {
			filter.Projection, filter.Limit, filter.Cursor = "roster", 2, cursor
			return storetest.Keyed(must.Get(f.Runs.ProjectionCursors(f.Ctx, filter, loaded)).Or(t), func(c campaign.CampaignCursor) string {
				text := fmt.Sprint(c.CampaignID, " ", c.State, " ", c.AppliedSeq, " lag ", c.LagEvents)
				if c.Failure != nil {
					text += fmt.Sprint(" failed at ", c.Failure.Seq)
				}
				if c.Paused != nil {
					text += " by " + c.Paused.By
				}
				return text
			})
		}).All(t))
	}
	quarantined := []string{"c-0 quarantined 1 lag 2 failed at 2", "c-2 quarantined 1 lag 2 failed at 2", "c-4 quarantined 1 lag 2 failed at 2"}
	paused := []string{"c-1 paused 3 lag 0 by ana", "c-3 paused 3 lag 0 by ana"}
	must.Equal(t, read(campaign.CursorFilter{State: campaign.CursorQuarantined}), quarantined)
	must.Equal(t, read(campaign.CursorFilter{State: campaign.CursorPaused}), paused)
	all := slices.Concat(quarantined, paused)
	slices.Sort(all)
	must.Equal(t, read(campaign.CursorFilter{}), all)
	refused(t, storetest.No(f.Runs.ProjectionCursors(f.Ctx, campaign.CursorFilter{Projection: "nothing"}, loaded)), event.ErrNotFound)

	must.Get(f.Runs.PauseProjection(f.Ctx, ana("all"), "history", "", loaded)).Or(t)
	described := must.Get(f.Runs.DescribeProjections(f.Ctx, loaded)).Or(t)
	roster, history := described[0], described[1]
	must.Hold(t, roster.Quarantined == 3 && roster.PausedCampaigns == 2 && roster.OpenFailures == 3 && roster.Paused == nil && !roster.BuiltByOtherVersion && !roster.CountsCapped, "roster is %+v", roster)
	must.Hold(t, history.Paused != nil && history.Paused.Reason == "all" && history.PausedCampaigns == 5, "history is %+v", history)
	cursors, err := f.Runs.Cursors(f.Ctx, "c-0", loaded)
	must.Hold(t, err == nil && cursors[1].State == campaign.CursorPaused && cursors[1].PausedForAll && cursors[1].AppliedSeq == 3, "cursors %+v, %v", cursors, err)
	f.Applied("c-0", 1)
	f.Clock.Advance(time.Minute)
	described, err = f.Runs.DescribeProjections(f.Ctx, loaded)
	must.Hold(t, err == nil && described[1].PausedCampaigns == 5 && described[1].NotLive() == 5, "history is %+v (%v)", described[1], err)
	sum, err := f.Store.Summary(f.Ctx)
	must.Hold(t, err == nil && len(sum.Held) == 2 && sum.Held[0].Projection == "history" && sum.Held[0].PausedCampaigns == 5 && sum.Held[1].Quarantined == 3 && sum.Held[1].PausedCampaigns == 2, "the summary has %+v (%v)", sum.Held, err)
	forAll, campaigns := sum.PausedProjections()
	must.Hold(t, forAll == 1 && campaigns == 2, "paused are %d for all, and %d", forAll, campaigns)
	f.Sound()
}

func TestCursors_tellOfEachLoadedProjectionWhereItStands(t *testing.T) {
	f := own(t)
	for _, p := range []readmodel.Projection{{Name: "roster", Version: "v1"}, {Name: "roster", Version: "v2", Tables: []string{"roster"}}, {Name: "history", Version: "v1"}} {
		must.OK(t, f.Install(f.Ctx, []readmodel.Projection{p}))
	}
	f.AppendN("a", 5)
	f.Applied("b", 2)
	loaded := []campaign.ProjectionInfo{{Name: "roster", Version: "v2"}, {Name: "history", Version: "v1"}, {Name: "new", Version: "v1"}}
	e := must.Get(f.Event(f.Ctx, "a", 4)).Or(t)
	must.OK(t, f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		return errors.Join(tx.Failed("roster", &e, *storetest.Failure("boom")), tx.Quarantine("roster", &e))
	}))
	applied := f.Clock.Now()
	f.Clock.Advance(time.Minute)
	got := must.Get(f.Runs.Cursors(f.Ctx, "a", loaded)).Or(t)
	want := []campaign.Cursor{
		{Projection: "roster", AppliedSeq: 3, LagEvents: 2, LagSeconds: 60, LastAppliedAt: &applied, Attempts: 1, Generation: 1, State: campaign.CursorQuarantined, ChangedAt: applied, Version: "v2", RowsBuilt: campaign.RowsBuilt{BuiltByOtherVersion: true, BuiltVersions: []campaign.LoadedVersion{{Version: "v1"}, {Version: "v2"}}},
			Failure: &campaign.CursorFailure{Seq: 4, EventType: "counted", Message: "boom", Fingerprint: event.Fingerprint("boom"), Attempts: 1, At: applied}},
		{Projection: "history", AppliedSeq: 5, LastAppliedAt: &applied, Generation: 1, State: campaign.CursorLive, Version: "v1", RowsBuilt: campaign.RowsBuilt{BuiltVersion: "v1", BuiltVersions: []campaign.LoadedVersion{{Version: "v1"}}}},
		{Projection: "new", AppliedSeq: 5, LastAppliedAt: &applied, Generation: 1, State: campaign.CursorLive, Version: "v1", RowsBuilt: campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{}}},
	}
	for i := range got {
		got[i].Built = nil // which is told of one campaign alone
	}
	must.Equal(t, got, want)
	page, err := f.Runs.ProjectionCursors(f.Ctx, campaign.CursorFilter{Projection: "roster"}, loaded)
	must.Hold(t, err == nil && len(page.Items) == 1 && cmp.Diff(want[0], page.Items[0].Cursor) == "", "in the list of its campaigns: %+v, %v", page, err)
	got, err = f.Runs.Cursors(f.Ctx, "b", loaded)
	must.Hold(t, err == nil && got[0].State == campaign.CursorLive && got[0].AppliedSeq == 2 && got[0].Failure == nil, "of the other campaign: %+v, %v", got, err)
	refused(t, storetest.No(f.Runs.Cursors(f.Ctx, "nobody", loaded)), event.ErrNotFound, `there is no campaign "nobody"`)
}

// What a version built ends where another was loaded, and rows begin with their campaign or with their swap.
func TestCursors_nameTheVersionsThatBuiltTheRowsOfACampaign(t *testing.T) {
	f := own(t)
	load := func(version string) {
		must.OK(t, f.Install(f.Ctx, []readmodel.Projection{{Name: "roster", Version: version}}))
		must.OK(t, f.Store.Loaded(f.Ctx, campaign.InstanceState{ID: "one", Host: "h"}, []campaign.Definition{{Projection: "roster", Version: version}}))
		f.Clock.Advance(time.Minute)
	}
	by := func(campaignID string) string {
		return must.Get(f.Runs.Cursors(f.Ctx, campaignID, []campaign.ProjectionInfo{{Name: "roster", Version: "v2"}})).Or(t)[0].By()
	}
	load("v1")
	f.AppendN("old", 2)
	f.Applied("idle", 1)
	f.Clock.Advance(time.Minute)
	load("v2")
	f.Applied("old new", 1)
	must.Equal(t, by("idle")+"; "+by("old")+"; "+by("new"), "by version 1 (v1); by versions 1 (v1) and 2 (v2); by the loaded version")
	const cursor = `insert into projection_cursors (campaign_id, projection, applied_seq, generation, state, updated_at, applied_at) values ('old', 'roster', 3, 2, 'live', $1, $1)`
	f.ExecProjections(cursor, f.Clock.Now().UnixMicro())
	must.Equal(t, by("old"), "by the loaded version", "once a rebuild swapped the rows")
	f.ExecProjections(`update projection_cursors set updated_at = updated_at + 1`)
	must.Equal(t, by("old"), "by versions 1 (v1) and 2 (v2)", "where a resume changed the cursor last")
}

func TestPauseProjection_refusesWhatMakesNoSense(t *testing.T) {
	f := own(t)
	loaded := f.WithProjections("roster", "history")
	f.Applied("a", 3)
	f.Fails("history", "a", 3, storetest.Quarantine("history"))
	pause := func(projection, campaign string) error {
		return storetest.No(f.Runs.PauseProjection(f.Ctx, ana("why"), projection, campaign, loaded))
	}
	resume := func(projection, campaign string) error {
		return storetest.No(f.Runs.ResumeProjection(f.Ctx, ana(""), projection, campaign, loaded))
	}
	f.Unchanged(func() {
		refused(t, pause("nothing", ""), event.ErrNotFound, `no projection "nothing"`)
		refused(t, pause("nothing", "a"), event.ErrNotFound, `no projection "nothing"`)
		refused(t, pause("roster", "nobody"), event.ErrNotFound, `there is no campaign "nobody"`)
		refused(t, pause("history", "a"), event.ErrConflict, "quarantined", "replay")
		refused(t, resume("roster", "a"), event.ErrConflict, "not paused", "live")
		refused(t, resume("history", "a"), event.ErrConflict, "not paused", "quarantined")
		refused(t, resume("roster", ""), event.ErrConflict, "not paused for all")
	})
	must.OK(t, pause("roster", "a"))
	refused(t, pause("roster", "a"), event.ErrConflict, "already paused", "ana")
	must.OK(t, pause("roster", ""))
	refused(t, pause("roster", ""), event.ErrConflict, "already paused", "all campaigns", "ana")
	refused(t, pause("roster", "a"), event.ErrConflict, "already paused", "all campaigns", "ana")
	refused(t, resume("roster", "a"), event.ErrConflict, "all campaigns", "resume it for all")
	must.OK(t, resume("roster", ""))
	cursors, err := f.Runs.Cursors(f.Ctx, "a", loaded)
	must.Hold(t, err == nil && cursors[0].State == campaign.CursorPaused && cursors[0].Paused.By == "ana" && cursors[0].Paused.Reason == "why", "the pause of one campaign is gone: %+v, %v", cursors, err)
	must.OK(t, resume("roster", "a"))
	f.Sound()
	acts, err := f.AuditLog(f.Ctx, operator.AuditFilter{Outcome: operator.AuditDone})
	var actions []string
	for _, a := range acts.Items {
		actions = append(actions, strings.Join([]string{string(a.Action), a.CampaignID, string(a.Before)}, " "))
	}
	want := []string{`projection_resume a {"projection":"roster"}`, `projection_resume  {"projection":"roster"}`,
		`projection_pause  {"projection":"roster"}`, `projection_pause a {"projection":"roster"}`}
	diff := cmp.Diff(want, actions)
	must.Hold(t, err == nil && diff == "", "audit records: %v %s", err, diff)
}

func TestStalestCampaigns_choosesWhatWasNotVerifiedForLongest(t *testing.T) {
	f := own(t)
	f.Applied("a b c d", 1)
	f.AppendN("new", 1)
	var notes []campaign.Verification
	for i, id := range []string{"a", "b", "d"} {
		notes = append(notes, campaign.Verification{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(10-i) * time.Minute), Verdict: campaign.VerdictMatch})
	}
	must.OK(t, f.RecordVerifications(f.Ctx, notes))
	got, next, err := f.Runs.Stalest(f.Ctx, "", 3)
	must.Hold(t, err == nil && next == "new" && len(got) == 3 && got[0].CampaignID == "c" && got[1].CampaignID == "d" && got[2].CampaignID == "b" && got[0].AppliedSeq == 1, "stalest are %+v, %q, %v", got, next, err)
	got, next, err = f.Runs.Stalest(f.Ctx, "b", 9)
	must.Hold(t, err == nil && next == "b" && len(got) == 4, "after b they are %+v, %q, %v", got, next, err)
}

func TestStalestCampaigns_takesTurnsWithOneMoreThanAWindow(t *testing.T) {
	f, events := own(t), make([]event.Event, 501)
	for i := range events {
		events[i] = storetest.Event(fmt.Sprintf("c%03d", i), "counted")
	}
	f.MustAppend(events...)
	f.Exec(allApplied)
	after, verified := "", make(map[string]bool)
	const turns = 8
	for i := range turns {
		got, next, err := f.Runs.Stalest(f.Ctx, after, 1)
		must.Need(t, err == nil && len(got) == 1, "turn %d: %+v, %v", i, got, err)
		id := got[0].CampaignID
		must.OK(t, f.RecordVerifications(f.Ctx, []campaign.Verification{{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(i) * time.Minute), Verdict: campaign.VerdictMatch}}))
		after, verified[id] = next, true
	}
	must.Hold(t, len(verified) >= turns-1, "in %d turns %d campaigns were verified", turns, len(verified))
}

func TestVerifyNext_goesOnPastWhatCannotBeVerified(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail})
	b.Feed(append(enginetest.Notes("a", 3), enginetest.Notes("b c", 2)...)...)
	b.ExecProjections(`update projection_watermarks set applied_hash = 'other' where campaign_id = 'a'`)
	step := b.RunWorker.VerifyNext()
	for range 4 {
		must.Get(step(t.Context())).Or(t)
	}
	for _, id := range []string{"b", "c"} {
		must.Equal(t, len(must.Get(b.Verifications(t.Context(), id)).Or(t)), 1, "the verifications of campaign", id)
	}
}

// dropped is an engine with three projections that has lost a table of each, and whose campaigns have cursors of every kind.
func dropped(t *testing.T) *enginetest.Engine {
	track := strings.ReplaceAll(enginetest.Trail, "trail", "track")
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Ledger, track, enginetest.LenientAccounts}, enginetest.MaxAttempts(1))
	b.Feed(append(append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...), enginetest.Opened("q", 1), enginetest.Spent("q", 100))...)
	b.PauseProjection("track", "b").Beside()
	must.Need(t, len(b.SetAsideCursors()) == 2, "a start changes something though nothing is missing")
	for _, table := range []string{"ledger_history", "track", "accounts"} {
		b.ExecProjections("drop table " + table)
	}
	return b
}

func mustBeWhole(t *testing.T, b *enginetest.Engine) {
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Counts.Drifted+run.Counts.Failed == 0 && run.Counts.Matched > 0, "run %+v", run)
	found := behindOf(t, b)
	must.Hold(t, len(found) == 0, "check: %v", found)
}

// Tables dropped by hand are made again at the next start, and a replay that starts by itself fills them in
// every campaign; also where one of several tables of a projection is gone.
func TestInstall_makesDroppedTablesAgainAndOwesAReplay(t *testing.T) {
	b := dropped(t).Beside()
	b.MustHaveCursors("a accounts 0 behind", "a ledger 0 behind", "a track 0 behind", "b accounts 0 behind", "b ledger 0 behind", "b track 0 paused",
		"q accounts 0 behind", "q ledger 0 behind", "q track 0 behind")
	b.Feed(enginetest.Notes("a", 1)...)
	must.Get(b.Maintenance.Reconcile(t.Context())).Or(t)
	b.StepRuns()
	cursors := b.SetAsideCursors()
	must.Hold(t, slices.Contains(cursors, "a ledger 4 live") && slices.Contains(cursors, "b track 0 paused") && slices.Contains(cursors, "q accounts 1 quarantined"), "after the replay the cursors are %v", cursors)
	b.ResumeProjection("track", "b")
	b.StepRuns()
	mustBeWhole(t, b)
}

func TestWork_makesDroppedTablesAgain(t *testing.T) {
	b := dropped(t)
	b.ResumeProjection("track", "b")
	told := func() (kinds []database.FaultKind) {
		for _, f := range b.ReadModel().Faults() {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	}
	must.OK(t, b.RunWorker.RestoreTables(t.Context()))
	kinds := told()
	must.Hold(t, slices.Contains(kinds, database.FaultTable), "told %v", kinds)
	b.StepRuns()
	mustBeWhole(t, b)
	must.OK(t, b.RunWorker.RestoreTables(t.Context()))
	kinds = told()
	must.Hold(t, len(kinds) <= 0, "told %v though no table is missing", kinds)
}

// A running server finds a dropped table when it verifies, and says what helps: a rebuild, which makes it again.
func TestVerify_saysThatATableIsMissing(t *testing.T) {
	b := dropped(t)
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Counts.Failed == 3 && !strings.Contains(run.Error, "internal"), "run %+v", run)
	const says = "table ledger_history of projection ledger is missing; a running worker makes its tables again within half a minute, and a replay fills them"
	r := b.RunResult(run, "a")
	must.Hold(t, r.Outcome == replay.OutcomeFailed && r.Error == says && r.Unsound == 0, "result %+v, want %q", r, says)
	b.ResumeProjection("track", "b")
	rebuilt := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
	must.Hold(t, rebuilt.Counts.Drifted == 2 && rebuilt.Counts.Failed == 1, "run %+v", rebuilt) // q has an event that cannot be applied
	b.StepRuns()
	mustBeWhole(t, b)
}

func TestVerify_saysThatATableHasChanged(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts})
	b.Feed(enginetest.Opened("a", 5), enginetest.Spent("a", 1)).ExecProjections("alter table accounts drop column spent")
	run := b.RunToEnd(enginetest.Everything)
	const says = "table accounts of projection accounts is not as its file makes it; drop it, and start a rebuild of the projection: its tables are made again and filled"
	r := b.RunResult(run, "a")
	must.Hold(t, (r.Outcome == replay.OutcomeFailed || r.Outcome == replay.OutcomeDrift) && (r.Error == "" || r.Error == says), "result %+v, want drift or %q", r, says)
	failed := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true, Projections: []string{"accounts"}})
	must.Hold(t, strings.Contains(failed.Error, "drop"), "run %+v", failed)
	b.ExecProjections("drop table accounts")
	b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true, Projections: []string{"accounts"}})
	mustBeWhole(t, b)
}

// A campaign that advances while a projection's file is away has events that the projection lacks. It is
// behind there once it is loaded again, and caught up by itself; elsewhere it is live and whole.
func TestUnloaded_projectionIsBehindWhereEventsWereAppliedWithoutIt(t *testing.T) {
	track := strings.ReplaceAll(enginetest.Trail, "trail", "track")
	b := enginetest.Own(t, []string{enginetest.Trail, track})
	b.Feed(enginetest.Notes("a b", 3)...)
	without := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail))
	must.OK(t, without.Leave(t.Context(), []string{"trail"})) // as a worker that starts
	without.Feed(enginetest.Notes("a", 2)...).MustHaveCursors("a track 3 behind")
	summary, err := without.Summary(t.Context())
	must.Hold(t, err == nil && len(summary.Held) == 1 && summary.Held[0].NotLoaded && summary.Held[0].Behind == 1 && summary.Held[0].RunID == 0, "held are %+v, %v", summary.Held, err)
	const lacks = "Everything is applied, but projection track is not loaded, 2 events behind"
	cursors, err := without.Runs.Cursors(t.Context(), "a", without.Infos)
	must.Hold(t, err == nil && len(cursors) == 2 && cursors[1].NotLoaded && cursors[1].LagEvents == 2, "cursors without it are %+v, %v", cursors, err)
	held, err := without.Runs.Held(t.Context(), without.Infos, "a", "b")
	says := without.MustCampaign("a").Explain(time.Now(), campaign.Surroundings{}).WithHeldProjections(held["a"]).Why
	must.Hold(t, err == nil && says == lacks && len(held["b"]) == 0, "the campaign says %q, want %q; held are %+v (%v)", says, lacks, held, err)
	must.Get(without.Maintenance.Reconcile(t.Context())).Or(t) // nobody could catch it up

	back := b.Beside()
	cursors, err = back.Runs.Cursors(t.Context(), "a", back.Infos)
	must.Hold(t, err == nil && cursors[1].State == campaign.CursorBehind && cursors[1].AppliedSeq == 3 && cursors[1].LagEvents == 2, "cursors are %+v, %v", cursors, err)
	for _, c := range cursors {
		must.Hold(t, !c.BuiltByOtherVersion, "rows of %s count as built by another version: %+v", c.Projection, c.RowsBuilt)
	}
	back.Feed(enginetest.Notes("a", 1)...).MustHaveCursors("a track 3 behind")
	must.Get(back.Maintenance.Reconcile(t.Context())).Or(t)
	back.StepRuns().MustHaveCursors("a track 6 live")
	run := back.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Verdict == campaign.VerdictMatch && run.Counts.Matched == 2, "run %+v after the replay, want two matches", run)
}

func TestUnloaded_projectionStaysQuarantinedUntilItIsReplayed(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.LenientAccounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 1), enginetest.Opened("q", 1), enginetest.Spent("q", 100))
	without := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail))
	must.OK(t, without.Leave(t.Context(), []string{"trail"})) // as a worker that starts
	without.Feed(append(enginetest.Notes("a", 2), enginetest.Notes("q", 1)...)...)
	known := must.Get(without.Runs.WithUnloaded(t.Context(), without.Infos)).Or(t)
	described, err := without.Runs.DescribeProjections(t.Context(), known)
	must.Need(t, err == nil && len(described) == 2 && !described[0].NotLoaded && described[1].NotLoaded && described[1].Behind == 1 && described[1].Quarantined == 1, "described are %+v, %v", described, err)
	page, err := without.Runs.ProjectionCursors(t.Context(), campaign.CursorFilter{Projection: "accounts"}, known)
	c := page.Items
	must.Hold(t, err == nil && len(c) == 2 && c[0].NotLoaded && c[0].LagEvents == 2 && c[1].State == campaign.CursorQuarantined && c[1].LagEvents == 2, "cursors are %+v, %v", c, err)
	h := described[1].Held()
	must.Equal(t, h.AdvancedWithout(), " Events were applied without it in 2 campaigns; it is quarantined in 1 of them.", "it says")
	got, want := h.OnceLoaded(), "Once it is loaded again, a replay starts by itself and catches it up, except where it is quarantined: it stays quarantined there until you start a replay of it."
	must.Hold(t, got == want, "it says %q, want %q", got, want)
	h.Paused = &campaign.Pause{By: "ana"} // for all campaigns: it is caught up nowhere
	got, want = h.OnceLoaded(), "Once it is loaded again and resumed, a replay starts by itself"
	must.Hold(t, strings.HasPrefix(got, want), "paused for all it says %q, want %q", got, want)

	fixed := strings.Replace(enginetest.LenientAccounts, "balance - :payload.amount!", "balance - 1", 1)
	back := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, enginetest.Trail, fixed), enginetest.MaxAttempts(1))
	must.Get(back.Maintenance.Reconcile(t.Context())).Or(t)
	back.StepRuns().MustHaveCursors("a accounts 3 live", "q accounts 1 quarantined")
	back.RunToEnd(replay.RunRequest{Kind: replay.RunReplay, All: true, Projections: []string{"accounts"}})
	back.MustHaveCursors("a accounts 3 live", "q accounts 3 live")
}
