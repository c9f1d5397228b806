package timetravel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// shelf changes rows in every way that a projection may: it inserts, updates, replaces keys, deletes many, has rows without a key, and long values.
const shelf = `-- projection: shelf
-- tables: shelf_items, shelf_words, shelf_totals

-- schema
create table shelf_items (
  campaign_id text not null,
  place bigint not null,
  name text not null,
  size double precision,
  note text,
  primary key (campaign_id, place, name)
);
create table shelf_words (campaign_id text not null, word text, n bigint);
create table shelf_totals (campaign_id text primary key, items bigint not null, events bigint not null);

-- on: put
insert into shelf_items (campaign_id, place, name, size, note)
values (:campaign_id, :payload.place!, :payload.name!, :payload.size, :payload.note)
on conflict (campaign_id, place, name) do update set size = excluded.size, note = excluded.note;

-- on: moved
delete from shelf_items where campaign_id = :campaign_id and place = :payload.to and name = :payload.name!;
update shelf_items set place = :payload.to! where campaign_id = :campaign_id and name = :payload.name! and place = :payload.place!;

-- on: cleared
delete from shelf_items where campaign_id = :campaign_id and place >= :payload.place!;

-- on: flickered
update shelf_items set note = 'for a moment' where campaign_id = :campaign_id and place = :payload.place!;
update shelf_items set note = null where campaign_id = :campaign_id and place = :payload.place!;

-- on: said
insert into shelf_words (campaign_id, word, n) values (:campaign_id, :payload.word, :payload.n);

-- on: unsaid
delete from shelf_words where campaign_id = :campaign_id and word = :payload.word!;

-- on: *
insert into shelf_totals (campaign_id, items, events)
select cast(:campaign_id as text), (select count(*) from shelf_items i where i.campaign_id = :campaign_id), 1
where true
on conflict (campaign_id) do update set items = excluded.items, events = shelf_totals.events + 1;
`

func random(r *rand.Rand, campaign string, n int) []event.Event {
	names := []string{"jar", "book", "Äpfel", "sk-not-a-secret", ""}
	events := make([]event.Event, n)
	for i := range events {
		name := names[r.IntN(len(names))]
		place, to := r.IntN(5)-2, r.IntN(5)-2
		kind := []string{"put", "put", "put", "moved", "cleared", "flickered", "said", "said", "unsaid", "other"}[r.IntN(10)]
		if kind == "cleared" && r.IntN(2) == 0 {
			place = 2
		}
		note, _ := json.Marshal(strings.Repeat("long "+name, r.IntN(3)*200))
		payload := fmt.Sprintf(`{"place":%d,"to":%d,"name":%q,"size":%g,"note":%s,"word":%q,"n":%d}`, place, to, name, float64(r.IntN(3))+0.5, note, name, r.IntN(2))
		events[i] = enginetest.EventOf(campaign, kind, payload)
	}
	return events
}

// wait is how long tests wait for a replay.
const wait = must.Patience

// tableState is the rows of a table, their columns by name, in no order.
type tableState map[string][]string

func naive(t *testing.T, b *enginetest.Engine, sources []string, events []event.Event) []tableState {
	scratch := enginetest.NewMemory(t, sources...)
	states := []tableState{{}}
	for i := range events {
		e := must.Get(b.Event(t.Context(), events[i].CampaignID, int64(i+1))).Or(t)
		must.OK(t, scratch.Apply(t.Context(), &e))
		state := tableState{}
		for _, shape := range scratch.Set.Shapes() {
			rows := must.Get(scratch.QueryContext(t.Context(), "select "+strings.Join(shape.Columns, ", ")+" from "+shape.Table)).Or(t)
			err := projection.EachRow(rows, func(cells []json.RawMessage) error {
				fields := map[string]string{}
				for j, name := range shape.Columns {
					if name != "campaign_id" {
						fields[name] = string(cells[j])
					}
				}
				state[shape.Table] = append(state[shape.Table], fmt.Sprint(fields))
				return nil
			})
			rows.Close()
			must.OK(t, err)
			slices.Sort(state[shape.Table])
		}
		states = append(states, state)
	}
	return states
}

// shown is the rows of a read model as of its event, and before it.
func shown(m timetravel.ReadModel) (now, before tableState) {
	now, before = tableState{}, tableState{}
	for _, table := range m.Tables {
		for _, row := range table.Rows {
			is, was := map[string]string{}, map[string]string{}
			for _, k := range row.Key {
				is[k.Name], was[k.Name] = string(k.Value), string(k.Value)
			}
			for _, c := range row.Cells {
				is[c.Name], was[c.Name] = string(c.Value), string(c.Value)
				if c.Changed {
					was[c.Name] = string(c.Before)
				}
			}
			if row.Kind != projection.RowRemoved {
				now[table.Name] = append(now[table.Name], fmt.Sprint(is))
			}
			if row.Kind != projection.RowAdded {
				before[table.Name] = append(before[table.Name], fmt.Sprint(was))
			}
		}
	}
	for _, state := range []tableState{now, before} {
		for _, rows := range state {
			slices.Sort(rows)
		}
	}
	return now, before
}

func open(t *testing.T, c timetravel.Config, definitions ...string) (*enginetest.Engine, *timetravel.Travel) {
	b := enginetest.Open(t, enginetest.Define(t, definitions...))
	return b, travel(t, b, c)
}

func travel(t *testing.T, b *enginetest.Engine, c timetravel.Config) *timetravel.Travel {
	c.Store, c.Set = b.Store, b.Set
	tr := timetravel.New(c)
	t.Cleanup(tr.Close)
	return tr
}

func mustAt(t *testing.T, tr *timetravel.Travel, q timetravel.ModelQuery) timetravel.ReadModel {
	m, err := tr.At(t.Context(), q, wait)
	must.Need(t, err == nil, "as of event %d: %v", q.Seq, err)
	return m
}

func TestTravel_showsAtEveryEventWhatANaiveReplayHas(t *testing.T) {
	t.Parallel()
	for round := range size.Of(1, 4, 20) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(round, "-", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			b, tr := open(t, timetravel.Config{}, shelf)
			events := random(r, "c", 40+r.IntN(40))
			others := random(r, "other", 20)
			b.MustAppend(events...)
			b.Feed(others...)
			states := naive(t, b, b.Sources, events)
			setters := map[string]timetravel.ModelCell{}
			mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"}) // replayed to the end: a row's next change is known then
			for seq := range int64(len(states)) {
				if seq == 0 {
					continue
				}
				m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: seq})
				now, before := shown(m)
				if diff := cmp.Diff(states[seq], now); diff != "" {
					t.Fatalf("rows after event %d (%s):\n%s", seq, events[seq-1].EventType, diff)
				}
				if diff := cmp.Diff(states[seq-1], before); diff != "" {
					t.Fatalf("rows before event %d (%s):\n%s", seq, events[seq-1].EventType, diff)
				}
				mustBeSetBy(t, setters, m, seq)
				changes := must.Get(tr.Changes(t.Context(), "c", seq, wait)).Or(t)
				diff := cmp.Diff(onlyChanged(m.Tables), changes)
				must.Need(t, diff == "", "changes of event %d:\n%s", seq, diff)
			}
			for _, s := range mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"}).Standings {
				must.Equal(t, s.Verdict, "match", "the replayed rows differ from the live ones")
			}
		})
	}
}

// mustBeSetBy compares every cell's setter with brute force: the last event in which its row was added or the cell changed.
func mustBeSetBy(t *testing.T, setters map[string]timetravel.ModelCell, m timetravel.ReadModel, seq int64) {
	for _, table := range m.Tables {
		for _, row := range table.Rows {
			for _, c := range row.Cells {
				at := row.Row + "/" + c.Name
				old, known := setters[at]
				if row.Kind == projection.RowAdded || !known || string(old.Value) != string(c.Value) {
					old = timetravel.ModelCell{Value: c.Value, SetSeq: seq}
				}
				if row.Kind != projection.RowRemoved {
					setters[at] = old
				}
				must.Need(t, c.SetSeq == old.SetSeq && c.Statement != "", "as of event %d, %s.%s of row %s is set by event %d, %q; it was event %d", seq, table.Name, c.Name, row.Row, c.SetSeq, c.Statement, old.SetSeq)
			}
		}
	}
}

func onlyChanged(tables []timetravel.ModelTable) []timetravel.ModelTable {
	kept := []timetravel.ModelTable{}
	for _, table := range tables {
		table.Rows = slices.DeleteFunc(slices.Clone(table.Rows), func(r timetravel.ModelRow) bool { return r.Kind == "" })
		if len(table.Rows) > 0 {
			kept = append(kept, table)
		}
	}
	return kept
}

func TestTravel_namesTheStatementThatSetACell(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	b.MustAppend(enginetest.EventOf("c", "put", `{"place":1,"name":"jar","note":"full"}`), enginetest.EventOf("c", "flickered", `{"place":1}`), enginetest.EventOf("c", "other", `{}`))
	b.Drain()
	line := 1 + strings.Count(shelf[:strings.Index(shelf, "update shelf_items set note = null")], "\n")
	row := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"}).Tables[0].Rows[0]
	note := cellOf(row, "note")
	want := timetravel.ModelCell{Name: "note", Value: json.RawMessage("null"), SetSeq: 2, Statement: fmt.Sprintf("00.sql:%d", line)}
	must.Equal(t, note, want)
	must.Hold(t, row.Previous == 2 && row.Following == 0, "the row changed before at event %d and then at %d", row.Previous, row.Following)
	h := must.Get(tr.Cell(t.Context(), timetravel.ModelQuery{CampaignID: "c", Row: row.Row}, "note", wait)).Or(t)
	must.Hold(t, len(h.Earlier) == 1 && string(h.Earlier[0].Value) == `"full"` && h.Earlier[0].SetSeq == 1 && strings.HasPrefix(h.SQL, "update shelf_items set note = null where campaign_id = :campaign_id"), "the cell's history is %+v", h)
}

// A row that makes room for another one is removed, though no statement names it.
func TestTravel_showsRowsThatAreReplacedThroughAnotherKey(t *testing.T) {
	t.Parallel()
	seats := `-- projection: seats
-- tables: seats

-- schema
create table seats (campaign_id text not null, who text not null, seat bigint not null, primary key (campaign_id, who), unique (campaign_id, seat));

-- on: sat @sqlite
insert or replace into seats (campaign_id, who, seat) values (:campaign_id, :payload.who!, :payload.seat!);

-- on: sat @postgres
delete from seats where campaign_id = :campaign_id and seat = cast(:payload.seat! as bigint);
insert into seats (campaign_id, who, seat) values (:campaign_id, :payload.who!, :payload.seat!) on conflict (campaign_id, who) do update set seat = excluded.seat;
`
	b, tr := open(t, timetravel.Config{}, seats)
	for _, payload := range []string{`{"who":"ana","seat":1}`, `{"who":"ben","seat":1}`, `{"who":"ben","seat":2}`, `{"who":"cid","seat":2}`} {
		b.MustAppend(enginetest.EventOf("c", "sat", payload))
	}
	b.Drain()
	ana, ben, atTwo, cid := "map[seat:1 who:\"ana\"]", "map[seat:1 who:\"ben\"]", "map[seat:2 who:\"ben\"]", "map[seat:2 who:\"cid\"]"
	for seq, want := range [][]string{nil, {ana}, {ben}, {atTwo}, {cid}} {
		if seq == 0 {
			continue
		}
		now, _ := shown(mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: int64(seq)}))
		must.Equal(t, now, tableState{"seats": want}, "as of event", seq)
	}
	changed := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: 2}).Tables[0].Rows
	must.Hold(t, len(changed) == 2 && changed[0].Kind == projection.RowRemoved && changed[1].Kind == projection.RowAdded, "event 2 changes %+v", changed)
}

func TestTravel_keepsAWindowOfTheLastEvents(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{Events: 20}, shelf)
	r := rand.New(rand.NewPCG(3, 4))
	events := random(r, "c", 120)
	b.Feed(events[:50]...)
	if m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"}); m.FirstSeq != 30 {
		t.Fatalf("rows are kept from event %d on", m.FirstSeq)
	}
	_, err := tr.At(t.Context(), timetravel.ModelQuery{CampaignID: "c", Seq: 29}, wait)
	must.Hold(t, errors.Is(err, event.ErrNotFound), "as of event 29: %v", err)
	for i := 50; i < len(events); i += 5 {
		b.Feed(events[i : i+5]...)
		mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"})
	}
	m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"})
	must.Hold(t, m.FirstSeq >= 80 && m.FirstSeq <= 100, "rows are kept from event %d on", m.FirstSeq)
	states := naive(t, b, b.Sources, events)
	for seq := m.FirstSeq; seq <= m.LastSeq; seq++ {
		now, before := shown(mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: seq}))
		diff := cmp.Diff(states[seq], now)
		must.Need(t, diff == "", "as of event %d:\n%s", seq, diff)
		diff = cmp.Diff(states[seq-1], before)
		must.Need(t, seq <= m.FirstSeq || diff == "", "before event %d:\n%s", seq, diff)
	}
}

func TestTravel_pagesByKey(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	var events []event.Event
	var want []string
	for i := range 250 {
		events = append(events, enginetest.EventOf("c", "put", fmt.Sprintf(`{"place":%d,"name":"n%d"}`, (i*7)%250-125, i)))
	}
	for i := range 250 {
		want = append(want, fmt.Sprint(i-125))
	}
	b.MustAppend(events...)
	b.Feed(enginetest.EventOf("c", "cleared", `{"place":115}`))
	var seen []string
	q := timetravel.ModelQuery{CampaignID: "c", Seq: 250, Table: "shelf_items"}
	for {
		table := mustAt(t, tr, q).Tables[0]
		must.Need(t, len(table.Rows) <= timetravel.MaxModelRows, "a page has %d rows", len(table.Rows))
		for _, row := range table.Rows {
			seen = append(seen, string(row.Key[0].Value))
		}
		if q.After = table.Next; !table.More {
			break
		}
	}
	must.Equal(t, seen, want)
	_, err := tr.At(t.Context(), timetravel.ModelQuery{CampaignID: "c", Table: "shelf_items", After: "nothing"}, wait)
	must.Hold(t, errors.Is(err, event.ErrInvalid), "after an unknown row: %v", err)
	changes, err := tr.Changes(t.Context(), "c", 251, wait)
	must.Hold(t, err == nil && len(changes[0].Rows) == 10, "event 251 changed %+v, %v", changes, err)
}

func TestTravel_isOneReplayForManyReaders(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	r := rand.New(rand.NewPCG(5, 6))
	b.Feed(random(r, "c", 300)...)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for seq := range int64(6) {
				m, err := tr.At(t.Context(), timetravel.ModelQuery{CampaignID: "c", Seq: 1 + (seq*37+int64(i)*11)%300}, wait)
				if err != nil || len(m.Tables) != 3 {
					t.Errorf("reader %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	must.Equal(t, tr.Replays(), 1, "replays")
}

func TestTravel_keepsFewCampaignsAndLeavesNoFile(t *testing.T) {
	// not parallel: it looks for files in a directory of its own
	dir := t.TempDir()
	t.Setenv("SQLITE_TMPDIR", dir)
	b, tr := open(t, timetravel.Config{Campaigns: 2}, shelf)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 5 {
		b.MustAppend(random(r, fmt.Sprint("c", i), 300)...)
	}
	b.Drain()
	for i := range 10 {
		mustAt(t, tr, timetravel.ModelQuery{CampaignID: fmt.Sprint("c", i%5)})
		n := tr.Kept()
		must.Hold(t, n <= 2, "%d campaigns are kept", n)
	}
	// A process killed now leaves what has a name.
	left, err := os.ReadDir(dir)
	must.Hold(t, err == nil && len(left) == 0, "files that a killed process would leave: %v, %v", left, err)
}

func TestTravel_refusesWhatIsNotApplied(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	b.Feed(enginetest.EventOf("c", "put", `{"place":1,"name":"jar"}`), enginetest.EventOf("c", "put", `{}`))
	for _, q := range []timetravel.ModelQuery{{CampaignID: "c", Seq: 2}, {CampaignID: "c", Seq: 99}, {CampaignID: "none"}, {CampaignID: "c", Table: "none"}, {CampaignID: "c", Row: "none"}} {
		_, err := tr.At(t.Context(), q, wait)
		must.Hold(t, errors.Is(err, event.ErrNotFound), "%+v: %v", q, err)
	}
	_, err := tr.At(t.Context(), timetravel.ModelQuery{CampaignID: "c", Seq: -1}, wait)
	must.Hold(t, errors.Is(err, event.ErrInvalid), "before all events: %v", err)
}

// A live row is followed to the event that changed it last, unless the campaign is too long for that.
func TestTravel_namesTheEventBehindALiveRow(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	b.MustAppend(enginetest.EventOf("c", "put", `{"place":1,"name":"jar","note":"full"}`), enginetest.EventOf("c", "flickered", `{"place":1}`), enginetest.EventOf("c", "other", `{}`))
	b.Feed(random(rand.New(rand.NewPCG(1, 1)), "long", 5001)...)
	for _, c := range []struct {
		campaign, table, fields string
		want                    int64
	}{
		{"c", "shelf_items", `{"place":1,"name":"jar"}`, 2},
		{"c", "shelf_items", `{"place":1,"name":"jar","note":"[redacted]"}`, 2},
		{"c", "shelf_items", `{"place":1,"name":"jar","size":3}`, 0}, // which another version made
		{"c", "shelf_items", `{"place":9,"name":"jar"}`, 0},
		{"c", "shelf_items", `{"name":"jar"}`, 0},
		{"c", "shelf_totals", `{}`, 3},
		{"c", "none", `{"place":1}`, 0},
		{"long", "shelf_totals", `{}`, 0},
	} {
		row := &projection.ExistingRow{Table: c.table}
		var fields map[string]json.RawMessage
		must.OK(t, json.Unmarshal([]byte(c.fields), &fields))
		for name, value := range fields {
			row.Fields = append(row.Fields, projection.Field{Name: name, Value: value})
		}
		tr.NameEvents(t.Context(), &projection.EventExplanation{CampaignID: c.campaign, Failures: []projection.ExplainedFailure{{}, {Existing: row}}}, wait)
		must.Equal(t, row.SetBy, c.want, "event")
	}
}

func TestTravel_tellsItsProgressAndEndsWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	r := rand.New(rand.NewPCG(9, 9))
	b.Feed(random(r, "c", 2000)...)
	_, err := tr.At(t.Context(), timetravel.ModelQuery{CampaignID: "c"}, time.Nanosecond)
	replaying, ok := errors.AsType[*timetravel.Replaying](err)
	must.Need(t, ok && replaying.Total == 2000 && errors.Is(err, event.ErrBusy), "%v", err)
	must.Equal(t, mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"}).Seq, 2000, "then the rows are as of event")
}

// differs matches tests of how rows are replayed and read; what is kept of them is the same code.
const differs = "^Test(Postgres|Travel_(shows|namesTheStatement|pages|goesOn))"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }

// cellOf is the cell of a column; empty without one.
func cellOf(row timetravel.ModelRow, column string) (cell timetravel.ModelCell) {
	for _, c := range row.Cells {
		if c.Name == column {
			cell = c
		}
	}
	return cell
}
