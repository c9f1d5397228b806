package outbox

import "time"

// Sample is the state at a minute.
type Sample struct {
	At               time.Time
	Counts           Counts
	LagEvents        int64
	Blocked          int64     // campaigns with a dead head
	OldestEnqueuedAt time.Time // append time of the oldest waiting event; zero if none waits
	Applied          int64     // total of applied events
	Failed           int64     // total of failed attempts
}

// Span is a time range of charts.
type Span string

// The spans. SpanHour is the default.
const (
	SpanHour Span = "hour"
	SpanDay  Span = "day"
)

// Spans lists every span, the default first.
var Spans = []Span{SpanHour, SpanDay}

// Step is the time between two points of the span.
func (s Span) Step() time.Duration {
	if s == SpanDay {
		return 15 * time.Minute
	}
	return time.Minute
}

// Points is the number of points in the span.
func (s Span) Points() int {
	if s == SpanDay {
		return 96
	}
	return 60
}

// Point is the state at the end of a step, and the rates during it.
type Point struct {
	At               time.Time `json:"at"`
	Counts           Counts    `json:"counts"`
	LagEvents        int64     `json:"lag_events"`
	Blocked          int64     `json:"blocked"`
	OldestAgeSeconds float64   `json:"oldest_age_seconds"` // 0 when none waits
	AppliedPerSecond float64   `json:"applied_per_second"`
	FailedPerSecond  float64   `json:"failed_per_second"`
}

// History is the data of charts over a span.
type History struct {
	Span        Span    `json:"span"`
	StepSeconds float64 `json:"step_seconds"`
	// Points are in order of time and end now. There are none for steps before the first sample.
	Points []Point `json:"points"`
}

// Series returns the points of a span that ends at end, from samples in order of time. A minute
// without a sample means no change since the one before.
func Series(samples []Sample, span Span, end time.Time) History {
	points := series(samples, span, end, func(s Sample) time.Time { return s.At }, point)
	return History{Span: span, StepSeconds: span.Step().Seconds(), Points: points}
}

// series makes a point of the last sample at the end of each step and of that at its start, which
// is nil if there was none.
func series[S, P any](samples []S, span Span, end time.Time, when func(S) time.Time, point func(s S, before *S, at time.Time, step time.Duration) P) []P {
	step := span.Step()
	points := []P{}
	last := end.Truncate(step)
	next := 0
	var at, before *S
	for i := range span.Points() + 1 {
		moment := last.Add(-time.Duration(span.Points()-i) * step)
		for next < len(samples) && !when(samples[next]).After(moment) {
			at = &samples[next]
			next++
		}
		if at != nil && i > 0 {
			points = append(points, point(*at, before, moment, step))
		}
		before = at
	}
	return points
}

func point(s Sample, before *Sample, at time.Time, step time.Duration) Point {
	p := Point{At: at, Counts: s.Counts, LagEvents: s.LagEvents, Blocked: s.Blocked}
	if !s.OldestEnqueuedAt.IsZero() {
		p.OldestAgeSeconds = max(0, at.Sub(s.OldestEnqueuedAt).Seconds())
	}
	if before != nil {
		p.AppliedPerSecond = max(0, float64(s.Applied-before.Applied)) / step.Seconds()
		p.FailedPerSecond = max(0, float64(s.Failed-before.Failed)) / step.Seconds()
	}
	return p
}

// CampaignPoint is a campaign's lag at a minute.
type CampaignPoint struct {
	At         time.Time `json:"at"`
	LagEvents  int64     `json:"lag_events"`
	LagSeconds float64   `json:"lag_seconds"` // age of the oldest waiting event
}
