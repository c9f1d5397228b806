package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of refusal. A *Refusal carries one of them and the sentence for
// the person; test with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid")          // the request itself is wrong
	ErrTooLarge = errors.New("too large")        // over a configured size
	ErrConflict = errors.New("conflict")         // the current state does not allow it, or is not the expected one
	ErrNotYet   = errors.New("not yet")          // the wait timed out
	ErrReadOnly = errors.New("read-only")        // this process refuses every change
	ErrSetup    = errors.New("cannot start")     // configuration, file or database that has to be mended first
	ErrFull     = errors.New("the disk is full") // nothing was changed; the same call succeeds once there is room
	ErrDamaged  = errors.New("part of the database cannot be read")
	ErrBusy     = errors.New("the database is busy or unavailable") // contention, or a server that is not there; the same call may succeed later
)

// ErrMissingValue is an event without a value that a projection requires of it.
var ErrMissingValue = errors.New("a required value is missing")

// ErrLeaseLost is returned to a worker whose epoch no longer holds the
// campaign. It must drop its result: another worker owns the campaign.
var ErrLeaseLost = errors.New("lease lost")

// Refusal is an error made for a person: Detail is one whole sentence that
// says what is wrong and, where there is one, the way out.
type Refusal struct {
	Err          error  // one of the kinds above
	Detail       string // one sentence, without a final stop
	Field        string // the field or flag at fault, or empty
	Line         int    // the line at fault, from 1, or 0
	Index        int    // in a batch: which event, from 0
	Run          int64  // the run in the way, or 0
	AuditEntryID int64  // the audit record of the action that was refused; 0 where there is none

	Confirm       string    // the phrase without which the action is not done, or empty
	BlockingEvent *EventRef // the event in the way of an append with a condition, or nil
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

// Invalid makes a Refusal of kind ErrInvalid about one field; field may be
// empty when the whole input is at fault.
func Invalid(field, format string, args ...any) *Refusal {
	return &Refusal{Err: ErrInvalid, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// Conflict makes a Refusal of kind ErrConflict.
func Conflict(format string, args ...any) *Refusal {
	return &Refusal{Err: ErrConflict, Detail: fmt.Sprintf(format, args...)}
}

// NotFound makes a Refusal of kind ErrNotFound.
func NotFound(format string, args ...any) *Refusal {
	return &Refusal{Err: ErrNotFound, Detail: fmt.Sprintf(format, args...)}
}

// Setup makes a Refusal of kind ErrSetup.
func Setup(format string, args ...any) *Refusal {
	return &Refusal{Err: ErrSetup, Detail: fmt.Sprintf(format, args...)}
}

// OrList writes words as a choice between them: "a, b or c".
func OrList(words []string) string {
	return list(words, " or ")
}

func list(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	end := len(words) - 1
	return strings.Join(words[:end], ", ") + last + words[end]
}

// Cause is the innermost cause of an error, such as "address already in use".
func Cause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
