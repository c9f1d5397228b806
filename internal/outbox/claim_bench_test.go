//go:build unix

package outbox_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// BenchmarkClaim_wave measures Claim alone: a wave of 1,000 rows from a queue of 1,000 due
// campaigns with 10 rows each. Its ns/op is the median of the calls in CPU time of the process,
// since a busy machine would distort their mean and the elapsed time; releasing the wave is not
// included. e2e/benchcompare also compiles this file in older revisions, so it may use only
// what every revision of this package has.
func BenchmarkClaim_wave(b *testing.B) {
	p := dbtest.New(b)
	s, err := store.Open(b.Context(), store.Options{Journal: p.Journal, Projections: p.Projections})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	q := outbox.New(s)
	var events []event.Event
	for i := range 10_000 {
		events = append(events, event.Event{CampaignID: fmt.Sprintf("c-%03d", i%1_000), EventType: "counted", Payload: []byte(`{"amount":1}`)})
	}
	for batch := range slices.Chunk(events, 1_000) {
		if _, err := s.Append(b.Context(), store.Append{Events: batch}); err != nil {
			b.Fatal(err)
		}
	}
	who := outbox.Worker{ID: "bench"}
	var took []time.Duration
	for b.Loop() {
		before := cpuTime(b)
		claims, err := q.Claim(b.Context(), who, outbox.ClaimLimits{Rows: 1_000, Lease: time.Minute})
		took = append(took, cpuTime(b)-before)
		if err != nil || len(claims) != 100 {
			b.Fatalf("claimed %d campaigns, want 100: %v", len(claims), err)
		}
		results := make([]outbox.Result, len(claims))
		for i, c := range claims {
			results[i] = outbox.Result{Claim: c, Applied: c.First - 1}
		}
		if _, err := q.Settle(b.Context(), who, results); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "ns/op")
}

// cpuTime is the CPU time used by this process so far.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
