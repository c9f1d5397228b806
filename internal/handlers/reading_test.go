package handlers

import (
	"net/http"
	"testing"
)

// TestReading_changesNothing requests every GET address, and compares both databases.
func TestReading_changesNothing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t).fill()
	before := g.dump()
	for _, r := range everyRoute(t, g.site) {
		if r.method == http.MethodGet {
			g.ask(r.request, people["admin"])
		}
	}
	g.wantSame("a GET", before, g.dump())
	g.submit("/campaigns/c-2/pause", "", people["admin"])
	if before == g.dump() {
		t.Error("a change goes unnoticed, so this test proves nothing")
	}
}
