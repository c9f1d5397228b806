package worker_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"outboxweb/internal/outbox"
	"outboxweb/internal/worker"
)

// A pair that waited for somebody else's read takes that for its own, but not
// when it came to nothing.
func TestFeed_aReadThatFailedIsNobodysAnswer(t *testing.T) {
	t.Parallel()
	const waiting = 8
	for range 50 {
		var reads atomic.Int64
		begun, release := make(chan struct{}), make(chan struct{})
		feed := worker.NewFeed(func(context.Context, int64, int) ([]outbox.Event, error) {
			switch reads.Add(1) {
			case 1: // begins before the event is there
				close(begun)
				<-release
				return nil, nil
			case 2:
				return nil, errors.New("cut off")
			default:
				return []outbox.Event{{Position: 1}}, nil
			}
		})
		var callers sync.WaitGroup
		callers.Go(func() { _, _, _, _ = feed.After(t.Context(), 0) })
		<-begun
		var entered atomic.Int64
		for range waiting {
			callers.Go(func() {
				entered.Add(1)
				events, _, _, err := feed.After(t.Context(), 0)
				if err == nil && len(events) == 0 {
					t.Error("an event was there before the call, and it was told that there is none")
				}
			})
		}
		for entered.Load() < waiting {
			runtime.Gosched()
		}
		close(release)
		callers.Wait()
	}
}
