package maintenance_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestRepairGaps_repairsEveryCampaignWithOneRecord(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.AppendN(id, 3)
	}
	f.LoseRows("a", "seq > 1")
	f.LoseRows("b", "seq = 2")
	if got, err := f.RepairGaps(f.Ctx, ana("")); err != nil || got != (outbox.Repaired{Campaigns: 2, Inserted: 3}) {
		t.Errorf("repaired %+v, %v", got, err)
	}
	if acts := f.DoneActions(); len(acts) != 1 || acts[0].Action != "repair_gaps" {
		t.Errorf("audit records are %+v", acts)
	}
	f.Sound()
}

func TestSQLiteRepairGaps_leavesARecordOfWhatWasDoneBeforeItFailed(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
		f.LoseRows(id, "seq > 1")
	}
	f.Exec(`create trigger broken before insert on projection_apply_outbox when new.campaign_id = 'b' begin select raise(abort, 'the disk is odd'); end`)
	order := ana("")
	order.IdempotencyKey = "k"
	if got, err := f.RepairGaps(f.Ctx, order); err == nil {
		t.Fatalf("repaired %+v", got)
	}
	acts := f.DoneActions()
	if len(acts) != 1 || acts[0].Action != outbox.ActionRepairGaps || acts[0].Outcome != outbox.AuditDone || !strings.Contains(string(acts[0].After), `"inserted":2`) || !strings.Contains(string(acts[0].After), "the disk is odd") {
		t.Errorf("audit records are %+v", acts)
	}
	f.Exec(`drop trigger broken`)
	if got, err := f.RepairGaps(f.Ctx, order); err != nil || got.Inserted != 2 {
		t.Errorf("then it repaired %+v, %v", got, err)
	}
	f.Sound()
}

func TestRepairGaps_findsRowsTheCountsDoNotMiss(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Exec(`delete from projection_apply_outbox where seq = 2`)
	if gaps := f.MustFindGaps(); len(gaps) != 1 || gaps[0].Missing != 1 {
		t.Errorf("gaps are %+v", gaps)
	}
	if got, err := f.RepairGaps(f.Ctx, ana("")); err != nil || got.Inserted != 1 {
		t.Errorf("repaired %+v, %v", got, err)
	}
	f.Exact("a")
	f.Sound()
}

func TestGaps_areNoneWhileAWaveIsBetweenItsDatabases(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 3)
	f.MustApply(c, 2)
	if gaps := f.MustFindGaps(); len(gaps) != 0 {
		t.Errorf("gaps are %+v", gaps)
	}
}
