package e2e

import (
	"slices"
	"strconv"
	"testing"
)

// roads is a read model whose rows are the nodes and edges of a graph.
var roads = map[string]string{"roads.sql": `
-- projection: roads
-- tables: towns, roads
-- graph: nodes=towns(id,name) edges=roads(a,b)

-- schema
create table towns (campaign_id text not null, id bigint not null, name text not null, primary key (campaign_id, id));
create table roads (campaign_id text not null, a bigint not null, b bigint not null, primary key (campaign_id, a, b));

-- on: founded
insert into towns (campaign_id, id, name) values (:campaign_id, :payload.id!, :payload.name!);

-- on: built
insert into roads (campaign_id, a, b) values (:campaign_id, :payload.a!, :payload.b!);

-- on: fallen
delete from roads where campaign_id = :campaign_id and (a = cast(:payload.id! as bigint) or b = cast(:payload.id! as bigint));
delete from towns where campaign_id = :campaign_id and id = cast(:payload.id! as bigint);
`}

func founded(id int, name string) event {
	return event{EventType: "founded", Payload: map[string]any{"id": id, "name": name}}
}

// A graph has a mark for each node and a line for each edge, those of the event apart from the others.
func TestBrowser_aGraphIsDrawnAsOfAnyEvent(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t), append([]string{"--poll-interval", "100ms"}, writeProjections(t, roads)...)...)
	appendTo(t, s, "", "c", []event{
		founded(1, "Ys"), founded(2, "Ur"), founded(3, "Oz"),
		{EventType: "built", Payload: map[string]any{"a": 1, "b": 2}}, {EventType: "built", Payload: map[string]any{"a": 2, "b": 3}},
		{EventType: "fallen", Payload: map[string]any{"id": 3}},
	})
	s.awaitSettled(t)
	b := openTab(t, s)
	drawn := func(selector string, n int) string {
		return `document.querySelectorAll("svg.modelgraph ` + selector + `").length === ` + strconv.Itoa(n)
	}
	for _, size := range []viewport{wide, narrow} {
		b.size(size)
		b.open("/campaigns/c/read-model?seq=5")
		b.await("the towns and roads are drawn", drawn("circle", 3)+" && "+drawn("line", 2)+" && "+`document.querySelector("svg.modelgraph").textContent.includes("Oz")`)
		b.await("the road that was built is marked", drawn("line.added", 1)+" && "+drawn("circle.added", 0))
		b.sound("a graph")
		b.click(marked("next"))
		b.await("the town that fell and its road are marked", telling(marked("as-of-seq"), "Event 6 of 6")+" && "+drawn("circle.removed", 1)+" && "+drawn("line.removed", 1))
		b.sound("a graph that lost a town")
		if wider := value[int](b, `document.documentElement.scrollWidth - innerWidth`); wider > 0 {
			t.Errorf("at %d pixels the page is %d pixels wider", size.width, wider)
		}
	}
}

// Labels of nodes are text like any other.
func TestBrowser_hostileNamesInAGraph(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t), append([]string{"--poll-interval", "100ms"}, writeProjections(t, roads)...)...)
	var campaigns []string
	for names := range slices.Chunk(hostile, 60) { // nodes that a graph shows
		var towns []event
		for i, name := range names {
			towns = append(towns, founded(i, name))
		}
		campaigns = append(campaigns, "c-"+strconv.Itoa(len(campaigns)))
		appendTo(t, s, "", campaigns[len(campaigns)-1], towns)
	}
	s.awaitSettled(t)
	b := openBesieged(t, s)
	drawn := 0
	for _, campaign := range campaigns {
		b.visit("/campaigns/" + campaign + "/read-model")
		drawn += value[int](b.tab, `document.querySelectorAll("svg.modelgraph circle").length`)
	}
	if drawn != len(hostile) {
		t.Errorf("%d names are drawn, want %d", drawn, len(hostile))
	}
	b.hears()
}
