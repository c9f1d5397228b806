package samples

import (
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// RangeName is a time range of charts that ends now.
type RangeName string

// The ranges. RangeHour is the default.
const (
	RangeHour RangeName = "1h"
	RangeSix  RangeName = "6h"
	RangeDay  RangeName = "24h"
	RangeWeek RangeName = "7d"
)

const (
	// MaxRange is the longest free range: as long as samples are kept.
	MaxRange = 8 * 24 * time.Hour
	// MinRange is the shortest free range.
	MinRange   = 5 * time.Minute
	maxBuckets = 61
	// MinutesKept is how long series are kept by the minute; older ones are kept by CoarseStep.
	MinutesKept = 25 * time.Hour
	// CoarseStep is the step of series that are older than MinutesKept.
	CoarseStep = 15 * time.Minute
)

// RangeNames lists every named range, the default first.
var RangeNames = []RangeName{RangeHour, RangeSix, RangeDay, RangeWeek}

// Span is the older name of a range.
type Span string

// The older names, of 1h and of 24h.
const (
	SpanHour Span = "hour"
	SpanDay  Span = "day"
)

// Spans lists the older names.
var Spans = []Span{SpanHour, SpanDay}

// Range is a time range of charts: a named one, or from From to To. The zero value is the last
// hour.
type Range struct {
	Name     RangeName
	From, To time.Time     // of a free range
	Begun    time.Time     // when the first sample began: no window has steps before; zero if unknown
	Step     time.Duration // of a free range with the steps of another window; otherwise zero
}

// Besides are how long before a window one lies that is shown beside it.
var Besides = []string{"1h", "24h", "168h"}

// Beside is the range of the same length and steps that lies one of Besides before the window, or that
// ended with the step before the one of a time.
func (w Window) Beside(word string) (Range, error) {
	by, _ := time.ParseDuration(word)
	if !slices.Contains(Besides, word) {
		until, err := event.ParseSince("beside", word)
		if err != nil {
			return Range{}, event.Invalid("beside", "beside must be one of %s, or a time (UTC) like 2026-11-21T07:30:00Z", strings.Join(Besides, ", "))
		}
		by = w.To.Sub(until.Truncate(w.Step))
	}
	if by <= 0 {
		return Range{}, event.Invalid("beside", "beside must be before the end of the range")
	}
	return Range{From: w.From.Add(-by), To: w.To.Add(-by), Step: w.Step}, nil
}

// FreeRange returns the range between two times. It is refused when shorter than five minutes or
// longer than samples are kept. Without an end it ends now.
func FreeRange(from, to, now time.Time) (Range, error) {
	if to.IsZero() {
		to = now.UTC()
	}
	switch length := to.Sub(from); {
	case from.IsZero():
		return Range{}, event.Invalid("from", "from is required with to")
	case length < MinRange:
		return Range{}, event.Invalid("to", "to must be at least 5 minutes after from")
	case length > MaxRange:
		return Range{}, event.Invalid("from", "charts cover at most %s", event.Age(MaxRange))
	case from.After(now):
		return Range{}, event.Invalid("from", "from must not be in the future")
	}
	return Range{From: from.UTC(), To: to.UTC()}, nil
}

// Free reports whether the range has fixed ends.
func (r Range) Free() bool { return !r.From.IsZero() }

// Label is the range in words: "1h", or "free" for one with fixed ends.
func (r Range) Label() string {
	switch {
	case r.Free():
		return "free"
	case r.Name == "":
		return string(RangeHour)
	}
	return string(r.Name)
}

// Span is the older name of the range; empty if it has none.
func (r Range) Span() Span {
	switch r.Label() {
	case string(RangeHour):
		return SpanHour
	case string(RangeDay):
		return SpanDay
	}
	return ""
}

// OfSpan is the range with an older name.
func OfSpan(s Span) Range {
	if s == SpanDay {
		return Range{Name: RangeDay}
	}
	return Range{Name: RangeHour}
}

// Window is consecutive buckets of time. The last one may still be running.
type Window struct {
	From, To time.Time // of the first bucket and after the last one, multiples of Step
	Step     time.Duration
	Now      time.Time // to ten seconds
}

// named are length and step of the named ranges.
var named = map[RangeName]struct{ length, step time.Duration }{
	RangeHour: {time.Hour, time.Minute},
	RangeSix:  {6 * time.Hour, 6 * time.Minute},
	RangeDay:  {24 * time.Hour, 2 * CoarseStep},
	RangeWeek: {7 * 24 * time.Hour, 3 * time.Hour},
}

// freeSteps are the steps of free ranges.
var freeSteps = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, CoarseStep, 2 * CoarseStep, time.Hour, 2 * time.Hour, 4 * time.Hour}

// Window returns the buckets of the range. A named range ends with the running bucket. One that begins
// with the first sample has the steps of a free range.
func (r Range) Window(now time.Time) Window {
	now = steady(now.UTC())
	if !r.Free() {
		n := named[RangeName(r.Label())]
		end := now.Truncate(n.step).Add(n.step)
		w := Window{From: end.Add(-n.length), To: end, Step: n.step, Now: now}
		if !r.Begun.After(w.From) || r.Begun.After(now) {
			return w
		}
		r.From, r.To = w.From, now
	}
	if r.Step > 0 {
		return Window{From: r.From, To: r.To, Step: r.Step, Now: now}
	}
	if r.Begun.After(r.From) && r.Begun.Before(r.To) {
		r.From = r.Begun
	}
	for _, step := range freeSteps {
		if step < CoarseStep && now.Sub(r.From) > MinutesKept {
			continue
		}
		from, to := r.From.Truncate(step), r.To.Add(step-1).Truncate(step)
		if latest := now.Truncate(step).Add(step); to.After(latest) {
			to = latest
		}
		if to.Sub(from)/step <= maxBuckets || step == freeSteps[len(freeSteps)-1] {
			return Window{From: from, To: to, Step: step, Now: now}
		}
	}
	return Window{}
}

// steady is now to ten seconds, so that pages that are read again soon are the same; never a whole
// minute, at which the running one would be empty.
func steady(now time.Time) time.Time {
	t := now.Truncate(10 * time.Second)
	if t.Equal(t.Truncate(time.Minute)) {
		return t.Add(time.Second)
	}
	return t
}

// Buckets is the number of buckets.
func (w Window) Buckets() int { return int(w.To.Sub(w.From) / w.Step) }

// Start is the begin of bucket i.
func (w Window) Start(i int) time.Time { return w.From.Add(time.Duration(i) * w.Step) }

// End is the end of bucket i, or now if it is still running.
func (w Window) End(i int) time.Time {
	if end := w.Start(i + 1); end.Before(w.Now) {
		return end
	}
	return w.Now
}

// Incomplete reports whether bucket i is still running.
func (w Window) Incomplete(i int) bool { return w.Start(i + 1).After(w.Now) }

// Index is the bucket that a time is in; false if there is none.
func (w Window) Index(t time.Time) (int, bool) {
	if t.Before(w.From) || !t.Before(w.To) {
		return 0, false
	}
	return int(t.Sub(w.From) / w.Step), true
}

// Interval is a stretch of time.
type Interval struct{ From, To time.Time }

// Covered reports for each bucket whether any of the intervals began before its end and lasted until
// then.
func (w Window) Covered(by []Interval) []bool {
	covered := make([]bool, w.Buckets())
	for i := range covered {
		covered[i] = slices.ContainsFunc(by, func(x Interval) bool { return x.From.Before(w.Start(i+1)) && !x.To.Before(w.End(i)) })
	}
	return covered
}

// AtWork are the times at which instances recorded samples: from its start until it was last
// seen. An instance without heartbeats is at work until it ends.
func AtWork(instances []campaign.InstanceState, now time.Time) []Interval {
	var all []Interval
	for _, i := range instances {
		x := Interval{i.StartedAt, i.LastSeen}
		if i.StoppedAt == nil && (i.BeatEvery == 0 && i.Process != campaign.ProcessGone || i.BeatEvery > 0 && now.Sub(i.LastSeen) <= campaign.MissedBeats*i.BeatEvery) {
			x.To = now.Add(time.Second)
		}
		if !x.From.IsZero() {
			all = append(all, x)
		}
	}
	return all
}
