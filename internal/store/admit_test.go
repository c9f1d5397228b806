package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// asTheyAre sets o for a command that creates and migrates nothing.
func asTheyAre(o store.Options) store.Options {
	o.NoCreate, o.NoMigrate = true, true
	return o
}

// creating sets o for a command that creates, but does not migrate.
func creating(o store.Options) store.Options {
	o.NoMigrate = true
	return o
}

// older reverts the last migration of a closed store's journal.
func (f *fixture) older() {
	f.TB.Helper()
	f.Exec(`delete from goose_db_version where version_id = (select max(version_id) from goose_db_version)`)
}

func TestOpen_migratesNothingWhereItMayOnlyCreate(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.Close()
	f.older()
	f.Unchanged(func() {
		setup(t, creating(storetest.OptionsFor(f.Pair)), "the journal database", "has version ", " and this program needs ", "outboxweb migrate")
		setup(t, asTheyAre(storetest.OptionsFor(f.Pair)), "the journal database", "has version ", " and this program needs ", "outboxweb migrate")
	})
}

func TestOpen_byManyThatOnlyCreateMakesOneSoundPair(t *testing.T) {
	t.Parallel()
	pair := dbtest.Fresh(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := store.Open(t.Context(), creating(storetest.OptionsFor(pair)))
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			s.Close()
		})
	}
	wg.Wait()
	openPair(t, pair, storetest.NewClock()).Sound()
}

// A problem with the second database is found before the first is created.
func TestSQLiteOpen_leavesNothingBehindWhenItRefuses(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.Close()
	f.ExecProjections(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)
	dir := t.TempDir()
	o := storetest.OptionsFor(f.Pair)
	o.Journal = optionsIn(filepath.Join(dir, "new")).Journal
	setup(t, o, "the projections database", "version 9999")
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a refused start left %v", left)
	}
}

func TestPlan_listsWhatIsToComeAndChangesNothing(t *testing.T) {
	t.Parallel()
	fresh := dbtest.Fresh(t)
	all, err := store.Plan(t.Context(), storetest.OptionsFor(fresh))
	if err != nil || len(all) < 14 || all[0] != (sqldb.Migration{Database: "journal", Version: 1, Name: "00001_engine.sql"}) || all[len(all)-1].Database != "projections" {
		t.Errorf("for databases that are missing: %+v, %v", all, err)
	}
	setup(t, asTheyAre(storetest.OptionsFor(fresh)), "the journal database")
	f := open(t)
	f.Close()
	f.Unchanged(func() {
		if steps, err := store.Plan(t.Context(), storetest.OptionsFor(f.Pair)); err != nil || len(steps) != 0 {
			t.Errorf("for databases of this version: %+v, %v", steps, err)
		}
	})
	f.older()
	f.Unchanged(func() {
		steps, err := store.Plan(t.Context(), storetest.OptionsFor(f.Pair))
		if err != nil || len(steps) != 1 || !slices.Contains(all, steps[0]) || steps[0].Database != "journal" {
			t.Errorf("for an older journal: %+v, %v", steps, err)
		}
	})
	f.Exec(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)
	_, err = store.Plan(t.Context(), storetest.OptionsFor(f.Pair))
	refused(t, err, outbox.ErrSetup, "version 9999", "newer outboxweb")
}
