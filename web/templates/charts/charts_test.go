package charts

import (
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func TestTicks_areFewAndRound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most float64
		unit unit
		want string
	}{
		{0, unitCount, "0 1"}, {1, unitCount, "0 1"}, {3, unitCount, "0 1 2 3"}, {4, unitCount, "0 2 4"}, {7, unitCount, "0 5 10"}, {410, unitCount, "0 200 400 600"},
		{8998, unitCount, "0 5,000 10 k"}, {2.4e6, unitCount, "0 1 M 2 M 3 M"},
		{0, unitSeconds, "0 1 ms"}, {.0312, unitSeconds, "0 20 ms 40 ms"}, {1.4, unitSeconds, "0 500 ms 1 s 1.5 s"}, {80, unitSeconds, "0 30 s 60 s 90 s"},
		{7000, unitSeconds, "0 1 h 2 h"}, {9 * 86400, unitSeconds, "0 3 d 6 d 9 d"},
	} {
		var words []string
		all := ticks(c.most, c.unit)
		for _, v := range all {
			words = append(words, tickText(v, c.unit))
		}
		must.Equal(t, strings.Join(words, " "), c.want, "ticks up to", c.most, c.unit)
	}
	for most := 1.0; most < 1e12; most *= 1.07 {
		for _, u := range []unit{unitCount, unitSeconds} {
			all := ticks(most, u)
			must.Need(t, len(all) >= 2 && len(all) <= 4 && all[len(all)-1] >= most, "ticks up to %g %s: %v", most, u, all)
		}
	}
}

func TestTimeTicks_areRound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 7, 33, 0, time.UTC)
	for name, want := range map[samples.RangeName]string{
		samples.RangeHour: "11:08 11:20 11:30 11:40 11:50 12:00", samples.RangeSix: "06:12 07:00 08:00 09:00 10:00 11:00 12:00",
		samples.RangeDay: "12:30 15:00 18:00 21:00 00:00 03:00 06:00 09:00", samples.RangeWeek: "Nov 14 Nov 16 Nov 17 Nov 18 Nov 19 Nov 20 Nov 21",
	} {
		var words []string
		for _, tick := range timeTicks(samples.Range{Name: name}.Window(now)) {
			words = append(words, tick.text)
		}
		must.Equal(t, strings.Join(words, " "), want, name)
	}
}

func TestDraw_leavesGapsAndTellsTheRunningStep(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := Chart{unit: unitCount, recorded: []bool{true, false, true, true}, layers: []layer{{class: "f-dead", values: []*float64{new(2.0), nil, new(4.0), new(1.0)}}},
		window: samples.Window{From: from, To: from.Add(4 * time.Minute), Step: time.Minute, Now: from.Add(210 * time.Second)}}
	d := draw(c)
	must.Equal(t, d.paths, []path{{"f-dead", "M-0.5-20h1M1.5-40h1"}, {"f-dead running", "M2.5-10h1"}})
	must.Equal(t, d.gaps, "M0.5 0h1v-40h-1z", "gaps")
	c.shape = areas
	c.layers = append(c.layers, layer{class: "f-pending", values: []*float64{new(0.0), nil, new(4.0), new(0.0)}})
	must.Equal(t, draw(c).paths, []path{{"under f-pending", "M-0.5 0v-60h1V0M1.5 0v-240h1v210h1V0"}, {"under f-dead", "M-0.5 0v-60h1V0M1.5 0v-120h1v90h1V0"}}, "areas, from the top down")
	c.shape = lines
	must.Equal(t, draw(c).paths[0].d, "M0-20l0 0M2-40l0 0 1 30", "the line")
}

// A step in which no instance ran is not one in which no campaign was behind.
func TestHeatmap_leavesGaps(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	h := samples.Heatmap{Window: samples.Window{From: from, To: from.Add(5 * time.Minute), Step: time.Minute, Now: from.Add(210 * time.Second)}}
	row := samples.HeatmapRow{LagEvents: []int64{0, 7, 0, 0, 0}}
	known := []bool{true, false, false, true, false} // the last is in the future
	gaps, data := heatGaps(h, row, known), heatData(h, row, known)
	must.Hold(t, gaps == "M2 10h1" && data == ",7,-,,", "gaps %q, values %q", gaps, data)
}

// The peak of applied events does not count failures, and a value of earlier is not told as of now.
func TestMainCharts_tellWhatTheyName(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 7, 33, 0, time.UTC)
	w := samples.Range{}.Window(now)
	at := w.Start(w.Buckets() - 20)
	slow := make([]*float64, w.Buckets())
	slow[w.Buckets()-20] = new(1.5)
	h := samples.History{Window: w, Points: []samples.Point{{From: at, At: at.Add(time.Minute), Applied: 100, Failed: 40}},
		Series: []samples.Series{{Kind: samples.SeriesLatency, Label: "p50", Values: slow}}}
	charts := MainCharts(ui.Page{Now: now}, campaign.Summary{}, h)
	_, most, _ := charts[1].peak()
	must.Hold(t, charts[1].name == "Applied" && most == 100, "the peak of %s is %g, want the 100 applied", charts[1].name, most)
	must.Equal(t, charts[2].headed, "last at "+at.Format("15:04"), "the latency is headed")
	slow[w.Buckets()-2] = new(1.0)
	must.Equal(t, MainCharts(ui.Page{Now: now}, campaign.Summary{}, h)[2].headed, "", "the latency of the last minute is headed")
}

// A campaign is sampled while it is behind for some seconds, of more than a hundred those that are
// for longest. Nothing is known of a minute in which it was behind and others were sampled.
func TestCampaignChart_doesNotSayThatACampaignWasCurrent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 7, 33, 0, time.UTC)
	minute := now.Truncate(time.Minute)
	h := CampaignHistory{Points: []samples.CampaignPoint{{At: minute.Add(-4 * time.Minute), LagEvents: 7}}}
	for at := minute.Add(-7 * time.Minute); at.Before(now); at = at.Add(time.Minute) {
		h.Markers.Points = append(h.Markers.Points, samples.Point{From: at, At: at.Add(time.Minute)})
	}
	for seconds, want := range map[float64]string{29: "– 0 0 7 7 0", 63: "– 0 0 7 7 0", 95: "– 0 – 7 7 0"} {
		h.Points[0].LagSeconds = seconds
		c := CampaignChart(ui.Page{Now: now}, h)
		first, _ := c.window.Index(minute.Add(-4 * time.Minute))
		var told []string
		for _, v := range c.layers[0].values[first-4 : first+2] {
			told = append(told, numberText(v, unitCount))
		}
		must.Equal(t, strings.Join(told, " "), want, "behind for", seconds, "s at the first sample")
	}
	h.Points = nil
	alt := CampaignChart(ui.Page{Now: now}, h).alt()
	must.Hold(t, strings.HasSuffix(alt, "; 0 if behind for less than 5 s, 0 at each sample"), "without a sample the chart says %q", alt)
}

// minutely are a history with a marker each minute of an hour, the last one of campaign c.
func minutely() samples.History {
	h := samples.History{Window: samples.Range{}.Window(noon)}
	for i := range h.Window.Buckets() {
		h.Markers = append(h.Markers, samples.Marker{At: h.Window.Start(i), Kind: samples.MarkerPause, Actor: "ana"})
	}
	h.Markers[len(h.Markers)-1].Audit.CampaignID = "c"
	return h
}

// Markers that are nearer to each other than a glyph is wide are one, with their number.
func TestMarkers_doNotRunIntoEachOther(t *testing.T) {
	t.Parallel()
	h := minutely()
	html := string(must.Get(templ.ToGoHTML(t.Context(), chartAxis(h.Window, h.Markers))).Or(t))
	wide, narrow, _ := strings.Cut(html, `class="narrow`)
	must.Hold(t, strings.Count(wide, `<text class="marker"`) == glyphsWide && strings.Contains(wide, ">‖3<"), "on a wide page there are not %d glyphs of 3 markers: %s", glyphsWide, wide)
	must.Hold(t, strings.Count(narrow, `<text class="marker"`) == glyphsNarrow && strings.Contains(narrow, ">‖6<"), "on a phone there are not %d glyphs of 6 markers: %s", glyphsNarrow, narrow)
}

// What happened in the whole deployment does not push a campaign's actions away.
func TestMarkers_ofOtherThingsAreFoldedOnACampaignsPage(t *testing.T) {
	t.Parallel()
	html := string(must.Get(templ.ToGoHTML(t.Context(), CampaignMarkers(ui.Page{Now: noon}, minutely(), "c"))).Or(t))
	own, folded, _ := strings.Cut(html, "<details")
	must.Hold(t, strings.Count(own, "<li>") == 1 && strings.Count(folded, "<li>") == markersListed && strings.Contains(folded, "<summary>59 markers of the whole deployment</summary>") && !strings.Contains(folded, "open"), "own: %s\nfolded: %s", own, folded)
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
