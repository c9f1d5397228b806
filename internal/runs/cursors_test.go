package runs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		if _, err := f.Runs.PauseProjection(f.Ctx, ana("later"), "roster", id, loaded); err != nil {
			t.Fatal(err)
		}
	}
	read := func(filter outbox.CursorFilter) (seen []string) {
		filter.Projection, filter.Limit = "roster", 2
		for {
			page, err := f.Runs.ProjectionCursors(f.Ctx, filter, loaded)
			if err != nil {
				t.Fatal(err)
			}
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
	if diff := cmp.Diff(quarantined, read(outbox.CursorFilter{State: outbox.CursorQuarantined})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(paused, read(outbox.CursorFilter{State: outbox.CursorPaused})); diff != "" {
		t.Error(diff)
	}
	all := slices.Concat(quarantined, paused)
	slices.Sort(all)
	if diff := cmp.Diff(all, read(outbox.CursorFilter{})); diff != "" {
		t.Error(diff)
	}
	_, err := f.Runs.ProjectionCursors(f.Ctx, outbox.CursorFilter{Projection: "nothing"}, loaded)
	refused(t, err, outbox.ErrNotFound)

	if _, err := f.Runs.PauseProjection(f.Ctx, ana("all"), "history", "", loaded); err != nil {
		t.Fatal(err)
	}
	described, err := f.Runs.DescribeProjections(f.Ctx, loaded)
	if err != nil {
		t.Fatal(err)
	}
	roster, history := described[0], described[1]
	if roster.Quarantined != 3 || roster.PausedCampaigns != 2 || roster.OpenFailures != 3 || roster.Paused != nil || roster.BuiltByOtherVersion || roster.CountsCapped {
		t.Errorf("roster is %+v", roster)
	}
	if history.Paused == nil || history.Paused.Reason != "all" || history.PausedCampaigns != 5 {
		t.Errorf("history is %+v", history)
	}
	cursors, err := f.Runs.Cursors(f.Ctx, "c-0", loaded)
	if err != nil || cursors[1].State != outbox.CursorPaused || !cursors[1].PausedForAll || cursors[1].AppliedSeq != 3 {
		t.Errorf("cursors %+v, %v; want history paused for all at 3", cursors, err)
	}
	f.AppendN("c-0", 1)
	f.Drain()
	f.Clock.Advance(time.Minute)
	described, err = f.Runs.DescribeProjections(f.Ctx, loaded)
	if err != nil || described[1].PausedCampaigns != 5 || described[1].NotLive() != 5 {
		t.Errorf("history is %+v (%v)", described[1], err)
	}
	sum, err := f.Store.Summary(f.Ctx)
	if err != nil || len(sum.Held) == 0 || sum.Held[0].Projection != "history" || sum.Held[0].PausedCampaigns != 5 {
		t.Errorf("the summary has %+v (%v)", sum.Held, err)
	}
	if forAll, campaigns := sum.PausedProjections(); forAll != 1 || campaigns != 2 {
		t.Errorf("paused are %d for all, and %d", forAll, campaigns)
	}
	f.Sound()
}

func TestSummary_tellsOfQuarantinedProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
		f.Drain()
		f.Fails("history", id, 3, storetest.Quarantine("history"))
	}
	mustTellHeld(f, outbox.BehindCounts{}, outbox.HeldProjection{Projection: "history", Quarantined: 2})
	if _, err := f.Runs.PauseProjection(f.Ctx, ana("a bug"), "roster", "a", loaded); err != nil {
		t.Fatal(err)
	}
	mustTellHeld(f, outbox.BehindCounts{}, outbox.HeldProjection{Projection: "history", Quarantined: 2}, outbox.HeldProjection{Projection: "roster", PausedCampaigns: 1})
}

func TestCursors_tellLagLastAppliedAndAttempts(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	f.AppendN("a", 2)
	if got := cursorsOf(f, "a", loaded); got != `roster: 0 lacks 2 for 0s, applied never, 0 attempts; history: 0 lacks 2 for 0s, applied never, 0 attempts` {
		t.Errorf("before anything is applied: %s", got)
	}
	f.Drain()
	applied := f.Clock.Now()
	f.Clock.Advance(time.Hour)
	f.AppendN("a", 1)
	f.Clock.Advance(time.Minute)
	f.Fails("history", "a", 3)
	f.Fails("history", "a", 3, storetest.Quarantine("history"))
	when := applied.Format("15:04:05")
	if got := cursorsOf(f, "a", loaded); got != `roster: 2 lacks 1 for 1m0s, applied `+when+`, 0 attempts; history: 2 lacks 1 for 1m0s, applied `+when+`, 2 attempts` {
		t.Errorf("one is set aside at event 3: %s", got)
	}
	f.Drain()
	f.Clock.Advance(time.Minute)
	now := applied.Add(time.Hour + time.Minute).Format("15:04:05")
	if got := cursorsOf(f, "a", loaded); got != `roster: 3 lacks 0 for 0s, applied `+now+`, 0 attempts; history: 2 lacks 1 for 2m0s, applied `+when+`, 2 attempts` {
		t.Errorf("the other went on: %s", got)
	}
	page, err := f.Runs.ProjectionCursors(f.Ctx, outbox.CursorFilter{Projection: "history"}, loaded)
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if got := cursorText(page.Items[0].Cursor); got != `history: 2 lacks 1 for 2m0s, applied `+when+`, 2 attempts` {
		t.Errorf("in the list of its campaigns: %s", got)
	}
}

func cursorsOf(f *fixture, campaign string, loaded []outbox.ProjectionInfo) string {
	f.TB.Helper()
	all, err := f.Runs.Cursors(f.Ctx, campaign, loaded)
	if err != nil {
		f.TB.Fatal(err)
	}
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = cursorText(c)
	}
	return strings.Join(texts, "; ")
}

func cursorText(c outbox.Cursor) string {
	applied := "never"
	if c.LastAppliedAt != nil {
		applied = c.LastAppliedAt.Format("15:04:05")
	}
	return fmt.Sprintf("%s: %d lacks %d for %s, applied %s, %d attempts", c.Projection, c.AppliedSeq, c.LagEvents,
		time.Duration(c.LagSeconds*float64(time.Second)), applied, c.Attempts)
}

func TestCursors_tellOfEachLoadedProjectionWhereItStands(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, p := range []readmodel.Projection{{Name: "roster", Version: "v1"}, {Name: "roster", Version: "v2", Tables: []string{"roster"}}, {Name: "history", Version: "v1"}} {
		if err := f.Install(f.Ctx, []readmodel.Projection{p}); err != nil {
			t.Fatal(err)
		}
	}
	f.AppendN("a", 5)
	f.AppendN("b", 2)
	f.Drain()
	loaded := []outbox.ProjectionInfo{{Name: "roster", Version: "v2"}, {Name: "history", Version: "v1"}, {Name: "new", Version: "v1"}}
	e, err := f.Event(f.Ctx, "a", 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		return errors.Join(tx.Failed("roster", &e, *storetest.Failure("boom")), tx.Quarantine("roster", &e))
	}); err != nil {
		t.Fatal(err)
	}
	got, err := f.Runs.Cursors(f.Ctx, "a", loaded)
	if err != nil {
		t.Fatal(err)
	}
	applied := f.Clock.Now()
	want := []outbox.Cursor{
		{Projection: "roster", AppliedSeq: 3, LagEvents: 2, LastAppliedAt: &applied, Attempts: 1, Generation: 1, State: outbox.CursorQuarantined, ChangedAt: f.Clock.Now(), Version: "v2", RowsBuilt: outbox.RowsBuilt{BuiltByOtherVersion: true, BuiltVersions: []outbox.LoadedVersion{{Version: "v1"}, {Version: "v2"}}},
			Failure: &outbox.CursorFailure{Seq: 4, EventType: "counted", Message: "boom", Fingerprint: outbox.Fingerprint("boom"), Attempts: 1, At: f.Clock.Now()}},
		{Projection: "history", AppliedSeq: 5, LastAppliedAt: &applied, Generation: 1, State: outbox.CursorLive, Version: "v1", RowsBuilt: outbox.RowsBuilt{BuiltVersion: "v1", BuiltVersions: []outbox.LoadedVersion{{Version: "v1"}}}},
		{Projection: "new", AppliedSeq: 5, LastAppliedAt: &applied, Generation: 1, State: outbox.CursorLive, Version: "v1", RowsBuilt: outbox.RowsBuilt{BuiltVersions: []outbox.LoadedVersion{}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err = f.Runs.Cursors(f.Ctx, "b", loaded); err != nil || got[0].State != outbox.CursorLive || got[0].AppliedSeq != 2 || got[0].Failure != nil {
		t.Errorf("of the other campaign: %+v, %v", got, err)
	}
	_, err = f.Runs.Cursors(f.Ctx, "nobody", loaded)
	refused(t, err, outbox.ErrNotFound, `there is no campaign "nobody"`)
}
