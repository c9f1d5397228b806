package search_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/store"
)

// BenchmarkSearch measures searches of a journal of 100,000 events, and fails beyond its limits: what
// an index finds is there at once, and what is looked through ends in time.
func BenchmarkSearch(b *testing.B) {
	const events = 100_000
	f := open(b)
	began := f.Clock.Now()
	for n := 0; n < events; n += 1000 {
		var batch []outbox.Event
		for i := n; i < n+1000; i++ {
			batch = append(batch, outbox.Event{CampaignID: fmt.Sprint("c-", n/1000), EventType: fmt.Sprint("type-", i%20), EventID: fmt.Sprint("ev-", i), EntityType: "order", EntityID: fmt.Sprint(i % 5000),
				Payload: fmt.Appendf(nil, `{"order":%d,"password":"hunter2","note":"%0200d"}`, i, i)})
		}
		if _, err := f.Append(f.Ctx, store.Append{Events: batch}); err != nil {
			b.Fatal(err)
		}
		f.Clock.Advance(time.Minute)
	}
	shown := redact.Builtin()
	search := func(filter outbox.EventFilter) func() (int, error) {
		filter.Shown = shown
		return func() (int, error) {
			page, err := f.Search.Events(f.Ctx, filter)
			return len(page.Items), err
		}
	}
	for _, one := range []struct {
		name  string
		limit time.Duration
		run   func() (int, error)
	}{
		{"event id", 20 * time.Millisecond, search(outbox.EventFilter{EventID: "ev-50000"})},
		{"entity", 20 * time.Millisecond, search(outbox.EventFilter{EntityType: "order", EntityID: "17"})},
		{"type in a range", 50 * time.Millisecond, search(outbox.EventFilter{EventType: "type-3", Since: began.Add(40 * time.Minute), Until: began.Add(50 * time.Minute)})},
		{"text, one window", time.Second, search(outbox.EventFilter{Q: "nowhere"})},
		{"suggestion", 50 * time.Millisecond, func() (int, error) {
			found, err := f.Search.Find(f.Ctx, outbox.ParseAsked("order 17", f.Clock.Now()), shown)
			return len(found), err
		}},
	} {
		b.Run(one.name, func(b *testing.B) {
			found := 0
			for b.Loop() {
				n, err := one.run()
				if err != nil {
					b.Fatal(err)
				}
				found = n
			}
			b.ReportMetric(float64(found), "found")
			if took := b.Elapsed() / time.Duration(b.N); took > one.limit {
				b.Errorf("%s takes %s, want %s at most", one.name, took, one.limit)
			}
		})
	}
}
