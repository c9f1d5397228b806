package store_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/maintenance"
	"outboxweb/internal/outbox"
)

// rowCounts counts the rows of every table of both databases.
func (f *fixture) rowCounts() map[string]int64 {
	f.tb.Helper()
	counts := map[string]int64{}
	for _, db := range []*sql.DB{f.journal, f.projections} {
		for _, table := range dbtest.Tables(f.tb, db) {
			var n int64
			if err := db.QueryRow(`select count(*) from ` + table).Scan(&n); err != nil {
				f.tb.Fatal(err)
			}
			counts[table] += n
		}
	}
	return counts
}

// What operators did and began goes on from a backup where it was.
func TestBackup_carriesEveryTableAndItsWork(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	ids := f.killed("a", 4)
	f.appendAll(tagged("tagged", "counted", "seat", "1", "show", "x"))
	f.skip(ids[0], 1)
	f.drain()
	if _, err := f.NoteGroup(f.ctx, ana(""), "no such thing", "known"); err != nil {
		t.Fatal(err)
	}
	f.token("0123", outbox.RoleOperator, 24*time.Hour)
	f.clock.advance(2 * time.Minute)
	f.sample()
	op := f.startOperation(outbox.OperationOrder{Canary: true})
	f.stepOperation(op.ID)
	before := f.rowCounts()
	for _, table := range []string{"skips", "watermark_skips", "operations", "operation_groups", "operation_rows", "group_notes", "samples", "campaign_samples", "attempts", "operator_acts", "act_targets", "event_tags", "tokens"} {
		if before[table] == 0 {
			t.Errorf("the test puts nothing into %s", table)
		}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	if err := f.Backup(f.ctx, dir, quiet); err != nil {
		t.Fatal(err)
	}
	to := dbtest.Fresh(t)
	o := optionsFor(to)
	o.Now, o.Retry = f.clock.now, f.Retry()
	if err := maintenance.Restore(f.ctx, dir, o, arrange); err != nil {
		t.Fatal(err)
	}
	r := openPair(t, to, f.clock)
	if diff := cmp.Diff(before, r.rowCounts()); diff != "" {
		t.Errorf("rows by table (-backed up +restored):\n%s", diff)
	}
	for r.operation(op.ID).Status == outbox.OperationRunning {
		r.drain()
		r.stepOperation(op.ID)
	}
	if d := r.operation(op.ID); d.Status != outbox.OperationDone || d.Totals.Done != 3 {
		t.Errorf("the operation came to %s with %+v", d.Status, d.Totals)
	}
	_, err := r.unless(event("tagged", "counted"), 0, item("", "seat", "1"))
	refused(t, err, outbox.ErrConflict, "is in the way")
	r.appendAll(tagged("tagged", "counted", "seat", "2"))
	_, err = r.unless(event("tagged", "counted"), 0, item("", "seat", "2"))
	refused(t, err, outbox.ErrConflict, "is in the way")
	r.drain()
	r.append("late", 1)
	r.fail("no such thing", "late")
	for r.campaign("late").HeadStatus != outbox.Dead {
		r.clock.advance(5 * time.Minute)
		r.fail("no such thing", "late")
	}
	if next := r.startOperation(outbox.OperationOrder{}); next.ID <= op.ID {
		t.Errorf("the next operation has the number %d", next.ID)
	}
	if kept, err := r.TokenByHash(r.ctx, "0123"); err != nil || kept.State(r.clock.now()) != "valid" {
		t.Errorf("the token came back as %+v, %v", kept, err)
	}
	if next := r.token("4567", outbox.RoleViewer, time.Hour); next.ID != 2 {
		t.Errorf("the next token has the number %d", next.ID)
	}
	r.wantMarks(fmt.Sprintf("%s 1 1", ids[0]))
	r.sound()
}
