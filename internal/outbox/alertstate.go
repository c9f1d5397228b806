package outbox

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// AlertStatus is the state of one cause of a rule.
type AlertStatus string

// The statuses of a cause.
const (
	AlertOK      AlertStatus = "ok"
	AlertPending AlertStatus = "pending" // it has not held long enough yet
	AlertFiring  AlertStatus = "firing"
)

// AlertKind is the kind of a message.
type AlertKind string

// The kinds of messages.
const (
	AlertNoMessage AlertKind = ""
	AlertStarted   AlertKind = "firing"
	AlertReminder  AlertKind = "reminder" // it goes on
	AlertResolved  AlertKind = "resolved"
	AlertSummary   AlertKind = "summary" // several messages that were held back
	AlertTest      AlertKind = "test"
)

// AlertEvery is the least time between two messages that the same cause goes on.
const AlertEvery = time.Hour

// alertMost is how many messages within AlertEvery say that a subject is wrong, whatever causes it.
const alertMost = 10

// A cause comes and goes when sameEnds messages within AlertEvery said that it was over, or anyEnds
// whatever caused it. Then it is over, or back, when it has been so for alertSettled.
const (
	sameEnds     = 2
	anyEnds      = 5
	alertSettled = 10 * time.Minute
)

// alertStep is the longest time between two evaluations that counts as time in which a cause held:
// a clock that jumps ahead, or a pause of the evaluation, does not make a rule fire.
const alertStep = time.Minute

// AlertHold is why a message is held back.
type AlertHold string

// Why messages are held back.
const (
	AlertHeldTold  AlertHold = "told"  // the same cause was told less than an hour ago
	AlertHeldLimit AlertHold = "limit" // too many messages within an hour
	AlertHeldFlaps AlertHold = "flaps" // it comes and goes, and has not been over for long enough
	AlertHeldQuiet AlertHold = "quiet"
	AlertHeldMuted AlertHold = "muted"
)

// AlertHush is when messages of a rule may be sent again; a zero time means now.
type AlertHush struct {
	Muted time.Time // the end of its mute
	Quiet time.Time // the end of the quiet times
}

// Due is when a message may be sent.
func (h AlertHush) Due(now time.Time) time.Time {
	for _, end := range []time.Time{h.Muted, h.Quiet} {
		if end.After(now) {
			now = end
		}
	}
	return now
}

// Alert is the state of one cause of a rule, as stored.
type Alert struct {
	Rule   string        `json:"rule" redact:"-"`
	Cause  AlertCause    `json:"cause"` // as of the last evaluation that found it
	Status AlertStatus   `json:"status"`
	Since  time.Time     `json:"since"`   // when it began, as far as is known: at the latest when it was first found
	Held   time.Duration `json:"-"`       // how long it has held
	SeenAt time.Time     `json:"seen_at"` // the last evaluation
	Told   bool          `json:"told"`    // a message said that it fires
	// the last message about it, also one that said that it was over; its receivers may not have it yet
	SentAt    *time.Time `json:"sent_at"`
	SentCount int64      `json:"-"`          // what the last message that it fires counted
	HeldUntil *time.Time `json:"held_until"` // a message about it is held back until then; nil if none is
	// why it is held back: the same cause was told less than an hour before, too many messages were sent
	// within an hour, it comes and goes, quiet times, or a mute; empty if none is
	HeldBecause AlertHold `json:"held_because" api:"enum=told limit flaps quiet muted,empty"`
	// nil while it is found; while it is firing, the message that it is over is held back
	EndedAt *time.Time `json:"ended_at"`
	// ToldOf is when the last message within the hour that named a part was due, by the part's key. It
	// outlasts the cause. Recent is when all such messages were due.
	ToldOf     map[string]time.Time `json:"-"`
	Recent     []time.Time          `json:"-"`
	AlertFlaps `json:"-"`
}

// AlertFlaps is what an alert remembers to notice that a cause comes and goes.
type AlertFlaps struct {
	Named  []string   `json:"named"`   // the parts that messages of the incident named
	Ends   []AlertEnd `json:"ends"`    // the messages within the hour that said that it was over
	Flaps  bool       `json:"flaps"`   // it comes and goes, as of the last message
	BackAt *time.Time `json:"back_at"` // it came back before its end was told, and no message was sent since
}

// AlertEnd is a message that said that an incident was over, and the parts that were behind it.
type AlertEnd struct {
	At time.Time `json:"at"`
	Of []string  `json:"of"`
}

// Next is the state after an evaluation, and the message to send. others are the causes that the
// message adds to those told before. cause is nil if the rule does not find it any more. A muted rule
// sends nothing but the end of what was told.
func (a Alert) Next(r AlertRule, cause *AlertCause, hush AlertHush, now time.Time) (next Alert, kind AlertKind, others []AlertPart) {
	step := min(max(0, now.Sub(a.SeenAt)), alertStep)
	a.SeenAt, a.HeldUntil, a.HeldBecause = now, nil, ""
	if cause != nil && cause.Worked.After(a.Since) {
		if cause.Since.Before(cause.Worked) {
			cause = nil
		} else {
			a.Since = cause.Since
		}
	}
	a.forget(hush, now, a.Told && cause != nil && cause.Once)
	if cause == nil {
		return a.end(hush, now)
	}
	a.Cause = *cause
	if a.Status == AlertOK || a.Status == "" {
		a.begin(now)
		step = 0
	}
	if a.EndedAt != nil && a.Told {
		a.back(now)
	}
	a.EndedAt = nil
	if a.Since.After(now) {
		a.Since = now
	}
	if a.Held += step; a.Status == AlertPending && a.Held >= r.For {
		a.Status = AlertFiring
	}
	if a.Status != AlertFiring {
		return a, AlertNoMessage, nil
	}
	kind, others = a.worth(r, now)
	switch {
	case kind == AlertNoMessage:
	case hush.Muted.After(now):
		a.hold(hush.Muted, AlertHeldMuted)
	case a.Told && len(a.Recent) >= alertMost && !a.waits(now) && !a.settled(now):
		a.hold(a.Recent[0].Add(AlertEvery), AlertHeldLimit)
	default:
		a.tell(hush.Due(now), now)
		return a, kind, others
	}
	return a, AlertNoMessage, nil
}

// begin starts a new incident of the cause, after the end of the one before.
func (a *Alert) begin(now time.Time) {
	since := now
	if known := a.Cause.Since; !known.IsZero() && known.Before(now) {
		since = known
	}
	if a.EndedAt != nil && a.EndedAt.After(since) {
		since = *a.EndedAt
	}
	a.Status, a.Since, a.Held, a.Told = AlertPending, since, 0, false
	a.Named, a.Flaps, a.BackAt = nil, false, nil
}

// back notes that the cause is found again before a message said that it was over. If nothing that was
// told of is behind it, it is another incident, which is told at once.
func (a *Alert) back(now time.Time) {
	a.BackAt = &now
	parts := a.parts()
	if a.Cause.Lingers || slices.ContainsFunc(parts, func(p AlertPart) bool { return slices.Contains(a.Named, p.Key) }) {
		return
	}
	status, held := a.Status, a.Held
	a.begin(now)
	a.Status, a.Held, a.Told, a.BackAt = status, held, true, &now
	for _, p := range parts {
		delete(a.ToldOf, p.Key)
	}
}

// settled reports whether the cause came back before a message said that it was over, and stays.
func (a *Alert) settled(now time.Time) bool {
	return a.BackAt != nil && now.Sub(*a.BackAt) >= alertSettled && !a.waits(now) && !a.Cause.Once
}

// end is the state without the cause. One that comes and goes is firing until it has been over for
// alertSettled, and a message says so.
func (a Alert) end(hush AlertHush, now time.Time) (Alert, AlertKind, []AlertPart) {
	if a.Status == AlertOK {
		return a, AlertNoMessage, nil
	}
	if a.EndedAt == nil || a.EndedAt.After(now) {
		a.EndedAt = &now
	}
	kind := AlertNoMessage
	if a.Status == AlertFiring && a.Told {
		if !hush.Due(now).After(now) {
			if until := a.EndedAt.Add(alertSettled); a.Flaps && until.After(now) {
				a.hold(until, AlertHeldFlaps)
				return a, kind, nil
			}
			a.Ends = append(a.Ends, AlertEnd{At: now, Of: a.Named})
		}
		kind, a.SentAt = AlertResolved, &now
		maps.DeleteFunc(a.ToldOf, func(_ string, due time.Time) bool { return due.After(now) }) // replaced before it was sent
	}
	a.Status, a.Told = AlertOK, false
	return a, kind, nil
}

// ends is how many messages within the hour said that one of these parts was over.
func (a Alert) ends(parts []string) (n int) {
	for _, end := range a.Ends {
		if slices.ContainsFunc(end.Of, func(key string) bool { return slices.Contains(parts, key) }) {
			n++
		}
	}
	return n
}

// forget drops what was told an hour ago, unless it is not told again. Nothing can be due after the
// hush unless the clock was set back.
func (a *Alert) forget(hush AlertHush, now time.Time, once bool) {
	if a.SentAt != nil && a.SentAt.After(now) {
		a.SentAt = &now
	}
	if a.BackAt != nil && a.BackAt.After(now) {
		a.BackAt = &now
	}
	within := func(all []time.Time, latest time.Time) (kept []time.Time) {
		for _, at := range all {
			if now.Sub(at) < AlertEvery {
				kept = append(kept, earlier(at, latest))
			}
		}
		return kept
	}
	told, latest := make(map[string]time.Time, len(a.ToldOf)), hush.Due(now)
	for part, due := range a.ToldOf {
		if once || now.Sub(due) < AlertEvery {
			told[part] = earlier(due, latest)
		}
	}
	a.ToldOf, a.Recent = told, within(a.Recent, latest)
	var ends []AlertEnd
	for _, end := range a.Ends {
		if now.Sub(end.At) < AlertEvery {
			ends = append(ends, AlertEnd{At: earlier(end.At, now), Of: end.Of})
		}
	}
	a.Ends = ends
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// worth is the message that the firing cause is worth, with the causes that it adds to those told before.
// Otherwise it notes whether one is held back.
func (a *Alert) worth(r AlertRule, now time.Time) (AlertKind, []AlertPart) {
	var others []AlertPart
	first := time.Time{} // the earliest time at which one of the parts was told
	for _, p := range a.parts() {
		due, told := a.ToldOf[p.Key]
		switch {
		case !told:
			others = append(others, p)
		case first.IsZero() || due.Before(first):
			first = due
		}
	}
	if a.Told && a.Cause.Lingers {
		others = nil
	}
	last, back := a.lastTold(), first.Add(AlertEvery)
	switch {
	case !a.Told:
		return AlertStarted, nil
	case last.IsZero(), a.settled(now): // an hour ago, or it comes and goes
		return AlertReminder, nil
	case len(others) > 0 && a.waits(now): // the message that waits is replaced
		return AlertStarted, nil
	case len(others) > 0:
		return AlertStarted, others
	case a.waits(now):
		a.hold(last, AlertHeldQuiet)
	case r.Urgent && r.What.Counts() && a.SentCount > 0 && a.Cause.Count >= 2*a.SentCount:
		return AlertReminder, nil
	case back.After(now) && first.Before(last): // a cause that came back
		a.hold(back, AlertHeldTold)
	}
	return AlertNoMessage, nil
}

// parts are what is behind the cause; where that is unknown, the cause itself.
func (a *Alert) parts() []AlertPart {
	if len(a.Cause.Parts) == 0 {
		return []AlertPart{{}}
	}
	return a.Cause.Parts
}

// lastTold is when the last message within the hour that said what is wrong was due; the zero time
// without one.
func (a *Alert) lastTold() (last time.Time) {
	for _, due := range a.ToldOf {
		if due.After(last) {
			last = due
		}
	}
	return last
}

// waits reports whether such a message waits for the end of quiet times.
func (a *Alert) waits(now time.Time) bool { return a.Told && a.lastTold().After(now) }

// tell records a message that is due then.
func (a *Alert) tell(due, now time.Time) {
	a.Told, a.SentAt, a.SentCount = true, &now, a.Cause.Count
	for _, p := range a.parts() {
		a.ToldOf[p.Key] = due
		if !slices.Contains(a.Named, p.Key) {
			a.Named = append(a.Named, p.Key)
		}
	}
	a.Flaps, a.BackAt = a.ends(a.Named) >= sameEnds || len(a.Ends) >= anyEnds, nil
	if n := len(a.Recent); n == 0 || !a.Recent[n-1].Equal(due) { // those of one quiet time become one
		a.Recent = append(a.Recent, due)
	}
	if due.After(now) {
		a.hold(due, AlertHeldQuiet)
	}
}

func (a *Alert) hold(until time.Time, because AlertHold) {
	a.HeldUntil, a.HeldBecause = &until, because
}

// WhyHeld says why a message is held back; empty if none is.
func (a Alert) WhyHeld() string {
	switch a.HeldBecause {
	case AlertHeldTold:
		return "the same cause was told less than an hour before"
	case AlertHeldLimit:
		return fmt.Sprintf("%d messages were sent within an hour", alertMost)
	case AlertHeldFlaps:
		return "it comes and goes, and has not been over for " + Limit(alertSettled)
	case AlertHeldQuiet:
		return "quiet time"
	case AlertHeldMuted:
		return "the rule is muted"
	}
	return ""
}

// AlertMute silences a rule, or all of them.
type AlertMute struct {
	Rule   string    `json:"rule" redact:"-"` // empty means all rules
	Until  time.Time `json:"until"`
	By     string    `json:"by" redact:"-"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// AllAlerts names all rules in a mute.
const AllAlerts = "all"

// MutedUntil returns when the mutes of a rule end; the zero time if it is not muted.
func MutedUntil(mutes []AlertMute, rule string, now time.Time) (until time.Time) {
	for _, m := range mutes {
		if (m.Rule == "" || m.Rule == rule) && m.Until.After(now) && m.Until.After(until) {
			until = m.Until
		}
	}
	return until
}

// AlertMuteSpans are how long a rule can be muted.
var AlertMuteSpans = []string{"1h", "8h", "morning"}

// muteMorning is the hour at which mutes until the morning end.
const muteMorning = 8

// MuteEnd returns when a mute ends that begins now; morning is at 8 in the time zone.
func MuteEnd(span string, zone *time.Location, now time.Time) (time.Time, error) {
	switch span {
	case "1h":
		return now.Add(time.Hour), nil
	case "8h":
		return now.Add(8 * time.Hour), nil
	case "morning":
		local := now.In(zone)
		end := time.Date(local.Year(), local.Month(), local.Day(), muteMorning, 0, 0, 0, zone)
		if !end.After(now) {
			end = time.Date(local.Year(), local.Month(), local.Day()+1, muteMorning, 0, 0, 0, zone)
		}
		return end.UTC(), nil
	}
	return time.Time{}, Invalid("for", "for must be %s, not %q", OrList(AlertMuteSpans), span)
}
