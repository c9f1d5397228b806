package samples

import (
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
)

// Sample is the state at a minute.
type Sample struct {
	At               time.Time
	Counts           campaign.Counts
	LagEvents        int64
	Blocked          int64     // campaigns with a dead head
	OldestEnqueuedAt time.Time // append time of the oldest waiting event; zero if none waits
	Applied          int64     // total of applied events
	Failed           int64     // total of failed attempts
}

// age is the age of the oldest waiting event.
func (s *Sample) age(at time.Time) float64 {
	if s.OldestEnqueuedAt.IsZero() {
		return 0
	}
	return max(0, at.Sub(s.OldestEnqueuedAt).Seconds())
}

// Point is one step of a history: the state at its end and the highest of its samples, of which there is
// one a minute, and what was counted during it.
type Point struct {
	From       time.Time `json:"from"`
	At         time.Time `json:"at"`         // the end of the step, or now in the last one
	Incomplete bool      `json:"incomplete"` // the step is still running
	// LowerBound says that an instance ended in the step without stopping, or went silent: what it did
	// in its last two seconds is not counted.
	LowerBound       bool            `json:"lower_bound"`
	Counts           campaign.Counts `json:"counts"`
	LagEvents        int64           `json:"lag_events"`
	Blocked          int64           `json:"blocked"`
	OldestAgeSeconds float64         `json:"oldest_age_seconds"` // 0 when none waits
	AppliedPerSecond float64         `json:"applied_per_second"`
	FailedPerSecond  float64         `json:"failed_per_second"`
	Applied          int64           `json:"applied"`                 // events during the step
	Failed           int64           `json:"failed"`                  // failed attempts during the step
	AppliedPeak      int64           `json:"applied_peak_minute"`     // in the minute with the most
	FailedPeak       int64           `json:"failed_peak_minute"`      // likewise
	CountsPeak       campaign.Counts `json:"counts_peak"`             // when the most rows waited
	OldestAgePeak    float64         `json:"oldest_age_peak_seconds"` // the highest of the step's minutes
}

// Minutes is the length of the step in minutes, at least one.
func (p Point) Minutes() float64 { return max(1, p.At.Sub(p.From).Minutes()) }

// History is the data of charts over a range.
type History struct {
	Range       string    `json:"range"` // 1h, 6h, 24h, 7d or free
	Span        Span      `json:"span" api:"empty"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds float64   `json:"step_seconds"`
	// Points are in order of time. There is none for a step without a record: before the first
	// sample, and while no instance ran.
	Points []Point `json:"points"`
	// Series have a value for each step between from and to.
	Series  []Series `json:"series"`
	Markers []Marker `json:"markers"` // oldest first
	// MarkersCapped is true when the range has more audit entries than were searched for markers.
	MarkersCapped bool   `json:"markers_capped"`
	Window        Window `json:"-"`
	// Counted has every label of the kinds of which Series has those with the most.
	Counted map[SeriesKind]Counted `json:"-" redact:"-"`
}

// Recorded says for each step whether it has a point.
func (h History) Recorded() []bool {
	known := make([]bool, h.Window.Buckets())
	for _, p := range h.Points {
		if i, within := h.Window.Index(p.From); within {
			known[i] = true
		}
	}
	return known
}

// Of returns the series of a kind: that of a label, or those with the most if label is empty.
func (h History) Of(kind SeriesKind, label string) (all []Series) {
	if counts, found := h.Counted[kind][label]; found && label != "" {
		return []Series{seriesOf(kind, label, counts, h.Recorded())}
	}
	for _, s := range h.Series {
		if s.Kind == kind && (label == "" || s.Label == label) {
			all = append(all, s)
		}
	}
	return all
}

// HeartbeatInterval is how long an instance keeps what it counted before a heartbeat writes it.
const HeartbeatInterval = 2 * time.Second

// Points returns the steps of a window from samples in order of time, the first from before it. A
// step without a sample is as the one before if a process was at work until its end; otherwise
// there is no record of it. Instances were lost at the markers.
func Points(samples []Sample, w Window, atWork []Interval, lost []Marker) []Point {
	points := []Point{}
	covered := w.Covered(atWork)
	var last *Sample
	before := &Sample{} // until the first sample there was nothing to count
	next := 0
	for i := range w.Buckets() {
		start, end := w.Start(i), w.End(i)
		for next < len(samples) && !samples[next].At.After(start) {
			last, before = &samples[next], &samples[next]
			next++
		}
		p := Point{From: start, At: end, Incomplete: w.Incomplete(i)}
		sampled := next < len(samples) && !samples[next].At.After(end)
		if !sampled && (last == nil || !covered[i]) {
			continue
		}
		if last != nil {
			p.raise(last, start)
		}
		for ; next < len(samples) && !samples[next].At.After(end); next++ {
			s := &samples[next]
			p.add(max(0, s.Applied-before.Applied), max(0, s.Failed-before.Failed))
			p.raise(s, s.At)
			last, before = s, s
		}
		p.end(last)
		p.LowerBound = slices.ContainsFunc(lost, func(m Marker) bool { return m.At.Before(w.Start(i+1)) && m.At.Add(HeartbeatInterval).After(start) })
		points = append(points, p)
	}
	return points
}

// raise raises the peaks to a sample's values at a time.
func (p *Point) raise(s *Sample, at time.Time) {
	if s.Counts.Total() >= p.CountsPeak.Total() {
		p.CountsPeak = s.Counts
	}
	p.OldestAgePeak = max(p.OldestAgePeak, s.age(at))
}

// add counts one minute.
func (p *Point) add(applied, failed int64) {
	p.Applied += applied
	p.Failed += failed
	p.AppliedPeak, p.FailedPeak = max(p.AppliedPeak, applied), max(p.FailedPeak, failed)
}

// end sets the state at the end of the step.
func (p *Point) end(s *Sample) {
	p.Counts, p.LagEvents, p.Blocked = s.Counts, s.LagEvents, s.Blocked
	p.OldestAgeSeconds = s.age(p.At)
	p.OldestAgePeak = max(p.OldestAgePeak, p.OldestAgeSeconds)
	seconds := max(1, p.At.Sub(p.From).Seconds())
	p.AppliedPerSecond, p.FailedPerSecond = float64(p.Applied)/seconds, float64(p.Failed)/seconds
}

// SampledBehind is how long a campaign is behind, counted from its oldest waiting event, when it is
// sampled. Each sample is a write: events that are about to be applied are left out.
const SampledBehind = 5 * time.Second

// CampaignPoint is a campaign's lag at a minute.
type CampaignPoint struct {
	At         time.Time `json:"at"`
	LagEvents  int64     `json:"lag_events"`
	LagSeconds float64   `json:"lag_seconds"` // age of the oldest waiting event
}
