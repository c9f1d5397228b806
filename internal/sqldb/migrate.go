package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Migration is one migration of a database's schema.
type Migration struct {
	Database  string     `json:"database"` // journal or projections
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil when it is pending
}

// migrations are the migrations of a database, in order.
func (c Config) migrations(dialect, name string) ([]Migration, error) {
	files, err := fs.Glob(c.Migrations, path.Join(dialect, name, "*.sql"))
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(files))
	for i, file := range files {
		m := Migration{Database: name, Name: path.Base(file)}
		if _, err := fmt.Sscanf(m.Name, "%05d_", &m.Version); err != nil {
			return nil, fmt.Errorf("the migration %s has no version: %w", file, err)
		}
		all[i] = m
	}
	return all, nil
}

func (d *DB) migrations() ([]Migration, error) { return d.config.migrations(d.Dialect.name, d.Name) }

// outside runs fn in a transaction outside the sessions, which need the schema to exist.
func (d *DB) outside(ctx context.Context, fn func(*sql.Tx) error) error {
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
	if err := fn(t); err != nil {
		return err
	}
	return t.Commit()
}

// peek reads one row outside the sessions.
func (d *DB) peek(ctx context.Context, dest any, query string, args ...any) error {
	return d.outside(ctx, func(t *sql.Tx) error { return t.QueryRowContext(ctx, query, args...).Scan(dest) })
}

// migrate migrates the schema to this program's version in one transaction, so that a process that
// is killed leaves it as it was. Of several processes that start at once one migrates, and the
// others wait for it.
func (d *DB) migrate(ctx context.Context) error {
	all, err := d.migrations()
	if err != nil {
		return fmt.Errorf("read migrations of the %s database: %w", d.Name, err)
	}
	have, err := d.version(ctx)
	switch {
	case err != nil:
		return d.failedTo("read the version of", err)
	case have >= newest(all):
		return nil
	}
	err = d.patiently(ctx, func() error {
		return d.outside(ctx, func(t *sql.Tx) error { return d.apply(ctx, t, all) })
	})
	if err != nil {
		return d.failedTo("migrate", err)
	}
	return nil
}

// apply applies the migrations that the database lacks.
func (d *DB) apply(ctx context.Context, t *sql.Tx, all []Migration) error {
	if d.Schema != "" {
		if _, err := t.ExecContext(ctx, "select pg_advisory_xact_lock("+d.migrationLock()+")"); err != nil {
			return err
		}
	}
	have, err := d.versionIn(ctx, t)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Version <= have {
			continue
		}
		text, err := fs.ReadFile(d.config.Migrations, path.Join(d.Dialect.name, d.Name, m.Name))
		if err == nil {
			_, err = t.ExecContext(ctx, string(text)) // without arguments the text may be several statements
		}
		if err == nil {
			_, err = t.ExecContext(ctx, "insert into goose_db_version (version_id, is_applied) values ($1, true)", m.Version)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// version reads the database's version outside the sessions; 0 means that it has no tables.
func (d *DB) version(ctx context.Context) (have int64, err error) {
	err = d.patiently(ctx, func() error {
		return d.outside(ctx, func(t *sql.Tx) (err error) {
			have, err = d.versionIn(ctx, t)
			return err
		})
	})
	return have, err
}

func (d *DB) versionIn(ctx context.Context, t *sql.Tx) (have int64, err error) {
	var tables int
	err = t.QueryRowContext(ctx, d.Dialect.CountTables, "goose_db_version").Scan(&tables)
	if err == nil && tables > 0 {
		err = t.QueryRowContext(ctx, "select coalesce(max(version_id), 0) from goose_db_version").Scan(&have)
	}
	return have, err
}

// newest is the version of a database after all migrations.
func newest(all []Migration) int64 { return all[len(all)-1].Version }

// failedTo wraps an error at the start. A missing privilege is reported as such.
func (d *DB) failedTo(what string, err error) error {
	if pgCode(err) == forbidden {
		return event.Setup("the user of the URL may not %s the %s database %s: %v; "+anotherUser, what, d.Name, d.place, pgMessage(err))
	}
	return fmt.Errorf("%s the %s database: %w", what, d.Name, err)
}

// forbidden is the SQLSTATE of a missing privilege.
const forbidden = "42501"

const anotherUser = "connect as the user who runs outboxweb serve, or grant this one the same rights"

// Forbidden turns a missing privilege on PostgreSQL into an *event.Refusal with
// event.ErrSetup. Any other error is returned unchanged.
func Forbidden(err error) error {
	if pgCode(err) != forbidden {
		return err
	}
	return event.Setup("PostgreSQL refuses this to the user of the URL: %v; "+anotherUser, pgMessage(err))
}

// recognize checks that this is the expected one of the two databases.
func (d *DB) recognize(ctx context.Context) error {
	var tables int
	err := d.peek(ctx, &tables, d.Dialect.CountTables, d.config.Marks[d.Name])
	switch {
	case err != nil:
		return fmt.Errorf("look at the %s database: %w", d.Name, err)
	case tables == 0:
		return event.Setup("%s is not a %s database; are %s and %s swapped, or the same?", d.place, d.Name, d.config.setting("journal-db"), d.config.setting("projections-db"))
	}
	return nil
}

// Ready migrates the schema to this program's version and creates the sessions.
func (d *DB) Ready(ctx context.Context) error {
	if err := d.migrate(ctx); sqliteFull(err, d.path) {
		return fmt.Errorf("%w: %w", event.ErrFull, err)
	} else if err != nil {
		return err
	}
	return d.connect(ctx)
}

// Migrations lists the migrations of the database, in order.
func (d *DB) Migrations(ctx context.Context) ([]Migration, error) {
	all, err := d.migrations()
	if err != nil {
		return nil, err
	}
	err = d.Read(ctx, func(t *Tx) error {
		for i, m := range all {
			var applied string
			found, err := t.One([]any{&applied}, "select cast(tstamp as text) from goose_db_version where version_id = $1", m.Version)
			if err != nil {
				return err
			}
			if when, err := time.Parse(time.DateTime, applied); found && err == nil {
				all[i].AppliedAt = &when
			}
		}
		return nil
	})
	return all, err
}

// Version reads the database's current version and the newest one that this program has.
func (d *DB) Version(ctx context.Context) (have, want int64, err error) {
	all, err := d.migrations()
	if err != nil {
		return 0, 0, err
	}
	err = d.Read(ctx, func(t *Tx) error {
		_, err := t.One([]any{&have}, "select max(version_id) from goose_db_version")
		return err
	})
	return have, newest(all), err
}
