package worker

import (
	"context"
	"errors"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// The tests take the steps of a wave one by one, to stop between them.

// Who is the worker's name in leases.
func (w *Worker) Who() store.Worker { return w.who }

// ApplyClaims is a wave that ends before it is settled, as in a process that
// dies then.
func (w *Worker) ApplyClaims(ctx context.Context, claims []store.Claim) error {
	_, err := w.work(ctx, claims)
	return err
}

// FinishClaims is the rest of a wave after its claim. What is to happen between
// applying and settling does.
func (w *Worker) FinishClaims(ctx context.Context, claims []store.Claim, between ...func()) error {
	parts, err := w.work(ctx, claims)
	for _, happen := range between {
		happen()
	}
	return errors.Join(err, w.settle(ctx, parts))
}

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
	return []func(context.Context) (bool, error){poll, w.reconcile, w.selfCheck(), w.heartbeat, w.StepOperations}
}

// Versions are those of the worker's projections.
func (w *Worker) Versions() map[string]string { return w.versions() }
