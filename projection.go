package outboxweb

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// Projection is a read model: its tables, and what each type of event changes in them.
//
// Its rows must be a function of the campaign's events, in their order, and of nothing else: no clock,
// no random values, no other services, no rows of other campaigns. Verify, rebuild, dry run and
// rehearsals replay the events with the same functions into other tables, and rely on that.
type Projection struct {
	// Name is unique; lower-case letters, digits, _ and -.
	Name string
	// Version changes whenever the functions make other rows. The console then offers a rebuild of the
	// rows that the former version made.
	Version string
	// Tables are all tables that it owns. No other projection may use them.
	Tables []string
	// Schema creates the tables: create table and create index statements that both SQLite and
	// PostgreSQL take. Each table has a column campaign_id. Missing tables are created, and never
	// altered.
	Schema string
	// On has a function for each type of event: the type, prefix.* for all types that begin with
	// "prefix.", or * for all. An event of another type changes nothing.
	On map[string]Apply
	// Quarantine sets the projection aside for a campaign when an event fails for the last time, so
	// that others continue; without it the campaign waits.
	Quarantine bool
	// MaxAttempts is the number of failed attempts after which an event is not retried; 0 means
	// Config.MaxAttempts.
	MaxAttempts int
}

// Apply changes the projection's tables for an event. It runs in the transaction that also records
// that the event is applied. An error, a panic, or running beyond Config.EventTimeout fails the event:
// what it changed is undone, and it is retried. Other campaigns continue; on SQLite they wait while the
// function runs. A function that ignores the end of ctx is abandoned and leaves its goroutine: from 16
// such calls of a projection on, its events wait, without an attempt, until some return or the process
// is restarted.
type Apply func(ctx context.Context, tx Tx, ev Event) error

// Tx is the transaction in which an event is applied. It is valid until the function returns. After
// an error no statement runs any more, and the event fails, even if the error is ignored.
type Tx interface {
	// Exec runs an insert, update or delete on the projection's own tables, with args for $1, $2, ….
	// The statement names campaign_id, and must change rows of the event's campaign only: others differ
	// at the next verify. Values are texts, numbers, nil, booleans (stored as 1 or 0) and
	// times (stored as microseconds since 1970).
	Exec(ctx context.Context, sql string, args ...any) error
	// Query runs a select on the projection's own tables, and returns its rows. With more than
	// 10,000 it is an error, and the event fails.
	Query(ctx context.Context, sql string, args ...any) (*Rows, error)
}

// Rows are the rows of a query. They are in memory, so that they need not be closed.
type Rows struct{ rows *projection.Rows }

// Next moves to the next row, and to the first one when it is called first. It is false at the end.
func (r *Rows) Next() bool { return r.rows.Next() }

// Scan copies the columns of the current row to dest, which are pointers to string, int, int64,
// float64, bool, []byte, json.RawMessage or any, or implement sql.Scanner. A null needs any, []byte
// or a Scanner such as sql.NullString.
func (r *Rows) Scan(dest ...any) error { return r.rows.Scan(dest...) }

// code is the projection as the engine takes it.
func (p Projection) code() projection.Code {
	c := projection.Code{Name: p.Name, Version: p.Version, Tables: p.Tables, Schema: p.Schema, MaxAttempts: p.MaxAttempts,
		On: make(map[string]projection.Handler, len(p.On)), Functions: make(map[string]any, len(p.On))}
	if p.Quarantine {
		c.OnFailure = projection.Quarantine
	}
	for eventType, apply := range p.On {
		if apply == nil {
			c.On[eventType] = nil
			continue
		}
		c.Functions[eventType] = apply
		c.On[eventType] = func(ctx context.Context, t *projection.CodeTx, s *event.Event) error {
			ev, err := eventOf(s)
			if err != nil {
				return fmt.Errorf("read the tags of event %d: %w", s.Seq, err)
			}
			return apply(ctx, tx{t}, ev)
		}
	}
	return c
}

// tx is the Tx of a projection.
type tx struct{ t *projection.CodeTx }

func (t tx) Exec(ctx context.Context, sql string, args ...any) error {
	return t.t.Exec(ctx, sql, args...)
}

func (t tx) Query(ctx context.Context, sql string, args ...any) (*Rows, error) {
	rows, err := t.t.Query(ctx, sql, args...)
	return &Rows{rows}, err
}
