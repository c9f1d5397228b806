package readmodel

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// lockInstall is the lock class for installing projections.
const lockInstall = 0x6f757469

// Projection is what the database needs to know of a projection.
type Projection struct {
	Name    string
	Version string   // hash of its definition
	Tables  []string // created by Schema
	Schema  []string // statements, in order
}

// Install creates the missing tables of projections and records the versions. An existing table
// is left unchanged. A wrong schema statement is a *SchemaError.
func (d *Database) Install(ctx context.Context, all []Projection) error {
	installed, err := d.projectionVersions(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if installed[p.Name].Version == p.Version {
			continue
		}
		if err := d.installProjection(ctx, p, installed[p.Name].Version == ""); err != nil {
			return err
		}
	}
	return nil
}

// SchemaError says which schema statement of a projection failed.
type SchemaError struct {
	Projection string
	Statement  int // index into Projection.Schema
	Err        error
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("create the tables of projection %q: %v", e.Projection, e.Err)
}

func (e *SchemaError) Unwrap() error { return e.Err }

// installProjection records the projection's version as the one that applies events from now on. Rows
// that several versions have built are recorded as built by none: going back to the version that built
// most of them does not make the others right.
func (d *Database) installProjection(ctx context.Context, p Projection, first bool) error {
	return d.write(ctx, func(t *tx) error {
		if err := t.Lock(lockInstall, ""); err != nil { // one process at a time
			return err
		}
		exist, err := t.tablesExist(p.Tables)
		if err != nil {
			return err
		}
		if !exist {
			for i, statement := range p.Schema {
				if err := t.Define(statement); err != nil {
					return &SchemaError{Projection: p.Name, Statement: i, Err: err}
				}
			}
		}
		built := p.Version
		if first && !exist {
			exist, err = t.One([]any{new(string)}, `select campaign_id from projection_watermarks where campaign_id > '' and applied_seq > 0 order by campaign_id limit 1`)
			if err != nil {
				return err
			}
		}
		if exist && first {
			built = "" // the tables were created elsewhere, or lack earlier events
		}
		_, err = t.Exec(`
insert into projection_versions (projection, version, built_version, installed_at)
values ($1, $2, $3, $4)
on conflict (projection) do update set
  version = excluded.version,
  installed_at = excluded.installed_at,
  built_version = case
    when projection_versions.version <> projection_versions.built_version
      and exists (select 1 from projection_watermarks w where w.updated_at >= projection_versions.installed_at) then ''
    else projection_versions.built_version
  end`, p.Name, p.Version, built, d.options.Now())
		return err
	})
}

func (t *tx) tablesExist(tables []string) (bool, error) {
	for _, name := range tables {
		var found int
		if _, err := t.One([]any{&found}, t.Dialect().CountTables, name); err != nil || found == 0 {
			return false, err
		}
	}
	return len(tables) > 0, nil
}

// CheckStatement checks one statement of a projection against the database without running it.
func (d *Database) CheckStatement(ctx context.Context, query string) error {
	return d.read(ctx, func(t *tx) error { return t.Prepare(query) })
}

// Version is the database's record of a projection as a whole.
type Version struct {
	Version, Built string
	Pause          *outbox.Pause // for all campaigns; nil when there is none
}

// SelectVersions reads the records of all projections, for CollectVersions.
const SelectVersions = `select projection, version, built_version, paused_at, paused_by, reason from projection_versions`

// CollectVersions scans rows of SelectVersions into a map by projection name.
func CollectVersions(into map[string]Version) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var name, by, reason string
		var paused sql.NullInt64
		var v Version
		err := row.Scan(&name, &v.Version, &v.Built, &paused, &by, &reason)
		v.Pause = PauseOf(paused, by, reason)
		into[name] = v
		return err
	}
}

// PauseOf is the pause of a record; nil where there is none.
func PauseOf(when sql.NullInt64, by, reason string) *outbox.Pause {
	if !when.Valid {
		return nil
	}
	return &outbox.Pause{By: by, At: sqldb.At(when.Int64), Reason: reason}
}

// Versions are the versions of the projections installed last, by name.
func (d *Database) Versions(ctx context.Context) (map[string]string, error) {
	installed, err := d.projectionVersions(ctx)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]string, len(installed))
	for name, v := range installed {
		versions[name] = v.Version
	}
	return versions, nil
}

// BuiltVersions returns the versions of the definitions that built the rows, by projection; empty
// for a projection whose rows were built by several or unknown ones.
func (d *Database) BuiltVersions(ctx context.Context) (map[string]string, error) {
	installed, err := d.projectionVersions(ctx)
	if err != nil {
		return nil, err
	}
	built := make(map[string]string, len(installed))
	for name, v := range installed {
		built[name] = v.Built
	}
	return built, nil
}

func (d *Database) projectionVersions(ctx context.Context) (map[string]Version, error) {
	versions := make(map[string]Version)
	err := d.read(ctx, func(t *tx) error {
		return t.Each(CollectVersions(versions), SelectVersions)
	})
	if err != nil {
		return nil, fmt.Errorf("read projection versions: %w", err)
	}
	return versions, nil
}
