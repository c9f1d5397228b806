package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Migration is one migration of a database's schema.
type Migration struct {
	Database  string     `json:"database"` // journal or projections
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil when it is pending
}

// newProvider reads the migrations of the database's schema.
func (d *DB) newProvider() (*goose.Provider, error) {
	files, err := d.migrationFiles()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(d.Dialect.goose, d.pool, files, goose.WithDisableGlobalRegistry(true), goose.WithTableName(d.versionTable()))
}

// migrationFiles are the texts of the migrations.
func (d *DB) migrationFiles() (fs.FS, error) {
	files, err := fs.Sub(d.config.Migrations, d.Dialect.name+"/"+d.Name)
	if err == nil && d.Schema != "" {
		files = prefixed{files, d.settings + ";\n"}
	}
	return files, err
}

// versionTable is goose's table of applied migrations.
func (d *DB) versionTable() string {
	if d.Schema != "" {
		return d.Schema + "." + goose.DefaultTablename
	}
	return goose.DefaultTablename
}

// create applies all migrations to an empty database in one transaction: a process that is killed
// meanwhile leaves it empty.
func (d *DB) create(ctx context.Context, provider *goose.Provider) error {
	files, err := d.migrationFiles()
	if err != nil {
		return err
	}
	versions, err := database.NewStore(d.Dialect.goose, d.versionTable())
	if err != nil {
		return err
	}
	t, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	err = errors.Join(versions.CreateVersionTable(ctx, t), versions.Insert(ctx, t, database.InsertRequest{}))
	for _, source := range provider.ListSources() {
		var text []byte
		if err == nil {
			text, err = fs.ReadFile(files, source.Path)
		}
		if err == nil {
			_, err = t.ExecContext(ctx, string(text)) // without arguments the text may be several statements
		}
		if err == nil {
			err = versions.Insert(ctx, t, database.InsertRequest{Version: source.Version})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", source.Path, err)
		}
	}
	return t.Commit()
}

// prefixed is a directory of migrations whose transactions begin with settings, since a
// connection behind a proxy keeps none.
type prefixed struct {
	fs.FS
	settings string
}

const up = "-- +goose Up\n"

// Open opens a migration with the settings inserted.
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

// rewritten is a file with changed content.
type rewritten struct {
	fs.File
	content io.Reader
}

// Read reads the content.
func (r rewritten) Read(b []byte) (int, error) { return r.content.Read(b) }

// peek reads one row outside the sessions, which need the schema to exist.
func (d *DB) peek(ctx context.Context, dest any, query string, args ...any) error {
	t, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	if d.settings != "" {
		if _, err := t.ExecContext(ctx, d.settings, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return t.QueryRowContext(ctx, query, args...).Scan(dest)
}

// migrateTries is how many consecutive attempts to migrate may fail without progress.
const migrateTries = 5

// migrate migrates the schema to this program's version. Several processes may start at once:
// one that loses the race for a migration finds it done.
func (d *DB) migrate(ctx context.Context) error {
	provider, err := d.provider()
	if err != nil {
		return fmt.Errorf("read migrations of the %s database: %w", d.Name, err)
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
			if have == 0 {
				return d.create(ctx, provider)
			}
			_, err := provider.Up(ctx)
			return err
		})
		if err != nil && tries == migrateTries {
			return d.failedTo("migrate", err)
		}
	}
}

// failedTo wraps an error at the start. A missing privilege is reported as such.
func (d *DB) failedTo(what string, err error) error {
	if pgCode(err) == forbidden {
		return outbox.Setup("the user of the URL may not %s the %s database %s: %v; "+anotherUser, what, d.Name, d.place, pgMessage(err))
	}
	return fmt.Errorf("%s the %s database: %w", what, d.Name, err)
}

// forbidden is the SQLSTATE of a missing privilege.
const forbidden = "42501"

const anotherUser = "connect as the user who runs outboxweb serve, or grant this one the same rights"

// Forbidden turns a missing privilege on PostgreSQL into an *outbox.Refusal with
// outbox.ErrSetup. Any other error is returned unchanged.
func Forbidden(err error) error {
	if pgCode(err) != forbidden {
		return err
	}
	return outbox.Setup("PostgreSQL refuses this to the user of the URL: %v; "+anotherUser, pgMessage(err))
}

// recognize checks that this is the expected one of the two databases.
func (d *DB) recognize(ctx context.Context) error {
	var tables int
	err := d.peek(ctx, &tables, d.Dialect.CountTables, d.config.Marks[d.Name])
	switch {
	case err != nil:
		return fmt.Errorf("look at the %s database: %w", d.Name, err)
	case tables == 0:
		return outbox.Setup("%s is not a %s database; are %s and %s swapped, or the same?", d.place, d.Name, d.config.setting("journal-db"), d.config.setting("projections-db"))
	}
	return nil
}

// versions reads the database's version and the newest one that this program has.
func (d *DB) versions(ctx context.Context, provider *goose.Provider) (have, want int64, err error) {
	want = newest(provider)
	var tables int
	err = d.peek(ctx, &tables, d.Dialect.CountTables, "goose_db_version")
	if err != nil || tables == 0 {
		return 0, want, err
	}
	err = d.peek(ctx, &have, "select coalesce(max(version_id), 0) from goose_db_version")
	return have, want, err
}

// newest is the version of a database after all migrations.
func newest(provider *goose.Provider) int64 {
	sources := provider.ListSources() // sorted by version
	return sources[len(sources)-1].Version
}

// Ready migrates the schema to this program's version and creates the sessions.
func (d *DB) Ready(ctx context.Context) error {
	if err := d.migrate(ctx); sqliteFull(err, d.path) {
		return fmt.Errorf("%w: %w", outbox.ErrFull, err)
	} else if err != nil {
		return err
	}
	return d.connect(ctx)
}

// Migrations lists the migrations of the database, in order.
func (d *DB) Migrations(ctx context.Context) (steps []Migration, err error) {
	provider, err := d.provider()
	if err != nil {
		return nil, err
	}
	err = d.Read(ctx, func(t *Tx) error {
		for _, source := range provider.ListSources() {
			m := Migration{Database: d.Name, Version: source.Version, Name: source.Path}
			var applied string
			found, err := t.One([]any{&applied}, "select cast(tstamp as text) from goose_db_version where version_id = $1", source.Version)
			if err != nil {
				return err
			}
			if when, err := time.Parse(time.DateTime, applied); found && err == nil {
				m.AppliedAt = &when
			}
			steps = append(steps, m)
		}
		return nil
	})
	return steps, err
}

// Version reads the database's current version and the newest one that this program has.
func (d *DB) Version(ctx context.Context) (have, want int64, err error) {
	provider, err := d.provider()
	if err != nil {
		return 0, 0, err
	}
	err = d.Read(ctx, func(t *Tx) error {
		_, err := t.One([]any{&have}, "select max(version_id) from goose_db_version")
		return err
	})
	return have, newest(provider), err
}
