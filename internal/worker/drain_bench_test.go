package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/store"
)

const oneUpsert = `-- projection: tally
-- tables: tally

-- schema
create table tally (campaign_id text not null, entity_id text not null, total bigint not null, seen_at bigint not null, primary key (campaign_id, entity_id));

-- on: counted
insert into tally (campaign_id, entity_id, total, seen_at) values (:campaign_id, :entity_id, :payload.amount, :occurred_at)
on conflict (campaign_id, entity_id) do update set total = tally.total + excluded.total, seen_at = excluded.seen_at;
`

// countedEvents are events that alternate between campaigns.
func countedEvents(campaigns, each int) (events []event.Event) {
	for i := range each {
		for c := range campaigns {
			events = append(events, event.Event{CampaignID: fmt.Sprintf("c-%05d", c), EventType: "counted", EntityID: fmt.Sprintf("e-%d", i%10), Payload: []byte(`{"amount":1}`)})
		}
	}
	return events
}

// BenchmarkAppendToApplied measures how long a writer waits for its own write: from the call of Append until the projections have the event, with 500
// events a second coming in over 50 campaigns, one by one, and with ten times as many. Give it time: -benchtime 10s.
func BenchmarkAppendToApplied(b *testing.B) {
	for _, perSecond := range []int{500, 5000} {
		b.Run(fmt.Sprintf("%d_per_s", perSecond), func(b *testing.B) { appendToApplied(b, perSecond) })
	}
}

func appendToApplied(b *testing.B, perSecond int) {
	w := enginetest.Open(b, enginetest.Define(b, oneUpsert))
	w.OnWork(w.Worker.Wake)
	w.Start()
	events := countedEvents(50, 1)
	waits, appends := make([]time.Duration, b.N), make([]time.Duration, b.N)
	var callers sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		callers.Go(func() {
			began := time.Now()
			appended, err := w.Append(context.Background(), store.Append{Events: events[i%50 : i%50+1]})
			appends[i] = time.Since(began)
			if err == nil {
				_, err = w.WaitApplied(context.Background(), appended[0].CampaignID, appended[0].Seq)
			}
			if err != nil {
				b.Error(err)
			}
			waits[i] = time.Since(began)
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "events/s")
	for name, times := range map[string][]time.Duration{"append": appends, "applied": waits} {
		slices.Sort(times)
		for _, percentile := range []int{50, 99} {
			b.ReportMetric(times[(len(times)-1)*percentile/100].Seconds()*1000, fmt.Sprintf("%s-p%d-ms", name, percentile))
		}
	}
}
