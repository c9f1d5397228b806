package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// listens counts how often a store's worker is woken, starting when it receives the hints of
// others.
func (f *fixture) listens() *atomic.Int64 {
	var woken atomic.Int64
	f.onWork(func() { woken.Add(1) })
	return &woken
}

// onWork registers a worker and waits until the store receives the hints of others.
func (f *fixture) onWork(wake func()) {
	listening := func() int64 {
		return f.Number(`select count(*)` + storetest.TheStores + ` and query = 'listen outboxweb' and state = 'idle'`)
	}
	before := listening()
	f.OnWork(wake)
	storetest.Eventually(f.TB, "the store to listen", func() bool { return listening() == before+1 })
}

func (f *fixture) woken(times *atomic.Int64, want int64) {
	storetest.Eventually(f.TB, "a hint", func() bool { return times.Load() >= want })
	got := times.Load()
	must.Hold(f.TB, got <= want, "woken %d times, want %d", got, want)
}

func TestPostgresHints_wakeTheWorkersOfOthersAndOnesOwnOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := f.beside()
	own, others := f.listens(), other.listens()
	f.AppendN("a", 2)
	must.Equal(t, own.Load(), 1, "the append's own worker was woken", "times by the time it returned")
	f.woken(others, 1)
	f.MustPause("a")
	f.woken(others, 2)
	f.must(f.ResumeCampaign(f.Ctx, ana(""), "a"))
	f.woken(others, 3)
	c := f.ClaimOne(one, 10)
	f.MustSettle(one, store.Result{Claim: c}) // it releases the unapplied rows
	f.woken(others, 4)
	// Hints arrive in the order they were sent: once the other store's is here, the own one would
	// be, too.
	other.AppendN("b", 1)
	f.woken(own, 4) // three actions and this
}

func TestPostgresHints_ofManyAppendsAreFew(t *testing.T) {
	t.Parallel()
	f := open(t)
	others := f.beside().listens()
	started := time.Now()
	for range 100 {
		f.AppendN("a", 1)
	}
	most := int64(time.Since(started)/store.HintPause) + 2
	storetest.Eventually(f.TB, "a hint", func() bool { return others.Load() > 0 })
	n := others.Load()
	must.Hold(t, n <= most, "100 appends woke the others %d times, want at most %d", n, most)
}

func TestPostgresHints_areSentBeforeAStoreIsClosed(t *testing.T) {
	t.Parallel()
	f := open(t)
	var seen atomic.Int64
	f.onWork(func() { seen.Store(f.Number(`select count(*) from events`)) })
	for events := int64(2); events <= 10; events += 2 {
		s := f.beside()
		s.AppendN("a", 1)
		storetest.Eventually(f.TB, "the first hint", func() bool { return seen.Load() == events-1 })
		s.AppendN("a", 1) // its hint is delayed, since the first was just sent
		s.Close()
		storetest.Eventually(f.TB, "the last hint", func() bool { return seen.Load() == events })
	}
}

func TestPostgresHints_ofAnotherJournalAreNotHeeded(t *testing.T) {
	t.Parallel()
	f := open(t)
	another := dbtest.Pair{Journal: dbtest.InSchema(f.Pair.Journal, "another"), Projections: dbtest.InSchema(f.Pair.Journal, "another_projections")}
	stranger, friend := openPair(t, another, f.Clock), openPair(t, another, f.Clock)
	own, strangers := f.listens(), stranger.listens()
	for range 3 {
		f.AppendN("a", 1)
	}
	must.Equal(t, own.Load(), 3, "the worker was woken", "times")
	friend.AppendN("b", 1)
	f.woken(strangers, 1)
}

func TestPostgresHints_areHeardAgainAfterTheConnectionWasLost(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := f.beside()
	others := other.listens()
	f.Terminate()
	f.woken(others, 1) // for hints it may have missed meanwhile
	f.AppendN("a", 1)
	f.woken(others, 2)
}
