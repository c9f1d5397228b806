package publishing_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) {
	// PostgreSQL lets several processes go on at the same time.
	const differs = "^Test(Postgres|Relay_skips|Relay_misses)"
	os.Exit(storetest.Main(m, differs))
}

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
)

type fixture struct {
	*storetest.Fixture
	progress *publishing.Progress
}

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return on(storetest.Open(tb, change...))
}

// own is open for a test that runs beside others.
func own(t *testing.T, change ...func(*store.Options)) *fixture {
	return on(storetest.Own(t, change...))
}

func on(s *storetest.Fixture) *fixture {
	f := &fixture{Fixture: s, progress: publishing.NewProgress(s.Store)}
	f.progress.LookAtATenth()
	return f
}

func (f *fixture) beside(change ...func(*store.Options)) *fixture { return on(f.Beside(change...)) }

// sample takes a sample now, as by a process that has just been started.
func (f *fixture) sample() { must.OK(f.TB, f.beside().Sample(f.Ctx)) }
