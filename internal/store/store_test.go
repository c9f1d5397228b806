package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// TestMain lowers the number of random histories and the shrinking time of a test to its time budget; flags raise them.
func TestMain(m *testing.M) {
	if dir := os.Getenv(createIn); dir != "" {
		os.Exit(createAndAppend(dir))
	}
	if err := flag.Set("rapid.shrinktime", "10s"); err != nil {
		panic(err)
	}
	// These tests run on PostgreSQL too in a short run: locks, copies, ranges, and concurrent
	// statements of several processes behave differently there.
	const differs = "^Test(Postgres(Append|Commits|Condition|Events|Forbidden|Hints_wake|Lineage_spares|Migrations|Transactions)|Append_(gives|repeated|expected|inAGroup)|AppendOnce_of|Condition_holds|EventsMatching_is|Journal_refuses)"
	os.Exit(dbtest.Main(m, differs, func(p dbtest.Pair) error {
		dbtest.Checks(size.Of(30, 12, 100))
		return storetest.Prepare(p)
	}))
}

func optionsIn(dir string) store.Options { return storetest.OptionsFor(dbtest.Files(dir)) }

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)

// fixture is a store of the test's own with the packages that use it.
type fixture struct {
	*enginetest.Rooms
	*tokens.Tokens
	Search *search.Search
	swaps  []store.Statement // prepared on a Scratch's connection
}

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return around(storetest.Open(tb, change...))
}

// own is open for a test that runs beside others.
func own(t *testing.T, change ...func(*store.Options)) *fixture {
	return around(storetest.Own(t, change...))
}

func openPair(tb testing.TB, p dbtest.Pair, c *storetest.Clock, change ...func(*store.Options)) *fixture {
	return around(storetest.OpenBoth(tb, p, c, change...))
}

func around(f *storetest.Fixture) *fixture {
	return &fixture{Rooms: enginetest.RoomsOf(f), Tokens: tokens.New(f.Store), Search: search.New(f.Store, nil)}
}

// must fails when a call does, whatever it returns besides.
func (f *fixture) must(_ any, err error) { must.OK(f.TB, err) }

func (f *fixture) ok(errs ...error) { must.OK(f.TB, errors.Join(errs...)) }

// beside opens a second store on the same databases, as another process would.
func (f *fixture) beside(change ...func(*store.Options)) *fixture {
	return around(f.Fixture.Beside(change...))
}

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

// createIn makes this program, started again by a test, create a pair of databases in a directory and append one event.
const createIn = "STORE_TEST_CREATE"

func createAndAppend(dir string) int {
	s, err := store.Open(context.Background(), creating(optionsIn(dir)))
	if err == nil {
		defer s.Close()
		_, err = s.Append(context.Background(), store.Append{Events: []event.Event{storetest.Event("a", "counted")}})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestPlan_listsWhatIsToComeAndChangesNothing(t *testing.T) {
	f, fresh := own(t), dbtest.Fresh(t)
	all, err := store.Plan(t.Context(), storetest.OptionsFor(fresh))
	must.Hold(t, err == nil && len(all) >= 2 && all[0].Database == "journal" && all[len(all)-1].Database == "projections", "for databases that are missing: %+v, %v", all, err)
	setup(t, asTheyAre(storetest.OptionsFor(fresh)), "the journal database")
	f.Close()
	f.Unchanged(func() {
		must.Equal(t, len(must.Get(store.Plan(t.Context(), storetest.OptionsFor(f.Pair))).Or(t)), 0, "for databases of this version")
	})
	f.Exec(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)
	refused(t, storetest.No(store.Plan(t.Context(), storetest.OptionsFor(f.Pair))), event.ErrSetup, "version 9999", "newer outboxweb")
}
