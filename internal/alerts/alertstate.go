package alerts

import (
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
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
	AlertSummary   AlertKind = "summary" // several messages at once
	AlertTest      AlertKind = "test"
)

// AlertAgain is the time after which a message says again that a cause goes on.
const AlertAgain = 24 * time.Hour

// alertStep is the longest time between two evaluations that counts as time in which a cause held:
// a clock that jumps ahead, or a pause of the evaluation, does not make a rule fire.
const alertStep = time.Minute

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
	SentCount int64      `json:"-"` // what the last message that it fires counted
	// nil while it is found; one that fires is over, and told to be, when it was not found for as long as it
	// has to hold
	EndedAt *time.Time `json:"ended_at"`
}

// Next is the state after an evaluation, and the message to send. cause is nil if the rule does not find
// it any more. A muted rule sends nothing: what goes on then, or is over, is told when the mute ends.
func (a Alert) Next(r AlertRule, cause *AlertCause, muted bool, now time.Time) (next Alert, kind AlertKind) {
	step := min(max(0, now.Sub(a.SeenAt)), alertStep)
	a.SeenAt = now
	if cause != nil && cause.Worked.After(a.Since) {
		if cause.Since.Before(cause.Worked) {
			cause = nil
		} else {
			a.Since = cause.Since
		}
	}
	if a.Since.After(now) { // the clock was set back
		a.Since = now
	}
	if cause == nil {
		return a.end(r, muted, now)
	}
	a.Cause = *cause
	if a.Status == AlertOK || a.Status == "" {
		a.begin(now)
		step = 0
	}
	a.EndedAt = nil
	if a.Held += step; a.Status == AlertPending && a.Held >= r.For {
		a.Status = AlertFiring
	}
	if a.Status != AlertFiring || muted {
		return a, AlertNoMessage
	}
	if kind = a.worth(r, now); kind != AlertNoMessage {
		a.Told, a.SentAt, a.SentCount = true, &now, a.Cause.Count
	}
	return a, kind
}

// begin starts a new incident of the cause, after the end of the one before.
func (a *Alert) begin(now time.Time) {
	since := now
	if known := a.Cause.Since; !known.IsZero() && known.Before(now) {
		since = known
	}
	if a.EndedAt != nil && a.EndedAt.After(since) && a.EndedAt.Before(now) {
		since = *a.EndedAt
	}
	a.Status, a.Since, a.Held, a.Told = AlertPending, since, 0, false
}

// worth is the message that the firing cause is worth: one that it began, and another when it has grown
// by half, or goes on for long.
func (a *Alert) worth(r AlertRule, now time.Time) AlertKind {
	switch {
	case !a.Told || a.SentAt == nil:
		return AlertStarted
	case a.SentAt.After(now):
		a.SentAt = &now
	case now.Sub(*a.SentAt) >= AlertAgain, r.What.Counts() && a.SentCount > 0 && 2*a.Cause.Count >= 3*a.SentCount:
		return AlertReminder
	}
	return AlertNoMessage
}

// end is the state without the cause.
func (a Alert) end(r AlertRule, muted bool, now time.Time) (Alert, AlertKind) {
	if a.Status == AlertOK {
		return a, AlertNoMessage
	}
	if a.EndedAt == nil || a.EndedAt.After(now) {
		a.EndedAt = &now
	}
	kind := AlertNoMessage
	if a.Status == AlertFiring && a.Told {
		if muted || now.Sub(*a.EndedAt) < r.For {
			return a, AlertNoMessage
		}
		kind, a.SentAt = AlertResolved, &now
	}
	a.Status, a.Told = AlertOK, false
	return a, kind
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
var AlertMuteSpans = []string{"1h", "8h", "24h"}

// MuteEnd returns when a mute ends that begins now.
func MuteEnd(span string, now time.Time) (time.Time, error) {
	lasts, err := time.ParseDuration(span)
	if err != nil || !slices.Contains(AlertMuteSpans, span) {
		return time.Time{}, event.Invalid("for", "for must be %s, not %q", event.OrList(AlertMuteSpans), span)
	}
	return now.Add(lasts), nil
}
