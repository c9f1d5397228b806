package maintenance_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^Test(Postgres|Backup_restores)")) }

type fixture = enginetest.Rooms

var own = enginetest.OwnRooms

func openPair(tb testing.TB, p dbtest.Pair, c *storetest.Clock) *fixture {
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

// kinds are all operator actions of this package. Repairing gaps is one transaction per campaign and one for the record.
var kinds = storetest.Kinds[*fixture]{Open: enginetest.OpenRooms, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.Beside() }, All: []storetest.Kind[*fixture]{
	{Action: "repair_gaps", Scene: (*fixture).Gap,
		Do: func(f *fixture, o operator.Command) (any, error) { return f.RepairGaps(f.Ctx, o) }},
}}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}
