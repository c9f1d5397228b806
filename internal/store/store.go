// Package store is the core on the journal database: the journal, the rows of campaigns and of the
// outbox, actions with their audit records, and summaries of the state. It also opens the
// projections database, which package readmodel works on. A method that appends or acts is one use
// case in one transaction per database; nothing relies on a transaction across the two.
// Everything beyond this core is in packages of its own. For them the store exports Tx, whose
// methods are parts of such a transaction, and the two databases, and calls the hooks that they
// register.
//
// A *Store is safe for concurrent use, by several goroutines and by several processes on the
// same files.
package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/migrations"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Options are the databases to open and the rules to apply.
type Options struct {
	Journal     string // URL: sqlite:PATH, or postgres://…
	Projections string // likewise
	NoCreate    bool   // refuse databases that are missing
	NoMigrate   bool   // refuse databases of an older version
	ReadOnly    bool   // refuse every append and action with event.ErrReadOnly
	Embedded    bool   // errors name fields of outboxweb.Config instead of flags
	Mode        campaign.Mode
	Retry       event.Retry
	// ReasonFrom is the number of released rows from which an action needs a reason: 1 means every
	// action, 0 none.
	ReasonFrom int64
	MaxPayload int              // bytes; 0 means event.DefaultMaxPayload
	Now        func() time.Time // nil means time.Now

	// EventTimeout is the most time one event may take to apply; 0 means
	// event.DefaultEventTimeout.
	EventTimeout time.Duration
	// Wait is how long a caller waits for a connection; 0 means sqldb.LockWait.
	Wait time.Duration
	// Lease is how long a worker's lease on a campaign lasts; 0 means event.DefaultLease. On
	// PostgreSQL a transaction whose process stalls in the middle is aborted after half of it.
	Lease time.Duration
	// Concurrency is how many waves this process works on at a time; 0 means
	// event.DefaultConcurrency. It determines the number of connections to PostgreSQL.
	Concurrency int
	// Patience is how long an action, or a run, waits for a campaign that another leases; 0 means
	// 2 seconds.
	Patience time.Duration
	Log      *slog.Logger // what was found about the databases; nil discards it
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
	summary  Snapshot[campaign.Summary]
	totals   keptTotals
	holdings Snapshot[map[string]campaign.HeldLeases]
	groups   Snapshot[campaign.ErrorGroups]

	// Hooks of other packages; see the methods of the same names.
	onChange    []func()
	onSample    []func(ctx context.Context, minute int64) error
	onSummary   []func(context.Context, *campaign.Summary) func(*Tx, *campaign.Summary) error
	onCheck     []CheckStep
	onReconcile []func(context.Context) error
	onWentBack  []func(*campaign.WentBack) (recorded func())

	lineage  lineage
	drift    atomic.Int64
	opened   int64                  // in microseconds
	wrong    atomic.Bool            // the journal was found to be the wrong one, and not yet right again
	instance atomic.Pointer[string] // the instance that this process is; nil without a worker
	stalled  atomic.Pointer[string] // why nothing is applied here; nil or empty when it is
	fits     atomic.Bool            // the projections were found to belong to this journal, see foreignProjections
	clocks   clocks
	closing  sync.Once
}

// Open opens both databases, creating and migrating them unless NoCreate and NoMigrate say
// otherwise. A problem that the operator must fix first is an *event.Refusal with
// event.ErrSetup, before anything is created. With a full disk it is event.ErrFull as well.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Mode = cmp.Or(o.Mode, campaign.ModeOutbox)
	o.MaxPayload = cmp.Or(o.MaxPayload, event.DefaultMaxPayload)
	o.EventTimeout = cmp.Or(o.EventTimeout, event.DefaultEventTimeout)
	o.Lease = cmp.Or(o.Lease, event.DefaultLease)
	o.Concurrency = cmp.Or(o.Concurrency, event.DefaultConcurrency)
	o.Wait = cmp.Or(o.Wait, sqldb.LockWait)
	o.Patience = cmp.Or(o.Patience, 2*time.Second)
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

// Config is the configuration to open both databases with.
func (o Options) Config() sqldb.Config {
	return sqldb.Config{Migrations: migrations.Files, Marks: map[string]string{"journal": "events", "projections": "projection_watermarks"},
		NoCreate: o.NoCreate, NoMigrate: o.NoMigrate, Embedded: o.Embedded, Lease: o.Lease, EventTimeout: o.EventTimeout, Wait: o.Wait, Concurrency: o.Concurrency, Snapshots: readmodel.LiveReaders, Private: "projections", Log: o.Log}
}

// locations are the locations of the two databases, which must not be one file.
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

// locate resolves both databases and checks that they are different ones.
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
	s.journal.OnConnect(s.compareJournal)
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

// Close waits for running transactions and closes both databases. Further calls do nothing.
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

// Examine checks that both databases can be written to as they are run, before a process relies on it.
// What an operator must do first is an event.ErrSetup.
func (s *Store) Examine(ctx context.Context) error {
	return errors.Join(s.journal.Examine(ctx), s.readmodel.Examine(ctx))
}

// Connections are the connections of this process to both databases, by purpose.
func (s *Store) Connections() []database.Connections {
	return slices.Concat(s.journal.Connections(), s.readmodel.Connections())
}

// both returns the two databases.
func (s *Store) both() []*sqldb.DB { return []*sqldb.DB{s.journal.DB, s.readmodel.DB} }

// Mode is the mode the store was opened with.
func (s *Store) Mode() campaign.Mode { return s.options.Mode }

// Lease is how long a worker's lease on a campaign lasts.
func (s *Store) Lease() time.Duration { return s.options.Lease }

// Patience is how long an action, or a run, waits for a campaign that another leases.
func (s *Store) Patience() time.Duration { return s.options.Patience }

// ReadOnly reports whether the store refuses every change.
func (s *Store) ReadOnly() bool { return s.options.ReadOnly }

// Shared reports whether processes on other machines may work on the same databases.
func (s *Store) Shared() bool { return !s.journal.Dialect.OneWriter }

// EventTimeout is the most time one event may take to apply.
func (s *Store) EventTimeout() time.Duration { return s.options.EventTimeout }

// ReadModel is the projections database.
func (s *Store) ReadModel() *readmodel.Database { return s.readmodel }

// Journal is the journal database.
func (s *Store) Journal() *Database { return s.journal }

// OnChange registers a function to be called after every action, so that pages show its effect.
// It must not be called once the store is in use.
func (s *Store) OnChange(forget func()) { s.onChange = append(s.onChange, forget) }

// OnSample registers a function that writes its own samples, once a minute; minute is in
// microseconds. It must not be called once the store is in use.
func (s *Store) OnSample(sample func(ctx context.Context, minute int64) error) {
	s.onSample = append(s.onSample, sample)
}

// SampleBesides runs the registered functions.
func (s *Store) SampleBesides(ctx context.Context, minute int64) error {
	for _, sample := range s.onSample {
		if err := sample(ctx, minute); err != nil {
			return err
		}
	}
	return nil
}

// OnSummary registers a contribution to summaries: prepare is called before the journal is
// read, and the function it returns in the transaction that reads it. It must not be called
// once the store is in use.
func (s *Store) OnSummary(prepare func(context.Context, *campaign.Summary) func(*Tx, *campaign.Summary) error) {
	s.onSummary = append(s.onSummary, prepare)
}

// CheckStep is a part of a check that does not concern one campaign.
type CheckStep struct {
	About string
	Check func(context.Context, *campaign.CheckReport) error
}

// OnCheck registers a further step of checks; about names the data it reads, for the report
// that it cannot be read. It must not be called once the store is in use.
func (s *Store) OnCheck(about string, check func(context.Context, *campaign.CheckReport) error) {
	s.onCheck = append(s.onCheck, CheckStep{about, check})
}

// Checks returns the registered check steps.
func (s *Store) Checks() []CheckStep { return s.onCheck }

// OnReconcile registers a further step of Reconcile. It must not be called once the store is in
// use.
func (s *Store) OnReconcile(do func(context.Context) error) {
	s.onReconcile = append(s.onReconcile, do)
}

// ReconcileBesides runs the registered reconcile steps.
func (s *Store) ReconcileBesides(ctx context.Context) error {
	for _, do := range s.onReconcile {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Changed invalidates all cached views of the databases. It is called after every action,
// whichever way it came in.
func (s *Store) Changed() {
	s.summary.Forget()
	s.groups.Forget()
	for _, forget := range s.onChange {
		forget()
	}
}

// Now is the timestamp for a transaction, in microseconds since 1970 UTC.
func (s *Store) Now() int64 { return s.options.Now().UnixMicro() }

// Refuse returns the refusal of changes by a read-only store; nil for any other.
func (s *Store) Refuse() error {
	if s.options.ReadOnly {
		return &event.Refusal{Err: event.ErrReadOnly, Detail: "this server is read-only and refuses every change"}
	}
	return nil
}

// Opened is the time at which the store was opened, in microseconds.
func (s *Store) Opened() int64 { return s.opened }

// CountDrift counts a campaign whose row a self-check corrected; see Summary.
func (s *Store) CountDrift() { s.drift.Add(1) }

// Retry is the retry policy for failed events.
func (s *Store) Retry() event.Retry { return s.options.Retry }

// JournalID identifies this journal: receivers of its events identify them by it and the
// position. A restored journal keeps its id.
func (s *Store) JournalID(ctx context.Context) (string, error) {
	return Reading(ctx, s, "read the journal's id", func(t *Tx) (id string, err error) {
		_, err = t.One([]any{&id}, `select id from journal_identity`)
		return id, err
	})
}
