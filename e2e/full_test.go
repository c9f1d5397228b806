package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// awaitReady waits until readiness has a status and an answer with a fragment.
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
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 4 << 10 {
		if _, err = f.Write(make([]byte, 4<<10)); err != nil {
			return f.Name()
		}
	}
	t.Fatal("the disk is not full")
	return ""
}

// After a clean shutdown SQLite has to create files before it can open a database.
func TestServe_startedOnAFullDiskOpensItsDatabasesOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	d := databases{dir: tinyDisk(t)}
	s := start(t, d)
	appendTo(t, s, "", "table", seats("ana"))
	s.stop(t)
	ballast := fill(t, d.dir)
	before := s.url
	s = launch(t, d, "--listen", strings.TrimPrefix(before, "http://"))
	eventually(t, patience, "the log says that the disk is full", func() (bool, string) {
		text := s.stderr.String()
		return strings.Contains(text, "full disk; retrying"), text
	})
	answer, err := s.client.Get(before + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "their disk is full") {
		t.Errorf("it answers %d %s meanwhile", answer.StatusCode, body)
	}
	answer.Body.Close()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.awaitListening(t)
	s.awaitReady(t, http.StatusOK, `"ready":true`)
	s.awaitSettled(t)
}

func TestServe_startedOnAFullDiskWaitsForRoom(t *testing.T) {
	t.Parallel()
	d := databases{dir: tinyDisk(t)}
	s := start(t, d)
	appendTo(t, s, "", "table", seats("ana"))
	s.awaitSettled(t)
	s.kill()
	ballast := fill(t, d.dir)

	s = start(t, d)
	s.awaitReady(t, http.StatusServiceUnavailable, "the disk of the journal database is full")
	if a := do(t, s, http.MethodGet, "/campaigns/table", nil); a.status != http.StatusOK {
		t.Errorf("a page on a full disk is %d %s", a.status, a.body)
	}
	if a := do(t, s, http.MethodPost, "/api/v1/campaigns/table/events", taken("seat-8", "")); a.status != http.StatusInsufficientStorage {
		t.Errorf("an append on a full disk is %d %s, want 507", a.status, a.body)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "an append is applied", func() (bool, string) {
		a := do(t, s, http.MethodPost, "/api/v1/campaigns/table/events?wait=applied&timeout=5s", taken("seat-8", ""))
		return a.status == http.StatusCreated || a.status == http.StatusOK, fmt.Sprintf("%d %s", a.status, a.body)
	})
	s.awaitReady(t, http.StatusOK, `"ready":true`)
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d\n%s", code, s.stderr)
	}
}

// A file size limit (ulimit -f, LimitFSIZE=) acts like a full disk, and does not end the process.
func TestServe_whoseFilesMayNotGrowRefusesAppends(t *testing.T) {
	t.Parallel()
	s := start(t, databases{dir: t.TempDir()})
	lift := limitFiles(t, s.pid(), 1<<20)
	text := strings.Repeat("x", 50_000)
	eventually(t, patience, "an append is refused", func() (bool, string) {
		a := do(t, s, http.MethodPost, "/api/v1/campaigns/table/events", map[string]any{"event_type": "noted", "payload": map[string]string{"text": text}})
		return a.status == http.StatusInsufficientStorage, fmt.Sprintf("%d %s", a.status, a.body)
	})
	s.awaitReady(t, http.StatusServiceUnavailable, "the disk of the journal database is full")
	overview := func(says bool, at, text string) {
		t.Helper()
		eventually(t, patience, fmt.Sprintf("%s says %q: %v", at, text, says), func() (bool, string) {
			a := do(t, s, http.MethodGet, at, nil)
			return a.status == http.StatusOK && strings.Contains(string(a.body), text) == says, fmt.Sprintf("%d %s", a.status, a.body)
		})
	}
	overview(true, "/", "The disk of the journal database is full:")
	overview(true, "/api/v1/summary", `"database_faults":[{"database":"journal","kind":"full","level":"bad","says":"`)
	overview(true, "/metrics", `outboxweb_database_fault{database="journal",kind="full"} 1`)
	lift()
	appendTo(t, s, "", "table", seats("ana"))
	s.awaitReady(t, http.StatusOK, `"ready":true`)
	overview(false, "/", "has been full for")
	overview(true, "/api/v1/summary", `"database_faults":[]`)
	overview(true, "/metrics", `outboxweb_database_fault{database="journal",kind="full"} 0`)
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d\n%s", code, s.stderr)
	}
}
