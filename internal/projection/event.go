package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// ApplyWithin runs the projections for one event, except those in left. Event types that are only
// journalled, or that no projection handles, run nothing. limit is the maximum time for the event,
// unless its statements cannot run for long.
func (s *Set) ApplyWithin(ctx context.Context, limit time.Duration, tx Tx, e *event.Event, auditOnly, left map[string]bool) error {
	if auditOnly[e.EventType] || !s.Handles(e.EventType) {
		return nil
	}
	if !s.bounded(e.EventType) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return s.Apply(ctx, tx, e, left)
}

// AtFault returns the name of the projection in which an event failed; empty if unknown.
func AtFault(err error) string {
	if at, ok := errors.AsType[*ApplyError](err); ok {
		return at.Projection
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		return panicked.Projection
	}
	return ""
}

// CutOff returns err worded for an event that exceeded its deadline.
func CutOff(err error, limit time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf(event.CutOff+"%s and was cut off: %w", limit, err)
}
