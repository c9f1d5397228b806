package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// progressing is a condition for a run's bar: it shows that a part is done.
var progressing = `(p => p.value > 0 && p.value < p.max)(document.querySelector(` + js(marked("run-progress")) + `))`

// An operator starts a rebuild from the page of projections, watches it, and cancels it. Another
// one, whose process died repeatedly, is resumed with a click and completes.
func TestBrowser_rebuildIsWatchedCancelledAndResumed(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			const campaigns, events, slow, rate = 20, 30, 6, 60 // at slow there are 100 seconds to cancel the run
			d := newDatabases(t)
			projections := writeProjections(t, ledgerProjections)
			mustCommand(t, d, numberedJournal(campaigns, events), append([]string{"append", "-"}, projections...)...)
			serve := append([]string{"--poll-interval", "100ms", "--lease", "2s"}, projections...)
			s := start(t, d, serve...)
			s.awaitSettled(t)
			before := digests(t, d, ledgerCampaigns(campaigns), projections)

			b := kind.open(t, s)
			b.open("/projections")
			b.click(`[aria-labelledby="projection-ledger"] ` + marked("start-rebuild"))
			b.at("/runs/new")
			b.await("the page says what it will do", telling(marked("run-preview"), "20 campaigns")+" && "+telling(marked("run-preview"), "600 events"))
			b.typeInto("#rate", fmt.Sprint(slow))
			b.typeInto("#reason", "to see it go")
			b.typeInto("#confirm", rebuildPhrase)
			b.click(marked("run-start"))
			b.at("/runs/1")
			b.lookUntil("the bar moves", progressing+" && "+telling(marked("run-status"), "running"))
			b.sound("a run in progress")
			b.typeInto("#cancel-reason", "seen enough")
			b.clickAway(marked("run-cancel"))
			b.lookUntil("it is cancelled", telling(marked("run-status"), "cancelled")+` && !document.querySelector(`+js(marked("run-cancel"))+`)`)
			b.await("the bar stays where it was", progressing)
			b.sound("a run that was cancelled")
			if r := awaitEnd(t, s, 1); r.Status != "cancelled" || r.Events.Done == 0 || r.Events.Done >= r.Events.Total {
				t.Errorf("the API tells of %+v", r)
			}
			if after := digests(t, d, ledgerCampaigns(campaigns), projections); after != before {
				t.Error("the cancelled rebuild changed digests")
			}

			startRun(t, s, map[string]any{"kind": "rebuild", "all_campaigns": true, "rate": rate, "reason": "to die of"})
			for deaths := int64(1); deaths <= 3; deaths++ {
				awaitRunAt(t, s, 2, fmt.Sprintf("is taken up for the %d. time", deaths), func(r runDoc) bool {
					return r.Status == "running" && r.Attempts == deaths
				})
				s.kill()
				s = start(t, d, serve...)
			}
			awaitRunAt(t, s, 2, "is interrupted", func(r runDoc) bool { return r.Status == "interrupted" })
			b = kind.open(t, s)
			b.open("/runs")
			b.click(marked("run-2") + " a")
			b.at("/runs/2")
			b.lookUntil("it says why it stopped", telling(marked("run-status"), "interrupted")+" && "+telling("main", "its process died three times"))
			b.sound("a run that was interrupted")
			b.clickAway(marked("run-resume"))
			b.lookUntil("it goes on", telling(marked("run-status"), "running"))
			b.lookUntil("it gets to its end", telling(marked("run-status"), "completed"))
			b.await("the bar is full", `(p => p.value === p.max && p.max === 600)(document.querySelector(`+js(marked("run-progress"))+`))`)
			b.sound("a run that was resumed")
			if r := awaitEnd(t, s, 2); r.Status != "completed" || r.Counts.Matched != campaigns {
				t.Errorf("the API tells of %+v", r)
			}
			b.open("/audit")
			b.await("the acts are on record", telling("main", "to see it go")+" && "+telling("main", "seen enough"))
			if after := digests(t, d, ledgerCampaigns(campaigns), projections); after != before || !strings.Contains(after, "ledger") {
				t.Error("the rebuild changed digests")
			}
			verified(t, d, 0, projections...)
			checkClean(t, d, projections...)
		})
	}
}
