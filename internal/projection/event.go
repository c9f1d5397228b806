package projection

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// ApplyWithin runs the projections for one event, except those in left. Event types that are only
// journalled, or that no projection handles, run nothing. A panic becomes a PanicError. limit is
// the maximum time for the event, unless one of its projections has its own limit.
func (s *Set) ApplyWithin(ctx context.Context, limit time.Duration, tx Tx, e *outbox.Event, auditOnly, left map[string]bool) (err error) {
	if auditOnly[e.EventType] || !s.Handles(e.EventType) {
		return nil
	}
	if !s.bounded(e.EventType) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{e.Seq, r, debug.Stack()}
		}
	}()
	return s.Apply(ctx, tx, e, left)
}

// PanicError is a panic in a projection, with its stack.
type PanicError struct {
	Seq   int64 // of the event
	value any
	stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic while applying event %d: %v\n%s", e.Seq, e.value, e.stack)
}

// Projection is the name of the projection that panicked, or "".
func (e *PanicError) Projection() string {
	if p, ok := e.value.(Panic); ok {
		return p.Projection
	}
	return ""
}

// AtFault returns the name of the projection in which an event failed; empty if unknown.
func AtFault(err error) string {
	if at, ok := errors.AsType[*ApplyError](err); ok {
		return at.Projection
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		return panicked.Projection()
	}
	return ""
}

// CutOff returns err worded for an event that exceeded its deadline.
func CutOff(err error, limit time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf(outbox.CutOff+"%s and was cut off: %w", limit, err)
}
