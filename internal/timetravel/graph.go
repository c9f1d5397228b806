package timetravel

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/projection"
)

// graphRow is a row as far as a graph shows it.
type graphRow struct {
	values [2]json.RawMessage
	kind   string
	order  int // by key
}

// graph reads the nodes and edges of a graph as of the event.
func (r *reading) graph(g projection.Graph) (ModelGraph, error) {
	m := ModelGraph{Projection: g.Projection, Nodes: []ModelNode{}, Edges: []ModelEdge{}}
	nodes, total, err := r.graphRows(g.Nodes, g.ID, g.Label)
	if err != nil {
		return m, err
	}
	edges, all, err := r.graphRows(g.Edges, g.From, g.To)
	if err != nil {
		return m, err
	}
	m.NodesTotal, m.EdgesTotal = total, all
	at := map[string]int{}
	for _, n := range cutNodes(nodes, edges, MaxGraphNodes) {
		at[string(n.values[0])] = len(m.Nodes)
		m.Nodes = append(m.Nodes, ModelNode{ID: projection.Field{Name: g.ID, Value: n.values[0]}, Label: projection.Field{Name: g.Label, Value: n.values[1]}, Kind: n.kind})
	}
	edges = slices.DeleteFunc(edges, func(e graphRow) bool {
		_, from := at[string(e.values[0])]
		_, to := at[string(e.values[1])]
		return !from || !to
	})
	for _, e := range cutEdges(edges, MaxGraphEdges) {
		m.Edges = append(m.Edges, ModelEdge{From: at[string(e.values[0])], To: at[string(e.values[1])], Kind: e.kind})
	}
	return m, nil
}

// cutNodes keeps at most limit nodes, in the order of their keys: changed ones, then those that edges
// lead to from changed edges and nodes, from the first others, and at last those without edges.
func cutNodes(nodes, edges []graphRow, limit int) (kept []graphRow) {
	at, beside := map[string]int{}, make([][]int, len(nodes))
	for i, n := range nodes {
		at[string(n.values[0])] = i
	}
	var from [4][]int // nodes to begin at, the most important first
	for _, e := range edges {
		a, isNode := at[string(e.values[0])]
		b, areNodes := at[string(e.values[1])]
		if !isNode || !areNodes {
			continue
		}
		beside[a], beside[b] = append(beside[a], b), append(beside[b], a)
		if e.kind != "" {
			from[0] = append(from[0], a, b)
		}
	}
	keep := map[int]bool{}
	for i, n := range nodes {
		switch {
		case n.kind != "":
			from[1] = append(from[1], i)
			if len(keep) < limit {
				keep[i] = true
			}
		case beside[i] != nil:
			from[2] = append(from[2], i)
		default:
			from[3] = append(from[3], i)
		}
	}
	passed := make([]bool, len(nodes))
	for _, first := range slices.Concat(from[:]...) {
		for queue := []int{first}; len(queue) > 0 && len(keep) < limit; queue = queue[1:] {
			if i := queue[0]; !passed[i] {
				passed[i], keep[i] = true, true
				queue = append(queue, beside[i]...)
			}
		}
	}
	for i, n := range nodes {
		if keep[i] {
			kept = append(kept, n)
		}
	}
	return kept
}

// cutEdges keeps at most limit edges, changed ones first, in the order of their keys.
func cutEdges(rows []graphRow, limit int) []graphRow {
	slices.SortStableFunc(rows, func(a, b graphRow) int {
		switch {
		case a.kind != "" && b.kind == "":
			return -1
		case a.kind == "" && b.kind != "":
			return 1
		}
		return a.order - b.order
	})
	rows = rows[:min(limit, len(rows))]
	slices.SortFunc(rows, func(a, b graphRow) int { return a.order - b.order })
	return rows
}

// graphRows reads two columns of the first rows of a table, and how many these are.
func (r *reading) graphRows(table string, columns ...string) (rows []graphRow, total int64, err error) {
	tab := slices.IndexFunc(r.log.tables, func(s projection.Shape) bool { return s.Table == table })
	if tab < 0 {
		return nil, 0, fmt.Errorf("table %q of a graph is not recorded", table)
	}
	found, err := r.rows(selectRows, tab, []byte{}, r.seq, GraphRows)
	for i, s := range found {
		kind, cells, _, err := r.change(s)
		if err != nil {
			return nil, 0, err
		}
		row := graphRow{order: i, kind: kind}
		for j, name := range columns {
			if at := slices.Index(r.log.tables[tab].Columns, name); at < len(cells) {
				row.values[j] = cells[at].value
			}
		}
		if row.kind != projection.RowRemoved {
			total++
		}
		rows = append(rows, row)
	}
	return rows, total, err
}
