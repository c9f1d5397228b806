package operations

import (
	"context"
	"log/slog"
	"time"

	"github.com/outboxweb/outboxweb/internal/loop"
)

// stepInterval is the shortest interval between steps of a running operation; it grows the longer
// nothing changes. Rows are settled by the waves that apply them, independently of this interval.
const stepInterval = 100 * time.Millisecond

// Work steps running operations until ctx ends. It checks for them when one was started in this
// process, and every poll. Errors are logged and retried.
func (ops *Operations) Work(ctx context.Context, poll time.Duration, log *slog.Logger) {
	loop.Loop{Name: "operations", Step: ops.Step, Interval: ops.untilStep(poll), Wake: ops.started, Logger: log}.Run(ctx)
}

// Step advances every running operation by one step and reports whether any of them changed. It is
// safe for concurrent use, also by several processes. Without a running operation it costs one
// index read.
func (ops *Operations) Step(ctx context.Context) (bool, error) {
	ids, err := ops.Running(ctx)
	if err != nil {
		return false, err
	}
	if len(ids) == 0 {
		ops.pause.Store(0)
		return false, nil
	}
	moved := false
	for _, id := range ids {
		changed, err := ops.StepOne(ctx, id)
		if err != nil {
			return false, err
		}
		moved = moved || changed
	}
	pause := stepInterval / 2
	if !moved {
		pause = max(stepInterval, 2*time.Duration(ops.pause.Load()))
	}
	ops.pause.Store(int64(min(pause, time.Minute)))
	return moved, nil
}

// untilStep returns the time until operations are checked again: poll, or less while one is
// running.
func (ops *Operations) untilStep(poll time.Duration) loop.Interval {
	idle := loop.Every(poll)
	return func(ctx context.Context) time.Duration {
		if pause := time.Duration(ops.pause.Load()); pause > 0 {
			return min(pause, poll)
		}
		return idle(ctx)
	}
}
