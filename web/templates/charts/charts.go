// Package charts holds the charts of what is sampled: what pages show of them, and their own page.
package charts

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// A plot's width is that of the page; its height is in pixels, from the top down: a row for the
// glyphs of markers, the area of the values, and a row for the clock times.
const (
	plotTop    = 26
	plotArea   = 78
	plotHeight = plotTop + plotArea + 18
)

// unit is what a chart's values are.
type unit string

const (
	unitCount   unit = "count"
	unitSeconds unit = "seconds"
)

// shape is how a chart draws its layers.
type shape int

const (
	steps shape = iota // what was counted: each value as long as its step
	areas              // what waits: as steps, one on top of the other
	lines              // times: from value to value
)

// layer is one series of a chart.
type layer struct {
	class  string // its look
	label  string
	link   ui.URL
	values []*float64 // by bucket; nil without a record
}

// Chart is values over time.
type Chart struct {
	name     string
	meaning  string // what a value is, with its unit
	headline string // the latest value
	headed   string // when that was; empty for now
	link     ui.URL // target of the headline
	peakOf   string // the layers whose label begins so have the peak, and the one with this label is compared; empty for all
	note     string // beside the headline
	unit     unit
	shape    shape
	window   samples.Window
	layers   []layer // from the bottom up
	recorded []bool  // the buckets of which anything is known
	counted  bool    // the values are counts of what was done, not states
	calm     string  // what is said when all values are 0; empty for "nothing in this period"
	least    []int   // the buckets whose counts are lower bounds
	beside   *Chart  // the same of an earlier period, in one layer
}

// drawn is the chart without the layers that have nothing but zeros, if there is another.
func (c Chart) drawn() Chart {
	some := slices.DeleteFunc(slices.Clone(c.layers), func(l layer) bool {
		return !slices.ContainsFunc(l.values, func(v *float64) bool { return v != nil && *v > 0 })
	})
	if len(some) == 0 {
		some = c.layers[:1]
	}
	c.layers = some
	return c
}

// totals are the heights of the chart's areas, or the highest of its lines.
func (c Chart) totals() []*float64 {
	all := make([]*float64, c.window.Buckets())
	for i := range all {
		sum, most := 0.0, 0.0
		for _, l := range c.layers {
			if v := l.values[i]; v != nil {
				most = max(most, *v)
				if c.shape == areas {
					sum += *v
				}
				all[i] = new(max(sum, most))
			}
		}
	}
	return all
}

// peak is the bucket with the highest value; false when nothing is above zero.
func (c Chart) peak() (bucket int, most float64, found bool) {
	if c.peakOf != "" {
		c.layers = slices.DeleteFunc(slices.Clone(c.layers), func(l layer) bool { return !strings.HasPrefix(l.label, c.peakOf) })
	}
	for i, v := range c.totals() {
		if v != nil && *v > most {
			bucket, most, found = i, *v, true
		}
	}
	return bucket, most, found
}

// data are the values of areas for the script, which reads others from their paths.
func (c Chart) data() string {
	var words []string
	for _, c := range withBeside(c) {
		for _, l := range c.layers {
			words = append(words, joined(l.values, func(v *float64) string {
				if v == nil {
					return ""
				}
				return rounded(*v)
			}))
		}
	}
	return strings.Join(words, ";")
}

// alt is the whole chart in a sentence.
func (c Chart) alt() string {
	text := c.name + ", " + c.meaning
	if c.headline != "" {
		text += ": " + cmp.Or(c.headed, "now") + " " + c.headline
	}
	text += c.peakWords()
	if c.beside != nil {
		text += "; " + c.beside.layers[0].label + c.beside.peakWords()
	}
	return text
}

func (c Chart) peakWords() string {
	if bucket, most, found := c.peak(); found {
		return ", peak " + valueText(most, c.unit) + " at " + c.window.Start(bucket).Format("Jan 2 15:04") + " UTC"
	}
	if !slices.ContainsFunc(c.totals(), func(v *float64) bool { return v != nil }) {
		return ", not recorded in this period"
	}
	return ", " + c.calmText()
}

func (c Chart) calmText() string { return cmp.Or(c.calm, "nothing in this period") }

func rangeWords(w samples.Window) string {
	return w.From.Format("Jan 2 15:04") + " – " + w.To.Format("Jan 2 15:04") + " UTC"
}

// stepWords is the length of a window's step.
func stepWords(w samples.Window) string {
	if w.Step >= time.Hour {
		return ui.Itoa(int(w.Step/time.Hour)) + " h"
	}
	return ui.Itoa(int(w.Step/time.Minute)) + " min"
}

func eachStep(w samples.Window) string {
	if w.Step == time.Minute {
		return "each minute"
	}
	return "every " + stepWords(w)
}

// rangeLabel is a named range as pages write it.
func rangeLabel(n samples.RangeName) string {
	return string(n[:len(n)-1]) + " " + string(n[len(n)-1:])
}

// numbersRow is a row of the table of charts. Its end tags, which HTML does not need, would be a
// fifth of the page.
func numbersRow(charts []Chart, step int) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		text := "<tr><th scope=row>" + charts[0].window.Start(step).Format("Jan 2 15:04")
		for _, c := range withBeside(charts...) {
			for _, l := range c.layers {
				number := numberText(l.values[step], c.unit)
				if l.values[step] != nil && slices.Contains(c.least, step) {
					number = "at least " + number
				}
				text += "<td>" + templ.EscapeString(number)
			}
		}
		_, err := io.WriteString(w, text)
		return err
	})
}

// heatmapShown is how many campaigns of a heatmap the page shows.
const heatmapShown = 10

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// longHead is the length, in bytes, from which the head of a column is cut after some lines.
const longHead = 50

func tableHead(c Chart, l layer) string {
	if len(c.layers) == 1 {
		return c.name
	}
	return c.name + ": " + l.label
}

func numberText(v *float64, u unit) string {
	if v == nil {
		return "–"
	}
	return valueText(*v, u)
}

// CampaignHistory is a campaign's lag over a range.
type CampaignHistory struct {
	Range   samples.Range
	Points  []samples.CampaignPoint
	Markers samples.History // of this campaign, or of all; its points say which steps have a record
}

// points makes the values of a layer from a history's points.
func points(h samples.History, of func(samples.Point) float64) []*float64 {
	return valuesOf(h.Window, h.Points, func(x samples.Point) (time.Time, float64) { return x.From, of(x) })
}

// valuesOf are values by bucket, of samples that each are of the bucket at a time.
func valuesOf[S any](w samples.Window, samples []S, of func(S) (time.Time, float64)) []*float64 {
	all := make([]*float64, w.Buckets())
	for _, x := range samples {
		at, value := of(x)
		if i, within := w.Index(at); within {
			all[i] = &value
		}
	}
	return all
}

// perMinute says what a value of counts is.
func perMinute(w samples.Window) string {
	if w.Step == time.Minute {
		return "per minute"
	}
	return "per minute, averaged over " + stepWords(w)
}

// sampledAs says what a bar of a state is.
func sampledAs(w samples.Window) string {
	if w.Step == time.Minute {
		return "sampled each minute"
	}
	return "the most of the samples within " + stepWords(w) + ", one a minute"
}

// MainCharts are the four charts of the overview.
func MainCharts(p ui.Page, s campaign.Summary, h samples.History) []Chart {
	w := h.Window
	status := func(of event.Status) layer {
		return layer{class: "f-" + string(of), label: string(of), values: points(h, func(x samples.Point) float64 { return float64(x.CountsPeak.Of(of)) })}
	}
	waiting := Chart{name: "Waiting rows", meaning: sampledAs(w), headline: ui.Num(s.Counts.Total()), link: p.Links.Rows(campaign.RowFilter{}), unit: unitCount, shape: areas,
		layers: []layer{status(event.Dead), status(event.Failed), status(event.Processing), status(event.Pending)}}
	waiting.note = "empty: " + s.Outlook.Empty
	applied := Chart{name: "Applied", meaning: perMinute(w), peakOf: "applied", link: p.Links.Instances(), unit: unitCount, counted: true, headline: ui.Rate(s.Throughput.AppliedPerSecond) + "/s",
		layers: []layer{
			{class: "f-current", label: "applied", values: points(h, func(x samples.Point) float64 { return float64(x.Applied) / x.Minutes() })},
			{class: "f-failed", label: "failed", values: points(h, func(x samples.Point) float64 { return float64(x.Failed) / x.Minutes() })},
		}}
	if w.Step > time.Minute {
		peak := layer{class: "f-current ghost", label: "applied in the peak minute", values: points(h, func(x samples.Point) float64 { return float64(x.AppliedPeak) })}
		applied.layers = append([]layer{peak}, applied.layers...)
		applied.meaning += "; lighter, the peak minute"
	}
	applied.note = ui.Rate(s.Throughput.FailedPerSecond) + " failures/s"
	latency := Chart{name: "Append to applied", meaning: "p50 and p99 of the events applied within " + stepWords(w), peakOf: "p99", unit: unitSeconds, shape: lines,
		layers: latencyLayers(h)}
	latency.headline, latency.headed = lastText(latency.layers, w)
	latency.link = p.Links.Charts()
	oldest := Chart{name: "Oldest waiting", meaning: "age, " + sampledAs(w), headline: "none", unit: unitSeconds, shape: lines,
		link:   p.Links.Campaigns(campaign.CampaignFilter{Sort: campaign.SortAge}),
		layers: []layer{{class: "l-1", label: "oldest waiting", values: points(h, func(x samples.Point) float64 { return x.OldestAgePeak })}}}
	if s.Oldest != nil {
		oldest.headline, oldest.note, oldest.link = event.Age(p.Now.Sub(s.Oldest.EnqueuedAt)), ui.ShortID(s.Oldest.CampaignID), p.Links.Event(s.Oldest.CampaignID, s.Oldest.Seq)
	}
	return marked([]Chart{waiting, applied, latency, oldest}, h)
}

// OverviewCharts are the first of MainCharts.
func OverviewCharts(p ui.Page, s campaign.Summary, h samples.History) []Chart {
	return MainCharts(p, s, h)[:2]
}

// Latency is the time from append to applied, of half and of nearly all events that were applied last; empty if
// unknown.
func Latency(h samples.History) (p50, p99 string) {
	last := func(label string) string {
		for _, l := range latencyLayers(h) {
			for _, v := range slices.Backward(l.values) {
				if v != nil && l.label == label {
					return valueText(*v, unitSeconds)
				}
			}
		}
		return ""
	}
	return last("p50"), last("p99")
}

func latencyLayers(h samples.History) (layers []layer) {
	for _, s := range h.Series {
		if s.Kind == samples.SeriesLatency {
			layers = append(layers, layer{class: map[string]string{"p50": "l-0", "p99": "l-1"}[s.Label], label: s.Label, values: s.Values})
		}
	}
	return layers
}

// lastText is the last known value of each line, and when that was; empty for now.
func lastText(layers []layer, w samples.Window) (text, when string) {
	var words []string
	last := -1
	for _, l := range layers {
		for i := len(l.values) - 1; i >= 0; i-- {
			if v := l.values[i]; v != nil {
				words = append(words, l.label+" "+valueText(*v, unitSeconds))
				last = max(last, i)
				break
			}
		}
	}
	if last >= 0 && w.End(last).Add(w.Step).Before(w.Now) {
		when = "last at " + w.Start(last).Format("15:04")
	}
	return cmp.Or(strings.Join(words, " · "), "none yet"), when
}

// marked puts window and markers into charts.
func marked(charts []Chart, h samples.History) []Chart {
	recorded := h.Recorded()
	var least []int
	for _, x := range h.Points {
		if i, within := h.Window.Index(x.From); within && x.LowerBound {
			least = append(least, i)
		}
	}
	for i := range charts {
		charts[i].window, charts[i].recorded = h.Window, recorded
		if charts[i].counted {
			charts[i].least = least
		}
	}
	return charts
}

func knownOf(values []*float64) []bool {
	known := make([]bool, len(values))
	for i, v := range values {
		known[i] = v != nil
	}
	return known
}

// kindCharts are the charts of series by label.
var kindCharts = []struct {
	kind    samples.SeriesKind
	name    string
	meaning string
	link    func(p ui.Page, label string) ui.URL
	rate    bool // shown per minute
	shape   shape
}{
	{samples.SeriesFailure, "Failures by error", "failed attempts", func(p ui.Page, l string) ui.URL { return p.Links.FailureGroup(l) }, true, steps},
	{samples.SeriesBacklog, "Waiting by event type", "rows, of the first 20,000 waiting", func(p ui.Page, l string) ui.URL { return p.Links.Rows(campaign.RowFilter{EventType: l}) }, false, areas},
	{samples.SeriesFollowed, "Applied by projection", "events without replays", func(p ui.Page, l string) ui.URL { return p.Links.Projection(l) }, true, steps},
	{samples.SeriesFailedIn, "Failures by projection", "failed attempts", func(p ui.Page, l string) ui.URL { return p.Links.Projection(l) }, true, steps},
	{samples.SeriesApplied, "Applied by instance", "events", func(p ui.Page, l string) ui.URL { return p.Links.Instance(l) }, true, steps},
	{samples.SeriesLag, "Publisher lag", "events behind", publisherLink, false, steps},
}

func publisherLink(p ui.Page, label string) ui.URL {
	topic, publisher, _ := strings.Cut(label, "/")
	return p.Links.Publisher(operator.SubscriptionName{Topic: topic, Publisher: publisher})
}

// SeriesCharts are the charts of the given kinds, none meaning all, and of the given label alone unless it
// is empty.
func SeriesCharts(p ui.Page, h samples.History, label string, kinds ...samples.SeriesKind) (charts []Chart) {
	for _, k := range kindCharts {
		if len(kinds) > 0 && !slices.Contains(kinds, k.kind) {
			continue
		}
		c := Chart{name: k.name, meaning: k.meaning, unit: unitCount, shape: k.shape, counted: k.rate}
		for _, s := range h.Of(k.kind, label) {
			l := layer{class: "l-" + ui.Itoa(len(c.layers)%7), label: cmp.Or(s.Label, "unknown"), values: s.Values}
			if s.Label != samples.Other && s.Label != "" {
				l.link = k.link(p, s.Label)
			}
			if k.rate {
				l.values = ratesOf(s.Values, h.Window)
			}
			c.layers = append(c.layers, l)
		}
		if k.rate {
			c.meaning += " " + perMinute(h.Window)
		}
		if len(c.layers) > 0 {
			charts = append(charts, c)
		}
	}
	return marked(charts, h)
}

// ratesOf are counts per minute.
func ratesOf(counts []*float64, w samples.Window) []*float64 {
	rates := make([]*float64, len(counts))
	for i, n := range counts {
		if n != nil {
			rates[i] = new(*n / max(1, w.End(i).Sub(w.Start(i)).Minutes()))
		}
	}
	return rates
}

// CampaignChart shows a campaign's lag in events: at each sample, and now. A step without a sample of
// it is zero only if the deployment has a record of that step.
func CampaignChart(p ui.Page, h CampaignHistory) Chart {
	w := h.Range.Window(p.Now)
	values := make([]*float64, w.Buckets())
	for _, x := range h.Markers.Points {
		if i, within := w.Index(x.From); within && !w.Start(i).After(w.Now) {
			values[i] = new(0.0)
		}
	}
	raise := func(i int, lag float64) {
		if values[i] == nil || *values[i] < lag {
			values[i] = &lag
		}
	}
	for _, x := range h.Points {
		if i, within := w.Index(x.At); within && !w.Start(i).After(w.Now) {
			raise(i, float64(x.LagEvents))
			if i > 0 && x.At.Equal(w.Start(i)) && w.Step%samples.CoarseStep != 0 { // a minute's sample is of the end of a step, too
				raise(i-1, float64(x.LagEvents))
			}
		}
	}
	for _, x := range h.Points { // it was behind before it was sampled: a hundred others were for longer
		since := x.At.Add(samples.SampledBehind - time.Duration(x.LagSeconds*float64(time.Second)))
		for i := range values {
			if w.End(i).After(since) && !w.End(i).After(x.At) && values[i] != nil && *values[i] == 0 {
				values[i] = nil
			}
		}
	}
	return Chart{name: "Events behind", meaning: sampledAs(w) + "; 0 if behind for less than " + event.Age(samples.SampledBehind), calm: "0 at each sample", unit: unitCount, shape: areas, window: w, recorded: knownOf(values),
		layers: []layer{{class: "f-lagging", label: "behind", values: values}}}
}

// PublisherCharts are how fast a subscription delivered and how far it was behind.
func PublisherCharts(h publishing.PublisherHistory) []Chart {
	w := h.Window
	delivered := valuesOf(w, h.Points, func(x publishing.PublisherPoint) (time.Time, float64) {
		return x.From, float64(x.DeliveredInStep) / max(1, x.At.Sub(x.From).Minutes())
	})
	behind := valuesOf(w, h.Points, func(x publishing.PublisherPoint) (time.Time, float64) { return x.From, float64(x.LagEvents) })
	return []Chart{
		{name: "Delivered", meaning: "events " + perMinute(w), unit: unitCount, window: w, recorded: knownOf(delivered), layers: []layer{{class: "f-current", label: "delivered", values: delivered}}},
		{name: "Events behind", meaning: "at the end of " + eachStep(w), unit: unitCount, shape: areas, window: w, recorded: knownOf(behind), layers: []layer{{class: "f-lagging", label: "behind", values: behind}}},
	}
}

// markerGlyph is the sign of a group of markers: that of its foremost kind, and how many there are.
func markerGlyph(g samples.MarkerGroup) string {
	for _, kind := range markerKinds {
		if slices.ContainsFunc(g.Markers, func(m samples.Marker) bool { return m.Kind == kind.kind }) {
			if len(g.Markers) > 1 {
				return kind.glyph + ui.Itoa(len(g.Markers))
			}
			return kind.glyph
		}
	}
	return ""
}

// markerKinds have the glyphs of markers; the first of several gives the sign of a group.
var markerKinds = []struct {
	kind  samples.MarkerKind
	glyph string
}{{samples.MarkerVersion, "◆"}, {samples.MarkerDeploy, "▲"}, {samples.MarkerNamed, "★"}, {samples.MarkerPause, "‖"}, {samples.MarkerResume, "▸"}, {samples.MarkerOperation, "↻"}, {samples.MarkerRun, "≡"}, {samples.MarkerLost, "✕"}}

// MarkerText is a marker in words.
func MarkerText(m samples.Marker) string {
	switch m.Kind {
	case samples.MarkerDeploy:
		return "deploy " + m.Version + " on " + m.Host
	case samples.MarkerVersion:
		return "projection " + m.Subject + " changed to " + event.ShortHash(m.Version) + " on " + m.Host
	case samples.MarkerLost:
		return "instance " + m.Subject + " was last seen at work: it crashed, was killed or fell silent then or later; counts of its last seconds are missing"
	}
	return strings.TrimSuffix(ui.ActionSentence(m.Audit), ".") + " by " + m.Actor
}

// MarkerLink is what a marker is about.
func MarkerLink(p ui.Page, m samples.Marker) ui.URL {
	switch m.Kind {
	case samples.MarkerDeploy, samples.MarkerLost:
		return p.Links.Instance(m.Subject)
	case samples.MarkerVersion:
		return p.Links.Projection(m.Subject)
	}
	if to := p.TargetURL(m.Audit.Target); to != "" {
		return to
	}
	return p.Links.Audit(operator.AuditFilter{CampaignID: m.Audit.CampaignID, Action: m.Action})
}

// How many glyphs of markers fit beside each other: in a chart of half a wide page, and in one of a
// phone.
const (
	glyphsWide   = 20
	glyphsNarrow = 10
)

// ofCampaign splits a history's markers into those of a campaign and those of the whole deployment.
func ofCampaign(h samples.History, campaign string) (own, others samples.History) {
	own, others = h, h
	own.Markers, others.Markers = nil, nil
	for _, m := range h.Markers {
		if m.Audit.CampaignID == campaign {
			own.Markers = append(own.Markers, m)
		} else {
			others.Markers = append(others.Markers, m)
		}
	}
	own.MarkersCapped = h.MarkersCapped && len(others.Markers) == 0
	return own, others
}

// markersListed is how many markers the legend lists.
const markersListed = 12

// listedMarkers are the markers that the legend lists, of those of a window in order of time. The audit log
// has those of actions; the others come first, and of these changes of projections.
func listedMarkers(markers []samples.Marker) []samples.Marker {
	var chosen []int
	for _, kinds := range [][]samples.MarkerKind{{samples.MarkerVersion}, {samples.MarkerDeploy}, {samples.MarkerNamed}, {samples.MarkerLost}, {samples.MarkerPause, samples.MarkerResume, samples.MarkerOperation, samples.MarkerRun}} {
		for i, m := range slices.Backward(markers) {
			if len(chosen) < markersListed && slices.Contains(kinds, m.Kind) {
				chosen = append(chosen, i)
			}
		}
	}
	var all []samples.Marker
	for _, i := range slices.Sorted(slices.Values(chosen)) {
		all = append(all, markers[i])
	}
	return all
}

// clockIn is a time within a window: with its date where that is longer than a day.
func clockIn(w samples.Window, t time.Time) string {
	if w.To.Sub(w.From) > 25*time.Hour {
		return t.Format("Jan 2 15:04")
	}
	return t.Format("15:04")
}
