package templates

import (
	"cmp"
	"encoding/json"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"outboxweb/internal/outbox"
)

// A plot's width is that of the page; its height is in pixels, from the top down: a row for the
// glyphs of markers, the area of the values, and a row for the clock times.
const (
	plotTop    = 26
	plotArea   = 78
	plotHeight = plotTop + plotArea + 18
	// A bucket is bucketWidth wide and the highest tick at fullHeight, before they are stretched
	// to the area.
	bucketWidth = 10
	fullHeight  = 1000
)

// unit is what a chart's values are.
type unit string

const (
	unitCount   unit = "count"
	unitSeconds unit = "seconds"
)

// layer is one series of a chart: a part of its bars, or a line.
type layer struct {
	class  string // its look
	label  string
	link   URL
	values []*float64 // by bucket; nil without a record
}

// chart is values over time.
type chart struct {
	name     string
	meaning  string // what a bar or line is, with its unit
	headline string // the current value
	link     URL    // target of the headline
	note     string // beside the headline
	unit     unit
	lines    bool // lines instead of stacked bars
	window   outbox.Window
	layers   []layer    // from the bottom up
	ghost    []*float64 // the peak minute of each bar
	legend   bool
	markers  []outbox.MarkerGroup
	recorded []bool // the buckets of which anything is known
}

// totals are the heights of the chart's bars, or the highest of its lines.
func (c chart) totals() []*float64 {
	all := make([]*float64, c.window.Buckets())
	for i := range all {
		for _, l := range c.layers {
			if l.values[i] == nil {
				continue
			}
			sum := *l.values[i]
			if all[i] != nil {
				if c.lines {
					sum = max(sum, *all[i])
				} else {
					sum += *all[i]
				}
			}
			all[i] = &sum
		}
		if c.ghost != nil && c.ghost[i] != nil && all[i] != nil {
			all[i] = new(max(*all[i], *c.ghost[i]))
		}
	}
	return all
}

// peak is the bucket with the highest value; false when nothing is above zero.
func (c chart) peak() (bucket int, most float64, found bool) {
	for i, v := range c.totals() {
		if v != nil && *v > most {
			bucket, most, found = i, *v, true
		}
	}
	return bucket, most, found
}

// chartData is a chart as its script reads it.
type chartData struct {
	From   int64         `json:"t"` // in seconds since 1970
	Step   int64         `json:"s"` // in seconds
	Unit   unit          `json:"u"`
	Now    int64         `json:"n"` // of the running step; 0 when all are complete
	Layers []chartSeries `json:"l"`
}

type chartSeries struct {
	Label  string `json:"n"`
	Values string `json:"v"` // separated by commas; empty without a record
}

func (c chart) data() string {
	d := chartData{From: c.window.From.Unix(), Step: int64(c.window.Step.Seconds()), Unit: c.unit}
	if c.window.To.After(c.window.Now) {
		d.Now = c.window.Now.Unix()
	}
	add := func(label string, values []*float64) {
		words := make([]string, len(values))
		for i, v := range values {
			if v != nil {
				words[i] = strconv.FormatFloat(math.Round(*v*1000)/1000, 'f', -1, 64)
			}
		}
		d.Layers = append(d.Layers, chartSeries{label, strings.Join(words, ",")})
	}
	for _, l := range c.layers {
		add(l.label, l.values)
	}
	if c.ghost != nil {
		add("in the peak minute", c.ghost)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return ""
	}
	return string(text)
}

// alt is the whole chart in a sentence.
func (c chart) alt() string {
	text := c.name + ", " + c.meaning
	if c.headline != "" {
		text += ": now " + c.headline
	}
	if bucket, most, found := c.peak(); found {
		return text + ", peak " + valueText(most, c.unit) + " at " + c.window.Start(bucket).Format("Jan 2 15:04") + " UTC"
	}
	return text + ", nothing in this period"
}

// empty reports whether there is nothing to draw.
func (c chart) empty() bool {
	_, _, found := c.peak()
	return !found
}

// rangeWords is a range in words.
func rangeWords(w outbox.Window) string {
	return w.From.Format("Jan 2 15:04") + " – " + w.To.Format("Jan 2 15:04") + " UTC"
}

// stepWords is the length of a window's step.
func stepWords(w outbox.Window) string {
	if w.Step >= time.Hour {
		return itoa(int(w.Step/time.Hour)) + " h"
	}
	return itoa(int(w.Step/time.Minute)) + " min"
}

// Over is a page with charts over a range.
func Over(page URL, r outbox.Range) URL {
	address, fragment, found := strings.Cut(string(page), "#")
	query := values("range", string(r.Name))
	if r.Free() {
		query = values("from", r.From.Format(time.RFC3339), "to", r.To.Format(time.RFC3339))
	} else if r.Name == outbox.RangeHour {
		query = url.Values{}
	}
	if q := query.Encode(); q != "" {
		address += map[bool]string{true: "&", false: "?"}[strings.Contains(address, "?")] + q
	}
	if found {
		address += "#" + fragment
	}
	return URL(address)
}

// rangeLabel is a named range as pages write it.
func rangeLabel(n outbox.RangeName) string {
	return string(n[:len(n)-1]) + " " + string(n[len(n)-1:])
}

// tableHead names a column of the table of charts.
func tableHead(c chart, l layer) string {
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
	Range  outbox.Range
	Points []outbox.CampaignPoint
}

// Charts is the page with every chart; ChartTable has their numbers.
func (l Links) Charts() URL     { return l.at(nil, "charts") }
func (l Links) ChartTable() URL { return l.at(values("table", "true"), "charts") }

func chartsURL(p Page, table bool) URL {
	if table {
		return p.Links.ChartTable()
	}
	return p.Links.Charts()
}

// allSeries are the charts of all series by label.
func allSeries(p Page, h outbox.History) []chart {
	var kinds []outbox.SeriesKind
	for _, k := range kindCharts {
		kinds = append(kinds, k.kind)
	}
	return seriesCharts(p, h, "", kinds...)
}

// points makes the values of a layer from a history's points.
func points(h outbox.History, of func(outbox.Point) float64) []*float64 {
	all := make([]*float64, h.Window.Buckets())
	for _, x := range h.Points {
		if i, within := h.Window.Index(x.From); within {
			all[i] = new(of(x))
		}
	}
	return all
}

// perMinute says what a bar of counts is.
func perMinute(w outbox.Window) string {
	if w.Step == time.Minute {
		return "per minute"
	}
	return "per minute: the average of " + stepWords(w) + ", lighter the peak minute"
}

// atPeak says what a bar of a state is.
func atPeak(w outbox.Window) string { return "the most within " + stepWords(w) }

// mainCharts are the four charts of the overview.
func mainCharts(p Page, s outbox.Summary, h outbox.History) []chart {
	w := h.Window
	status := func(of outbox.Status) layer {
		return layer{class: "f-" + string(of), label: string(of), values: points(h, func(x outbox.Point) float64 { return float64(x.CountsPeak.Of(of)) })}
	}
	waiting := chart{name: "Waiting rows", meaning: atPeak(w), headline: num(s.Counts.Total()), link: p.Links.Rows(outbox.RowFilter{}), unit: unitCount,
		layers: []layer{status(outbox.Dead), status(outbox.Failed), status(outbox.Processing), status(outbox.Pending)}}
	applied := chart{name: "Applied", meaning: perMinute(w), link: p.Links.Instances(), unit: unitCount, headline: rate(s.Throughput.AppliedPerSecond) + "/s",
		layers: []layer{
			{class: "f-current", label: "applied", values: points(h, func(x outbox.Point) float64 { return float64(x.Applied) / x.Minutes() })},
			{class: "f-failed", label: "failed", values: points(h, func(x outbox.Point) float64 { return float64(x.Failed) / x.Minutes() })},
		}}
	if w.Step > time.Minute {
		applied.ghost = points(h, func(x outbox.Point) float64 { return float64(x.AppliedPeak) })
	}
	applied.note = rate(s.Throughput.FailedPerSecond) + " failures/s"
	latency := chart{name: "Append to applied", meaning: "p50 and p99 of the events applied within " + stepWords(w), unit: unitSeconds, lines: true,
		layers: latencyLayers(h), legend: true}
	latency.headline, latency.link = lastText(latency.layers), p.Links.Charts()
	oldest := chart{name: "Oldest waiting", meaning: "age, " + atPeak(w), headline: "none", unit: unitSeconds, lines: true,
		link:   p.Links.Campaigns(outbox.CampaignFilter{Sort: outbox.SortAge}),
		layers: []layer{{class: "l-1", label: "oldest waiting", values: points(h, func(x outbox.Point) float64 { return x.OldestAgePeak })}}}
	if s.Oldest != nil {
		oldest.headline, oldest.note, oldest.link = outbox.Age(p.Now.Sub(s.Oldest.EnqueuedAt)), s.Oldest.CampaignID, oldestLink(p, *s.Oldest)
	}
	return marked([]chart{waiting, applied, latency, oldest}, h)
}

func latencyLayers(h outbox.History) (layers []layer) {
	for _, s := range h.Series {
		if s.Kind == outbox.SeriesLatency {
			layers = append(layers, layer{class: map[string]string{"p50": "l-0", "p99": "l-1"}[s.Label], label: s.Label, values: s.Values})
		}
	}
	return layers
}

// lastText is the last known value of each line.
func lastText(layers []layer) string {
	var words []string
	for _, l := range layers {
		for i := len(l.values) - 1; i >= 0; i-- {
			if v := l.values[i]; v != nil {
				words = append(words, l.label+" "+valueText(*v, unitSeconds))
				break
			}
		}
	}
	return cmp.Or(strings.Join(words, " · "), "none yet")
}

// marked puts window and markers into charts.
func marked(charts []chart, h outbox.History) []chart {
	groups := clustered(h.Window, h.Markers)
	recorded := knownOf(points(h, func(outbox.Point) float64 { return 0 }))
	for i := range charts {
		charts[i].window, charts[i].markers, charts[i].recorded = h.Window, groups, recorded
	}
	return charts
}

// knownOf says which buckets have a value.
func knownOf(values []*float64) []bool {
	known := make([]bool, len(values))
	for i, v := range values {
		known[i] = v != nil
	}
	return known
}

// clustered groups markers that are nearer than a fortieth of the window.
func clustered(w outbox.Window, markers []outbox.Marker) []outbox.MarkerGroup {
	return outbox.Cluster(markers, w.To.Sub(w.From)/40)
}

// kindCharts are the charts of series by label.
var kindCharts = []struct {
	kind    outbox.SeriesKind
	name    string
	meaning string
	link    func(p Page, label string) URL
	rate    bool // shown per minute
}{
	{outbox.SeriesFailure, "Failures by error", "failed attempts per minute", func(p Page, l string) URL { return p.Links.FailureGroup(l) }, true},
	{outbox.SeriesBacklog, "Waiting by event type", "rows, of the first 20,000 waiting", func(p Page, l string) URL { return p.Links.Rows(outbox.RowFilter{EventType: l}) }, false},
	{outbox.SeriesFollowed, "Applied by projection", "events per minute", func(p Page, l string) URL { return p.Links.Projection(l) }, true},
	{outbox.SeriesFailedIn, "Failures by projection", "failed attempts per minute", func(p Page, l string) URL { return p.Links.Projection(l) }, true},
	{outbox.SeriesApplied, "Applied by instance", "events per minute", func(p Page, l string) URL { return p.Links.Instance(l) }, true},
	{outbox.SeriesLag, "Publisher lag", "events behind", publisherLink, false},
}

func publisherLink(p Page, label string) URL {
	topic, publisher, _ := strings.Cut(label, "/")
	return p.Links.Publisher(outbox.SubscriptionName{Topic: topic, Publisher: publisher})
}

// seriesCharts are the charts of the given kinds, and of the given label alone unless it is empty.
func seriesCharts(p Page, h outbox.History, label string, kinds ...outbox.SeriesKind) (charts []chart) {
	for _, k := range kindCharts {
		if !slices.Contains(kinds, k.kind) {
			continue
		}
		c := chart{name: k.name, meaning: k.meaning, unit: unitCount, lines: true, legend: true}
		for _, s := range h.Series {
			if s.Kind != k.kind || label != "" && s.Label != label {
				continue
			}
			l := layer{class: "l-" + itoa(len(c.layers)%7), label: seriesLabel(s), values: s.Values}
			if s.Label != outbox.Other && s.Label != "" {
				l.link = k.link(p, s.Label)
			}
			if k.rate {
				l.values = ratesOf(s.Values, h.Window)
			}
			c.layers = append(c.layers, l)
		}
		if len(c.layers) > 0 {
			charts = append(charts, c)
		}
	}
	return marked(charts, h)
}

// ratesOf are counts per minute.
func ratesOf(counts []*float64, w outbox.Window) []*float64 {
	rates := make([]*float64, len(counts))
	for i, n := range counts {
		if n != nil {
			rates[i] = new(*n / max(1, w.End(i).Sub(w.Start(i)).Minutes()))
		}
	}
	return rates
}

func seriesLabel(s outbox.Series) string {
	if s.Kind == outbox.SeriesFailure && len(s.Label) > 12 {
		return s.Label[:12]
	}
	return cmp.Or(s.Label, "unknown")
}

// campaignChart shows a campaign's lag in events.
func campaignChart(p Page, h CampaignHistory) chart {
	w := h.Range.Window(p.Now)
	values := make([]*float64, w.Buckets())
	for i := range values {
		if !w.Start(i).After(w.Now) {
			values[i] = new(0.0)
		}
	}
	for _, x := range h.Points {
		if i, within := w.Index(x.At); within && values[i] != nil {
			values[i] = new(max(*values[i], float64(x.LagEvents)))
		}
	}
	return chart{name: "Events behind", meaning: atPeak(w) + "; sampled while it is behind for a minute", unit: unitCount, window: w, recorded: knownOf(values),
		layers: []layer{{class: "f-lagging", label: "behind", values: values}}}
}

// publisherCharts are how fast a subscription delivered and how far it was behind.
func publisherCharts(v PublisherView) []chart {
	w := v.History.Window
	delivered, behind := make([]*float64, w.Buckets()), make([]*float64, w.Buckets())
	for _, x := range v.History.Points {
		if i, within := w.Index(x.From); within {
			delivered[i] = new(float64(x.DeliveredInStep) / max(1, x.At.Sub(x.From).Minutes()))
			behind[i] = new(float64(x.LagEvents))
		}
	}
	average := "events per minute"
	if w.Step > time.Minute {
		average += ", the average of " + stepWords(w)
	}
	return []chart{
		{name: "Delivered", meaning: average, unit: unitCount, window: w, recorded: knownOf(delivered), layers: []layer{{class: "f-current", label: "delivered", values: delivered}}},
		{name: "Events behind", meaning: "at the end of " + stepWords(w), unit: unitCount, window: w, recorded: knownOf(behind), layers: []layer{{class: "f-lagging", label: "behind", values: behind}}},
	}
}

// markerGlyph is the sign of a group of markers: that of its kind, or how many there are.
func markerGlyph(g outbox.MarkerGroup) string {
	if len(g.Markers) > 1 {
		return itoa(len(g.Markers))
	}
	return map[outbox.MarkerKind]string{outbox.MarkerDeploy: "▲", outbox.MarkerVersion: "◆", outbox.MarkerPause: "‖",
		outbox.MarkerResume: "▸", outbox.MarkerOperation: "↻", outbox.MarkerRun: "≡"}[g.Markers[0].Kind]
}

// markerText is a marker in words.
func markerText(m outbox.Marker) string {
	switch m.Kind {
	case outbox.MarkerDeploy:
		return "deploy " + m.Version + " on " + m.Host
	case outbox.MarkerVersion:
		return "projection " + m.Subject + " changed to " + shortVersion(m.Version) + " on " + m.Host
	}
	return strings.TrimSuffix(actionSentence(m.Audit), ".") + " by " + m.Actor
}

// markerLink is what a marker is about.
func markerLink(p Page, m outbox.Marker) URL {
	switch m.Kind {
	case outbox.MarkerDeploy:
		return p.Links.Instance(m.Subject)
	case outbox.MarkerVersion:
		return p.Links.Projection(m.Subject)
	}
	if to := p.targetURL(m.Audit.Target); to != "" {
		return to
	}
	return p.Links.Audit(outbox.AuditFilter{CampaignID: m.Audit.CampaignID, Action: m.Action})
}

// markersListed is how many markers the legend lists.
const markersListed = 12

// clockIn is a time within a window: with its date where that is longer than a day.
func clockIn(w outbox.Window, t time.Time) string {
	if w.To.Sub(w.From) > 25*time.Hour {
		return t.Format("Jan 2 15:04")
	}
	return t.Format("15:04")
}
