package publishing

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// PublisherSample is the state of a subscription at a minute. Its lag counts the same events as
// Publisher.LagEvents.
type PublisherSample struct {
	At         time.Time
	Delivered  int64 // total
	LagEvents  int64
	LagCapped  bool
	RecordedAt time.Time // of the first waiting event; zero if unknown
	Errors     int       // in a row
}

// PublisherPoint is the state of a subscription at the end of a step.
type PublisherPoint struct {
	From            time.Time `json:"from"`
	At              time.Time `json:"at"`
	Delivered       int64     `json:"delivered"` // total
	DeliveredInStep int64     `json:"delivered_in_step"`
	PerSecond       float64   `json:"events_per_second"` // delivered during the step
	LagEvents       int64     `json:"lag_events"`
	LagCapped       bool      `json:"lag_capped"` // a lower bound; with 0 it is unknown whether any wait
	LagSeconds      float64   `json:"lag_seconds"`
	ErrorsInARow    int       `json:"error_count"` // in a row
}

// PublisherHistory is the data of a subscription's charts over a range.
type PublisherHistory struct {
	operator.SubscriptionName
	Range       string           `json:"range"` // as in a History
	Span        samples.Span     `json:"span" api:"empty"`
	From        time.Time        `json:"from"`
	To          time.Time        `json:"to"`
	StepSeconds float64          `json:"step_seconds"`
	Points      []PublisherPoint `json:"points"` // as in a History
	Window      samples.Window   `json:"-"`
}

// Lag is the lag at the end of each step.
func (h PublisherHistory) Lag() samples.Series {
	s := samples.Series{Kind: samples.SeriesLag, Label: h.SubscriptionName.String(), Values: make([]*float64, h.Window.Buckets())}
	for _, p := range h.Points {
		if i, within := h.Window.Index(p.From); within {
			lag := float64(p.LagEvents)
			s.Values[i] = &lag
		}
	}
	return s
}

// PublisherPoints returns the steps of a window from samples in order of time, as Points does, of a
// subscription that was created at the given time.
func PublisherPoints(samples []PublisherSample, w samples.Window, atWork []samples.Interval, created time.Time) []PublisherPoint {
	points, covered := []PublisherPoint{}, w.Covered(atWork)
	next, last := 0, (*PublisherSample)(nil)
	upTo := func(moment time.Time) *PublisherSample {
		for ; next < len(samples) && !samples[next].At.After(moment); next++ {
			last = &samples[next]
		}
		return last
	}
	for i := range w.Buckets() {
		start, end := w.Start(i), w.End(i)
		before, at := upTo(start), upTo(end)
		if before == nil && !created.Before(start.Add(-subscription.NewFor)) {
			before = &PublisherSample{} // its first sample counts all that it delivered
		}
		if at != nil && (covered[i] || at.At.After(start)) {
			points = append(points, publisherPoint(*at, before, start, end))
		}
	}
	return points
}

func publisherPoint(s PublisherSample, before *PublisherSample, from, at time.Time) PublisherPoint {
	p := PublisherPoint{From: from, At: at, Delivered: s.Delivered, LagEvents: s.LagEvents, LagCapped: s.LagCapped, ErrorsInARow: s.Errors}
	if !s.RecordedAt.IsZero() {
		p.LagSeconds = max(0, at.Sub(s.RecordedAt).Seconds())
	}
	if before != nil {
		p.DeliveredInStep = max(0, s.Delivered-before.Delivered)
		p.PerSecond = float64(p.DeliveredInStep) / max(1, at.Sub(from).Seconds())
	}
	return p
}
