package templates

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
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
	for name, want := range map[outbox.RangeName]string{
		outbox.RangeHour: "11:10 11:20 11:30 11:40 11:50 12:00", outbox.RangeSix: "07:00 08:00 09:00 10:00 11:00 12:00",
		outbox.RangeDay: "15:00 18:00 21:00 00:00 03:00 06:00 09:00", outbox.RangeWeek: "Nov 15 Nov 16 Nov 17 Nov 18 Nov 19 Nov 20 Nov 21",
	} {
		var words []string
		for _, tick := range timeTicks(outbox.Range{Name: name}.Window(now)) {
			words = append(words, tick.text)
		}
		must.Equal(t, strings.Join(words, " "), want, name)
	}
}

func TestDraw_leavesGapsAndTellsTheRunningBar(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := chart{unit: unitCount, recorded: []bool{true, false, true}, layers: []layer{{class: "f-current", values: []*float64{new(2.0), nil, new(4.0)}}},
		window: outbox.Window{From: from, To: from.Add(3 * time.Minute), Step: time.Minute, Now: from.Add(150 * time.Second)}}
	d := draw(c)
	want := []path{{"f-current", "M0-0v-500"}, {"f-current running", "M2-0v-1000"}}
	must.Equal(t, d.paths, want)
	must.Equal(t, d.gaps, "M0.5 0h1v-1000h-1z", "gaps")
	c.lines = true
	must.Equal(t, draw(c).paths[0].d, "M0-20l0 0M2-40l0 0", "the line")
}

// A step in which no instance ran is not one in which no campaign was behind.
func TestHeatmap_leavesGaps(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	h := outbox.Heatmap{Window: outbox.Window{From: from, To: from.Add(5 * time.Minute), Step: time.Minute, Now: from.Add(210 * time.Second)}}
	row := outbox.HeatmapRow{LagEvents: []int64{0, 7, 0, 0, 0}}
	known := []bool{true, false, false, true, false} // the last is in the future
	gaps, data := heatGaps(h, row, known), heatData(h, row, known)
	must.Hold(t, gaps == "M2 10h1" && data == ",7,-,,", "gaps %q, values %q", gaps, data)
}

func TestOver_keepsTheRange(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, got := range map[string]URL{
		"/": Over("/", outbox.Range{}), "/?range=6h": Over("/", outbox.Range{Name: outbox.RangeSix}),
		"/charts?range=7d&table=true#x":                                     Over("/charts?range=6h&table=true#x", outbox.Range{Name: outbox.RangeWeek}),
		"/charts?from=2026-11-21T12%3A00%3A00Z&to=2026-11-21T13%3A00%3A00Z": Over("/charts", outbox.Range{From: at, To: at.Add(time.Hour)}),
	} {
		must.Equal(t, string(got), want)
	}
}

// The peak of applied events does not count failures, and a value of earlier is not told as of now.
func TestMainCharts_tellWhatTheyName(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 7, 33, 0, time.UTC)
	w := outbox.Range{}.Window(now)
	at := w.Start(w.Buckets() - 20)
	slow := make([]*float64, w.Buckets())
	slow[w.Buckets()-20] = new(1.5)
	h := outbox.History{Window: w, Points: []outbox.Point{{From: at, At: at.Add(time.Minute), Applied: 100, Failed: 40}},
		Series: []outbox.Series{{Kind: outbox.SeriesLatency, Label: "p50", Values: slow}}}
	charts := mainCharts(Page{Now: now}, outbox.Summary{}, h)
	_, most, _ := charts[1].peak()
	must.Hold(t, charts[1].name == "Applied" && most == 100, "the peak of %s is %g, want the 100 applied", charts[1].name, most)
	must.Equal(t, charts[2].headed, "last at "+at.Format("15:04"), "the latency is headed")
	slow[w.Buckets()-2] = new(1.0)
	must.Equal(t, mainCharts(Page{Now: now}, outbox.Summary{}, h)[2].headed, "", "the latency of the last minute is headed")
}

// A campaign is sampled while it is behind for some seconds, of more than a hundred those that are
// for longest. Nothing is known of a minute in which it was behind and others were sampled.
func TestCampaignChart_doesNotSayThatACampaignWasCurrent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 7, 33, 0, time.UTC)
	minute := now.Truncate(time.Minute)
	h := CampaignHistory{Points: []outbox.CampaignPoint{{At: minute.Add(-4 * time.Minute), LagEvents: 7}}}
	for at := minute.Add(-7 * time.Minute); at.Before(now); at = at.Add(time.Minute) {
		h.Markers.Points = append(h.Markers.Points, outbox.Point{From: at, At: at.Add(time.Minute)})
	}
	for seconds, want := range map[float64]string{29: "– 0 0 7 7 0", 63: "– 0 0 7 7 0", 95: "– 0 – 7 7 0"} {
		h.Points[0].LagSeconds = seconds
		c := campaignChart(Page{Now: now}, h)
		first, _ := c.window.Index(minute.Add(-4 * time.Minute))
		var told []string
		for _, v := range c.layers[0].values[first-4 : first+2] {
			told = append(told, numberText(v, unitCount))
		}
		must.Equal(t, strings.Join(told, " "), want, "behind for", seconds, "s at the first sample")
	}
	h.Points = nil
	alt := campaignChart(Page{Now: now}, h).alt()
	must.Hold(t, strings.HasSuffix(alt, "; 0 if behind for less than 5 s, 0 at each sample"), "without a sample the chart says %q", alt)
}

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
	must.Hold(t, strings.Count(wide, `<text class="marker"`) == glyphsWide && strings.Contains(wide, ">‖3<"), "on a wide page there are not %d glyphs of 3 markers: %s", glyphsWide, wide)
	must.Hold(t, strings.Count(narrow, `<text class="marker"`) == glyphsNarrow && strings.Contains(narrow, ">‖6<"), "on a phone there are not %d glyphs of 6 markers: %s", glyphsNarrow, narrow)
}

// What happened in the whole deployment does not push a campaign's actions away.
func TestMarkers_ofOtherThingsAreFoldedOnACampaignsPage(t *testing.T) {
	t.Parallel()
	html := rendered(t, campaignMarkers(Page{Now: noon}, minutely(), "c"))
	own, folded, _ := strings.Cut(html, "<details")
	must.Hold(t, strings.Count(own, "<li>") == 1 && strings.Count(folded, "<li>") == markersListed && strings.Contains(folded, "<summary>59 markers of the whole deployment</summary>") && !strings.Contains(folded, "open"), "own: %s\nfolded: %s", own, folded)
}

// A writer's mistake half an hour after a deploy is not put down to the deploy.
func TestCause_isPutDownToADeployJustBeforeItAlone(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		20 * time.Second: `ago</time>, after <a href="/projections/orders">projection orders changed to v2 on h</a>`,
		30 * time.Minute: `ago</time>; the last change was 30 min earlier: <a href="/projections/orders">`,
		2 * time.Hour:    `ago</time></span>`,
	} {
		g := outbox.ErrorGroup{Dead: 1, Heads: 1, Campaigns: 1, FirstAt: &first, Tried: []outbox.Tried{{Projection: "orders"}}}
		m := outbox.Marker{At: first.Add(-ago), Kind: outbox.MarkerVersion, Subject: "orders", Version: "v2", Host: "h"}
		c := causeView{AssessedGroup: outbox.AssessedGroup{ErrorGroup: g}, After: deployBefore([]outbox.Marker{m}, g)}
		html := rendered(t, cause(Page{Now: first.Add(time.Minute)}, c))
		text := html
		must.Hold(t, strings.Contains(text, want), "%v before: lacks %q:\n%s", ago, want, text)
	}
}

// What ran before a deploy and had the error, too, shows that the deploy is not to blame.
func TestDeployBefore_isNotOneWhoseErrorIsOlder(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	at := func(m int) time.Time { return first.Add(time.Duration(m) * time.Minute) }
	version := func(m int, from, to string) outbox.Marker {
		return outbox.Marker{At: at(m), Kind: outbox.MarkerVersion, Subject: "orders", Previous: from, Version: to}
	}
	build := outbox.Marker{At: at(-1), Kind: outbox.MarkerDeploy, Previous: "b1", Version: "b2"}
	tried := func(versions ...string) (all []outbox.Tried) {
		for _, v := range versions {
			all = append(all, outbox.Tried{Build: "b2", Projection: "orders", ProjectionVersion: v})
		}
		return all
	}
	for name, c := range map[string]struct {
		markers []outbox.Marker
		tried   []outbox.Tried
		earlier *time.Time
		want    bool
	}{
		"a deploy":                         {[]outbox.Marker{version(-1, "v1", "v2")}, tried("v2"), nil, true},
		"a failed fix after it":            {[]outbox.Marker{version(-1, "v1", "v2"), version(5, "v2", "v3")}, tried("v3", "v2"), nil, true},
		"a rollback that failed, too":      {[]outbox.Marker{version(-1, "v1", "v2"), version(5, "v2", "v1")}, tried("v1", "v2"), nil, false},
		"one before the version before it": {[]outbox.Marker{version(-9, "v0", "v1"), version(-1, "v1", "v2")}, tried("v0", "v2"), nil, false},
		"settled rows failed before it":    {[]outbox.Marker{version(-1, "v1", "v2")}, tried("v2"), new(at(-30)), false},
		"the same bad version again":       {[]outbox.Marker{version(-40, "v1", "v2"), version(-20, "v2", "v1"), version(-1, "v1", "v2")}, tried("v2"), new(at(-39)), true},
		"settled rows failed between them": {[]outbox.Marker{version(-40, "v1", "v2"), version(-20, "v2", "v1"), version(-1, "v1", "v2")}, tried("v2"), new(at(-10)), false},
		"settled rows failed after it":     {[]outbox.Marker{version(-3, "v1", "v2")}, tried("v2"), new(at(-2)), true},
		"a build":                          {[]outbox.Marker{build}, tried("v2"), nil, true},
		"a build and the one before it":    {[]outbox.Marker{build}, append(tried("v2"), outbox.Tried{Build: "b1"}), nil, false},
	} {
		g := outbox.ErrorGroup{FirstAt: &first, EarlierAt: c.earlier, Tried: c.tried}
		m := deployBefore(c.markers, g)
		must.Hold(t, (m != nil) == c.want, "%s: put down to %+v", name, m)
	}
}

func TestCounts_ofOneAreSingular(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64][3]string{1: {"event behind", "failing cause", ">campaign waiting for it<"}, 2: {"events behind", "failing causes", ">campaigns waiting for it<"}} {
		v := Overview{Summary: outbox.Summary{Lag: outbox.Lag{Events: n}}, Causes: make([]outbox.AssessedGroup, n)}
		numbers := heroNumbers(Page{}, v)
		must.Hold(t, numbers[0].name == want[0] && numbers[2].name == want[1], "%d: %q, %q", n, numbers[0].name, numbers[2].name)
		html := rendered(t, projectionCounts(Page{}, outbox.ProjectionInfo{Name: "orders", Blocking: n}))
		must.Hold(t, strings.Contains(html, want[2]), "%d: %s", n, html)
	}
}
