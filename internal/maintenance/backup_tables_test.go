package maintenance_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// rowCounts counts the rows of every table of both databases.
func rowCounts(f *fixture) map[string]int64 {
	f.TB.Helper()
	counts := map[string]int64{}
	for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
		for _, table := range dbtest.Tables(f.TB, db) {
			var n int64
			if err := db.QueryRow(`select count(*) from ` + table).Scan(&n); err != nil {
				f.TB.Fatal(err)
			}
			counts[table] += n
		}
	}
	return counts
}

// Operator actions and started work continue from a backup.
func TestBackup_carriesEveryTableAndItsWork(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 4)
	f.MustAppend(storetest.Tagged("tagged", "counted", "seat", "1", "show", "x"))
	f.MustSkip(ids[0], 1)
	f.Drain()
	if _, err := f.SetGroupNote(f.Ctx, ana(""), "no such thing", "known"); err != nil {
		t.Fatal(err)
	}
	scene := outbox.Command{By: outbox.Operator{Name: "scene"}}
	if _, err := tokens.New(f.Store).CreateToken(f.Ctx, scene, "0123", outbox.RoleOperator, "deploy", f.Clock.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(2 * time.Minute)
	f.MustSample()
	op := f.StartOperation(outbox.OperationRequest{Canary: true})
	f.StepOperation(op.ID)
	before := rowCounts(f)
	for _, table := range []string{"skips", "watermark_skips", "operations", "operation_groups", "operation_rows", "group_notes", "samples", "campaign_samples", "attempts", "audit_log", "audit_log_rows", "event_tags", "tokens"} {
		if before[table] == 0 {
			t.Errorf("the test puts nothing into %s", table)
		}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	if err := f.Backup(f.Ctx, dir, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	to := dbtest.Fresh(t)
	o := storetest.OptionsFor(to)
	o.Now, o.Retry = f.Clock.Now, f.Retry()
	if err := maintenance.Restore(f.Ctx, dir, o, arrange); err != nil {
		t.Fatal(err)
	}
	r := openPair(t, to, f.Clock)
	if diff := cmp.Diff(before, rowCounts(r)); diff != "" {
		t.Errorf("rows by table (-backed up +restored):\n%s", diff)
	}
	for r.Operation(op.ID).Status == outbox.OperationRunning {
		r.Drain()
		r.StepOperation(op.ID)
	}
	if d := r.Operation(op.ID); d.Status != outbox.OperationDone || d.Totals.Done != 3 {
		t.Errorf("the operation came to %s with %+v", d.Status, d.Totals)
	}
	_, err := r.AppendUnless(storetest.Event("tagged", "counted"), 0, storetest.Item("", "seat", "1"))
	refused(t, err, outbox.ErrConflict, "conflicting event")
	r.MustAppend(storetest.Tagged("tagged", "counted", "seat", "2"))
	_, err = r.AppendUnless(storetest.Event("tagged", "counted"), 0, storetest.Item("", "seat", "2"))
	refused(t, err, outbox.ErrConflict, "conflicting event")
	r.Drain()
	r.AppendN("late", 1)
	r.Fail("no such thing", "late")
	for r.MustCampaign("late").HeadStatus != outbox.Dead {
		r.Clock.Advance(5 * time.Minute)
		r.Fail("no such thing", "late")
	}
	if next := r.StartOperation(outbox.OperationRequest{}); next.ID <= op.ID {
		t.Errorf("the next operation has the number %d", next.ID)
	}
	known := tokens.New(r.Store)
	if kept, err := known.TokenByHash(r.Ctx, "0123"); err != nil || kept.State(r.Clock.Now()) != "valid" {
		t.Errorf("the token came back as %+v, %v", kept, err)
	}
	if next, err := known.CreateToken(r.Ctx, scene, "4567", outbox.RoleViewer, "deploy", r.Clock.Now().Add(time.Hour)); err != nil || next.ID != 2 {
		t.Errorf("the next token has the number %d, %v", next.ID, err)
	}
	r.WantMarks(fmt.Sprintf("%s 1 1", ids[0]))
	r.Sound()
}
