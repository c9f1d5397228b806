package e2e

import (
	"fmt"
	"maps"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/outboxweb/outboxweb/internal/size"
)

// says is the condition that some element says exactly this.
func says(selector, text string) string {
	return `[...document.querySelectorAll(` + js(selector) + `)].some(e => e.textContent === ` + js(text) + `)`
}

const largePage = "/campaigns/large/events/1?tab=payload"

// readLarge reads a large document part by part, in its place.
func (b *tab) readLarge() {
	b.open(largePage)
	b.await("the payload is not there yet", telling(marked("tree-payload"), "Show the payload")+` && document.documentElement.outerHTML.length < 100000`)
	b.click(marked("show-payload")).await("its first members can be read", says(".tree .key bdi", `"items"`))
	b.click(`.tree details summary`) // closes the whole
	b.click(`.tree details summary`) // and opens it again
	b.at("/campaigns/large/events/1")
	b.click(`.tree details details summary`).click(marked("tree-next"))
	b.await("the next items follow", says(".tree .key bdi", "199")+` && !`+says(".tree .key bdi", "200"))
	b.click(marked("tree-next")).await("and the next", says(".tree .key bdi", "299")+" && "+says(".tree .key bdi", "99"))
	b.await("the tab is not flooded", `document.querySelectorAll("*").length < 5000`).sound("a large document")
}

// readMissing asks for a part that is not there: the error is shown on a page, not inside the tree.
func (b *tab) readMissing() {
	b.expect("404")
	b.open(largePage)
	b.run(fmt.Sprintf(`const link = document.querySelector(%s)
		link.setAttribute("hx-get", link.getAttribute("hx-get") + "&at=/nowhere")
		htmx.process(link)`, js(marked("show-payload"))))
	b.click(marked("show-payload"))
	b.await("the page says so", telling("h1", "Not found")+` && document.querySelectorAll("h1, main, .tree").length === 2`)
}

// A read model is shown as of any event, by a slider: its rows, what set a cell, and its graph, whose labels
// are text like any other.
func TestBrowser_aReadModelIsShownAsOfAnyEvent(t *testing.T) {
	t.Parallel()
	size.Full(t, "its pages are in every run, in internal/handlers")
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
	for _, window := range size.Of([]viewport{narrow}, []viewport{narrow}, []viewport{wide, narrow}) {
		b.size(window).slideBack()
		b.seeGraph()
	}
	b.size(wide).open("/campaigns/c-1/read-model?seq=4").await("a row is removed", telling(marked("changed-hoard"), "removed"))
	b.click(marked("table-hoard") + ` td[data-label="gold"] a`)
	b.await("what set the cell is told", telling(marked("set-by"), "event 3")+" && "+telling(marked("set-by"), "hoard.sql:10")+" && "+telling(marked("set-by"), "found"))
	b.await("and what it was before", telling(marked("earlier"), "5")).sound("a cell")
	b.open("/campaigns/c-1/events/3?tab=rows")
	b.await("the rows changed are shown", telling(marked("rows-changed"), "chest")+" && "+telling(marked("changed-hoard"), "9"))
	b.sound("the rows that an event changed")

	h := openBesieged(t, s)
	h.visit("/campaigns/hostile/read-model")
	h.await("every name is drawn", count("svg.modelgraph circle", len(towns)))
	h.hears()
}

func (b *tab) slideBack() {
	b.open("/campaigns/c-1").click(marked("read-model")).at("/campaigns/c-1/read-model")
	b.await("it is as of the last event", telling(marked("as-of-seq"), "Event 5 of 5"))
	b.do("two events back by keyboard", chromedp.Focus("#seq"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	b.await("the rows follow the slider, and so does the address", telling(marked("as-of-seq"), "Event 3 of 5")+" && "+telling(marked("changed-hoard"), "changed")+` && location.search.includes("seq=3")`)
	b.sound("the read model at a change")
	b.click(marked("previous")).await("a row is added", telling(marked("changed-hoard"), "added"))
}

func (b *tab) seeGraph() {
	drawn := func(selector string, n int) string { return count("svg.modelgraph "+selector, n) }
	b.open("/campaigns/g/read-model?seq=5")
	b.await("the towns and roads are drawn", drawn("circle", 3)+" && "+drawn("line", 2)+" && "+`document.querySelector("svg.modelgraph").textContent.includes("Oz")`)
	b.await("the road that was built is marked", drawn("line.added", 1)+" && "+drawn("circle.added", 0)).sound("a graph")
	b.click(marked("next"))
	b.await("the town that fell and its road are marked", telling(marked("as-of-seq"), "Event 6 of 6")+" && "+drawn("circle.removed", 1)+" && "+drawn("line.removed", 1))
	b.sound("a graph that lost a town")
}
