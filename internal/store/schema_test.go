package store_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// schemaQueries describe a database: its columns, its primary keys and its indexes, one line each, in terms common to both databases.
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

// ownWays are names that may differ between the databases: each has its own migrations table, and indexes that would cost too much on the
// other, or that need no position since every index there ends with it.
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
	f, files := own(t), dbtest.Files(t.TempDir())
	s := must.Get(store.Open(f.Ctx, storetest.OptionsFor(files))).Or(t)
	defer s.Close()
	for name, pair := range map[string][2]string{"journal": {files.Journal, f.Pair.Journal}, "projections": {files.Projections, f.Pair.Projections}} {
		want, got := schemaOf(t, dbtest.Open(t, pair[0]), false), schemaOf(t, dbtest.Open(t, pair[1]), true)
		must.Hold(t, len(want) >= 20, "the %s database is described by %q alone", name, want)
		must.Equal(t, got, want, "the", name, "database")
	}
	want := must.Get(s.Migrations(f.Ctx)).Or(t)
	got := must.Get(f.Migrations(f.Ctx)).Or(t)
	must.Equal(t, steps(got), steps(want), "migrations")
}

func steps(migrations []sqldb.Migration) []string {
	var all []string
	for _, m := range migrations {
		all = append(all, fmt.Sprintf("%s %d %s, applied: %v", m.Database, m.Version, m.Name, m.AppliedAt != nil && !m.AppliedAt.IsZero()))
	}
	return all
}

// Ids are compared byte by byte, whatever the server's locale, so that pages have the same order and cursors the same meaning.
func TestPostgresMigrations_compareIDsByteByByte(t *testing.T) {
	f := own(t)
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

func large(o *store.Options) { o.MaxPayload = 32 << 20 }

func TestEventWithin_leavesOutDocumentsOverTheLimitAndTellsHowLongTheyAre(t *testing.T) {
	f := own(t)
	e := storetest.Event("a", "counted")
	e.Payload, e.Tags, e.Metadata = []byte(`{"text":"ééééé"}`), []byte(`{"k":"v"}`), []byte(`{"deep":{"er":[1,2,3]}}`)
	f.MustAppend(e)
	want := event.Sizes{Payload: int64(len(e.Payload)), Tags: int64(len(e.Tags)), Metadata: int64(len(e.Metadata))}
	for _, limit := range []int64{-1, 0, want.Tags, want.Payload - 1, want.Payload, want.Metadata, 1 << 40} {
		d, err := f.EventWithin(f.Ctx, "a", 1, limit)
		must.Need(t, err == nil && d.Sizes == want, "limit %d: %+v, %v, want the sizes %+v", limit, d.Sizes, err, want)
		for _, part := range []event.Part{event.PartPayload, event.PartTags, event.PartMetadata} {
			shown := ""
			if want.Of(part) <= limit {
				shown = string(e.Document(part))
			}
			must.Equal(t, string(d.Event.Document(part)), shown, "limit", limit, part, "is")
		}
		must.Hold(t, d.Event.EventHash != "" && d.Event.EventType == "counted" && d.RowStatus == event.Pending, "limit %d: %+v", limit, d)
	}
	refused(t, storetest.No(f.EventWithin(f.Ctx, "a", 2, 0)), event.ErrNotFound, "no event 2")
	refused(t, storetest.No(f.EventWithin(f.Ctx, "nobody", 1, 0)), event.ErrNotFound, `there is no campaign "nobody"`)
}

func TestEventWithin_findsCausesInTheSameCampaignAlone(t *testing.T) {
	f := own(t)
	named := func(campaign, id, correlation, causation string) event.Event {
		e := storetest.Event(campaign, "counted")
		e.EventID, e.CorrelationID, e.CausationID = id, correlation, causation
		return e
	}
	f.MustAppend(named("a", "first", "", ""), named("a", "second", "first", "first"), named("a", "third", "first", "second"),
		named("a", "fourth", "elsewhere", "nothing"), named("b", "elsewhere", "third", ""))
	for seq, want := range map[int64][2]int64{1: {}, 2: {1, 1}, 3: {1, 2}, 4: {}} {
		d, err := f.EventWithin(f.Ctx, "a", seq, 0)
		got := [2]int64{d.CorrelationSeq, d.CausationSeq}
		must.Hold(t, err == nil && got == want, "event %d: %v, %v, want %v", seq, got, err, want)
	}
}

func TestDocument_isExactlyWhatIsStored(t *testing.T) {
	f := own(t)
	e := storetest.Event("a", "counted")
	e.Payload, e.Tags, e.Metadata = []byte(`{"n":9007199254740993,"e":1e400,"z":-0,"a":1,"a":2}`), []byte(`{"k":"v"}`), []byte(`{"m":"\u202e"}`)
	f.MustAppend(e)
	for _, part := range []event.Part{event.PartPayload, event.PartTags, event.PartMetadata} {
		text, hash, err := f.Document(f.Ctx, "a", 1, part)
		must.Hold(t, err == nil && text == string(e.Document(part)) && len(hash) == 64, "%s is %s with hash %q, %v", part, text, hash, err)
	}
	_, _, err := f.Document(f.Ctx, "a", 2, event.PartPayload)
	refused(t, err, event.ErrNotFound, "no event 2")
	_, _, err = f.Document(f.Ctx, "a", 1, "envelope")
	refused(t, err, event.ErrInvalid, "envelope")
}

func TestEventLines_tellWhichEventsHaveARow(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Applied("a", 2)
	f.Dies("a", 4)
	f.AppendN("b", 9)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'a' and seq = 5`)
	lines := must.Get(f.EventLines(f.Ctx, "a", 2, 100)).Or(t)
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%d %s %s", l.Seq, l.EventType, l.RowStatus))
		must.Hold(t, !l.OccurredAt.IsZero(), "event %d occurred at no time", l.Seq)
	}
	must.Equal(t, got, []string{"2 counted ", "3 counted dead", "4 counted pending", "5 counted ", "6 counted pending"})
}

func TestRow_knowsItsNeighbours(t *testing.T) {
	f := own(t)
	f.AppendN("a", 10)
	f.AppendN("b", 1)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'a' and seq in (1, 2, 5)`)
	for seq, want := range map[int64][2]int64{3: {0, 4}, 4: {3, 6}, 6: {4, 7}, 10: {9, 0}} {
		d := f.MustRow("a", seq)
		must.Equal(t, [2]int64{d.Previous, d.Next}, want, "row", seq, "stands between")
		var queue []int64
		for _, r := range d.Queue {
			queue = append(queue, r.Seq)
		}
		must.Equal(t, queue, []int64{3, 4, 6, 7, 8, 9})
	}
	d := f.MustRow("b", 1)
	must.Hold(t, d.Previous == 0 && d.Next == 0 && len(d.Queue) == 1 && d.Queue[0].IsHead, "alone: %+v", d)
}

// The page of a row whose payload is large reads nothing of it.
func TestRowWithin_doesNotReadALargePayload(t *testing.T) {
	f := open(t, large) // not parallel: it counts allocations
	e := storetest.Event("a", "counted")
	e.Payload = []byte(`{"text":"` + strings.Repeat("x", 8<<20) + `"}`)
	f.MustAppend(e)
	read := func() campaign.RowDetail { return must.Get(f.RowWithin(f.Ctx, "a", 1, 64<<10)).Or(t) }
	read()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := read()
	lines, err := f.EventLines(f.Ctx, "a", 1, 20)
	runtime.ReadMemStats(&after)
	must.Hold(t, err == nil && len(lines) == 1 && d.Event.Payload == nil && d.Sizes.Payload == int64(len(e.Payload)) && d.Event.EventHash != "", "%d lines, %d bytes of payload, %+v, %v", len(lines), len(d.Event.Payload), d.Sizes, err)
	allocated := after.TotalAlloc - before.TotalAlloc
	must.Hold(t, allocated <= 1<<20, "%d bytes were allocated", allocated)
	whole, err := f.Row(f.Ctx, "a", 1)
	must.Hold(t, err == nil && string(whole.Event.Payload) == string(e.Payload), "the whole payload has %d bytes, %v", len(whole.Event.Payload), err)
}

func TestEvents_pagesEndAtTheLimitAndEarlyWhereEventsAreLarge(t *testing.T) {
	f := own(t, large)
	for _, mega := range []int{0, 0, 0, 0, 17, 0, 0, 0} {
		e := storetest.Event("a", "counted")
		e.Payload = []byte(`{"text":"` + strings.Repeat("x", mega<<20) + `"}`)
		f.MustAppend(e)
	}
	var pages [][]int64
	for after, more := int64(0), true; more; {
		page := must.Get(f.Events(f.Ctx, "a", after, 3)).Or(t)
		var seqs []int64
		for _, e := range page.Items {
			seqs = append(seqs, e.Seq)
		}
		pages, more = append(pages, seqs), page.NextCursor != nil
		must.Hold(t, page.Partial == (more && len(seqs) < 3), "page %v: partial is %t, the cursor %v", seqs, page.Partial, page.NextCursor)
		if more {
			must.OK(t, json.Unmarshal([]byte(*page.NextCursor), &after))
		}
	}
	must.Equal(t, pages, [][]int64{{1, 2, 3}, {4}, {5}, {6, 7, 8}})
}

// The definition of a projection is kept with the one before it, however old that is.
func TestLoaded_keepsTheDefinitionBefore(t *testing.T) {
	f := own(t)
	later := 9 * 24 * time.Hour
	load := func(version, text string) {
		must.OK(t, f.Loaded(f.Ctx, campaign.InstanceState{ID: "one", Host: "h"}, []campaign.Definition{{Projection: "orders", Version: version, File: campaign.RehearsalFile{Name: "orders.sql", Text: text}}}))
		f.Clock.Advance(later)
	}
	text := func(version string) string {
		return must.Get(f.Definition(f.Ctx, "orders", version)).Or(t).File.Text
	}
	load("v1", "") // by an outboxweb that kept no texts
	c, err := f.LastChange(f.Ctx, "orders")
	must.Hold(t, err == nil && c == nil, "the first version has the change %+v, %v", c, err)
	load("v1", "a\nb\n")
	must.Equal(t, text("v1"), "a\nb\n", "the text of v1")
	load("v2", "a\nc\nd\n")
	c, err = f.LastChange(f.Ctx, "orders")
	must.Need(t, err == nil && c != nil, "the change is %+v, %v", c, err)
	want := "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n"
	must.Hold(t, c.Diff == want && c.Added == 2 && c.Removed == 1 && c.Previous == "v1" && c.Kept, "the change is %+v, want the diff %q", c, want)
	must.Hold(t, !c.Again, "v2 was loaded before: %+v", c)
	later = time.Hour
	load("v3", "e\n")
	must.Hold(t, text("v1") == "" && text("v2") == "a\nc\nd\n" && text("v3") == "e\n" && text("") == "e\n", "kept are %q, %q, %q", text("v1"), text("v2"), text("v3"))
	load("v4", "f\n")
	load("v3", "e\n")
	c, err = f.LastChange(f.Ctx, "orders")
	must.Hold(t, err == nil && c != nil && c.Again && c.Previous == "v4", "going back to v3 is %+v, %v", c, err)
	d := must.Get(f.ProjectionDetail(f.Ctx, campaign.ProjectionInfo{Name: "orders"})).Or(t)
	must.Hold(t, len(d.Versions) == 2 && d.Versions[0].Version == "v3" && d.Versions[1].Version == "v4" && d.Versions[0].LoadedAt.After(*d.Versions[1].LoadedAt), "kept are %+v", d.Versions)
	_, err = f.KeptDefinition(f.Ctx, "orders", "v1")
	must.Hold(t, err != nil && strings.HasSuffix(err.Error(), "those of v3, v4 are"), "a version that is not kept: %v", err)
}
