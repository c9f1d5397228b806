package database

import (
	"context"
	"sync/atomic"
	"time"
)

// Cost counts the database cost of requests. Its methods may be called concurrently; the zero value
// is ready for use.
type Cost struct {
	reads, readNanos, statements, shared, taken atomic.Int64
}

type costKey struct{}

// WithCost returns a context whose reads are counted by c. Writes are not counted: they are not
// console overhead.
func WithCost(ctx context.Context, c *Cost) context.Context {
	return context.WithValue(ctx, costKey{}, c)
}

// CostOf returns the context's counter; nil without one.
func CostOf(ctx context.Context) *Cost {
	c, _ := ctx.Value(costKey{}).(*Cost)
	return c
}

// Snapshot counts one use of a shared snapshot; shared is false for the caller that read it. A nil
// Cost counts nothing.
func (c *Cost) Snapshot(shared bool) {
	switch {
	case c == nil:
	case shared:
		c.shared.Add(1)
	default:
		c.taken.Add(1)
	}
}

// Read counts a read transaction. A nil Cost counts nothing.
func (c *Cost) Read(statements int64, took time.Duration) {
	if c == nil {
		return
	}
	c.reads.Add(1)
	c.readNanos.Add(int64(took))
	c.statements.Add(statements)
}

// Report returns the counts so far, without requests.
func (c *Cost) Report() CostReport {
	return CostReport{Reads: c.reads.Load(), ReadSeconds: time.Duration(c.readNanos.Load()).Seconds(),
		Statements: c.statements.Load(), Shared: c.shared.Load(), Taken: c.taken.Load()}
}

// CostReport is the console overhead of a process since its start.
type CostReport struct {
	Requests       int64   `json:"requests"`        // answered, including refused ones
	RequestSeconds float64 `json:"request_seconds"` // total from the first byte read to the last written
	Reads          int64   `json:"reads"`           // read transactions
	ReadSeconds    float64 `json:"read_seconds"`    // total
	Statements     int64   `json:"statements"`      // in those transactions
	Shared         int64   `json:"shared"`          // times that a snapshot taken for another request was reused
	Taken          int64   `json:"taken"`           // times that a snapshot was taken
}
