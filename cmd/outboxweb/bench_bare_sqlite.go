package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// drainBare drains a backlog with so many loops and returns how long that
// took.
func (g *sqliteGround) drainBare(ctx context.Context, d databases, loops int) (took time.Duration, err error) {
	b := &sqliteBare{bareSQL: newBareSQL("", "")}
	files := d.files()
	if b.journal, err = openBare(ctx, files[0]); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.journal.close()) }()
	if b.projections, err = openBare(ctx, files[1]); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.projections.close()) }()
	if err := b.projections.exec(-1, b.table); err != nil {
		return 0, err
	}
	plan, err := b.plan(ctx)
	if err != nil {
		return 0, err
	}
	all := make([]bareLoop, loops)
	for i := range all {
		all[i] = b
	}
	return plan.run(ctx, all)
}

// bareDB is one file through one connection. mu is held for a transaction.
type bareDB struct {
	mu    sync.Mutex
	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func openBare(ctx context.Context, path string) (*bareDB, error) {
	pool, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &bareDB{pool: pool, conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (d *bareDB) close() error {
	for _, stmt := range d.stmts {
		stmt.Close()
	}
	return errors.Join(d.conn.Close(), d.pool.Close())
}

func (d *bareDB) prepared(query string) (*sql.Stmt, error) {
	if stmt, ok := d.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := d.conn.PrepareContext(context.Background(), query)
	d.stmts[query] = stmt
	return stmt, err
}

// exec runs a statement that must change want rows; a negative want is any.
func (d *bareDB) exec(want int64, query string, args ...any) error {
	stmt, err := d.prepared(query)
	if err != nil {
		return err
	}
	result, err := stmt.Exec(args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && want >= 0 && n != want {
		err = fmt.Errorf("%q changed %d rows, not %d", query, n, want)
	}
	return err
}

// within runs fn in a transaction, under the lock.
func (d *bareDB) within(fn func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.exec(-1, "begin immediate"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return errors.Join(err, d.exec(-1, "rollback"))
	}
	return d.exec(-1, "commit")
}

// sqliteBare is a bareLoop, and any number of them at once.
type sqliteBare struct {
	*bareSQL
	journal, projections *bareDB
}

func (b *sqliteBare) plan(ctx context.Context) (*barePlan, error) {
	rows, err := b.journal.conn.QueryContext(ctx, b.backlog)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	plan := new(barePlan)
	for rows.Next() {
		var campaign string
		var last int64
		if err := rows.Scan(&campaign, &last); err != nil {
			return nil, err
		}
		plan.add(campaign, last)
	}
	return plan, rows.Err()
}

func (b *sqliteBare) take(_ context.Context, w *bareWave, now int64) error {
	return b.journal.within(func() error {
		for i := range w.spans {
			s := &w.spans[i]
			if err := b.journal.exec(s.rows(), b.mark, s.campaign, s.first, s.last, now); err != nil {
				return err
			}
			if err := b.loadEvents(s); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *sqliteBare) loadEvents(s *bareSpan) error {
	stmt, err := b.journal.prepared(b.load)
	if err != nil {
		return err
	}
	rows, err := stmt.Query(s.campaign, s.first, s.last)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := s.scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (b *sqliteBare) apply(_ context.Context, w *bareWave, now int64) error {
	return b.projections.within(func() error {
		for _, s := range w.spans {
			if s.first == 1 {
				if err := b.projections.exec(-1, b.start, s.campaign, now); err != nil {
					return err
				}
			}
			if err := b.projections.exec(1, b.advance, s.campaign, s.first-1, s.last, s.events[len(s.events)-1].chain, now); err != nil {
				return err
			}
			for i := range s.events {
				if err := b.projections.exec(1, b.upsert, s.campaign, s.events[i].entity, s.events[i].amount, s.events[i].seq); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (b *sqliteBare) settle(_ context.Context, w *bareWave) error {
	return b.journal.within(func() error {
		for _, s := range w.spans {
			if err := b.journal.exec(s.rows(), b.remove, s.campaign, s.first, s.last); err != nil {
				return err
			}
		}
		return nil
	})
}
