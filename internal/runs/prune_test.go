package runs_test

import (
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

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
