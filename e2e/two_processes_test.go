package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"syscall"
	"testing"

	"modernc.org/sqlite"
)

// slowProjection spends time on an event as the event requests: it counts to payload.spin.
const slowProjection = `
-- projection: slow
-- tables: slow

-- schema
create table slow (
  campaign_id text not null,
  seq bigint not null,
  counted bigint not null,
  primary key (campaign_id, seq)
);

-- on: *
insert into slow (campaign_id, seq, counted)
select :campaign_id, :seq, count(*)
from (
  with recursive number (i) as (select 1 union all select i + 1 from number where i < coalesce(:payload.spin, 1))
  select i from number
);
`

// instances maps the ids of the workers to the servers they run in.
func instances(t *testing.T, servers ...*server) map[string]*server {
	t.Helper()
	byID := map[string]*server{}
	eventually(t, patience, "every worker has shown itself", func() (bool, string) {
		var list struct {
			Items []struct {
				ID  string
				PID int
			}
		}
		servers[0].get(t, "/api/v1/instances", &list)
		for _, instance := range list.Items {
			for _, s := range servers {
				if instance.PID == s.pid() {
					byID[instance.ID] = s
				}
			}
		}
		return len(byID) == len(servers), fmt.Sprintf("%+v", list.Items)
	})
	return byID
}

// Processes that start at the same moment make the databases once.
func TestTwoProcesses_startTogether(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	servers := make([]*server, 3)
	for i := range servers {
		servers[i] = launch(t, d, projections...)
	}
	for _, s := range servers {
		s.awaitListening(t)
	}
	instances(t, servers...)
	servers[0].post(t, http.StatusCreated, "/api/v1/campaigns/c-1/events?wait=applied&timeout=30s", event{EventType: "one.made", Payload: map[string]any{"n": 1}})
	for _, s := range servers {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	verifyApplied(t, d)
	checkClean(t, d, projections...)
}

func TestTwoProcesses_shareTheWork(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--lease", "2s", "--poll-interval", "20ms", "--batch-size", "20"}, projections...)
	a := start(t, d, serve...)
	b := start(t, d, serve...)
	l := startLoad(t, 8, 12)
	l.point(a, b)
	const applied = "outboxweb_events_applied_total"
	eventually(t, patience, "both apply", func() (bool, string) {
		na, nb := a.metric(t, applied), b.metric(t, applied)
		return na >= 100 && nb >= 100, fmt.Sprintf("one applied %v events, the other %v", na, nb)
	})
	l.finish(t)
	a.awaitSettled(t)
	for _, s := range []*server{a, b} {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	l.verifyJournal(t, d)
	verifyApplied(t, d)
	verifyNothingHeld(t, d)
	checkClean(t, d, projections...)
}

// A worker that is suspended while it holds leases loses them; resumed, it must notice and change
// nothing.
func TestTwoProcesses_stoppedWorkerIsFenced(t *testing.T) {
	t.Parallel()
	t.Run("before its transaction", func(t *testing.T) {
		t.Parallel()
		d, projections, servers := twoSlowServers(t)
		fenceStopped(t, d, servers, stopBeforeTransaction)
		verifyFenced(t, d, projections, servers)
	})
	t.Run("inside its transaction", func(t *testing.T) {
		t.Parallel()
		d, projections, servers := twoSlowServers(t)
		fenceStopped(t, d, servers, stopInsideTransaction)
		verifyFenced(t, d, projections, servers)
	})
}

func twoSlowServers(t *testing.T) (d databases, projections []string, servers map[string]*server) {
	t.Helper()
	files := maps.Clone(historyProjections)
	files["slow.sql"] = slowProjection
	d, projections = newDatabases(t), writeProjections(t, files)
	serve := append([]string{"--lease", "1s", "--poll-interval", "50ms"}, projections...)
	a := start(t, d, serve...)
	b := start(t, d, serve...)
	return d, projections, instances(t, a, b)
}

// fenceStopped suspends a worker that holds leases until the other has claimed them, and resumes
// it. If the worker was suspended with the journal's lock, no other could take over; then it
// retries.
func fenceStopped(t *testing.T, d databases, servers map[string]*server, stop func(*testing.T, databases, map[string]*server, string) (stopped string, takenOver bool)) {
	t.Helper()
	const tries = 5
	for try := range tries {
		stopped, takenOver := stop(t, d, servers, fmt.Sprintf("campaign-%d", try))
		servers[stopped].signal(t, syscall.SIGCONT)
		if !takenOver {
			continue
		}
		eventually(t, patience, "the worker that was stopped notices that it is fenced", func() (bool, string) {
			n := servers[stopped].metric(t, "outboxweb_fenced_total")
			return n >= 1, fmt.Sprint("outboxweb_fenced_total is ", n)
		})
		return
	}
	t.Fatalf("in %d tries nobody took over from a stopped worker", tries)
}

// stopBeforeTransaction suspends the worker that has leased the campaign while it waits for the
// projections: this test has them locked until then.
func stopBeforeTransaction(t *testing.T, d databases, servers map[string]*server, campaign string) (stopped string, takenOver bool) {
	t.Helper()
	unlock := lock(t, d.projections())
	defer unlock()
	appendSlow(t, servers, campaign, 1)
	stopped = awaitHolder(t, servers, campaign)
	freeze(t, servers[stopped])
	unlock()
	other := otherThan(servers, stopped)
	_, takenOver = attain(patience, func() (bool, string) {
		c := campaignState(t, other, campaign)
		return c.AppliedSeq == c.HighWaterSeq && c.Lease == nil, ""
	})
	if takenOver && scalar[int64](t, d.projections(), "select count(*) from history where campaign_id = $1", campaign) != 5 {
		t.Errorf("the other worker applied something else than 5 events of %s", campaign)
	}
	return stopped, takenOver
}

// stopInsideTransaction suspends the worker that has leased the campaign in the middle of applying
// it, with the projections locked. The other gets the lease, and the projections only once the
// first is resumed, whose transaction then commits: it began before any fence. Whatever it settles
// afterwards must not count.
func stopInsideTransaction(t *testing.T, d databases, servers map[string]*server, campaign string) (stopped string, takenOver bool) {
	t.Helper()
	appendSlow(t, servers, campaign, 500_000)
	stopped = awaitHolder(t, servers, campaign)
	eventually(t, patience, "the worker is applying", func() (bool, string) { return locked(t, d.projections()), "it is not" })
	freeze(t, servers[stopped])
	if !locked(t, d.projections()) {
		return stopped, false
	}
	other := otherThan(servers, stopped)
	_, takenOver = attain(patience, func() (bool, string) {
		c := campaignState(t, other, campaign)
		return c.Lease != nil && c.Lease.Owner != stopped, ""
	})
	return stopped, takenOver
}

func verifyFenced(t *testing.T, d databases, projections []string, servers map[string]*server) {
	t.Helper()
	for _, s := range servers {
		s.awaitSettled(t)
	}
	for _, s := range servers {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	verifyApplied(t, d)
	verifyNothingHeld(t, d)
	checkClean(t, d, projections...)
}

// appendSlow appends five events, each of which takes some time to apply.
func appendSlow(t *testing.T, servers map[string]*server, campaign string, spin int) {
	t.Helper()
	events := make([]event, 5)
	for i := range events {
		events[i] = event{EventType: "slow.made", Payload: map[string]any{"n": i, "spin": spin}}
	}
	for _, s := range servers {
		s.post(t, http.StatusCreated, "/api/v1/campaigns/"+campaign+"/events", map[string]any{"events": events})
		return
	}
}

// campaign is what the tests read of GET /api/v1/campaigns/{id}.
type campaign struct {
	HighWaterSeq int64 `json:"high_water_seq"`
	AppliedSeq   int64 `json:"applied_seq"`
	State, Why   string
	Lease        *struct {
		Owner string
		Epoch int64
	}
}

func campaignState(t *testing.T, s *server, id string) campaign {
	t.Helper()
	var c campaign
	s.get(t, "/api/v1/campaigns/"+id, &c)
	return c
}

// awaitHolder waits until a worker has leased the campaign and returns its id.
func awaitHolder(t *testing.T, servers map[string]*server, id string) (owner string) {
	t.Helper()
	var anyone *server
	for _, anyone = range servers {
	}
	eventually(t, patience, "a worker holds the campaign", func() (bool, string) {
		c := campaignState(t, anyone, id)
		if c.Lease == nil {
			return false, fmt.Sprintf("%+v", c)
		}
		owner = c.Lease.Owner
		return servers[owner] != nil, "it is held by " + owner
	})
	return owner
}

func otherThan(servers map[string]*server, id string) *server {
	for other, s := range servers {
		if other != id {
			return s
		}
	}
	return nil
}

// freeze suspends a process and waits until it is suspended.
func freeze(t *testing.T, s *server) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
	eventually(t, patience, "the process is stopped", func() (bool, string) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid()))
		if err != nil {
			t.Fatal(err)
		}
		_, state, _ := bytes.Cut(stat, []byte(") "))
		return bytes.HasPrefix(state, []byte("T")), string(state[:1])
	})
}

// lock takes a database file's writing lock until unlock is called, or the
// test ends.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db := connect(t, path, "_txlock=immediate")
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatalf("lock %s: %v", path, err)
	}
	return func() {
		_ = tx.Rollback() // a second call finds it done
		db.Close()
	}
}

// sqliteBusy is the result code of a lock held by another connection.
const sqliteBusy = 5

// locked reports whether a database file is being written to.
func locked(t *testing.T, path string) bool {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(0)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil)
	if err == nil {
		tx.Rollback()
		return false
	}
	var cause *sqlite.Error
	if !errors.As(err, &cause) || cause.Code()&0xff != sqliteBusy {
		t.Fatal(err)
	}
	return true
}
