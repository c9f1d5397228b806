package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const (
	selectDefinition = `
select version, number, at, previous, host, file, definition
from projection_loads
where projection = $1
  and version like cast($2 as text) || '%'
order by at desc
limit 1`

	selectNumbered = `
select version, number, at, previous, host, file, definition
from projection_loads
where projection = $1
  and number = cast($2 as bigint)
order by at desc
limit 1`

	loadedBefore = `
select 1
from projection_loads
where projection = $1
  and version = $2
  and at < $3
limit 1`

	insertDefinition = `
insert into projection_loads (projection, at, version, number, previous, instance, host, file, definition)
values ($1, $2, $3, coalesce(
  (select max(number) from projection_loads where projection = $1 and version = $3),
  (select max(number) + 1 from projection_loads where projection = $1), 1), $4, $5, $6, $7, $8)
on conflict (projection, at) do nothing`

	setKnown = `
select 1
from loaded_sets
where loaded = $1
limit 1`

	insertLoadedSet = `
insert into loaded_sets (loaded, projection, version)
values ($1, $2, $3)
on conflict (loaded, projection) do nothing`

	// What a version of outboxweb that kept no texts loaded.
	completeDefinition = `
update projection_loads
set file = $3, definition = $4
where projection = $1
  and at = $2`

	// The latest version of a projection stays, and the one before it.
	deleteDefinitions = `
delete from projection_loads
where at < $1
  and (
    select count(*)
    from projection_loads as later
    where later.projection = projection_loads.projection
      and later.at > projection_loads.at) > 1`
)

// leastPrefix is from how many digits on a text is the beginning of a version's hash, and not its number.
const leastPrefix = 4

// definition reads a version of a projection's definition by its number, or the latest one that begins with version.
// A missing one is zero.
func (t *Tx) definition(projection, version string) (d campaign.Definition, err error) {
	d.Projection = projection
	query := selectDefinition
	if _, err := strconv.Atoi(version); err == nil && len(version) < leastPrefix {
		query = selectNumbered
	}
	_, err = t.One([]any{&d.Version, &d.Number, sqldb.ScanTime(&d.LoadedAt), &d.Previous, &d.Host, &d.File.Name, &d.File.Text}, query, projection, version)
	return d, err
}

// Definition returns a version of a projection's definition as it was loaded last. One that is not
// known has no file.
func (s *Store) Definition(ctx context.Context, projection, version string) (campaign.Definition, error) {
	return Reading(ctx, s, fmt.Sprintf("read the definition of projection %q", projection), func(t *Tx) (campaign.Definition, error) {
		return t.definition(projection, version)
	})
}

// WholeVersion is the version of a projection, loaded last, that begins with a prefix. A missing one is
// event.ErrNotFound.
func (s *Store) WholeVersion(ctx context.Context, projection, version string) (string, error) {
	d, err := s.Definition(ctx, projection, version)
	if err == nil && d.Version == "" {
		err = event.NotFound("projection %q has no version %s, or it was loaded long ago", projection, version)
	}
	return d.Version, err
}

// KeptDefinition is Definition of a version whose text is kept, of which a prefix is enough. A missing text is
// event.ErrNotFound.
func (s *Store) KeptDefinition(ctx context.Context, projection, version string) (campaign.Definition, error) {
	d, err := s.Definition(ctx, projection, version)
	if err != nil || d.File.Text != "" {
		return d, err
	}
	var names []string
	all, err := s.versions(ctx, projection)
	for _, v := range all {
		if v.Kept {
			names = append(names, event.ShortHash(v.Version))
		}
	}
	if err != nil || len(names) == 0 {
		return d, cmp.Or(err, error(event.NotFound("the text of version %s of projection %q is not kept", version, projection)))
	}
	return d, event.NotFound("the text of version %s of projection %q is not kept; those of %s are", version, projection, strings.Join(names, ", "))
}

// versions are those of a projection, the one loaded last first.
func (s *Store) versions(ctx context.Context, projection string) ([]campaign.LoadedVersion, error) {
	return Reading(ctx, s, fmt.Sprintf("read the versions of projection %q", projection), func(t *Tx) ([]campaign.LoadedVersion, error) {
		return sqldb.All(t, func(row sqldb.Row) (v campaign.LoadedVersion, err error) {
			err = row.Scan(&v.Version, &v.Number, sqldb.ScanTimeOrNil(&v.LoadedAt), sqldb.ScanTruth(&v.Kept))
			return v, err
		}, selectVersions, projection, versionsNamed)
	})
}

// versionsNamed is how many versions of a projection are named.
const versionsNamed = 10

const selectVersions = `
select version, max(number), max(at), max(case when definition <> '' then 1 else 0 end)
from projection_loads
where projection = $1
group by version
order by max(at) desc
limit $2`

const selectLoads = `
select projection, version, number, at, previous, case when definition <> '' then 1 else 0 end
from projection_loads
order by projection, at`

// Loads returns when the versions of projections were loaded, by projection and version.
func (t *Tx) Loads() (map[string]map[string]campaign.Load, error) {
	all := make(map[string]map[string]campaign.Load)
	complete := false // the first load of the projection is among them
	err := t.Each(func(row sqldb.Row) error {
		var name, version, previous string
		var at time.Time
		var number int64
		var kept bool
		err := row.Scan(&name, &version, &number, sqldb.ScanTime(&at), &previous, sqldb.ScanTruth(&kept))
		if all[name] == nil {
			all[name], complete = make(map[string]campaign.Load), previous == ""
		}
		l, again := all[name][version]
		if l.Number, l.Last, l.Kept = number, at, l.Kept || kept; !again && complete {
			l.First = l.Last
		}
		all[name][version] = l
		return err
	}, selectLoads)
	return all, sqldb.Wrapf(err, "read when projections were loaded")
}

// ProjectionDetail adds to a projection how its definition was changed, and which versions are kept.
func (s *Store) ProjectionDetail(ctx context.Context, p campaign.ProjectionInfo) (d campaign.ProjectionDetail, err error) {
	d.ProjectionInfo = p
	if d.LastChange, err = s.LastChange(ctx, p.Name); err == nil {
		d.Versions, err = s.versions(ctx, p.Name)
	}
	return d, err
}

// LastChange returns the last load of another version of a projection's definition; nil if no other
// one is known.
func (s *Store) LastChange(ctx context.Context, projection string) (*campaign.DefinitionChange, error) {
	return Reading(ctx, s, fmt.Sprintf("read the last change of projection %q", projection), func(t *Tx) (*campaign.DefinitionChange, error) {
		now, err := t.definition(projection, "")
		if err != nil || now.Previous == "" {
			return nil, err
		}
		before, err := t.definition(projection, now.Previous)
		if err != nil {
			return nil, err
		}
		c := changeOf(before, now)
		c.Again, err = t.One([]any{new(int64)}, loadedBefore, projection, now.Version, now.LoadedAt.UnixMicro())
		return &c, err
	})
}

// Loaded records the definitions of the projections that an instance loaded, where they differ from
// those loaded before.
func (s *Store) Loaded(ctx context.Context, instance campaign.InstanceState, loaded []campaign.Definition) error {
	if s.options.ReadOnly {
		return nil
	}
	var news sqldb.Batch
	read := func(t *Tx) error {
		news = sqldb.Batch{}
		now, set := s.Now(), campaign.SetOf(loaded)
		if known, err := t.One([]any{new(int64)}, setKnown, set); err != nil {
			return err
		} else if !known {
			for _, d := range loaded {
				news.Exec(nil, insertLoadedSet, set, d.Projection, d.Version)
			}
		}
		for _, d := range loaded {
			last, err := t.definition(d.Projection, "")
			switch {
			case err != nil:
				return err
			case last.Version != d.Version:
				news.Exec(nil, insertDefinition, d.Projection, now, d.Version, last.Version, instance.ID, instance.Host, d.File.Name, d.File.Text)
			case last.File.Text == "" && d.File.Text != "":
				news.Exec(nil, completeDefinition, d.Projection, last.LoadedAt.UnixMicro(), d.File.Name, d.File.Text)
			}
		}
		if news.Len() > 0 {
			news.Exec(nil, deleteDefinitions, now-SamplesKept.Microseconds())
		}
		return nil
	}
	err := s.journal.Read(ctx, read)
	if err == nil && news.Len() > 0 {
		err = s.journal.Write(ctx, func(t *Tx) error {
			if err := read(t); err != nil {
				return err
			}
			return t.Finish(&news)
		})
	}
	return sqldb.Wrapf(err, "record the definitions of projections")
}

const selectVersionLoads = `
select projection, at, version, previous, host
from projection_loads
where at >= $1
  and at < $2
  and previous <> ''
order by at desc
limit 100`

// VersionLoads are the loads of another version of a projection from one time until before another
// (microseconds), the latest 100, in that order.
func (t *Tx) VersionLoads(from, until int64) ([]campaign.VersionLoad, error) {
	return sqldb.All(t, func(row sqldb.Row) (l campaign.VersionLoad, err error) {
		err = row.Scan(&l.Projection, sqldb.ScanTime(&l.At), &l.Version, &l.Previous, &l.Host)
		return l, err
	}, selectVersionLoads, from, until)
}

const (
	// SamplesKept is how long samples and definitions are kept.
	SamplesKept = 8 * 24 * time.Hour
	// SamplesAhead is the largest accepted difference between the clocks of several processes. A
	// sample further in the future was taken before a clock was set back.
	SamplesAhead = time.Hour
)

// diffLines is the maximum length of a diff.
const diffLines = 300

// changeOf describes the load of a definition in place of another.
func changeOf(before, now campaign.Definition) campaign.DefinitionChange {
	c := campaign.DefinitionChange{LoadedAt: now.LoadedAt, Host: now.Host, Version: now.Version, Previous: now.Previous, Kept: before.File.Text != ""}
	if !c.Kept || now.File.Text == "" {
		return c
	}
	lines := strings.SplitAfter(udiff.Unified("before", "now", before.File.Text, now.File.Text), "\n")
	lines = lines[min(2, len(lines)):] // the names
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "+"):
			c.Added++
		case strings.HasPrefix(line, "-"):
			c.Removed++
		}
	}
	c.Cut = len(lines) > diffLines
	c.Diff = strings.Join(lines[:min(len(lines), diffLines)], "")
	return c
}
