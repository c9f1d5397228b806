package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/storetest"
)

// fails records a failure of a projection at an event.
func (f *fixture) fails(projection, campaign string, seq int64, then ...func(*readmodel.ApplyTx, *outbox.Event) error) {
	f.TB.Helper()
	e, err := f.Event(f.Ctx, campaign, seq)
	if err != nil {
		f.TB.Fatal(err)
	}
	err = f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		_, err := tx.Watermark(campaign)
		if err == nil {
			err = tx.Failed(projection, &e, *storetest.Failure("boom"))
		}
		for _, further := range then {
			if err == nil {
				err = further(tx, &e)
			}
		}
		return err
	})
	if err != nil {
		f.TB.Fatal(err)
	}
}

func quarantine(projection string) func(*readmodel.ApplyTx, *outbox.Event) error {
	return func(tx *readmodel.ApplyTx, e *outbox.Event) error { return tx.Quarantine(projection, e) }
}

func TestPauseProjection_refusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	f.AppendN("a", 3)
	f.Drain()
	f.fails("history", "a", 3, quarantine("history"))
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
		refused(t, pause("roster", "nobody"), outbox.ErrNotFound, "unknown")
		refused(t, pause("history", "a"), outbox.ErrConflict, "quarantined", "replay")
		refused(t, resume("roster", "a"), outbox.ErrConflict, "not paused", "live")
		refused(t, resume("history", "a"), outbox.ErrConflict, "not paused", "quarantined")
		refused(t, resume("roster", ""), outbox.ErrConflict, "not paused for all")
	})
	if err := pause("roster", "a"); err != nil {
		t.Fatal(err)
	}
	refused(t, pause("roster", "a"), outbox.ErrConflict, "paused already", "ana")
	if err := pause("roster", ""); err != nil {
		t.Fatal(err)
	}
	refused(t, pause("roster", ""), outbox.ErrConflict, "paused already", "all campaigns", "ana")
	refused(t, pause("roster", "a"), outbox.ErrConflict, "paused already", "all campaigns", "ana")
	refused(t, resume("roster", "a"), outbox.ErrConflict, "all campaigns", "resume it for all")
	if err := resume("roster", ""); err != nil {
		t.Fatal(err)
	}
	cursors, err := f.Runs.Cursors(f.Ctx, "a", loaded)
	if err != nil || cursors[0].State != outbox.CursorPaused || cursors[0].Paused.By != "ana" || cursors[0].Paused.Reason != "why" {
		t.Errorf("the pause of one campaign is gone: %+v, %v", cursors, err)
	}
	if err := resume("roster", "a"); err != nil {
		t.Fatal(err)
	}
	f.Sound()
	acts, err := f.Acts(f.Ctx, outbox.ActFilter{Outcome: outbox.ActDone})
	var actions []string
	for _, a := range acts.Items {
		actions = append(actions, strings.Join([]string{string(a.Action), a.CampaignID, string(a.Before)}, " "))
	}
	want := []string{`projection_resume a {"projection":"roster"}`, `projection_resume  {"projection":"roster"}`,
		`projection_pause  {"projection":"roster"}`, `projection_pause a {"projection":"roster"}`}
	if diff := cmp.Diff(want, actions); err != nil || diff != "" {
		t.Errorf("audit records: %v %s", err, diff)
	}
}

func TestProjectionCursors_pagesTheCampaignsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	for i := range 5 {
		id := fmt.Sprint("c-", i)
		f.AppendN(id, 3)
		f.Drain()
		if i%2 == 0 {
			f.fails("roster", id, 2, quarantine("roster"))
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
	if history.Paused == nil || history.Paused.Reason != "all" || history.PausedCampaigns != 0 {
		t.Errorf("history is %+v", history)
	}
	cursors, err := f.Runs.Cursors(f.Ctx, "c-0", loaded)
	if err != nil || cursors[1].State != outbox.CursorPaused || !cursors[1].PausedForAll || cursors[1].AppliedSeq != 3 {
		t.Errorf("cursors %+v, %v; want history paused for all at 3", cursors, err)
	}
	f.Sound()
}

func TestFailures_arePagedNewestFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
	}
	f.Drain()
	for seq := range int64(3) {
		f.fails("roster", "a", seq+1)
		f.fails("history", "b", seq+1)
		f.fails("history", "b", seq+1)
	}
	if err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Resolve("b", 2) }); err != nil {
		t.Fatal(err)
	}
	read := func(filter outbox.FailureFilter) (seen []string) {
		filter.Limit = 1
		for {
			page, err := f.Failures(f.Ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page.Items {
				seen = append(seen, fmt.Sprint(p.CampaignID, p.Seq, p.Status, p.Attempts))
			}
			if page.NextCursor == nil {
				return seen
			}
			filter.Cursor = *page.NextCursor
		}
	}
	for _, c := range []struct {
		filter outbox.FailureFilter
		want   string
	}{
		{outbox.FailureFilter{}, "b3open2 a3open1 b2resolved2 a2open1 b1resolved2 a1open1"},
		{outbox.FailureFilter{Status: outbox.FailureOpen}, "b3open2 a3open1 a2open1 a1open1"},
		{outbox.FailureFilter{Status: outbox.FailureResolved}, "b2resolved2 b1resolved2"},
		{outbox.FailureFilter{CampaignID: "b"}, "b3open2 b2resolved2 b1resolved2"},
		{outbox.FailureFilter{CampaignID: "b", Status: outbox.FailureOpen}, "b3open2"},
		{outbox.FailureFilter{Projection: "roster"}, "a3open1 a2open1 a1open1"},
		{outbox.FailureFilter{Fingerprint: "other"}, ""},
	} {
		if got := strings.Join(read(c.filter), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.filter, got, c.want)
		}
	}
	f.Sound()
	f.fails("history", "b", 1) // again, after it was resolved
	if got := read(outbox.FailureFilter{CampaignID: "b"}); got[0] != "b1open1" || len(got) != 4 {
		t.Errorf("failures %q, want a new one for the event that was passed before", got)
	}
}

func TestSummary_tellsOfQuarantinedProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
		f.Drain()
		f.fails("history", id, 3, quarantine("history"))
	}
	f.mustTellHeld(outbox.BehindCounts{}, outbox.HeldProjection{Projection: "history", Quarantined: 2})
	if _, err := f.Runs.PauseProjection(f.Ctx, ana("a bug"), "roster", "a", loaded); err != nil {
		t.Fatal(err)
	}
	f.mustTellHeld(outbox.BehindCounts{}, outbox.HeldProjection{Projection: "history", Quarantined: 2}, outbox.HeldProjection{Projection: "roster", PausedCampaigns: 1})
}

func TestCursors_tellLagLastAppliedAndAttempts(t *testing.T) {
	t.Parallel()
	f := open(t)
	loaded := f.WithProjections("roster", "history")
	f.AppendN("a", 2)
	if got := f.cursorsOf("a", loaded); got != `roster: 0 lacks 2 for 0s, applied never, 0 attempts; history: 0 lacks 2 for 0s, applied never, 0 attempts` {
		t.Errorf("before anything is applied: %s", got)
	}
	f.Drain()
	applied := f.Clock.Now()
	f.Clock.Advance(time.Hour)
	f.AppendN("a", 1)
	f.Clock.Advance(time.Minute)
	f.fails("history", "a", 3)
	f.fails("history", "a", 3, quarantine("history"))
	when := applied.Format("15:04:05")
	if got := f.cursorsOf("a", loaded); got != `roster: 2 lacks 1 for 1m0s, applied `+when+`, 0 attempts; history: 2 lacks 1 for 1m0s, applied `+when+`, 2 attempts` {
		t.Errorf("one is set aside at event 3: %s", got)
	}
	f.Drain()
	f.Clock.Advance(time.Minute)
	now := applied.Add(time.Hour + time.Minute).Format("15:04:05")
	if got := f.cursorsOf("a", loaded); got != `roster: 3 lacks 0 for 0s, applied `+now+`, 0 attempts; history: 2 lacks 1 for 2m0s, applied `+when+`, 2 attempts` {
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

func (f *fixture) cursorsOf(campaign string, loaded []outbox.ProjectionInfo) string {
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
