package enginetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// Memory is an SQLite database in memory with the tables of projections, to which events are applied one by one: what
// every other replay has to make of them.
type Memory struct {
	*sql.DB
	Set *projection.Set
}

// NewMemory opens a Memory for projections from sources.
func NewMemory(tb testing.TB, sources ...string) *Memory {
	m := &Memory{Set: must.Get(projection.Load("sqlite", sources...)).Or(tb), DB: must.Get(sql.Open("sqlite", "file::memory:?_pragma=foreign_keys(1)")).Or(tb)}
	tb.Cleanup(func() { m.Close() })
	m.SetMaxOpenConns(1) // each connection would open a database of its own
	for _, p := range m.Set.Projections() {
		for _, st := range p.SchemaStatements {
			must.Get(m.Exec(st.SQL)).Or(tb)
		}
	}
	return m
}

// Apply applies an event.
func (m *Memory) Apply(ctx context.Context, e *event.Event) error {
	tx, err := m.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := m.Set.Apply(ctx, memoryTx{tx: tx}, e, nil); err != nil {
		return err
	}
	return tx.Commit()
}

type memoryTx struct {
	projection.Tx
	tx *sql.Tx
}

func (t memoryTx) Exec(ctx context.Context, query string, args []any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}
