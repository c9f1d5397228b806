// Package sqldb opens databases of two kinds, SQLite files and PostgreSQL schemas, so that code
// on top of them is written once. It provides connections, transactions, batches, locks,
// migrations, backups, and the classification of errors. It knows no table except that of applied
// migrations, goose_db_version.
//
// A *DB is safe for concurrent use; a *Tx, a Batch and a *Private belong to one goroutine.
package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
)

// DB is one of the two databases: connections that write and connections that only read. Each
// serves one transaction at a time.
type DB struct {
	Name    string    // journal or projections
	place   string    // for display: the path of a file, or a URL without secrets
	path    string    // of a SQLite file
	file    *openFile // likewise, once connected
	Dialect *Dialect
	config  Config

	begins                 [beginnings]string
	dialWriter, dialReader func(context.Context) (link, error)
	met                    func(Within) error // see OnConnect

	pool       *sql.DB // for migrations
	readerPool *sql.DB // for digests
	settings   string  // first statements of a transaction on the pools; empty on SQLite

	// On PostgreSQL only.
	url      *postgresURL
	Schema   string
	identity string       // equal for two URLs of one schema
	Proxied  bool         // a proxy is between this process and the server
	server   server       // as of the first connection
	examined atomic.Value // the time at which the server started that was examined last

	fullness fullness
	faults   faults
	watching sync.WaitGroup

	closed  chan struct{}
	writers *sessions
	readers *sessions
}

// Config says how databases are opened.
type Config struct {
	Migrations fs.FS             // KIND/NAME/*.sql
	Marks      map[string]string // by NAME: a table that only this database has
	NoCreate   bool              // refuse databases that are missing
	NoMigrate  bool              // refuse databases of an older version
	Embedded   bool              // errors name fields of outboxweb.Config instead of flags
	Private    string            // NAME of the database that is refused behind a pooler, since it has Privates
	// On PostgreSQL a transaction whose process stalls in the middle is aborted after half a Lease.
	// EventTimeout bounds the statements that apply events.
	Lease, EventTimeout time.Duration
	Wait                time.Duration // of a caller for a connection; 0 means LockWait
	Concurrency         int           // concurrent waves, which need connections
	Snapshots           int           // snapshots open at a time, in addition to other reads
	Log                 *slog.Logger  // nil discards
}

// setting is how the program is told the value of a flag, journal-db or projections-db.
func (c Config) setting(flag string) string {
	if !c.Embedded {
		return "--" + flag
	}
	return map[string]string{"journal-db": "Config.JournalDB", "projections-db": "Config.ProjectionsDB"}[flag]
}

// Location is the database that a URL names.
type Location struct {
	path     string // of a SQLite file
	postgres *postgresURL
	config   Config
}

// ParseURL accepts sqlite:PATH and postgres://….
func ParseURL(flag, raw string, c Config) (Location, error) {
	c.Log, c.Wait = cmp.Or(c.Log, slog.New(slog.DiscardHandler)), cmp.Or(c.Wait, LockWait)
	switch {
	case strings.HasPrefix(raw, "postgres://"), strings.HasPrefix(raw, "postgresql://"):
		u, err := parsePostgresURL(c.setting(flag), raw)
		return Location{postgres: u, config: c}, err
	case !strings.HasPrefix(raw, "sqlite:"):
		return Location{}, event.Setup("%s: %q is not a database URL; use sqlite:PATH, such as sqlite:data/%s, or postgres://USER@HOST/DATABASE", c.setting(flag), WithoutSecrets(raw), strings.TrimSuffix(flag, "-db")+".db")
	}
	path := strings.TrimPrefix(raw, "sqlite:")
	if path == "" || strings.Contains(path, ":memory:") {
		return Location{}, event.Setup("%s: the path of the SQLite file is missing; use sqlite:PATH", c.setting(flag))
	}
	return Location{path: path, config: c}, nil
}

// RefuseSame refuses two locations that are obviously the same.
func RefuseSame(journal, projections Location) error {
	switch {
	case journal.path != "" && projections.path != "" && sameFile(journal.path, projections.path):
		return event.Setup("%s and %s name the same file %s; they must be two", journal.config.setting("journal-db"), journal.config.setting("projections-db"), journal.path)
	case journal.postgres != nil && projections.postgres != nil && sameSchema(journal.postgres, projections.postgres):
		return oneSchema(journal.config, journal.postgres.schema, projections.postgres)
	}
	return nil
}

// RefuseSameSchema refuses two open databases that are the same, whatever their URLs.
func RefuseSameSchema(journal, projections *DB) error {
	if journal.Schema != "" && journal.identity == projections.identity {
		return oneSchema(journal.config, journal.Schema, projections.url)
	}
	return nil
}

func oneSchema(c Config, schema string, projections *postgresURL) error {
	return event.Setup("%s and %s name the same schema %s of one database; give each its own with search_path, such as %s", c.setting("journal-db"), c.setting("projections-db"), schema, withSearchPath(projections.place, "projections"))
}

// Open opens the database and creates it if it is missing. It does not create the tables.
func (l Location) Open(ctx context.Context, name string) (*DB, error) {
	if l.postgres != nil {
		return openPostgres(ctx, name, l.postgres, l.config)
	}
	return openSQLite(ctx, name, l.path, l.config)
}

// connect creates the sessions. It is called after the migrations, since statements are
// prepared against the schema.
func (d *DB) connect(ctx context.Context) error {
	d.closed = make(chan struct{})
	d.writers = newSessions(d.Dialect.writers, d.connected(d.dialWriter))
	d.readers = newSessions(d.Dialect.readers, d.connected(d.dialReader))
	err := d.Read(ctx, func(*Tx) error { return nil })
	if err == nil && d.path != "" {
		err = d.keepFile()
	}
	if err == nil && d.path != "" {
		d.watching.Go(d.watch)
	}
	return err
}

// Close waits for running transactions, refuses new ones, and closes the connections. Those of a file
// that is not in place are left to the end of the process: SQLite would touch what is in its place.
func (d *DB) Close() error {
	astray := d.InPlace() != nil
	close(d.closed)
	d.watching.Wait()
	if astray {
		return nil
	}
	d.writers.close()
	d.readers.close()
	return d.ClosePools()
}

// ClosePools closes the connections of a database that never became ready.
func (d *DB) ClosePools() error { return errors.Join(d.readerPool.Close(), d.pool.Close()) }

// Begin is the way a transaction begins.
type Begin int

// On SQLite, where one transaction writes at a time, all writing kinds are alike.
const (
	BeginRead        Begin = iota // one snapshot, for reading
	BeginWrite                    // for writing
	BeginHint                     // for a write that may be lost
	BeginAppend                   // shares the lock around drawing positions
	BeginAppendAlone              // has that lock exclusively: all positions drawn before are visible, and none is drawn meanwhile
	BeginSettled                  // likewise, but busy soon when the lock is not free, since appends queue behind it
	BeginApply                    // shares the apply lock, with the limits of an event
	BeginPause                    // has the apply lock exclusively, to pause a projection for all campaigns or to resume it
	BeginReplay                   // of a Private, with the limits of an event
	BeginCopy                     // of a Private, with one snapshot of the live rows and a long limit
	BeginSwap                     // of a Private, like BeginApply with a long limit
	BeginPlain                    // of a Private
	beginnings
)

// Connections are the connections of this process, by purpose.
func (d *DB) Connections() []database.Connections {
	write, read := d.writers.report(), d.readers.report()
	write.Database, write.Use = d.Name, "write"
	read.Database, read.Use = d.Name, "read"
	return []database.Connections{write, read}
}

// Snapshot begins a read-only database/sql transaction with one snapshot. The caller rolls it
// back.
func (d *DB) Snapshot(ctx context.Context) (*sql.Tx, error) {
	if err := d.InPlace(); err != nil {
		return nil, err
	}
	t, err := d.readerPool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: d.Dialect.snapshot})
	if err == nil && d.settings != "" {
		if _, err = t.ExecContext(ctx, d.settings, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Rollback()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s database: %w", d.Name, err)
	}
	return t, nil
}

// Away reports whether err means that the database is busy or unreachable, so that a retry may
// succeed. It also takes errors of queries outside transactions.
func (d *DB) Away(err error) bool {
	if errors.Is(err, event.ErrBusy) || d.url == nil {
		return errors.Is(err, event.ErrBusy) || sqliteLocked(err)
	}
	return postgresAway(err)
}

// Write runs fn in one writing transaction and commits it when fn returns nil. ctx bounds the
// wait for the connection and for the database's lock; once begun, the transaction is not
// cancelled, since cancelling a statement inside a transaction rolls it back without the
// caller's knowledge. An error that a retry may fix, such as a lock timeout or an unreachable
// server, is event.ErrBusy.
func (d *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	return d.WriteFrom(ctx, BeginWrite, fn)
}

// WriteFrom is Write for a transaction with another Begin.
func (d *DB) WriteFrom(ctx context.Context, begin Begin, fn func(*Tx) error) error {
	if d.file != nil && d.file.left.Load() {
		if err := d.InPlace(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.Wait)
	defer cancel()
	err := d.within(ctx, d.writers, begin, func(t *Tx) error {
		t.ForUpdate, t.SkipLocked = d.Dialect.ForUpdate, d.Dialect.skipLocked
		return fn(t)
	})
	if err != nil {
		return err
	}
	d.wrote()
	return d.keptInPlace()
}

// Read runs fn on one consistent snapshot. It waits for it no longer than Write does.
func (d *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.config.Wait)
	defer cancel()
	return d.within(ctx, d.readers, BeginRead, func(t *Tx) error {
		defer func() { database.CostOf(ctx).Read(t.statements, time.Since(began)) }()
		return fn(t)
	})
}

func (d *DB) within(ctx context.Context, from *sessions, begin Begin, fn func(*Tx) error) (err error) {
	s, err := from.acquire(ctx, d.closed)
	if err != nil {
		return fmt.Errorf("wait for the %s database: %w", d.Name, err)
	}
	defer from.release(s)
	defer func() { d.remember(err) }()
	if s.link == nil && from == d.readers { // a new connection opens what is in place now
		if err := d.InPlace(); err != nil {
			return err
		}
	}
	if err := s.begin(ctx, d.begins[begin]); err != nil {
		return d.explain("begin", err)
	}
	t := &Tx{database: d, link: s.link}
	return t.complete(fn, func() { s.abandon(t) }, func(err error) error { return d.explain("commit", err) })
}

// explain adds what failed to err, and marks it as busy when a retry may succeed.
func (d *DB) explain(what string, err error) error {
	if !errors.Is(err, event.ErrBusy) && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", event.ErrBusy, err)
	}
	return fmt.Errorf("%s on the %s database: %w", what, d.Name, err)
}

// Tx is a transaction. Its first fatal error is sticky: after it no statement runs, since the
// database may have rolled back already and would commit each further statement on its own.
type Tx struct {
	database *DB
	link     link
	err      error
	lost     bool // the connection is lost too
	finished bool // it is committed

	statements int64 // number run so far

	ForUpdate, SkipLocked string // lock suffixes, empty in a reading transaction
}

var background = context.Background()

// complete runs fn in the transaction and commits it when fn returns nil; otherwise it calls
// undo. explain wraps an error of the commit.
func (t *Tx) complete(fn func(*Tx) error, undo func(), explain func(error) error) error {
	committed := false
	defer func() { // also when fn panics
		if !committed {
			undo()
		}
	}()
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	if !t.finished {
		if err := t.link.commit(); err != nil {
			return explain(t.recordError(err))
		}
	}
	committed = true
	return nil
}

// Err is the sticky error of the transaction; nil while it can be used.
func (t *Tx) Err() error { return t.err }

// Fail sets the sticky error, unless there is one.
func (t *Tx) Fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// Dialect is the dialect of the transaction's database.
func (t *Tx) Dialect() *Dialect { return t.database.Dialect }

// Schema is the schema of the transaction's database; empty on SQLite.
func (t *Tx) Schema() string { return t.database.Schema }

// Exec runs one statement and returns the number of rows it changed.
func (t *Tx) Exec(query string, args ...any) (int64, error) {
	return t.ExecContext(background, query, args...)
}

// ExecContext runs one statement and returns the number of rows it changed.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (int64, error) {
	if t.err != nil {
		return 0, t.err
	}
	t.statements++
	returned := false
	defer func() {
		if !returned {
			t.err = errPanicked
		}
	}()
	n, err := t.link.exec(ctx, query, args)
	returned = true
	return n, t.recordError(err)
}

// errPanicked is the error of a transaction after a panic in the driver.
var errPanicked = errors.New("a statement of this transaction panicked")

// Each runs a query and calls scan for each row, until scan returns ErrEnough.
func (t *Tx) Each(scan func(Row) error, query string, args ...any) error {
	return t.EachContext(background, scan, query, args...)
}

// EachContext is Each with a deadline for the query.
func (t *Tx) EachContext(ctx context.Context, scan func(Row) error, query string, args ...any) error {
	if t.err != nil {
		return t.err
	}
	t.statements++
	return t.recordError(t.link.each(ctx, scan, query, args))
}

// One reads the single row of a query into dest. It returns false when there is none.
func (t *Tx) One(dest []any, query string, args ...any) (bool, error) {
	found := false
	err := t.Each(func(row Row) error {
		found = true
		if err := row.Scan(dest...); err != nil {
			return err
		}
		return ErrEnough
	}, query, args...)
	return found, err
}

// Reading returns what read reads on one snapshot of a database; the zero value with an error, which
// begins with what was attempted unless that is empty.
func Reading[T, R any](ctx context.Context, d interface {
	Read(context.Context, func(T) error) error
}, what string, read func(T) (R, error)) (result R, err error) {
	err = d.Read(ctx, func(t T) (err error) {
		result, err = read(t)
		return err
	})
	if err == nil {
		return result, nil
	}
	if what != "" {
		err = Wrapf(err, "%s", what)
	}
	return *new(R), err
}

// First reads the row of a query that has at most one; found is false when there is none.
func First[T any](t Reader, scan func(Row) (T, error), query string, args ...any) (one T, found bool, err error) {
	err = t.Each(func(row Row) error {
		found = true
		one, err = scan(row)
		return err
	}, query, args...)
	return one, found, err
}

// All reads all rows of a query with scan. The slice is never nil.
func All[T any](t Reader, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := t.Each(Collect(&all, scan), query, args...)
	return all, err
}

// Collect returns a scan function that appends to a list.
func Collect[T any](into *[]T, scan func(Row) (T, error)) func(Row) error {
	return func(row Row) error {
		one, err := scan(row)
		*into = append(*into, one)
		return err
	}
}

// CollectMap returns a scan function for rows of a key and its value.
func CollectMap[K comparable, V any](into map[K]V) func(Row) error {
	return func(row Row) error {
		var key K
		var value V
		err := row.Scan(&key, &value)
		into[key] = value
		return err
	}
}

// Column scans a row of one column.
func Column[T any](row Row) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}

// Run runs a batch and empties it. When a statement fails, those before it took effect and
// those after it did not; done is the number of the former.
func (t *Tx) Run(b *Batch) (done int, err error) {
	if t.err != nil || len(b.steps) == 0 {
		return 0, t.err
	}
	t.statements += int64(len(b.steps))
	done, err = t.link.run(b)
	b.Reset()
	return done, t.recordError(err)
}

// RunAll is Run for callers that do not need the failed statement's index.
func (t *Tx) RunAll(b *Batch) error {
	_, err := t.Run(b)
	return err
}

// Finish is RunAll for the last batch of a transaction: on PostgreSQL the commit is sent with
// it.
func (t *Tx) Finish(b *Batch) error {
	if !t.database.Dialect.Pipelines || b.Len() == 0 {
		return t.RunAll(b)
	}
	b.steps = append(b.steps, step{query: "commit", commits: true})
	err := t.RunAll(b)
	t.finished = err == nil
	return err
}

// Lock serializes transactions with the same class and key, where transactions are not
// serialized anyway. class is the kind of lock.
func (t *Tx) Lock(class int32, key string) error {
	if t.database.Dialect.OneWriter {
		return nil
	}
	return t.Each(func(Row) error { return nil }, `select pg_advisory_xact_lock($1, hashtext($2))`, class, strings.TrimSpace(t.database.Schema+" "+key))
}

// Prepare checks a statement against the database without running it.
func (t *Tx) Prepare(query string) error { return t.recordError(t.link.prepare(query)) }

// Define runs a statement that changes the schema.
func (t *Tx) Define(statement string) error { return t.recordError(t.link.define(statement)) }

// ErrKeyTaken marks a row whose key already exists.
var ErrKeyTaken = errors.New("duplicate key")

// recordError makes a fatal error sticky, and marks one that a retry may fix.
func (t *Tx) recordError(err error) error {
	if err == nil {
		return nil
	}
	if callback, ok := err.(ours); ok {
		return callback.error
	}
	v := t.link.classify(err)
	v.late = v.late && !errors.Is(err, context.DeadlineExceeded)
	err = v.mark(err)
	if v.fatal {
		t.err = err
	}
	t.lost = t.lost || v.lost
	return err
}
