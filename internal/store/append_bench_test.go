package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

func counted(campaign string) outbox.Event {
	return outbox.Event{CampaignID: campaign, EventType: "counted", EntityID: "e-1", Payload: []byte(`{"amount":1,"note":"a payload of an ordinary size, with some text in it","who":"somebody"}`)}
}

// BenchmarkAppend measures appended events a second, every one durable.
func BenchmarkAppend(b *testing.B) {
	for _, shape := range []struct{ callers, batch int }{{1, 1}, {32, 1}, {1, 100}} {
		b.Run(fmt.Sprintf("callers=%d/batch=%d", shape.callers, shape.batch), func(b *testing.B) {
			s := open(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			var callers sync.WaitGroup
			b.ResetTimer()
			for caller := range shape.callers {
				callers.Go(func() {
					events := make([]outbox.Event, shape.batch)
					for left.Add(-1) >= 0 {
						for i := range events {
							events[i] = counted(fmt.Sprintf("c-%d", caller))
						}
						if _, err := s.Append(context.Background(), store.Append{Events: events}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric(float64(b.N*shape.batch)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
