// Package store holds every SQL statement of outboxweb: the journal, the
// outbox, leases, watermarks, acts with their audit records. Each exported
// method is one use case in one transaction per database; nothing relies on a
// transaction across the two.
//
// A *Store is safe for concurrent use, by several goroutines and by several
// processes on the same files.
package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"outboxweb/internal/outbox"
)

// Options says which databases to open and which rules to keep.
type Options struct {
	Journal     string // URL, sqlite:PATH
	Projections string // URL, sqlite:PATH
	NoMigrate   bool   // refuse databases that are missing or of an older version
	ReadOnly    bool   // refuse every append and act with outbox.ErrReadOnly
	Mode        outbox.Mode
	Retry       outbox.Retry
	MaxPayload  int              // bytes; 0 means outbox.DefaultMaxPayload
	Now         func() time.Time // nil means time.Now
}

// Store is the one way to both databases.
type Store struct {
	options     Options
	journal     *database
	projections *database

	wake     atomic.Pointer[func()]
	group    appendGroup
	applied  appliedHub
	snapshot snapshotCache
	drift    atomic.Int64
	closing  sync.Once
}

// Open opens both databases, creating and migrating them unless NoMigrate
// says otherwise. What has to be mended first comes back as *outbox.Refusal
// with outbox.ErrSetup.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Mode == "" {
		o.Mode = outbox.ModeOutbox
	}
	if o.MaxPayload <= 0 {
		o.MaxPayload = outbox.DefaultMaxPayload
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	journalPath, err := parseURL("journal-db", o.Journal)
	if err != nil {
		return nil, err
	}
	projectionsPath, err := parseURL("projections-db", o.Projections)
	if err != nil {
		return nil, err
	}
	if sameFile(journalPath, projectionsPath) {
		return nil, outbox.Setup("--journal-db and --projections-db name the same file %s; they must be two", journalPath)
	}
	s := &Store{options: o}
	if s.journal, err = openReady(ctx, "journal", journalPath, o.NoMigrate); err != nil {
		return nil, err
	}
	if s.projections, err = openReady(ctx, "projections", projectionsPath, o.NoMigrate); err != nil {
		s.journal.close()
		return nil, err
	}
	return s, nil
}

func openReady(ctx context.Context, name, path string, noMigrate bool) (*database, error) {
	d, err := openDatabase(ctx, name, path, noMigrate)
	if err != nil {
		return nil, err
	}
	if err = d.migrate(ctx, noMigrate); err == nil {
		err = d.connect(ctx)
	}
	if err != nil {
		d.readerPool.Close()
		d.writerPool.Close()
		return nil, err
	}
	return d, nil
}

// Close waits for transactions under way and closes both databases. Further
// calls do nothing.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() { err = errors.Join(s.journal.close(), s.projections.close()) })
	return err
}

// Mode is the mode the store was opened with.
func (s *Store) Mode() outbox.Mode { return s.options.Mode }

// ReadOnly reports whether the store refuses every change.
func (s *Store) ReadOnly() bool { return s.options.ReadOnly }

// OnWork registers the function that is called, from the caller's goroutine
// and without blocking, after every append and act that made a row due.
func (s *Store) OnWork(wake func()) { s.wake.Store(&wake) }

func (s *Store) wakeUp() {
	if wake := s.wake.Load(); wake != nil {
		(*wake)()
	}
}

// ProjectionsReader is a read-only pool on the projections database, for
// computing digests. The caller must not close it.
func (s *Store) ProjectionsReader() *sql.DB { return s.projections.readerPool }

// now is the one timestamp of a transaction, in microseconds since 1970 UTC.
func (s *Store) now() int64 { return s.options.Now().UnixMicro() }

// at turns stored microseconds into a time; 0 is the zero time.
func at(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

func atOrNil(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := at(micros.Int64)
	return &t
}

func (s *Store) refuseReadOnly() error {
	if s.options.ReadOnly {
		return &outbox.Refusal{Err: outbox.ErrReadOnly, Detail: "this server is read-only and refuses every change"}
	}
	return nil
}

// Retry is the policy for events that fail.
func (s *Store) Retry() outbox.Retry { return s.options.Retry }
