package main

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestReport_saysWhatIsKnownOfTheWorker(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	seen := now.Add(-time.Minute)
	for process, c := range map[outbox.ProcessState]struct {
		running bool
		want    string
	}{
		outbox.ProcessAlive:   {true, "running, last seen 1 min ago"},
		outbox.ProcessUnknown: {true, "last seen 1 min ago on another host: idle, or gone"},
		outbox.ProcessGone:    {false, "none is running, last seen at work 1 min ago"},
	} {
		s := outbox.Summary{AsOf: now, Worker: outbox.WorkerSummary{Running: c.running, LastSeen: &seen},
			Instances: []outbox.InstanceState{{ID: "w", LastSeen: seen, Process: process}}}
		if got := workerLine(s); !strings.HasPrefix(got, c.want) {
			t.Errorf("process %d: %q, want %q", process, got, c.want)
		}
	}
}
