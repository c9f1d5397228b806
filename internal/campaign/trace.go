package campaign

import (
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/operator"
)

// EventHistory is an event's history, as far as it is kept.
type EventHistory struct {
	CampaignID string      `json:"campaign_id" redact:"-"`
	Seq        int64       `json:"seq"`
	Steps      []EventStep `json:"steps"`   // oldest first
	Partial    bool        `json:"partial"` // there are older failures or actions than these
}

// EventStep is one entry of an event's history.
type EventStep struct {
	// failed: an attempt failed, and another was due; died: it was the last; quarantined: it was
	// the last, and the event was applied without the failed projection; acted: see audit_entry;
	// passed_over: skipped, and never applied; replayed: a run applied it to a projection that had not
	// been live
	Kind StepKind  `json:"kind"`
	At   time.Time `json:"at"` // for an applied event: when its span ended

	Attempt    *Attempt             `json:"attempt"`     // the failed attempt; nil for other kinds
	AuditEntry *operator.AuditEntry `json:"audit_entry"` // the action on the event or its row; nil for other kinds
	Span       *AppliedSpan         `json:"span"`        // the span in which the event was applied or skipped; nil for other kinds
	Replay     *Replayed            `json:"replay"`      // the run that applied it to one projection more; nil for other kinds
}

// Replayed is a projection that got an event later than others, and the run by which.
type Replayed struct {
	Projection string `json:"projection" redact:"-"`
	RunID      int64  `json:"run_id"`
	Kind       string `json:"kind" api:"enum=replay rebuild"`
}

// StepKind is the kind of a history entry.
type StepKind string

// The kinds of steps.
const (
	StepAppended    StepKind = "appended"
	StepFailed      StepKind = "failed"      // an attempt failed, and another was due
	StepDied        StepKind = "died"        // the last attempt failed
	StepQuarantined StepKind = "quarantined" // likewise, and the event was applied without the failed projection
	StepActed       StepKind = "acted"
	StepApplied     StepKind = "applied"
	StepPassedOver  StepKind = "passed_over" // skipped, and never applied
	StepReplayed    StepKind = "replayed"    // applied to a projection that had not been live
)

// SortSteps sorts steps by time. A replay comes after the span in which the event was applied, which may
// have gone on with later events.
func SortSteps(steps []EventStep) {
	var applied time.Time
	for _, s := range steps {
		if s.Kind == StepApplied && s.At.After(applied) {
			applied = s.At
		}
	}
	at := func(s EventStep) time.Time {
		if s.Replay != nil && s.At.Before(applied) {
			return applied
		}
		return s.At
	}
	slices.SortStableFunc(steps, func(a, b EventStep) int { return at(a).Compare(at(b)) })
}

// AppliedSpan is consecutive events of a campaign that one process applied without a pause, with no
// more than a minute between the first and the last.
type AppliedSpan struct {
	FirstSeq int64     `json:"first_seq"`
	LastSeq  int64     `json:"last_seq"`
	BeganAt  time.Time `json:"began_at"` // when the first of them were applied
	EndedAt  time.Time `json:"ended_at"`
	Worker   string    `json:"worker"` // the instance's id
	Build    string    `json:"build"`  // the version of the program
}
