package maintenance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// arrange registers the package with its own leases on a restored store.
func arrange(s *store.Store) { runs.New(s) }

// restore restores a backup to a new place, at the fixture's time.
func restore(f *fixture, from, to string) error {
	o := storetest.OptionsFor(dbtest.Files(to))
	o.Now = f.Clock.Now
	return maintenance.Restore(f.Ctx, from, o, arrange)
}

func TestSQLiteBackup_restoresToASoundCopy(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	f.Drain()
	f.AppendN("a", 3)
	f.AppendN("dead", 2)
	f.AppendN("b", 4)
	f.MustPause("a")
	f.MustPause("b")
	f.Kill("dead")
	if _, err := f.ResumeCampaign(f.Ctx, ana(""), "b"); err != nil {
		t.Fatal(err)
	}
	c := f.ClaimOne(one, 3)
	f.MustApply(c, 2) // a wave is in progress
	dir := filepath.Join(t.TempDir(), "backup")
	if err := f.Backup(f.Ctx, dir, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"journal.db", "projections.db"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	f.AppendN("a", 1) // not in the backup
	to := t.TempDir()
	restored := filepath.Join(to, "new")
	if err := restore(f, dir, restored); err != nil {
		t.Fatal(err)
	}
	r := openPair(t, dbtest.Files(restored), f.Clock)
	r.Sound()
	if c := r.MustCampaign("a"); c.HighWaterSeq != 8 || c.Paused == nil {
		t.Errorf("campaign a is %+v", c)
	}
	if c := r.MustCampaign("dead"); c.HeadStatus != outbox.Dead || len(r.MustRow("dead", 1).Attempts) != 8 {
		t.Errorf("campaign dead is %+v", c)
	}
	if len(r.DoneActions()) != 1 {
		t.Errorf("acts are %+v", r.DoneActions())
	}
	r.Drain()
	r.Sound()
	if c := r.MustCampaign("b"); c.AppliedSeq != 4 {
		t.Errorf("campaign b is %+v, want it drained at once, whoever held it when it was copied", c)
	}
}

func TestSQLiteRestore_givesRowsBackWhenTheJournalIsNewer(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	old := filepath.Join(t.TempDir(), "old")
	if err := f.Backup(f.Ctx, old, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	f.Drain()
	current := filepath.Join(t.TempDir(), "new")
	if err := f.Backup(f.Ctx, current, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	// The projections of one backup and the journal of the other, as when a worker was busy between
	// the two copies.
	content, err := os.ReadFile(filepath.Join(old, "projections.db"))
	if err == nil {
		err = os.WriteFile(filepath.Join(current, "projections.db"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	restored := t.TempDir()
	if err := restore(f, current, restored); err != nil {
		t.Fatal(err)
	}
	r := openPair(t, dbtest.Files(restored), f.Clock)
	if c := r.MustCampaign("a"); c.AppliedSeq != 0 || c.Counts.Pending != 4 {
		t.Errorf("campaign is %+v, want its four rows back", c)
	}
	r.Sound()
	r.Drain()
	r.Sound()
}

func TestSQLiteBackup_refusesADirectoryInUse(t *testing.T) {
	t.Parallel()
	f := open(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, f.Backup(f.Ctx, dir, storetest.Quiet), outbox.ErrSetup, dir, "not empty")
	refused(t, f.Backup(f.Ctx, filepath.Join(dir, "notes.txt"), storetest.Quiet), outbox.ErrSetup, "notes.txt")
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the refused backup left %v", left)
	}
}

func TestSQLiteRestore_refusesToOverwriteAndWhatIsNoBackup(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	dir := filepath.Join(t.TempDir(), "backup")
	if err := f.Backup(f.Ctx, dir, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	f.Unchanged(func() {
		refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(f.Pair), arrange), outbox.ErrSetup, "already exists", "move it away")
	})
	refused(t, maintenance.Restore(f.Ctx, t.TempDir(), storetest.OptionsFor(dbtest.Files(t.TempDir())), arrange), outbox.ErrSetup, "is not a backup")
	// The write-ahead log of databases that were moved away would be replayed into the restored
	// ones.
	left := t.TempDir()
	if err := os.WriteFile(filepath.Join(left, "projections.db-wal"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(dbtest.Files(left)), arrange), outbox.ErrSetup, "projections.db-wal", "move it away")
	if entries, _ := os.ReadDir(left); len(entries) != 1 {
		t.Errorf("the refused restore left %v", entries)
	}
	newer := dbtest.Open(t, "sqlite:"+filepath.Join(dir, "projections.db"))
	if _, err := newer.Exec(`insert into goose_db_version (version_id, is_applied) values (9999, true)`); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(dbtest.Files(to)), arrange), outbox.ErrSetup, filepath.Join(dir, "projections.db"), "has version 9999", "newer outboxweb")
	if entries, _ := os.ReadDir(to); len(entries) != 0 {
		t.Errorf("the refused restore left %v", entries)
	}
}

func TestSQLiteBackup_leavesTheReadersReadOnly(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, name := range []string{"1", "2", "3"} {
		if err := f.Backup(f.Ctx, filepath.Join(t.TempDir(), name), storetest.Quiet); err != nil {
			t.Fatal(err)
		}
		snapshot, err := f.Database.Snapshot(f.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.Exec(`create table intruder (x)`); err == nil {
			t.Error("a reader wrote")
		}
		if err := snapshot.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
