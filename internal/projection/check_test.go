package projection

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func TestCheck_acceptsTheBuiltInSets(t *testing.T) {
	t.Parallel()
	for _, source := range builtins() {
		must.Get(Check(t.Context(), source)).Or(t)
	}
}

func TestCheck_namesFileAndLine(t *testing.T) {
	t.Parallel()
	good := "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n"
	tests := []struct{ name, content, want string }{
		{"column", head + "-- on: a\nupdate t set nam = 1 where campaign_id = :campaign_id;\n", "6: no such column: nam"},
		{"column further down", head + "-- on: a\nupdate t\nset n = nam\nwhere campaign_id = :campaign_id;\n", "7: no such column: nam"},
		{"column that stands twice", head + "-- on: a\nupdate t\nset n = nam\nwhere campaign_id = :campaign_id and nam = 1;\n", "6: no such column: nam"},
		{"insert column", head + "-- on: a\ninsert into t (campaign_id,\n m) values (:campaign_id, 1);\n", "7: table t has no column named m"},
		{"syntax", head + "-- on: a\nupdate t sett n = 1 where campaign_id = :campaign_id;\n", `6: near "sett": syntax error`},
		{"function", head + "-- on: a\nupdate t set n = frobnicate(1) where campaign_id = :campaign_id;\n", "6: no such function: frobnicate"},
		{"too few values", head + "-- on: a\ninsert into t values (:campaign_id);\n", "6: table t has 2 columns but 1 values were supplied"},
		{"schema", head + "create index i on t (m);\n" + good, "5: no such column: m"},
		{"schema syntax", strings.Replace(head, "n integer", "n integer references", 1) + good, `4: near ")": syntax error`},
		{"digest", head + good + "-- digest:\nselect\n  m from t where campaign_id = :campaign_id", "9: no such column: m"},
		{"digest's JSON column", head + good + "-- digest (json: m): select n from t where campaign_id = :campaign_id", `7: the digest has no column "m"`},
		{"the other dialect", head + good + "-- schema @postgres\ncreate table u (campaign_id text);\n", `8: table "u" is created but not listed`},
		{"only for the other dialect", head + strings.Replace(good, "on: a", "on: a @sqlite", 1), "1: projection \"p\" handles no event type on postgres"},
	}
	for _, tt := range tests {
		dir := writeFiles(t, "roster.sql", tt.content)
		_, err := Check(t.Context(), dir)
		must.Hold(t, errors.Is(err, event.ErrSetup) && strings.HasPrefix(err.Error(), filepath.Join(dir, "roster.sql")+":"+tt.want), "%s: error %v, want %q", tt.name, err, tt.want)
	}
}

func TestCheckPrepared_stopsAtTheFirstComplaint(t *testing.T) {
	t.Parallel()
	s := loadText(t, zoo+"-- digest: select x from apes where campaign_id = :campaign_id")
	var prepared []string
	err := CheckPrepared(t.Context(), s, func(query string) error {
		prepared = append(prepared, query)
		return nil
	})
	must.Hold(t, err == nil && len(prepared) == 3, "error %v, prepared %q, want two handlers and a digest", err, prepared)
	err = CheckPrepared(t.Context(), s, func(query string) error {
		if strings.HasPrefix(query, "select") {
			return errors.New(`ERROR: column "x" does not exist (SQLSTATE 42703)`)
		}
		return nil
	})
	must.Hold(t, err != nil && strings.HasSuffix(err.Error(), `test.sql:15: column "x" does not exist`), "error %v", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = CheckPrepared(ctx, s, func(string) error { return nil })
	must.Hold(t, errors.Is(err, context.Canceled), "error %v, want context.Canceled", err)
	err = CheckPrepared(t.Context(), s, func(string) error { return fmt.Errorf("%w: it is gone", event.ErrBusy) })
	must.Hold(t, errors.Is(err, event.ErrBusy) && !strings.Contains(err.Error(), "test.sql"), "error %v, want that the database is busy, and no file to blame", err)
}

func TestCheck_isOnSQLiteWhateverTheDialect(t *testing.T) {
	t.Parallel()
	s := must.Get(Load("postgres", writeFiles(t, "t.sql", `-- projection: p
-- tables: t
-- schema @postgres
create table t (campaign_id text, at timestamptz, n numeric[]);
-- schema @sqlite
create table t (campaign_id text);
-- on: a @postgres
insert into t values (:campaign_id, now(), '{}'::numeric[]);
-- on: a @sqlite
insert into t values (:campaign_id);
`))).Or(t)
	c := inMemory(t, must.Get(s.checked(t.Context())).Or(t))
	must.OK(t, c.Apply(t.Context(), &event.Event{CampaignID: "c", EventType: "a"}))
	must.Equal(t, len(tableRows(t, c, "t")), 1, "rows")
}

func TestWarnings_tellOfNumbersThatARebuildDrawsAnew(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ schema, handler, want string }{
		{"create table t (campaign_id text, id integer primary key autoincrement)", "insert into t (campaign_id) values (:campaign_id)", `p.sql:4: column "id"`},
		{"create table t (campaign_id text, id integer not null primary key)", "insert into t (campaign_id) values (:campaign_id)", `p.sql:4: column "id"`},
		{"create table t (campaign_id text, id bigint generated always as identity primary key)", "insert into t (campaign_id) values (:campaign_id)", `p.sql:4: column "id"`},
		{"create table t (campaign_id text, id bigserial)", "insert into t (campaign_id) values (:campaign_id)", `p.sql:4: column "id"`},
		{"create table t (campaign_id text, id integer primary key)", "insert into t (campaign_id, id) values (:campaign_id, :seq)", ""},
		{"create table t (campaign_id text, id bigint, primary key (campaign_id, id))", "insert into t (campaign_id) values (:campaign_id)", ""},
		{"create table t (campaign_id text, id integer primary key)", "insert into t (campaign_id) values (:campaign_id);\n-- digest: select campaign_id from t where campaign_id = :campaign_id", ""},
	} {
		set := must.Get(Load("sqlite", writeFiles(t, "p.sql", "-- projection: p\n-- tables: t\n-- schema\n"+tt.schema+";\n-- on: a\n"+tt.handler+";\n"))).Or(t)
		got := strings.Join(set.Warnings(), "\n")
		must.Hold(t, (tt.want != "" || got == "") && strings.Contains(got, tt.want), "%s: %q, want %q", tt.schema, got, tt.want)
	}
}

// twoProjections makes the files of two projections, the first with more in its schema.
func twoProjections(t *testing.T, more string) string {
	const handler = "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n"
	other := strings.NewReplacer("projection: p", "projection: q", "tables: t", "tables: u", "table t ", "table u ", "into t ", "into u ").Replace(head + handler)
	return writeFiles(t, "p.sql", head+more+handler, "q.sql", other)
}

const bumps = `create function bump() returns trigger language plpgsql as $$
declare
  total bigint;
begin
  -- on: a comment
  select count(*) into total from t where campaign_id = new.campaign_id for no key update;
  if tg_op = 'UPDATE' then
    insert into t (campaign_id, n) values (new.campaign_id, total) on conflict do nothing;
  end if;
  update only t set n = n + 1 where campaign_id = new.campaign_id returning n into total;
  return new;
end $$;
`

// A projection is cleared, rebuilt and paused alone, so its triggers must not reach into another one's tables.
func TestCheck_refusesTriggersThatChangeOtherTables(t *testing.T) {
	t.Parallel()
	trigger := func(body string) string { return "create trigger r after insert on t begin\n" + body + "\nend;\n" }
	runs := "create trigger r after insert or update of n on t for each row execute function bump();\n"
	function := func(body string) string {
		return "-- schema @postgres\ncreate function bump() returns trigger language plpgsql as $f$ begin\n" + body + "\nreturn new; end $f$;\n" + runs
	}
	const theirs = `changes table "u", which -- tables does not list; a projection changes its own tables only`
	for _, c := range []struct{ name, more, says string }{
		{"an insert", trigger("insert into u (campaign_id) values (new.campaign_id);"), "6: this trigger " + theirs},
		{"or replace", trigger("insert or replace into u (campaign_id) values (new.campaign_id);"), theirs},
		{"replace", trigger("replace into u (campaign_id) values (new.campaign_id);"), theirs},
		{"an update", trigger("select 1;\nupdate or ignore U set n = 1;"), `7: this trigger changes table "u"`},
		{"a delete", trigger("delete from \"u\" where campaign_id = new.campaign_id;"), theirs},
		{"a schema before it", trigger("delete from main.u;"), `changes table "main.u"`},
		{"the engine's table", trigger("update projection_watermarks set applied_seq = 0;"), `changes table "projection_watermarks"`},
		{"an own table", trigger("update t set n = 1 where campaign_id = new.campaign_id;"), ""},
		{"an own table, on update", "create trigger r after update of n on t when new.n > 1 begin update t set n = 1; end;\n", ""},
		{"a function", function("update u set n = 1;"), "7: this function " + theirs},
		{"a function that reads into a variable", "-- schema @postgres\n" + bumps + runs, ""},
		{"a function in quotes", "-- schema @postgres\ncreate function f() returns int language sql as 'delete from u where n = ''1'' returning n';\n", "this function " + theirs},
		{"a function with parameters", "-- schema @postgres\ncreate function f(a int) returns int language sql as $$ select $1 + 1 $$;\n", ""},
		{"a text", function("execute format('update %I set n = 1', 'u');"), "7: this function executes a statement from a string"},
		{"more than rows", function("truncate u;"), "7: this function does more than change rows: truncate"},
		{"another language", "-- schema @postgres\ncreate function f() returns int language plperl as $$ 1 $$;\n", `function "f" is written in plperl`},
		{"a body that hides", "-- schema @postgres\ncreate function f() returns int language sql as e'select 1';\n", "write the body of this function between $$ and $$"},
		{"a function of nobody", "-- schema @postgres\n" + runs, `this trigger runs function "bump", which no schema above it in this file creates`},
		{"a function of the database", "-- schema @postgres\ncreate trigger r before update on t for each row execute function suppress_redundant_updates_trigger();\n", ""},
	} {
		_, err := Check(t.Context(), twoProjections(t, c.more))
		must.Hold(t, (c.says == "") == (err == nil) && (err == nil || errors.Is(err, event.ErrSetup) && strings.Contains(err.Error(), c.says)), "%s: error %v, want %q", c.name, err, c.says)
	}
}

// Changes made by a function belong to the projection that creates it.
func TestCheck_keepsFunctionsApart(t *testing.T) {
	t.Parallel()
	p := head + "-- schema @postgres\n" + bumps + "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n"
	q := strings.NewReplacer("projection: p", "projection: q", "tables: t", "tables: u", "table t ", "table u ", " t ", " u ").Replace(p)
	caller := strings.NewReplacer("projection: p", "projection: q", "tables: t", "tables: u", "table t ", "table u ").Replace(head) +
		"-- on: a @sqlite\ninsert into u (campaign_id) values (:campaign_id);\n-- on: a @postgres\ninsert into u (campaign_id, n) values (:campaign_id, bump());\n"
	for says, second := range map[string]string{
		`q.sql:6: function "bump" also belongs to projection "p"`: q,
		`q.sql:8: function "bump" belongs to projection "p"`:      caller,
		"": strings.ReplaceAll(q, "bump", "bump_u"),
	} {
		for _, names := range [][]string{{"p.sql", "q.sql"}, {"z.sql", "q.sql"}} { // in either order
			_, err := Check(t.Context(), writeFiles(t, names[0], p, names[1], second))
			must.Hold(t, (says == "") == (err == nil) && (says == "" || names[0] != "p.sql" || strings.Contains(err.Error(), says)), "error %v, want %q", err, says)
		}
	}
}
