package event

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of refusal. A *Refusal has one of them and a sentence for the user; test with
// errors.Is.
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid")          // the request itself is wrong
	ErrTooLarge = errors.New("too large")        // over a configured size
	ErrConflict = errors.New("conflict")         // the current state does not allow it, or is not the expected one
	ErrNotYet   = errors.New("not yet")          // the wait timed out
	ErrReadOnly = errors.New("read-only")        // this process refuses every change
	ErrSetup    = errors.New("cannot start")     // configuration, file or database that must be fixed first
	ErrFull     = errors.New("the disk is full") // nothing was changed; the same call succeeds once there is space
	ErrDamaged  = errors.New("part of the database cannot be read")
	ErrBusy     = errors.New("the database is busy or unavailable") // contention, or an unreachable server; the same call may succeed later
)

// ErrUnboundValue is an event whose value a projection cannot bind: it is required and missing, or a
// number that databases do not have.
var ErrUnboundValue = errors.New("a value cannot be bound")

// ErrLeaseLost is returned to a worker whose epoch no longer owns the campaign. It must discard its
// result: another worker owns the campaign.
var ErrLeaseLost = errors.New("lease lost")

// Refusal is an error for users: Detail is one complete sentence that says what is wrong and, if
// possible, how to fix it.
type Refusal struct {
	Err          error  // one of the kinds above
	Detail       string // one sentence, without a final period
	Field        string // the field or flag at fault, or empty
	Line         int    // the line at fault, from 1, or 0
	Index        int    // in a batch: index of the event, from 0
	Run          int64  // the blocking run, or 0
	Source       string // the source with what is in the way, or empty
	AuditEntryID int64  // the audit record of the refused action; 0 if there is none

	RetryAfter time.Duration // until the same call may succeed; 0 if that is not known

	Confirm       string    // the phrase that the action requires, or empty
	BlockingEvent *EventRef // the event that conflicts with a conditional append, or nil
	NextSeq       int64     // the next seq of the campaign, where the event was given another one, or 0
}

func (r *Refusal) Error() string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d: %s", r.Line, r.Detail)
	}
	if r.Confirm != "" {
		return r.Detail + "; to confirm it, type: " + r.Confirm
	}
	return r.Detail
}

func (r *Refusal) Unwrap() error { return r.Err }

// Invalid returns a Refusal of kind ErrInvalid about one field; field may be empty if the whole
// input is at fault.
func Invalid(field, format string, args ...any) *Refusal {
	return &Refusal{Err: ErrInvalid, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// AtIndex notes in a refusal which of several events it is about, counted from 0.
func AtIndex(err error, i int) error {
	if r, ok := errors.AsType[*Refusal](err); ok {
		r.Index = i
	}
	return err
}

// Conflict returns a Refusal of kind ErrConflict.
func Conflict(format string, args ...any) *Refusal {
	return &Refusal{Err: ErrConflict, Detail: fmt.Sprintf(format, args...)}
}

// NotFound returns a Refusal of kind ErrNotFound.
func NotFound(format string, args ...any) *Refusal {
	return &Refusal{Err: ErrNotFound, Detail: fmt.Sprintf(format, args...)}
}

// Setup returns a Refusal of kind ErrSetup.
func Setup(format string, args ...any) *Refusal {
	return &Refusal{Err: ErrSetup, Detail: fmt.Sprintf(format, args...)}
}

// Cause is the innermost cause of an error, such as "address already in use".
func Cause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
