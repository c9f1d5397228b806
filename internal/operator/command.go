package operator

import (
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
