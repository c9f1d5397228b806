package templates

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// The circle on which the nodes of a graph are, and the room for labels around it.
const (
	graphRadius = 230
	graphMargin = 190
	graphLabel  = 24 // characters
)

func graphBox() string {
	side := itoa(2 * (graphRadius + graphMargin))
	return "0 0 " + side + " " + side
}

// graphPoint is where a node is, at a distance from the centre.
func graphPoint(g outbox.ModelGraph, i int, distance float64) (x, y string) {
	angle := graphAngle(g, i)
	at := func(v float64) string {
		return strconv.FormatFloat(graphRadius+graphMargin+distance*v, 'f', 1, 64)
	}
	return at(math.Cos(angle)), at(math.Sin(angle))
}

func graphX(g outbox.ModelGraph, i int) string { x, _ := graphPoint(g, i, graphRadius); return x }
func graphY(g outbox.ModelGraph, i int) string { _, y := graphPoint(g, i, graphRadius); return y }

func graphAngle(g outbox.ModelGraph, i int) float64 {
	return 2*math.Pi*float64(i)/float64(len(g.Nodes)) - math.Pi/2
}

// graphTurn places a label along the radius, readable from either side.
func graphTurn(g outbox.ModelGraph, i int) (transform, anchor string) {
	x, y := graphPoint(g, i, graphRadius+12)
	degrees, anchor := graphAngle(g, i)*180/math.Pi, "start"
	if degrees > 90+1e-9 {
		degrees, anchor = degrees-180, "end"
	}
	return fmt.Sprintf("translate(%s %s) rotate(%.1f)", x, y, degrees), anchor
}

func graphTransform(g outbox.ModelGraph, i int) string { t, _ := graphTurn(g, i); return t }
func graphAnchor(g outbox.ModelGraph, i int) string    { _, a := graphTurn(g, i); return a }

// graphText is a value as a label.
func graphText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	if runes := []rune(text); len(runes) > graphLabel {
		text = string(runes[:graphLabel-1]) + "…"
	}
	return Visible(text)
}

// graphCount says how much of a graph is shown.
func graphCount(g outbox.ModelGraph) string {
	of := func(shown int, total int64, one, many string) string {
		switch {
		case total >= outbox.GraphRows:
			return num(int64(shown)) + " of " + num(total) + " or more " + many
		case int64(shown) < total:
			return num(int64(shown)) + " of " + count(total, one, many)
		}
		return count(int64(shown), one, many)
	}
	return "Showing " + of(len(g.Nodes), g.NodesTotal, "node", "nodes") + " and " + of(len(g.Edges), g.EdgesTotal, "edge", "edges")
}
