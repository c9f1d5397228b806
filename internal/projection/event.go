package projection

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"outboxweb/internal/outbox"
)

// ApplyWithin runs the projections for one event, but those in left. Event types
// that are only journalled, or that no projection handles, have nothing to run.
// A panic becomes a PanicError. limit is the most time that the event may take,
// unless a projection of it has a limit of its own.
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

// Projection names the one that panicked, if that is known.
func (e *PanicError) Projection() string {
	if p, ok := e.value.(Panic); ok {
		return p.Projection
	}
	return ""
}

// AtFault is the one that an event failed in; empty when that is not
// known.
func AtFault(err error) string {
	if at, ok := errors.AsType[*ApplyError](err); ok {
		return at.Projection
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		return panicked.Projection()
	}
	return ""
}

// CutOff is err as it is told of an event that ran into its deadline.
func CutOff(err error, limit time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf(outbox.CutOff+"%s and was cut off: %w", limit, err)
}
