package projection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Scratch is an in-memory database with the tables of a set, for replaying a journal without
// touching live rows. It must be used by one goroutine only.
type Scratch struct {
	set   *Set // of dialect sqlite
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// NewScratch creates an empty scratch database. It is SQLite for every dialect of the set. The
// caller must Close it.
func (s *Set) NewScratch(ctx context.Context) (*Scratch, error) {
	c, err := s.openScratch(ctx)
	if err != nil {
		return nil, err
	}
	for _, st := range c.set.schema() {
		if _, err := c.conn.ExecContext(ctx, st.SQL); err != nil {
			c.Close()
			return nil, st.Refuse(err)
		}
	}
	return c, nil
}

// openScratch opens the database without its tables.
func (s *Set) openScratch(ctx context.Context) (*Scratch, error) {
	if s.dialect != "sqlite" {
		var err error
		if s, err = build("sqlite", s.files); err != nil {
			return nil, err
		}
	}
	db, err := sql.Open("sqlite", "file::memory:?_pragma=foreign_keys(1)")
	if err != nil {
		return nil, fmt.Errorf("open scratch database: %w", err)
	}
	// Each connection would open its own in-memory database.
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("open scratch database: %w", err)
	}
	return &Scratch{set: s, db: db, conn: conn, stmts: make(map[string]*sql.Stmt)}, nil
}

func (s *Set) schema() []Statement {
	var out []Statement
	for _, p := range s.projections {
		out = append(out, p.SchemaStatements...)
	}
	return out
}

// Apply replays one event, completely or, if it returns an error, not at all. Errors are those of
// Set.Apply. The caller must leave out audit-only event types.
func (c *Scratch) Apply(ctx context.Context, e *outbox.Event) error {
	steps := c.set.plan(e.EventType)
	if len(steps) < 2 {
		return c.set.Apply(ctx, scratchTx{c}, e, nil) // a single statement is its own transaction
	}
	// One transaction per event rather than one for all with savepoints: a statement interrupted by
	// its deadline rolls back its transaction, which must not be the whole replay. In memory they
	// cost the same.
	if err := c.exec(background, "begin", nil); err != nil {
		return fmt.Errorf("begin on scratch database: %w", err)
	}
	if err := c.applyAndCommit(ctx, e); err != nil {
		// Fails only if the database has already rolled back.
		_ = c.exec(background, "rollback", nil)
		return err
	}
	return nil
}

func (c *Scratch) applyAndCommit(ctx context.Context, e *outbox.Event) error {
	if err := c.set.Apply(ctx, scratchTx{c}, e, nil); err != nil {
		return err
	}
	if err := c.exec(background, "commit", nil); err != nil {
		return fmt.Errorf("commit on scratch database: %w", err)
	}
	return nil
}

type scratchTx struct{ c *Scratch }

func (t scratchTx) Exec(ctx context.Context, query string, args []any) error {
	return t.c.exec(ctx, query, args)
}

func (t scratchTx) Query(ctx context.Context, query string, args []any, each func([]any) error) error {
	rows, err := t.c.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	s, err := newScanner(rows)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := s.scan(); err != nil {
			return err
		}
		if err := each(s.cells()); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (c *Scratch) exec(ctx context.Context, query string, args []any) error {
	stmt, ok := c.stmts[query]
	if !ok {
		var err error
		if stmt, err = c.conn.PrepareContext(ctx, query); err != nil {
			return err
		}
		c.stmts[query] = stmt
	}
	_, err := stmt.ExecContext(ctx, args...)
	return err
}

// Reset empties every table, ready for the next campaign.
func (c *Scratch) Reset(ctx context.Context) error {
	if err := c.empty(ctx); err != nil {
		return fmt.Errorf("empty scratch database: %w", err)
	}
	return nil
}

func (c *Scratch) empty(ctx context.Context) error {
	// Tables may reference each other in any order, and all are emptied at once.
	if err := c.exec(ctx, "pragma foreign_keys = off", nil); err != nil {
		return err
	}
	for _, p := range c.set.projections {
		for _, t := range p.tables {
			if err := c.exec(ctx, "delete from "+quoteName(t.name), nil); err != nil {
				return err
			}
		}
	}
	return c.exec(ctx, "pragma foreign_keys = on", nil)
}

// Digests returns the digests of the campaign's replayed rows, as Set.Digests does.
func (c *Scratch) Digests(ctx context.Context, campaignID string, only ...string) (digests map[string]string, full string, err error) {
	return c.set.Digests(ctx, c.conn, campaignID, only...)
}

// QueryContext reads the scratch tables. The rows must be closed before the Scratch is used again.
func (c *Scratch) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.conn.QueryContext(ctx, query, args...)
}

// Close drops the scratch database.
func (c *Scratch) Close() error {
	for _, stmt := range c.stmts {
		stmt.Close()
	}
	return errors.Join(c.conn.Close(), c.db.Close())
}
