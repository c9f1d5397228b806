package campaign

import (
	"math"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Outlook is when the backlog will be empty, if all goes on as in the last seconds.
type Outlook struct {
	Waiting int64 `json:"waiting"` // events that workers apply by themselves
	Held    int64 `json:"held"`    // events that wait for an operator: their campaign is blocked, paused, diverged or not served
	// how fast the backlog grows, in events per second, negative while it shrinks, and 0 while workers keep up; null while nobody measures it
	Growth *float64 `json:"growth_per_second"`
	// until what workers apply by themselves is applied; null if it will not be at this pace, or nobody knows
	EmptySeconds *float64 `json:"empty_seconds"`
	Empty        string   `json:"empty"` // when all of it is: "now", "4 min", "never", or "unknown"
	Says         string   `json:"says"`  // why, without a final period
	// what twice the load would do, from the share of the time in which workers are busy and the cost of events, without a final period
	Doubled string `json:"double_load"`
	workers string // Empty of what workers apply by themselves
	until   string // what is held waits for
}

// drainedWithin is how soon a backlog is empty that is called empty now: while events come, a few always wait.
const drainedWithin = 2 * time.Second

// OutlookOf is the outlook where workers apply so many events by themselves, of all that are not applied.
func (s Summary) OutlookOf(waiting int64) Outlook {
	o := Outlook{Waiting: waiting, Held: s.Lag.Events - waiting, Empty: "never", workers: "never", until: " for an operator"}
	if s.PauseEnds.Campaigns() != "" {
		o.until += " or the end of a pause"
	}
	in, out, n := s.Throughput.AppendedPerSecond, s.Throughput.AppliedPerSecond, float64(waiting)
	keepUp := n <= out*drainedWithin.Seconds()
	o.Doubled = s.doubled(keepUp)
	if s.Worker.Running {
		if o.Growth = new(float64); !keepUp {
			*o.Growth = in - out
		}
	}
	unknown := func(says string) { o.Empty, o.workers, o.Says = "unknown", "unknown", says }
	switch {
	case s.Lag.Events == 0:
		o.within(0, "nothing waits")
	case waiting == 0:
		o.within(0, "")
	case s.Mode == ModeShadow:
		o.Says = "the mode is shadow_only"
	case !s.Worker.Running && !s.Worker.Starting:
		o.Says = "no worker is running"
	case out == 0 && s.Counts.Failed > 0 && s.Counts.Processing == 0 && s.DueSince != nil && s.DueSince.After(s.AsOf):
		unknown("all of it waits for its next attempt")
	case out == 0:
		unknown("workers have applied nothing in the last seconds")
	case keepUp:
		o.within(n/out, "workers keep up")
	case in >= out:
		o.Says = Rate(in) + " events/s come, and " + Rate(out) + " are applied"
	default:
		o.within(n/(out-in), "at "+Rate(out-in)+" events/s")
	}
	return o
}

// within says that what workers apply by themselves is applied in so many seconds.
func (o *Outlook) within(seconds float64, says string) {
	o.EmptySeconds, o.workers = &seconds, "now"
	if seconds >= drainedWithin.Seconds() {
		o.workers = event.Age(time.Duration(min(seconds, 1e9) * float64(time.Second)))
	}
	if o.Empty, o.Says = o.workers, says; o.Held > 0 {
		rest := "; nothing else waits"
		if o.Waiting > 0 {
			rest = "; the rest: " + o.workers + ", " + says
		}
		o.Empty, o.Says = "never", event.Count(o.Held, "event waits", "events wait")+o.until+rest
	}
}

// stays reports whether workers will not apply what they apply by themselves.
func (o Outlook) stays() bool { return o.workers == "never" }

// Sentence is when the backlog is empty, and why: "4 min: at 900 events/s".
func (o Outlook) Sentence() string { return o.Empty + ": " + o.Says }

// Seconds are EmptySeconds; infinite if that is null.
func (o Outlook) Seconds() float64 {
	if o.EmptySeconds == nil {
		return math.Inf(1)
	}
	return *o.EmptySeconds
}

// PerSecond is Growth; 0 if that is null.
func (o Outlook) PerSecond() float64 {
	if o.Growth == nil {
		return 0
	}
	return *o.Growth
}

// EmptyText is Empty, and by whom.
func (e Explanation) EmptyText() string {
	switch e.Empty {
	case "never":
		return "never by itself"
	case "now", "unknown":
		return e.Empty
	default:
		return "in " + e.Empty + ", with all that waits"
	}
}
