package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shutdownPatience is how long a server under load may take from SIGTERM to its end. Anything it
// cuts off shows in its exit code.
const shutdownPatience = time.Minute

func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"outbox_apply_only", "inline_apply_only"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			shutDownUnderLoad(t, mode)
		})
	}
}

func shutDownUnderLoad(t *testing.T, mode string) {
	d := newDatabases(t)
	flags := append([]string{"--mode", mode}, writeProjections(t, historyProjections)...)
	serve := append([]string{"--log-level", "warn", "--lease", "1h"}, flags...) // a leftover lease would never expire
	l := startLoad(t, 8, 12)
	for range 3 {
		s := start(t, d, serve...)
		l.point(s)
		l.awaitProgress(t, 300)
		endsInTime(t, s)
		l.verifyJournal(t, d)
		verifyNothingHeld(t, d)
		verifyOrder(t, d)
	}

	s := start(t, d, serve...)
	l.point(s)
	l.finish(t)
	s.awaitSummary(t, "everything is applied", func(sum summary) bool { return sum.settled() && sum.Lag.Events == 0 })
	if code := s.stop(t); code != 0 {
		t.Errorf("the last server ended with exit code %d", code)
	}
	if log := s.stderr.String(); log != "" {
		t.Errorf("the start after a clean end had something to repair:\n%s", log)
	}
	l.verifyJournal(t, d)
	verifyApplied(t, d)
	checkClean(t, d, flags...)
}

// endsInTime asks a server to end and fails the test unless it soon does, without an error.
func endsInTime(t *testing.T, s *server) {
	t.Helper()
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(shutdownPatience):
		t.Fatalf("the server does not end within %s of SIGTERM", shutdownPatience)
	}
	if s.code != 0 {
		t.Errorf("the server ended with exit code %d after %s\n%s", s.code, time.Since(began), s.stderr)
	}
}

// A request that waits in vain must not delay the end of the server.
func TestShutdown_endsWaits(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	s := start(t, d, writeProjections(t, historyProjections)...)
	const path = "/api/v1/campaigns/c-1"
	one := event{EventType: "one.made", Payload: map[string]any{"n": 1}}
	s.post(t, http.StatusCreated, path+"/events", one)
	s.post(t, http.StatusOK, path+"/pause", map[string]any{"reason": "inspection"})
	answered := make(chan error, 1)
	go func() {
		_, err := s.do(t.Context(), http.MethodPost, path+"/events?wait=applied&timeout=25s", one)
		answered <- err
	}()
	eventually(t, patience, "the event that is waited for is appended", func() (bool, string) {
		c := campaignState(t, s, "c-1")
		return c.HighWaterSeq == 2, c.Why
	})
	endsInTime(t, s)
	if err := <-answered; err != nil {
		t.Errorf("the waiting writer got no answer: %v", err)
	}
}

func TestServe_ignoresAHangup(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	s.signal(t, syscall.SIGHUP)
	eventually(t, patience, "the log says that SIGHUP is ignored, or the server ends", func() (bool, string) {
		select {
		case <-s.exited:
			return true, ""
		default:
			return strings.Contains(s.stderr.String(), "SIGHUP is ignored"), s.stderr.String()
		}
	})
	if a := do(t, s, http.MethodGet, "/healthz", nil); a.status != http.StatusOK {
		t.Errorf("healthz is %d %s", a.status, a.body)
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d\n%s", code, s.stderr)
	}
}

// A log shipper that ends takes neither the server with it nor its orderly end.
func TestServe_outlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	s.stderr.mu.Lock()
	s.stderr.closed = true
	s.stderr.mu.Unlock()
	for range 20 { // each is logged
		if a := do(t, s, http.MethodGet, "/campaigns", nil); a.status != http.StatusOK {
			t.Fatalf("the page is %d %s", a.status, a.body)
		}
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}
