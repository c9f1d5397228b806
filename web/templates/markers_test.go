package templates

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// minutely are a history with a marker each minute of an hour, the last one of campaign c.
func minutely() outbox.History {
	h := outbox.History{Window: outbox.Range{}.Window(noon)}
	for i := range h.Window.Buckets() {
		h.Markers = append(h.Markers, outbox.Marker{At: h.Window.Start(i), Kind: outbox.MarkerPause, Actor: "ana"})
	}
	h.Markers[len(h.Markers)-1].Audit.CampaignID = "c"
	return h
}

// Markers that are nearer to each other than a glyph is wide are one, with their number.
func TestMarkers_doNotRunIntoEachOther(t *testing.T) {
	t.Parallel()
	h := minutely()
	html := rendered(t, chartAxis(h.Window, h.Markers))
	wide, narrow, _ := strings.Cut(html, `class="narrow`)
	if n := strings.Count(wide, `<text class="marker"`); n != glyphsWide || !strings.Contains(wide, ">‖3<") {
		t.Errorf("%d glyphs on a wide page, want %d of 3 markers: %s", n, glyphsWide, wide)
	}
	if n := strings.Count(narrow, `<text class="marker"`); n != glyphsNarrow || !strings.Contains(narrow, ">‖6<") {
		t.Errorf("%d glyphs on a phone, want %d of 6 markers: %s", n, glyphsNarrow, narrow)
	}
}

// What happened in the whole deployment does not push a campaign's actions away.
func TestMarkers_ofOtherThingsAreFoldedOnACampaignsPage(t *testing.T) {
	t.Parallel()
	html := rendered(t, campaignMarkers(Page{Now: noon}, minutely(), "c"))
	own, folded, _ := strings.Cut(html, "<details")
	if strings.Count(own, "<li>") != 1 || strings.Count(folded, "<li>") != markersListed || !strings.Contains(folded, "<summary>59 markers of the whole deployment</summary>") || strings.Contains(folded, "open") {
		t.Errorf("own: %s\nfolded: %s", own, folded)
	}
}
