package alerts

import (
	"fmt"
	"regexp"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
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
)

// alertWhats describe what rules watch: what causes count, if they count rows or campaigns; the condition,
// which follows the number of these; and the kinds of findings that are its causes.
var alertWhats = map[AlertWhat]struct {
	one, many, condition string
	kinds                []finding.Kind
}{
	AlertDeadRows:   {"dead row", "dead rows", "", nil},
	AlertBlocked:    {"blocked campaign", "blocked campaigns", "", []finding.Kind{campaign.FindsBlocked}},
	AlertOldest:     {"", "", "an event not applied after %s, in a campaign that is not blocked or paused", nil},
	AlertDrift:      {"campaign", "campaigns", " drifted, diverged or unverifiable", []finding.Kind{campaign.FindsOtherJournal, campaign.FindsDiverged, campaign.FindsDrift, campaign.FindsUnverifiable, campaign.FindsOutdated}},
	AlertPublisher:  {"", "", "a publisher has failed or stopped", []finding.Kind{campaign.FindsPublisher}},
	AlertNoProgress: {"", "", "events are due and nothing is applied", []finding.Kind{campaign.FindsWorker, campaign.FindsStalled, campaign.FindsTroubled}},
	AlertInstance:   {"", "", "an instance is silent or stalled", []finding.Kind{campaign.FindsStalled, campaign.FindsSilent}},
	AlertRejected:   {"rejected row", "rejected rows", " of a source", []finding.Kind{campaign.FindsRejected}},
	AlertSource:     {"", "", "a source is not read", []finding.Kind{campaign.FindsSource}},
	AlertQuarantine: {"", "", "a projection is quarantined", []finding.Kind{campaign.FindsQuarantine}},
	AlertFailedRun:  {"", "", "a run has failed", []finding.Kind{campaign.FindsFailedRun}},
	AlertDatabase:   {"", "", "something is wrong with a database itself", []finding.Kind{campaign.FindsFault}},
}

// Counts reports whether causes count rows or campaigns.
func (w AlertWhat) Counts() bool { return alertWhats[w].one != "" }

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

// AlertRules are the rules without configuration, in the order of pages.
func AlertRules() []AlertRule {
	return []AlertRule{
		{Name: "dead_rows", What: AlertDeadRows, For: 5 * time.Minute},
		{Name: "blocked_campaigns", What: AlertBlocked, Over: 9, For: 5 * time.Minute, Urgent: true},
		{Name: "oldest_row", What: AlertOldest, OverAge: 10 * time.Minute, For: time.Minute},
		{Name: "no_progress", What: AlertNoProgress, For: 10 * time.Minute, Urgent: true},
		{Name: "drift", What: AlertDrift},
		{Name: "publisher", What: AlertPublisher, For: 2 * time.Minute},
		{Name: "instance", What: AlertInstance, For: 2 * time.Minute},
		{Name: "rejected_rows", What: AlertRejected, For: time.Minute},
		{Name: "source", What: AlertSource, For: 2 * time.Minute},
		{Name: "quarantine", What: AlertQuarantine, For: time.Minute},
		{Name: "failed_run", What: AlertFailedRun},
		{Name: "database", What: AlertDatabase, For: time.Minute, Urgent: true},
	}
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
	what := alertWhats[r.What]
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
