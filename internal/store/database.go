package store

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

	"outboxweb/internal/outbox"
)

// database is one of the two databases: pinned connections that write, and
// others that only read. Statements stay prepared on their connection, which
// halves the cost of small ones.
type database struct {
	name    string // journal or projections
	path    string
	dialect *dialect

	writerPool *sql.DB
	readerPool *sql.DB
	closed     chan struct{}
	writers    chan *session // first come, first served: a channel queues fairly, a mutex does not
	readers    chan *session
}

// session is one pinned connection with the statements prepared on it. Only
// its current holder may use it.
type session struct {
	conn       *sql.Conn
	stmts      map[string]*sql.Stmt
	unclosable bool // closing conn would wait for ever
}

const (
	busyTimeout   = 10 * time.Second
	readerCount   = 4
	lockWaitLimit = 10 * time.Second // how long a caller queues for a connection of its own process
)

// parseURL accepts sqlite:PATH.
func parseURL(flag, raw string) (path string, err error) {
	switch {
	case strings.HasPrefix(raw, "postgres:"), strings.HasPrefix(raw, "postgresql:"):
		return "", outbox.Setup("--%s: PostgreSQL is not supported by this build; use sqlite:PATH", flag)
	case !strings.HasPrefix(raw, "sqlite:"):
		return "", outbox.Setup("--%s: %q is not a database URL; use sqlite:PATH, such as sqlite:data/%s", flag, raw, strings.TrimSuffix(flag, "-db")+".db")
	}
	path = strings.TrimPrefix(raw, "sqlite:")
	if path == "" || strings.Contains(path, ":memory:") {
		return "", outbox.Setup("--%s: the path of the SQLite file is missing; use sqlite:PATH", flag)
	}
	return path, nil
}

// sameFile reports whether two paths lead to one file, or would once it is made.
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

// openDatabase opens the SQLite file at path, creating its directory and the
// file itself (0600) unless mustExist.
func openDatabase(ctx context.Context, name, path string, mustExist bool) (*database, error) {
	if err := prepareFile(name, path, mustExist); err != nil {
		return nil, err
	}
	d := &database{name: name, path: path, dialect: sqliteDialect}
	// Without "file:" the driver drops every parameter in silence.
	base := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(" + fmt.Sprint(busyTimeout.Milliseconds()) + ")&_pragma=foreign_keys(1)"
	var err error
	if d.writerPool, err = sql.Open(d.dialect.driver, base+"&_pragma=journal_mode(wal)&_pragma=synchronous(full)"); err == nil {
		d.readerPool, err = sql.Open(d.dialect.driver, base+"&mode=ro&_pragma=query_only(1)")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s database %q: %w", name, path, err)
	}
	d.writerPool.SetMaxOpenConns(d.dialect.writers)
	d.readerPool.SetMaxOpenConns(readerCount + 2)
	if err := d.verifyPragmas(ctx); err != nil {
		d.writerPool.Close()
		d.readerPool.Close()
		return nil, err
	}
	return d, nil
}

// prepareFile makes sure that the file can be opened for writing, so that a
// wrong path is one clear sentence and not the driver's.
func prepareFile(name, path string, mustExist bool) error {
	if _, err := os.Stat(path); mustExist && errors.Is(err, os.ErrNotExist) {
		return outbox.Setup("the %s database %s does not exist and --no-migrate forbids creating it", name, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return outbox.Setup("cannot create the directory of the %s database %s: %v", name, path, reason(err))
	}
	_, err := os.Stat(path)
	made := errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return outbox.Setup("cannot write the %s database %s: %v", name, path, reason(err))
	}
	if err := f.Close(); err != nil || !made {
		return err
	}
	return syncDir(filepath.Dir(path)) // or a power failure could take the new file away, events and all
}

// reason is the system's own word for an error, without the path again.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// verifyPragmas reads back what durability depends on.
func (d *database) verifyPragmas(ctx context.Context) error {
	var version, journal string
	var synchronous int
	err := d.patiently(ctx, func() error {
		err := d.writerPool.QueryRowContext(ctx, "select sqlite_version()").Scan(&version)
		if err == nil {
			err = d.writerPool.QueryRowContext(ctx, "pragma journal_mode").Scan(&journal)
		}
		if err == nil {
			err = d.writerPool.QueryRowContext(ctx, "pragma synchronous").Scan(&synchronous)
		}
		return err
	})
	switch {
	case err != nil && sqliteCode(err) == 26:
		return outbox.Setup("the %s database %s is not a SQLite database", d.name, d.path)
	case err != nil:
		return outbox.Setup("cannot open the %s database %s: %v", d.name, d.path, err)
	case !versionAtLeast(version, 3, 51, 3):
		return outbox.Setup("SQLite %s is too old: versions before 3.51.3 can corrupt a WAL file", version)
	case journal != "wal" || synchronous != 2:
		return outbox.Setup("the %s database %s refuses WAL with synchronous=FULL (it has %s and %d), so an acknowledged event might be lost", d.name, d.path, journal, synchronous)
	}
	return nil
}

// patiently repeats act while another process holds a lock, for at most
// lockWaitLimit. SQLite waits by itself for most locks, but not for those it
// takes to turn a new file into a WAL database.
func (d *database) patiently(ctx context.Context, act func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWaitLimit)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := act()
		if err == nil || !d.dialect.locked(err) {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
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

// connect pins the connections. It is called once the schema is in place,
// since statements are prepared against it.
func (d *database) connect(ctx context.Context) error {
	d.closed = make(chan struct{})
	d.writers = make(chan *session, d.dialect.writers)
	d.readers = make(chan *session, readerCount)
	for range d.dialect.writers {
		if err := pin(ctx, d.writerPool, d.writers); err != nil {
			return fmt.Errorf("connect to %s database: %w", d.name, err)
		}
	}
	for range readerCount {
		if err := pin(ctx, d.readerPool, d.readers); err != nil {
			return fmt.Errorf("connect to %s database: %w", d.name, err)
		}
	}
	return nil
}

func pin(ctx context.Context, pool *sql.DB, into chan *session) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	into <- &session{conn: conn, stmts: make(map[string]*sql.Stmt)}
	return nil
}

// close lets transactions under way end, and nobody else begin, and closes the
// connections.
func (d *database) close() error {
	close(d.closed)
	for _, sessions := range []chan *session{d.writers, d.readers} {
		for range cap(sessions) {
			s := <-sessions
			for _, stmt := range s.stmts {
				stmt.Close()
			}
			if !s.unclosable {
				s.conn.Close()
			}
		}
	}
	return errors.Join(d.readerPool.Close(), d.writerPool.Close())
}

// write runs fn in one writing transaction and commits it when fn returns
// nil. ctx bounds the wait for the connection and for the database's lock;
// once the transaction has begun it runs to its end, since a statement that is
// cancelled inside a transaction rolls it back behind the caller's back.
// A refusal to hand out the lock in time is outbox.ErrBusy.
func (d *database) write(ctx context.Context, fn func(*tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWaitLimit)
	defer cancel()
	return d.within(ctx, d.writers, d.dialect.begin, fn)
}

// read runs fn on one consistent snapshot.
func (d *database) read(ctx context.Context, fn func(*tx) error) error {
	return d.within(ctx, d.readers, "begin", fn)
}

func (d *database) within(ctx context.Context, sessions chan *session, begin string, fn func(*tx) error) (err error) {
	var s *session
	select {
	case s = <-sessions:
	case <-d.closed:
		return fmt.Errorf("use the %s database: %w", d.name, sql.ErrConnDone)
	case <-ctx.Done():
		return fmt.Errorf("wait for the %s database: %w: %w", d.name, outbox.ErrBusy, ctx.Err())
	}
	t := &tx{database: d, session: s}
	defer func() { sessions <- s }()
	committed := false
	defer func() {
		// Also when fn panics, and when ctx ended just as the transaction had
		// begun: the driver then reports the context's error for a begin that
		// took effect.
		if !committed {
			t.err = nil
			t.exec("rollback")
		}
	}()
	if _, err := t.execContext(ctx, begin); err != nil {
		return d.explain("begin", err)
	}
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	if _, err := t.exec("commit"); err != nil {
		return d.explain("commit", err)
	}
	committed = true
	return nil
}

// explain marks contention, so that callers can tell it from a fault.
func (d *database) explain(what string, err error) error {
	if d.dialect.locked(err) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s on the %s database: %w: %w", what, d.name, outbox.ErrBusy, err)
	}
	return fmt.Errorf("%s on the %s database: %w", what, d.name, err)
}

// tx is a transaction. Its first fatal error is sticky: after it no statement
// runs any more, since the database may have rolled back already and would
// commit each further statement by itself.
type tx struct {
	database *database
	session  *session
	err      error
}

var background = context.Background()

func (t *tx) exec(query string, args ...any) (int64, error) {
	return t.execContext(background, query, args...)
}

// execContext runs one statement and returns the number of rows it changed.
func (t *tx) execContext(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	returned := false
	defer func() {
		if !returned {
			t.panicked(query, stmt)
		}
	}()
	res, err := stmt.ExecContext(ctx, args...)
	returned = true
	if err != nil {
		return 0, t.note(err)
	}
	return res.RowsAffected()
}

var errPanicked = errors.New("a statement of this transaction panicked")

// panicked cleans up behind a panic that passed through the driver: the
// statement is still in progress, and as long as it exists every later one
// would be refused. database/sql never gives the connection back after that,
// so that it stays usable here but must not be closed.
func (t *tx) panicked(query string, stmt *sql.Stmt) {
	t.err = errPanicked
	t.session.unclosable = true
	delete(t.session.stmts, query)
	stmt.Close()
}

// query runs one statement that answers with rows; the caller closes them.
func (t *tx) query(query string, args ...any) (*sql.Rows, error) {
	stmt, err := t.prepare(query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(background, args...)
	if err != nil {
		return nil, t.note(err)
	}
	return rows, nil
}

// errEnough is what a scan function returns to end the reading early.
var errEnough = errors.New("enough rows were read")

// each runs a query and calls scan for every row of its answer, or until scan
// returns errEnough.
func (t *tx) each(scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := t.query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err == errEnough {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return t.note(err)
	}
	return nil
}

// one reads the single row of a query into dest. It returns false when there
// is none.
func (t *tx) one(dest []any, query string, args ...any) (bool, error) {
	found := false
	err := t.each(func(rows *sql.Rows) error {
		found = true
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		return errEnough
	}, query, args...)
	return found, err
}

func (t *tx) prepare(query string) (*sql.Stmt, error) {
	if t.err != nil {
		return nil, t.err
	}
	if stmt, ok := t.session.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := t.session.conn.PrepareContext(background, query)
	if err != nil {
		return nil, t.note(err)
	}
	t.session.stmts[query] = stmt
	return stmt, nil
}

func (t *tx) note(err error) error {
	if t.database.dialect.fatal(err) {
		t.err = err
	}
	return err
}
