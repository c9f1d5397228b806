package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// An idle server uses neither disk nor CPU. The rule is about time, so this test lets some pass.
func TestIdle(t *testing.T) {
	t.Parallel()
	fullOnly(t, "it takes more than a minute of waiting; TestRun_writesNothingWhileItIsIdle is about a worker")
	if _, err := os.Stat("/proc/self/io"); err != nil {
		t.Skipf("this system does not say what a process writes: %v", err)
	}
	d := newDatabases(t)
	s := start(t, d, writeProjections(t, historyProjections)...)
	for i := range 20 {
		s.post(t, http.StatusCreated, fmt.Sprintf("/api/v1/campaigns/c-%d/events?wait=applied&timeout=30s", i),
			event{EventType: "one.made", Payload: map[string]any{"n": i}})
	}
	s.awaitSettled(t)

	eventually(t, 3*patience, "the sample of the next full minute is taken, which holds what was applied", func() (bool, string) {
		last := scalar[int](t, d.journal(), `select coalesce(max(applied_total), 0) from samples`)
		return last == 20, fmt.Sprintf("the last has %d", last)
	})
	const quiet = 5 * time.Second
	since, last := time.Now(), disk(t, d, s)
	eventually(t, 2*patience, fmt.Sprintf("the last sign of life is written and nothing for %s after it", quiet), func() (bool, string) {
		if now := disk(t, d, s); now != last {
			since, last = time.Now(), now
		}
		return time.Since(since) >= quiet, fmt.Sprintf("nothing for %s", time.Since(since))
	})
	began, ticks := time.Now(), cpuTicks(t, s)
	wait(10 * time.Second)
	used, observed := cpuTicks(t, s)-ticks, time.Since(began)
	if now := disk(t, d, s); now != last {
		t.Errorf("an idle server wrote:\nbefore %s\nafter  %s", last, now)
	}
	if limit := int64(observed/time.Second) * ticksPerSecond / 100; used > limit {
		t.Errorf("an idle server used %d ticks of processor time in %s, more than %d, 1 %% of a core", used, observed, limit)
	}
}

// disk describes everything that a write would change: the files, and what the
// kernel counts.
func disk(t *testing.T, d databases, s *server) string {
	t.Helper()
	var text strings.Builder
	for _, path := range []string{d.journal(), d.journal() + "-wal", d.projections(), d.projections() + "-wal"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s %d %s, ", info.Name(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
	}
	counters, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(counters)) {
		if strings.HasPrefix(line, "write_bytes:") {
			text.WriteString(strings.TrimSpace(line))
		}
	}
	return text.String()
}

// ticksPerSecond is the unit of processor times in /proc on Linux.
const ticksPerSecond = 100

// cpuTicks is the processor time a process has used so far.
func cpuTicks(t *testing.T, s *server) int64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(stat, []byte(") ")) // the name in brackets may hold anything
	fields := strings.Fields(string(after))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return user + system
}
