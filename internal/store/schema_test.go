package store_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// schemaQueries describe a database: its columns, its primary keys and its indexes, one line
// each, in terms common to both databases.
var schemaQueries = map[bool][]string{
	false: {`
select t.name || '.' || c.name
  || case when lower(c.type) = 'text' then ' text' when lower(c.type) like '%int%' then ' integer' else ' float' end
  || case when c."notnull" or c.pk > 0 then '' else ' or nothing' end
  || case when c.dflt_value is null then '' else ', otherwise ' || c.dflt_value end
from sqlite_schema t
join pragma_table_info(t.name) c
where t.type = 'table'`, `
select t.name || ' by ' || group_concat(c.name, ', ' order by c.pk)
from sqlite_schema t
join pragma_table_info(t.name) c on c.pk > 0
where t.type = 'table'
group by t.name`, `
select case when i."unique" then 'unique ' else '' end || i.name || ' on ' || t.name
  || ' (' || (select group_concat(coalesce(k.name, 'an expression'), ', ' order by k.seqno) from pragma_index_info(i.name) k) || ')'
  || case when i.partial then ', partial' else '' end
from sqlite_schema t
join pragma_index_list(t.name) i on i.origin = 'c'
where t.type = 'table'`},
	true: {`
select table_name || '.' || column_name
  || case data_type when 'text' then ' text' when 'bigint' then ' integer' when 'integer' then ' integer' else ' float' end
  || case is_nullable when 'NO' then '' else ' or nothing' end
  || coalesce(', otherwise ' || replace(column_default, '::text', ''), '')
from information_schema.columns
where table_schema = current_schema()
  and table_name in (select tablename from pg_tables where schemaname = current_schema())`, `
select cast(cast(i.indrelid as regclass) as text) || ' by ' || (
  select string_agg(a.attname, ', ' order by k.n)
  from unnest(i.indkey) with ordinality k (attribute, n)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attribute)
from pg_index i
join pg_class c on c.oid = i.indexrelid
where c.relnamespace = cast(current_schema() as regnamespace)
  and i.indisprimary`, `
select case when i.indisunique then 'unique ' else '' end || c.relname || ' on ' || cast(cast(i.indrelid as regclass) as text)
  || ' (' || (
    select string_agg(coalesce(a.attname, 'an expression'), ', ' order by k.n)
    from unnest(i.indkey) with ordinality k (attribute, n)
    left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attribute) || ')'
  || case when i.indpred is null then '' else ', partial' end
from pg_index i
join pg_class c on c.oid = i.indexrelid
where c.relnamespace = cast(current_schema() as regnamespace)
  and not i.indisprimary`},
}

// ownWays are names that may differ between the databases: each has its own migrations table,
// and indexes that would cost too much on the other, or that need no position since every index
// there ends with it.
var ownWays = []string{"goose", "sqlite_", "campaigns_by_lag", "outbox_dead", "outbox_failed", "outbox_retried", "outbox_tried", "events_by_type", "events_by_entity", "events_by_request"}

// schemaOf describes a database, without ownWays.
func schemaOf(t *testing.T, db *sql.DB, postgres bool) []string {
	var lines []string
	for _, query := range schemaQueries[postgres] {
		for _, line := range storetest.Texts(t, db, query) {
			if !slices.ContainsFunc(ownWays, func(name string) bool { return strings.Contains(line, name) }) {
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func TestPostgresMigrations_makeTheSameTablesAsOnSQLite(t *testing.T) {
	t.Parallel()
	f, files := open(t), dbtest.Files(t.TempDir())
	s := must.Get(store.Open(f.Ctx, storetest.OptionsFor(files))).Or(t)
	defer s.Close()
	for name, pair := range map[string][2]string{"journal": {files.Journal, f.Pair.Journal}, "projections": {files.Projections, f.Pair.Projections}} {
		want, got := schemaOf(t, dbtest.Open(t, pair[0]), false), schemaOf(t, dbtest.Open(t, pair[1]), true)
		must.Hold(t, len(want) >= 20, "the %s database is described by %q alone", name, want)
		must.Equal(t, got, want, "the", name, "database")
	}
	want := must.Get(s.Migrations(f.Ctx)).Or(t)
	got := must.Get(f.Migrations(f.Ctx)).Or(t)
	diff := cmp.Diff(steps(want), steps(got))
	must.Hold(t, diff == "" && len(want) >= 2, "migrations (-SQLite +PostgreSQL):\n%s", diff)
}

func steps(migrations []sqldb.Migration) []string {
	var all []string
	for _, m := range migrations {
		all = append(all, fmt.Sprintf("%s %d %s, applied: %v", m.Database, m.Version, m.Name, m.AppliedAt != nil && !m.AppliedAt.IsZero()))
	}
	return all
}

// Ids are compared byte by byte, whatever the server's locale, so that pages have the same
// order and cursors the same meaning.
func TestPostgresMigrations_compareIDsByteByByte(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
		loose := storetest.Texts(t, db, `
select cast(cast(i.indrelid as regclass) as text) || '.' || a.attname
from pg_index i
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
join pg_type y on y.oid = a.atttypid
join pg_class c on c.oid = i.indrelid
join pg_collation n on n.oid = a.attcollation
where y.typname = 'text'
  and n.collname <> 'C'
  and c.relnamespace = cast(current_schema() as regnamespace)`)
		must.Equal(t, len(loose), 0, "are compared by the rules of a language")
	}
}
