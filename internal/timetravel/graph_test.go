package timetravel_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
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
func graphOf(t *testing.T, tr *timetravel.Travel, seq int64) (m outbox.ModelGraph, nodes, edges []string) {
	t.Helper()
	graphs := mustAt(t, tr, outbox.ModelQuery{CampaignID: "c", Seq: seq}).Graphs
	if len(graphs) != 1 {
		t.Fatalf("there are %d graphs, want one", len(graphs))
	}
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
	b.MustAppend(t, enginetest.EventOf("c", "founded", `{"id":1,"name":"Ur"}`), enginetest.EventOf("c", "founded", `{"id":2,"name":"Uruk"}`),
		enginetest.EventOf("c", "built", `{"a":1,"b":2}`), enginetest.EventOf("c", "built", `{"a":1,"b":9}`), enginetest.EventOf("c", "founded", `{"id":1,"name":"Eridu"}`), enginetest.EventOf("c", "fallen", `{"id":2}`))
	b.Drain(t)
	for seq, want := range map[int64]string{
		1: `[1 "Ur"added] []`,
		2: `[1 "Ur" 2 "Uruk"added] []`,
		3: `[1 "Ur" 2 "Uruk"] [1-2added]`,
		4: `[1 "Ur" 2 "Uruk"] [1-2]`, // there is no town 9
		5: `[1 "Eridu"changed 2 "Uruk"] [1-2]`,
		6: `[1 "Eridu" 2 "Uruk"removed] [1-2removed]`,
	} {
		if _, nodes, edges := graphOf(t, tr, seq); fmt.Sprint(nodes, edges) != want {
			t.Errorf("as of event %d the graph is %v %v, want %s", seq, nodes, edges, want)
		}
	}
	if m, _, _ := graphOf(t, tr, 6); m.NodesTotal != 1 || m.EdgesTotal != 1 {
		t.Errorf("%d nodes and %d edges are left, want one each", m.NodesTotal, m.EdgesTotal)
	}
	if m := mustAt(t, tr, outbox.ModelQuery{CampaignID: "c", Table: "towns"}); len(m.Graphs) != 0 {
		t.Error("one table has a graph")
	}
}

func TestTravel_boundsAGraph(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, roads)
	const towns = 1200
	for i := range towns {
		b.MustAppend(t, enginetest.EventOf("c", "founded", fmt.Sprintf(`{"id":%d,"name":"t"}`, i)), enginetest.EventOf("c", "built", fmt.Sprintf(`{"a":%d,"b":%d}`, i, max(0, i-1))))
	}
	b.MustAppend(t, enginetest.EventOf("c", "founded", `{"id":240,"name":"new"}`))
	b.Drain(t)
	m, nodes, _ := graphOf(t, tr, 2*240)
	if len(m.Nodes) != outbox.MaxGraphNodes || m.NodesTotal != 240 || len(m.Edges) != outbox.MaxGraphNodes-1 || m.EdgesTotal != 240 || nodes[0] != `180 "t"` {
		t.Errorf("of 240 nodes the graph has %d of %d, with %d of %d edges", len(m.Nodes), m.NodesTotal, len(m.Edges), m.EdgesTotal)
	}
	m, nodes, _ = graphOf(t, tr, 0)
	if m.NodesTotal != outbox.GraphRows || !slices.Contains(nodes, `240 "new"changed`) {
		t.Errorf("of %d nodes %v are drawn, without the changed one", m.NodesTotal, nodes)
	}
}

// The nodes with the first keys may have no edges to each other.
func TestTravel_drawsTheEdgesOfALargeGraph(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, roads)
	for i := range 200 {
		b.MustAppend(t, enginetest.EventOf("c", "founded", fmt.Sprintf(`{"id":%d,"name":"t"}`, i)))
	}
	for i := range 100 {
		b.MustAppend(t, enginetest.EventOf("c", "built", fmt.Sprintf(`{"a":%d,"b":%d}`, i, 100+i)))
	}
	b.MustAppend(t, enginetest.EventOf("c", "founded", `{"id":200,"name":"alone"}`))
	b.Drain(t)
	if m, _, edges := graphOf(t, tr, 0); len(m.Nodes) != outbox.MaxGraphNodes || len(edges) != 29 || m.EdgesTotal != 100 {
		t.Errorf("%d nodes and %d of %d edges are drawn: %v", len(m.Nodes), len(edges), m.EdgesTotal, edges)
	}
	if _, _, edges := graphOf(t, tr, 300); !slices.Contains(edges, "99-199added") {
		t.Errorf("the edge of the event is not drawn: %v", edges)
	}
}
