package projection_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/projection"
)

func TestGraph_namesTablesAndColumnsOfTheProjection(t *testing.T) {
	t.Parallel()
	const text = `-- projection: roads
-- tables: towns, roads
-- graph: GRAPH

-- schema
create table towns (campaign_id text not null, id bigint not null, name text not null, primary key (campaign_id, id));
create table roads (campaign_id text not null, a bigint not null, b bigint not null, primary key (campaign_id, a, b));

-- on: founded
insert into towns (campaign_id, id, name) values (:campaign_id, :seq, :event_type);
`
	for graph, want := range map[string]string{
		"nodes=towns(id,name) edges=roads(a,b)":   "",
		"nodes=towns(id, name) edges=roads(a, b)": "",
		"nodes=towns(id,name)":                    ":3: -- graph: is nodes=TABLE",
		"nodes=towns(id,size) edges=roads(a,b)":   ":3: -- graph: names towns(id,size)",
		"nodes=towns(id,name) edges=rivers(a,b)":  ":3: -- graph: names rivers(a,b)",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "roads.sql"), []byte(strings.Replace(text, "GRAPH", graph, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := projection.Load("sqlite", dir)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got error %v, want %q", graph, err, want)
		case want == "":
			g := set.Graphs()[0]
			if g.Projection != "roads" || g.Nodes+g.ID+g.Label+g.Edges+g.From+g.To != "townsidnameroadsab" {
				t.Errorf("%s is read as %+v", graph, g)
			}
		}
	}
}
