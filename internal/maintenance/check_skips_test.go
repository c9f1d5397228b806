package maintenance_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestCheck_findsSkipsThatAreCountedWrongOrAppliedTooEarly(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.Exec(`update campaigns set skips = 2`)
	f.Exec(`update skips set applied_at = 1`)
	report, err := f.Check(f.Ctx, storetest.Quiet)
	if err != nil || len(report.Violations) != 2 || report.Violations[0].Invariant != "skips" || report.Violations[1].Invariant != "campaign_row" {
		t.Errorf("check found %+v (%v)", report.Violations, err)
	}
	if found := f.SelfCheckAll(); len(found) != 1 || !found[0].Drifted {
		t.Errorf("the self-check found %+v, want one that drifted", found)
	}
	f.Exact("a")
	f.Sound()
	f.Exec(`update campaigns set skips = 0`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1})
	f.Exact("a")
}
