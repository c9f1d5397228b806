package readmodel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPostgresAdvance_ofTwoAtOnceMovesTheWatermarkOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.SetWatermark("a", 1, 1)
	second := make(chan error)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		if err := tx.Advance("a", 1, 1, 2, "first"); err != nil {
			return err
		}
		go func() {
			second <- f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Advance("a", 1, 1, 3, "second") })
		}()
		f.AwaitLockWaits(1)
		return nil
	})
	must.Hold(t, err == nil, "%v", err)
	err = <-second
	must.Hold(t, errors.Is(err, outbox.ErrLeaseLost), "the second one: got error %v, want a lost lease", err)
	w := f.MustWatermark("a")
	must.Hold(t, w.AppliedSeq == 2 && w.AppliedHash == "first", "watermark is %+v, want the first one's", w)
}

func TestPostgresWatermark_isReadOnceNobodyElseMovesIt(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(tx *readmodel.ApplyTx) error{
		"ahead":     func(tx *readmodel.ApplyTx) error { return tx.ReadAhead([]string{"b", "a", "new", "a"}) },
		"at a time": func(*readmodel.ApplyTx) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.SetWatermark("a", 1, 1)
			second := make(chan error)
			err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
				if err := errors.Join(tx.Advance("a", 1, 1, 2, "first"), tx.Fence("a", 5)); err != nil {
					return err
				}
				go func() {
					second <- f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
						if err := read(tx); err != nil {
							return err
						}
						w, err := tx.Watermark("a")
						must.Equal(t, w, readmodel.Watermark{AppliedSeq: 2, AppliedHash: "first", FenceEpoch: 5}, "read")
						return err
					})
				}()
				f.AwaitLockWaits(1)
				return nil
			})
			must.OK(t, errors.Join(err, <-second))
		})
	}
}

// applier is the server process of the connection that applies events. The store's other
// connections end when idle for a while.
func applier(f *fixture) string {
	var pid []string
	err := f.Rehearse(f.Ctx, func(tx *readmodel.ApplyTx) error {
		pid = storetest.Texts(f.TB, f.JournalDB, `select cast(pid as text)`+storetest.TheStores+` and state like 'idle in transaction%'`)
		return nil
	})
	must.Need(f.TB, err == nil && len(pid) == 1, "processes %v apply events, %v", pid, err)
	return pid[0]
}

func TestPostgresApply_statementOverItsTimeIsUndoneAlone(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.EventTimeout(storetest.Overtime))
	f.ExecProjections(`create table written (n integer primary key)`)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		if _, err := tx.Watermark("a"); err != nil {
			return err
		}
		if err := errors.Join(tx.Exec(f.Ctx, `insert into written values (1)`, nil), tx.Savepoint(), tx.Exec(f.Ctx, `insert into written values (2)`, nil)); err != nil {
			return err
		}
		err := tx.Exec(f.Ctx, `select pg_sleep(60)`, nil)
		must.Hold(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, outbox.ErrBusy), "a statement over its time: got error %v", err)
		must.Hold(t, !tx.Lost(), "it costs the transaction")
		return errors.Join(tx.RollbackTo(), tx.Release(), tx.Exec(f.Ctx, `insert into written values (3)`, nil), tx.Advance("a", 1, 0, 2, "h"))
	})
	must.OK(t, err)
	if diff := cmp.Diff([]string{"1", "3"}, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`)); diff != "" || f.MustWatermark("a").AppliedSeq != 2 {
		t.Errorf("watermark %+v, written (-want +got):\n%s", f.MustWatermark("a"), diff)
	}
}

func TestPostgresApply_nothingCommitsAfterAFailedStatement(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.EventTimeout(storetest.Overtime))
	f.ExecProjections(`create table written (n integer primary key)`)
	before := applier(f)
	f.Unchanged(func() {
		for _, failing := range []string{`select pg_sleep(60)`, `insert into written values (1)`, `selec`} {
			err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
				if err := tx.Exec(f.Ctx, `insert into written values (1)`, nil); err != nil {
					return err
				}
				must.Hold(t, tx.Exec(f.Ctx, failing, nil) != nil, "%s did not fail", failing)
				return nil
			})
			must.Hold(t, err != nil, "committed in spite of %s", failing)
		}
	})
	f.SetWatermark("a", 1, 1)
	must.Equal(t, applier(f), before, "the process that serves the store")
}

func TestPostgresApply_statementAfterAFailedOneLosesTheTransaction(t *testing.T) {
	t.Parallel()
	f := withTable(t)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			if err := errors.Join(tx.Savepoint(), tx.Exec(f.Ctx, `insert into written values (1)`, nil)); err != nil {
				return err
			}
			must.Hold(t, tx.Exec(f.Ctx, `insert into written values (1)`, nil) != nil && !tx.Lost(), "a violated key is no error, or costs the transaction")
			must.Hold(t, tx.Exec(f.Ctx, `insert into written values (2)`, nil) != nil && tx.Lost(), "without returning to the savepoint it goes on")
			must.Hold(t, tx.RollbackTo() != nil && tx.Advance("a", 1, 0, 2, "h") != nil, "the lost transaction is still of use")
			return nil
		})
		must.Hold(t, err != nil, "a lost transaction was committed")
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
		must.Hold(t, tx.Gather(), "nothing is gathered")
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
		tx.Discard()
		tx.Gather()
		if err := errors.Join(insert(tx, 4), insert(tx, 5)); err != nil {
			return err
		}
		done, err := tx.Flush()
		must.Equal(t, done, 2, "statements took effect")
		return err
	})
	must.OK(t, err)
	must.Equal(t, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`), []string{"4", "5"}, "written")
}

func TestPostgresApply_lockThatIsNotHandedOutInTimeIsBusy(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.EventTimeout(storetest.Overtime))
	f.SetWatermark("a", 1, 1)
	other := storetest.Connect(f.TB, f.Pair.Projections)
	storetest.Run(f.TB, other, `begin`, `select 1 from projection_watermarks for update`)
	before := applier(f)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		_, err := tx.Watermark("a")
		if !errors.Is(err, outbox.ErrBusy) || !tx.Lost() || tx.RollbackTo() == nil {
			t.Errorf("got error %v, lost: %v, want a busy database and a lost transaction", err, tx.Lost())
		}
		return nil
	})
	must.Hold(t, errors.Is(err, outbox.ErrBusy), "got error %v, want a busy database", err)
	storetest.Run(f.TB, other, `rollback`)
	f.SetWatermark("a", 2, 1)
	must.Equal(t, applier(f), before, "the process that serves the store, unless the connection was given up for nothing")
}

func TestPostgresApply_deadlockIsBusy(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.SetWatermark("a", 1, 1)
	f.SetWatermark("b", 1, 1)
	f.EveryConnection(`set deadlock_timeout = 20`)
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
	must.Hold(t, errors.Is(err, outbox.ErrBusy), "got error %v, want a busy database", err)
	err = <-blocked
	must.Hold(t, err == nil, "the other one: %v", err)
	storetest.Run(f.TB, other, `rollback`)
	f.SetWatermark("b", 2, 1)
}

func TestPostgresApply_transactionThatStoodStillIsCutOff(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.Lease = storetest.Overtime })
	f.SetWatermark("a", 1, 1)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			if err := tx.Fence("a", 9); err != nil {
				return err
			}
			storetest.Eventually(f.TB, "the transaction to be cut off", func() bool {
				return f.Number(`select count(*)`+storetest.TheStores+` and state = 'idle in transaction'`) == 0
			})
			if err := tx.Fence("a", 10); !errors.Is(err, outbox.ErrBusy) || !tx.Lost() {
				t.Errorf("got error %v, lost: %v, want a busy database and a lost transaction", err, tx.Lost())
			}
			return nil
		})
		must.Hold(t, errors.Is(err, outbox.ErrBusy), "got error %v, want a busy database", err)
	})
	f.SetWatermark("a", 2, 1)
}
