package timetravel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

const roads = `-- projection: roads
-- tables: towns, roads
-- graph: nodes=towns(id,name) edges=roads(a,b)

-- schema
create table towns (campaign_id text not null, id bigint not null, name text not null, primary key (campaign_id, id));
create table roads (campaign_id text not null, a bigint not null, b bigint not null, primary key (campaign_id, a, b));

-- on: founded
insert into towns (campaign_id, id, name) values (:campaign_id, :payload.id!, :payload.name!)
on conflict (campaign_id, id) do update set name = excluded.name;

-- on: built
insert into roads (campaign_id, a, b) values (:campaign_id, :payload.a!, :payload.b!);

-- on: fallen
delete from roads where campaign_id = :campaign_id and b = cast(:payload.id! as bigint);
delete from towns where campaign_id = :campaign_id and id = cast(:payload.id! as bigint);
`

// graphOf lists the nodes and edges of a campaign's graph as of an event.
func graphOf(t *testing.T, tr *timetravel.Travel, seq int64) (m timetravel.ModelGraph, nodes, edges []string) {
	graphs := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: seq}).Graphs
	must.Need(t, len(graphs) == 1, "there are %d graphs, want one", len(graphs))
	m = graphs[0]
	for _, n := range m.Nodes {
		nodes = append(nodes, fmt.Sprint(string(n.ID.Value), " ", string(n.Label.Value), n.Kind))
	}
	for _, e := range m.Edges {
		edges = append(edges, fmt.Sprint(string(m.Nodes[e.From].ID.Value), "-", string(m.Nodes[e.To].ID.Value), e.Kind))
	}
	return m, nodes, edges
}

func TestTravel_drawsRowsAsAGraph(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, roads)
	b.MustAppend(enginetest.EventOf("c", "founded", `{"id":1,"name":"Ur"}`), enginetest.EventOf("c", "founded", `{"id":2,"name":"Uruk"}`),
		enginetest.EventOf("c", "built", `{"a":1,"b":2}`), enginetest.EventOf("c", "built", `{"a":1,"b":9}`), enginetest.EventOf("c", "founded", `{"id":1,"name":"Eridu"}`), enginetest.EventOf("c", "fallen", `{"id":2}`))
	b.Drain()
	for seq, want := range map[int64]string{
		1: `[1 "Ur"added] []`,
		2: `[1 "Ur" 2 "Uruk"added] []`,
		3: `[1 "Ur" 2 "Uruk"] [1-2added]`,
		4: `[1 "Ur" 2 "Uruk"] [1-2]`, // there is no town 9
		5: `[1 "Eridu"changed 2 "Uruk"] [1-2]`,
		6: `[1 "Eridu" 2 "Uruk"removed] [1-2removed]`,
	} {
		_, nodes, edges := graphOf(t, tr, seq)
		must.Hold(t, fmt.Sprint(nodes, edges) == want, "as of event %d the graph is %v %v, want %s", seq, nodes, edges, want)
	}
	m, _, _ := graphOf(t, tr, 6)
	must.Hold(t, m.NodesTotal == 1 && m.EdgesTotal == 1, "%d nodes and %d edges are left, want one each", m.NodesTotal, m.EdgesTotal)
	must.Equal(t, len(mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Table: "towns"}).Graphs), 0, "one table has a graph")
}

func TestTravel_boundsAGraph(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, roads)
	var events []event.Event
	for i := range timetravel.GraphRows + 200 {
		events = append(events, enginetest.EventOf("c", "founded", fmt.Sprintf(`{"id":%d,"name":"t"}`, i)), enginetest.EventOf("c", "built", fmt.Sprintf(`{"a":%d,"b":%d}`, i, max(0, i-1))))
	}
	b.Feed(append(events, enginetest.EventOf("c", "founded", `{"id":240,"name":"new"}`))...)
	m, nodes, _ := graphOf(t, tr, 2*240)
	must.Hold(t, len(m.Nodes) == timetravel.MaxGraphNodes && m.NodesTotal == 240 && len(m.Edges) == timetravel.MaxGraphNodes-1 && m.EdgesTotal == 240 && nodes[0] == `180 "t"`, "of 240 nodes the graph has %d of %d, with %d of %d edges", len(m.Nodes), m.NodesTotal, len(m.Edges), m.EdgesTotal)
	m, nodes, _ = graphOf(t, tr, 0)
	must.Hold(t, m.NodesTotal == timetravel.GraphRows && slices.Contains(nodes, `240 "new"changed`), "of %d nodes %v are drawn, without the changed one", m.NodesTotal, nodes)
}

func TestTravel_drawsTheEdgesOfALargeGraph(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, roads)
	var events []event.Event
	for i := range 200 {
		events = append(events, enginetest.EventOf("c", "founded", fmt.Sprintf(`{"id":%d,"name":"t"}`, i)))
	}
	for i := range 100 {
		events = append(events, enginetest.EventOf("c", "built", fmt.Sprintf(`{"a":%d,"b":%d}`, i, 100+i)))
	}
	b.Feed(append(events, enginetest.EventOf("c", "founded", `{"id":200,"name":"alone"}`))...)
	m, _, edges := graphOf(t, tr, 0)
	must.Hold(t, len(m.Nodes) == timetravel.MaxGraphNodes && len(edges) == 29 && m.EdgesTotal == 100, "%d nodes and %d of %d edges are drawn: %v", len(m.Nodes), len(edges), m.EdgesTotal, edges)
	_, _, edges = graphOf(t, tr, 300)
	must.Hold(t, slices.Contains(edges, "99-199added"), "the edge of the event is not drawn: %v", edges)
}

func TestTravel_tellsOfDrift(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	b.Feed(enginetest.EventOf("c", "put", `{"place":1,"name":"jar"}`)).ExecProjections(`update shelf_items set note = 'meddled'`)
	m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c"})
	must.Hold(t, len(m.Standings) == 1 && m.Standings[0].Verdict == "drift" && m.Standings[0].Differ == 1, "the live rows differ, and it says %+v", m.Standings)
	live := must.Get(tr.Live(t.Context(), "c")).Or(t)
	note := cellOf(live.Tables[0].Rows[0], "note")
	must.Hold(t, string(note.Value) == `"meddled"` && live.Live && live.Seq == 1, "the live rows are %+v", live)
}

func TestTravel_beginsAgainWhenASkipIsUndone(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, enginetest.Accounts)
	b.Feed(enginetest.Opened("c", 5), enginetest.Spent("c", 9)).MustSkip("c", 2)
	b.Drain()
	balance := func() string {
		m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: 1})
		c := cellOf(m.Tables[0].Rows[0], "balance")
		return fmt.Sprint(string(c.Value), " of ", m.LastSeq)
	}
	got := balance()
	must.Need(t, got == "5 of 2", "%v", got)
	must.Equal(t, tr.Replays(), 1, "replays")
	b.Exec(`update skips set undone_at = 1`)
	if got := balance(); got != "5 of 2" || tr.Replays() != 2 {
		t.Errorf("after the skip is undone: %s, %d replays", got, tr.Replays())
	}
}

// The rows of a projection whose loaded version cannot replay the campaign are the live ones as of the
// last applied event, and not known as of an earlier one.
func TestTravel_showsLiveRowsWhereTheLoadedVersionFails(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, shelf))
	b.MustAppend(enginetest.EventOf("c", "put", `{"place":1,"name":"jar","note":"old"}`), enginetest.EventOf("c", "put", `{"place":2,"name":"urn"}`),
		enginetest.EventOf("c", "put", `{"place":1,"name":"jar","note":"new"}`))
	b.Drain()
	other := must.Get(projection.Load(storetest.DialectOf(b.Pair), enginetest.Define(t, strings.ReplaceAll(shelf, ":payload.note)", ":payload.note!)"))...)).Or(t)
	tr := timetravel.New(timetravel.Config{Store: b.Store, Set: other})
	defer tr.Close()
	for seq, want := range map[int64]string{
		0: `live: "new" null`, // as of the last event
		1: `replay: "old"`,
		2: `unknown:`,
	} {
		m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Seq: seq})
		got := m.Tables[0].Source + ":"
		for _, row := range m.Tables[0].Rows {
			note := cellOf(row, "note")
			got += " " + string(note.Value)
		}
		must.Hold(t, got == want && len(m.Standings) == 1 && m.Standings[0].FailedSeq == 2 && m.Standings[0].Error != "", "as of event %d the rows are %s", seq, got)
	}
	if m := mustAt(t, tr, timetravel.ModelQuery{CampaignID: "c", Limit: 1}); len(m.Tables[0].Rows) != 1 || !m.Tables[0].More {
		t.Errorf("of two live rows %d are shown, want the first", len(m.Tables[0].Rows))
	}
	for seq, want := range map[int64]string{1: timetravel.SourceReplay, 2: timetravel.SourceUnknown} {
		tables, err := tr.Changes(t.Context(), "c", seq, time.Minute)
		must.Hold(t, err == nil && len(tables) != 0 && tables[0].Source == want, "event %d changed %+v, want rows that are from %s; %v", seq, tables, want, err)
	}
}
