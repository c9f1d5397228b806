package runs_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// fixture is a store without a worker on it.
type fixture = enginetest.Rooms

var (
	open = enginetest.OpenRooms
	own  = enginetest.OwnRooms // for a test that runs beside others
)

// allApplied changes a journal as if a worker had applied all of it.
const allApplied = `update campaigns set applied_seq = high_water_seq`

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)

// differs matches tests about several processes, and of what depends on how rows are stored.
const differs = "^Test(PostgresStartRun|Locks|Runs_leave|Rebuild_beside|StartRun_ofMany|Rehearse_doesNotVouchForKeys)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }

func try(tb testing.TB, b *enginetest.Engine, campaign string, projections ...string) replay.RunResult {
	f := must.Get(runs.NewReplayer(tb.Context(), b.Store, b.Set)).Or(tb)
	defer f.Close()
	return must.Get(f.TryRebuild(tb.Context(), campaign, projections...)).Or(tb)
}

// changes sums up how the rows of the projections would change.
func changes(r replay.RunResult) (added, changed, removed int64) {
	for _, p := range r.Projections {
		if c := p.Comparison; c != nil {
			added, changed, removed = added+c.Added, changed+c.Changed, removed+c.Removed
		}
	}
	return added, changed, removed
}
