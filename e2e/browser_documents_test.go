package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// says is the condition that some element says exactly this.
func says(selector, text string) string {
	return `[...document.querySelectorAll(` + js(selector) + `)].some(e => e.textContent === ` + js(text) + `)`
}

// A large document, which only a limit that was raised lets in, is read part by part, in its place.
func TestBrowser_aLargePayload(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t)
	payload := `{"items":[0` + strings.Repeat(`,{"n":9007199254740993,"text":"an item with some text"}`, 40_000) + `],"last":true}`
	line := `{"campaign_id":"large","event_type":"note.added","payload":` + payload + `}`
	r := command(t, d, strings.NewReader(line), "append", "-")
	must.Hold(t, r.code == 1 && strings.Contains(r.stderr, "line 1"), "without --max-payload: %d, %s", r.code, r.stderr)
	mustCommand(t, d, strings.NewReader(line), "append", "--max-payload", "33554432", "-")
	s.awaitSettled(t)
	must.Equal(t, string(fetch(t, s, "/api/v1/campaigns/large/events/1/payload").body), payload, "what came back")
	b := openTab(t, s)
	b.readLarge()
	b.readMissing()
}

const largePage = "/campaigns/large/events/1?tab=payload"

func (b *tab) readLarge() {
	b.open(largePage)
	b.await("the payload is not there yet", telling(marked("tree-payload"), "Show the payload")+` && document.documentElement.outerHTML.length < 100000`)
	b.click(marked("show-payload"))
	b.await("its first members can be read", says(".tree .key bdi", `"items"`))
	b.click(`.tree details summary`) // closes the whole
	b.click(`.tree details summary`) // and opens it again
	b.at("/campaigns/large/events/1")
	b.click(`.tree details details summary`)
	b.click(marked("tree-next"))
	b.await("the next items follow", says(".tree .key bdi", "199")+` && !`+says(".tree .key bdi", "200"))
	b.click(marked("tree-next"))
	b.await("and the next", says(".tree .key bdi", "299")+" && "+says(".tree .key bdi", "99"))
	b.await("the tab is not flooded", `document.querySelectorAll("*").length < 5000`)
	b.sound("a large document")
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
