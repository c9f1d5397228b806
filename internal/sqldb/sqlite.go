package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outboxweb/outboxweb/internal/event"
)

var sqliteDialect = &Dialect{
	name:        "sqlite",
	CountTables: `select count(*) from sqlite_master where type = 'table' and name = $1`,
	OneWriter:   true,
	writers:     1,
	readers:     4,
	version:     `select sqlite_version()`,
	size:        `select page_count * page_size from pragma_page_count, pragma_page_size`,
	settings: []described{
		{"journal_mode", `pragma journal_mode`}, {"synchronous", `select 'full'`}, // verified when it was opened
		{"busy_timeout", `pragma busy_timeout`},
		{"foreign_keys", `pragma foreign_keys`}, {"page_size", `pragma page_size`}, {"auto_vacuum", `pragma auto_vacuum`},
	},
}

const busyTimeout = 10 * time.Second

// Modes of created files: journals contain what people did and must not be readable by other
// users. Existing files keep their mode.
const (
	privateFile = 0o600
	privateDir  = 0o700
)

// sameFile reports whether two paths are one file, or would be once it is created.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB)
	}
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absA == absB
}

// peekSQLite opens the SQLite file at path only to read its version.
func peekSQLite(name, path string, c Config) (*DB, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &missingError{"the " + name + " database " + path}
	}
	if err != nil {
		return nil, event.Setup("cannot write the %s database %s: %v", name, path, event.Cause(err))
	}
	f.Close()
	// With mode=ro SQLite would leave the side files of a WAL database behind.
	pool, err := sql.Open("sqlite", sqliteURL(path)+"&mode=rw")
	if err != nil {
		return nil, fmt.Errorf("open %s database %q: %w", name, path, err)
	}
	return &DB{Name: name, place: path, path: path, Dialect: sqliteDialect, config: c, pool: pool}, nil
}

// sqliteURL is the path as the driver takes it. Without "file:" the driver silently drops every
// parameter.
func sqliteURL(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(" + fmt.Sprint(busyTimeout.Milliseconds()) + ")&_pragma=foreign_keys(1)"
}

// openSQLite opens the SQLite file at path and creates it, and the directory it is in, if they are
// missing. SQLite gives the side files the same mode.
func openSQLite(ctx context.Context, name, path string, c Config) (*DB, error) {
	if err := prepareFile(name, path, c); err != nil {
		return nil, err
	}
	d := &DB{Name: name, place: path, Dialect: sqliteDialect, config: c}
	for i := range d.begins {
		d.begins[i] = "begin immediate"
	}
	d.begins[BeginRead] = beginReading
	for _, private := range []Begin{BeginReplay, BeginCopy, BeginSwap, BeginPlain} {
		d.begins[private] = "begin"
	}
	base := sqliteURL(path)
	var err error
	if d.pool, err = sql.Open("sqlite", base+fmt.Sprintf("&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=journal_size_limit(%d)&_pragma=wal_autocheckpoint(%d)", logLimit, logFrames)); err == nil {
		d.readerPool, err = sql.Open("sqlite", base+"&mode=ro&_pragma=query_only(1)")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s database %q: %w", name, path, err)
	}
	d.pool.SetMaxOpenConns(d.Dialect.writers)
	d.readerPool.SetMaxOpenConns(d.Dialect.readers + 2 + d.config.Snapshots)
	d.path = path
	d.dialWriter = func(ctx context.Context) (link, error) { return pin(ctx, d.pool, path) }
	d.dialReader = func(ctx context.Context) (link, error) { return pin(ctx, d.readerPool, path) }
	if err := d.verifyPragmas(ctx); err != nil {
		d.ClosePools()
		return nil, err
	}
	return d, nil
}

const beginReading = "begin"

// prepareFile checks that the file can be opened for writing, so that a wrong path gets a clear
// message instead of the driver's.
func prepareFile(name, path string, c Config) error {
	dir := filepath.Dir(path)
	above := filepath.Dir(dir)
	if _, err := os.Stat(above); errors.Is(err, os.ErrNotExist) { // the path is probably mistyped
		return event.Setup("cannot create the %s database %s: there is no directory %s; create it, or name another place with %s", name, path, above, c.setting(name+"-db"))
	}
	if err := os.Mkdir(dir, privateDir); err != nil && !errors.Is(err, os.ErrExist) {
		return event.Setup("cannot create the directory of the %s database %s: %v; name another place with %s", name, path, event.Cause(err), c.setting(name+"-db"))
	}
	_, err := os.Stat(path)
	made := errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, privateFile)
	if err != nil {
		return event.Setup("cannot write the %s database %s: %v", name, path, event.Cause(err))
	}
	if err := f.Close(); err != nil || !made {
		return err
	}
	return syncDir(dir) // or a power failure could lose the new file with all its events
}

// verifyPragmas reads back the settings that durability depends on.
func (d *DB) verifyPragmas(ctx context.Context) error {
	var version, journal string
	var synchronous int
	err := d.patiently(ctx, func() error {
		err := d.pool.QueryRowContext(ctx, "select sqlite_version()").Scan(&version)
		if err == nil {
			err = d.pool.QueryRowContext(ctx, "pragma journal_mode").Scan(&journal)
		}
		if err == nil {
			err = d.pool.QueryRowContext(ctx, "pragma synchronous").Scan(&synchronous)
		}
		return err
	})
	switch {
	case err != nil:
		return d.unopenable(err)
	case !versionAtLeast(version, 3, 51, 3):
		return event.Setup("SQLite %s is too old: versions before 3.51.3 can corrupt a WAL file", version)
	case journal != "wal" || synchronous != 2:
		return event.Setup("the %s database %s refuses WAL with synchronous=FULL (it has %s and %d), so an acknowledged event might be lost", d.Name, d.place, journal, synchronous)
	}
	return nil
}

// unopenable explains why SQLite cannot open the file.
func (d *DB) unopenable(err error) error {
	switch {
	case sqliteCode(err) == sqlite3.SQLITE_NOTADB:
		return event.Setup("the %s database %s is not a SQLite database", d.Name, d.place)
	case sqliteFull(err, d.path):
		refusal := event.Setup("cannot open the %s database %s: its disk is full", d.Name, d.place)
		refusal.Err = fmt.Errorf("%w: %w", event.ErrSetup, event.ErrFull)
		return refusal
	}
	return event.Setup("cannot open the %s database %s: %v", d.Name, d.place, err)
}

// patiently retries act while another process holds a lock, for at most LockWait. SQLite itself
// waits for most locks, but not for those it takes to turn a new file into a WAL database.
func (d *DB) patiently(ctx context.Context, act func() error) error {
	ctx, cancel := context.WithTimeout(ctx, LockWait)
	defer cancel()
	for {
		err := act()
		if err == nil || !sqliteLocked(err) || !pause(ctx, 10*time.Millisecond) {
			return err
		}
	}
}

func versionAtLeast(version string, want ...int) bool {
	var have [3]int
	fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2])
	for i, w := range want {
		if have[i] != w {
			return have[i] > w
		}
	}
	return true
}

// sqliteCode is the primary result code of err, or 0 when err is not from SQLite.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func sqliteLocked(err error) bool {
	return sqliteCode(err) == sqlite3.SQLITE_BUSY || sqliteCode(err) == sqlite3.SQLITE_LOCKED
}

// sqliteLink is a pinned connection. It keeps statements prepared, which halves the cost of
// small ones.
type sqliteLink struct {
	conn       *sql.Conn
	path       string // of the database
	stmts      map[string]*sql.Stmt
	unclosable bool // closing conn would block forever
}

func pin(ctx context.Context, pool *sql.DB, path string) (link, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &sqliteLink{conn: conn, path: path, stmts: make(map[string]*sql.Stmt)}, nil
}

func (l *sqliteLink) close() {
	for _, stmt := range l.stmts {
		stmt.Close()
	}
	if !l.unclosable {
		l.conn.Close()
	}
}

// begin does not wait when the transaction only reads, so that it needs no goroutine to watch
// ctx.
func (l *sqliteLink) begin(ctx context.Context, text string) error {
	if text == beginReading {
		ctx = background
	}
	_, err := l.exec(ctx, text, nil)
	return err
}

func (l *sqliteLink) commit() error {
	_, err := l.exec(background, "commit", nil)
	return err
}

func (l *sqliteLink) rollback() error {
	_, err := l.exec(background, "rollback", nil)
	return err
}

func (l *sqliteLink) exec(ctx context.Context, query string, args []any) (int64, error) {
	stmt, err := l.stmt(query)
	if err != nil {
		return 0, l.markMalformed(query, err)
	}
	returned := false
	defer func() {
		if !returned {
			l.clean(query, stmt)
		}
	}()
	res, err := stmt.ExecContext(ctx, args...)
	returned = true
	if err != nil {
		return 0, l.markMalformed(query, err)
	}
	return res.RowsAffected()
}

// clean cleans up after a panic in the driver: the statement is still in progress, and while it
// exists every later one would be refused. database/sql never gets the connection back, so it
// stays usable here but must not be closed.
func (l *sqliteLink) clean(query string, stmt *sql.Stmt) {
	l.unclosable = true
	delete(l.stmts, query)
	stmt.Close()
}

func (l *sqliteLink) each(ctx context.Context, scan func(Row) error, query string, args []any) error {
	stmt, err := l.stmt(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return scanAll(rows, scan)
}

func (l *sqliteLink) run(b *Batch) (int, error) {
	for i := range b.steps {
		if err := l.step(&b.steps[i]); err != nil {
			return i, err
		}
	}
	return len(b.steps), nil
}

func (l *sqliteLink) step(s *step) error {
	if s.scan != nil {
		return l.each(background, s.scan, s.query, s.args)
	}
	n, err := l.exec(background, s.query, s.args)
	if err != nil || s.count == nil {
		return err
	}
	return oursOrNil(s.count(n))
}

func (l *sqliteLink) define(statement string) error {
	_, err := l.conn.ExecContext(background, statement)
	return err
}

func (l *sqliteLink) prepare(query string) error {
	stmt, err := l.conn.PrepareContext(background, query)
	if err != nil {
		return err
	}
	return stmt.Close()
}

func (l *sqliteLink) stmt(query string) (*sql.Stmt, error) {
	if stmt, ok := l.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := l.conn.PrepareContext(background, query)
	if err != nil {
		return nil, err
	}
	l.stmts[query] = stmt
	return stmt, nil
}

func (l *sqliteLink) classify(err error) verdict {
	v := verdict{busy: sqliteLocked(err), fatal: true, full: sqliteFull(err, l.path), damaged: sqliteCode(err) == sqlite3.SQLITE_CORRUPT, late: errors.Is(err, context.DeadlineExceeded)}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		// A cancelled context interrupts the statement, and SQLite rolls the whole transaction back
		// when a write is interrupted.
		return v
	}
	v.taken = e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
		v.fatal = false
	}
	return v
}

// DamagedPages lists the defects of the file; none on PostgreSQL, which detects damage when it
// reads.
func (d *DB) DamagedPages(ctx context.Context) (found []string, err error) {
	if d.url != nil {
		return nil, nil
	}
	err = d.Read(ctx, func(t *Tx) error { // what is found before an error says where it is
		return t.Each(func(row Row) error {
			lines, err := Column[string](row)
			found = append(found, strings.Split(lines, "\n")...)
			return err
		}, `pragma quick_check(100)`)
	})
	return found, err
}
