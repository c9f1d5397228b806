package projection

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// kinds is a projection with columns of every type that both databases have, with a key and without
// one, whose digests cover all columns; and one whose digests are selects.
var kinds = []string{"1_tables.sql", `-- projection: tables
-- tables: keyed, keyless
-- schema
create table keyed (campaign_id text not null, id text not null, t text, n bigint, d double precision, b boolean, j text, primary key (campaign_id, id));
create table keyless (campaign_id text not null, t text, n bigint, d double precision, b boolean, j text);
-- on: kept
insert into keyed values (:campaign_id, :event_id, :payload.t, :payload.n, :payload.d, :payload.b, :payload.j);
insert into keyless values (:campaign_id, :payload.t, :payload.n, :payload.d, :payload.b, :payload.j);
-- on: changed
update keyed set n = n + :payload.n, d = d + :payload.d, b = :payload.b, t = coalesce(t, '') || :payload.t where campaign_id = :campaign_id and n between -1000 and 1000;
`, "2_selects.sql", `-- projection: selects
-- tables: kept
-- schema
create table kept (campaign_id text not null, seq bigint not null, n bigint, t text, j text, price numeric(20, 4), primary key (campaign_id, seq));
-- on: kept
insert into kept values (:campaign_id, :seq, :payload.n, :payload.t, :payload.j, :payload.price);
-- digest documents (json: j):
select j, t from kept where campaign_id = :campaign_id order by seq;
-- digest unordered:
select n, t, n is null as missing from kept where campaign_id = :campaign_id;
-- digest prices:
select price from kept where campaign_id = :campaign_id order by price nulls first;
-- digest totals:
select count(*) as rows, sum(n) as total, sum(price) as paid, max(t collate "C") as last
from kept where campaign_id = :campaign_id and n between -1000 and 1000;
`}

// ofEveryKind are payloads whose values fit their columns on both databases.
var ofEveryKind = []string{
	`{}`,
	`{"t":null,"n":null,"d":null,"b":null,"j":null,"price":null}`,
	`{"t":"","n":0,"d":0,"b":false,"j":[],"price":0}`,
	`{"t":"a'b\"\\\n\u0001é日本💥","n":9223372036854775807,"d":0.1,"b":true,"j":{"b":[1,2.50,true,null,12345678901234567890],"a":"x"},"price":1.5}`,
	`{"t":"Z","n":-9223372036854775808,"d":-1.5,"b":1,"j":{"é":"\ud83d\ude00"},"price":3}`,
	`{"t":"a b","n":-0,"d":-0.0,"b":0,"j":"\"a string\"","price":2.50}`,
	`{"t":7,"n":2.0,"d":2.0,"b":true,"j":2.0,"price":2.0}`,
	`{"t":12345678901234567890,"n":1e3,"d":12345678901234567890,"b":true,"j":1e3,"price":1e3}`,
	`{"t":0.5,"n":"42","d":"2.5","j":0.5,"price":"0.25"}`,
	`{"t":true,"n":true,"d":false,"j":true,"price":-1}`,
	`{"t":{"k":[]},"n":9007199254740993,"d":9007199254740993,"j":{"k":[]},"price":123456789.125}`,
	`{"t":1e3,"n":-7,"d":0.30000000000000004,"price":1234567890123}`,
	`{"t":-2.0,"n":-1000,"d":5e-324}`,
	`{"t":9007199254740993,"n":1000,"d":1.7976931348623157e308}`,
	`{"t":1.000000000000000001,"n":9007199254740993.0,"d":1.000000000000000001,"price":1.00000000000000001}`,
	`{"t":1.2345678901234567891e-3,"d":6718748338527386.5007,"price":0.12340000000000000001}`,
	`{"t":"é","n":3,"d":1e300}`, `{"t":"b","n":3}`, `{"t":"a","n":3}`, `{"t":"C","n":3}`, `{"t":"a\"","n":3}`,
}

func alike(t *testing.T, what, campaign string, lite, post *replay) {
	must.Equal(t, allDigests(t, post, campaign), allDigests(t, lite, campaign), what, "digests of campaign", campaign)
}

func TestPostgresDigests_ofEveryKindOfColumnAreThoseOfSQLite(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, kinds...)
	must.Get(Check(t.Context(), dir)).Or(t)
	lite, post := inMemory(t, mustLoad(t, dir)), newReplay(t, dir)
	alike(t, "nothing", "c", lite, post)
	seen := map[string]bool{}
	for i, payload := range ofEveryKind {
		for _, eventType := range []string{"kept", "changed"} {
			if eventType == "changed" && i != 1 && i != 6 && i != len(ofEveryKind)-1 {
				continue
			}
			if eventType == "changed" {
				payload = `{"n":2.0,"d":0.5,"b":true,"t":"ü"}`
			}
			e := &event.Event{CampaignID: "c", Seq: int64(i + 1), EventID: fmt.Sprint("é-", i%3, i), EventType: eventType, Payload: []byte(payload)}
			for _, f := range []*replay{lite, post} {
				err := f.Apply(t.Context(), e)
				must.Need(t, err == nil, "%s %s: %v", eventType, payload, err)
			}
			alike(t, eventType+" "+payload, "c", lite, post)
			seen[allDigests(t, post, "c")["full"]] = true
		}
	}
	must.Hold(t, len(seen) >= len(ofEveryKind), "%d digests after %d events: some changed nothing", len(seen), len(ofEveryKind))
}

// Rows are digested in byte order even if the database's collation is a language's.
func TestPostgresDigests_orderTextByBytesWhateverItsCollation(t *testing.T) {
	t.Parallel()
	content := `-- projection: p
-- tables: keyed, keyless
-- schema @sqlite
create table keyed (campaign_id text, name text, primary key (campaign_id, name));
create table keyless (campaign_id text, name text collate nocase);
-- schema @postgres
create table keyed (campaign_id text, name text collate "und-x-icu", primary key (campaign_id, name));
create table keyless (campaign_id text, name text collate "und-x-icu");
-- on: a
insert into keyed values (:campaign_id, :payload.name);
insert into keyless values (:campaign_id, :payload.name);
`
	for _, digest := range []string{"", "-- digest: select name from keyed where campaign_id = :campaign_id order by name collate \"C\""} {
		dir := writeFiles(t, "p.sql", content+digest)
		lite, post := inMemory(t, mustLoad(t, dir)), newReplay(t, dir)
		for _, name := range []string{"é", "b", "a b", "ab", "A", "C", "a", "_", "a-c", "Z", "日"} {
			replayInto(t, lite, "c", "a", `{"name":"`+name+`"}`)
			replayInto(t, post, "c", "a", `{"name":"`+name+`"}`)
		}
		alike(t, digest, "c", lite, post)
	}
}

// The statements of doc.go about bindings: each has the type its place requires, and an event with an incompatible value fails.
func TestPostgresApply_bindingsTakeTheTypeOfTheirPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ set, payload, want string }{
		{"n = :payload.x", `{"x":2.0}`, "2"},
		{"n = :payload.x", `{"x":"42"}`, "42"},
		{"n = :payload.x", `{"x":true}`, "1"},
		{"n = :payload.x", `{"x":1.5}`, `invalid input syntax for type bigint: "1.5"`},
		{"n = :payload.x", `{"x":"one"}`, `invalid input syntax for type bigint: "one"`},
		{"n = :payload.x", `{"x":9223372036854775808}`, `value "9223372036854775808" is out of range for type bigint`},
		{"n = n + :payload.x", `{"x":3000000000}`, "3000000001"},
		{"n = coalesce(:payload.x, 0)", `{"x":3000000000}`, `value "3000000000" is out of range for type integer`},
		{"n = coalesce(cast(:payload.x as bigint), 0)", `{"x":3000000000}`, "3000000000"},
		{"n = :occurred_at / 1000", `{}`, `value "1790000000000000" is out of range for type integer`},
		{"n = cast(:occurred_at as bigint) / 1000", `{}`, "1790000000000"},
		{"s = 'e' || cast(:seq as bigint), n = :seq", `{}`, "7 e7"},
		{"s = :payload.x", `{"x":7}`, "1 7"},
		{"b = :payload.x", `{"x":true}`, "1 true"},
		{"b = :payload.x", `{"x":0}`, "1 false"},
		{"b = :payload.x", `{"x":2}`, `invalid input syntax for type boolean: "2"`},
		{"n = case when :payload.x then 5 else 6 end", `{"x":true}`, "5"},
		{"d = :payload.x", `{"x":1e999}`, `payload.x is a number outside of what a 64-bit float can be: it is beyond 1.8e308, or nearer to 0 than 5e-324`},
		{"s = cast(cast(:payload.x as text) as numeric)", `{"x":1.000000000000000001}`, "1 1.000000000000000001"},
	} {
		f := replayText(t, "-- projection: p\n-- tables: t\n-- schema\ncreate table t (campaign_id text, n bigint, s text, b boolean, d double precision);\n"+
			"-- on: begin\ninsert into t (campaign_id, n) values (:campaign_id, 1);\n-- on: a\nupdate t set "+tt.set+" where campaign_id = :campaign_id;\n")
		replayInto(t, f, "c", "begin", "{}")
		err := f.Apply(t.Context(), &event.Event{CampaignID: "c", Seq: 7, EventType: "a", OccurredAt: time.UnixMicro(1_790_000_000_000_000), Payload: []byte(tt.payload)})
		got := ""
		if err == nil {
			got = strings.Join(linesOf(t, f, "select concat_ws(' ', n, s, case b when true then 'true' when false then 'false' end) from t"), "\n")
		} else if got = err.Error(); strings.HasSuffix(got, tt.want) {
			continue
		}
		must.Equal(t, got, tt.want, tt.set, "with", tt.payload)
	}
}

// The journals of internal/corpus have no such texts.
func TestPostgresDigests_ofOtherLettersAreThoseOfSQLite(t *testing.T) {
	t.Parallel()
	lite, post := inMemory(t, mustLoad(t, "builtin:campaigns")), newReplay(t, "builtin:campaigns")
	for i, e := range []event.Event{
		{EventType: "campaign.created", Payload: []byte(`{"name":"Ünal ","game_system":"çay","gm_mode":"aı","locale":"PT-bR"}`)},
		{EventType: "campaign.updated", Payload: []byte(`{"fields":{"status":"ärchived"}}`)},
		{EventType: "participant.joined", EntityID: "p", Payload: []byte(`{"name":"é","role":"gmé","controller":"ß"}`)},
		{EventType: "character.created", EntityID: "x", Payload: []byte(`{"name":"é","kind":"pç","aliases":["É"]}`)},
	} {
		e.CampaignID, e.Seq = "é", int64(i+1)
		for _, f := range []*replay{lite, post} {
			must.OK(t, f.Apply(t.Context(), &e))
		}
		alike(t, e.EventType, e.CampaignID, lite, post)
	}
}

func TestPostgresCheckPrepared_namesFileAndLine(t *testing.T) {
	t.Parallel()
	head := "-- projection: p\n-- tables: t\n-- schema\ncreate table t (campaign_id text, n bigint, s text);\n"
	good := "-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n"
	for _, tt := range []struct{ name, content, want string }{
		{"qualified column", head + "-- on: a\nupdate t\nset n =\nt.nam where campaign_id = :campaign_id;\n", "8: column t.nam does not exist"},
		{"quoted column", head + "-- on: a\nupdate t\nset n = \"Nam\"\nwhere campaign_id = :campaign_id;\n", `7: column "Nam" does not exist`},
		{"ambiguous column", head + "-- on: a\ndelete from t\nwhere campaign_id = :campaign_id and exists (select 1 from t a, t b\nwhere s = '1');\n", `8: column reference "s" is ambiguous`},
		{"insert column", head + "-- on: a\ninsert into t (campaign_id,\n m) values (:campaign_id, 1);\n", `7: column "m" of relation "t" does not exist`},
		{"syntax", head + "-- on: a\nupdate t\nsett n = 1 where campaign_id = :campaign_id;\n", `7: syntax error at or near "n"`},
		{"function", head + "-- on: a\nupdate t set n =\nfrobnicate(1) where campaign_id = :campaign_id;\n", "7: function frobnicate(integer) does not exist"},
		{"table that is not in the query", head + "-- on: a\nupdate t set n = 1\nwhere campaign_id = :campaign_id\nand u.n = 1;\n", `8: missing FROM-clause entry for table "u"`},
		{"table that does not exist", head + "-- on: a\nupdate t set n = 1\nwhere campaign_id = :campaign_id\nand n in (select n from u);\n", `8: relation "u" does not exist`},
		{"type of a constant", head + "-- on: a\nupdate t\nset n = 'one'\nwhere campaign_id = :campaign_id;\n", `7: invalid input syntax for type bigint: "one"`},
		{"type of a column", head + "-- on: a\nupdate t set\ns = 'x', n = s || 'y'\nwhere campaign_id = :campaign_id;\n", `7: column "n" is of type bigint but expression is of type text`},
		{"type that does not exist", head + "-- on: a\nupdate t set n =\ncast(s as nonsense) where campaign_id = :campaign_id;\n", `7: type "nonsense" does not exist`},
		{"binding without a type", head + "-- on: a\nupdate t set n = 1 where campaign_id = :campaign_id\nand :payload.x! is null;\n",
			"7: could not determine data type of parameter :payload.x; say which with cast(:payload.x as text), or as bigint"},
		{"binding of two types", head + "-- on: a\nupdate t set s = :payload.x, n = :payload.x\nwhere campaign_id = :campaign_id;\n",
			"6: inconsistent types deduced for parameter :payload.x; say which with cast(:payload.x as text), or as bigint"},
		{"binding beside text and in a number", head + "-- on: a\ninsert into t (campaign_id, n, s)\nvalues (:campaign_id, :seq, 'e' || :seq);\n",
			"6: inconsistent types deduced for parameter :seq; say which with cast(:seq as text), or as bigint"},
		{"column without its table", strings.Replace(head, "campaign_id text", "campaign_id text primary key", 1) + "-- on: a\ninsert into t (campaign_id, n) values (:campaign_id, 1) on conflict (campaign_id)\ndo update set n = n + 1;\n",
			`6: column reference "n" is ambiguous`},
		{"binding out of place", head + "-- on: a\nupdate t set n = 1\nwhere campaign_id = :campaign_id\nand n = 1 :payload.x;\n", `8: syntax error at or near ":payload.x"`},
		{"SQLite's type", strings.Replace(head, "n bigint", "n blob", 1) + good, `4: type "blob" does not exist`},
		{"collation", head + good + "-- digest:\nselect s from t where campaign_id = :campaign_id\norder by s collate nocase", `9: collation "nocase" for encoding "UTF8" does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := writeFiles(t, "roster.sql", tt.content)
			err := onPostgres(t, dir).install(t.Context())
			must.Need(t, errors.Is(err, event.ErrSetup), "error %v, want ErrSetup", err)
			must.Equal(t, err.Error(), filepath.Join(dir, "roster.sql")+":"+tt.want)
		})
	}
}
