package worker

import (
	"context"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
)

// starting is the first reconcile of a process, which goes through all campaigns beside the waves. Those do not
// need it: a wave compares the watermarks of its campaigns with the journal itself, and repairs what it lacks.
type starting struct {
	ended chan struct{} // closed once all campaigns are reconciled

	paged, told time.Time // when the last page ended, and when it was last told of
	seen        int       // campaigns so far
}

// progressInterval is how often the log tells of a first reconcile that has not ended.
const progressInterval = 10 * time.Second

// atLast runs a step that a process begins with. Errors are logged and retried until ctx ends: a full disk may
// have space tomorrow. Meanwhile probes report that nothing is applied, unless waves are.
func (w *Worker) atLast(ctx context.Context, name string, step func(context.Context) (bool, error)) {
	for ctx.Err() == nil {
		_, err := step(ctx)
		if err == nil || errors.Is(err, event.ErrDamaged) { // whatever is readable can be applied
			return
		}
		if ctx.Err() == nil {
			w.Logger.Error("worker step failed; retrying", "step", name, "error", err)
		}
		w.troubles.record(err)
		w.reportStall(w.troubled())
		_ = loop.Pause(ctx, w.faultPause) // the loop ends with ctx
	}
}

// once runs work when all campaigns are reconciled.
func (s *starting) once(ctx context.Context, work func(context.Context)) {
	select {
	case <-ctx.Done():
	case <-s.ended:
		work(ctx)
	}
}

// reconcileFirst is the first reconcile.
func (w *Worker) reconcileFirst(ctx context.Context, s *starting) (bool, error) {
	s.paged, s.told, s.seen = time.Now(), time.Now(), 0
	_, err := w.reconcileBeside(ctx, func(campaigns int) { w.page(ctx, s, campaigns) })
	w.troubles.waits(err)
	if err == nil {
		close(s.ended)
	}
	return false, err
}

// page is called after each page of campaigns. While waves run it leaves them four fifths of the time.
func (w *Worker) page(ctx context.Context, s *starting, campaigns int) {
	s.seen += campaigns
	now := time.Now()
	if now.Sub(s.told) >= progressInterval {
		s.told = now
		w.Logger.Info("reconciling all campaigns, beside applying", "campaigns", s.seen)
	}
	if w.Applying(now) {
		_ = loop.Pause(ctx, 4*now.Sub(s.paged)) // the next page sees that ctx ended
	}
	s.paged = time.Now()
}
