package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
)

// unfit are the rows of lists that are higher than a line, and what reaches out of the window.
const unfit = `[...document.querySelectorAll("table.stack")].flatMap(t => [...t.tBodies[0].rows].filter(r => r.offsetHeight > 44).map(r => r.innerText))
	.concat(document.documentElement.scrollWidth > innerWidth ? ["wider than the window"] : [])`

// On a desk a row of a list is a line, ids are short, and what copies them waits for a pointer or a key.
func TestBrowser_listsAreCalm(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t), "--sample", "--max-attempts", "3", "--retry-base", "100ms", "--poll-interval", "100ms")
	awaitStandstill(t, s)
	all := s.items(t, "/api/v1/campaigns?limit=100")
	first, b := s.items(t, "/api/v1/rows?status=dead&limit=1")[0].CampaignID, openTab(t, s)
	for _, page := range []string{"/campaigns", "/rows", "/failures", "/campaigns/" + first} {
		b.open(page)
		must.Equal(t, value[[]string](b, unfit), []string{}, "rows of "+page+" that are not a line")
	}
	b.copiesForPointersAndKeys(first)
	b.chartsBeginWithTheFirstSample()
	b.size(narrow)
	for _, c := range all {
		height := value[float64](b.open("/campaigns/"+c.CampaignID), `document.documentElement.scrollHeight`)
		must.Hold(t, height <= 3*740, "the page of campaign %s is %v px high on a phone", c.CampaignID, height)
	}
}

// copiesForPointersAndKeys is about the button beside a long id.
func (b *tab) copiesForPointersAndKeys(id string) {
	b.open("/campaigns").await("what copies is there", `!!document.querySelector(".can-copy .id .copy")`)
	b.mouse(chromedp.MouseMoved, point{1, 1})
	shown := `+getComputedStyle(document.querySelector("#campaign-` + id + ` .copy")).opacity === `
	b.await("it is not seen", shown+`0`)
	b.mouse(chromedp.MouseMoved, b.placeOf("#campaign-"+id+" .why"))
	b.await("it is seen in the row that is pointed at", shown+`1`)
	b.mouse(chromedp.MouseMoved, point{1, 1})
	b.run(`document.querySelector("#campaign-` + id + ` a").focus()`)
	b.press("\t").await("it is seen by keys", shown+`1 && document.activeElement.matches(".copy:focus-visible")`)
	b.await("the id is short, and whole in what is copied", `(code => code.offsetWidth < 200 && code.textContent === `+js(id)+`)(document.querySelector("#campaign-`+id+` code"))`)
}

// chartsBeginWithTheFirstSample is about a deployment that is younger than the range.
func (b *tab) chartsBeginWithTheFirstSample() {
	for _, page := range []string{"/", "/charts?range=24h"} {
		b.open(page).await("the axis begins with the first sample", `(a => Number(a.now) - Number(a.from) < 3600)(document.querySelector("svg.axes").dataset)`)
		b.await("nothing before it is said to be missing", count(".plot .gap", 0)+` && !!document.querySelector(".plot .under")`)
	}
}
