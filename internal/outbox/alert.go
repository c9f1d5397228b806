package outbox

import (
	"fmt"
	"regexp"
	"time"

	"github.com/outboxweb/outboxweb/internal/finding"
)

// AlertWhat is what an alert rule watches.
type AlertWhat string

// What rules watch.
const (
	AlertDeadRows   AlertWhat = "dead_rows"         // dead rows
	AlertBlocked    AlertWhat = "blocked_campaigns" // campaigns behind a dead head
	AlertOldest     AlertWhat = "oldest_row"        // the age of the oldest retryable event
	AlertDrift      AlertWhat = "drift"             // campaigns whose read models do not match the journal
	AlertPublisher  AlertWhat = "publisher"         // each failed or stopped publisher
	AlertNoProgress AlertWhat = "no_progress"       // events are due, and nothing is applied or tried
	AlertInstance   AlertWhat = "instance"          // each silent or stalled instance
	AlertRejected   AlertWhat = "rejected_rows"     // rejected rows, of each source
	AlertSource     AlertWhat = "source"            // each source that is not read
	AlertQuarantine AlertWhat = "quarantine"        // each quarantined projection
	AlertFailedRun  AlertWhat = "failed_run"        // each failed run
	AlertDatabase   AlertWhat = "database"          // each fault of a database itself
)

// alertWatches describe what rules watch: what is counted, if anything is, the rest of the condition in
// words, and the findings that causes are made of.
var alertWatches = map[AlertWhat]struct {
	one, many, words string
	kinds            []finding.Kind
}{
	AlertDeadRows:   {one: "dead row", many: "dead rows"},
	AlertBlocked:    {"blocked campaign", "blocked campaigns", "", []finding.Kind{FindsBlocked}},
	AlertOldest:     {words: "an event not applied after %s, in a campaign that is not blocked or paused"},
	AlertDrift:      {"campaign", "campaigns", " drifted, diverged or unverifiable", []finding.Kind{FindsOtherJournal, FindsDiverged, FindsDrift, FindsUnverifiable, FindsOutdated}},
	AlertPublisher:  {words: "a publisher has failed or stopped", kinds: []finding.Kind{FindsPublisher}},
	AlertNoProgress: {words: "events are due and nothing is applied"},
	AlertInstance:   {words: "an instance is silent or stalled", kinds: []finding.Kind{FindsStalled, FindsSilent}},
	AlertRejected:   {"rejected row", "rejected rows", " of a source", []finding.Kind{FindsRejected}},
	AlertSource:     {words: "a source is not read", kinds: []finding.Kind{FindsSource}},
	AlertQuarantine: {words: "a projection is quarantined", kinds: []finding.Kind{FindsQuarantine}},
	AlertFailedRun:  {words: "a run has failed", kinds: []finding.Kind{FindsFailedRun}},
	AlertDatabase:   {words: "something is wrong with a database itself", kinds: []finding.Kind{FindsFault}},
}

// Counts reports whether causes count rows or campaigns.
func (w AlertWhat) Counts() bool { return alertWatches[w].one != "" }

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
		return Invalid(field, "%s %q must begin with a lower-case letter or a digit, followed by lower-case letters, digits, underscores and dashes, at most 50 characters", field, name)
	}
	return nil
}

// Condition is the rule in words: "more than 9 blocked campaigns, for 5 min".
func (r AlertRule) Condition() string {
	watch := alertWatches[r.What]
	words := watch.words
	switch {
	case r.What == AlertOldest:
		words = fmt.Sprintf(words, Limit(r.OverAge))
	case watch.one != "" && r.Over == 0:
		words = "any " + watch.one + words
	case watch.one != "":
		words = "more than " + Count(r.Over, watch.one, watch.many) + words
	}
	if r.For > 0 {
		words += ", for " + Limit(r.For)
	}
	return words
}
