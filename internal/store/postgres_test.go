package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/pgtest"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
)

// theStores are the connections of stores to the database of the test.
const theStores = `
from pg_stat_activity
where datname = current_database()
  and application_name = 'outboxweb'`

// applier is the process that serves the connection through which events are
// applied. The store's other connections end when they have not been used for a
// while.
func (f *fixture) applier() string {
	f.TB.Helper()
	var pid []string
	err := f.Rehearse(f.Ctx, func(tx *readmodel.ApplyTx) error {
		pid = storetest.Texts(f.TB, f.JournalDB, `select cast(pid as text)`+theStores+` and state like 'idle in transaction%'`)
		return nil
	})
	if err != nil || len(pid) != 1 {
		f.TB.Fatalf("processes %v apply events, %v", pid, err)
	}
	return pid[0]
}

// terminate ends the connections of all stores of this test, as the
// administrator of the server would, and waits until they are gone.
func (f *fixture) terminate() {
	f.TB.Helper()
	if n := f.Number(`select count(pg_terminate_backend(pid, 10000))` + theStores); n == 0 {
		f.TB.Fatal("the store has no connection to end")
	}
}

// everyConnection changes a setting for connections to the test's database that
// are made from now on, and ends those of the store.
func (f *fixture) everyConnection(setting string) {
	f.TB.Helper()
	f.Exec(`do $$ begin execute 'alter database ' || current_database() || ' ` + setting + `'; end $$`)
	f.terminate()
}

// overtime is the time of an event in tests of what exceeds it. Everything else
// in them has to end within it, on a machine that is busy with something else.
const overtime = 5 * time.Second

func eventTimeout(d time.Duration) func(*store.Options) {
	return func(o *store.Options) { o.EventTimeout = d }
}

func TestPostgresApply_statementOverItsTimeIsUndoneAlone(t *testing.T) {
	t.Parallel()
	f := open(t, eventTimeout(overtime))
	f.ExecProjections(`create table written (n integer primary key)`)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		if _, err := tx.Watermark("a"); err != nil {
			return err
		}
		if err := errors.Join(tx.Exec(f.Ctx, `insert into written values (1)`, nil), tx.Savepoint(), tx.Exec(f.Ctx, `insert into written values (2)`, nil)); err != nil {
			return err
		}
		if err := tx.Exec(f.Ctx, `select pg_sleep(60)`, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, outbox.ErrBusy) {
			t.Errorf("a statement over its time: got error %v", err)
		}
		if tx.Lost() {
			t.Error("it costs the transaction")
		}
		return errors.Join(tx.RollbackTo(), tx.Release(), tx.Exec(f.Ctx, `insert into written values (3)`, nil), tx.Advance("a", 1, 0, 2, "h"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1", "3"}, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`)); diff != "" || f.MustWatermark("a").AppliedSeq != 2 {
		t.Errorf("watermark %+v, written (-want +got):\n%s", f.MustWatermark("a"), diff)
	}
}

func TestPostgresApply_nothingCommitsAfterAFailedStatement(t *testing.T) {
	t.Parallel()
	f := open(t, eventTimeout(overtime))
	f.ExecProjections(`create table written (n integer primary key)`)
	before := f.applier()
	f.Unchanged(func() {
		for _, failing := range []string{`select pg_sleep(60)`, `insert into written values (1)`, `selec`} {
			err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
				if err := tx.Exec(f.Ctx, `insert into written values (1)`, nil); err != nil {
					return err
				}
				if tx.Exec(f.Ctx, failing, nil) == nil {
					t.Errorf("%s did not fail", failing)
				}
				return nil
			})
			if err == nil {
				t.Errorf("committed in spite of %s", failing)
			}
		}
	})
	f.SetWatermark("a", 1, 1)
	if after := f.applier(); after != before {
		t.Errorf("process %s serves the store now, and not %s", after, before)
	}
}

func TestPostgresApply_statementAfterAFailedOneLosesTheTransaction(t *testing.T) {
	t.Parallel()
	f := withTable(t)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			if err := errors.Join(tx.Savepoint(), tx.Exec(f.Ctx, `insert into written values (1)`, nil)); err != nil {
				return err
			}
			if tx.Exec(f.Ctx, `insert into written values (1)`, nil) == nil || tx.Lost() {
				t.Error("a violated key is no error, or costs the transaction")
			}
			if tx.Exec(f.Ctx, `insert into written values (2)`, nil) == nil || !tx.Lost() {
				t.Error("without returning to the savepoint it goes on")
			}
			if tx.RollbackTo() == nil || tx.Advance("a", 1, 0, 2, "h") == nil {
				t.Error("the lost transaction is still of use")
			}
			return nil
		})
		if err == nil {
			t.Error("a lost transaction was committed")
		}
	})
}

func TestPostgresApply_gatheredStatementsTellHowManyTookEffect(t *testing.T) {
	t.Parallel()
	f := withTable(t)
	insert := func(tx *readmodel.ApplyTx, n int64) error {
		return tx.Exec(f.Ctx, `insert into written values ($1)`, []any{n})
	}
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		if err := tx.Savepoint(); err != nil {
			return err
		}
		if !tx.Gather() {
			t.Error("nothing is gathered")
		}
		if err := errors.Join(insert(tx, 1), insert(tx, 2), insert(tx, 1), insert(tx, 3)); err != nil || tx.Gathered() != 4 {
			t.Errorf("%d statements wait: %v", tx.Gathered(), err)
		}
		if done, err := tx.Flush(); done != 2 || err == nil || tx.Lost() || tx.Gathered() != 0 {
			t.Errorf("%d statements took effect, %v, lost: %v, want two and the third's error", done, err, tx.Lost())
		}
		if err := tx.RollbackTo(); err != nil {
			return err
		}
		tx.Gather()
		if err := errors.Join(insert(tx, 7), insert(tx, 8)); err != nil {
			return err
		}
		tx.Forget()
		tx.Gather()
		if err := errors.Join(insert(tx, 4), insert(tx, 5)); err != nil {
			return err
		}
		done, err := tx.Flush()
		if done != 2 {
			t.Errorf("%d statements took effect, want both", done)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"4", "5"}, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`)); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestPostgresApply_lockThatIsNotHandedOutInTimeIsBusy(t *testing.T) {
	t.Parallel()
	f := open(t, eventTimeout(overtime))
	f.SetWatermark("a", 1, 1)
	other := storetest.Connect(f.TB, f.Pair.Projections)
	storetest.Run(f.TB, other, `begin`, `select 1 from projection_watermarks for update`)
	before := f.applier()
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		_, err := tx.Watermark("a")
		if !errors.Is(err, outbox.ErrBusy) || !tx.Lost() || tx.RollbackTo() == nil {
			t.Errorf("got error %v, lost: %v, want a busy database and a lost transaction", err, tx.Lost())
		}
		return nil
	})
	if !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("got error %v, want a busy database", err)
	}
	storetest.Run(f.TB, other, `rollback`)
	f.SetWatermark("a", 2, 1)
	if after := f.applier(); after != before {
		t.Errorf("the connection was given up for nothing: process %s serves the store now, and not %s", after, before)
	}
}

func TestPostgresApply_deadlockIsBusy(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.SetWatermark("a", 1, 1)
	f.SetWatermark("b", 1, 1)
	f.everyConnection(`set deadlock_timeout = 20`)
	other := storetest.Connect(f.TB, f.Pair.Projections)
	lock := func(id string) string {
		return `select 1 from projection_watermarks where campaign_id = '` + id + `' for update`
	}
	storetest.Run(f.TB, other, `set deadlock_timeout = '1min'`, `begin`, lock("b"))
	blocked := make(chan error)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		if _, err := tx.Watermark("a"); err != nil {
			return err
		}
		go func() {
			_, err := other.Exec(context.Background(), lock("a"))
			blocked <- err
		}()
		_, err := tx.Watermark("b")
		return err
	})
	if !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("got error %v, want a busy database", err)
	}
	if err := <-blocked; err != nil {
		t.Errorf("the other one: %v", err)
	}
	storetest.Run(f.TB, other, `rollback`)
	f.SetWatermark("b", 2, 1)
}

func TestPostgresApply_transactionThatStoodStillIsCutOff(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.Lease = overtime })
	f.SetWatermark("a", 1, 1)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			if err := tx.Fence("a", 9); err != nil {
				return err
			}
			storetest.Eventually(f.TB, "the transaction to be cut off", func() bool {
				return f.Number(`select count(*)`+theStores+` and state = 'idle in transaction'`) == 0
			})
			if err := tx.Fence("a", 10); !errors.Is(err, outbox.ErrBusy) || !tx.Lost() {
				t.Errorf("got error %v, lost: %v, want a busy database and a lost transaction", err, tx.Lost())
			}
			return nil
		})
		if !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("got error %v, want a busy database", err)
		}
	})
	f.SetWatermark("a", 2, 1)
}

// inTheMiddle opens a store and returns with it a function that lets something
// happen in the middle of the next transaction: when it asks for the time.
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

// transactions are calls that ask for the time after their transaction has
// begun. They can be made in this order, on a store that prepare has prepared.
var transactions = []struct {
	name string
	call func(*fixture) error
}{
	{"append", func(f *fixture) error {
		_, err := f.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("a", "counted"), storetest.Event("new", "counted")}})
		return err
	}},
	{"settle", func(f *fixture) error {
		got, err := f.Settle(f.Ctx, two, []store.Result{{Claim: store.Claim{CampaignID: "held", Epoch: 1, First: 1, Last: 2}}})
		if err == nil && got.Fenced != 0 {
			err = fmt.Errorf("settled %+v", got)
		}
		return err
	}},
	{"heartbeat", func(f *fixture) error { return f.Heartbeat(f.Ctx, outbox.InstanceState{ID: "i"}) }},
	{"claim", func(f *fixture) error {
		claims, err := f.Claim(f.Ctx, one, store.ClaimLimits{Rows: 10, Lease: lease})
		if err == nil && len(claims) == 0 {
			err = errors.New("nothing was claimed")
		}
		return err
	}},
	{"pause", func(f *fixture) error { _, err := f.PauseCampaign(f.Ctx, ana(""), "a"); return err }},
	{"row", func(f *fixture) error { _, err := f.Row(f.Ctx, "a", 1); return err }},
}

func (f *fixture) prepare() {
	f.TB.Helper()
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
			meanwhile(f.terminate)
			if err := tx.call(f); !errors.Is(err, outbox.ErrBusy) {
				t.Errorf("%s: got error %v, want a busy database", tx.name, err)
			}
		})
		if err := tx.call(f); err != nil {
			t.Errorf("%s, the same again: %v", tx.name, err)
		}
	}
	f.Sound()
}

func TestPostgresConnection_lostBetweenTransactionsIsNotNoticed(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.prepare()
	for _, tx := range transactions {
		f.terminate()
		if err := tx.call(f); err != nil {
			t.Errorf("%s: %v", tx.name, err)
		}
	}
	for range 2 {
		f.terminate()
		snapshot, err := f.Database.Snapshot(f.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Rollback()
	}
	f.terminate()
	f.Sound()
}

// A server that was the first and is the second now still answers, but refuses
// to write: the way to the new first one leads through a new connection.
func TestPostgresConnection_toAServerThatOnlyReadsIsGivenUp(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.prepare()
	f.everyConnection(`set default_transaction_read_only = on`)
	f.Unchanged(func() {
		for _, tx := range transactions {
			err := tx.call(f)
			if reads := tx.name == "row"; reads != (err == nil) || !reads && !errors.Is(err, outbox.ErrBusy) {
				t.Errorf("%s: got error %v, want a busy database for what writes", tx.name, err)
			}
		}
		if err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Fence("a", 1) }); !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("apply: got error %v, want a busy database", err)
		}
	})
	storetest.Run(f.TB, storetest.Connect(f.TB, f.Pair.Journal), `set default_transaction_read_only = off`,
		`do $$ begin execute 'alter database ' || current_database() || ' reset default_transaction_read_only'; end $$`)
	for _, tx := range transactions {
		if err := tx.call(f); err != nil {
			t.Errorf("%s, as soon as the server writes: %v", tx.name, err)
		}
	}
	f.SetWatermark("a", 1, 1)
}

// A server of the test's own, since others would notice its restarts.
func TestPostgresServerRestart(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	life := func(t *testing.T, database string) *fixture {
		database = server.URL(database)
		return openPair(t, dbtest.Pair{Journal: dbtest.InSchema(database, "journal"), Projections: dbtest.InSchema(database, "projections")}, storetest.NewClock())
	}
	t.Run("is waited for by what has not begun", func(t *testing.T) { restartIsWaitedFor(t, server, life(t, "waiting")) })
	t.Run("loses and repeats nothing under load", func(t *testing.T) { restartLosesNothing(t, server, life(t, "load")) })
}

func restartIsWaitedFor(t *testing.T, server *pgtest.Server, f *fixture) {
	f.prepare()
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(f.Ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := f.Campaign(soon, "a"); !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("reading while the server is away: got error %v, want a busy database", err)
	}
	if err := f.Apply(soon, func(*readmodel.ApplyTx) error { return nil }); !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("applying while the server is away: got error %v, want a busy database", err)
	}
	if reasons := f.Ready(soon); len(reasons) != 2 {
		t.Errorf("ready while the server is away: %q", reasons)
	}
	away := time.Now()
	var calls sync.WaitGroup
	for _, tx := range transactions[:3] { // none of them hinders another
		calls.Go(func() {
			err := tx.call(f)
			for errors.Is(err, outbox.ErrBusy) && time.Since(away) > store.LockWaitLimit { // the server came up late
				if err = tx.call(f); time.Since(away) > 10*store.LockWaitLimit {
					break
				}
			}
			if err != nil {
				t.Errorf("%s: %v", tx.name, err)
			}
		})
	}
	if err := server.Launch(f.Ctx); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	f.Sound()
	if reasons := f.Ready(f.Ctx); len(reasons) != 0 {
		t.Errorf("ready after the restart: %q", reasons)
	}
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
				switch got, err := f.Append(f.Ctx, store.Append{Events: []outbox.Event{e}}); {
				case errors.Is(err, outbox.ErrBusy): // the same once more
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
		storetest.Eventually(f.TB, "appends to go on", func() bool { return total.Load() > before+50 })
		if err := restart(f.Ctx); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	loops.Wait()
	for caller, n := range appended {
		if c := f.MustCampaign(fmt.Sprint("c-", caller)); c.HighWaterSeq != n {
			t.Errorf("%d events of caller %d are there, %d were acknowledged", c.HighWaterSeq, caller, n)
		}
	}
	f.Sound()
}
