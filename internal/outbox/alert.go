package outbox

import (
	"fmt"
	"regexp"
	"time"
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
)

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
	over := func(one, many string) string {
		if r.Over == 0 {
			return "any " + one
		}
		return "more than " + Count(r.Over, one, many)
	}
	var words string
	switch r.What {
	case AlertDeadRows:
		words = over("dead row", "dead rows")
	case AlertBlocked:
		words = over("blocked campaign", "blocked campaigns")
	case AlertOldest:
		words = "an event not applied after " + Limit(r.OverAge)
	case AlertDrift:
		words = over("campaign", "campaigns") + " drifted, diverged or unverifiable"
	case AlertPublisher:
		words = "a publisher has failed or stopped"
	case AlertNoProgress:
		words = "events are due and nothing is applied"
	case AlertInstance:
		words = "an instance is silent or stalled"
	case AlertRejected:
		words = over("rejected row", "rejected rows") + " of a source"
	case AlertSource:
		words = "a source is not read"
	}
	if r.For > 0 {
		words += ", for " + Limit(r.For)
	}
	return words
}

// advice is what to do about each cause, the document and heading that explain it, and the page to
// look at first.
var advice = map[AlertWhat]struct{ todo, runbook, page string }{
	AlertDeadRows:   {"Find the shared cause, fix it, then requeue by canary.", "operating#dead-heads-grow", "failures"},
	AlertBlocked:    {"Find the shared cause, fix it, then requeue by canary.", "operating#dead-heads-grow", "failures"},
	AlertOldest:     {"See which campaigns lag, and why.", "operating#lag-rises", "campaigns"},
	AlertDrift:      {"Find out which rows differ before rebuilding.", "operating#a-projection-is-wrong", "projections"},
	AlertPublisher:  {"Fix the destination, test it, then resume the publisher.", "operating#a-publisher-does-not-deliver", "publishers"},
	AlertNoProgress: {"See whether a worker is running, and what stops it.", "operating#a-worker-hangs-or-none-is-seen", "instances"},
	AlertInstance:   {"See what the instance was doing, and start it again.", "operating#a-worker-hangs-or-none-is-seen", "instances"},
	AlertRejected:   {"Read the reason, fix the row in its table, then retry it; or discard it.", "intake#rejected-rows", "intake"},
	AlertSource:     {"See whether its database can be reached, and a server has it in its configuration.", "intake#a-source-is-not-read", "intake"},
}

// Advice returns what to do, the document and heading that explain it, such as operating#lag-rises,
// and the page to look at first.
func (w AlertWhat) Advice() (todo, runbook, page string) {
	a := advice[w]
	return a.todo, a.runbook, a.page
}

// AlertFacts is what rules decide on.
type AlertFacts struct {
	Summary    Summary
	Publishers []Publisher
	Sources    []IntakeSource
	Groups     []ErrorGroup // those with the most dead rows first
	// Moved is whether anything was applied, or tried and failed, since the last evaluation.
	Moved bool
}

// AlertCause is one thing that a rule finds wrong.
type AlertCause struct {
	Key      string `json:"key" redact:"-"` // the publisher, instance or source; empty where the rule has one cause only
	Count    int64  `json:"count"`          // rows, campaigns, seconds or errors
	Sentence string `json:"sentence"`
	Error    string `json:"error"` // the last error behind it; empty if unknown
	// the build of the program, the projection and its version that the error happened in; empty if
	// unknown
	Build             string `json:"build"`
	Projection        string `json:"projection" redact:"-"`
	ProjectionVersion string `json:"projection_version"`
	// Old means that it is no news: it goes on if it was found before, without reminders.
	Old bool `json:"-"`
}

// Causes returns what the rule finds wrong now.
func (r AlertRule) Causes(f AlertFacts, now time.Time) []AlertCause {
	s := f.Summary
	switch r.What {
	case AlertDeadRows:
		return r.above(s.Counts.Dead, f, Count(s.Counts.Dead, "row is dead", "rows are dead"))
	case AlertBlocked:
		return r.above(s.Campaigns.Blocked, f, Count(s.Campaigns.Blocked, "campaign is", "campaigns are")+" blocked by a permanently failed event")
	case AlertDrift:
		c := s.Campaigns
		sentence := fmt.Sprintf("Read models do not match the journal: %s drifted, %s diverged, %s unverifiable", campaigns(c.Drifted), Number(c.Diverged), Number(c.Unverifiable))
		if c.Drifted+c.Diverged == 0 {
			sentence = campaigns(c.Unverifiable) + " could not be verified: replaying the events failed"
		}
		return r.above(c.Drifted+c.Diverged+c.Unverifiable, AlertFacts{}, sentence)
	case AlertOldest:
		if o := s.OldestRetryable; o != nil && s.Mode != ModeShadow && age(o.AgeSeconds) > r.OverAge {
			return []AlertCause{{Count: int64(o.AgeSeconds), Sentence: fmt.Sprintf("Event %d of campaign %s has waited for %s; %s not applied", o.Seq, o.CampaignID, Age(age(o.AgeSeconds)), Count(s.Lag.Events, "event is", "events are"))}}
		}
	case AlertNoProgress:
		return noProgress(f, now)
	case AlertPublisher:
		return publisherCauses(f.Publishers, now)
	case AlertInstance:
		return instanceCauses(s, now)
	case AlertRejected:
		return r.rejectionCauses(f.Sources, now)
	case AlertSource:
		return sourceCauses(f.Sources, now)
	}
	return nil
}

func age(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// above is the only cause of a rule about a number. The error is the one that most rows share.
func (r AlertRule) above(n int64, f AlertFacts, sentence string) []AlertCause {
	if n <= r.Over {
		return nil
	}
	c := AlertCause{Count: n, Sentence: sentence}
	if len(f.Groups) > 0 {
		g := f.Groups[0]
		c.Error = g.Example
		if len(g.Tried) > 0 {
			c.Build, c.Projection, c.ProjectionVersion = g.Tried[0].Build, g.Tried[0].Projection, g.Tried[0].ProjectionVersion
		}
	}
	return []AlertCause{c}
}

func noProgress(f AlertFacts, now time.Time) []AlertCause {
	s := f.Summary
	if s.DueSince == nil || s.DueSince.After(now) || f.Moved || s.Mode == ModeShadow {
		return nil
	}
	c := AlertCause{Count: s.Lag.Events, Sentence: Count(s.Lag.Events, "event is", "events are") + " not applied, and no worker makes progress"}
	if _, trouble := s.WorkerTrouble(now); trouble != "" {
		c.Error = trouble
	}
	for _, i := range s.Instances {
		if i.Trouble != "" && i.StoppedAt == nil {
			c.Error, c.Build = i.Trouble, i.Version
			break
		}
	}
	return []AlertCause{c}
}

func publisherCauses(all []Publisher, now time.Time) (causes []AlertCause) {
	for _, p := range all {
		if state := p.State(now); state == PublisherIsFailed || state == PublisherIsStopped {
			causes = append(causes, AlertCause{Key: p.String(), Count: int64(p.ErrorCount), Sentence: fmt.Sprintf("Publisher %s has %s after %s", p, state, Count(int64(p.ErrorCount), "error", "errors")), Error: p.LastError})
		}
	}
	return causes
}

// instanceCauses are the instances in trouble. One that has been silent for an hour is old: it may
// have been replaced before anyone watched.
func instanceCauses(s Summary, now time.Time) (causes []AlertCause) {
	for _, i := range s.Instances {
		state := i.State(now)
		quiet := now.Sub(i.LastSeen)
		switch {
		case state == InstanceSilent:
			causes = append(causes, AlertCause{Key: i.ID, Count: int64(quiet.Seconds()), Sentence: fmt.Sprintf("Instance %s has been silent for %s", i.ID, Age(quiet)), Build: i.Version, Old: quiet >= newsFor})
		case i.Stalled && state == InstanceRunning:
			causes = append(causes, AlertCause{Key: i.ID, Sentence: fmt.Sprintf("Instance %s is stalled: it applies nothing", i.ID), Error: i.Trouble, Build: i.Version})
		}
	}
	return causes
}

func instanceCalm(all []InstanceState, key string) string {
	for _, i := range all {
		switch {
		case i.ID != key:
		case i.StoppedAt != nil:
			return "instance " + key + " was stopped, or its host runs another one"
		default:
			return "instance " + key + " is no longer silent or stalled"
		}
	}
	return "instance " + key + " was silent for a week and is forgotten"
}

func (r AlertRule) rejectionCauses(all []IntakeSource, now time.Time) (causes []AlertCause) {
	for _, s := range RejectingSources(all, now) {
		if s.Rejected > r.Over {
			causes = append(causes, AlertCause{Key: s.Name, Count: s.Rejected, Sentence: Count(s.Rejected, "row of source "+s.Name+" is", "rows of source "+s.Name+" are") + " rejected; later rows of the same campaigns wait"})
		}
	}
	return causes
}

func sourceCauses(all []IntakeSource, now time.Time) (causes []AlertCause) {
	for _, s := range UnreadSources(all, now) {
		c := AlertCause{Key: s.Name, Count: s.Waiting, Sentence: "Source " + s.Name + " cannot be read", Error: s.Error}
		if s.State(now) == IntakeStopped {
			c.Sentence = "No server reads source " + s.Name
		}
		causes = append(causes, c)
	}
	return causes
}

// rejectionCalm says how many rows of a source are rejected now.
func rejectionCalm(all []IntakeSource, key string) string {
	for _, s := range all {
		if s.Name == key && s.Rejected > 0 {
			return Count(s.Rejected, "rejected row", "rejected rows") + " left in source " + key
		}
	}
	return "source " + key + " has no rejected rows"
}

// Calm describes the state after the rule's cause has ended, as part of a sentence.
func (r AlertRule) Calm(f AlertFacts, key string, now time.Time) string {
	s := f.Summary
	switch {
	case r.What == AlertPublisher:
		return "publisher " + key + " has recovered"
	case r.What == AlertInstance:
		return instanceCalm(s.Instances, key)
	case r.What == AlertRejected:
		return rejectionCalm(f.Sources, key)
	case r.What == AlertSource:
		return "source " + key + " is read again, or no longer used"
	case s.Health(now).Level == LevelOK:
		return Count(s.Campaigns.Total, "campaign is", "campaigns are") + " current again"
	case r.What == AlertDeadRows:
		return Count(s.Counts.Dead, "dead row", "dead rows") + " left"
	case r.What == AlertBlocked:
		return Count(s.Campaigns.Blocked, "campaign", "campaigns") + " still blocked"
	}
	return Count(s.Lag.Events, "event", "events") + " not applied yet"
}
