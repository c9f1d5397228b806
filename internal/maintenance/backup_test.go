package maintenance_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// holds fails unless a directory has as many files as a refused call found in it.
func holds(t *testing.T, dir string, files int) {
	left, err := os.ReadDir(dir)
	must.Hold(t, err == nil && len(left) == files, "a refused call left %v, %v", left, err)
}

// arrange registers the package with its own leases on a restored store.
func arrange(s *store.Store) *maintenance.Maintenance {
	q := outbox.New(s)
	runs.New(q)
	return maintenance.New(q)
}

func TestSQLiteBackup_refusesADirectoryInUse(t *testing.T) {
	f := own(t)
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600))
	refused(t, f.Backup(f.Ctx, dir, storetest.Quiet), event.ErrSetup, dir, "not empty")
	refused(t, f.Backup(f.Ctx, filepath.Join(dir, "notes.txt"), storetest.Quiet), event.ErrSetup, "notes.txt")
	holds(t, dir, 1)
}

func TestSQLiteRestore_refusesToOverwriteAndWhatIsNoBackup(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	dir := filepath.Join(t.TempDir(), "backup")
	must.OK(t, f.Backup(f.Ctx, dir, storetest.Quiet))
	f.Unchanged(func() {
		refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(f.Pair), arrange), event.ErrSetup, "already exists", "move it away")
	})
	refused(t, maintenance.Restore(f.Ctx, t.TempDir(), storetest.OptionsFor(dbtest.Files(t.TempDir())), arrange), event.ErrSetup, "is not a backup")
	// The write-ahead log of databases that were moved away would be replayed into the restored ones.
	left := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(left, "projections.db-wal"), []byte("x"), 0o600))
	refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(dbtest.Files(left)), arrange), event.ErrSetup, "projections.db-wal", "move it away")
	holds(t, left, 1)
	newer := dbtest.Open(t, "sqlite:"+filepath.Join(dir, "projections.db"))
	must.Get(newer.Exec(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)).Or(t)
	to := t.TempDir()
	refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(dbtest.Files(to)), arrange), event.ErrSetup, filepath.Join(dir, "projections.db"), "has version 9999", "newer outboxweb")
	holds(t, to, 0)
}

func TestSQLiteBackup_leavesTheReadersReadOnly(t *testing.T) {
	f := own(t)
	for _, name := range []string{"1", "2", "3"} {
		must.OK(t, f.Backup(f.Ctx, filepath.Join(t.TempDir(), name), storetest.Quiet))
		snapshot := must.Get(f.Database.Snapshot(f.Ctx)).Or(t)
		_, err := snapshot.Exec(`create table intruder (x)`)
		must.Hold(t, err != nil, "a reader wrote")
		must.OK(t, snapshot.Rollback())
	}
}

func TestBackup_restoresToASoundCopy(t *testing.T) {
	f := own(t)
	f.Applied("a", 5)
	f.AppendN("a", 3)
	f.AppendN("dead", 2)
	f.MustPause("a")
	f.Kill("dead")
	f.AppendN("b", 4)
	c := f.ClaimOne(one, 3)
	f.MustApply(c, 2) // a wave is in progress
	dir := filepath.Join(t.TempDir(), "backup")
	must.OK(t, f.Backup(f.Ctx, dir, func(done, _ int64) {
		if done == 1 { // between the databases: the journal's copy has it, that of the projections does not
			f.Applied("late", 1)
		}
	}))
	files, err := os.ReadDir(dir)
	must.Need(t, err == nil && len(files) == 2, "the backup has %v, %v", files, err)
	for _, file := range files {
		must.Equal(t, must.Get(file.Info()).Or(t).Mode().Perm(), 0o600, file.Name())
	}
	f.AppendN("b", 1) // not in the backup
	r := restoredTo(f, dir, dbtest.Fresh(t))
	r.Sound()
	r.Is("a", "applied 5 of 8, head 6 pending, 3 pending, paused by scene")
	r.Is("b", "applied 2 of 4, head 3 pending, 2 pending")
	r.Is("late", "applied 0 of 1, head 1 pending, 1 pending")
	r.Is("dead", "applied 0 of 2, head 1 dead, 1 pending, 1 dead")
	must.Equal(t, len(r.MustRow("dead", 1).Attempts), 8, "attempts")
	_, err = r.JournalDB.Exec(`delete from events`)
	must.Hold(t, err != nil && strings.Contains(err.Error(), "append-only"), "the restored journal let an event be deleted: %v", err)
	r.DrainsSoundly()
	r.Is("b", "applied 4 of 4")
}

// restoredTo is a store on a backup that was restored to other databases, at the fixture's time.
func restoredTo(f *fixture, dir string, to dbtest.Pair) *fixture {
	o := storetest.OptionsFor(to)
	o.Now, o.Retry = f.Clock.Now, f.Retry()
	must.OK(f.TB, maintenance.Restore(f.Ctx, dir, o, arrange))
	return openPair(f.TB, to, f.Clock)
}

func TestSQLiteBackup_carriesWhatIsSkippedAndWhatWasPassedOver(t *testing.T) {
	f := own(t)
	f.DieAt(4, 2)
	old, current, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "current"), t.TempDir()
	must.OK(t, f.Backup(f.Ctx, old, storetest.Quiet))
	f.MustSkip("a", 2)
	f.PassOver()
	f.Drain()
	must.OK(t, f.Backup(f.Ctx, current, storetest.Quiet))
	marks := f.Marks()
	for name, days := range map[string]struct{ journal, projections string }{
		"both of one day":                     {current, current},
		"projections from before the skip":    {current, old},
		"journal from before the passed over": {old, current},
	} {
		from, restored := t.TempDir(), filepath.Join(to, name)
		for file, dir := range map[string]string{"journal.db": days.journal, "projections.db": days.projections} {
			must.OK(t, os.WriteFile(filepath.Join(from, file), must.Get(os.ReadFile(filepath.Join(dir, file))).Or(t), 0o600))
		}
		r := restoredTo(f, from, dbtest.Files(restored))
		if days.journal == old {
			c := r.MustCampaign("a")
			must.Hold(t, strings.Contains(c.Diverged, "the projections skipped event 2"), "%s: campaign is %+v, want it diverged", name, c)
			continue
		}
		r.Sound()
		r.DrainsSoundly()
		must.Hold(t, len(r.SkipLedger("a")) == 1 && r.MustCampaign("a").AppliedSeq == 4, "%s: the ledger is %+v, campaign %+v", name, r.SkipLedger("a"), r.MustCampaign("a"))
		r.WantMarks(marks...)
	}
}

func rowCounts(f *fixture) map[string]int64 {
	counts := map[string]int64{}
	for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
		for _, table := range dbtest.Tables(f.TB, db) {
			counts[table] += storetest.Column[int64](f.TB, db, `select count(*) from `+table)[0]
		}
	}
	return counts
}

// Operator actions and started work continue from a backup.
func TestBackup_carriesEveryTableAndItsWork(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 4)
	f.MustAppend(storetest.Tagged("tagged", "counted", "seat", "1", "show", "x"))
	f.MustSkip(ids[0], 1)
	f.Drain()
	must.Get(f.SetGroupNote(f.Ctx, ana(""), "no such thing", "known")).Or(t)
	scene := operator.Command{By: operator.Operator{Name: "scene"}}
	must.Get(tokens.New(f.Store).CreateToken(f.Ctx, scene, "0123", operator.RoleOperator, "deploy", f.Clock.Now().Add(24*time.Hour))).Or(t)
	f.Clock.Advance(2 * time.Minute)
	f.MustSample()
	op := f.StartOperation(operations.OperationRequest{Canary: true})
	f.StepOperation(op.ID)
	before := rowCounts(f)
	for _, table := range []string{"skips", "watermark_skips", "operations", "operation_groups", "operation_rows", "group_notes", "samples", "campaign_samples", "attempts", "audit_log", "audit_log_rows", "event_tags", "tokens"} {
		must.Hold(t, before[table] != 0, "the test puts nothing into %s", table)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	must.OK(t, f.Backup(f.Ctx, dir, storetest.Quiet))
	r := restoredTo(f, dir, dbtest.Fresh(t))
	must.Equal(t, rowCounts(r), before, "rows by table")
	for r.Operation(op.ID).Status == operations.OperationRunning {
		r.Drain()
		r.StepOperation(op.ID)
	}
	d := r.Operation(op.ID)
	must.Hold(t, d.Status == operations.OperationDone && d.Totals.Done == 3, "the operation came to %s with %+v", d.Status, d.Totals)
	refused(t, storetest.No(r.AppendUnless(storetest.Event("tagged", "counted"), 0, storetest.Item("", "seat", "1"))), event.ErrConflict, "conflicting event")
	r.MustAppend(storetest.Tagged("tagged", "counted", "seat", "2"))
	refused(t, storetest.No(r.AppendUnless(storetest.Event("tagged", "counted"), 0, storetest.Item("", "seat", "2"))), event.ErrConflict, "conflicting event")
	r.Drain()
	r.Failing("no such thing", "late", 1)
	for r.MustCampaign("late").HeadStatus != event.Dead {
		r.Clock.Advance(5 * time.Minute)
		r.Fail("no such thing", "late")
	}
	next := r.StartOperation(operations.OperationRequest{})
	must.Hold(t, next.ID > op.ID, "the next operation has the number %d", next.ID)
	known := tokens.New(r.Store)
	must.Equal(t, must.Get(known.TokenByHash(r.Ctx, "0123")).Or(t).State(r.Clock.Now()), "valid", "the token came back as")
	must.Equal(t, must.Get(known.CreateToken(r.Ctx, scene, "4567", operator.RoleViewer, "deploy", r.Clock.Now().Add(time.Hour))).Or(t).ID, 2, "the next token has the number")
	r.WantMarks(fmt.Sprintf("%s 1 1", ids[0]))
	r.Sound()
}

func TestPostgresRestore_refusesWhatIsInItsWay(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	dir := filepath.Join(t.TempDir(), "backup")
	must.OK(t, f.Backup(f.Ctx, dir, storetest.Quiet))
	f.Unchanged(func() {
		refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(f.Pair), arrange), event.ErrSetup, "the schema journal", "has tables already")
	})
	fresh := dbtest.Fresh(t)
	refused(t, maintenance.Restore(f.Ctx, t.TempDir(), storetest.OptionsFor(fresh), arrange), event.ErrSetup, "is not a backup for --journal-db", "neither journal.db nor journal.SCHEMA.dump")
	file := t.TempDir()
	refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(dbtest.Files(file)), arrange), event.ErrSetup, "of the journal database", "is of PostgreSQL and cannot become a SQLite file", "--journal-db", "search_path=journal")
	holds(t, file, 0)
	other := storetest.OptionsFor(fresh)
	other.Journal = strings.Replace(other.Journal, "search_path=journal", "search_path=elsewhere", 1)
	refused(t, maintenance.Restore(context.Background(), dir, other, arrange), event.ErrSetup, "of the schema journal; restore it into the same schema", "search_path=journal")
	copies := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(copies, "journal.db"), nil, 0o600))
	missing := dbtest.InSchema(storetest.UnusedDatabase(t, "never_restored"), "journal")
	refused(t, maintenance.Restore(f.Ctx, copies, store.Options{Journal: missing, Projections: fresh.Projections}, arrange), event.ErrSetup, "is of SQLite and cannot become a PostgreSQL database", "--journal-db", "sqlite:")
	storetest.AtServer(t, `do $$ begin if exists (select from pg_database where datname = 'never_restored') then raise exception 'a refused restore made the database'; end if; end $$`)
}
