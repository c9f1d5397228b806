package outbox

import "time"

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

// AlertEvery is the least time between two messages that a cause goes on.
const AlertEvery = time.Hour

// alertStep is the longest time between two evaluations that counts as time in which a cause held:
// a clock that jumps ahead, or a pause of the evaluation, does not make a rule fire.
const alertStep = time.Minute

// Alert is the state of one cause of a rule, as stored.
type Alert struct {
	Rule   string        `json:"rule" redact:"-"`
	Cause  AlertCause    `json:"cause"` // as of the last evaluation that found it
	Status AlertStatus   `json:"status"`
	Since  time.Time     `json:"since"`   // when it was first found
	Held   time.Duration `json:"-"`       // how long it has held
	SeenAt time.Time     `json:"seen_at"` // the last evaluation
	// Told is whether a message said that it fires; SentAt is when the last message said so, also of
	// an earlier time, and SentCount what it counted.
	Told      bool       `json:"told"`
	SentAt    *time.Time `json:"sent_at"`
	SentCount int64      `json:"-"`
	// HeldUntil is when that message is due, if it is held back; the hour counts from then.
	HeldUntil *time.Time `json:"held_until"`
	EndedAt   *time.Time `json:"ended_at"` // nil while it is found
}

// Next is the state after an evaluation, and the message to send. cause is nil if the rule does not
// find it any more. A muted rule sends nothing but the end of what was told.
func (a Alert) Next(r AlertRule, cause *AlertCause, muted bool, now time.Time) (Alert, AlertKind) {
	step := min(max(0, now.Sub(a.SeenAt)), alertStep)
	a.SeenAt = now
	if a.SentAt != nil && a.SentAt.After(now) { // the clock was set back
		a.SentAt = &now
	}
	if cause == nil {
		ended := a.Status == AlertFiring && a.Told
		if a.Status != AlertOK {
			a.Status, a.Told, a.EndedAt = AlertOK, false, &now
		}
		if ended {
			return a, AlertResolved
		}
		return a, AlertNoMessage
	}
	if a.Status == AlertOK || a.Status == "" {
		a.Status, a.Since, a.Held, a.EndedAt, step = AlertPending, now, 0, nil, 0
	}
	if a.Since.After(now) {
		a.Since = now
	}
	a.Cause = *cause
	if a.Held += step; a.Status == AlertPending && a.Held >= r.For {
		a.Status = AlertFiring
	}
	if a.Status != AlertFiring || muted || a.Told && cause.Old || now.Sub(a.lastTold()) < AlertEvery {
		return a, AlertNoMessage
	}
	kind := AlertStarted
	if a.Told {
		kind = AlertReminder
	}
	a.Told, a.SentAt = true, &now
	return a, kind
}

// lastTold is when the last message about the cause was or is due; the zero time without one.
func (a Alert) lastTold() (at time.Time) {
	if a.SentAt != nil {
		at = *a.SentAt
	}
	if a.HeldUntil != nil && a.HeldUntil.After(at) {
		at = *a.HeldUntil
	}
	return at
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
