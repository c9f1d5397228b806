package projection

import "regexp"

// Graph says which columns of two tables of a projection are the nodes and edges of a graph.
type Graph struct {
	Projection string
	Nodes      string // a table
	ID, Label  string // its columns
	Edges      string // a table
	From, To   string // its columns, which hold IDs
	line       int
}

var graphLine = regexp.MustCompile(`^nodes=(\w+)\((\w+), ?(\w+)\) edges=(\w+)\((\w+), ?(\w+)\)$`)

func (r *parser) setGraph(line int, text string) error {
	m := graphLine.FindStringSubmatch(text)
	if m == nil {
		return faultf(line, "-- graph: is nodes=TABLE(ID,LABEL) edges=TABLE(FROM,TO), with columns of two tables, not %q", text)
	}
	r.p.Graph = &Graph{Nodes: m[1], ID: m[2], Label: m[3], Edges: m[4], From: m[5], To: m[6], line: line}
	return nil
}

// finishGraph checks the tables and columns of the graph, if there is one.
func (r *parser) finishGraph() error {
	g := r.p.Graph
	if g == nil {
		return nil
	}
	g.Projection = r.p.Name
	for name, columns := range map[string][]string{g.Nodes: {g.ID, g.Label}, g.Edges: {g.From, g.To}} {
		if t := r.table(name); t == nil || !t.hasAll(columns) {
			return faultf(g.line, "-- graph: names %s(%s,%s), which the projection does not create on %s", name, columns[0], columns[1], r.dialect)
		}
	}
	return nil
}

// Graphs lists the graphs of all projections, in load order.
func (s *Set) Graphs() []Graph {
	var all []Graph
	for _, p := range s.projections {
		if p.Graph != nil {
			all = append(all, *p.Graph)
		}
	}
	return all
}
