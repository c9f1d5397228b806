package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server suspended in the middle of its deliveries loses its subscriptions to another one. When
// it resumes, it sends nothing more of its batch.
func TestPublishersStoppedServer(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	hooks := newHooks(t, 1)
	hooks.calm()
	const lease = 3 * time.Second
	config := d.config(t, fmt.Sprintf(`
lease: %s
poll_interval: 50ms
topics:
  everything:
    match: {event_types: ["*"]}
    publishers:
      hook: {url: "%s/structured", allow_private: true, poll_interval: 20ms}
`, lease, hooks.server.URL))
	const events = 2000
	var journal strings.Builder
	for i := range events {
		fmt.Fprintf(&journal, `{"campaign_id":"c-%d","event_type":"made","payload":{}}`+"\n", i%7)
	}
	mustCommand(t, d, strings.NewReader(journal.String()), "append", "-")
	config = append(config, "--no-worker") // which would hold the journal's lock now and then
	first := start(t, d, config...)
	eventually(t, patience, "the first server delivers", func() (bool, string) {
		n := len(hooks.took("/structured"))
		return n > 5, fmt.Sprint(n, " events came")
	})
	for freeze(t, first); locked(t, d.journal()); freeze(t, first) { // no other server could take over while it has the lock
		first.signal(t, syscall.SIGCONT)
	}
	before := len(hooks.took("/structured"))
	if before == events {
		t.Fatal("the first server was done before it was stopped")
	}
	began := time.Now()
	second := start(t, d, config...)
	eventually(t, patience, "the second server goes on", func() (bool, string) {
		n := len(hooks.took("/structured"))
		return n > before+10, fmt.Sprint(n, " events came")
	})
	t.Logf("taken over %s after a server was there to do it; the lease is %s", time.Since(began).Round(time.Millisecond), lease)
	first.signal(t, syscall.SIGCONT)
	all := positions(t, d)
	eventually(t, patience, "everything is delivered", func() (bool, string) {
		got := hooks.took("/structured")
		return len(got) > 0 && got[len(got)-1] == all[len(all)-1], fmt.Sprint(len(got), " events came")
	})
	for _, s := range []*server{first, second} {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	got := hooks.took("/structured")
	if resent := mustBeJournal(t, "hook", got, all); resent > 100 {
		t.Errorf("%d events came again, more than a batch", resent)
	}
	if !slices.Equal(all, slices.Compact(slices.Sorted(slices.Values(got)))) {
		t.Errorf("%d events came, %d were appended", len(got), len(all))
	}
}
