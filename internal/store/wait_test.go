package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// soon is a context for calls that must return at once.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), must.Patience)
	t.Cleanup(cancel)
	return ctx
}

// waits has a caller wait, and returns where its result comes.
func (f *fixture) waits(ctx context.Context, campaign string, seq int64) <-chan error {
	return storetest.Begin(func() error { return storetest.No(f.WaitApplied(ctx, campaign, seq)) })
}

func TestWaitApplied_returnsOnceItIsAppliedHereOrElsewhere(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	var all []<-chan error
	for _, s := range []*fixture{f, f, f.beside()} {
		all = append(all, s.waits(soon(t), "a", int64(1+len(all)%2)))
	}
	f.MustApply(f.ClaimOne(one, 2), 2)
	for _, done := range all {
		must.OK(t, <-done)
	}
	must.Equal(t, must.Get(f.WaitApplied(soon(t), "a", 1)).Or(t), 2, "what is applied already needs no wait")
}

func TestWaitApplied_isNotFooledByWhatIsRolledBack(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	ctx, cancel := context.WithTimeout(f.Ctx, 150*time.Millisecond)
	defer cancel()
	done := f.waits(ctx, "a", 2)
	advance := func(tx *readmodel.ApplyTx) error {
		return errors.Join(storetest.No(tx.Watermark("a")), tx.Savepoint(), tx.Advance("a", 1, 0, 2, "h"))
	}
	must.OK(t, f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return errors.Join(advance(tx), tx.RollbackTo()) }))
	must.OK(t, f.Rehearse(f.Ctx, advance))
	refused(t, <-done, event.ErrNotYet)
}

func TestWaitApplied_saysWhatIsMissingAtTheDeadline(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.Works(one, f.ClaimOne(one, 1), 1)
	f.AppendN("dead", 2)
	f.MustPause("a")
	f.Kill("dead")
	wait := func(campaign string, seq int64) (int64, error) {
		ctx, cancel := context.WithTimeout(f.Ctx, 10*time.Millisecond)
		defer cancel()
		return f.WaitApplied(ctx, campaign, seq)
	}
	applied, err := wait("a", 3)
	refused(t, err, event.ErrNotYet, `campaign "a" are at event 1 and not yet at event 3`, "Paused by scene")
	must.Equal(t, applied, 1, "applied")
	refused(t, storetest.No(wait("dead", 1)), event.ErrNotYet, "Event 1 has been dead for")
	refused(t, storetest.No(wait("a", 9)), event.ErrNotYet, "has no event 9 yet; its last one is 3")
	refused(t, storetest.No(wait("unknown", 1)), event.ErrNotFound, `"unknown"`)
}

// However many callers wait, the watermarks are polled for all of them together.
func TestWaitApplied_waitersShareTheirLooks(t *testing.T) {
	f := own(t)
	f.AppendN("a b", 1)
	const waiters = 40
	var cost database.Cost
	ctx := database.WithCost(soon(t), &cost)
	var all []<-chan error
	for i := range waiters {
		all = append(all, f.waits(ctx, []string{"a", "b"}[i%2], 1))
	}
	must.Eventually(f.TB, "all to wait", func() bool { return f.Waiting() == waiters })
	looks := f.Looks()
	must.Eventually(f.TB, "ten looks", func() bool { return f.Looks() >= looks+10 })
	f.Drain()
	for _, done := range all {
		must.OK(t, <-done)
	}
	n := cost.Report().Statements // one for the campaign's existence, one for its divergence
	must.Hold(t, n <= 3*waiters, "%d waiters ran %d statements of their own during ten looks", waiters, n)
	must.Eventually(f.TB, "watching to end", func() bool { return !f.Watching() })
}

func TestWaitApplied_endsWithTheStore(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	s := f.beside()
	done := s.waits(soon(t), "a", 1)
	must.Eventually(f.TB, "it to wait", func() bool { return s.Waiting() == 1 })
	s.Close()
	err := <-done
	must.Hold(t, err != nil, "it has waited for a store that is closed")
}

// listens counts how often a store's worker is woken, starting when it receives the hints of others.
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
	must.Eventually(f.TB, "the store to listen", func() bool { return listening() == before+1 })
}

func (f *fixture) woken(times *atomic.Int64, want int64) {
	must.Eventually(f.TB, "a hint", func() bool { return times.Load() >= want })
	got := times.Load()
	must.Hold(f.TB, got <= want, "woken %d times, want %d", got, want)
}

func TestPostgresHints_wakeTheWorkersOfOthersAndOnesOwnOnce(t *testing.T) {
	f := own(t)
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
	f.MustSettle(one, outbox.Result{Claim: c}) // it releases the unapplied rows
	f.woken(others, 4)
	// Hints arrive in the order they were sent: once the other store's is here, the own one would be, too.
	other.AppendN("b", 1)
	f.woken(own, 4) // three actions and this
}

func TestPostgresHints_ofManyAppendsAreFew(t *testing.T) {
	f := own(t)
	others := f.beside().listens()
	started := time.Now()
	for range 100 {
		f.AppendN("a", 1)
	}
	most := int64(time.Since(started)/store.HintPause) + 2
	must.Eventually(f.TB, "a hint", func() bool { return others.Load() > 0 })
	n := others.Load()
	must.Hold(t, n <= most, "100 appends woke the others %d times, want at most %d", n, most)
}

func TestPostgresHints_areSentBeforeAStoreIsClosed(t *testing.T) {
	f := own(t)
	var seen atomic.Int64
	f.onWork(func() { seen.Store(f.Number(`select count(*) from events`)) })
	for events := int64(2); events <= 10; events += 2 {
		s := f.beside()
		s.AppendN("a", 1)
		must.Eventually(f.TB, "the first hint", func() bool { return seen.Load() == events-1 })
		s.AppendN("a", 1) // its hint is delayed, since the first was just sent
		s.Close()
		must.Eventually(f.TB, "the last hint", func() bool { return seen.Load() == events })
	}
}

func TestPostgresHints_ofAnotherJournalAreNotHeeded(t *testing.T) {
	f := own(t)
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
	f := own(t)
	other := f.beside()
	others := other.listens()
	f.Terminate()
	f.woken(others, 1) // for hints it may have missed meanwhile
	f.AppendN("a", 1)
	f.woken(others, 2)
}
