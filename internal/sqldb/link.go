package sqldb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outboxweb/internal/outbox"
)

// link is one connection to a database, with whatever is prepared on it. Only
// its current holder may use it. There are two: a sqliteLink and a
// postgresLink.
type link interface {
	// begin starts a transaction with text; ctx bounds the wait for it.
	begin(ctx context.Context, text string) error
	commit() error
	rollback() error

	// exec runs one statement and returns the number of rows it changed. ctx
	// carries a deadline where the statement has one.
	exec(ctx context.Context, query string, args []any) (int64, error)
	// each calls scan for every row of a query's answer, or until scan
	// returns ErrEnough.
	each(scan func(Row) error, query string, args []any) error
	// run runs a batch and returns how many of its statements took effect.
	run(b *Batch) (done int, err error)
	// define runs a statement that changes the schema.
	define(statement string) error
	// prepare has the database check a statement.
	prepare(query string) error

	// classify says what an error means for the transaction it came from.
	classify(err error) verdict
	close()
}

// Row is a row of an answer.
type Row interface{ Scan(dest ...any) error }

// verdict is what an error means.
type verdict struct {
	busy    bool // nothing is wrong with the statement; the same may succeed later
	fatal   bool // the transaction is not what it was, and must not be used any more
	lost    bool // neither is the connection
	late    bool // the statement was cut off by its deadline
	full    bool // there is no room left on the database's disk
	damaged bool // a part of the database cannot be read
	taken   bool // a row with the key of another was refused
}

// mark has errors.Is tell of an error what the verdict says.
func (v verdict) mark(err error) error {
	for _, m := range []struct {
		is bool
		as error
	}{{v.late, context.DeadlineExceeded}, {v.busy, outbox.ErrBusy}, {v.full, outbox.ErrFull}, {v.damaged, outbox.ErrDamaged}, {v.taken, ErrKeyTaken}} {
		if m.is {
			err = fmt.Errorf("%w: %w", m.as, err)
		}
	}
	return err
}

// answer is the rows of a query, of either driver.
type answer interface {
	Row
	Next() bool
	Err() error
}

// scanAll calls scan for every row, or until it returns ErrEnough.
func scanAll(rows answer, scan func(Row) error) error {
	for rows.Next() {
		if err := scan(rows); err == ErrEnough {
			return nil
		} else if err != nil {
			return ours{err}
		}
	}
	return rows.Err()
}

// Batch is statements that do not depend on each other's answers. SQLite runs
// them one by one; to PostgreSQL they travel together, which saves a journey
// for each.
type Batch struct{ steps []step }

type step struct {
	query string
	args  []any
	scan  func(Row) error   // nil for a statement without an answer
	count func(int64) error // nil when it does not matter how many rows changed
	// commits marks the end of a transaction.
	commits bool
}

// Exec adds a statement; count, which may be nil, gets the number of rows it
// changed.
func (b *Batch) Exec(count func(int64) error, query string, args ...any) {
	b.steps = append(b.steps, step{query: query, args: args, count: count})
}

// Each adds a query; scan gets every row of its answer.
func (b *Batch) Each(scan func(Row) error, query string, args ...any) {
	b.steps = append(b.steps, step{query: query, args: args, scan: scan})
}

// Reset forgets the statements.
func (b *Batch) Reset() {
	clear(b.steps)
	b.steps = b.steps[:0]
}

// Len is how many statements there are.
func (b *Batch) Len() int { return len(b.steps) }

// ours marks an error that a callback returned, and not the database.
type ours struct{ error }

func (o ours) Unwrap() error { return o.error }

func oursOrNil(err error) error {
	if err == nil {
		return nil
	}
	return ours{err}
}

// ErrEnough is what a scan function returns to end the reading early.
var ErrEnough = errors.New("enough rows were read")

// Into keeps a count for later.
func Into(n *int64) func(int64) error {
	return func(changed int64) error {
		*n = changed
		return nil
	}
}

// limits of a database under way.
const (
	LockWait      = 10 * time.Second // how long a caller waits for a connection, and a transaction for a lock
	reconnectWait = 50 * time.Millisecond
)

// pause waits, and returns false where ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
