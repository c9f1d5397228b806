package alerts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// AlertCause is a finding as an alert has it.
type AlertCause struct {
	Key      string `json:"key" redact:"-"` // the publisher, instance, source, projection or kind of run; empty where the rule has one subject only
	Count    int64  `json:"count"`          // rows, campaigns, seconds or errors
	Sentence string `json:"sentence"`
	AlertError
	Since   time.Time `json:"-"` // as far as the finding knows; zero if it does not
	Worked  time.Time `json:"-"` // as of the finding: what began before is over, and what is found now began at Since, or is over without it
	Lingers bool      `json:"-"` // as of the finding: it goes on if it was found before, and does not begin
	Owner   string    `json:"-"` // who is on it, since when; empty if nobody is
	// Todo, Runbook and Page are what to do about it, the document and heading that explain it, and the page
	// to look at first.
	Todo    string `json:"-"`
	Runbook string `json:"-"`
	Page    string `json:"-"`
}

// AlertError is the last error behind a cause, and where it happened.
type AlertError struct {
	Error             string `json:"error"`                 // redacted, and cut in a message; empty if unknown
	Build             string `json:"build"`                 // of the program; empty if unknown
	Projection        string `json:"projection" redact:"-"` // that it happened in; empty if unknown
	ProjectionVersion string `json:"projection_version"`    // likewise
}

func causeOf(f finding.Finding) AlertCause {
	return AlertCause{Key: cmp.Or(f.Key, f.Subject), Count: f.Count, Sentence: f.Says, AlertError: AlertError{f.Error, f.Build, f.Projection, f.Version}, Since: f.Begins(), Worked: f.Worked, Lingers: f.Lingers, Owner: f.Owner.Says(),
		Todo: f.Does, Runbook: f.Guide, Page: strings.TrimPrefix(f.Page, "/")}
}

// Blind reports whether the facts lack what the rule decides on, so that it finds nothing and ends
// nothing.
func (r AlertRule) Blind(f facts.Facts) bool {
	return r.What == AlertQuarantine && f.Summary.Held == nil
}

// Causes returns what the rule finds in facts that are Judged.
func (r AlertRule) Causes(f facts.Facts) (causes []AlertCause) {
	s := f.Summary
	switch r.What {
	case AlertDeadRows:
		if n := s.Counts.Dead; n > r.Over {
			dead := campaign.Found(campaign.FindsBlocked, "", n, event.Count(n, "row is dead", "rows are dead"))
			return []AlertCause{causeOf(f.Caused(f.Owned(dead), func(g campaign.ErrorGroup) int64 { return g.Dead }))}
		}
	case AlertOldest:
		if o := s.OldestRetryable; o != nil && s.Mode != campaign.ModeShadow && age(o.AgeSeconds) > r.OverAge {
			oldest := campaign.Found(campaign.FindsLag, "", int64(o.AgeSeconds), fmt.Sprintf("Event %d of campaign %s has waited for %s; %s not applied", o.Seq, o.CampaignID, event.Age(age(o.AgeSeconds)), event.Count(s.Lag.Events, "event is", "events are")))
			oldest.Since, oldest.Does = &o.EnqueuedAt, "See which campaigns lag, and why."
			return []AlertCause{causeOf(f.Owned(oldest))}
		}
	case AlertNoProgress:
		return noProgress(f)
	case AlertDrift:
		return r.driftCause(f)
	}
	for _, one := range append(f.Findings.Causing(string(r.What)), f.Lingering.Causing(string(r.What))...) {
		c := causeOf(one)
		known := slices.ContainsFunc(causes, func(other AlertCause) bool { return other.Key == c.Key })
		if !known && (!r.What.Counts() || c.Count > r.Over) {
			causes = append(causes, c)
		}
	}
	return causes
}

func age(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// driftCause is all that keeps read models from matching the journal, as one cause.
func (r AlertRule) driftCause(f facts.Facts) []AlertCause {
	n, all := f.Summary.Campaigns.Mismatched, f.Findings.Causing(string(AlertDrift))
	if len(all) == 0 || n <= r.Over && all[0].Kind != campaign.FindsOtherJournal { // which is more than a number of campaigns
		return nil
	}
	cause, says := causeOf(all[0]), []string(nil)
	for _, one := range all {
		says = append(says, one.Says)
		if at := one.Begins(); !at.IsZero() && (cause.Since.IsZero() || at.Before(cause.Since)) {
			cause.Since = at
		}
	}
	cause.Count, cause.Sentence = n, strings.Join(says, "; ")
	return []AlertCause{cause}
}

func noProgress(f facts.Facts) []AlertCause {
	s := f.Summary
	if s.DueSince == nil || s.DueSince.After(s.AsOf) || f.Moved || s.Mode == campaign.ModeShadow || s.Worker.Starting && !s.Worker.Running {
		return nil
	}
	idle := campaign.Found(campaign.FindsWorker, "", s.Lag.Events, event.Count(s.Lag.Events, "event is", "events are")+" not applied, and no worker makes progress")
	idle.Since = s.DueSince
	for _, why := range f.Findings.Causing(string(AlertNoProgress)) {
		idle.Error, idle.Build = cmp.Or(why.Error, why.Says), why.Build
	}
	return []AlertCause{causeOf(f.Owned(idle))}
}

// publisherCalm says how the trouble of a publisher ended that began then.
func publisherCalm(all []subscription.Publisher, key string, since time.Time) string {
	i := slices.IndexFunc(all, func(p subscription.Publisher) bool { return p.String() == key })
	switch {
	case i < 0:
		return "publisher " + key + " was removed"
	case all[i].Status == subscription.PublisherPaused:
		return "publisher " + key + " was paused"
	case all[i].LastErrorAt == nil && (all[i].LastPublishedAt == nil || all[i].LastPublishedAt.Before(since)): // an operator's action clears the errors
		return "publisher " + key + " has nothing left to deliver, after an operator's action"
	}
	return "publisher " + key + " delivers again"
}

func instanceCalm(all []campaign.InstanceState, key string) string {
	i := slices.IndexFunc(all, func(i campaign.InstanceState) bool { return i.ID == key })
	switch {
	case i < 0:
		return "instance " + key + " was silent for a week and is forgotten"
	case all[i].StoppedAt != nil:
		return "instance " + key + " was stopped, or its host runs another one"
	}
	return "instance " + key + " is no longer silent or stalled"
}

// left is how many rows, campaigns or events are left of what the rule counts, after its cause has ended, and
// what to say of none, one and many; nothing for other rules.
func (r AlertRule) left(f facts.Facts, key string) (n int64, none, one, many string) {
	s, c := f.Summary, f.Summary.Campaigns
	switch r.What {
	case AlertDeadRows:
		return s.Counts.Dead, "no row is dead", "dead row left", "dead rows left"
	case AlertBlocked:
		return c.Blocked, "no campaign is blocked", "campaign still blocked", "campaigns still blocked"
	case AlertDrift:
		return c.Mismatched, "no campaign differs from the journal", "campaign still differs from the journal", "campaigns still differ from the journal"
	case AlertRejected:
		if i := slices.IndexFunc(f.Sources, func(s inbound.IntakeSource) bool { return s.Name == key }); i >= 0 {
			n = f.Sources[i].Rejected
		}
		return n, "source " + key + " has no rejected rows", "rejected row left in source " + key, "rejected rows left in source " + key
	case AlertNoProgress, AlertOldest:
		return s.Lag.Events, "every event is applied", "event not applied yet", "events not applied yet"
	}
	return 0, "", "", ""
}

// Calm describes the state after the rule's cause has ended, as part of a sentence.
func (r AlertRule) Calm(f facts.Facts, a Alert) string {
	key := a.Cause.Key
	switch r.What {
	case AlertPublisher:
		return publisherCalm(f.Publishers, key, a.Since)
	case AlertInstance:
		return instanceCalm(f.Summary.Instances, key)
	}
	if calm := r.What.described().calm; calm != "" {
		return strings.ReplaceAll(calm, "{key}", key)
	}
	n, none, one, many := r.left(f, key)
	if n == 0 {
		return none
	}
	calm := event.Count(n, one, many)
	if r.Over > 0 {
		calm += ", of up to " + event.Number(r.Over) + " that the rule allows"
	}
	return calm
}
