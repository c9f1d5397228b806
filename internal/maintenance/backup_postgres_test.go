package maintenance_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPostgresBackup_restoresToASoundCopy(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	f.Drain()
	f.AppendN("a", 3)
	f.AppendN("dead", 2)
	f.MustPause("a")
	f.Kill("dead")
	f.AppendN("b", 4)
	c := f.ClaimOne(one, 3)
	f.MustApply(c, 2) // a wave is in progress
	dir := filepath.Join(t.TempDir(), "backup")
	if err := f.Backup(f.Ctx, dir, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"journal.journal.dump", "projections.projections.dump"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	f.AppendN("b", 1) // not in the backup
	to := dbtest.Fresh(t)
	o := storetest.OptionsFor(to)
	o.Now = f.Clock.Now
	if err := maintenance.Restore(f.Ctx, dir, o, arrange); err != nil {
		t.Fatal(err)
	}
	r := openPair(t, to, f.Clock)
	r.Sound()
	if c := r.MustCampaign("b"); c.HighWaterSeq != 4 || c.AppliedSeq != 2 {
		t.Errorf("campaign b is %+v", c)
	}
	if c := r.MustCampaign("dead"); c.HeadStatus != outbox.Dead || len(r.MustRow("dead", 1).Attempts) != 8 {
		t.Errorf("campaign dead is %+v", c)
	}
	if _, err := r.JournalDB.Exec(`delete from events`); err == nil || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("the restored journal let an event be deleted: %v", err)
	}
	r.Drain()
	r.Sound()
	if c := r.MustCampaign("b"); c.AppliedSeq != 4 {
		t.Errorf("campaign b is %+v, want it drained at once, whoever held it when it was copied", c)
	}
}

func TestPostgresRestore_refusesWhatIsInItsWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	dir := filepath.Join(t.TempDir(), "backup")
	if err := f.Backup(f.Ctx, dir, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	f.Unchanged(func() {
		refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(f.Pair), arrange), outbox.ErrSetup, "the schema journal", "has tables already")
	})
	fresh := dbtest.Fresh(t)
	refused(t, maintenance.Restore(f.Ctx, t.TempDir(), storetest.OptionsFor(fresh), arrange), outbox.ErrSetup, "is not a backup for --journal-db", "neither journal.db nor journal.SCHEMA.dump")
	file := t.TempDir()
	refused(t, maintenance.Restore(f.Ctx, dir, storetest.OptionsFor(dbtest.Files(file)), arrange), outbox.ErrSetup, "of the journal database", "is of PostgreSQL and cannot become a SQLite file", "--journal-db", "search_path=journal")
	if left, _ := os.ReadDir(file); len(left) != 0 {
		t.Errorf("a refused restore left %v", left)
	}
	other := storetest.OptionsFor(fresh)
	other.Journal = strings.Replace(other.Journal, "search_path=journal", "search_path=elsewhere", 1)
	refused(t, maintenance.Restore(context.Background(), dir, other, arrange), outbox.ErrSetup, "of the schema journal; restore it into the same schema", "search_path=journal")
	copies := t.TempDir()
	if err := os.WriteFile(filepath.Join(copies, "journal.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := dbtest.InSchema(storetest.UnusedDatabase(t, "never_restored"), "journal")
	refused(t, maintenance.Restore(f.Ctx, copies, store.Options{Journal: missing, Projections: fresh.Projections}, arrange), outbox.ErrSetup, "is of SQLite and cannot become a PostgreSQL database", "--journal-db", "sqlite:")
	storetest.AtServer(t, `do $$ begin if exists (select from pg_database where datname = 'never_restored') then raise exception 'a refused restore made the database'; end if; end $$`)
}
