package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	awaitEqual(t, "the event that is waited for is appended", 2, func() int64 { return campaignState(t, s, "c-1").HighWaterSeq })
	must.Equal(t, s.stop(t), 0, "the server ended with exit code", s.stderr)
	err := <-answered
	must.Hold(t, err == nil, "the waiting writer got no answer: %v", err)
}

// Neither the end of a terminal nor that of a log shipper takes the server with it, nor its orderly end.
func TestServe_outlivesItsTerminalAndTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	s.signal(t, syscall.SIGHUP)
	eventually(t, "the log says that SIGHUP is ignored, or the server ends", func() (bool, string) {
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

func (s *server) awaitReady(t *testing.T, status int, fragment string) {
	s.awaitAnswer(t, http.MethodGet, "/readyz", nil, status, fragment)
}

// fill leaves no page free on the disk of a directory; removing the returned file frees it. One
// large write can fail with some pages left.
func fill(t *testing.T, dir string) (ballast string) {
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
			applied(t, s, "table", seats("ana"))
			fault := "the disk of the journal database is full"
			if stopped {
				s.stop(t)
				fault = "their disk is full"
			} else {
				s.kill()
			}
			ballast, url := fill(t, d.dir), s.url
			s = launch(t, d, "--listen", strings.TrimPrefix(url, "http://"))
			eventually(t, "readiness names the fault", func() (bool, string) {
				a, err := (&server{url: url, client: s.client}).do(t.Context(), http.MethodGet, "/readyz", nil)
				return err == nil && a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), fault), fmt.Sprint(err, a.status, string(a.body))
			})
			if !stopped {
				s.awaitListening(t)
				must.Equal(t, do(t, s, http.MethodGet, "/campaigns/table", nil).status, http.StatusOK, "a page on a full disk")
				must.Equal(t, do(t, s, http.MethodPost, "/api/v1/campaigns/table/events", taken("seat-8", "")).status, http.StatusInsufficientStorage, "an append on a full disk")
			}
			must.OK(t, os.Remove(ballast))
			s.awaitListening(t)
			s.awaitAnswer(t, http.MethodPost, "/api/v1/campaigns/table/events?wait=applied&timeout=5s", taken("seat-8", ""), http.StatusCreated, "")
			s.awaitReady(t, http.StatusOK, `"ready":true`)
		})
	}
}

// A file size limit (ulimit -f, LimitFSIZE=) acts like a full disk, and does not end the process.
func TestServe_whoseFilesMayNotGrowRefusesAppends(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	lift := limitFiles(t, s.pid(), 1<<20)
	s.awaitAnswer(t, http.MethodPost, "/api/v1/campaigns/table/events", map[string]any{"event_type": "noted", "payload": map[string]string{"text": strings.Repeat("x", 50_000)}}, http.StatusInsufficientStorage, "")
	const fault = `outboxweb_database_fault{database="journal",kind="full"}`
	s.awaitReady(t, http.StatusServiceUnavailable, "the disk of the journal database is full")
	is := func(want float64) {
		awaitEqual(t, fault, want, func() float64 { return s.metric(t, fault) }) // a scrape is cached for a moment
	}
	is(1)
	lift()
	appendTo(t, s, "", "table", seats("ana"))
	s.awaitReady(t, http.StatusOK, `"ready":true`)
	is(0)
}

const blobs = `-- projection: blobs
-- tables: blobs

-- schema
create table blobs (campaign_id text primary key, bytes bigint not null);

-- on: noted
insert into blobs (campaign_id, bytes) values (:campaign_id, 1) on conflict (campaign_id) do update set bytes = blobs.bytes + 1;

-- on: huge
update blobs set bytes = length(randomblob(900000000)) where campaign_id = :campaign_id;
`

// An event that needs more memory than available fails alone, and finally is dead; the process
// survives, and others go on.
func TestSQLiteServe_anEventThatNeedsTooMuchMemoryFailsAlone(t *testing.T) {
	t.Parallel()
	d := databases{dir: t.TempDir()}
	s := start(t, d, append([]string{"--max-attempts", "2", "--retry-base", "10ms"}, writeProjections(t, map[string]string{"blobs.sql": blobs})...)...)
	limitMemory(t, s.pid(), 500<<20)
	for _, c := range []struct{ campaign, eventType string }{{"a", "noted"}, {"culprit", "noted"}, {"culprit", "huge"}, {"culprit", "noted"}, {"z", "noted"}} {
		s.post(t, 201, "/api/v1/campaigns/"+c.campaign+"/events", event{EventType: c.eventType, Payload: map[string]any{}})
	}
	eventually(t, "the event is dead", func() (bool, string) {
		c := campaignState(t, s, "culprit")
		return c.AppliedSeq == 1 && strings.Contains(c.Why, "Event 2 has been dead"), c.Why
	})
	for _, id := range []string{"a", "z"} {
		s.post(t, 201, "/api/v1/campaigns/"+id+"/events", event{EventType: "noted", Payload: map[string]any{}})
		awaitEqual(t, "campaign "+id+" goes on", 2, func() int64 { return campaignState(t, s, id).AppliedSeq })
	}
}
