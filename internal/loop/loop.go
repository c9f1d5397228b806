// Package loop calls steps again and again until a process stops: it is how the
// rooms that work in the background wait for what they do next.
package loop

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// FaultPause is the least time between a step that failed and the next try.
const FaultPause = time.Second

// Step does some work. It reports whether there is more to do at once.
type Step func(context.Context) (more bool, err error)

// Interval says how long to wait until the next step.
type Interval func(context.Context) time.Duration

// Loop is a step that is taken again and again.
type Loop struct {
	Name     string // in the log
	Step     Step
	Interval Interval
	Wake     <-chan struct{} // ends a wait; nil never does
	Logger   *slog.Logger
}

// Run takes the step until ctx ends: at once while it reports more to do, and
// otherwise after the interval or when woken. Faults are logged and tried again.
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
			wait = max(wait, FaultPause)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.Wake:
		case <-timer.C:
		}
	}
}

// Every is an interval with jitter, so that processes started together do not
// work in step.
func Every(d time.Duration) Interval {
	return func(context.Context) time.Duration { return d - d/10 + rand.N(d/5+1) }
}

// UntilNextMinute is an interval that ends shortly after the clock's next full
// minute, so that the samples of an hour are as far apart as the minutes they
// stand for.
func UntilNextMinute(context.Context) time.Duration {
	now := time.Now()
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now) + rand.N(time.Second)
}

// ExceptFirst leaves out the first call of a step that was taken already, or has
// time.
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

// Signal wakes loops. It never blocks, and one that is not heard yet is enough.
type Signal chan struct{}

// NewSignal makes a signal that wakes so many loops at a time.
func NewSignal(loops int) Signal { return make(Signal, loops) }

// Raise wakes a loop, or is what the next one finds that waits.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}
