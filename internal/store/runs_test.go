package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/enginetest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/storetest"
)

func result(campaign, outcome string, events int64) outbox.RunResult {
	return outbox.RunResult{CampaignID: campaign, Outcome: outcome, Seq: events, Events: events}
}

func TestRuns_pagesBothWaysAndFilters(t *testing.T) {
	t.Parallel()
	f := open(t)
	var ids []int64
	for i := range 5 {
		id := fmt.Sprint("c-", i)
		f.AppendN(id, 1)
		ids = append(ids, f.StartRun(enginetest.Rebuild(id)).ID)
	}
	if _, err := f.Runs.Cancel(f.Ctx, ana(""), ids[1]); err != nil {
		t.Fatal(err)
	}
	list := func(filter outbox.RunFilter) ([]int64, outbox.Page[outbox.Run]) {
		t.Helper()
		page, err := f.Runs.List(f.Ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range page.Items {
			got = append(got, r.ID)
		}
		return got, page
	}
	is := func(got []int64, want ...int64) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("runs (-want +got): %s", diff)
		}
	}
	got, page := list(outbox.RunFilter{Limit: 2})
	is(got, ids[4], ids[3])
	got, page = list(outbox.RunFilter{Limit: 2, Cursor: *page.NextCursor})
	is(got, ids[2], ids[1])
	got, _ = list(outbox.RunFilter{Limit: 2, Cursor: *page.PrevCursor})
	is(got, ids[4], ids[3])
	got, _ = list(outbox.RunFilter{Status: outbox.RunCancelled})
	is(got, ids[1])
	got, _ = list(outbox.RunFilter{Kind: outbox.RunVerify})
	is(got)
	all := f.StartRun(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"c-1"}})
	got, _ = list(outbox.RunFilter{CampaignID: "c-1"})
	is(got, all.ID, ids[1])
	active, err := f.Runs.Active(f.Ctx)
	if err != nil || len(active) != 5 || active[0].ID != ids[0] {
		t.Errorf("active runs are %+v, %v", active, err)
	}
	if _, err := f.Runs.List(f.Ctx, outbox.RunFilter{Cursor: "x"}); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("a wrong cursor is %v", err)
	}
}

func TestRunResults_pagesByCampaignAndOutcome(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.StartRun(enginetest.VerifyAll())
	l := f.ClaimRun(one)
	var results []outbox.RunResult
	for i := range 6 {
		results = append(results, result(fmt.Sprint("c-", i), []string{outbox.OutcomeMatch, outbox.OutcomeDrift, outbox.OutcomeFailed}[i%3], 1))
	}
	f.ReportRun(l, 6, results...)
	list := func(filter outbox.ResultFilter) (got []string, page outbox.Page[outbox.RunResult]) {
		t.Helper()
		filter.RunID = run.ID
		page, err := f.Runs.Results(f.Ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			got = append(got, r.CampaignID)
		}
		return got, page
	}
	got, page := list(outbox.ResultFilter{Limit: 4})
	rest, page := list(outbox.ResultFilter{Limit: 4, Cursor: *page.NextCursor})
	back, _ := list(outbox.ResultFilter{Limit: 4, Cursor: *page.PrevCursor})
	if diff := cmp.Diff([]string{"c-0", "c-1", "c-2", "c-3", "c-4", "c-5", "c-0", "c-1", "c-2", "c-3"}, append(append(got, rest...), back...)); diff != "" {
		t.Error(diff)
	}
	if got, _ = list(outbox.ResultFilter{Outcome: outbox.OutcomeDrift}); !cmp.Equal(got, []string{"c-1", "c-4"}) {
		t.Errorf("drifted are %v", got)
	}
	_, err := f.Runs.Results(f.Ctx, outbox.ResultFilter{RunID: 99})
	refused(t, err, outbox.ErrNotFound)
	_, err = f.Runs.Log(f.Ctx, 99, "", 0)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.Runs.ResultOf(f.Ctx, run.ID, "nowhere")
	refused(t, err, outbox.ErrNotFound, "no result")
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
	if err := f.NoteVerifications(f.Ctx, notes); err != nil {
		t.Fatal(err)
	}
	got, next, err := f.Runs.Stalest(f.Ctx, "", 3)
	if err != nil || next != "" || len(got) != 3 || got[0].CampaignID != "c" || got[1].CampaignID != "d" || got[2].CampaignID != "b" || got[0].AppliedSeq != 1 {
		t.Errorf("stalest are %+v, %q, %v", got, next, err)
	}
	if got, _, err = f.Runs.Stalest(f.Ctx, "b", 9); err != nil || len(got) != 2 {
		t.Errorf("after b they are %+v, %v", got, err)
	}
}

func TestPruneRuns_keepsWhatWentWrongAndTheLatest(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	for range 12 {
		f.StartRun(enginetest.VerifyAll())
		l := f.ClaimRun(one)
		f.ReportRun(l, 2, result("a", outbox.OutcomeMatch, 1), result("b", outbox.OutcomeDrift, 1))
		f.FinishRun(l, outbox.RunCompleted, "")
	}
	active := f.StartRun(enginetest.Rebuild("a"))
	f.ReportRun(f.ClaimRun(one), 1, result("a", outbox.OutcomeMatch, 1))
	for range 2 { // a run at a time
		if more, err := f.Runs.Prune(f.Ctx); err != nil || !more {
			t.Errorf("more %v (%v)", more, err)
		}
	}
	if more, err := f.Runs.Prune(f.Ctx); err != nil || more {
		t.Errorf("in the end: more %v (%v)", more, err)
	}
	left := storetest.Texts(t, f.JournalDB, `select concat_ws(' ', run_id, count(*), min(outcome)) from run_results where run_id <= 3 or run_id = $1 group by run_id order by run_id`, active.ID)
	if want := []string{"1 1 drift", "2 1 drift", "3 2 drift", "13 1 match"}; !slices.Equal(left, want) {
		t.Errorf("results left are %q, want %q", left, want)
	}
}
