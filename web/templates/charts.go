package templates

import (
	"fmt"
	"math"
	"strings"
	"time"

	"outboxweb/internal/outbox"
)

// A chart has its own units: each step of time is barStep wide, and the highest bar chartHeight
// high.
const (
	barStep     = 4
	barWidth    = 3
	chartHeight = 40
)

// bar is one step of time: its parts from the bottom up.
type bar struct {
	title string
	parts []part
}

// part is a section of a bar in the hue of a state.
type part struct {
	hue  string
	x, y int
	h    int
}

// chart is one value over time.
type chart struct {
	name     string
	headline string // the current value
	link     URL    // target of the headline
	note     string // beside the headline
	alt      string // the whole chart in a sentence
	width    int
	bars     []bar
	most     string // the value of the highest bar
	from     string // the age of the first bar
}

// portion is one value of a step, to be stacked.
type portion struct {
	hue   string
	value float64
}

// draw stacks the portions of each point to bars, scaled to the highest.
func draw(h outbox.History, title func(outbox.Point) string, of func(outbox.Point) []portion) (bars []bar, most float64) {
	totals := make([]float64, len(h.Points))
	for i, p := range h.Points {
		for _, x := range of(p) {
			totals[i] += x.value
		}
		most = max(most, totals[i])
	}
	missing := h.Span.Points() - len(h.Points)
	for i, p := range h.Points {
		if totals[i] <= 0 {
			continue
		}
		b := bar{title: clock(p.At) + " · " + title(p)}
		bottom := chartHeight
		for _, x := range of(p) {
			if x.value <= 0 {
				continue
			}
			height := max(1, int(math.Round(x.value/most*chartHeight)))
			height = min(height, bottom)
			bottom -= height
			b.parts = append(b.parts, part{hue: x.hue, x: (missing + i) * barStep, y: bottom, h: height})
		}
		bars = append(bars, b)
	}
	return bars, most
}

func clock(t time.Time) string { return t.UTC().Format("15:04") + " UTC" }

func spanWords(s outbox.Span) string {
	if s == outbox.SpanDay {
		return "24 h"
	}
	return "60 min"
}

// overviewCharts are the four charts of the overview.
func overviewCharts(p Page, v Overview) []chart {
	h, s := v.History, v.Summary
	width := h.Span.Points() * barStep
	from := spanWords(h.Span) + " ago"
	rows, mostRows := draw(h, func(x outbox.Point) string { return countsText(x.Counts) }, func(x outbox.Point) []portion {
		return []portion{{"dead", float64(x.Counts.Dead)}, {"failed", float64(x.Counts.Failed)},
			{"processing", float64(x.Counts.Processing)}, {"pending", float64(x.Counts.Pending)}}
	})
	applied, mostApplied := draw(h, func(x outbox.Point) string { return rate(x.AppliedPerSecond) + " applied/s" },
		func(x outbox.Point) []portion { return []portion{{"current", x.AppliedPerSecond}} })
	failed, mostFailed := draw(h, func(x outbox.Point) string { return rate(x.FailedPerSecond) + " failures/s" },
		func(x outbox.Point) []portion { return []portion{{"failed", x.FailedPerSecond}} })
	oldest, mostOldest := draw(h, func(x outbox.Point) string { return "oldest waits " + seconds(x.OldestAgeSeconds) },
		func(x outbox.Point) []portion { return []portion{{"lagging", x.OldestAgeSeconds}} })
	charts := []chart{
		{name: "Rows waiting", headline: num(s.Counts.Total()), link: p.Links.Rows(outbox.RowFilter{}), bars: rows, most: num(int64(mostRows))},
		{name: "Applied", headline: rate(s.Throughput.AppliedPerSecond) + "/s", link: p.Links.Instances(), note: num(s.Worker.Applied) + " in total",
			bars: applied, most: rate(mostApplied) + "/s"},
		{name: "Failures", headline: rate(s.Throughput.FailedPerSecond) + "/s", link: p.Links.Failures(), note: num(s.Worker.Failed) + " in total",
			bars: failed, most: rate(mostFailed) + "/s"},
		{name: "Oldest waiting", headline: "none", link: p.Links.Campaigns(outbox.CampaignFilter{Sort: outbox.SortAge}), bars: oldest, most: seconds(mostOldest)},
	}
	if s.Oldest != nil {
		charts[3].headline, charts[3].note = outbox.Age(p.Now.Sub(s.Oldest.EnqueuedAt)), s.Oldest.CampaignID
		charts[3].link = oldestLink(p, *s.Oldest)
	}
	for i := range charts {
		c := &charts[i]
		c.width, c.from = width, from
		c.alt = fmt.Sprintf("%s over the last %s: now %s, peak %s", c.name, spanWords(h.Span), c.headline, c.most)
	}
	return charts
}

// campaignChart shows a campaign's lag in events over the last hour.
func campaignChart(p Page, points []outbox.CampaignPoint) chart {
	h := outbox.History{Span: outbox.SpanHour}
	byMinute := map[time.Time]outbox.CampaignPoint{}
	for _, x := range points {
		byMinute[x.At] = x
	}
	last := p.Now.UTC().Truncate(time.Minute)
	for i := range h.Span.Points() {
		at := last.Add(-time.Duration(h.Span.Points()-1-i) * time.Minute)
		h.Points = append(h.Points, outbox.Point{At: at, LagEvents: byMinute[at].LagEvents, OldestAgeSeconds: byMinute[at].LagSeconds})
	}
	bars, most := draw(h, func(x outbox.Point) string {
		return count(x.LagEvents, "event", "events") + " behind, the oldest for " + seconds(x.OldestAgeSeconds)
	}, func(x outbox.Point) []portion { return []portion{{"lagging", float64(x.LagEvents)}} })
	c := chart{name: "Events behind, last hour", width: h.Span.Points() * barStep, bars: bars, most: num(int64(most)), from: "60 min ago"}
	c.alt = fmt.Sprintf("Events behind over the last hour: peak %s", c.most)
	return c
}

func countsText(c outbox.Counts) string {
	var words []string
	for _, s := range outbox.Statuses {
		if n := c.Of(s); n > 0 {
			words = append(words, num(n)+" "+string(s))
		}
	}
	if len(words) == 0 {
		return "no rows"
	}
	return strings.Join(words, ", ")
}
