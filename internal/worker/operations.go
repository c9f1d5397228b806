package worker

import (
	"context"
	"time"
)

// stepInterval is how soon a running operation is looked at again: at first
// after this time, and later the longer nothing has moved. What its rows come
// to is settled by the waves that apply them; this is how soon the next follow.
const stepInterval = 100 * time.Millisecond

// StepOperations takes every running operation a step further and reports
// whether any of them moved. It is safe for concurrent use, by several
// processes too. Without a running operation it costs one read of an index.
func (w *Worker) StepOperations(ctx context.Context) (bool, error) {
	ids, err := w.Store.RunningOperations(ctx)
	if err != nil {
		return false, err
	}
	if len(ids) == 0 {
		w.stepPause.Store(0)
		return false, nil
	}
	moved := false
	for _, id := range ids {
		changed, err := w.Store.StepOperation(ctx, id)
		if err != nil {
			return false, err
		}
		moved = moved || changed
	}
	pause := stepInterval / 2
	if !moved {
		pause = max(stepInterval, 2*time.Duration(w.stepPause.Load()))
	}
	w.stepPause.Store(int64(min(pause, w.PollInterval)))
	return moved, nil
}

// untilStep is the time until operations are looked at again: a poll, or less
// while one is running.
func (w *Worker) untilStep(ctx context.Context) time.Duration {
	if pause := time.Duration(w.stepPause.Load()); pause > 0 {
		return pause
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
