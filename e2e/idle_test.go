package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// An idle server does not write. The rule is about time, so this test lets some pass.
func TestIdle(t *testing.T) {
	t.Parallel()
	soakOnly(t, "it waits for more than a minute; TestRun_writesNothingWhileItIsIdle is about a worker")
	d := newDatabases(t)
	s := start(t, d, writeProjections(t, historyProjections)...)
	for i := range 20 {
		s.post(t, http.StatusCreated, fmt.Sprintf("/api/v1/campaigns/c-%d/events?wait=applied&timeout=30s", i),
			event{EventType: "one.made", Payload: map[string]any{"n": i}})
	}
	eventually(t, 3*patience, "the sample of the next full minute is taken, which holds what was applied", func() (bool, string) {
		last := scalar[int](t, d.journal(), `select coalesce(max(applied_total), 0) from samples`)
		return last == 20, fmt.Sprintf("the last has %d", last)
	})
	const quiet = 15 * time.Second
	since, last := time.Now(), ""
	eventually(t, 2*patience, fmt.Sprintf("the last sign of life is written, and nothing for %s", quiet), func() (bool, string) {
		var now strings.Builder
		for _, path := range []string{d.journal(), d.journal() + "-wal", d.projections(), d.projections() + "-wal"} {
			info := must.Get(os.Stat(path)).Or(t)
			fmt.Fprintf(&now, "%s %d %s, ", info.Name(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
		}
		if now.String() != last {
			since, last = time.Now(), now.String()
		}
		return time.Since(since) >= quiet, last
	})
}
