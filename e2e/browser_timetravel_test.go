package e2e

import (
	"maps"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A read model is shown as of any event, by a slider: its rows, what set a cell, and its graph, whose labels
// are text like any other.
func TestBrowser_aReadModelIsShownAsOfAnyEvent(t *testing.T) {
	t.Parallel()
	files := maps.Clone(hoard)
	maps.Copy(files, roads)
	s := start(t, newDatabases(t), append([]string{"--poll-interval", "100ms"}, writeProjections(t, files)...)...)
	appendTo(t, s, "", "c-1", hoardEvents())
	appendTo(t, s, "", "g", []event{
		founded(1, "Ys"), founded(2, "Ur"), founded(3, "Oz"),
		{EventType: "built", Payload: map[string]any{"a": 1, "b": 2}}, {EventType: "built", Payload: map[string]any{"a": 2, "b": 3}},
		{EventType: "fallen", Payload: map[string]any{"id": 3}},
	})
	var towns []event
	for i, name := range hostile[:40] { // nodes that a graph shows
		towns = append(towns, founded(i, name))
	}
	appendTo(t, s, "", "hostile", towns)
	s.awaitSettled(t)
	b := openTab(t, s)
	for _, size := range []viewport{wide, narrow} {
		b.size(size)
		b.slideBack()
		b.seeGraph()
	}
	b.size(wide)
	b.open("/campaigns/c-1/read-model?seq=4")
	b.await("a row is removed", telling(marked("changed-hoard"), "removed"))
	b.click(marked("table-hoard") + ` td[data-label="gold"] a`)
	b.await("what set the cell is told", telling(marked("set-by"), "event 3")+" && "+telling(marked("set-by"), "hoard.sql:10")+" && "+telling(marked("set-by"), "found"))
	b.await("and what it was before", telling(marked("earlier"), "5"))
	b.sound("a cell")
	b.open("/campaigns/c-1/events/3?tab=rows")
	b.await("the rows changed are shown", telling(marked("rows-changed"), "chest")+" && "+telling(marked("changed-hoard"), "9"))
	b.sound("the rows that an event changed")

	h := openBesieged(t, s)
	h.visit("/campaigns/hostile/read-model")
	h.await("every name is drawn", count("svg.modelgraph circle", len(towns)))
	h.hears()
}

func (b *tab) slideBack() {
	b.open("/campaigns/c-1")
	b.click(marked("read-model"))
	b.at("/campaigns/c-1/read-model")
	b.await("it is as of the last event", telling(marked("as-of-seq"), "Event 5 of 5"))
	b.do("two events back by keyboard", chromedp.Focus("#seq"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	b.await("the rows follow the slider, and so does the address", telling(marked("as-of-seq"), "Event 3 of 5")+" && "+telling(marked("changed-hoard"), "changed")+` && location.search.includes("seq=3")`)
	b.sound("the read model at a change")
	b.click(marked("previous"))
	b.await("a row is added", telling(marked("changed-hoard"), "added"))
}

func (b *tab) seeGraph() {
	drawn := func(selector string, n int) string { return count("svg.modelgraph "+selector, n) }
	b.open("/campaigns/g/read-model?seq=5")
	b.await("the towns and roads are drawn", drawn("circle", 3)+" && "+drawn("line", 2)+" && "+`document.querySelector("svg.modelgraph").textContent.includes("Oz")`)
	b.await("the road that was built is marked", drawn("line.added", 1)+" && "+drawn("circle.added", 0))
	b.sound("a graph")
	b.click(marked("next"))
	b.await("the town that fell and its road are marked", telling(marked("as-of-seq"), "Event 6 of 6")+" && "+drawn("circle.removed", 1)+" && "+drawn("line.removed", 1))
	b.sound("a graph that lost a town")
}
