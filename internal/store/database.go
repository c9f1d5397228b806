package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"

	"outboxweb/internal/outbox"
)

// database is one of the two databases: connections that write, and others
// that only read. Each serves one transaction at a time.
type database struct {
	name    string // journal or projections
	place   string // for people: the path of a file, or a URL without secrets
	path    string // of a SQLite file
	dialect *dialect

	// How each kind of transaction begins.
	beginWrite, beginAppend, beginAppendAlone, beginApply, beginPause, beginRead, beginSettled string
	dialWriter, dialReader                                                                     func(context.Context) (link, error)

	pool       *sql.DB                         // for migrations
	provider   func() (*goose.Provider, error) // of them, read once
	readerPool *sql.DB                         // for digests
	settings   string                          // the first statement of a transaction on the pools; empty on SQLite

	// On PostgreSQL only.
	url      *postgresURL
	schema   string
	identity string // the same for two URLs that lead to one schema
	proxied  bool   // a proxy stands before the server

	fullness fullness

	closed  chan struct{}
	writers *sessions
	readers *sessions
}

// location is what a database URL names.
type location struct {
	path     string // of a SQLite file
	postgres *postgresURL
}

// parseURL accepts sqlite:PATH and postgres://….
func parseURL(flag, raw string) (location, error) {
	switch {
	case strings.HasPrefix(raw, "postgres://"), strings.HasPrefix(raw, "postgresql://"):
		u, err := parsePostgresURL(flag, raw)
		return location{postgres: u}, err
	case !strings.HasPrefix(raw, "sqlite:"):
		return location{}, outbox.Setup("--%s: %q is not a database URL; use sqlite:PATH, such as sqlite:data/%s, or postgres://USER@HOST/DATABASE", flag, WithoutSecrets(raw), strings.TrimSuffix(flag, "-db")+".db")
	}
	path := strings.TrimPrefix(raw, "sqlite:")
	if path == "" || strings.Contains(path, ":memory:") {
		return location{}, outbox.Setup("--%s: the path of the SQLite file is missing; use sqlite:PATH", flag)
	}
	return location{path: path}, nil
}

// open opens the database, which it creates where it is missing, without its
// tables being in place yet.
func (l location) open(ctx context.Context, name string, o Options) (*database, error) {
	var d *database
	var err error
	if l.postgres != nil {
		d, err = openPostgres(ctx, name, l.postgres, o)
	} else {
		d, err = openSQLite(ctx, name, l.path)
	}
	if err != nil {
		return nil, err
	}
	d.provider = sync.OnceValues(d.newProvider)
	return d, nil
}

// connect makes the sessions. It is called once the schema is in place, since
// statements are prepared against it.
func (d *database) connect(ctx context.Context) error {
	d.closed = make(chan struct{})
	d.writers = newSessions(d.dialect.writers, d.dialWriter)
	d.readers = newSessions(d.dialect.readers, d.dialReader)
	return d.read(ctx, func(*tx) error { return nil })
}

// close lets transactions under way end, and nobody else begin, and closes the
// connections.
func (d *database) close() error {
	close(d.closed)
	d.writers.close()
	d.readers.close()
	return d.closePools()
}

func (d *database) closePools() error { return errors.Join(d.readerPool.Close(), d.pool.Close()) }

// write runs fn in one writing transaction and commits it when fn returns
// nil. ctx bounds the wait for the connection and for the database's lock;
// once the transaction has begun it runs to its end, since a statement that is
// cancelled inside a transaction rolls it back behind the caller's back.
// What may succeed later, such as a lock that is not handed out in time or a
// server that is not there, is outbox.ErrBusy.
func (d *database) write(ctx context.Context, fn func(*tx) error) error {
	return d.writeFrom(ctx, d.beginWrite, fn)
}

// writeFrom is write for a transaction that begins with a text of its own.
func (d *database) writeFrom(ctx context.Context, begin string, fn func(*tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWaitLimit)
	defer cancel()
	err := d.within(ctx, d.writers, begin, func(t *tx) error {
		t.forUpdate, t.skipLocked = d.dialect.forUpdate, d.dialect.skipLocked
		return fn(t)
	})
	if err == nil {
		d.wrote()
	}
	return err
}

// read runs fn on one consistent snapshot. It waits for that no longer than
// write does for its transaction.
func (d *database) read(ctx context.Context, fn func(*tx) error) error {
	cost, began := costOf(ctx), time.Now()
	ctx, cancel := context.WithTimeout(ctx, lockWaitLimit)
	defer cancel()
	return d.within(ctx, d.readers, d.beginRead, func(t *tx) error {
		if cost != nil {
			defer func() { cost.read(t, time.Since(began)) }()
		}
		return fn(t)
	})
}

func (d *database) within(ctx context.Context, from *sessions, begin string, fn func(*tx) error) (err error) {
	s, err := from.take(ctx, d.closed)
	if err != nil {
		return fmt.Errorf("wait for the %s database: %w", d.name, err)
	}
	defer from.put(s)
	defer func() { d.remember(err) }()
	if err := s.begin(ctx, begin); err != nil {
		return d.explain("begin", err)
	}
	t := &tx{database: d, link: s.link}
	committed := false
	defer func() { // also when fn panics
		if !committed {
			s.abandon(t)
		}
	}()
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	if t.finished {
		committed = true
		return nil
	}
	if err := s.link.commit(); err != nil {
		return d.explain("commit", t.note(err))
	}
	committed = true
	return nil
}

// explain says what failed, and marks what may succeed later, so that callers
// can tell it from a fault.
func (d *database) explain(what string, err error) error {
	if !errors.Is(err, outbox.ErrBusy) && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", outbox.ErrBusy, err)
	}
	return fmt.Errorf("%s on the %s database: %w", what, d.name, err)
}

// tx is a transaction. Its first fatal error is sticky: after it no statement
// runs any more, since the database may have rolled back already and would
// commit each further statement by itself.
type tx struct {
	database *database
	link     link
	err      error
	lost     bool // so is the connection
	finished bool // it is committed

	statements int64 // run so far

	forUpdate, skipLocked string // lock suffixes, empty in a reading transaction
}

var background = context.Background()

func (t *tx) exec(query string, args ...any) (int64, error) {
	return t.execContext(background, query, args...)
}

// execContext runs one statement and returns the number of rows it changed.
func (t *tx) execContext(ctx context.Context, query string, args ...any) (int64, error) {
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
	return n, t.note(err)
}

// errPanicked is what a transaction comes to when a panic passes through the
// driver.
var errPanicked = errors.New("a statement of this transaction panicked")

// each runs a query and calls scan for every row of its answer, or until scan
// returns errEnough.
func (t *tx) each(scan func(scanner) error, query string, args ...any) error {
	if t.err != nil {
		return t.err
	}
	t.statements++
	return t.note(t.link.each(scan, query, args))
}

// one reads the single row of a query into dest. It returns false when there
// is none.
func (t *tx) one(dest []any, query string, args ...any) (bool, error) {
	found := false
	err := t.each(func(row scanner) error {
		found = true
		if err := row.Scan(dest...); err != nil {
			return err
		}
		return errEnough
	}, query, args...)
	return found, err
}

// run runs a batch and empties it. When a statement fails, those before it
// took effect and those after it did not; done is how many those are.
func (t *tx) run(b *batch) (done int, err error) {
	if t.err != nil || len(b.steps) == 0 {
		return 0, t.err
	}
	t.statements += int64(len(b.steps))
	done, err = t.link.run(b)
	clear(b.steps)
	b.steps = b.steps[:0]
	return done, t.note(err)
}

// runAll is run for callers who do not care which statement failed.
func (t *tx) runAll(b *batch) error {
	_, err := t.run(b)
	return err
}

// finish is runAll for the last batch of a transaction: on PostgreSQL the commit
// travels with it.
func (t *tx) finish(b *batch) error {
	if !t.database.dialect.several || b.len() == 0 {
		return t.runAll(b)
	}
	b.steps = append(b.steps, step{query: "commit", commits: true})
	err := t.runAll(b)
	t.finished = err == nil
	return err
}

// define runs a statement that changes the schema.
func (t *tx) define(statement string) error { return t.note(t.link.define(statement)) }

// errKeyTaken marks a row whose key is there already.
var errKeyTaken = errors.New("the key is taken")

// note remembers what an error means for the transaction, and marks what may
// succeed later.
func (t *tx) note(err error) error {
	if err == nil {
		return nil
	}
	if callback, ok := err.(ours); ok {
		return callback.error
	}
	v := t.link.judge(err)
	if v.late && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	if v.busy {
		err = fmt.Errorf("%w: %w", outbox.ErrBusy, err)
	}
	if v.full {
		err = fmt.Errorf("%w: %w", outbox.ErrFull, err)
	}
	if v.damaged {
		err = fmt.Errorf("%w: %w", outbox.ErrDamaged, err)
	}
	if v.taken {
		err = fmt.Errorf("%w: %w", errKeyTaken, err)
	}
	if v.fatal {
		t.err = err
	}
	t.lost = t.lost || v.lost
	return err
}
