package projection

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

const roster = `-- projection: roster
-- tables: roster_campaigns, roster_participants
-- on-failure: quarantine       -- or: block

-- Who is there. Ordinary comments may stand anywhere.

-- schema
create table roster_campaigns (
  campaign_id text primary key, -- the campaign
  name text not null,
  participants integer not null default 0
);
create table if not exists roster_participants (campaign_id text not null, id text, primary key (campaign_id, id));
create index roster_by_name on roster_campaigns (name);

-- on: campaign.created
insert into roster_campaigns (campaign_id, name) values (:campaign_id, :payload.name!);

-- on: campaign.updated, campaign.renamed
update roster_campaigns set name = coalesce(:payload.fields.name, name) /* not ; here */ where campaign_id = :campaign_id;

-- on: participant.*
insert into roster_participants (campaign_id, id) values (:campaign_id, :entity_id) on conflict do nothing;
update roster_campaigns set participants = participants + 1
where campaign_id = :campaign_id and name <> 'a; -- :b';

-- digest people: select id from roster_participants where campaign_id = :campaign_id order by id;
-- digest campaign (json: name):
select name
from roster_campaigns where campaign_id = :campaign_id
`

// writeFiles makes a projections directory of alternating names and contents.
func writeFiles(t testing.TB, namesAndContents ...string) string {
	dir := t.TempDir()
	for i := 0; i < len(namesAndContents); i += 2 {
		must.OK(t, os.WriteFile(filepath.Join(dir, namesAndContents[i]), []byte(namesAndContents[i+1]), 0o600))
	}
	return dir
}

func loadText(t testing.TB, content string) *Set {
	return mustLoad(t, writeFiles(t, "test.sql", content))
}

func TestLoad_readsEveryPart(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, "roster.sql", roster, "README.md", "not read")
	s := mustLoad(t, dir)
	p := s.Projections()[0]
	type statement struct {
		SQL  string
		Line int
	}
	plain := func(in []Statement) (out []statement) {
		for _, st := range in {
			out = append(out, statement{st.SQL, st.Line})
			must.Equal(t, st.File, filepath.Join(dir, "roster.sql"), "file")
		}
		return out
	}
	must.Equal(t, []any{p.Name, p.OnFailure, p.Tables, p.Source, p.EventTypes, len(p.Version)}, []any{"roster", Quarantine, []string{"roster_campaigns", "roster_participants"},
		filepath.Join(dir, "roster.sql"), []string{"campaign.created", "campaign.updated", "campaign.renamed", "participant.*"}, 64}, "the projection")
	must.Equal(t, plain(p.SchemaStatements), []statement{
		{"create table if not exists roster_campaigns ( campaign_id text primary key, name text not null, participants integer not null default 0 )", 8},
		{"create table if not exists roster_participants (campaign_id text not null, id text, primary key (campaign_id, id))", 13},
		{"create index if not exists roster_by_name on roster_campaigns (name)", 14},
	}, "the schema")
	must.Equal(t, plain(s.Queries()), []statement{
		{"insert into roster_campaigns (campaign_id, name) values ($1, $2)", 17},
		{"update roster_campaigns set name = coalesce($1, name) where campaign_id = $2", 20},
		{"insert into roster_participants (campaign_id, id) values ($1, $2) on conflict do nothing", 23},
		{"update roster_campaigns set participants = participants + 1 where campaign_id = $1 and name <> 'a; -- :b'", 24},
	}, "the handlers")
	_, err := Check(t.Context(), dir)
	must.Hold(t, err == nil, "check: %v", err)
}

func TestLoad_handlersOfOneTypeRunInOrder(t *testing.T) {
	t.Parallel()
	s := loadText(t, `-- projection: p
-- tables: t
-- schema
create table t (campaign_id text);
-- on: a.b
insert into t values (:campaign_id);
-- on: *
delete from t where campaign_id = :campaign_id;
-- on: a.*, a.b
update t set campaign_id = :campaign_id;
-- on: a.b @postgres
insert into t values (:campaign_id || 'postgres');
`)
	var got []string
	for _, h := range s.plan("a.b") {
		got = append(got, strings.Fields(h.SQL)[0])
	}
	must.Equal(t, got, []string{"insert", "delete", "update"})
	for eventType, want := range map[string]int{"a": 1, "a.c": 2, "ab.c": 1, "x": 1} {
		must.Equal(t, len(s.plan(eventType)), want, "the statements of", eventType)
	}
}

// Whatever type the journal takes, a file can name.
func TestLoad_readsQuotedEventTypes(t *testing.T) {
	t.Parallel()
	const insert = "\ninsert into t (campaign_id) values (:campaign_id);\n"
	for line, want := range map[string][]string{
		`-- on: "order:created", "a,b"`:                        {"order:created", "a,b"},
		`-- on:"order@v2",plain , "shop:order.*" @sqlite -- x`: {"order@v2", "plain", "shop:order.*"},
		`-- on: "say ""hi"""`:                                  nil,
		`-- on: "say""hi""", a"b, "--", "*" @ sqlite`:          {`say"hi"`, `a"b`, "--", "*"},
		"-- on: \"nbsp\u00a0x\"\t-- \"comment\", with @ and,":  {"nbsp\u00a0x"},
		`-- on: a, b -- comment`:                               {"a", "b"},
		`-- on: a:b @postgres`:                                 nil,
	} {
		s, err := Load("sqlite", writeFiles(t, "test.sql", head+line+insert))
		must.Hold(t, (err == nil) == (want != nil), "%s: %v", line, err)
		if err != nil {
			continue
		}
		must.Equal(t, s.Projections()[0].EventTypes, want, line)
		for _, eventType := range want {
			eventType = strings.Replace(eventType, ".*", ".x", 1)
			e := (event.Event{CampaignID: "c", EventType: eventType, Payload: []byte("{}")})
			must.Hold(t, eventType == "*" || e.Normalize(1<<10) == nil, "no event can have the type %q", eventType)
			must.Equal(t, len(s.plan(eventType)), 1, line, "does not run for")
		}
	}
	s := loadText(t, head+`-- on: "a,b", "order:shop.*"`+insert)
	for _, eventType := range []string{"a", "b", "order:shop", "order"} {
		must.Equal(t, len(s.plan(eventType)), 0, "it runs for")
	}
}

const head = "-- projection: p\n-- tables: t\n-- schema\ncreate table t (campaign_id text, n integer);\n"

func graphed(graph string) string {
	return strings.Replace(head, "-- schema", "-- graph: "+graph+"\n-- schema", 1)
}

func TestLoad_refuses(t *testing.T) {
	t.Parallel()
	handler := "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n"
	tests := []struct{ name, content, want string }{
		{"nothing", "", "1: a projection file begins with -- projection: NAME"},
		{"no name", "-- tables: t\n-- schema\n", "2: a projection file begins with"},
		{"bad name", "-- projection: My Roster\n", `1: "My Roster" cannot name a projection`},
		{"no tables", "-- projection: p\n-- on: a\nselect 1;", "2: -- tables: is missing"},
		{"bad table", "-- projection: p\n-- tables: t, T2\n", `2: "T2" cannot name a table`},
		{"table twice", "-- projection: p\n-- tables: t, t\n", `2: table "t" is listed twice`},
		{"engine's table", "-- projection: p\n-- tables: projection_cursors\n", `2: the table name "projection_cursors" is reserved`},
		{"header twice", "-- projection: p\n-- projection: q\n", "2: -- projection is given twice, here and in line 1"},
		{"empty header", "-- projection:\n", "1: -- projection: is empty"},
		{"late header", head + "-- on-failure: block\n", "5: -- on-failure belongs above the first section"},
		{"no attempts", "-- projection: p\n-- max-attempts: 0\n", `2: max-attempts is a whole number from 1 to 1000, not "0"`},
		{"bad policy", "-- projection: p\n-- on-failure: retry\n", `2: on-failure is block or quarantine, not "retry"`},
		{"unknown header", "-- projection: p\n-- tabels: t\n", `2: unknown header "tabels"`},
		{"unknown section", head + "-- when: a\n", `5: unknown section "when"`},
		{"early statement", "create table t (campaign_id text);\n-- projection: p\n", "1: this statement stands before the first section"},
		{"empty section", head + "-- on: a\n-- on: b\n", "5: this section has no statement"},
		{"no handler", head, "1: projection \"p\" handles no event type on sqlite"},
		{"unknown dialect", head + "-- on: a @mysql\n", `5: unknown dialect "@mysql"`},
		{"no event type", head + "-- on:\n", "5: -- on: needs event types"},
		{"schema with more", "-- projection: p\n-- tables: t\n-- schema: create\n", "3: a schema section begins with -- schema alone on its line"},
		{"insert or rollback", head + "-- on: x\ninsert OR Rollback into t (campaign_id) values (:campaign_id);\n", `6: "insert OR Rollback" would undo the events of other campaigns too; write insert or abort`},
		{"raise rollback", strings.Replace(head, "-- schema\n", "-- schema\ncreate trigger r before insert on t begin select raise ( rollback , 'no'); end;\n", 1) + "-- on: x\ninsert into t (campaign_id) values (:campaign_id);\n", `4: "raise ( rollback" would undo the events of other campaigns too; write raise(abort, …)`},
		{"conflict rollback", strings.Replace(head, "campaign_id text", "campaign_id text unique on conflict rollback", 1) + "-- on: x\ninsert into t (campaign_id) values (:campaign_id);\n", `4: "on conflict rollback" would undo`},
		{"type with a colon", head + "-- on: order:created\n", `5: "order:created" is not an event type; write a full type`},
		{"type with a blank", head + "-- on: a b\n", `5: event types are separated by commas, and "b" follows without one`},
		{"quoted type with a blank", head + "-- on: \"a b\"\n", `5: "a b" is not an event type`},
		{"open quote", head + "-- on: \"a\n", "5: -- on: needs event types"},
		{"quoted type without its colon", head + handler + "-- on \"b:c\", d\n", "7: a colon is missing"},
		{"type twice", head + "-- on: a, a\n", `5: event type "a" is listed twice`},
		{"table not created", "-- projection: p\n-- tables: t, u\n-- schema\ncreate table t (campaign_id text);\n" + handler, `2: table "u" is listed in -- tables but the schema does not create it on sqlite`},
		{"table not listed", head + "-- schema\ncreate table u (campaign_id text);\n", `6: table "u" is created but not listed in -- tables`},
		{"table created twice", head + "-- schema\ncreate table t (campaign_id text);\n", `6: table "t" is created twice, here and in line 4`},
		{"no campaign_id", "-- projection: p\n-- tables: t\n-- schema\ncreate table t (id text, check (campaign_id <> ''));\n", `4: table "t" has no column campaign_id`},
		{"index on another's table", head + "-- schema\ncreate index i on campaigns (name);\n", `6: this is on "campaigns", which -- tables does not list`},
		{"schema that drops", head + "-- schema\ndrop table t;\n", "6: a schema creates tables, indexes and triggers; this statement begins with drop"},
		{"table from a select", "-- projection: p\n-- tables: t\n-- schema\ncreate table t as select 1;\n", "4: create table t must be followed by its columns"},
		{"binding in the schema", head + "-- schema\ncreate index i on t (n) where n > :seq;\n", "6: there is no event here that :seq could come from"},
		{"unknown binding", head + "-- on: a\ninsert into t (campaign_id, n)\nvalues (:campaign_id, :foo);\n", "7: unknown binding :foo; an event offers :campaign_id, :event_id, :event_type"},
		{"path into the envelope", head + "-- on: a\ninsert into t values (:campaign_id, :seq.a);\n", "6: :seq has no parts"},
		{"numbered parameter", head + "-- on: a\ninsert into t values (:campaign_id, $2);\n", "6: $2 is a numbered parameter"},
		{"anonymous parameter", head + "-- on: a\ninsert into t values (:campaign_id, ?);\n", "6: ? starts a database-specific parameter"},
		{"at-sign parameter", head + "-- on: a\ninsert into t values (:campaign_id, @n);\n", "6: @ starts a database-specific parameter"},
		{"handler that only reads", head + "-- on: a\nselect :campaign_id;\n", "6: a handler changes rows with insert, update or delete; this statement begins with select"},
		{"another's table", head + "-- on: a\nupdate projection_watermarks set applied_seq = 0 where campaign_id = :campaign_id;\n", `6: this statement changes table "projection_watermarks", which -- tables does not list`},
		{"another schema", head + "-- on: a\ndelete from main.t where campaign_id = :campaign_id;\n", `6: this statement changes table "main.t"`},
		{"all campaigns", head + "-- on: a\nupdate t set n = 0;\n", "6: this statement does not use :campaign_id"},
		{"indented section", head + "  -- on: a\ninsert into t (campaign_id) values (:campaign_id);\n", "5: a header or section begins at the start of its line"},
		{"digest without its colon", head + handler + "-- digest select n from t\n", "7: a colon is missing"},
		{"open string", head + "-- on: a\ninsert into t values (:campaign_id,\n'abc);\n", "7: this string is never closed"},
		{"open comment", head + "/* abc", "5: this comment is never closed"},
		{"open name", head + "-- on: a\ninsert into \"t values", "6: this quoted name is never closed"},
		{"open dollar string", head + "-- on: a\ninsert into t values ($x$ abc)", "6: this string is never closed; end it with $x$"},
		{"dangling path", head + "-- on: a\ninsert into t values (:payload.);", "6: :payload. ends with a dot"},
		{"not UTF-8", head + "-- \xff\n", "5: the file is not UTF-8 text"},
		{"digest that writes", head + handler + "-- digest: delete from t where campaign_id = :campaign_id\n", "7: a digest is a select"},
		{"digest that writes in with", head + handler + "-- digest: with x as (delete from t where campaign_id = :campaign_id returning n) select * from x\n", `7: a digest only reads; this statement changes table "t"`},
		{"digest of all campaigns", head + handler + "-- digest: select n from t\n", "7: this digest does not use :campaign_id"},
		{"digest with an event's value", head + handler + "-- digest: select n from t where campaign_id = :campaign_id and n < :seq\n", "7: there is no event here that :seq could come from; only :campaign_id is known"},
		{"digests without names", head + handler + "-- digest: select n from t where campaign_id = :campaign_id\n-- digest a: select n from t where campaign_id = :campaign_id\n", "8: of several digests each needs a name"},
		{"two selects in a digest", head + handler + "-- digest: select n from t where campaign_id = :campaign_id; select 1\n", "7: a digest is one select"},
		{"graph without edges", "-- projection: p\n-- tables: t\n-- graph: nodes=t(n,n)\n", "3: -- graph: is nodes=TABLE"},
		{"graph of a missing column", graphed("nodes=t(n,n) edges=t(n,size)") + handler, "3: -- graph: names t(n,size)"},
		{"graph of another table", graphed("nodes=t(n,n) edges=rivers(a,b)") + handler, "3: -- graph: names rivers(a,b)"},
		{"digest with a bad head", head + handler + "-- digest (xml: a): select 1\n", "7: a digest is written as"},
	}
	for _, tt := range tests {
		dir := writeFiles(t, "roster.sql", tt.content)
		_, err := Load("sqlite", dir)
		must.Need(t, errors.As(err, new(*event.Refusal)) && errors.Is(err, event.ErrSetup), "%s: error %v, want a refusal of kind ErrSetup", tt.name, err)
		must.Hold(t, strings.HasPrefix(err.Error(), filepath.Join(dir, "roster.sql")+":"+tt.want), "%s: error %q, want FILE:%s", tt.name, err, tt.want)
	}
}

func TestLoad_refusesSources(t *testing.T) {
	t.Parallel()
	one := head + "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n"
	other := strings.NewReplacer("projection: p", "projection: q").Replace(one)
	tests := []struct {
		name, dialect string
		sources, want []string
	}{
		{"no source", "sqlite", nil, []string{"no projections are named", "builtin:campaigns, builtin:traces"}},
		{"unknown dialect", "mysql", []string{"builtin:campaigns"}, []string{`unknown dialect "mysql"`, "sqlite and postgres"}},
		{"unknown built-in set", "sqlite", []string{"builtin:nope"}, []string{`"builtin:nope"`, "use builtin:campaigns, builtin:traces"}},
		{"no directory", "sqlite", []string{"/nonexistent"}, []string{`"/nonexistent" does not exist`}},
		{"a file", "sqlite", []string{filepath.Join(writeFiles(t, "a.sql", one), "a.sql")}, []string{"is not a directory"}},
		{"no files", "sqlite", []string{writeFiles(t, "a.txt", one)}, []string{"has no .sql file"}},
		{"name twice", "sqlite", []string{writeFiles(t, "a.sql", one), writeFiles(t, "b.sql", one)}, []string{"projection \"p\" is defined twice, by ", "a.sql and by ", "b.sql;"}},
		{"table twice", "sqlite", []string{writeFiles(t, "a.sql", one, "b.sql", other)}, []string{"b.sql:4: table \"t\" also belongs to projection \"p\"", "a.sql:4"}},
		{"same set twice", "postgres", []string{"builtin:campaigns", "builtin:campaigns"}, []string{"projection \"campaigns\" is defined twice, by builtin:campaigns/campaigns.sql"}},
	}
	for _, tt := range tests {
		_, err := Load(tt.dialect, tt.sources...)
		must.Need(t, errors.Is(err, event.ErrSetup), "%s: error %v, want ErrSetup", tt.name, err)
		for _, want := range tt.want {
			must.Hold(t, strings.Contains(err.Error(), want), "%s: error %q lacks %q", tt.name, err, want)
		}
	}
}

func TestLoad_combinesSourcesInOrder(t *testing.T) {
	t.Parallel()
	file := func(name string) string {
		return strings.NewReplacer("projection: p", "projection: "+name, "tables: t", "tables: t_"+name, "table t ", "table t_"+name+" ", "into t ", "into t_"+name+" ").
			Replace(head + "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n")
	}
	s := mustLoad(t, writeFiles(t, "b.sql", file("first"), "c.sql", file("second")), writeFiles(t, "a.sql", file("third")), "builtin:campaigns")
	var got []string
	for _, p := range s.Projections() {
		got = append(got, p.Name)
	}
	must.Equal(t, got, []string{"first", "second", "third", "campaigns", "sessions"})
	must.Equal(t, s.Projections()[3].Source, "builtin:campaigns", "source")
}

func TestLoad_takesProseForComments(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, "t.sql", "\uFEFF"+strings.ReplaceAll(head+`
-- note: this is a comment.
-- See https://example.com/a:b, on: nothing.
-- https://example.com
-- on e.g. a restart nothing is lost; a schema is below
-- digest of nothing
-- on: a
  -- indented: no section
insert into t (campaign_id) values (:campaign_id) -- on: b
;
`, "\n", "\r\n"))
	must.Get(Check(t.Context(), dir)).Or(t)
	// A section for PostgreSQL may use what SQLite would parse as parameters.
	dir = writeFiles(t, "t.sql", head+`-- on: a
insert into t (campaign_id) values (:campaign_id);
-- on: b @postgres
update t set n = 1 where campaign_id = :campaign_id and :payload::jsonb ? 'a' and :tags::jsonb @> '{"a":1}';
`)
	must.Get(Check(t.Context(), dir)).Or(t)
}

func TestLoad_readsTriggersAsOneStatement(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, "t.sql", head+`
create trigger tr after insert on t begin
  update t set n = case when n > 1 then 1 else 0 end where campaign_id = new.campaign_id;
  delete from t where n = 7;
end;
create index i on t (n);
-- on: a
insert into t (campaign_id) values (:campaign_id);
`)
	s := must.Get(Check(t.Context(), dir)).Or(t)
	must.Equal(t, len(s.Projections()[0].SchemaStatements), 3, "schema statements")
	must.Hold(t, s.triggers, "a set with a trigger must run everything under the deadline")
}

// Text that is no token must not be parsed as one: quoted texts and comments reach the database unchanged or not at all.
func TestLoad_leavesStringsCommentsAndCastsAlone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`values (:campaign_id, ':payload.a!')`:           `values ($1, ':payload.a!')`,
		`values (:campaign_id, 'it''s :seq')`:            `values ($1, 'it''s :seq')`,
		`values (:campaign_id, ":seq")`:                  `values ($1, ":seq")`,
		"values (:campaign_id, `:seq`)":                  "values ($1, `:seq`)",
		`values (:campaign_id, /* :foo ; */ 1)`:          `values ($1, 1)`,
		"values (:campaign_id, -- :foo ;\n 1)":           `values ($1, 1)`,
		`values (:campaign_id::text, :seq::int)`:         `values ($1::text, $2::int)`,
		`values (:campaign_id, $$ :foo ; $$)`:            `values ($1, $$ :foo ; $$)`,
		`values (:campaign_id, e'it\'s :foo')`:           `values ($1, e'it\'s :foo')`,
		`values (:campaign_id, :seq, :campaign_id)`:      `values ($1, $2, $1)`,
		`values (:campaign_id, :payload.a!=:payload.a!)`: `values ($1, $2!=$2)`,
		`values (:campaign_id, :payload."a b".c)`:        `values ($1, $2)`,
		`values (:campaign_id,:seq-1)`:                   `values ($1,$2-1)`,
	} {
		s := loadText(t, head+"-- on: a\ninsert into t "+in+";\n")
		must.Equal(t, s.Queries()[0].SQL, "insert into t "+want, "became")
	}
}

func TestParse_neverPanics(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"-- projection: p", "-- tables: t", "-- schema", "-- schema @sqlite", "-- on: a", "-- on: *, b.*", "-- digest: ", "-- digest x (json: n): ",
		"-- on-failure: block", "create table t (campaign_id text primary key)", "create trigger x on t begin", "end", "case", "insert into t values (",
		":campaign_id", ":payload.a!", ":payload.\"", "'", "\"", "`", "/*", "*/", "$1", "$x$", "::", ":", ";", ")", "(", ",", "\n", "\n", "\n", " ", "with", "update",
		"delete from", "select", "primary key", "constraint", "or", "e'", "\\", "é", "\x00", "\xff", "0x1", ".", "!", "@", "?", "if not exists",
	}
	rapid.Check(t, func(t *rapid.T) {
		content := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(pieces), rapid.String()), 0, 40).Draw(t, "pieces"), rapid.SampledFrom([]string{"", " ", "\n"}).Draw(t, "between"))
		for _, dialect := range dialects {
			_, err := parse(dialect, file{name: "f.sql", content: content})
			must.Need(t, err == nil || errors.Is(err, event.ErrSetup), "error %v is not a refusal", err)
		}
	})
}

func TestParse_readsHowOftenAnEventIsTried(t *testing.T) {
	t.Parallel()
	const rest = "-- tables: t\n-- schema\ncreate table t (campaign_id text primary key);\n-- on: a\ndelete from t where campaign_id = :campaign_id;\n"
	for head, want := range map[string]int{"": 0, "-- max-attempts: 1\n": 1, "-- max-attempts: 1000 -- of one event\n": 1000} {
		p, err := parse("sqlite", file{name: "p.sql", content: "-- projection: p\n" + head + rest})
		must.Hold(t, err == nil && p.MaxAttempts == want, "%q: %+v (%v), want %d attempts", head, p, err, want)
	}
}
