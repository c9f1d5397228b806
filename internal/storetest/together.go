package storetest

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// AtOnce runs calls concurrently. All of them block on what the statement lock, or SQLite's
// only lock, locks, until each has begun.
func (f *Fixture) AtOnce(db *sql.DB, lock string, calls ...func()) {
	f.TB.Helper()
	holder := must.Get(db.Conn(f.Ctx)).Or(f.TB)
	defer holder.Close()
	hold := []string{`begin immediate`}
	if dbtest.Postgres() {
		hold = []string{`begin`, lock}
	}
	for _, statement := range hold {
		must.Get(holder.ExecContext(f.Ctx, statement)).Or(f.TB)
	}
	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(call)
	}
	if dbtest.Postgres() {
		f.AwaitLockWaits(int64(len(calls)))
	}
	if _, err := holder.ExecContext(f.Ctx, `rollback`); err != nil {
		f.TB.Error(err)
	}
	running.Wait()
}

// OneWins does the same 16 times at once, on stores in turn: one must do it, and the others be told of a
// conflict.
func OneWins[F any](tb testing.TB, stores []F, act func(F) error) {
	tb.Helper()
	var won atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			err := act(stores[i%len(stores)])
			if err == nil {
				won.Add(1)
			}
			must.Hold(tb, err == nil || errors.Is(err, outbox.ErrConflict), "got error %v", err)
		})
	}
	all.Wait()
	must.Equal(tb, won.Load(), 1, "that won")
}

// EveryCampaign locks all campaigns on PostgreSQL.
const EveryCampaign = `select 1 from campaigns for update`

// Shuffled is a copy in random order.
func Shuffled[T any](all []T) []T {
	other := slices.Clone(all)
	rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

// Everybody runs each of the calls many times, all concurrently, and each on all stores at
// once.
func Everybody[F any](tb testing.TB, stores []F, times int, calls map[string]func(s F, i int) error) {
	tb.Helper()
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			for i := 0; i < times && !tb.Failed(); i++ {
				var both sync.WaitGroup
				for _, s := range stores {
					both.Go(func() {
						err := call(s, i)
						must.Hold(tb, err == nil, "%s: %v", name, err)
					})
				}
				both.Wait()
			}
		})
	}
	all.Wait()
}
