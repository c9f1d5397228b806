package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func (s *server) awaitReady(t *testing.T, status int, fragment string) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("readiness is %d with %q", status, fragment), func() (bool, string) {
		a := do(t, s, http.MethodGet, "/readyz", nil)
		return a.status == status && strings.Contains(string(a.body), fragment), fmt.Sprintf("%d %s", a.status, a.body)
	})
}

// fill leaves no page free on the disk of a directory; removing the returned file frees it. One
// large write can fail with some pages left.
func fill(t *testing.T, dir string) (ballast string) {
	t.Helper()
	f := must.Get(os.Create(filepath.Join(dir, "ballast"))).Or(t)
	defer f.Close()
	for range 4 << 10 {
		if _, err := f.Write(make([]byte, 4<<10)); err != nil {
			return f.Name()
		}
	}
	t.Fatal("the disk is not full")
	return ""
}

// A server that was killed reads on a full disk. One that was stopped has to create files before
// SQLite opens a database, and waits. Either goes on once there is room.
func TestServe_startedOnAFullDiskGoesOnOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped ", stopped), func(t *testing.T) {
			t.Parallel()
			d := databases{dir: tinyDisk(t)}
			s := start(t, d)
			appendTo(t, s, "", "table", seats("ana"))
			s.awaitSettled(t)
			fault := "the disk of the journal database is full"
			if stopped {
				s.stop(t)
				fault = "their disk is full"
			} else {
				s.kill()
			}
			ballast, url := fill(t, d.dir), s.url
			s = launch(t, d, "--listen", strings.TrimPrefix(url, "http://"))
			eventually(t, patience, "readiness names the fault", func() (bool, string) {
				a, err := (&server{url: url, client: s.client}).do(t.Context(), http.MethodGet, "/readyz", nil)
				return err == nil && a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), fault), fmt.Sprint(err, a.status, string(a.body))
			})
			if !stopped {
				must.Equal(t, do(t, s, http.MethodGet, "/campaigns/table", nil).status, http.StatusOK, "a page on a full disk")
				must.Equal(t, do(t, s, http.MethodPost, "/api/v1/campaigns/table/events", taken("seat-8", "")).status, http.StatusInsufficientStorage, "an append on a full disk")
			}
			must.OK(t, os.Remove(ballast))
			s.awaitListening(t)
			eventually(t, patience, "an append is applied", func() (bool, string) {
				a := do(t, s, http.MethodPost, "/api/v1/campaigns/table/events?wait=applied&timeout=5s", taken("seat-8", ""))
				return a.status == http.StatusCreated || a.status == http.StatusOK, fmt.Sprintf("%d %s", a.status, a.body)
			})
			s.awaitReady(t, http.StatusOK, `"ready":true`)
		})
	}
}

// A file size limit (ulimit -f, LimitFSIZE=) acts like a full disk, and does not end the process.
func TestServe_whoseFilesMayNotGrowRefusesAppends(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	lift := limitFiles(t, s.pid(), 1<<20)
	text := strings.Repeat("x", 50_000)
	eventually(t, patience, "an append is refused", func() (bool, string) {
		a := do(t, s, http.MethodPost, "/api/v1/campaigns/table/events", map[string]any{"event_type": "noted", "payload": map[string]string{"text": text}})
		return a.status == http.StatusInsufficientStorage, fmt.Sprintf("%d %s", a.status, a.body)
	})
	const fault = `outboxweb_database_fault{database="journal",kind="full"}`
	s.awaitReady(t, http.StatusServiceUnavailable, "the disk of the journal database is full")
	is := func(want float64) {
		t.Helper()
		eventually(t, patience, fmt.Sprintf("%s is %v", fault, want), func() (bool, string) { // a scrape is cached for a moment
			n := s.metric(t, fault)
			return n == want, fmt.Sprint(n)
		})
	}
	is(1)
	lift()
	appendTo(t, s, "", "table", seats("ana"))
	s.awaitReady(t, http.StatusOK, `"ready":true`)
	is(0)
}
