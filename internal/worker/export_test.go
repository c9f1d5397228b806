package worker

import (
	"context"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// The tests run the steps of a wave one by one, to stop between them.

// Counted is the worker's counters since its creation.
func (w *Worker) Counted() outbox.Settled {
	return outbox.Settled{Applied: w.applied.Load(), Failed: w.failed.Load(), Fenced: w.fenced.Load()}
}

// TimedSteps are the periodic steps of Run.
func (w *Worker) TimedSteps() []func(context.Context) (bool, error) {
	poll := w.Pass
	if w.Mode == campaign.ModeShadow {
		poll = w.Rehearse
	}
	return []func(context.Context) (bool, error){poll, w.reconcile, w.selfCheck(), w.heartbeat}
}

// Hurry shortens the waits of Run that are not part of a test's rule.
func (w *Worker) Hurry() {
	w.faultPause, w.selfCheckEvery, w.heartbeatEvery = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
}

// Limit limits the time that events of a type may take, and leaves others the store's limit.
func (w *Worker) Limit(eventType string, limit time.Duration) {
	w.eventLimit = func(e *event.Event) time.Duration {
		if e.EventType == eventType {
			return limit
		}
		return w.Store.EventTimeout()
	}
}

// Trouble is the reason why the worker does not apply.
func (w *Worker) Trouble() (text string, stalled bool) { return w.troubles.sentence() }

// Fail notes a pass that failed, and Failing whether none has succeeded since.
func (w *Worker) Fail(err error) { w.troubles.record(err) }
func (w *Worker) Failing() bool  { return !w.troubles.failing.IsZero() }

// Measure says how many waves a measured one stands for.
func (w *Worker) Measure(times int) { w.measures = func(int) int { return times } }

// OnEvent calls a function before each event is applied.
func (w *Worker) OnEvent(call func(eventType string)) {
	limit := w.eventLimit
	w.eventLimit = func(e *event.Event) time.Duration {
		call(e.EventType)
		return limit(e)
	}
}

// Beat arrives, if it has not, and writes a heartbeat.
func (w *Worker) Beat(ctx context.Context) error {
	if w.beat.state.StartedAt.IsZero() {
		if _, err := w.arrive(ctx); err != nil {
			return err
		}
	}
	_, err := w.heartbeat(ctx)
	return err
}
