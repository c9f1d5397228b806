// Package sqldb opens databases of two kinds, SQLite files and schemas of
// PostgreSQL, so that what works on them is written once: connections and who gets
// one, transactions, batches, locks, migrations, backups, and what an error means.
// It knows no table but goose's.
//
// A *DB is safe for concurrent use; a *Tx, a Batch and a *Private belong to one
// goroutine.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"

	"outboxweb/internal/outbox"
)

// DB is one of the two databases: connections that write, and others
// that only read. Each serves one transaction at a time.
type DB struct {
	Name    string // journal or projections
	place   string // for people: the path of a file, or a URL without secrets
	path    string // of a SQLite file
	Dialect *Dialect
	config  Config

	begins                 [beginnings]string
	dialWriter, dialReader func(context.Context) (link, error)

	pool       *sql.DB                         // for migrations
	provider   func() (*goose.Provider, error) // of them, read once
	readerPool *sql.DB                         // for digests
	settings   string                          // the first statement of a transaction on the pools; empty on SQLite

	// On PostgreSQL only.
	url      *postgresURL
	Schema   string
	identity string // the same for two URLs that lead to one schema
	Proxied  bool   // a proxy stands before the server

	fullness fullness

	closed  chan struct{}
	writers *sessions
	readers *sessions
}

// Config says how databases are opened.
type Config struct {
	Migrations fs.FS             // KIND/NAME/*.sql
	Marks      map[string]string // by NAME: a table that this database has and no other
	NoCreate   bool              // refuse databases that are missing
	NoMigrate  bool              // refuse databases of an older version
	// A transaction on PostgreSQL whose process has stopped in its middle is cut
	// off after half a Lease; EventTimeout bounds its statements where it applies
	// events.
	Lease, EventTimeout time.Duration
	Concurrency         int // waves at a time, for which there are connections
	Snapshots           int // that are open at a time beside whatever else reads
}

// Location is what a database URL names.
type Location struct {
	path     string // of a SQLite file
	postgres *postgresURL
	config   Config
}

// ParseURL accepts sqlite:PATH and postgres://….
func ParseURL(flag, raw string, c Config) (Location, error) {
	switch {
	case strings.HasPrefix(raw, "postgres://"), strings.HasPrefix(raw, "postgresql://"):
		u, err := parsePostgresURL(flag, raw)
		return Location{postgres: u, config: c}, err
	case !strings.HasPrefix(raw, "sqlite:"):
		return Location{}, outbox.Setup("--%s: %q is not a database URL; use sqlite:PATH, such as sqlite:data/%s, or postgres://USER@HOST/DATABASE", flag, WithoutSecrets(raw), strings.TrimSuffix(flag, "-db")+".db")
	}
	path := strings.TrimPrefix(raw, "sqlite:")
	if path == "" || strings.Contains(path, ":memory:") {
		return Location{}, outbox.Setup("--%s: the path of the SQLite file is missing; use sqlite:PATH", flag)
	}
	return Location{path: path, config: c}, nil
}

// RefuseSame refuses two locations that are plainly one.
func RefuseSame(journal, projections Location) error {
	switch {
	case journal.path != "" && projections.path != "" && sameFile(journal.path, projections.path):
		return outbox.Setup("--journal-db and --projections-db name the same file %s; they must be two", journal.path)
	case journal.postgres != nil && projections.postgres != nil && sameSchema(journal.postgres, projections.postgres):
		return oneSchema(journal.postgres.schema, projections.postgres)
	}
	return nil
}

// RefuseSameSchema refuses two databases that turn out to be one, by whatever
// names they were opened.
func RefuseSameSchema(journal, projections *DB) error {
	if journal.Schema != "" && journal.identity == projections.identity {
		return oneSchema(journal.Schema, projections.url)
	}
	return nil
}

func oneSchema(schema string, projections *postgresURL) error {
	return outbox.Setup("--journal-db and --projections-db name the same schema %s of one database; give each its own with search_path, such as %s", schema, withSearchPath(projections.place, "projections"))
}

// Open opens the database, which it creates where it is missing, without its
// tables being in place yet.
func (l Location) Open(ctx context.Context, name string) (*DB, error) {
	var d *DB
	var err error
	if l.postgres != nil {
		d, err = openPostgres(ctx, name, l.postgres, l.config)
	} else {
		d, err = openSQLite(ctx, name, l.path, l.config)
	}
	if err != nil {
		return nil, err
	}
	d.provider = sync.OnceValues(d.newProvider)
	return d, nil
}

// connect makes the sessions. It is called once the schema is in place, since
// statements are prepared against it.
func (d *DB) connect(ctx context.Context) error {
	d.closed = make(chan struct{})
	d.writers = newSessions(d.Dialect.writers, d.dialWriter)
	d.readers = newSessions(d.Dialect.readers, d.dialReader)
	return d.Read(ctx, func(*Tx) error { return nil })
}

// Close lets transactions under way end, and nobody else begin, and closes the
// connections.
func (d *DB) Close() error {
	close(d.closed)
	d.writers.close()
	d.readers.close()
	return d.ClosePools()
}

// ClosePools closes the connections of a database that was never ready.
func (d *DB) ClosePools() error { return errors.Join(d.readerPool.Close(), d.pool.Close()) }

// Begin is how a transaction begins.
type Begin int

// The beginnings. On SQLite, where one transaction writes at a time, those that
// write are all alike.
const (
	BeginRead        Begin = iota // one snapshot, for reading
	BeginWrite                    // for writing
	BeginHint                     // for writing what may be lost
	BeginAppend                   // sharing the lock around the drawing of positions
	BeginAppendAlone              // with that lock alone: who has it sees every event whose position was drawn before, and none comes
	BeginSettled                  // likewise, and busy soon where the lock is not had, since appends queue behind it
	BeginApply                    // sharing the lock of those who apply events, with the limits of an event
	BeginPause                    // with that lock alone, to pause a projection for all campaigns or to resume it
	BeginReplay                   // of a Private, with the limits of an event
	BeginCopy                     // of a Private, with one snapshot of the live rows, and time
	BeginSwap                     // of a Private, like BeginApply, and with time
	BeginPlain                    // of a Private
	beginnings
)

// Connections are those of this process, by what they are for.
func (d *DB) Connections() []outbox.Connections {
	write, read := d.writers.report(), d.readers.report()
	write.Database, write.Use = d.Name, "write"
	read.Database, read.Use = d.Name, "read"
	return []outbox.Connections{write, read}
}

// Snapshot begins a reading transaction of database/sql, which sees one state.
// The caller rolls it back.
func (d *DB) Snapshot(ctx context.Context) (*sql.Tx, error) {
	t, err := d.readerPool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: d.Dialect.snapshot})
	if err == nil && d.settings != "" {
		if _, err = t.ExecContext(ctx, d.settings); err != nil {
			t.Rollback()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s database: %w", d.Name, err)
	}
	return t, nil
}

// Away reports whether an error, of a query outside of transactions as well, is
// one of a database that is busy or not there, so that all may succeed later.
func (d *DB) Away(err error) bool {
	if errors.Is(err, outbox.ErrBusy) || d.url == nil {
		return errors.Is(err, outbox.ErrBusy) || sqliteLocked(err)
	}
	return postgresAway(err)
}

// Write runs fn in one writing transaction and commits it when fn returns
// nil. ctx bounds the wait for the connection and for the database's lock;
// once the transaction has begun it runs to its end, since a statement that is
// cancelled inside a transaction rolls it back behind the caller's back.
// What may succeed later, such as a lock that is not handed out in time or a
// server that is not there, is outbox.ErrBusy.
func (d *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	return d.WriteFrom(ctx, BeginWrite, fn)
}

// WriteFrom is Write for a transaction that begins in another way.
func (d *DB) WriteFrom(ctx context.Context, begin Begin, fn func(*Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, LockWait)
	defer cancel()
	err := d.within(ctx, d.writers, begin, func(t *Tx) error {
		t.ForUpdate, t.SkipLocked = d.Dialect.ForUpdate, d.Dialect.skipLocked
		return fn(t)
	})
	if err == nil {
		d.wrote()
	}
	return err
}

// Read runs fn on one consistent snapshot. It waits for that no longer than
// Write does for its transaction.
func (d *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, LockWait)
	defer cancel()
	return d.within(ctx, d.readers, BeginRead, func(t *Tx) error {
		defer func() { outbox.CostOf(ctx).Read(t.statements, time.Since(began)) }()
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
	if err := s.begin(ctx, d.begins[begin]); err != nil {
		return d.explain("begin", err)
	}
	t := &Tx{database: d, link: s.link}
	return t.complete(fn, func() { s.abandon(t) }, func(err error) error { return d.explain("commit", err) })
}

// explain says what failed, and marks what may succeed later, so that callers
// can tell it from a fault.
func (d *DB) explain(what string, err error) error {
	if !errors.Is(err, outbox.ErrBusy) && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", outbox.ErrBusy, err)
	}
	return fmt.Errorf("%s on the %s database: %w", what, d.Name, err)
}

// Tx is a transaction. Its first fatal error is sticky: after it no statement
// runs any more, since the database may have rolled back already and would
// commit each further statement by itself.
type Tx struct {
	database *DB
	link     link
	err      error
	lost     bool // so is the connection
	finished bool // it is committed

	statements int64 // run so far

	ForUpdate, SkipLocked string // lock suffixes, empty in a reading transaction
}

var background = context.Background()

// complete runs fn in the transaction, and commits it when fn returns nil.
// Otherwise undo undoes it. explain words an error of the commit.
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

// Err is the error that the transaction has come to; nil while it can be used.
func (t *Tx) Err() error { return t.err }

// Fail has the transaction come to err, unless it has come to one.
func (t *Tx) Fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// Dialect is that of the transaction's database.
func (t *Tx) Dialect() *Dialect { return t.database.Dialect }

// Schema is where the tables of the transaction's database are; empty on SQLite.
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

// errPanicked is what a transaction comes to when a panic passes through the
// driver.
var errPanicked = errors.New("a statement of this transaction panicked")

// Each runs a query and calls scan for every row of its answer, or until scan
// returns ErrEnough.
func (t *Tx) Each(scan func(Row) error, query string, args ...any) error {
	if t.err != nil {
		return t.err
	}
	t.statements++
	return t.recordError(t.link.each(scan, query, args))
}

// One reads the single row of a query into dest. It returns false when there
// is none.
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

// All reads all that a query finds, each row of its answer by scan; it is never nil.
func All[T any](t Reader, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := t.Each(func(row Row) error {
		one, err := scan(row)
		all = append(all, one)
		return err
	}, query, args...)
	return all, err
}

// Column scans the one column of a row.
func Column[T any](row Row) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}

// Run runs a batch and empties it. When a statement fails, those before it
// took effect and those after it did not; done is how many those are.
func (t *Tx) Run(b *Batch) (done int, err error) {
	if t.err != nil || len(b.steps) == 0 {
		return 0, t.err
	}
	t.statements += int64(len(b.steps))
	done, err = t.link.run(b)
	b.Reset()
	return done, t.recordError(err)
}

// RunAll is Run for callers who do not care which statement failed.
func (t *Tx) RunAll(b *Batch) error {
	_, err := t.Run(b)
	return err
}

// Finish is RunAll for the last batch of a transaction: on PostgreSQL the commit
// travels with it.
func (t *Tx) Finish(b *Batch) error {
	if !t.database.Dialect.Pipelines || b.Len() == 0 {
		return t.RunAll(b)
	}
	b.steps = append(b.steps, step{query: "commit", commits: true})
	err := t.RunAll(b)
	t.finished = err == nil
	return err
}

// Lock has transactions with the same lock happen one after the other, where they
// do not do so anyway. class tells locks of one kind from those of others.
func (t *Tx) Lock(class int32, key string) error {
	if t.database.Dialect.OneWriter {
		return nil
	}
	return t.Each(func(Row) error { return nil }, `select pg_advisory_xact_lock($1, hashtext($2))`, class, strings.TrimSpace(t.database.Schema+" "+key))
}

// Prepare has the database check a statement, without running it.
func (t *Tx) Prepare(query string) error { return t.recordError(t.link.prepare(query)) }

// Define runs a statement that changes the schema.
func (t *Tx) Define(statement string) error { return t.recordError(t.link.define(statement)) }

// ErrKeyTaken marks a row whose key already exists.
var ErrKeyTaken = errors.New("duplicate key")

// recordError remembers what an error means for the transaction, and marks what may
// succeed later.
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
