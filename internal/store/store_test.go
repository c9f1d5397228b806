package store_test

import (
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// TestMain lowers the number of random histories and the shrinking time of a test to its time
// budget; flags raise them.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crampedDir); dir != "" {
		os.Exit(appendCramped(dir))
	}
	if dir := os.Getenv(createIn); dir != "" {
		os.Exit(createAndAppend(dir))
	}
	if err := flag.Set("rapid.shrinktime", "10s"); err != nil {
		panic(err)
	}
	// These tests run on PostgreSQL too in a short run: locks, copies, ranges, and concurrent
	// statements of several processes behave differently there.
	const differs = "^Test(Postgres|Append_(gives|repeated|expected|inAGroup|of)|Claim_|Condition_(of|holds)|Journal_refuses|Locks|RequeueRow_of|Settle_(leaves|of|touches)|SkipEvent_fences)"
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

// impatient opens a store whose actions wait for no lease.
func impatient(o *store.Options) { o.Patience = time.Millisecond }

// fixture is a store of the test's own with the packages that use it.
type fixture struct {
	*enginetest.Rooms
	*tokens.Tokens
	Search *search.Search
	swaps  []store.Statement // prepared on a Scratch's connection
}

// open creates an empty store. change adjusts its options.
func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return around(storetest.Open(tb, change...))
}

func openPair(tb testing.TB, p dbtest.Pair, c *storetest.Clock, change ...func(*store.Options)) *fixture {
	return around(storetest.OpenBoth(tb, p, c, change...))
}

func around(f *storetest.Fixture) *fixture {
	return &fixture{Rooms: enginetest.RoomsOf(f), Tokens: tokens.New(f.Store), Search: search.New(f.Store)}
}

// must fails when a call does, whatever it returns besides.
func (f *fixture) must(_ any, err error) {
	must.OK(f.TB, err)
}

// beside opens a second store on the same databases, as another process would.
func (f *fixture) beside(change ...func(*store.Options)) *fixture {
	return around(f.Fixture.Beside(change...))
}

// wantLost fails unless err is that of a lost lease.
func wantLost(tb testing.TB, err error) {
	must.Hold(tb, errors.Is(err, outbox.ErrLeaseLost), "got error %v, want a lost lease", err)
}
