package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Private is a private database beside a DB: a temporary file of SQLite, or one connection to
// PostgreSQL with temporary tables, which also sees the tables of the DB. Rows that do not fit
// into its cache are on disk. It belongs to one goroutine.
//
// An event.ErrBusy from any method means that the connection, and the rows with it, may be
// gone: Close it and open another.
type Private struct {
	database *DB
	pool     *sql.DB // with one connection
	conn     *sql.Conn
	link     link // conn as a link
}

// Temporary is the schema of a Private on PostgreSQL.
const Temporary = "pg_temp"

// scratchURL names no file: SQLite then creates a private one and deletes it on close, in the
// directory of SQLITE_TMPDIR or TMPDIR. Its journal stays in memory while it is small, and
// becomes a file when it is not.
const scratchURL = "file:?_pragma=cache_size(-16000)&_pragma=temp_store(file)&_pragma=synchronous(off)&_pragma=foreign_keys(1)"

// OpenPrivate opens a Private. Behind a transaction pooler, which Config.Private refuses, its connection
// would not be its own.
func (d *DB) OpenPrivate(ctx context.Context) (*Private, error) {
	p := &Private{database: d}
	open := p.openSQLite
	if d.url != nil {
		open = p.openPostgres
	}
	if err := open(ctx); err != nil {
		_ = p.Close() // the first error matters
		return nil, err
	}
	return p, nil
}

func (p *Private) openSQLite(ctx context.Context) (err error) {
	if p.pool, err = sql.Open("sqlite", scratchURL); err == nil {
		p.pool.SetMaxOpenConns(1) // each connection would get a file of its own
		p.conn, err = p.pool.Conn(ctx)
	}
	if err != nil {
		return fmt.Errorf("open scratch database: %w", err)
	}
	p.link = &sqliteLink{conn: p.conn, path: filepath.Join(os.TempDir(), "scratch"), stmts: make(map[string]*sql.Stmt)}
	return nil
}

// openPostgres opens a connection for the Private. database/sql reads on it and everything else
// bypasses database/sql, never both at a time.
func (p *Private) openPostgres(ctx context.Context) error {
	d := p.database
	p.pool = stdlib.OpenDB(*d.url.config.Copy(), stdlib.OptionAfterConnect(Pin))
	p.pool.SetMaxOpenConns(1)
	var err error
	if p.conn, err = p.pool.Conn(ctx); err != nil {
		return fmt.Errorf("%w: connect to the %s database: %w", event.ErrBusy, d.Name, err)
	}
	err = p.conn.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn()
		p.link = &postgresLink{conn: conn}
		_, err := conn.PgConn().Exec(ctx, script("set", []setting{{"search_path", Temporary + ", " + d.Schema},
			{"idle_in_transaction_session_timeout", d.config.Lease / 2},
			{"statement_timeout", readLimit}, {"lock_timeout", LockWait},
			{"enable_seqscan", "off"}, {"jit", "off"}})).ReadAll()
		return err
	})
	if err != nil {
		return fmt.Errorf("set up the scratch database: %w", err)
	}
	return nil
}

// Close drops the database with its rows.
func (p *Private) Close() error {
	if p.pool == nil {
		return nil
	}
	if l, ok := p.link.(*sqliteLink); ok {
		l.close()
		if l.unclosable {
			return nil // closing the pool would block forever
		}
	} else if p.conn != nil {
		p.conn.Close()
	}
	return p.pool.Close()
}

// QueryContext reads outside transactions, on PostgreSQL in the query mode of DB.Snapshot. The
// rows must be closed before any other call.
func (p *Private) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if p.database.url != nil {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	return p.conn.QueryContext(ctx, query, args...)
}

// Each is Tx.Each outside of transactions.
func (p *Private) Each(scan func(Row) error, query string, args ...any) error {
	err := p.link.each(background, scan, query, args)
	if callback, ok := err.(ours); ok {
		return callback.error
	}
	return err
}

// Define runs a statement that changes no rows, outside of transactions.
func (p *Private) Define(statement string) error { return p.link.define(statement) }

// Within runs fn in one transaction and commits it when fn returns nil.
func (p *Private) Within(begin Begin, fn func(*Tx) error) error {
	t := &Tx{database: p.database, link: p.link}
	if err := p.link.begin(background, p.database.begins[begin]); err != nil {
		return fmt.Errorf("begin on the scratch database: %w", t.recordError(err))
	}
	undo := func() { _ = p.link.rollback() } // it fails when the database has already rolled back
	return t.complete(fn, undo, func(err error) error { return fmt.Errorf("commit on the scratch database: %w", err) })
}
