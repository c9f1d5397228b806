package runs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestProjectionCursors_pagesTheCampaignsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	f := open(t)
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
	read := func(filter outbox.CursorFilter) (seen []string) {
		filter.Projection, filter.Limit = "roster", 2
		for {
			page := must.Get(f.Runs.ProjectionCursors(f.Ctx, filter, loaded)).Or(t)
			for _, c := range page.Items {
				text := fmt.Sprint(c.CampaignID, " ", c.State, " ", c.AppliedSeq, " lag ", c.LagEvents)
				if c.Failure != nil {
					text += fmt.Sprint(" failed at ", c.Failure.Seq)
				}
				if c.Paused != nil {
					text += " by " + c.Paused.By
				}
				seen = append(seen, text)
			}
			if page.NextCursor == nil {
				return seen
			}
			filter.Cursor = *page.NextCursor
		}
	}
	quarantined := []string{"c-0 quarantined 1 lag 2 failed at 2", "c-2 quarantined 1 lag 2 failed at 2", "c-4 quarantined 1 lag 2 failed at 2"}
	paused := []string{"c-1 paused 3 lag 0 by ana", "c-3 paused 3 lag 0 by ana"}
	must.Equal(t, read(outbox.CursorFilter{State: outbox.CursorQuarantined}), quarantined)
	must.Equal(t, read(outbox.CursorFilter{State: outbox.CursorPaused}), paused)
	all := slices.Concat(quarantined, paused)
	slices.Sort(all)
	must.Equal(t, read(outbox.CursorFilter{}), all)
	_, err := f.Runs.ProjectionCursors(f.Ctx, outbox.CursorFilter{Projection: "nothing"}, loaded)
	refused(t, err, outbox.ErrNotFound)

	must.Get(f.Runs.PauseProjection(f.Ctx, ana("all"), "history", "", loaded)).Or(t)
	described := must.Get(f.Runs.DescribeProjections(f.Ctx, loaded)).Or(t)
	roster, history := described[0], described[1]
	must.Hold(t, roster.Quarantined == 3 && roster.PausedCampaigns == 2 && roster.OpenFailures == 3 && roster.Paused == nil && !roster.BuiltByOtherVersion && !roster.CountsCapped, "roster is %+v", roster)
	must.Hold(t, history.Paused != nil && history.Paused.Reason == "all" && history.PausedCampaigns == 5, "history is %+v", history)
	cursors, err := f.Runs.Cursors(f.Ctx, "c-0", loaded)
	must.Hold(t, err == nil && cursors[1].State == outbox.CursorPaused && cursors[1].PausedForAll && cursors[1].AppliedSeq == 3, "cursors %+v, %v", cursors, err)
	f.AppendN("c-0", 1)
	f.Drain()
	f.Clock.Advance(time.Minute)
	described, err = f.Runs.DescribeProjections(f.Ctx, loaded)
	if err != nil || described[1].PausedCampaigns != 5 || described[1].NotLive() != 5 {
		t.Errorf("history is %+v (%v)", described[1], err)
	}
	sum, err := f.Store.Summary(f.Ctx)
	must.Hold(t, err == nil && len(sum.Held) == 2 && sum.Held[0].Projection == "history" && sum.Held[0].PausedCampaigns == 5 && sum.Held[1].Quarantined == 3 && sum.Held[1].PausedCampaigns == 2, "the summary has %+v (%v)", sum.Held, err)
	forAll, campaigns := sum.PausedProjections()
	must.Hold(t, forAll == 1 && campaigns == 2, "paused are %d for all, and %d", forAll, campaigns)
	f.Sound()
}

func TestCursors_tellOfEachLoadedProjectionWhereItStands(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, p := range []readmodel.Projection{{Name: "roster", Version: "v1"}, {Name: "roster", Version: "v2", Tables: []string{"roster"}}, {Name: "history", Version: "v1"}} {
		must.OK(t, f.Install(f.Ctx, []readmodel.Projection{p}))
	}
	f.AppendN("a", 5)
	f.AppendN("b", 2)
	f.Drain()
	loaded := []outbox.ProjectionInfo{{Name: "roster", Version: "v2"}, {Name: "history", Version: "v1"}, {Name: "new", Version: "v1"}}
	e := must.Get(f.Event(f.Ctx, "a", 4)).Or(t)
	must.OK(t, f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		return errors.Join(tx.Failed("roster", &e, *storetest.Failure("boom")), tx.Quarantine("roster", &e))
	}))
	applied := f.Clock.Now()
	f.Clock.Advance(time.Minute)
	got := must.Get(f.Runs.Cursors(f.Ctx, "a", loaded)).Or(t)
	want := []outbox.Cursor{
		{Projection: "roster", AppliedSeq: 3, LagEvents: 2, LagSeconds: 60, LastAppliedAt: &applied, Attempts: 1, Generation: 1, State: outbox.CursorQuarantined, ChangedAt: applied, Version: "v2", RowsBuilt: outbox.RowsBuilt{BuiltByOtherVersion: true, BuiltVersions: []outbox.LoadedVersion{{Version: "v1"}, {Version: "v2"}}},
			Failure: &outbox.CursorFailure{Seq: 4, EventType: "counted", Message: "boom", Fingerprint: outbox.Fingerprint("boom"), Attempts: 1, At: applied}},
		{Projection: "history", AppliedSeq: 5, LastAppliedAt: &applied, Generation: 1, State: outbox.CursorLive, Version: "v1", RowsBuilt: outbox.RowsBuilt{BuiltVersion: "v1", BuiltVersions: []outbox.LoadedVersion{{Version: "v1"}}}},
		{Projection: "new", AppliedSeq: 5, LastAppliedAt: &applied, Generation: 1, State: outbox.CursorLive, Version: "v1", RowsBuilt: outbox.RowsBuilt{BuiltVersions: []outbox.LoadedVersion{}}},
	}
	must.Equal(t, got, want)
	page, err := f.Runs.ProjectionCursors(f.Ctx, outbox.CursorFilter{Projection: "roster"}, loaded)
	must.Hold(t, err == nil && len(page.Items) == 1 && cmp.Diff(want[0], page.Items[0].Cursor) == "", "in the list of its campaigns: %+v, %v", page, err)
	got, err = f.Runs.Cursors(f.Ctx, "b", loaded)
	must.Hold(t, err == nil && got[0].State == outbox.CursorLive && got[0].AppliedSeq == 2 && got[0].Failure == nil, "of the other campaign: %+v, %v", got, err)
	_, err = f.Runs.Cursors(f.Ctx, "nobody", loaded)
	refused(t, err, outbox.ErrNotFound, `there is no campaign "nobody"`)
}

func TestPauseProjection_refusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	f.AppendN("a", 3)
	f.Drain()
	f.Fails("history", "a", 3, storetest.Quarantine("history"))
	pause := func(projection, campaign string) error {
		_, err := f.Runs.PauseProjection(f.Ctx, ana("why"), projection, campaign, loaded)
		return err
	}
	resume := func(projection, campaign string) error {
		_, err := f.Runs.ResumeProjection(f.Ctx, ana(""), projection, campaign, loaded)
		return err
	}
	f.Unchanged(func() {
		refused(t, pause("nothing", ""), outbox.ErrNotFound, `no projection "nothing"`)
		refused(t, pause("nothing", "a"), outbox.ErrNotFound, `no projection "nothing"`)
		refused(t, pause("roster", "nobody"), outbox.ErrNotFound, `there is no campaign "nobody"`)
		refused(t, pause("history", "a"), outbox.ErrConflict, "quarantined", "replay")
		refused(t, resume("roster", "a"), outbox.ErrConflict, "not paused", "live")
		refused(t, resume("history", "a"), outbox.ErrConflict, "not paused", "quarantined")
		refused(t, resume("roster", ""), outbox.ErrConflict, "not paused for all")
	})
	must.OK(t, pause("roster", "a"))
	refused(t, pause("roster", "a"), outbox.ErrConflict, "already paused", "ana")
	must.OK(t, pause("roster", ""))
	refused(t, pause("roster", ""), outbox.ErrConflict, "already paused", "all campaigns", "ana")
	refused(t, pause("roster", "a"), outbox.ErrConflict, "already paused", "all campaigns", "ana")
	refused(t, resume("roster", "a"), outbox.ErrConflict, "all campaigns", "resume it for all")
	must.OK(t, resume("roster", ""))
	cursors, err := f.Runs.Cursors(f.Ctx, "a", loaded)
	must.Hold(t, err == nil && cursors[0].State == outbox.CursorPaused && cursors[0].Paused.By == "ana" && cursors[0].Paused.Reason == "why", "the pause of one campaign is gone: %+v, %v", cursors, err)
	must.OK(t, resume("roster", "a"))
	f.Sound()
	acts, err := f.AuditLog(f.Ctx, outbox.AuditFilter{Outcome: outbox.AuditDone})
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
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		f.AppendN(id, 1)
	}
	f.Drain()
	f.AppendN("new", 1)
	var notes []outbox.Verification
	for i, id := range []string{"a", "b", "d"} {
		notes = append(notes, outbox.Verification{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(10-i) * time.Minute), Verdict: outbox.VerdictMatch})
	}
	must.OK(t, f.RecordVerifications(f.Ctx, notes))
	got, next, err := f.Runs.Stalest(f.Ctx, "", 3)
	must.Hold(t, err == nil && next == "new" && len(got) == 3 && got[0].CampaignID == "c" && got[1].CampaignID == "d" && got[2].CampaignID == "b" && got[0].AppliedSeq == 1, "stalest are %+v, %q, %v", got, next, err)
	got, next, err = f.Runs.Stalest(f.Ctx, "b", 9)
	must.Hold(t, err == nil && next == "b" && len(got) == 4, "after b they are %+v, %q, %v", got, next, err)
}

func TestStalestCampaigns_takesTurnsWithOneMoreThanAWindow(t *testing.T) {
	t.Parallel()
	f := open(t)
	events := make([]outbox.Event, 501)
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
		must.OK(t, f.RecordVerifications(f.Ctx, []outbox.Verification{{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(i) * time.Minute), Verdict: outbox.VerdictMatch}}))
		after, verified[id] = next, true
	}
	must.Hold(t, len(verified) >= turns-1, "in %d turns %d campaigns were verified", turns, len(verified))
}

func TestVerifyNext_goesOnPastWhatCannotBeVerified(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail))
	b.Feed(append(enginetest.Notes("a", 3), append(enginetest.Notes("b", 2), enginetest.Notes("c", 2)...)...)...)
	b.ExecProjections(`update projection_watermarks set applied_hash = 'other' where campaign_id = 'a'`)
	step := b.RunWorker.VerifyNext()
	for range 4 {
		must.Get(step(t.Context())).Or(t)
	}
	for _, id := range []string{"b", "c"} {
		must.Equal(t, len(must.Get(b.Verifications(t.Context(), id)).Or(t)), 1, "the verifications of campaign", id)
	}
}
