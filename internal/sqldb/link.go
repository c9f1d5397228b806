package sqldb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// link is one connection to a database, with its prepared statements. Only its current holder
// may use it. The implementations are sqliteLink and postgresLink.
type link interface {
	// begin starts a transaction with text; ctx bounds the wait for it.
	begin(ctx context.Context, text string) error
	commit() error
	rollback() error

	// exec runs one statement and returns the number of rows it changed. ctx carries the
	// statement's deadline, if any.
	exec(ctx context.Context, query string, args []any) (int64, error)
	// each calls scan for each row of a query, until scan returns ErrEnough. ctx carries the
	// query's deadline, if any.
	each(ctx context.Context, scan func(Row) error, query string, args []any) error
	// run runs a batch and returns how many of its statements took effect.
	run(b *Batch) (done int, err error)
	// define runs a statement that changes the schema.
	define(statement string) error
	// prepare checks a statement against the database.
	prepare(query string) error

	// classify says what an error means for its transaction.
	classify(err error) verdict
	close()
}

// Row is a row of a result.
type Row interface{ Scan(dest ...any) error }

// verdict is the meaning of an error.
type verdict struct {
	busy    bool // the statement is fine and may succeed later
	fatal   bool // the transaction is broken and must not be used any more
	lost    bool // the connection is lost too
	late    bool // the statement exceeded its deadline
	full    bool // the database's disk is full
	damaged bool // a part of the database is unreadable
	taken   bool // a row's key already exists
}

// mark wraps err so that errors.Is reports the verdict.
func (v verdict) mark(err error) error {
	for _, m := range []struct {
		is bool
		as error
	}{{v.late, context.DeadlineExceeded}, {v.busy, event.ErrBusy}, {v.full, event.ErrFull}, {v.damaged, event.ErrDamaged}, {v.taken, ErrKeyTaken}} {
		if m.is {
			err = fmt.Errorf("%w: %w", m.as, err)
		}
	}
	return err
}

// answer is the rows of a query, from either driver.
type answer interface {
	Row
	Next() bool
	Err() error
}

// scanAll calls scan for each row, until it returns ErrEnough.
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

// Batch is statements that do not depend on each other's results. SQLite runs them one by one;
// PostgreSQL gets them together, which saves round trips.
type Batch struct{ steps []step }

type step struct {
	query string
	args  []any
	scan  func(Row) error   // nil for a statement without rows
	count func(int64) error // nil when the number of changed rows does not matter
	// commits marks the end of a transaction.
	commits bool
}

// Exec adds a statement; count, which may be nil, gets the number of rows it changed.
func (b *Batch) Exec(count func(int64) error, query string, args ...any) {
	b.steps = append(b.steps, step{query: query, args: args, count: count})
}

// Each adds a query; scan gets each of its rows.
func (b *Batch) Each(scan func(Row) error, query string, args ...any) {
	b.steps = append(b.steps, step{query: query, args: args, scan: scan})
}

// Reset removes all statements.
func (b *Batch) Reset() {
	clear(b.steps)
	b.steps = b.steps[:0]
}

// Len is the number of statements.
func (b *Batch) Len() int { return len(b.steps) }

// ours marks an error of a callback, as opposed to one of the database.
type ours struct{ error }

func (o ours) Unwrap() error { return o.error }

func oursOrNil(err error) error {
	if err == nil {
		return nil
	}
	return ours{err}
}

// ErrEnough is returned by a scan function to stop reading.
var ErrEnough = errors.New("enough rows were read")

// Into returns a count function that stores into n.
func Into(n *int64) func(int64) error {
	return func(changed int64) error {
		*n = changed
		return nil
	}
}

// Limits while a database is in use.
const (
	LockWait      = 10 * time.Second // of a caller for a connection, and of a transaction for a lock
	reconnectWait = 50 * time.Millisecond
)

// pause waits for d; it returns false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
