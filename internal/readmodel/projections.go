package readmodel

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

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
  built_version = `+builtByOne, p.Name, p.Version, built, d.options.Now())
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

// Standing returns which version built the rows, for a process that has loaded one, and whether that is
// another one. It is empty for rows that several versions built, or that nobody knows of: also while
// another version than the loaded one is installed, which another process applies.
func (v Version) Standing(loaded string) (built string, other bool) {
	switch {
	case v.Version == "" && v.Built == "": // not installed
		return "", false
	case v.Built == loaded && v.Version != loaded:
		return "", true
	}
	return v.Built, v.Built != loaded
}

// Leave records that from now on events are applied without the installed projections that are not
// among the named ones. Install then finds that their rows may lack events.
func (d *Database) Leave(ctx context.Context, named []string) error {
	installed, err := d.projectionVersions(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(installed, func(name string, v Version) bool { return v.Version == "" || slices.Contains(named, name) })
	if len(installed) == 0 {
		return nil
	}
	return d.write(ctx, func(t *tx) error {
		if err := t.Lock(lockInstall, ""); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(installed)) {
			if _, err := t.Exec(leaveProjection, name, d.options.Now()); err != nil {
				return fmt.Errorf("leave projection %q: %w", name, err)
			}
		}
		return nil
	})
}

// builtByOne is what built_version becomes when another version is installed, or none: rows of several
// versions are those of none.
const builtByOne = `case
    when projection_versions.version <> projection_versions.built_version
      and exists (select 1 from projection_watermarks w where w.updated_at >= projection_versions.installed_at) then ''
    else projection_versions.built_version
  end`

const leaveProjection = `
update projection_versions
set version = '', installed_at = $2, built_version = ` + builtByOne + `
where projection = $1
  and version <> ''`

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

// Left returns the names of the projections that were installed and are not loaded any more.
func (d *Database) Left(ctx context.Context) (names []string, err error) {
	installed, err := d.projectionVersions(ctx)
	for _, name := range slices.Sorted(maps.Keys(installed)) {
		if installed[name].Version == "" {
			names = append(names, name)
		}
	}
	return names, err
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

// BuiltVersions returns the versions of the definitions that built the rows of loaded projections, as
// Standing says, for those that are installed.
func (d *Database) BuiltVersions(ctx context.Context, loaded []outbox.ProjectionInfo) (map[string]string, error) {
	installed, err := d.projectionVersions(ctx)
	if err != nil {
		return nil, err
	}
	built := make(map[string]string, len(loaded))
	for _, p := range loaded {
		if v := installed[p.Name]; v.Version != "" || v.Built != "" {
			built[p.Name], _ = v.Standing(p.Version)
		}
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
