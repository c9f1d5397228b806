package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// change runs one statement on the tables of a replay, as manual tampering would.
func change(t *testing.T, f *replay, statement string) {
	must.Get(f.writing.ExecContext(t.Context(), statement)).Or(t)
}

func compare(t *testing.T, live, expected *replay, name string) (Comparison, []Difference) {
	c, found, err := live.set.Compare(t.Context(), live, expected, "c", name)
	must.OK(t, err)
	return c, found
}

func TestCompare_findsNothingInEqualRowsOfEveryKind(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, kinds...)
	a, b := newReplay(t, dir), newReplay(t, dir)
	for i, payload := range ofEveryKind {
		for _, f := range []*replay{a, b} {
			for _, campaign := range []string{"c", "other"} {
				e := &event.Event{CampaignID: campaign, Seq: int64(i + 1), EventID: fmt.Sprint("é-", i%3, i), EventType: "kept", Payload: []byte(payload)}
				must.OK(t, f.Apply(t.Context(), e))
			}
		}
	}
	change(t, a, `delete from keyed where campaign_id = 'other'`)
	for _, name := range []string{"tables", "selects"} {
		c, found := compare(t, a, b, name)
		must.Hold(t, !c.Differs() && len(found) == 0, "%s: %+v", name, c)
	}
	change(t, a, `delete from keyed where campaign_id = 'c' and n = 3`)
	change(t, b, `delete from keyless where campaign_id = 'c' and n = 3 and t = 'b'`)
	c, _ := compare(t, a, b, "tables")
	must.Hold(t, c.Added == 5 && c.Removed == 1 && c.Changed == 0, "rows taken away on both sides: %+v", c)
}

const pets = `-- projection: pets
-- tables: dogs, cats
-- schema
create table dogs (campaign_id text not null, id integer not null, name text, age integer, primary key (campaign_id, id));
create table cats (campaign_id text not null, name text collate "C", lives integer, primary key (name, campaign_id));
-- on: dog
insert into dogs values (:campaign_id, :payload.id, :payload.name, :payload.age);
-- on: cat
insert into cats values (:campaign_id, :payload.name, :payload.lives);
`

func TestCompare_tellsWhatARebuildWouldChange(t *testing.T) {
	t.Parallel()
	live, expected := replayText(t, pets), replayText(t, pets)
	for _, id := range []int{2, 10, 9} {
		dog := fmt.Sprintf(`{"id":%d,"name":"rex","age":3}`, id)
		replayInto(t, live, "c", "dog", dog)
		replayInto(t, expected, "c", "dog", dog)
	}
	replayInto(t, live, "c", "cat", `{"name":"Zoe","lives":9}`, `{"name":"éclair","lives":9}`)
	replayInto(t, expected, "c", "cat", `{"name":"Zoe","lives":9}`, `{"name":"a","lives":1}`)
	change(t, live, `update dogs set name = 'x"y', age = null where id = 9`)
	change(t, live, `update dogs set age = 4 where id = 10`)
	got, _ := compare(t, live, expected, "pets")
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	want := Comparison{Added: 1, Changed: 2, Removed: 1, ReplayedWith: got.ReplayedWith, Samples: []RowChange{
		{Table: "dogs", Kind: "changed", Key: []Field{{Name: "id", Value: raw("9")}}, Fields: []FieldChange{
			{Name: "name", Live: raw(`"x\"y"`), Expected: raw(`"rex"`)}, {Name: "age", Live: raw("null"), Expected: raw("3")}}},
		{Table: "dogs", Kind: "changed", Key: []Field{{Name: "id", Value: raw("10")}}, Fields: []FieldChange{{Name: "age", Live: raw("4"), Expected: raw("3")}}},
		{Table: "cats", Kind: "added", Key: []Field{{Name: "name", Value: raw(`"a"`)}}, Fields: []FieldChange{{Name: "lives", Expected: raw("1")}}},
		{Table: "cats", Kind: "removed", Key: []Field{{Name: "name", Value: raw(`"éclair"`)}}, Fields: []FieldChange{{Name: "lives", Live: raw("9")}}},
	}}
	must.Equal(t, got, want)
}

func TestCompare_countsExactlyAndSamplesFew(t *testing.T) {
	t.Parallel()
	live, expected, rows := replayText(t, pets), replayText(t, pets), MaxDifferences+30
	for i := range rows {
		replayInto(t, expected, "c", "dog", fmt.Sprintf(`{"id":%d}`, i))
	}
	for i := range 30 {
		replayInto(t, live, "c", "cat", fmt.Sprintf(`{"name":"%d"}`, i))
	}
	c, found := compare(t, live, expected, "pets")
	must.Hold(t, c.Added == int64(rows) && c.Removed == 30 && c.Changed == 0, "counted %d added, %d removed, %d changed; want %d, 30, 0", c.Added, c.Removed, c.Changed, rows)
	tables := map[string]int{}
	for _, s := range c.Samples {
		tables[s.Table]++
	}
	must.Hold(t, tables["dogs"] == MaxSamples/2 && tables["cats"] == MaxSamples/2, "sampled %v", tables)
	must.Equal(t, len(found), MaxDifferences, "differences are remembered")
}

// The live tables may have been made by another version of the file.
func TestCompare_withLiveTablesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	live, expected := replayText(t, pets), replayText(t, pets)
	replayInto(t, live, "c", "dog", `{"id":1,"name":"rex","age":3}`)
	replayInto(t, expected, "c", "dog", `{"id":1,"name":"rex","age":3}`)
	replayInto(t, expected, "c", "cat", `{"name":"a","lives":1}`)
	change(t, live, `drop table cats`)
	change(t, live, `alter table dogs drop column age`)
	c, _ := compare(t, live, expected, "pets")
	want := []RowChange{
		{Table: "dogs", Kind: "changed", Key: []Field{{Name: "id", Value: json.RawMessage("1")}}, Fields: []FieldChange{{Name: "age", Expected: json.RawMessage("3")}}},
		{Table: "cats", Kind: "added", Key: []Field{{Name: "name", Value: json.RawMessage(`"a"`)}}, Fields: []FieldChange{{Name: "lives", Expected: json.RawMessage("1")}}},
	}
	must.Equal(t, c.Samples, want)
	change(t, live, `drop table dogs`)
	change(t, live, `create table dogs (campaign_id text, name text)`)
	_, _, err := live.set.Compare(t.Context(), live, expected, "c", "pets")
	must.Hold(t, errors.Is(err, event.ErrConflict), "without a column of the key: %v", err)
}

func TestDifference_standsAsTheLiveRowOrAsTheReplayDoes(t *testing.T) {
	t.Parallel()
	live, expected := replayText(t, pets), replayText(t, pets)
	replayInto(t, live, "c", "dog", `{"id":1,"name":"old","age":1}`, `{"id":2}`)
	replayInto(t, expected, "c", "dog", `{"id":1,"name":"new","age":1}`, `{"id":3}`)
	_, found := compare(t, live, expected, "pets")
	must.Need(t, len(found) == 3, "found %d differences", len(found))
	dogs := expected.set.Shapes()[0]
	look := func(what string, want ...RowMatch) {
		tables := must.Get(expected.set.FirstRows(t.Context(), expected, "c", 10)).Or(t)
		rows := map[string][]json.RawMessage{}
		for _, cells := range tables[0].Rows {
			rows[dogs.RowOf(dogs.KeyOf(cells))] = cells
		}
		for i := range found {
			must.Equal(t, found[i].Match(dogs, rows[found[i].Row]), want[i], what, found[i].Change.Kind, "of dog", found[i].Change.Key[0].Value)
		}
	}
	none, asLive, asExpected := RowMatch{}, RowMatch{AsLive: true}, RowMatch{AsExpected: true}
	look("at the end", asExpected, asExpected, asExpected)
	change(t, expected, `update dogs set name = 'old', age = 7 where id = 1`) // only fields that differ count
	change(t, expected, `delete from dogs where id = 3`)
	change(t, expected, `insert into dogs (campaign_id, id) values ('c', 2)`)
	look("earlier", asLive, asLive, asLive)
	change(t, expected, `update dogs set name = 'other'`)
	look("in between", none, none, asLive)
	change(t, expected, `delete from dogs where id = 1`)
	look("before the row", none, none, asLive)
}

func TestCompare_ofRowsWithoutAKeyCountsThem(t *testing.T) {
	t.Parallel()
	const bag = `-- projection: bag
-- tables: bag
-- schema
create table bag (campaign_id text, n integer, t text);
-- on: put
insert into bag values (:campaign_id, :payload.n, :payload.t);
`
	live, expected := replayText(t, bag), replayText(t, bag)
	replayInto(t, live, "c", "put", `{"n":1}`, `{"n":1}`, `{"t":"a"}`, `{"n":2,"t":"é"}`)
	replayInto(t, expected, "c", "put", `{"n":2,"t":"é"}`, `{"t":"a"}`, `{"n":1}`, `{"n":1}`)
	c, _ := compare(t, live, expected, "bag")
	must.Hold(t, !c.Differs(), "the same rows in another order differ: %+v", c)
	replayInto(t, live, "c", "put", `{"n":1}`)
	c, _ = compare(t, live, expected, "bag")
	must.Hold(t, c.Removed == 1 && c.Added+c.Changed == 0, "one row too many: %+v", c)
}

func TestNeeds_followsTheTablesThatStatementsName(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, writeFiles(t, "1.sql", `-- projection: base
-- tables: base
-- schema
create table base (campaign_id text primary key, n integer);
-- on: a
insert into base values (:campaign_id, 1);
`, "2.sql", `-- projection: alone
-- tables: alone
-- schema
create table alone (campaign_id text primary key);
-- on: a
insert into alone values (:campaign_id);
`, "3.sql", `-- projection: reader
-- tables: reader
-- schema
create table reader (campaign_id text primary key, n integer);
-- on: a
insert into reader select campaign_id, n from "base" where campaign_id = :campaign_id;
`, "4.sql", `-- projection: far
-- tables: far
-- schema
create table far (campaign_id text primary key, n integer);
-- on: b
insert into far select campaign_id, n from Reader where campaign_id = :campaign_id;
`))
	for _, tt := range []struct{ names, want []string }{
		{nil, []string{"base", "alone", "reader", "far"}},
		{[]string{"alone"}, []string{"alone"}},
		{[]string{"reader"}, []string{"base", "reader"}},
		{[]string{"far", "alone"}, []string{"base", "alone", "reader", "far"}},
	} {
		must.Equal(t, must.Get(s.Needs(tt.names...)).Or(t), tt.want, tt.names, "need")
	}
	_, err := s.Needs("none")
	must.Hold(t, errors.Is(err, event.ErrNotFound), "an unknown projection: %v", err)
	must.Equal(t, s.Others([]string{"alone", "far"}), map[string]bool{"base": true, "reader": true})
}
