// Package store is the core on the journal database: the journal, the outbox, leases,
// actions with their audit records, and how all of it stands. It opens the projections
// database as well, which package readmodel works on. A method that appends, claims,
// settles or acts is one use case in one transaction per database; nothing relies on
// a transaction across the two. What needs more than this core are packages of their
// own. For them it exports Tx, whose methods are parts of such a transaction, and the
// two databases; it tells them through the hooks that they register.
//
// A *Store is safe for concurrent use, by several goroutines and by several
// processes on the same files.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"outboxweb/internal/migrations"
	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/sqldb"
)

// Options says which databases to open and which rules to keep.
type Options struct {
	Journal     string // URL: sqlite:PATH, or postgres://…
	Projections string // likewise
	NoCreate    bool   // refuse databases that are missing
	NoMigrate   bool   // refuse databases of an older version
	ReadOnly    bool   // refuse every append and act with outbox.ErrReadOnly
	Mode        outbox.Mode
	Retry       outbox.Retry
	// ReasonFrom is the number of released rows from which an action needs a
	// reason: 1 asks every action for one, 0 none.
	ReasonFrom int64
	MaxPayload int              // bytes; 0 means outbox.DefaultMaxPayload
	Now        func() time.Time // nil means time.Now

	// EventTimeout is the most time one event may take to apply; 0 means
	// outbox.DefaultEventTimeout.
	EventTimeout time.Duration
	// Lease is how long a worker's right to a campaign lasts; 0 means
	// outbox.DefaultLease.
	// On PostgreSQL a transaction whose process has stopped in its middle is
	// cut off after half of it.
	Lease time.Duration
	// Concurrency is how many waves this process works on at a time; 0 means
	// outbox.DefaultConcurrency. It decides how many connections it opens to PostgreSQL.
	Concurrency int
}

// Store holds both databases open.
type Store struct {
	options   Options
	journal   *Database
	readmodel *readmodel.Database

	hints    hints
	group    appendGroup
	appended func(events int, took time.Duration) // see OnAppend
	applied  appliedHub
	refusals refusalCounts
	summary  Snapshot[outbox.Summary]
	holdings Snapshot[map[string]outbox.HeldLeases]
	groups   Snapshot[outbox.ErrorGroups]

	// What the rooms around the store are told and asked; see the methods of these
	// names.
	onChange    []func()
	onSample    []func(ctx context.Context, minute int64) error
	onFailure   []func(t *Tx, campaign string, seq int64, f readmodel.Failure, now int64) (dies bool, err error)
	onSummary   []func(context.Context, *outbox.Summary) func(*Tx, *outbox.Summary) error
	onCheck     []CheckStep
	onReconcile []func(context.Context) error
	onEndLeases []func(ctx context.Context, owner string) error

	// histories are those of the hour and of the day.
	histories [2]Snapshot[outbox.History]
	drift     atomic.Int64
	opened    int64                  // when, in microseconds
	wrong     atomic.Bool            // the journal was told to be the wrong one, and is not known to be right
	stalled   atomic.Pointer[string] // why nothing is applied here; nil or empty when it is
	fits      atomic.Bool            // the projections were seen to be of this journal, as far as strange tells
	clocks    clocks
	closing   sync.Once
}

// Open opens both databases, creating and migrating them unless NoCreate and
// NoMigrate say otherwise. What has to be mended first comes back as
// *outbox.Refusal with outbox.ErrSetup, before anything is created. Where there
// is no room it is outbox.ErrFull as well.
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
	if o.EventTimeout <= 0 {
		o.EventTimeout = outbox.DefaultEventTimeout
	}
	if o.Lease <= 0 {
		o.Lease = outbox.DefaultLease
	}
	if o.Concurrency <= 0 {
		o.Concurrency = outbox.DefaultConcurrency
	}
	s := &Store{options: o, opened: o.Now().UnixMicro()}
	s.refusals.write = func() { s.SumRefusals(context.Background()) }
	if err := s.locate(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(s.journal.Ready(ctx), s.readmodel.Ready(ctx)); err != nil {
		s.journal.ClosePools()
		s.readmodel.ClosePools()
		return nil, err
	}
	return s, nil
}

// Config is how both databases are opened.
func (o Options) Config() sqldb.Config {
	return sqldb.Config{Migrations: migrations.Files, Marks: map[string]string{"journal": "events", "projections": "projection_watermarks"},
		NoCreate: o.NoCreate, NoMigrate: o.NoMigrate, Lease: o.Lease, EventTimeout: o.EventTimeout, Concurrency: o.Concurrency, Snapshots: readmodel.LiveReaders}
}

// locations are where the options say that the two databases are, which must
// not be one file.
func (o Options) locations() (journal, projections sqldb.Location, err error) {
	c := o.Config()
	if journal, err = sqldb.ParseURL("journal-db", o.Journal, c); err != nil {
		return journal, projections, err
	}
	if projections, err = sqldb.ParseURL("projections-db", o.Projections, c); err != nil {
		return journal, projections, err
	}
	return journal, projections, sqldb.RefuseSame(journal, projections)
}

// locate finds both databases, and makes sure that they are two.
func (s *Store) locate(ctx context.Context) error {
	journal, projections, err := s.options.locations()
	if err != nil {
		return err
	}
	if err := journal.Admit(ctx, "journal"); err != nil {
		return err
	}
	if err := projections.Admit(ctx, "projections"); err != nil {
		return err
	}
	opened, err := journal.Open(ctx, "journal")
	if err != nil {
		return err
	}
	s.journal = &Database{opened}
	opened, err = projections.Open(ctx, "projections")
	s.readmodel = readmodel.New(opened, readmodel.Options{Now: s.Now, Refuse: s.Refuse})
	s.readmodel.OnAdvance(s.applied.announce)
	if err == nil {
		if err = sqldb.RefuseSameSchema(s.journal.DB, s.readmodel.DB); err != nil {
			s.readmodel.ClosePools()
		}
	}
	if err != nil {
		s.journal.ClosePools()
	}
	return err
}

// Close waits for transactions under way and closes both databases. Further
// calls do nothing.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		s.hints.close()
		s.refusals.close()
		s.sumRefusals(context.Background(), sqldb.FarFuture)
		err = errors.Join(s.journal.Close(), s.readmodel.Close())
	})
	return err
}

// Connections are those of this process to both databases, by what they are for.
func (s *Store) Connections() []outbox.Connections {
	var all []outbox.Connections
	for _, d := range s.both() {
		all = append(all, d.Connections()...)
	}
	return all
}

// both are the two databases.
func (s *Store) both() []*sqldb.DB { return []*sqldb.DB{s.journal.DB, s.readmodel.DB} }

// Mode is the mode the store was opened with.
func (s *Store) Mode() outbox.Mode { return s.options.Mode }

// ReadOnly reports whether the store refuses every change.
func (s *Store) ReadOnly() bool { return s.options.ReadOnly }

// Shared reports whether processes on other machines may work on the same
// databases.
func (s *Store) Shared() bool { return !s.journal.Dialect.OneWriter }

// EventTimeout is the most time one event may take to apply.
func (s *Store) EventTimeout() time.Duration { return s.options.EventTimeout }

// ReadModel is the projections database.
func (s *Store) ReadModel() *readmodel.Database { return s.readmodel }

// Journal is the journal database.
func (s *Store) Journal() *Database { return s.journal }

// OnChange registers what is called after every action, so that a page shows what it
// did. It must not be called once the store is in use.
func (s *Store) OnChange(forget func()) { s.onChange = append(s.onChange, forget) }

// OnSample registers what writes samples of its own, once a minute; minute is in
// microseconds. It must not be called once the store is in use.
func (s *Store) OnSample(sample func(ctx context.Context, minute int64) error) {
	s.onSample = append(s.onSample, sample)
}

// OnFailure registers what is told, in the transaction that settles it, of a failed
// attempt that the row would be tried again after. It reports whether the row dies
// of it. It must not be called once the store is in use.
func (s *Store) OnFailure(failed func(t *Tx, campaign string, seq int64, f readmodel.Failure, now int64) (dies bool, err error)) {
	s.onFailure = append(s.onFailure, failed)
}

// OnSummary registers what adds to summaries: prepare is called before the journal
// is read, and what it returns in the transaction that reads it. It must not be
// called once the store is in use.
func (s *Store) OnSummary(prepare func(context.Context, *outbox.Summary) func(*Tx, *outbox.Summary) error) {
	s.onSummary = append(s.onSummary, prepare)
}

// OnEndLeases registers what ends leases of other kinds with those on campaigns; see
// EndLeases. It must not be called once the store is in use.
func (s *Store) OnEndLeases(end func(ctx context.Context, owner string) error) {
	s.onEndLeases = append(s.onEndLeases, end)
}

// CheckStep is a part of a check that is not of one campaign.
type CheckStep struct {
	About string
	Check func(context.Context, *outbox.CheckReport) error
}

// OnCheck registers what a check looks for besides; about says what it reads, where
// that cannot be read. It must not be called once the store is in use.
func (s *Store) OnCheck(about string, check func(context.Context, *outbox.CheckReport) error) {
	s.onCheck = append(s.onCheck, CheckStep{about, check})
}

// Checks are the steps of a check that were registered.
func (s *Store) Checks() []CheckStep { return s.onCheck }

// OnReconcile registers what Reconcile does besides. It must not be called once the
// store is in use.
func (s *Store) OnReconcile(do func(context.Context) error) {
	s.onReconcile = append(s.onReconcile, do)
}

// ReconcileBesides does what was registered for a reconcile.
func (s *Store) ReconcileBesides(ctx context.Context) error {
	for _, do := range s.onReconcile {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Changed makes whoever keeps a view of what the databases have take a new one:
// after every action, whichever way it came in.
func (s *Store) Changed() {
	s.summary.Forget()
	s.groups.Forget()
	for _, forget := range s.onChange {
		forget()
	}
}

// Now is the one timestamp of a transaction, in microseconds since 1970 UTC.
func (s *Store) Now() int64 { return s.options.Now().UnixMicro() }

// Refuse says that the store refuses every change; nil where it does not.
func (s *Store) Refuse() error {
	if s.options.ReadOnly {
		return &outbox.Refusal{Err: outbox.ErrReadOnly, Detail: "this server is read-only and refuses every change"}
	}
	return nil
}

// Opened is when the store was opened, in microseconds.
func (s *Store) Opened() int64 { return s.opened }

// CountDrift counts a campaign whose row a self-check had to correct; see Summary.
func (s *Store) CountDrift() { s.drift.Add(1) }

// Retry is the policy for events that fail.
func (s *Store) Retry() outbox.Retry { return s.options.Retry }

// JournalID says which journal this is: receivers of its events know them by
// it and the position. A restored journal is the same.
func (s *Store) JournalID(ctx context.Context) (id string, err error) {
	err = s.journal.Read(ctx, func(t *Tx) error {
		_, err := t.One([]any{&id}, `select id from journal_identity`)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the journal's id: %w", err)
	}
	return id, nil
}
