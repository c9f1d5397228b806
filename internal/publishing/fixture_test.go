package publishing_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
)

func TestMain(m *testing.M) {
	// PostgreSQL lets several processes go on at the same time.
	const differs = "^Test(Postgres|Relay_skips|Relay_misses)"
	code := dbtest.Main(m, differs, func(p dbtest.Pair) error {
		s, err := store.Open(context.Background(), store.Options{Journal: p.Journal, Projections: p.Projections})
		if err != nil {
			return err
		}
		return s.Close()
	})
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
)

// fixture is a store of the test's own, and what is known there of publishers.
type fixture struct {
	*storetest.Fixture
	ctx      context.Context
	progress *publishing.Progress
}

// open makes an empty store. change adjusts its options.
func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	tb.Helper()
	return on(storetest.Open(tb, change...))
}

func on(s *storetest.Fixture) *fixture {
	return &fixture{Fixture: s, ctx: context.Background(), progress: publishing.NewProgress(s.Store)}
}

// beside opens a second store on the same databases, as another process would.
func (f *fixture) beside(change ...func(*store.Options)) *fixture {
	f.TB.Helper()
	return on(f.Beside(change...))
}

func readOnly(o *store.Options) { o.ReadOnly = true }

// append writes n events to a campaign.
func (f *fixture) append(campaign string, n int) {
	f.TB.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = storetest.Event(campaign, "counted")
	}
	f.MustAppend(events...)
}

// sample takes a sample of how things stand now; what is shared for a moment
// is read anew, as by a process that has just been started.
func (f *fixture) sample() {
	f.TB.Helper()
	if err := f.beside().Sample(f.ctx); err != nil {
		f.TB.Fatal(err)
	}
}
