package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"outboxweb/internal/outbox"
)

//go:embed migrations
var migrationFiles embed.FS

// Migration is one step of a database's schema.
type Migration struct {
	Database  string     `json:"database"` // journal or projections
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil when it is still to come
}

// newProvider reads the steps of the database's schema.
func (d *database) newProvider() (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations/"+d.dialect.name+"/"+d.name)
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if d.schema != "" {
		files = prefixed{files, d.settings + ";\nset local timezone to 'UTC';\n"}
		options = append(options, goose.WithTableName(d.schema+".goose_db_version"))
	}
	return goose.NewProvider(d.dialect.goose, d.pool, files, options...)
}

// prefixed is a directory of migrations whose transactions begin with some
// settings: a connection behind a proxy keeps none of its own.
type prefixed struct {
	fs.FS
	settings string
}

const up = "-- +goose Up\n"

// Open opens a migration with the settings in it.
func (p prefixed) Open(name string) (fs.File, error) {
	file, err := p.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return rewritten{file, strings.NewReader(strings.Replace(string(text), up, up+p.settings, 1))}, nil
}

// rewritten is a file with another content.
type rewritten struct {
	fs.File
	content io.Reader
}

// Read reads the content.
func (r rewritten) Read(b []byte) (int, error) { return r.content.Read(b) }

// peek reads one row outside the sessions, which want the schema in place.
func (d *database) peek(ctx context.Context, dest any, query string, args ...any) error {
	t, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	if d.settings != "" {
		if _, err := t.ExecContext(ctx, d.settings); err != nil {
			return err
		}
	}
	return t.QueryRowContext(ctx, query, args...).Scan(dest)
}

// migrateTries is how often in a row bringing a schema further may fail without
// getting anywhere.
const migrateTries = 5

// migrate brings the schema to this program's version. Several processes may
// start at once: one that loses the race to a step finds that step done.
func (d *database) migrate(ctx context.Context) error {
	provider, err := d.provider()
	if err != nil {
		return fmt.Errorf("read migrations of the %s database: %w", d.name, err)
	}
	reached, tries := int64(-1), 0
	for {
		have, want, err := d.versions(ctx, provider)
		if tries++; err == nil && have > reached {
			reached, tries = have, 1
		}
		switch {
		case err != nil && tries == migrateTries:
			return d.failedTo("read the version of", err)
		case err != nil:
			continue
		case have >= want:
			return nil
		}
		err = d.patiently(ctx, func() error {
			_, err := provider.Up(ctx)
			return err
		})
		if err != nil && tries == migrateTries {
			return d.failedTo("migrate", err)
		}
	}
}

// failedTo says what failed at the start. A user without the rights is told so.
func (d *database) failedTo(what string, err error) error {
	if pgCode(err) == forbidden {
		return outbox.Setup("the user of the URL may not %s the %s database %s: %v; "+anotherUser, what, d.name, d.place, pgMessage(err))
	}
	return fmt.Errorf("%s the %s database: %w", what, d.name, err)
}

// forbidden is the SQLSTATE of a right that is missing.
const forbidden = "42501"

const anotherUser = "connect as the user who runs outboxweb serve, or grant this one the same rights"

// Forbidden is a sentence for a person about a right on PostgreSQL that is
// missing, as *outbox.Refusal with outbox.ErrSetup. Any other error comes back as
// it is.
func Forbidden(err error) error {
	if pgCode(err) != forbidden {
		return err
	}
	return outbox.Setup("PostgreSQL refuses this to the user of the URL: %v; "+anotherUser, pgMessage(err))
}

// recognize makes sure that the database is the one of the two it is taken for.
func (d *database) recognize(ctx context.Context) error {
	table := map[string]string{"journal": "events", "projections": "projection_watermarks"}[d.name]
	var tables int
	err := d.peek(ctx, &tables, d.dialect.tables, table)
	switch {
	case err != nil:
		return fmt.Errorf("look at the %s database: %w", d.name, err)
	case tables == 0:
		return outbox.Setup("%s is not a %s database; are --journal-db and --projections-db exchanged, or the same?", d.place, d.name)
	}
	return nil
}

// versions reads the version the database has and the newest one known here.
func (d *database) versions(ctx context.Context, provider *goose.Provider) (have, want int64, err error) {
	for _, source := range provider.ListSources() {
		want = max(want, source.Version)
	}
	var tables int
	err = d.peek(ctx, &tables, d.dialect.tables, "goose_db_version")
	if err != nil || tables == 0 {
		return 0, want, err
	}
	err = d.peek(ctx, &have, "select coalesce(max(version_id), 0) from goose_db_version")
	return have, want, err
}

// Migrations lists the steps of both databases, in order.
func (s *Store) Migrations(ctx context.Context) ([]Migration, error) {
	var all []Migration
	for _, d := range []*database{s.journal, s.projections} {
		err := d.read(ctx, func(t *tx) error {
			provider, err := d.provider()
			if err != nil {
				return err
			}
			for _, source := range provider.ListSources() {
				m := Migration{Database: d.name, Version: source.Version, Name: source.Path}
				var applied string
				found, err := t.one([]any{&applied}, "select cast(tstamp as text) from goose_db_version where version_id = $1", source.Version)
				if err != nil {
					return err
				}
				if when, err := time.Parse(time.DateTime, applied); found && err == nil {
					m.AppliedAt = &when
				}
				all = append(all, m)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list migrations: %w", err)
		}
	}
	return all, nil
}

// Ready returns one sentence per reason why the store cannot serve, and none
// when it can.
func (s *Store) Ready(ctx context.Context) []string {
	var reasons []string
	for _, d := range []*database{s.journal, s.projections} {
		provider, err := d.provider()
		var have, want int64
		if err == nil {
			err = d.read(ctx, func(t *tx) error {
				for _, source := range provider.ListSources() {
					want = max(want, source.Version)
				}
				_, err := t.one([]any{&have}, "select max(version_id) from goose_db_version")
				return err
			})
		}
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("the %s database cannot be read", d.name))
		case have != want:
			reasons = append(reasons, fmt.Sprintf("the %s database has version %d and this program needs %d", d.name, have, want))
		default:
			if _, full := d.full(); full {
				reasons = append(reasons, fmt.Sprintf("the disk of the %s database is full", d.name))
			}
		}
	}
	if stalled := s.stalled.Load(); stalled != nil && *stalled != "" {
		reasons = append(reasons, "the worker is stalled: "+*stalled)
	}
	if len(reasons) > 0 {
		return reasons
	}
	sum, err := s.Summary(ctx)
	switch {
	case errors.Is(err, outbox.ErrDamaged): // which holds up what it concerns, and no more
	case err != nil:
		reasons = append(reasons, "the databases cannot be read")
	case sum.WrongJournal() || sum.OtherJournal && s.wrong.Load():
		s.wrong.Store(true)
		reasons = append(reasons, sum.OtherJournalText())
	}
	if err == nil && !sum.OtherJournal {
		s.wrong.Store(false)
	}
	return reasons
}

// SetStalled says why the worker of this process applies nothing; empty when it
// does.
func (s *Store) SetStalled(reason string) { s.stalled.Store(&reason) }
