package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A request that waits in vain must not delay the end of the server.
func TestShutdown_endsWaits(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t), writeProjections(t, historyProjections)...)
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
	must.Equal(t, s.stop(t), 0, "the server ended with exit code", s.stderr)
	err := <-answered
	must.Hold(t, err == nil, "the waiting writer got no answer: %v", err)
}

// Neither the end of a terminal nor that of a log shipper takes the server with it, nor its orderly end.
func TestServe_outlivesItsTerminalAndTheReaderOfItsLog(t *testing.T) {
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
	s.stderr.mu.Lock()
	s.stderr.closed = true
	s.stderr.mu.Unlock()
	for range 20 { // each is logged
		a := do(t, s, http.MethodGet, "/campaigns", nil)
		must.Need(t, a.status == http.StatusOK, "the page is %d %s", a.status, a.body)
	}
	must.Equal(t, s.stop(t), 0, "the server ended with")
}
