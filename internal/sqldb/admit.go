package sqldb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
)

// missingError means that the file, database or schema of a URL does not exist.
type missingError struct{ what string }

func (m *missingError) Error() string { return m.what + " does not exist" }

// peek opens the database only to read its version; it creates and changes nothing. It returns
// a *missingError when the database does not exist.
func (l Location) peek(ctx context.Context, name string) (*DB, error) {
	if l.postgres != nil {
		return peekPostgres(ctx, name, l.postgres, l.config)
	}
	return peekSQLite(name, l.path, l.config)
}

// Admit refuses a database that may not be created or migrated, one of a newer version, and the
// journal in place of the projections or the reverse.
func (l Location) Admit(ctx context.Context, name string) error {
	d, err := l.peek(ctx, name)
	missing, absent := errors.AsType[*missingError](err)
	switch {
	case absent && l.config.NoCreate:
		return event.Setup("%v; name the right one with %s, or create it with outboxweb migrate", missing, l.config.setting(name+"-db"))
	case absent:
		return nil
	case err != nil:
		return err
	}
	defer d.pool.Close()
	have, want, err := d.standing(ctx)
	switch {
	case err != nil:
		return err
	case have == 0 && l.config.NoCreate:
		return event.Setup("the %s database %s is empty; name the right one with %s, or create its tables with outboxweb migrate", name, d.place, l.config.setting(name+"-db"))
	case have > 0 && have < want && l.config.NoMigrate:
		return event.Setup("the %s database %s has version %d and this program needs %d; run outboxweb migrate", name, d.place, have, want)
	}
	return nil
}

// lastUnreleased is the revision whose program still migrates databases from before 0.1.0.
const lastUnreleased = "9868c124"

// standing reads the database's version and the newest one that this program has. It refuses a
// newer database, one from before the first release, and the journal in place of the projections
// or the reverse.
func (d *DB) standing(ctx context.Context) (have, want int64, err error) {
	all, err := d.migrations()
	if err != nil {
		return 0, 0, fmt.Errorf("read migrations of the %s database: %w", d.Name, err)
	}
	want = newest(all)
	have, err = d.version(ctx)
	switch {
	case err != nil && d.Schema == "":
		return 0, 0, d.unopenable(err)
	case err != nil:
		return 0, 0, d.failedTo("read the version of", err)
	case have == 0:
		return have, want, nil
	}
	err = d.recognize(ctx)
	switch {
	case err != nil:
	case have > want:
		err = event.Setup("the %s database %s has version %d and this program supports %d: it belongs to a newer outboxweb; use that one", d.Name, d.place, have, want)
	case have < all[0].Version:
		err = event.Setup("the %s database %s has version %d, from before outboxweb 0.1.0; the revision %s migrates it: run its outboxweb migrate, from go install github.com/outboxweb/outboxweb/cmd/outboxweb@%s, then this program", d.Name, d.place, have, lastUnreleased, lastUnreleased)
	}
	return have, want, err
}

// Plan lists the migrations that the database lacks.
func (l Location) Plan(ctx context.Context, name string) ([]Migration, error) {
	var have int64
	d, err := l.peek(ctx, name)
	if err == nil {
		have, _, err = d.standing(ctx)
		d.pool.Close()
	}
	if _, absent := errors.AsType[*missingError](err); err != nil && !absent {
		return nil, err
	}
	dialect := sqliteDialect.name
	if l.postgres != nil {
		dialect = postgresDialect(1).name
	}
	all, err := l.config.migrations(dialect, name)
	return slices.DeleteFunc(all, func(m Migration) bool { return m.Version <= have }), err
}
