package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AlertFacts is what rules decide on.
type AlertFacts struct {
	Summary     Summary
	Publishers  []Publisher
	Sources     []IntakeSource
	Groups      []ErrorGroup      // those with the most dead rows first
	Found       []FoundDrift      // what verifications found, by projection
	OtherBuilt  []ProjectionInfo  // projections whose rows another version of them built
	Quarantined []QuarantineCause // those in most campaigns first; may be incomplete
	FailedRuns  []Run             // newest first; without those of a kind of which a later run completed
	// Moved is whether anything was applied, or tried and failed, since the last evaluation.
	Moved bool
}

// AlertCause is what a rule finds wrong with one subject.
type AlertCause struct {
	Key      string `json:"key" redact:"-"` // the publisher, instance, source, projection or kind of run; empty where the rule has one subject only
	Count    int64  `json:"count"`          // rows, campaigns, seconds or errors
	Sentence string `json:"sentence"`
	AlertError
	Since time.Time `json:"-"` // as far as the finding knows; zero if it does not
	// Worked is when the subject last worked; zero if that is unknown or never was. What began before is
	// over, and what is found now began at Since, or is over without it.
	Worked time.Time `json:"-"`
	// Lingers means that it goes on if it was found before, and does not begin.
	Lingers bool `json:"-"`
	// Todo and Runbook are what to do about it, where the rule's advice does not fit; empty otherwise.
	Todo    string `json:"-"`
	Runbook string `json:"-"`
}

// AlertError is the last error behind a cause, and where it happened.
type AlertError struct {
	Error             string `json:"error"`                 // redacted, and cut in a message; empty if unknown
	Build             string `json:"build"`                 // of the program; empty if unknown
	Projection        string `json:"projection" redact:"-"` // that it happened in; empty if unknown
	ProjectionVersion string `json:"projection_version"`    // likewise
}

// Blind reports whether the facts lack what the rule decides on, so that it finds nothing and ends
// nothing.
func (r AlertRule) Blind(f AlertFacts) bool {
	return r.What == AlertQuarantine && f.Summary.Held == nil
}

// Causes returns what the rule finds wrong now.
func (r AlertRule) Causes(f AlertFacts, now time.Time) []AlertCause {
	s := f.Summary
	switch r.What {
	case AlertDeadRows:
		return r.above(s.Counts.Dead, Count(s.Counts.Dead, "row is dead", "rows are dead"), f.Groups, func(g ErrorGroup) int64 { return g.Dead })
	case AlertBlocked:
		return r.above(s.Campaigns.Blocked, Count(s.Campaigns.Blocked, "campaign is", "campaigns are")+" blocked by a permanently failed event", f.Groups, func(g ErrorGroup) int64 { return g.Heads })
	case AlertDrift:
		return r.driftCauses(f)
	case AlertOldest:
		if o := s.OldestRetryable; o != nil && s.Mode != ModeShadow && age(o.AgeSeconds) > r.OverAge {
			return []AlertCause{{Count: int64(o.AgeSeconds), Since: o.EnqueuedAt,
				Sentence: fmt.Sprintf("Event %d of campaign %s has waited for %s; %s not applied", o.Seq, o.CampaignID, Age(age(o.AgeSeconds)), Count(s.Lag.Events, "event is", "events are"))}}
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
	case AlertQuarantine:
		return quarantineCauses(f)
	case AlertFailedRun:
		return failedRunCauses(f.FailedRuns, now)
	case AlertDatabase:
		return faultCauses(s.Faults)
	}
	return nil
}

func age(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// above is the only cause of a rule about a number of rows or campaigns. of counts those of an error.
func (r AlertRule) above(n int64, sentence string, groups []ErrorGroup, of func(ErrorGroup) int64) []AlertCause {
	if n <= r.Over {
		return nil
	}
	c, more := AlertCause{Count: n, Sentence: sentence}, len(groups) == MaxCauses
	groups = slices.DeleteFunc(slices.Clone(groups), func(g ErrorGroup) bool { return of(g) == 0 })
	slices.SortStableFunc(groups, func(a, b ErrorGroup) int { return cmp.Compare(of(b), of(a)) })
	for _, g := range groups {
		if g.FirstAt != nil && (c.Since.IsZero() || g.FirstAt.Before(c.Since)) {
			c.Since = *g.FirstAt
		}
	}
	if len(groups) > 0 {
		c.Error = groups[0].Example
		if tried := groups[0].Tried; len(tried) > 0 {
			c.Build, c.Projection, c.ProjectionVersion = tried[0].Build, tried[0].Projection, tried[0].ProjectionVersion
		}
	}
	if len(groups) > 1 {
		c.Sentence += ", with " + AtLeast(int64(len(groups)), more) + " different errors"
	}
	return []AlertCause{c}
}

// FoundDrift is what the last verifications of a projection found in some campaigns.
type FoundDrift struct {
	Projection string
	Verdict    Verdict // drift, or failed where the journal could not be replayed
	Campaigns  int64
	Since      time.Time // of the first of these verifications
	Error      string    // of a failed one
}

func (r AlertRule) driftCauses(f AlertFacts) []AlertCause {
	c := f.Summary.Campaigns
	n := c.Mismatched
	if n <= r.Over {
		return nil
	}
	cause := AlertCause{Count: n}
	var drifted []string
	for i, d := range f.Found {
		found := AlertError{Error: d.Error, Projection: d.Projection}
		if d.Verdict == VerdictDrift {
			drifted = append(drifted, d.Projection)
			found.Error = builtByOther(f.OtherBuilt, d.Projection)
		}
		if i == 0 {
			cause.AlertError = found
		}
		if cause.Since.IsZero() || d.Since.Before(cause.Since) {
			cause.Since = d.Since
		}
	}
	cause.Sentence = "Read models do not match the journal: " + foundWrong(c, drifted)
	if n < c.Drifted+c.Diverged+c.Unverifiable {
		cause.Sentence += ", " + campaigns(n) + " in all"
	}
	if c.OutdatedDrift > 0 {
		cause.Sentence += "; " + Number(c.OutdatedDrift) + " drifted from versions of projections that are not loaded any more: verify again"
	}
	if c.Drifted+c.Diverged == 0 {
		cause.Sentence = campaigns(c.Unverifiable) + " could not be verified: replaying the events failed"
	}
	return []AlertCause{cause}
}

// foundWrong says how many campaigns are in which state, without those in which none is.
func foundWrong(c CampaignCounts, drifted []string) string {
	var found []string
	if c.Drifted > 0 {
		found = append(found, campaigns(c.Drifted)+" drifted"+inProjections(drifted))
	}
	if c.Diverged > 0 {
		found = append(found, campaigns(c.Diverged)+" diverged")
	}
	if c.Unverifiable > 0 {
		found = append(found, campaigns(c.Unverifiable)+" unverifiable")
	}
	return strings.Join(found, ", ")
}

// inProjections names projections: " in projections seats and users"; empty without any.
func inProjections(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " in " + ProjectionsNamed(names)
}

// ProjectionsNamed names projections: "projection seats", "projections seats and users". There is at least
// one.
func ProjectionsNamed(names []string) string {
	word := "projections "
	if len(names) == 1 {
		word = "projection "
	}
	shown := slices.Clone(names[:min(len(names), heldNamed)])
	if more := len(names) - len(shown); more > 0 {
		shown = append(shown, Number(int64(more))+" more")
	}
	return word + list(shown, " and ")
}

// builtByOther says that another version of a projection built its rows; empty if none did.
func builtByOther(others []ProjectionInfo, projection string) string {
	i := slices.IndexFunc(others, func(p ProjectionInfo) bool { return p.Name == projection })
	if i < 0 {
		return ""
	}
	return others[i].Sentence(projection, others[i].Version) + " Rows may differ because the definition changed."
}

func noProgress(f AlertFacts, now time.Time) []AlertCause {
	s := f.Summary
	if s.DueSince == nil || s.DueSince.After(now) || f.Moved || s.Mode == ModeShadow || s.Worker.Starting && !s.Worker.Running {
		return nil
	}
	c := AlertCause{Count: s.Lag.Events, Since: *s.DueSince, Sentence: Count(s.Lag.Events, "event is", "events are") + " not applied, and no worker makes progress"}
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

// publisherCauses are the failed and stopped publishers. One that failed goes on until it delivers again,
// or has nothing left to deliver: while it is retried, or after an operator cleared its errors, it has not
// recovered.
func publisherCauses(all []Publisher, now time.Time) (causes []AlertCause) {
	for _, p := range all {
		c, errors := publisherCause(p), Count(int64(p.ErrorCount), "error", "errors")
		switch state := p.State(now); {
		case state == PublisherIsFailed || state == PublisherIsStopped:
			c.Sentence = fmt.Sprintf("Publisher %s has %s after %s%s", p, state, errors, p.atFault())
		case p.ErrorCount > 0 && state != PublisherIsPaused:
			c.Sentence, c.Lingers = fmt.Sprintf("Publisher %s is retried, and has not recovered: %s in a row%s", p, errors, p.atFault()), true
		case p.LastErrorAt == nil && state != PublisherIsPaused && !delivered(p):
			c.Sentence, c.Lingers = fmt.Sprintf("Publisher %s has delivered nothing since it failed; an operator's action cleared its errors", p), true
		default:
			continue
		}
		causes = append(causes, c)
	}
	return causes
}

// publisherCause is the last error of a publisher, without a sentence.
func publisherCause(p Publisher) AlertCause {
	c := AlertCause{Key: p.String(), Count: int64(p.ErrorCount), AlertError: AlertError{Error: p.LastError}}
	if p.LastPublishedAt != nil {
		c.Worked = *p.LastPublishedAt
	}
	if p.LastErrorAt != nil {
		c.Since = *p.LastErrorAt
		if p.FailingSince != nil {
			c.Since = *p.FailingSince
		}
		if c.Since.Before(c.Worked) { // by the clock of another holder
			c.Since = c.Worked
		}
	}
	switch p.ErrorKind {
	case EventError:
		c.Todo, c.Runbook = "Have the receiver fixed for this event, or skip the event. A resume alone fails at the same event.", "operating#one-event-is-rejected"
	case UnknownError:
		c.Todo = "Send a test event to find out whether this event or its destination is at fault. Fix that, then resume the publisher."
	}
	return c
}

// atFault continues a sentence about a publisher's errors with the event that is to blame, or may be.
func (p Publisher) atFault() string {
	event := "the event at position " + strconv.FormatInt(p.ErrorPosition, 10)
	if e := p.ErrorEvent; e != nil {
		event = fmt.Sprintf("event %d of campaign %s", e.Seq, e.CampaignID)
	}
	switch {
	case p.ErrorKind == EventError && p.ByFunction():
		return "; its function fails at " + event
	case p.ErrorKind == EventError:
		return "; its destination rejects " + event
	case p.ErrorKind == UnknownError:
		return "; " + event + " or its destination is at fault"
	}
	return ""
}

// publisherCalm says how the trouble of a publisher ended that began then.
func publisherCalm(all []Publisher, key string, since time.Time) string {
	i := slices.IndexFunc(all, func(p Publisher) bool { return p.String() == key })
	switch {
	case i < 0:
		return "publisher " + key + " was removed"
	case all[i].Status == PublisherPaused:
		return "publisher " + key + " was paused"
	case all[i].LastErrorAt == nil && (all[i].LastPublishedAt == nil || all[i].LastPublishedAt.Before(since)): // an operator's action clears the errors
		return "publisher " + key + " has nothing left to deliver, after an operator's action"
	}
	return "publisher " + key + " delivers again"
}

// instanceCauses are the instances in trouble. One that has been silent for an hour is no news: it
// may have been replaced before anyone watched.
func instanceCauses(s Summary, now time.Time) (causes []AlertCause) {
	for _, i := range s.Instances {
		state := i.State(now)
		quiet := now.Sub(i.LastSeen)
		switch {
		case state == InstanceSilent:
			causes = append(causes, AlertCause{Key: i.ID, Count: int64(quiet.Seconds()), Sentence: fmt.Sprintf("Instance %s has been silent for %s", i.ID, Age(quiet)),
				AlertError: AlertError{Build: i.Version}, Since: i.LastSeen, Lingers: quiet >= newsFor})
		case i.Stalled && state == InstanceRunning:
			causes = append(causes, AlertCause{Key: i.ID, Sentence: fmt.Sprintf("Instance %s is stalled: it applies nothing", i.ID), AlertError: AlertError{Error: i.Trouble, Build: i.Version}})
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
			c := AlertCause{Key: s.Name, Count: s.Rejected, Sentence: Count(s.Rejected, "row of source "+s.Name+" is", "rows of source "+s.Name+" are") + " rejected; later rows of the same campaigns wait"}
			if s.RejectedAt != nil {
				c.Since = *s.RejectedAt
			}
			causes = append(causes, c)
		}
	}
	return causes
}

func sourceCauses(all []IntakeSource, now time.Time) (causes []AlertCause) {
	for _, s := range UnreadSources(all, now) {
		c, since := AlertCause{Key: s.Name, Count: s.Waiting, Sentence: "Source " + s.Name + " cannot be read", AlertError: AlertError{Error: s.Error}}, s.ErrorAt
		if s.State(now) == IntakeStopped {
			c.Sentence, since = "No server reads source "+s.Name, s.LookedAt
		}
		if since != nil {
			c.Since = *since
		}
		causes = append(causes, c)
	}
	return causes
}

func quarantineCauses(f AlertFacts) (causes []AlertCause) {
	for _, h := range QuarantinedAmong(f.Summary.Held) {
		c := AlertCause{Key: h.Projection, Count: h.Quarantined, Sentence: "Projection " + h.Projection + " is quarantined in " + h.Campaigns(h.Quarantined), AlertError: AlertError{Projection: h.Projection}}
		for _, q := range f.Quarantined {
			if q.Projection != h.Projection {
				continue
			}
			c.Error = cmp.Or(c.Error, q.Example)
			if c.Since.IsZero() || q.FirstAt.Before(c.Since) {
				c.Since = q.FirstAt
			}
		}
		causes = append(causes, c)
	}
	return causes
}

// failedRunCauses are the last failed runs of each kind. One that failed more than a day ago is no
// news. Campaigns that a verify could not replay are drift's, which counts them.
func failedRunCauses(failed []Run, now time.Time) (causes []AlertCause) {
	for _, r := range failed {
		kind := string(r.Kind)
		if r.FinishedAt == nil || r.Kind == RunVerify && r.Counts.Failed > 0 || slices.ContainsFunc(causes, func(c AlertCause) bool { return c.Key == kind }) {
			continue
		}
		causes = append(causes, AlertCause{Key: kind, Count: r.Counts.Failed, Sentence: fmt.Sprintf("Run %d (%s) has failed", r.ID, kind), AlertError: AlertError{Error: r.Error}, Since: *r.FinishedAt,
			Lingers: now.Sub(*r.FinishedAt) > 24*time.Hour})
	}
	return causes
}

// left is how many rows, campaigns or events are left of what the rule counts, after its cause has ended;
// 0 for other rules.
func (r AlertRule) left(f AlertFacts, key string) int64 {
	s, c := f.Summary, f.Summary.Campaigns
	switch r.What {
	case AlertDeadRows:
		return s.Counts.Dead
	case AlertBlocked:
		return c.Blocked
	case AlertDrift:
		return c.Mismatched
	case AlertRejected:
		if i := slices.IndexFunc(f.Sources, func(s IntakeSource) bool { return s.Name == key }); i >= 0 {
			return f.Sources[i].Rejected
		}
	case AlertNoProgress, AlertOldest:
		return s.Lag.Events
	}
	return 0
}

// Calm describes the state after the rule's cause has ended, as part of a sentence.
func (r AlertRule) Calm(f AlertFacts, a Alert) string {
	key := a.Cause.Key
	left := func(none, one, many string) string {
		if n := r.left(f, key); n > 0 {
			return Count(n, one, many)
		}
		return none
	}
	switch r.What {
	case AlertDeadRows:
		return left("no row is dead", "dead row left", "dead rows left")
	case AlertBlocked:
		return left("no campaign is blocked", "campaign still blocked", "campaigns still blocked")
	case AlertDrift:
		return left("no campaign differs from the journal", "campaign still differs from the journal", "campaigns still differ from the journal")
	case AlertPublisher:
		return publisherCalm(f.Publishers, key, a.Since)
	case AlertInstance:
		return instanceCalm(f.Summary.Instances, key)
	case AlertRejected:
		return left("source "+key+" has no rejected rows", "rejected row left in source "+key, "rejected rows left in source "+key)
	case AlertSource:
		return "source " + key + " is read again, or no longer used"
	case AlertQuarantine:
		return "projection " + key + " is not quarantined in any campaign"
	case AlertFailedRun:
		return "the failed " + key + " run was resumed, or a later one completed"
	}
	return left("every event is applied", "event not applied yet", "events not applied yet")
}
