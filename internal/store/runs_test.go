package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
)

var (
	loadedRuns   = []outbox.ProjectionInfo{{Name: "roster", Version: "v1"}, {Name: "history", Version: "v2"}}
	versionsRuns = map[string]string{"roster": "v1", "history": "v2"}
)

func verifyAll() outbox.RunOrder { return outbox.RunOrder{Kind: outbox.RunVerify, All: true} }

func rebuild(campaigns ...string) outbox.RunOrder {
	return outbox.RunOrder{Kind: outbox.RunRebuild, Campaigns: campaigns}
}

func (f *fixture) startRun(order outbox.RunOrder) outbox.Run {
	f.tb.Helper()
	run, err := f.runs.Start(f.ctx, ana("looks odd"), order, loadedRuns)
	if err != nil {
		f.tb.Fatal(err)
	}
	return run
}

// claimRun claims when a run must be there.
func (f *fixture) claimRun(w store.Worker) runs.Lease {
	f.tb.Helper()
	l, ok, err := f.runs.Claim(f.ctx, w, versionsRuns, lease)
	if err != nil || !ok {
		f.tb.Fatalf("claim a run: %v, %v", ok, err)
	}
	return l
}

func (f *fixture) noRun(w store.Worker) {
	f.tb.Helper()
	if l, ok, err := f.runs.Claim(f.ctx, w, versionsRuns, lease); ok || err != nil {
		f.tb.Fatalf("claimed %+v, %v, want none", l, err)
	}
}

func (f *fixture) run(id int64) outbox.Run {
	f.tb.Helper()
	run, err := f.runs.Get(f.ctx, id)
	if err != nil {
		f.tb.Fatal(err)
	}
	return run
}

func (f *fixture) report(l runs.Lease, done int64, results ...outbox.RunResult) outbox.RunStatus {
	f.tb.Helper()
	status, err := f.runs.Report(f.ctx, l, runs.Progress{Results: results, EventsDone: done, EventsPerSecond: 2, Lease: lease})
	if err != nil {
		f.tb.Fatal(err)
	}
	return status
}

func (f *fixture) finish(l runs.Lease, status outbox.RunStatus, why string) outbox.Run {
	f.tb.Helper()
	run, err := f.runs.Finish(f.ctx, l, status, why)
	if err != nil {
		f.tb.Fatal(err)
	}
	return run
}

func result(campaign, outcome string, events int64) outbox.RunResult {
	return outbox.RunResult{CampaignID: campaign, Outcome: outcome, Seq: events, Events: events}
}

func TestRuns_pagesBothWaysAndFilters(t *testing.T) {
	t.Parallel()
	f := open(t)
	var ids []int64
	for i := range 5 {
		id := fmt.Sprint("c-", i)
		f.append(id, 1)
		ids = append(ids, f.startRun(rebuild(id)).ID)
	}
	if _, err := f.runs.Cancel(f.ctx, ana(""), ids[1]); err != nil {
		t.Fatal(err)
	}
	list := func(filter outbox.RunFilter) ([]int64, outbox.Page[outbox.Run]) {
		t.Helper()
		page, err := f.runs.List(f.ctx, filter)
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
	all := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"c-1"}})
	got, _ = list(outbox.RunFilter{CampaignID: "c-1"})
	is(got, all.ID, ids[1])
	active, err := f.runs.Active(f.ctx)
	if err != nil || len(active) != 5 || active[0].ID != ids[0] {
		t.Errorf("active runs are %+v, %v", active, err)
	}
	if _, err := f.runs.List(f.ctx, outbox.RunFilter{Cursor: "x"}); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("a wrong cursor is %v", err)
	}
}

func TestRunResults_pagesByCampaignAndOutcome(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	l := f.claimRun(one)
	var results []outbox.RunResult
	for i := range 6 {
		results = append(results, result(fmt.Sprint("c-", i), []string{outbox.OutcomeMatch, outbox.OutcomeDrift, outbox.OutcomeFailed}[i%3], 1))
	}
	f.report(l, 6, results...)
	list := func(filter outbox.ResultFilter) (got []string, page outbox.Page[outbox.RunResult]) {
		t.Helper()
		filter.RunID = run.ID
		page, err := f.runs.Results(f.ctx, filter)
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
	_, err := f.runs.Results(f.ctx, outbox.ResultFilter{RunID: 99})
	refused(t, err, outbox.ErrNotFound)
	_, err = f.runs.Log(f.ctx, 99, "", 0)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.runs.ResultOf(f.ctx, run.ID, "nowhere")
	refused(t, err, outbox.ErrNotFound, "no result")
}

func TestStalestCampaigns_choosesWhatWasNotVerifiedForLongest(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		f.append(id, 1)
	}
	f.drain()
	f.append("new", 1)
	var notes []outbox.Verification
	for i, id := range []string{"a", "b", "d"} {
		notes = append(notes, outbox.Verification{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(10-i) * time.Minute), Verdict: outbox.VerdictMatch})
	}
	if err := f.NoteVerifications(f.ctx, notes); err != nil {
		t.Fatal(err)
	}
	got, next, err := f.runs.Stalest(f.ctx, "", 3)
	if err != nil || next != "" || len(got) != 3 || got[0].CampaignID != "c" || got[1].CampaignID != "d" || got[2].CampaignID != "b" || got[0].AppliedSeq != 1 {
		t.Errorf("stalest are %+v, %q, %v", got, next, err)
	}
	if got, _, err = f.runs.Stalest(f.ctx, "b", 9); err != nil || len(got) != 2 {
		t.Errorf("after b they are %+v, %v", got, err)
	}
}

func TestPruneRuns_keepsWhatWentWrongAndTheLatest(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.append("b", 1)
	for range 12 {
		f.startRun(verifyAll())
		l := f.claimRun(one)
		f.report(l, 2, result("a", outbox.OutcomeMatch, 1), result("b", outbox.OutcomeDrift, 1))
		f.finish(l, outbox.RunCompleted, "")
	}
	active := f.startRun(rebuild("a"))
	f.report(f.claimRun(one), 1, result("a", outbox.OutcomeMatch, 1))
	for range 2 { // a run at a time
		if more, err := f.runs.Prune(f.ctx); err != nil || !more {
			t.Errorf("more %v (%v)", more, err)
		}
	}
	if more, err := f.runs.Prune(f.ctx); err != nil || more {
		t.Errorf("in the end: more %v (%v)", more, err)
	}
	left := texts(t, f.journal, `select concat_ws(' ', run_id, count(*), min(outcome)) from run_results where run_id <= 3 or run_id = $1 group by run_id order by run_id`, active.ID)
	if want := []string{"1 1 drift", "2 1 drift", "3 2 drift", "13 1 match"}; !slices.Equal(left, want) {
		t.Errorf("results left are %q, want %q", left, want)
	}
}
