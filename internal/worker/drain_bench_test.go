package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

const oneUpsert = `-- projection: tally
-- tables: tally

-- schema
create table tally (campaign_id text not null, entity_id text not null, total bigint not null, seen_at bigint not null, primary key (campaign_id, entity_id));

-- on: counted
insert into tally (campaign_id, entity_id, total, seen_at) values (:campaign_id, :entity_id, :payload.amount, :occurred_at)
on conflict (campaign_id, entity_id) do update set total = tally.total + excluded.total, seen_at = excluded.seen_at;
`

// BenchmarkDrain measures how many events a second the worker applies with a
// projection of one upsert. outboxweb bench puts it beside the bare driver.
func BenchmarkDrain(b *testing.B) {
	for _, shape := range []struct{ campaigns, events int }{{1, 100_000}, {100, 1_000}, {10_000, 10}} {
		b.Run(fmt.Sprintf("%dx%d", shape.campaigns, shape.events), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				dir := b.TempDir()
				definitions := filepath.Join(dir, "definitions")
				os.Mkdir(definitions, 0o700)
				os.WriteFile(filepath.Join(definitions, "tally.sql"), []byte(oneUpsert), 0o600)
				w := openIn(b, dir, []string{definitions}, nil)
				var events []outbox.Event
				for i := range shape.events {
					for c := range shape.campaigns {
						events = append(events, outbox.Event{CampaignID: fmt.Sprintf("c-%05d", c), EventType: "counted", EntityID: fmt.Sprintf("e-%d", i%10), Payload: []byte(`{"amount":1}`)})
					}
				}
				w.mustAppend(b, events...)
				b.StartTimer()
				begin := time.Now()
				ctx, stop := contextUntilDrained(b, w)
				if err := w.worker.Run(ctx); err != nil {
					b.Fatal(err)
				}
				stop()
				b.ReportMetric(float64(shape.campaigns*shape.events)/time.Since(begin).Seconds(), "events/s")
			}
		})
	}
}
