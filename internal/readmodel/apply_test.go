package readmodel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// withTable is a store whose projections database has a table to write to.
func withTable(t *testing.T, change ...func(*store.Options)) *fixture {
	f := own(t, change...)
	f.ExecProjections(`create table written (n integer primary key)`)
	return f
}

func written(f *fixture) int64 {
	return storetest.Column[int64](f.TB, f.ProjectionsDB, `select count(*) from written`)[0]
}

func TestAdvance_isACompareAndSetUnderTheFence(t *testing.T) {
	f := own(t)
	f.SetWatermark("a", 5, 3)
	for name, c := range map[string]struct {
		epoch, from int64
		lost        bool
	}{
		"same epoch":          {3, 5, false},
		"higher epoch":        {4, 5, false},
		"lower epoch":         {2, 5, true},
		"watermark below":     {3, 6, true},
		"watermark above":     {3, 4, true},
		"from the start":      {9, 0, true},
		"lower and elsewhere": {1, 9, true},
	} {
		err := f.Rehearse(f.Ctx, func(tx *readmodel.ApplyTx) error {
			before, err := tx.Watermark("a")
			if err != nil {
				return err
			}
			err = tx.Advance("a", c.epoch, c.from, 7, "next")
			must.Hold(t, errors.Is(err, event.ErrLeaseLost) == c.lost && (c.lost || err == nil), "%s: got error %v", name, err)
			after, err := tx.Watermark("a")
			want := before
			if !c.lost {
				want = readmodel.Watermark{AppliedSeq: 7, AppliedHash: "next", FenceEpoch: c.epoch}
			}
			must.Equal(t, after, want, name, "watermark")
			return err
		})
		must.Hold(t, err == nil, "%s: %v", name, err)
	}
	must.Equal(t, f.MustWatermark("a"), readmodel.Watermark{AppliedSeq: 5, AppliedHash: "hash", FenceEpoch: 3}, "after rehearsals the watermark")
}

func TestFence_onlyRises(t *testing.T) {
	f := own(t)
	f.SetWatermark("a", 5, 3)
	fence := func(epoch int64) error {
		return f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Fence("a", epoch) })
	}
	f.Unchanged(func() {
		err := fence(2)
		must.Hold(t, errors.Is(err, event.ErrLeaseLost), "a lower epoch: got error %v", err)
		err = fence(3)
		must.Hold(t, err == nil, "the same epoch: %v", err)
		marks, err := f.RaiseFences(f.Ctx, map[string]int64{"a": 2})
		must.Hold(t, len(marks) == 0 && err == nil, "raised to a lower epoch: %+v, %v", marks, err)
	})
	err := fence(7)
	must.Hold(t, err == nil && f.MustWatermark("a") == (readmodel.Watermark{AppliedSeq: 5, AppliedHash: "hash", FenceEpoch: 7}), "a higher epoch: %v, %+v", err, f.MustWatermark("a"))
}

func TestApply_errorOrPanicUndoesEverything(t *testing.T) {
	f := withTable(t)
	f.SetWatermark("a", 1, 1)
	boom := errors.New("boom")
	write := func(tx *readmodel.ApplyTx) {
		must.OK(t, errors.Join(tx.Exec(f.Ctx, `insert into written values (1)`, nil), tx.Advance("a", 1, 1, 2, "h")))
	}
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { write(tx); return boom })
		must.Hold(t, errors.Is(err, boom), "got error %v", err)
		func() {
			defer func() { must.Hold(t, recover() != nil, "the panic was swallowed") }()
			f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { write(tx); panic("boom") })
		}()
		err = f.Rehearse(f.Ctx, func(tx *readmodel.ApplyTx) error { write(tx); return nil })
		must.Hold(t, err == nil, "rehearse: %v", err)
		err = f.Rehearse(f.Ctx, func(tx *readmodel.ApplyTx) error { return boom })
		must.Hold(t, errors.Is(err, boom), "rehearse: got error %v", err)
	})
	f.SetWatermark("a", 2, 1) // and the connection still works
}

// endless is a statement that runs until it is interrupted.
const endless = `insert into written with recursive n(i) as (values (10) union all select i + 1 from n) select i from n`

func TestSQLiteApply_nothingRunsAfterAnInterruptedStatement(t *testing.T) {
	f := withTable(t)
	f.SetWatermark("a", 1, 1)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.OK(t, tx.Savepoint())
			must.OK(t, tx.Exec(f.Ctx, `insert into written values (1)`, nil))
			ctx, cancel := context.WithTimeout(f.Ctx, 20*time.Millisecond)
			defer cancel()
			err := tx.Exec(ctx, endless, nil)
			must.Hold(t, errors.Is(err, context.DeadlineExceeded), "interrupted statement: got error %v", err)
			must.Hold(t, tx.Lost(), "the transaction does not know that it is lost")
			// SQLite has rolled back: each of these would commit on its own.
			must.Hold(t, tx.Exec(f.Ctx, `insert into written values (2)`, nil) != nil, "a statement ran after the interrupted one")
			must.Hold(t, tx.Advance("a", 1, 1, 2, "h") != nil && tx.Fence("a", 9) != nil && tx.RollbackTo() != nil && tx.Release() != nil && tx.Savepoint() != nil, "the lost transaction is still of use")
			return nil
		})
		must.Hold(t, err != nil, "a lost transaction was committed")
	})
	f.SetWatermark("a", 2, 1)
}

func TestSQLiteApply_nothingCommitsAfterAnInterruptedQuery(t *testing.T) {
	f := withTable(t)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.OK(t, tx.Exec(f.Ctx, `insert into written values (1)`, nil))
			ctx, cancel := context.WithTimeout(f.Ctx, 20*time.Millisecond)
			defer cancel()
			// SQLite keeps a transaction whose query was interrupted, and would commit half of the
			// caller's changes.
			err := tx.Exec(ctx, `with recursive n(i) as (values (1) union all select i + 1 from n) select count(*) from n`, nil)
			must.Hold(t, err != nil, "the query was not interrupted")
			return nil
		})
		must.Hold(t, errors.Is(err, context.DeadlineExceeded), "got error %v, want the one that interrupted", err)
	})
}

func TestApply_failedStatementUndoesOnlyItsSavepoint(t *testing.T) {
	f := withTable(t)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		exec := func(query string) error { return tx.Exec(f.Ctx, query, nil) }
		for _, step := range []func() error{
			func() error { return exec(`insert into written values (1)`) },
			tx.Savepoint,
			func() error { return exec(`insert into written values (2)`) },
			tx.Savepoint,
			func() error { return exec(`insert into written values (3)`) },
			func() error {
				must.Hold(t, exec(`insert into written values (1)`) != nil && !tx.Lost(), "a violated key is no error, or costs the transaction")
				return tx.RollbackTo()
			},
			tx.Release,
			tx.Release,
			func() error { return exec(`insert into written values (4)`) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	must.OK(t, err)
	must.Equal(t, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`), []string{"1", "2", "4"}, "written")
}

func TestSQLiteApply_statementThatRollsBackTheTransactionLosesIt(t *testing.T) {
	f := withTable(t)
	f.ExecProjections(`insert into written values (1)`)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.OK(t, errors.Join(tx.Exec(f.Ctx, `insert into written values (2)`, nil), tx.Savepoint()))
			must.Hold(t, tx.Exec(f.Ctx, `insert or rollback into written values (1)`, nil) != nil, "the violated key is no error")
			must.Hold(t, tx.RollbackTo() != nil && tx.Lost(), "the transaction goes on although the database has rolled it back")
			return nil
		})
		must.Hold(t, err != nil, "a lost transaction was committed")
	})
}

func TestSQLiteApply_deadlineBoundsTheWaitForTheLock(t *testing.T) {
	f := own(t)
	lock := must.Get(f.ProjectionsDB.Conn(f.Ctx)).Or(t)
	defer lock.Close()
	must.Get(lock.ExecContext(f.Ctx, `begin immediate`)).Or(t)
	ctx, cancel := context.WithTimeout(f.Ctx, 30*time.Millisecond)
	defer cancel()
	err := f.Apply(ctx, func(*readmodel.ApplyTx) error { return nil })
	must.Hold(t, errors.Is(err, event.ErrBusy), "got error %v, want a busy database", err)
	must.Get(lock.ExecContext(f.Ctx, `rollback`)).Or(t)
}

func TestApply_thatHasBegunIsNotCutShort(t *testing.T) {
	f := withTable(t)
	ctx, cancel := context.WithCancel(f.Ctx)
	err := f.Apply(ctx, func(tx *readmodel.ApplyTx) error {
		cancel()
		return tx.Exec(f.Ctx, `insert into written values (1)`, nil)
	})
	must.Hold(t, err == nil && written(f) == 1, "a transaction that has begun was cut short: %v", err)
}

func TestQuarantine_setsOneProjectionAsideAndRecordsWhy(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	e := must.Get(f.Event(f.Ctx, "a", 3)).Or(t)
	quarantine := func(projection string) {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.Get(tx.Watermark("a")).Or(t)
			must.OK(t, errors.Join(tx.Failed(projection, &e, *storetest.Failure("boom")), tx.Quarantine(projection, &e)))
			names, err := tx.SetAside("a")
			must.Hold(t, names[projection], "set aside are %v, want %s", names, projection)
			return err
		})
		must.OK(t, err)
	}
	quarantine("roster")
	quarantine("index")
	must.Equal(t, f.MustWatermark("a").SetAside, 2, "watermark")
	cursors := storetest.Texts(t, f.ProjectionsDB, `select campaign_id || ' ' || projection || ' ' || applied_seq || ' ' || state from projection_cursors order by projection desc`)
	failures := storetest.Texts(t, f.ProjectionsDB, `select projection || ' ' || seq || ' ' || event_type || ' ' || message || ' ' || attempts || ' ' || status from failures order by id`)
	must.Hold(t, cursors[0] == "a roster 2 quarantined" && failures[0] == "roster 3 counted boom 1 open" && len(failures) == 2, "cursors %q, failures %q", cursors, failures)
	described, err := f.Runs.DescribeProjections(f.Ctx, []campaign.ProjectionInfo{{Name: "roster"}, {Name: "other"}})
	must.Hold(t, err == nil && described[0].Quarantined == 1 && described[1].Quarantined == 0, "described as %+v, %v", described, err)
}

func TestPostgresAdvance_ofTwoAtOnceMovesTheWatermarkOnce(t *testing.T) {
	f := own(t)
	f.SetWatermark("a", 1, 1)
	second := make(chan error)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		must.OK(t, tx.Advance("a", 1, 1, 2, "first"))
		go func() {
			second <- f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Advance("a", 1, 1, 3, "second") })
		}()
		f.AwaitLockWaits(1)
		return nil
	})
	must.Hold(t, err == nil, "%v", err)
	err = <-second
	must.Hold(t, errors.Is(err, event.ErrLeaseLost), "the second one: got error %v, want a lost lease", err)
	w := f.MustWatermark("a")
	must.Hold(t, w.AppliedSeq == 2 && w.AppliedHash == "first", "watermark is %+v, want the first one's", w)
}

func TestPostgresWatermark_isReadOnceNobodyElseMovesIt(t *testing.T) {
	storetest.Each(t, own, map[string]func(tx *readmodel.ApplyTx) error{
		"ahead":     func(tx *readmodel.ApplyTx) error { return tx.ReadAhead([]string{"b", "a", "new", "a"}) },
		"at a time": func(*readmodel.ApplyTx) error { return nil },
	}, func(t *testing.T, f *fixture, read func(tx *readmodel.ApplyTx) error) {
		f.SetWatermark("a", 1, 1)
		second := make(chan error)
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.OK(t, errors.Join(tx.Advance("a", 1, 1, 2, "first"), tx.Fence("a", 5)))
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
	f := withTable(t, storetest.EventTimeout(storetest.Overtime))
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		must.Get(tx.Watermark("a")).Or(t)
		must.OK(t, errors.Join(tx.Exec(f.Ctx, `insert into written values (1)`, nil), tx.Savepoint(), tx.Exec(f.Ctx, `insert into written values (2)`, nil)))
		err := tx.Exec(f.Ctx, `select pg_sleep(60)`, nil)
		must.Hold(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, event.ErrBusy), "a statement over its time: got error %v", err)
		must.Hold(t, !tx.Lost(), "it costs the transaction")
		return errors.Join(tx.RollbackTo(), tx.Release(), tx.Exec(f.Ctx, `insert into written values (3)`, nil), tx.Advance("a", 1, 0, 2, "h"))
	})
	must.OK(t, err)
	diff := cmp.Diff([]string{"1", "3"}, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`))
	must.Hold(t, diff == "" && f.MustWatermark("a").AppliedSeq == 2, "watermark %+v, written (-want +got):\n%s", f.MustWatermark("a"), diff)
}

func TestPostgresApply_nothingCommitsAfterAFailedStatement(t *testing.T) {
	f := withTable(t)
	before := applier(f)
	f.Unchanged(func() {
		for _, failing := range []string{`insert into written values (1)`, `selec`} {
			err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
				must.OK(t, tx.Exec(f.Ctx, `insert into written values (1)`, nil))
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
	f := withTable(t)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.OK(t, errors.Join(tx.Savepoint(), tx.Exec(f.Ctx, `insert into written values (1)`, nil)))
			must.Hold(t, tx.Exec(f.Ctx, `insert into written values (1)`, nil) != nil && !tx.Lost(), "a violated key is no error, or costs the transaction")
			must.Hold(t, tx.Exec(f.Ctx, `insert into written values (2)`, nil) != nil && tx.Lost(), "without returning to the savepoint it goes on")
			must.Hold(t, tx.RollbackTo() != nil && tx.Advance("a", 1, 0, 2, "h") != nil, "the lost transaction is still of use")
			return nil
		})
		must.Hold(t, err != nil, "a lost transaction was committed")
	})
}

func TestPostgresApply_gatheredStatementsTellHowManyTookEffect(t *testing.T) {
	f := withTable(t)
	insert := func(tx *readmodel.ApplyTx, n int64) error {
		return tx.Exec(f.Ctx, `insert into written values ($1)`, []any{n})
	}
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		must.OK(t, tx.Savepoint())
		must.Hold(t, tx.Gather(), "nothing is gathered")
		if err := errors.Join(insert(tx, 1), insert(tx, 2), insert(tx, 1), insert(tx, 3)); err != nil || tx.Gathered() != 4 {
			t.Errorf("%d statements wait: %v", tx.Gathered(), err)
		}
		if done, err := tx.Flush(); done != 2 || err == nil || tx.Lost() || tx.Gathered() != 0 {
			t.Errorf("%d statements took effect, %v, lost: %v, want two and the third's error", done, err, tx.Lost())
		}
		must.OK(t, tx.RollbackTo())
		tx.Gather()
		must.OK(t, errors.Join(insert(tx, 7), insert(tx, 8)))
		tx.Discard()
		tx.Gather()
		must.OK(t, errors.Join(insert(tx, 4), insert(tx, 5)))
		done, err := tx.Flush()
		must.Equal(t, done, 2, "statements took effect")
		return err
	})
	must.OK(t, err)
	must.Equal(t, storetest.Texts(t, f.ProjectionsDB, `select n from written order by n`), []string{"4", "5"}, "written")
}

func TestPostgresApply_lockThatIsNotHandedOutInTimeIsBusy(t *testing.T) {
	f := own(t, storetest.EventTimeout(storetest.Overtime))
	f.SetWatermark("a", 1, 1)
	other := storetest.Connect(f.TB, f.Pair.Projections)
	storetest.Run(f.TB, other, `begin`, `select 1 from projection_watermarks for update`)
	before := applier(f)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		_, err := tx.Watermark("a")
		must.Hold(t, errors.Is(err, event.ErrBusy) && tx.Lost() && tx.RollbackTo() != nil, "got error %v, lost: %v, want a busy database and a lost transaction", err, tx.Lost())
		return nil
	})
	must.Hold(t, errors.Is(err, event.ErrBusy), "got error %v, want a busy database", err)
	storetest.Run(f.TB, other, `rollback`)
	f.SetWatermark("a", 2, 1)
	must.Equal(t, applier(f), before, "the process that serves the store, unless the connection was given up for nothing")
}

func TestPostgresApply_deadlockIsBusy(t *testing.T) {
	f := own(t)
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
		must.Get(tx.Watermark("a")).Or(t)
		go func() { _, err := other.Exec(context.Background(), lock("a")); blocked <- err }()
		_, err := tx.Watermark("b")
		return err
	})
	must.Hold(t, errors.Is(err, event.ErrBusy), "got error %v, want a busy database", err)
	err = <-blocked
	must.Hold(t, err == nil, "the other one: %v", err)
	storetest.Run(f.TB, other, `rollback`)
	f.SetWatermark("b", 2, 1)
}

func TestPostgresApply_transactionThatStoodStillIsCutOff(t *testing.T) {
	f := own(t, func(o *store.Options) { o.Lease = storetest.Overtime })
	f.SetWatermark("a", 1, 1)
	f.Unchanged(func() {
		err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			must.OK(t, tx.Fence("a", 9))
			must.Eventually(f.TB, "the transaction to be cut off", func() bool {
				return f.Number(`select count(*)`+storetest.TheStores+` and state = 'idle in transaction'`) == 0
			})
			if err := tx.Fence("a", 10); !errors.Is(err, event.ErrBusy) || !tx.Lost() {
				t.Errorf("got error %v, lost: %v, want a busy database and a lost transaction", err, tx.Lost())
			}
			return nil
		})
		must.Hold(t, errors.Is(err, event.ErrBusy), "got error %v, want a busy database", err)
	})
	f.SetWatermark("a", 2, 1)
}
