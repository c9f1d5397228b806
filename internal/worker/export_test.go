package worker

import (
	"context"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// The tests take the steps of a wave one by one, to stop between them.

// Counted is what the worker has counted since it was made.
func (w *Worker) Counted() store.Settled {
	return store.Settled{Applied: w.applied.Load(), Failed: w.failed.Load(), Fenced: w.fenced.Load()}
}

// TimedSteps are the steps that Run takes by the clock when nothing wakes it.
func (w *Worker) TimedSteps() []func(context.Context) (bool, error) {
	poll := w.Pass
	if w.Mode == outbox.ModeShadow {
		poll = w.Rehearse
	}
	return []func(context.Context) (bool, error){poll, w.reconcile, w.selfCheck(), w.heartbeat}
}

// Trouble is what keeps the worker from applying.
func (w *Worker) Trouble() (text string, stalled bool) { return w.troubles.sentence() }
