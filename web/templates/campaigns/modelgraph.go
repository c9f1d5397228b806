package campaigns

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// The circle on which the nodes of a graph are, and the room for labels around it.
const (
	graphRadius = 230
	graphMargin = 190
	graphLabel  = 24 // characters
)

// graphSide is the width and height of a graph.
const graphSide = 2 * (graphRadius + graphMargin)

// graphSpot is where a node is, and its label: along the radius, readable from either side.
type graphSpot struct{ x, y, label, anchor string }

// graphSpots are those of the nodes of a graph, by their index.
func graphSpots(g timetravel.ModelGraph) []graphSpot {
	spots := make([]graphSpot, len(g.Nodes))
	for i := range spots {
		angle := 2*math.Pi*float64(i)/float64(len(spots)) - math.Pi/2
		at := func(distance float64) (x, y string) {
			return fmt.Sprintf("%.1f", graphSide/2+distance*math.Cos(angle)), fmt.Sprintf("%.1f", graphSide/2+distance*math.Sin(angle))
		}
		x, y := at(graphRadius)
		labelX, labelY := at(graphRadius + 12)
		degrees, anchor := angle*180/math.Pi, "start"
		if degrees > 90+1e-9 {
			degrees, anchor = degrees-180, "end"
		}
		spots[i] = graphSpot{x, y, fmt.Sprintf("translate(%s %s) rotate(%.1f)", labelX, labelY, degrees), anchor}
	}
	return spots
}

// graphText is a value as a label.
func graphText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	if runes := []rune(text); len(runes) > graphLabel {
		text = string(runes[:graphLabel-1]) + "…"
	}
	return ui.Visible(text)
}

// graphCount says how much of a graph is shown.
func graphCount(g timetravel.ModelGraph) string {
	of := func(shown int, total int64, one, many string) string {
		switch {
		case total >= timetravel.GraphRows:
			return ui.Num(int64(shown)) + " of " + ui.Num(total) + " or more " + many
		case int64(shown) < total:
			return ui.Num(int64(shown)) + " of " + ui.Count(total, one, many)
		}
		return ui.Count(int64(shown), one, many)
	}
	return "Showing " + of(len(g.Nodes), g.NodesTotal, "node", "nodes") + " and " + of(len(g.Edges), g.EdgesTotal, "edge", "edges")
}
