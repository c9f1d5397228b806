package e2e

import (
	"net/http"
	"testing"
)

// skippedPages starts a server in which an event can be skipped, one skip can be undone, one cannot
// any more, and one was undone.
func skippedPages(t *testing.T) (*server, map[string]string) {
	t.Helper()
	s, _ := startSeats(t, quickDeath...)
	for _, campaign := range []string{"dead", "last", "past"} {
		appendTo(t, s, "", campaign, seats("ana", "ben", "ana"))
	}
	awaitCounts(t, s, "", 0, 0, 3)
	skip := func(campaign string) {
		s.post(t, http.StatusOK, "/api/v1/rows/"+campaign+"/3/skip", map[string]any{"reason": "ana cannot sit twice, and nobody knows which of the seats was meant", "confirm": "skip " + campaign + " 3"})
	}
	skip("last")
	skip("past")
	awaitCounts(t, s, "", 0, 0, 1)
	s.post(t, http.StatusOK, "/api/v1/campaigns/past/events/3/unskip", map[string]any{"reason": "she may yet leave"})
	awaitCounts(t, s, "", 0, 0, 2)
	skip("past")
	appendTo(t, s, "", "past", []event{taken("seat-9", "dee")})
	awaitCounts(t, s, "", 0, 0, 1)
	return s, map[string]string{
		"skip-row": "/campaigns/dead/events/3", "skip-gone": "/campaigns/past/events/3", "skip-event": "/campaigns/last/events/3",
		"skip-last": "/campaigns/last", "skip-past": "/campaigns/past",
	}
}

func TestBrowser_pagesOfSkippedEvents(t *testing.T) {
	t.Parallel()
	s, pages := skippedPages(t)
	openTab(t, s).crawl(pages, 1)
}
