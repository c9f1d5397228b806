package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// inTheMiddle opens a store, and returns a function that runs another one in the middle of the next transaction, when it reads the time.
func inTheMiddle(t *testing.T) (*fixture, func(func())) {
	var pending atomic.Pointer[func()]
	f := open(t, func(o *store.Options) {
		now := o.Now
		o.Now = func() time.Time {
			if act := pending.Swap(nil); act != nil {
				(*act)()
			}
			return now()
		}
	})
	return f, func(act func()) { pending.Store(&act) }
}

// transactions are calls that read the time after their transaction has begun. They can be made
// in this order, on a store set up by prepare.
var transactions = []struct {
	name string
	call func(*fixture) error
}{
	{"append", func(f *fixture) error {
		return storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted"), storetest.Event("new", "counted")}}))
	}},
	{"settle", func(f *fixture) error {
		got, err := f.Settle(f.Ctx, two, []outbox.Result{{Claim: outbox.Claim{CampaignID: "held", Epoch: 1, First: 1, Last: 2}}})
		if err == nil && got.Fenced != 0 {
			err = fmt.Errorf("settled %+v", got)
		}
		return err
	}},
	{"heartbeat", func(f *fixture) error { return f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "i"}) }},
	{"claim", func(f *fixture) error {
		claims, err := f.Claim(f.Ctx, one, outbox.ClaimLimits{Rows: 10, Lease: lease})
		if err == nil && len(claims) == 0 {
			err = errors.New("nothing was claimed")
		}
		return err
	}},
	{"pause", func(f *fixture) error { _, err := f.PauseCampaign(f.Ctx, ana(""), "a"); return err }},
	{"row", func(f *fixture) error { _, err := f.Row(f.Ctx, "a", 1); return err }},
}

func (f *fixture) prepare() {
	f.AppendN("held", 2)
	f.ClaimOne(two, 10)
	f.AppendN("a", 2)
}

func TestPostgresConnection_lostInATransactionIsBusyAndDoesNothing(t *testing.T) {
	t.Parallel()
	f, meanwhile := inTheMiddle(t)
	f.prepare()
	for _, tx := range transactions {
		f.Unchanged(func() {
			meanwhile(func() { f.Terminate() })
			err := tx.call(f)
			must.Hold(t, errors.Is(err, event.ErrBusy), "%s: got error %v, want a busy database", tx.name, err)
		})
		must.OK(t, storetest.No(f.Row(f.Ctx, "a", 1)))
		f.Terminate() // which is not noticed between transactions
		must.OK(t, tx.call(f))
	}
	for range 2 {
		f.Terminate()
		snapshot := must.Get(f.Database.Snapshot(f.Ctx)).Or(t)
		snapshot.Rollback()
	}
	f.Terminate()
	f.Sound()
}

// A former primary that is now a standby still answers, but refuses writes: reaching the new primary needs a new connection.
func TestPostgresConnection_toAServerThatOnlyReadsIsGivenUp(t *testing.T) {
	f := own(t)
	f.prepare()
	hurried := f.beside(func(o *store.Options) { o.Wait = 3 * time.Second })
	f.EveryConnection(`set default_transaction_read_only = on`)
	f.Unchanged(func() {
		var calls sync.WaitGroup // each waits for a server that writes, as long as it may
		for _, tx := range transactions {
			calls.Go(func() {
				reads := tx.name == "row"
				err := tx.call(map[bool]*fixture{true: f, false: hurried}[reads])
				must.Hold(t, reads == (err == nil) && (reads || errors.Is(err, event.ErrBusy)), "%s: got error %v, want a busy database for what writes", tx.name, err)
			})
		}
		calls.Go(func() {
			err := hurried.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Fence("a", 1) })
			must.Hold(t, errors.Is(err, event.ErrBusy), "apply: got error %v, want a busy database", err)
		})
		calls.Wait()
	})
	storetest.Run(f.TB, storetest.Connect(f.TB, f.Pair.Journal), `set default_transaction_read_only = off`,
		`do $$ begin execute 'alter database ' || current_database() || ' reset default_transaction_read_only'; end $$`)
	for _, tx := range transactions {
		must.OK(t, tx.call(f)) // as soon as the server writes
	}
	f.SetWatermark("a", 1, 1)
}

// This test uses its own server, since its restarts would disturb others.
func TestPostgresServerRestart(t *testing.T) {
	t.Parallel()
	server := must.Get(pgtest.Start()).Or(t)
	t.Cleanup(func() { err := server.Stop(); must.Hold(t, err == nil, "%v", err) })
	life := func(t *testing.T, database string) *fixture {
		database = server.URL(database)
		return openPair(t, dbtest.Pair{Journal: dbtest.InSchema(database, "journal"), Projections: dbtest.InSchema(database, "projections")}, storetest.NewClock())
	}
	t.Run("is waited for by what has not begun", func(t *testing.T) { restartIsWaitedFor(t, server, life(t, "waiting")) })
	t.Run("loses and repeats nothing under load", func(t *testing.T) { restartLosesNothing(t, server, life(t, "load")) })
}

func restartIsWaitedFor(t *testing.T, server *pgtest.Server, f *fixture) {
	f.prepare()
	must.OK(t, server.Crash())
	soon, cancel := context.WithTimeout(f.Ctx, 100*time.Millisecond)
	defer cancel()
	_, err := f.Campaign(soon, "a")
	must.Hold(t, errors.Is(err, event.ErrBusy), "reading while the server is away: got error %v, want a busy database", err)
	err = f.Apply(soon, func(*readmodel.ApplyTx) error { return nil })
	must.Hold(t, errors.Is(err, event.ErrBusy), "applying while the server is away: got error %v, want a busy database", err)
	must.Equal(t, len(f.Ready(soon)), 2, "ready while the server is away")
	away := time.Now()
	var calls sync.WaitGroup
	for _, tx := range transactions[:3] { // none of them affects another
		calls.Go(func() {
			err := tx.call(f)
			for errors.Is(err, event.ErrBusy) && time.Since(away) > store.LockWaitLimit { // the server came up late
				if err = tx.call(f); time.Since(away) > 10*store.LockWaitLimit {
					break
				}
			}
			must.Hold(t, err == nil, "%s: %v", tx.name, err)
		})
	}
	must.OK(t, server.Launch(f.Ctx))
	calls.Wait()
	f.Sound()
	must.Equal(t, len(f.Ready(f.Ctx)), 0, "ready after the restart")
}

func restartLosesNothing(t *testing.T, server *pgtest.Server, f *fixture) {
	const callers = 4
	stop := make(chan struct{})
	appended := make([]int64, callers)
	var total atomic.Int64
	var loops sync.WaitGroup
	for caller := range callers {
		loops.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				e := storetest.Event(fmt.Sprint("c-", caller), "counted")
				e.EventID = fmt.Sprint("e-", appended[caller]+1)
				switch got, err := f.Append(f.Ctx, store.Append{Events: []event.Event{e}}); {
				case errors.Is(err, event.ErrBusy): // try once more
				case err != nil || got[0].Seq != appended[caller]+1:
					t.Errorf("got %+v, %v after %d", got, err, appended[caller])
					return
				default:
					appended[caller]++
					total.Add(1)
				}
			}
		})
	}
	for _, restart := range []func(context.Context) error{
		server.Restart,
		func(ctx context.Context) error { return errors.Join(server.Crash(), server.Launch(ctx)) },
		func(context.Context) error { return nil },
	} {
		before := total.Load()
		must.Eventually(f.TB, "appends to go on", func() bool { return total.Load() > before+50 })
		must.OK(t, restart(f.Ctx))
	}
	close(stop)
	loops.Wait()
	for caller, n := range appended {
		must.Equal(t, f.MustCampaign(fmt.Sprint("c-", caller)).HighWaterSeq, n, "the acknowledged events of caller", caller)
	}
	f.Sound()
}
