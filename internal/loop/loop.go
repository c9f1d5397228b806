// Package loop runs the steps of background work repeatedly until a process stops.
package loop

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// FaultPause is the least time between a failed step and the next try, unless a loop says
// otherwise.
const FaultPause = time.Second

// Step does some work. It reports whether there is more to do at once.
type Step func(context.Context) (more bool, err error)

// Interval returns the wait until the next step.
type Interval func(context.Context) time.Duration

// Loop is a step that runs repeatedly.
type Loop struct {
	Name     string // in the log
	Step     Step
	Interval Interval
	Wake     <-chan struct{} // ends a wait; nil never does
	Logger   *slog.Logger
	// FaultPause is the least time between a failed step and the next try; 0 means FaultPause.
	FaultPause time.Duration
}

// Run runs the step until ctx ends: at once while it reports more to do, and otherwise after
// the interval or when woken. Faults are logged and retried.
func (l Loop) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		more, err := l.Step(ctx)
		if err != nil && ctx.Err() == nil {
			l.Logger.Error("worker step failed; retrying", "step", l.Name, "error", err)
		}
		if more && err == nil {
			continue
		}
		wait := l.Interval(ctx)
		if err != nil {
			wait = max(wait, cmp.Or(l.FaultPause, FaultPause))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.Wake:
		case <-timer.C:
		}
	}
}

// Pause waits for some time, or until ctx ends, whose error it returns then.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Every is an interval with jitter, so that processes started together do not run in lockstep.
func Every(d time.Duration) Interval {
	return func(context.Context) time.Duration { return d - d/10 + rand.N(d/5+1) }
}

// UntilNextMinute is an interval that ends shortly after the clock's next full minute, so that
// samples are a minute apart.
func UntilNextMinute(context.Context) time.Duration {
	now := time.Now()
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now) + rand.N(time.Second)
}

// ExceptFirst skips the first call of a step that has been run already or is not urgent.
func ExceptFirst(step Step) Step {
	first := true
	return func(ctx context.Context) (bool, error) {
		if first {
			first = false
			return false, nil
		}
		return step(ctx)
	}
}

// Signal wakes loops. Raising it never blocks, and signals not received yet are merged.
type Signal chan struct{}

// NewSignal creates a signal that can wake this many loops at a time.
func NewSignal(loops int) Signal { return make(Signal, loops) }

// Raise wakes a waiting loop, or the next one that waits.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}
