package runs

import (
	"context"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/loop"
)

// allowance limits the rate of events.
type allowance struct {
	mu    sync.Mutex
	every time.Duration // per event
	next  time.Time     // when the next event may pass
}

func newAllowance(perSecond int64) *allowance {
	return &allowance{every: time.Second / time.Duration(perSecond)}
}

// reserve returns how long to wait after n events until more may pass.
func (a *allowance) reserve(n int64, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next.Before(now) {
		a.next = now
	}
	a.next = a.next.Add(time.Duration(n) * a.every)
	return a.next.Sub(now)
}

// Runs yield to live applying: while waves are being applied, they rest for restShare times their
// working time, or until no wave is being applied.
const (
	restShare = 24
	restLook  = 20 * time.Millisecond // polling interval while waves are applied
	restLimit = 10 * time.Second
)

// yield waits as long as a run should rest after working for the given time.
func (w *Worker) yield(ctx context.Context, worked time.Duration) error {
	until := time.Now().Add(min(restShare*worked, restLimit))
	for now := time.Now(); w.Applying(now) && now.Before(until); now = time.Now() {
		if err := loop.Pause(ctx, min(restLook, until.Sub(now))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// throttle records a replay's progress, and waits until it may continue: while live applying needs
// the machine, and as the rates of the run and of the process require.
func (r *runner) throttle(ctx context.Context, d *Expected, events int64, worked time.Duration) error {
	r.mu.Lock()
	r.active[d.campaign] = max(r.active[d.campaign], d.Seq)
	r.mu.Unlock()
	if d.replayer.hurry {
		return ctx.Err()
	}
	if err := r.worker.yield(ctx, worked); err != nil {
		return err
	}
	pause := time.Duration(0)
	for _, a := range []*allowance{r.rate, r.worker.rate} {
		if a != nil {
			pause = max(pause, a.reserve(events, time.Now()))
		}
	}
	return loop.Pause(ctx, pause)
}

// throttle is the pace of a replay that belongs to no run.
func (w *Worker) throttle(ctx context.Context, _ *Expected, events int64, worked time.Duration) error {
	if err := w.yield(ctx, worked); err != nil || w.rate == nil {
		return err
	}
	return loop.Pause(ctx, w.rate.reserve(events, time.Now()))
}
