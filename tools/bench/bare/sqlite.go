package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	_ "modernc.org/sqlite"
)

// onFiles runs a number of loops on two files, and returns the time they took.
func onFiles(ctx context.Context, journalFile, projectionsFile string, loops int, run runner) (took time.Duration, err error) {
	journal, err := openBare(ctx, journalFile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, journal.close()) }()
	projections, err := openBare(ctx, projectionsFile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, projections.close()) }()
	one := &bareLoop{newBareSQL("", ""), journal, projections}
	return run(ctx, slices.Repeat([]*bareLoop{one}, loops))
}

// sqliteBare is one file through one connection, shared by any number of loops. mu is held for a
// transaction.
type sqliteBare struct {
	mu    sync.Mutex
	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func openBare(ctx context.Context, path string) (*sqliteBare, error) {
	pool, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(8000)")
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &sqliteBare{pool: pool, conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (d *sqliteBare) close() error {
	for _, stmt := range d.stmts {
		stmt.Close()
	}
	return errors.Join(d.conn.Close(), d.pool.Close())
}

func (d *sqliteBare) prepared(query string) (*sql.Stmt, error) {
	if stmt, ok := d.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := d.conn.PrepareContext(context.Background(), query)
	d.stmts[query] = stmt
	return stmt, err
}

func (d *sqliteBare) exec(want int64, query string, args ...any) error {
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

func (d *sqliteBare) each(scan func(bareRow) error, query string, args ...any) error {
	stmt, err := d.prepared(query)
	if err != nil {
		return err
	}
	rows, err := stmt.Query(args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// within runs fn in a transaction, holding the lock.
func (d *sqliteBare) within(_ context.Context, fn func(bareTx) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.exec(-1, "begin immediate"); err != nil {
		return err
	}
	if err := fn(d); err != nil {
		return errors.Join(err, d.exec(-1, "rollback"))
	}
	return d.exec(-1, "commit")
}
