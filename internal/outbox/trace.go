package outbox

import "time"

// EventHistory is what an event went through, as far as that is kept.
type EventHistory struct {
	CampaignID string      `json:"campaign_id" redact:"-"`
	Seq        int64       `json:"seq"`
	Steps      []EventStep `json:"steps"`   // the oldest first
	Partial    bool        `json:"partial"` // there are older failures or acts than these
}

// EventStep is one thing that happened to an event.
type EventStep struct {
	// failed: an attempt failed, and another was due; died: it was the last;
	// acted: see act; passed_over: skipped, and never applied
	Kind StepKind  `json:"kind"`
	At   time.Time `json:"at"` // of an applied event: when its span ended

	Attempt    *Attempt     `json:"attempt"`     // that failed; nil where the step is none
	AuditEntry *AuditEntry  `json:"audit_entry"` // that was done to the event or its row; likewise
	Span       *AppliedSpan `json:"span"`        // in which the event was applied or passed over; likewise
}

// StepKind says what happened to an event.
type StepKind string

// The kinds of steps.
const (
	StepAppended   StepKind = "appended"
	StepFailed     StepKind = "failed" // an attempt failed, and another was due
	StepDied       StepKind = "died"   // an attempt failed, and it was the last
	StepActed      StepKind = "acted"
	StepApplied    StepKind = "applied"
	StepPassedOver StepKind = "passed_over" // skipped, and never applied
)

// AppliedSpan is consecutive events of a campaign that one process applied
// without a pause, with no more than a minute between the first and the last.
type AppliedSpan struct {
	FirstSeq int64     `json:"first_seq"`
	LastSeq  int64     `json:"last_seq"`
	BeganAt  time.Time `json:"began_at"` // when the first of them were applied
	EndedAt  time.Time `json:"ended_at"`
	Worker   string    `json:"worker"` // the instance's id
	Build    string    `json:"build"`  // the version of the program
}
