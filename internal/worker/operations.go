package worker

import (
	"context"
	"time"
)

// stepInterval is how often a running operation is looked at. What its rows
// come to is settled by their waves; this is how soon the next one follows.
const stepInterval = 100 * time.Millisecond

// StepOperations takes every running operation a step further and reports
// whether any of them moved. It is safe for concurrent use, by several
// processes too. Without a running operation it costs one read of an index.
func (w *Worker) StepOperations(ctx context.Context) (bool, error) {
	ids, err := w.Store.RunningOperations(ctx)
	if err != nil {
		return false, err
	}
	w.operating.Store(len(ids) > 0)
	moved := false
	for _, id := range ids {
		changed, err := w.Store.StepOperation(ctx, id)
		if err != nil {
			return false, err
		}
		moved = moved || changed
	}
	return moved, nil
}

// untilStep is the time until operations are looked at again: a poll, or less
// while one is running.
func (w *Worker) untilStep(ctx context.Context) time.Duration {
	if w.operating.Load() {
		return min(stepInterval, w.PollInterval)
	}
	return every(w.PollInterval)(ctx)
}

// steer makes the worker look for operations now instead of at the next poll.
// It never blocks.
func (w *Worker) steer() {
	select {
	case w.steered <- struct{}{}:
	default:
	}
}
