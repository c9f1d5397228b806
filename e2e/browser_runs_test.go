package e2e

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A campaign in whose read model a field was changed by hand is verified, and rebuilt from what was found. A
// rebuild of all is watched, and cancelled.
func TestBrowser_aRebuildIsWatched(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, guestProjections(":payload.name"))
	s := start(t, d, append(projections, "--poll-interval", "100ms")...)
	const campaign = "the ball/1"
	appendTo(t, s, "", campaign, []event{guest("guest.came"), guest("guest.waved"), guest("guest.waved"), guest("guest.left")})
	for i := range 20 {
		appendTo(t, s, "", fmt.Sprint("other-", i), []event{guest("guest.came"), guest("guest.left")})
	}
	s.awaitSettled(t)
	change(t, d.projections(), `update guests set name = 'eve' where campaign_id = $1 and seq = 3`, campaign)

	b := openTab(t, s)
	b.open("/campaigns/" + url.PathEscape(campaign))
	b.click(marked("start-verify"))
	b.at("/runs/new")
	b.click(marked("run-start"))
	b.at("/runs/1")
	b.await("the run ends with a drift", telling(marked("run-why"), "completed")+" && "+telling(marked("run-verdict"), "drift"))
	b.sound("a run that found a drift")
	b.click(marked("result-"+campaign) + " a")
	b.at("/runs/1/results/the%20ball%2F1")
	b.sound("a result that differs")
	b.click(marked("start-rebuild"))
	b.at("/runs/new")
	b.click(marked("run-start"))
	b.at("/runs/2")
	b.await("the rebuild is done", telling(marked("run-why"), "completed"))
	must.Equal(t, scalar[string](t, d.projections(), "select name from guests where campaign_id = $1 and seq = 3", campaign), "ana", "the row")
	b.rebuildIsCancelled()
	checkClean(t, d, projections...)
}

func (b *tab) rebuildIsCancelled() {
	const progressing = `(p => p.value > 0 && p.value < p.max)(document.querySelector('[data-testid="run-progress"]'))`
	b.open("/projections")
	b.click(`[aria-labelledby="projection-guests"] ` + marked("start-rebuild"))
	b.at("/runs/new")
	b.await("the page says what it will do", telling(marked("run-preview"), "21 campaigns")+" && "+telling(marked("run-preview"), "44 events"))
	b.typeInto("#rate", "1") // 44 seconds to cancel the run
	b.typeInto("#reason", "to see it go")
	b.typeInto("#confirm", rebuildPhrase)
	b.click(marked("run-start"))
	b.at("/runs/3")
	b.await("the bar moves", progressing+" && "+telling(marked("run-status"), "running"))
	b.sound("a run in progress")
	b.typeInto("#cancel-reason", "seen enough")
	b.click(marked("run-cancel"))
	b.await("it is cancelled", telling(marked("run-status"), "cancelled")+` && !document.querySelector(`+js(marked("run-cancel"))+`)`)
	b.await("the bar stays where it was", progressing)
	r := awaitEnd(b.t, b.s, 3)
	must.Hold(b.t, r.Status == "cancelled" && r.Events.Done != 0 && r.Events.Done < r.Events.Total, "the API tells of %+v", r)
}
