package worker

import (
	"context"
	"sync"
	"time"
)

// quiet makes sure that nothing else runs in this process while a suspect is tried, so that a
// suspect that kills the process is identified. Each side waits for the other at most for its
// patience. The zero value is ready for use.
type quiet struct {
	mu      sync.Mutex
	waves   int           // running waves
	suspect bool          // a suspect is being tried, or waits for the waves to end
	changed chan struct{} // closed at the next change; nil when there is no waiter
}

// enter begins a wave, after waiting for a suspect that is being tried.
func (q *quiet) enter(ctx context.Context, patience time.Duration) (leave func()) {
	q.await(ctx, patience, func() bool { return !q.suspect })
	q.waves++
	q.mu.Unlock()
	return func() { q.change(func() { q.waves-- }) }
}

// alone begins a suspect, after waiting for the running waves and any other suspect. It is
// false when they take too long.
func (q *quiet) alone(ctx context.Context, patience time.Duration) (leave func(), ok bool) {
	ok = q.await(ctx, patience, func() bool { return !q.suspect })
	if ok {
		q.suspect = true
	}
	q.mu.Unlock()
	if !ok {
		return nil, false
	}
	leave = func() { q.change(func() { q.suspect = false }) }
	ok = q.await(ctx, patience, func() bool { return q.waves == 0 })
	q.mu.Unlock()
	if !ok {
		leave()
	}
	return leave, ok
}

// await waits until free reports true, and returns with q.mu held.
func (q *quiet) await(ctx context.Context, patience time.Duration, free func() bool) bool {
	q.mu.Lock()
	if free() {
		return true
	}
	out := time.NewTimer(patience)
	defer out.Stop()
	for !free() {
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
			q.mu.Lock()
			continue
		case <-out.C:
		case <-ctx.Done():
		}
		q.mu.Lock()
		return free()
	}
	return true
}

func (q *quiet) change(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do()
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}
