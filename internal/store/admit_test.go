package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
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

// createIn makes this program, started again by a test, create a pair of databases in a directory
// and append one event.
const createIn = "STORE_TEST_CREATE"

func createAndAppend(dir string) int {
	s, err := store.Open(context.Background(), creating(optionsIn(dir)))
	if err == nil {
		defer s.Close()
		_, err = s.Append(context.Background(), store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestPlan_listsWhatIsToComeAndChangesNothing(t *testing.T) {
	t.Parallel()
	fresh := dbtest.Fresh(t)
	all, err := store.Plan(t.Context(), storetest.OptionsFor(fresh))
	must.Hold(t, err == nil && len(all) >= 2 && all[0].Database == "journal" && all[len(all)-1].Database == "projections", "for databases that are missing: %+v, %v", all, err)
	setup(t, asTheyAre(storetest.OptionsFor(fresh)), "the journal database")
	f := open(t)
	f.Close()
	f.Unchanged(func() {
		must.Equal(t, len(must.Get(store.Plan(t.Context(), storetest.OptionsFor(f.Pair))).Or(t)), 0, "for databases of this version")
	})
	f.Exec(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)
	refused(t, storetest.No(store.Plan(t.Context(), storetest.OptionsFor(f.Pair))), outbox.ErrSetup, "version 9999", "newer outboxweb")
}
