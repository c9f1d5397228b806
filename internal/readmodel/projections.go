package readmodel

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// lockInstall is the lock class for installing projections.
const lockInstall = 0x6f757469

// Projection is what the database needs to know of a projection.
type Projection struct {
	Name    string
	Version string   // hash of its definition
	Tables  []string // in order of creation by Schema
	Schema  []string // statements, in order
	// Drawn are columns, by table, whose numbers the database generates. They are not copied but
	// generated again.
	Drawn map[string][]string
}

// Install creates the missing tables of projections and records the versions. An existing table
// is left unchanged, unless another one of its projection is gone though it is recorded with this
// version: then all of that projection are made again, and it is behind from the first event on in
// every campaign. A wrong schema statement is a *SchemaError.
func (d *Database) Install(ctx context.Context, all []Projection) error {
	installed, err := d.projectionVersions(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		known := installed[p.Name].Version
		if known == p.Version {
			_, err = d.restore(ctx, p)
		} else {
			err = d.installProjection(ctx, sqldb.BeginWrite, p, known)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Restore makes the tables of projections again of which one is gone, as Install does, where the
// recorded version is the given one: another process may have loaded another. It returns a missing
// table of each.
func (d *Database) Restore(ctx context.Context, all []Projection) (restored []string, err error) {
	installed, err := d.projectionVersions(ctx)
	for _, p := range all {
		if err != nil || installed[p.Name].Version != p.Version {
			continue
		}
		var missing string
		if missing, err = d.restore(ctx, p); missing != "" {
			restored = append(restored, missing)
		}
	}
	return restored, err
}

// restore makes the tables of a projection again if one is missing, which it returns. Cursors of all
// campaigns are set then.
func (d *Database) restore(ctx context.Context, p Projection) (missing string, err error) {
	if missing, err = d.Missing(ctx, p.Tables); err == nil && missing != "" {
		err = d.installProjection(ctx, sqldb.BeginPause, p, p.Version)
	}
	return missing, err
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

// installProjection records the projection's version as the one that applies events from now on. One
// that has applied events before is recorded as having built rows: going back to the version that built
// most of them does not make the others right. before is the version that is recorded already.
func (d *Database) installProjection(ctx context.Context, begin sqldb.Begin, p Projection, before string) error {
	first, lost := before == "", begin == sqldb.BeginPause
	return d.WriteFrom(ctx, begin, func(t *sqldb.Tx) error {
		if err := t.Lock(lockInstall, ""); err != nil { // one process at a time
			return err
		}
		missing, err := missingOf(t, p.Tables)
		if err != nil {
			return err
		}
		exist := missing == "" && len(p.Tables) > 0
		if lost = lost && !exist; lost {
			if err := dropTables(t, p.Tables); err != nil {
				return err
			}
		}
		if !exist {
			for i, statement := range p.Schema {
				if err := t.Define(statement); err != nil {
					return &SchemaError{Projection: p.Name, Statement: i, Err: err}
				}
			}
		}
		if lost {
			return oweEverything(t, p, d.options.Now())
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
  built_version = `+builtBefore, p.Name, p.Version, built, d.options.Now())
		return err
	})
}

// dropTables drops those of the tables that exist.
func dropTables(t *sqldb.Tx, tables []string) error {
	for _, name := range slices.Backward(tables) {
		if err := t.Define("drop table if exists " + qualified(t.Schema(), name)); err != nil {
			return fmt.Errorf("drop table %s, to make all tables of its projection again: %w", name, err)
		}
	}
	return nil
}

const (
	asideEverywhere = `
update projection_watermarks
set set_aside = set_aside + 1
where applied_seq > 0
  and not exists (
    select 1
    from projection_cursors c
    where c.campaign_id = projection_watermarks.campaign_id
      and c.projection = $1
      and c.state || '' <> 'live')`

	behindEverywhere = `
insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at, applied_at)
select campaign_id, cast($1 as text), 0, 'behind', cast($2 as bigint), null
from projection_watermarks
where applied_seq > 0
on conflict (campaign_id, projection) do update
set applied_seq = 0, updated_at = excluded.updated_at, applied_at = null,
  state = case when projection_cursors.state = 'paused' then 'paused' else 'behind' end`

	reinstall = `
update projection_versions
set version = $2, built_version = $2, installed_at = $3
where projection = $1`
)

// oweEverything records that a projection has applied no event, anywhere. Nothing may be applied meanwhile.
func oweEverything(t *sqldb.Tx, p Projection, now int64) error {
	var b sqldb.Batch
	b.Exec(nil, asideEverywhere, p.Name)
	b.Exec(nil, behindEverywhere, p.Name, now)
	b.Exec(nil, reinstall, p.Name, p.Version, now)
	if err := t.RunAll(&b); err != nil {
		return fmt.Errorf("record that projection %q lacks its rows: %w", p.Name, err)
	}
	return nil
}

// Missing returns the first of some tables that does not exist; nothing if all do.
func (d *Database) Missing(ctx context.Context, tables []string) (string, error) {
	return sqldb.Reading(ctx, d, "", func(t *sqldb.Tx) (string, error) { return missingOf(t, tables) })
}

func missingOf(t *sqldb.Tx, tables []string) (string, error) {
	for _, name := range tables {
		var found int
		if _, err := t.One([]any{&found}, t.Dialect().CountTables, name); err != nil || found == 0 {
			return name, err
		}
	}
	return "", nil
}

// CheckStatement checks one statement of a projection against the database without running it.
func (d *Database) CheckStatement(ctx context.Context, query string) error {
	return d.Read(ctx, func(t *sqldb.Tx) error { return t.Prepare(query) })
}

// Version is the database's record of a projection as a whole.
type Version struct {
	campaign.Installed                 // without its loads, which are in the journal
	Pause              *campaign.Pause // for all campaigns; nil when there is none
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
	return d.Write(ctx, func(t *sqldb.Tx) error {
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

// builtBefore is what built_version becomes when another version is installed, or none: the versions that
// have built rows, separated by spaces, and the last one if it has applied anything. It stays empty where
// they are unknown, and becomes so after very many, or if events were applied without the projection and
// no cursor says so, as by an older version of outboxweb.
const builtBefore = `case
    when length(projection_versions.built_version) > 1000 then ''
    when projection_versions.version = ''
      and exists (
        select 1
        from projection_watermarks w
        where w.updated_at >= projection_versions.installed_at
          and not exists (
            select 1
            from projection_cursors c
            where c.campaign_id = w.campaign_id
              and c.projection = projection_versions.projection
              and c.state || '' <> 'live')) then ''
    when projection_versions.built_version <> ''
      and projection_versions.version <> ''
      and ' ' || projection_versions.built_version || ' ' not like '% ' || projection_versions.version || ' %'
      and exists (select 1 from projection_watermarks w where w.updated_at >= projection_versions.installed_at)
      then projection_versions.built_version || ' ' || projection_versions.version
    else projection_versions.built_version
  end`

const leaveProjection = `
update projection_versions
set version = '', installed_at = $2, built_version = ` + builtBefore + `
where projection = $1
  and version <> ''`

// SelectVersions reads the records of all projections, for CollectVersions.
const SelectVersions = `select projection, version, built_version, installed_at, paused_at, paused_by, reason from projection_versions`

// CollectVersions scans rows of SelectVersions into a map by projection name.
func CollectVersions(into map[string]Version) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var name, built, by, reason string
		var installed int64
		var paused sql.NullInt64
		var v Version
		err := row.Scan(&name, &v.Version, &built, &installed, &paused, &by, &reason)
		v.At, v.Built, v.Pause = sqldb.At(installed), strings.Fields(built), PauseOf(paused, by, reason)
		into[name] = v
		return err
	}
}

// PauseOf is the pause of a record; nil where there is none.
func PauseOf(when sql.NullInt64, by, reason string) *campaign.Pause {
	if !when.Valid {
		return nil
	}
	return &campaign.Pause{By: by, At: sqldb.At(when.Int64), Reason: reason}
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

func (d *Database) projectionVersions(ctx context.Context) (map[string]Version, error) {
	return sqldb.Reading(ctx, d, "read projection versions", func(t *sqldb.Tx) (map[string]Version, error) { return versionsIn(t) })
}

func versionsIn(t sqldb.Reader) (map[string]Version, error) {
	versions := make(map[string]Version)
	return versions, t.Each(CollectVersions(versions), SelectVersions)
}
