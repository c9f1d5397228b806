package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func counted(campaign string) outbox.Event {
	return outbox.Event{CampaignID: campaign, EventType: "counted", EntityID: "e-1", Payload: []byte(`{"amount":1,"note":"a payload of an ordinary size, with some text in it","who":"somebody"}`)}
}

// BenchmarkAppend measures appended events per second, each durable, without tags and with two
// tags each.
func BenchmarkAppend(b *testing.B) {
	for _, shape := range []struct{ callers, batch, tags int }{{1, 1, 0}, {32, 1, 0}, {1, 100, 0}, {32, 1, 2}, {1, 100, 2}} {
		b.Run(fmt.Sprintf("callers=%d/batch=%d/tags=%d", shape.callers, shape.batch, shape.tags), func(b *testing.B) {
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
							if shape.tags > 0 {
								events[i].Tags = fmt.Appendf(nil, `{"wallet_id":"w-%d","seat":"row 7, seat %d"}`, i%50, i)
							}
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

// BenchmarkAppend_underACondition measures appends with a condition that would refuse them if
// their seat were taken. None is.
func BenchmarkAppend_underACondition(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := open(b)
			var seats atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for caller := range callers {
				wg.Go(func() {
					for n := seats.Add(1); n <= int64(b.N); n = seats.Add(1) {
						seat := fmt.Sprint(n)
						e := storetest.Tagged(fmt.Sprintf("c-%d", caller), "seat.taken", "seat", seat)
						if _, err := s.AppendUnless(e, 0, storetest.Item("seat.taken", "seat", seat)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
