package alerts

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// AlertWhat is what an alert rule watches.
type AlertWhat string

// What rules watch.
const (
	AlertDeadRows   AlertWhat = "dead_rows"
	AlertBlocked    AlertWhat = "blocked_campaigns"
	AlertOldest     AlertWhat = "oldest_row" // the age of the oldest retryable event
	AlertDrift      AlertWhat = "drift"
	AlertPublisher  AlertWhat = "publisher"   // each of them
	AlertNoProgress AlertWhat = "no_progress" // that nothing is applied or tried
	AlertInstance   AlertWhat = "instance"    // each of them
	AlertRejected   AlertWhat = "rejected_rows"
	AlertSource     AlertWhat = "source"     // each of them
	AlertQuarantine AlertWhat = "quarantine" // of each projection
	AlertFailedRun  AlertWhat = "failed_run" // each of them
	AlertDatabase   AlertWhat = "database"   // each fault of one itself
	AlertPaused     AlertWhat = "paused"     // campaigns, and each projection and publisher
)

type alertWhat struct {
	AlertRule
	one, many, condition, calm string
}

// alertWhats describe what rules watch, in the order of pages: the rule without configuration; what causes count,
// if they count rows or campaigns; the condition, which follows the number of these; and how the cause {key} has
// ended, where no number of what is left says it. The causes are the findings whose kinds name it.
var alertWhats = []alertWhat{
	{AlertRule{What: AlertDeadRows, For: 5 * time.Minute}, "dead row", "dead rows", "", ""},
	{AlertRule{What: AlertBlocked, Over: 9, For: 5 * time.Minute, Urgent: true}, "blocked campaign", "blocked campaigns", "", ""},
	{AlertRule{What: AlertOldest, OverAge: 10 * time.Minute, For: time.Minute}, "", "", "an event not applied after %s, in a campaign that is not blocked or paused", ""},
	{AlertRule{What: AlertNoProgress, For: 10 * time.Minute, Urgent: true}, "", "", "events are due and nothing is applied", ""},
	{AlertRule{What: AlertDrift}, "campaign", "campaigns", " drifted, diverged or unverifiable", ""},
	{AlertRule{What: AlertPublisher, For: 2 * time.Minute}, "", "", "a publisher has failed or stopped", ""},
	{AlertRule{What: AlertInstance, For: 2 * time.Minute}, "", "", "an instance is silent or stalled", ""},
	{AlertRule{What: AlertRejected, For: time.Minute}, "rejected row", "rejected rows", " of a source", ""},
	{AlertRule{What: AlertSource, For: 2 * time.Minute}, "", "", "a source is not read", "source {key} is read again, or no longer used"},
	{AlertRule{What: AlertQuarantine, For: time.Minute}, "", "", "a projection is quarantined", "projection {key} is not quarantined in any campaign"},
	{AlertRule{What: AlertFailedRun}, "", "", "a run has failed", "the failed {key} run was resumed or repeated, or a verify found all of it right"},
	{AlertRule{What: AlertPaused, For: 8 * time.Hour}, "", "", "a campaign, projection or publisher is paused", "the pause is over"},
	{AlertRule{What: AlertDatabase, For: time.Minute, Urgent: true}, "", "", "something is wrong with a database itself", "the fault {key} is over"},
}

// wider is, by what a rule watches, what a rule watches that tells more of the same incident: its receivers hear of that only.
var wider = map[AlertWhat]AlertWhat{AlertDeadRows: AlertBlocked, AlertOldest: AlertNoProgress}

// Counts reports whether causes count rows or campaigns.
func (w AlertWhat) Counts() bool { return w.described().one != "" }

func (w AlertWhat) described() alertWhat {
	return alertWhats[slices.IndexFunc(alertWhats, func(r alertWhat) bool { return r.What == w })]
}

// AlertRule says what to watch, and whom to tell.
type AlertRule struct {
	Name    string        `json:"name" redact:"-"`
	What    AlertWhat     `json:"what"`
	Over    int64         `json:"over"` // fires above this number; 0 for rules without one
	OverAge time.Duration `json:"-"`    // fires above this age, for oldest_row. JSON has over_seconds
	For     time.Duration `json:"-"`    // how long it must hold. JSON has for_seconds
	To      []string      `json:"to" redact:"-"`
	Urgent  bool          `json:"urgent"` // sent in quiet times too
}

// AlertRules are the rules without configuration, in the order of pages, each named for what it watches.
func AlertRules() (all []AlertRule) {
	for _, w := range alertWhats {
		w.Name = string(w.What)
		all = append(all, w.AlertRule)
	}
	return all
}

var alertName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,49}$`)

// CheckAlertName validates the name of a rule or a receiver, which appears in addresses.
func CheckAlertName(field, name string) error {
	if !alertName.MatchString(name) {
		return event.Invalid(field, "%s %q must begin with a lower-case letter or a digit, followed by lower-case letters, digits, underscores and dashes, at most 50 characters", field, name)
	}
	return nil
}

// Condition is the rule in words: "more than 9 blocked campaigns, for 5 min".
func (r AlertRule) Condition() string {
	what := r.What.described()
	words := what.condition
	switch {
	case r.What == AlertOldest:
		words = fmt.Sprintf(words, event.Limit(r.OverAge))
	case r.What.Counts() && r.Over == 0:
		words = "any " + what.one + words
	case r.What.Counts():
		words = "more than " + event.Count(r.Over, what.one, what.many) + words
	}
	if r.For > 0 {
		words += ", for " + event.Limit(r.For)
	}
	return words
}

// AlertMuteRequest asks for the mute of a rule of alerts.
type AlertMuteRequest struct {
	For string `json:"for" validate:"oneof=1h 8h 24h" api:"required" enum:"1h,8h,24h" default:"1h" help:"How long: 1h, 8h or 24h."`
	operator.ReasonRequest
}
