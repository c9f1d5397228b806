package runs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
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
	all := f.StartRun(outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"c-1"}})
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
