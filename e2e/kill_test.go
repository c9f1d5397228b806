package e2e

import (
	"flag"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	kills    = flag.Int("kills", 0, "how often TestKill9 kills the server; 0 is 20, and 5 in a short run")
	killSeed = flag.Uint64("kill-seed", 0, "the seed of the moments at which TestKill9 kills; 0 takes a new one")
)

// TestKill9 kills a server under load again and again. Everything acknowledged must be there and
// applied exactly once, and the read models must equal those of an undisturbed server.
//
// Leases are short, so that the next server takes over at once what the killed one left. An event
// that was in progress in many kills in a row counts as a suspect; with so many attempts allowed it
// is never given up.
func TestKill9(t *testing.T) {
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kill-seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--lease", "150ms", "--poll-interval", "50ms", "--batch-size", "200",
		"--max-attempts", "1000", "--retry-base", "10ms", "--retry-max", "50ms"}, projections...)
	l := startLoad(t, 8, 12)
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)))
	}
	rounds := amount(kills, 5, 20)
	for range rounds {
		s := launch(t, d, serve...)
		if random.IntN(5) == 0 { // while it starts
			wait(between(0, 150*time.Millisecond))
		} else {
			s.awaitListening(t)
			l.point(s)
			wait(between(50*time.Millisecond, 400*time.Millisecond))
		}
		s.kill()
	}
	s := start(t, d, serve...)
	l.point(s)
	l.awaitProgress(t, 100)
	l.finish(t)
	if sum := s.awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
		t.Errorf("settled at %+v", sum)
	}
	journal := export(t, s, l.campaigns)
	if code := s.stop(t); code != 0 {
		t.Errorf("the last server ended with exit code %d", code)
	}
	t.Logf("%d kills, %d events, of which %d were acknowledged only when sent again", rounds, l.progress(), l.retold)
	l.verifyJournal(t, d)
	verifyApplied(t, d)
	verifyNothingHeld(t, d)
	checkClean(t, d, projections...)
	compareUndisturbed(t, d, l.campaigns, journal, projections)
}

// compareUndisturbed fails the test unless the digests of campaigns equal those of an undisturbed
// server on SQLite with the same journal.
func compareUndisturbed(t *testing.T, d databases, campaigns []string, journal io.Reader, projections []string) {
	t.Helper()
	undisturbed := newDatabases(t)
	mustCommand(t, undisturbed, journal, append([]string{"append", "-"}, projections...)...)
	calm := start(t, undisturbed, projections...)
	calm.awaitSettled(t)
	if code := calm.stop(t); code != 0 {
		t.Errorf("the undisturbed server ended with exit code %d", code)
	}
	want := digests(t, undisturbed, campaigns, projections)
	if diff := cmp.Diff(want, digests(t, d, campaigns, projections)); diff != "" || !strings.Contains(want, "full") {
		t.Errorf("the digests are not those of an undisturbed run (-undisturbed +disturbed):\n%s", diff)
	}
}

// wait lets time pass: the moment of a kill is what varies, and no condition could replace it.
func wait(d time.Duration) { <-time.After(d) }
