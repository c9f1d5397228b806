package maintenance_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestPostgres")) }

// fixture is a store under maintenance.
type fixture = enginetest.Rooms

var open = enginetest.OpenRooms

func openPair(tb testing.TB, p dbtest.Pair, c *storetest.Clock) *fixture {
	tb.Helper()
	return enginetest.RoomsOf(storetest.OpenBoth(tb, p, c))
}

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)
