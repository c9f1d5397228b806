package worker

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// The tests run the steps of a wave one by one, to stop between them.

// Counted is the worker's counters since its creation.
func (w *Worker) Counted() store.Settled {
	return store.Settled{Applied: w.applied.Load(), Failed: w.failed.Load(), Fenced: w.fenced.Load()}
}

// TimedSteps are the periodic steps of Run.
func (w *Worker) TimedSteps() []func(context.Context) (bool, error) {
	poll := w.Pass
	if w.Mode == outbox.ModeShadow {
		poll = w.Rehearse
	}
	return []func(context.Context) (bool, error){poll, w.reconcile, w.selfCheck(), w.heartbeat}
}

// Trouble is the reason why the worker does not apply.
func (w *Worker) Trouble() (text string, stalled bool) { return w.troubles.sentence() }
