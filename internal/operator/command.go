package operator

import (
	"cmp"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Command is an operator's instruction to a store method: who, why, and the state that the operator
// saw.
type Command struct {
	By             Operator
	Reason         string // at most 500 bytes
	RequestID      string
	IdempotencyKey string    // a second command with the same key and target returns the first one's result
	Expected       *Expected // the state the operator saw; nil skips the comparison
	Confirm        string    // the typed phrase, for actions that require one
	Lasts          PauseFor  // of a pause
	Ends           time.Time // of a resume at the end of a pause: which, so that a later one stays; zero for any
	Hold           bool      // of a skip: pause the campaign behind it
}

// ByItself is the command of what a process does without an operator.
func ByItself(reason string) Command {
	return Command{By: Operator{Name: "outboxweb", Via: "system", Auth: AuthSystem}, Reason: reason}
}

// Expected is the state that the caller saw.
type Expected struct {
	Status       event.Status `json:"status,omitempty" validate:"omitempty,status"`
	AttemptCount *int         `json:"attempt_count,omitempty" validate:"omitnil,min=0"`
	HeadSeq      int64        `json:"head_seq,omitempty" validate:"min=0"`
	UpdatedAt    *time.Time   `json:"updated_at,omitempty"` // the row's: another one is a conflict, also with the same status and attempts
}

// ReasonRequest asks for an action with a reason only.
type ReasonRequest struct {
	Reason string `json:"reason" validate:"reason" placeholder:"TEXT" help:"The reason, for the audit log."`
}

// ActionRequest asks for an action on what the caller saw.
type ActionRequest struct {
	ReasonRequest
	Expected *Expected `json:"expected,omitempty" kong:"-"`
}

// PauseFor is how long a pause lasts: a duration of PauseSpans, or UntilResumed. The zero value is UntilResumed
// without the reason that operators must give.
type PauseFor string

// UntilResumed is a pause that does not end by itself.
const UntilResumed PauseFor = "resumed"

// PauseSpans are how long pauses last, UntilResumed last.
var PauseSpans = []PauseFor{"1h", "4h", "24h", "168h", UntilResumed}

// UsualPause is how long one lasts where nothing is said.
const UsualPause PauseFor = "4h"

// End is when a pause that begins at a time ends; zero if it does not end by itself.
func (p PauseFor) End(begins time.Time) time.Time {
	if d, err := time.ParseDuration(string(p)); err == nil {
		return begins.Add(d)
	}
	return time.Time{}
}

// PauseLength asks how long a pause lasts.
type PauseLength struct {
	For PauseFor `json:"for" validate:"omitempty,oneof=1h 4h 24h 168h resumed" placeholder:"TIME" help:"How long: 1h, 4h, 24h, 168h, or resumed, which takes a reason. Default 4h."` // default 4h
}

// Lasting is the command of a pause of this length.
func (l PauseLength) Lasting(o Command) Command {
	o.Lasts = cmp.Or(l.For, UsualPause)
	return o
}

// CampaignPauseRequest asks for the pause of a campaign on what the caller saw.
type CampaignPauseRequest struct {
	PauseLength
	ActionRequest
}

// HoldRequest asks for a pause with a reason only.
type HoldRequest struct {
	PauseLength
	ReasonRequest
}
