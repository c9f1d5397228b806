package e2e

import (
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// The title and the icon of every page show trouble, and follow it while the page is open. A reader
// who asked for notifications gets one when it starts, and one when it is over.
func TestBrowser_alarm(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t, append(quickDeath, "--base-path", outside)...)
	appendTo(t, s, outside, "healthy", seats("ana", "ben"))
	awaitCounts(t, s, outside, 0, 0, 0)
	b := openTab(t, s)
	b.base = outside
	// The desktop that shows notifications is outside; what reaches it is recorded.
	tell(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.told = [];
		window.Notification = class { constructor(title, options) { window.told.push(title); window.marks = options } close() {} };
		window.Notification.permission = "granted";
		window.Notification.requestPermission = async () => "granted";`})
	b.open("/")
	b.lookUntil("the title has no alarm", `document.title === "Overview · outboxweb" && document.querySelector("link[rel=icon]").href.endsWith("/icon.svg")`)
	b.click("[data-notify]")
	b.await("the button says on", saying("[data-notify]", "Notifications: on"))

	appendTo(t, s, outside, "poisoned", seats("ana", "ana", "cem"))
	b.lookUntil("the title shows trouble", `document.title === "✕ 1 blocked · Overview · outboxweb" && document.querySelector("link[rel=icon]").href.endsWith("/icon-bad.svg")`)
	b.await("a notification was sent, once", `told.filter(t => t === "outboxweb: 1 blocked").length === 1`)
	b.await("it says of which console", `marks.tag === "outboxweb/ops/outbox" && marks.body === location.host + "/ops/outbox"`)
	b.press("t")
	b.await("what the browser keeps is this console's", `Object.keys(localStorage).sort().join() === ["notify", "notify-at", "notify-kind", "times"].map(name => "outboxweb /ops/outbox " + name).join()`)
	b.open("/about")
	b.await("a page that does not refresh shows it, too", `document.title === "✕ 1 blocked · About · outboxweb"`)

	b.open("/campaigns/poisoned")
	b.await("it is not told again", `told.length === 0`)
	change(t, d.projections(), freeSeat, "poisoned", "ana")
	s.post(t, http.StatusOK, outside+"/api/v1/rows/poisoned/2/requeue", map[string]any{})
	b.lookUntil("the trouble is over", `document.title === "Campaign poisoned · outboxweb" && document.querySelector("link[rel=icon]").href.endsWith("/icon.svg")`)
	b.await("which is told", `told.includes("outboxweb: no alarm any more")`)
	b.click("[data-notify]")
	b.await("the button says off", saying("[data-notify]", "Notifications: off"))
}
