package e2e

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/pgtest"
)

var instanceRounds = flag.Int("instance-rounds", 0, "how often TestPostgresInstances_killed kills an instance; the one that stops them does so a third as often; 0 is 6, and 1 in a short run")

// pacedProjections are historyProjections and one that spends time on every event without using the
// CPU, so that nearly always some instance is in the middle of a wave.
func pacedProjections() map[string]string {
	files := maps.Clone(historyProjections)
	files["paced.sql"] = `
-- projection: paced
-- tables: paced

-- schema
create table paced (
  campaign_id text not null,
  seq bigint not null,
  primary key (campaign_id, seq)
);

-- on: * @sqlite
insert into paced (campaign_id, seq) values (:campaign_id, :seq);

-- on: * @postgres
insert into paced (campaign_id, seq)
select cast(:campaign_id as text), cast(:seq as bigint) from pg_sleep(0.003);
`
	return files
}

// crew is instances on one database, under a load that they can handle together. A killed one is
// replaced.
type crew struct {
	t           *testing.T
	d           databases
	projections []string // flags
	flags       []string // all of them
	servers     []*server
	load        *load
	journal     *sql.DB
}

// startCrew starts a crew of three with the paced projections.
func startCrew(t *testing.T, d databases, flags ...string) *crew {
	t.Helper()
	c := &crew{t: t, d: d, projections: writeProjections(t, pacedProjections()),
		servers: make([]*server, 3), load: startLoad(t, 9, 12), journal: openReader(t, d.journal())}
	c.flags = append(flags, c.projections...)
	c.load.steady(20 * time.Millisecond)
	for i := range c.servers {
		c.servers[i] = launch(t, d, c.flags...)
	}
	for _, s := range c.servers {
		s.awaitListening(t)
	}
	c.load.point(c.servers...)
	return c
}

// startBriskCrew starts a crew with short leases. An event that is in progress
// in many kills in a row counts as a suspect; with so many attempts allowed it
// is never given up.
func startBriskCrew(t *testing.T) *crew {
	t.Helper()
	return startCrew(t, newPostgres(t), "--lease", "2s", "--poll-interval", "500ms",
		"--max-attempts", "1000", "--retry-base", "10ms", "--retry-max", "50ms")
}

// replace starts a server instead of a killed one.
func (c *crew) replace(i int) {
	c.t.Helper()
	c.servers[i] = start(c.t, c.d, c.flags...)
	c.load.point(c.servers...)
}

// id is the name of a server's worker.
func (c *crew) id(i int) string {
	c.t.Helper()
	for id := range instances(c.t, c.servers[i]) {
		return id
	}
	return ""
}

// held is the number of campaigns an instance holds.
func (c *crew) held(id string) (n int) {
	c.t.Helper()
	if err := c.journal.QueryRow("select count(*) from campaigns where lease_owner = $1", id).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// awaitHolding waits until an instance has leased campaigns and then calls act at once.
func (c *crew) awaitHolding(id string, act func()) {
	c.t.Helper()
	eventually(c.t, patience, "instance "+id+" holds campaigns", func() (bool, string) {
		n := c.held(id)
		if n > 0 {
			act()
		}
		return n > 0, "it holds none"
	})
}

// verifyTakeOver waits until others have claimed everything leased by an instance of a brisk crew
// that went silent. Meanwhile it calls look.
func (c *crew) verifyTakeOver(id string, silent time.Time, look func()) {
	c.t.Helper()
	n := c.held(id)
	eventually(c.t, patience, "others have taken over from instance "+id, func() (bool, string) {
		left := c.held(id)
		look()
		return left == 0, fmt.Sprintf("it still holds %d of %d campaigns", left, n)
	})
	c.t.Logf("%d campaigns of a silent instance were taken over after %s", n, time.Since(silent).Round(time.Millisecond))
}

// finish ends the load, waits until everything is applied, ends the servers and verifies that
// everything acknowledged was applied once, in order.
func (c *crew) finish() {
	t, l := c.t, c.load
	t.Helper()
	l.finish(t)
	if sum := c.servers[0].awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
		t.Errorf("settled at %+v", sum)
	}
	journal := export(t, c.servers[0], l.campaigns)
	for _, s := range c.servers {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	t.Logf("%d events, of which %d were acknowledged only when sent again", l.progress(), l.retold)
	l.verifyJournal(t, c.d)
	verifyApplied(t, c.d)
	verifyNothingHeld(t, c.d)
	checkClean(t, c.d, c.projections...)
	compareUndisturbed(t, c.d, l.campaigns, journal, c.projections)
}

// Instances are killed one after the other and replaced, at once or when others have taken over
// from them, and finally all together.
func TestPostgresInstances_killed(t *testing.T) {
	t.Parallel()
	c := startBriskCrew(t)
	for round := range amount(instanceRounds, 1, 6) {
		c.load.awaitProgress(t, 200)
		victim := round % len(c.servers)
		if round%2 == 0 {
			c.killHolding(victim)
		} else {
			c.servers[victim].kill()
		}
		c.replace(victim)
	}
	c.load.awaitProgress(t, 200)
	for _, s := range c.servers {
		s.kill()
	}
	for i := range c.servers {
		c.replace(i)
	}
	c.load.awaitProgress(t, 200)
	c.finish()
}

// killHolding kills an instance that has leased campaigns and verifies that others take over. If it
// released them at the last moment, it is replaced and killed again.
func (c *crew) killHolding(victim int) {
	c.t.Helper()
	const tries = 10
	for range tries {
		id := c.id(victim)
		var silent time.Time
		c.awaitHolding(id, func() {
			silent = time.Now()
			c.servers[victim].kill()
		})
		if c.held(id) > 0 {
			c.verifyTakeOver(id, silent, func() {})
			return
		}
		c.replace(victim)
	}
	c.t.Fatalf("in %d tries no instance died while it held campaigns", tries)
}

// An instance is suspended in the middle of its work until others have taken over, and resumed: it
// must notice, and change nothing.
func TestPostgresInstances_hanging(t *testing.T) {
	t.Parallel()
	fullOnly(t, "an instance is killed in TestPostgresInstances_killed, a worker suspended in TestTwoProcesses_stoppedWorkerIsFenced")
	c := startBriskCrew(t)
	for round := range max(1, amount(instanceRounds, 2, 6)/3) {
		const tries = 5
		fenced := false
		for try := 0; try < tries && !fenced; try++ {
			c.load.awaitProgress(t, 200)
			fenced = c.freezeHolding((round + try) % len(c.servers))
		}
		if !fenced {
			t.Fatalf("in %d tries no instance that was stopped was seen to hold campaigns and noticed that it is fenced", tries)
		}
	}
	c.load.awaitProgress(t, 200)
	c.finish()
}

// freezeHolding suspends an instance that has leased campaigns, verifies that others take over, and
// resumes it. It reports whether another instance reported its leases meanwhile, for which there is
// little time on a slow machine, and whether the instance noticed that it is fenced, which it need
// not if it had nothing more to write.
func (c *crew) freezeHolding(victim int) bool {
	t := c.t
	t.Helper()
	const fenced = "outboxweb_fenced_total"
	frozen, witness := c.servers[victim], c.servers[(victim+1)%len(c.servers)]
	id, before := c.id(victim), frozen.metric(t, fenced)
	var silent time.Time
	stop := func() {
		silent = time.Now()
		freeze(t, frozen)
		wait(100 * time.Millisecond) // what it had sent may still take effect
	}
	for c.awaitHolding(id, stop); c.held(id) == 0; c.awaitHolding(id, stop) {
		frozen.signal(t, syscall.SIGCONT) // it released them at the last moment
	}
	shown := false
	c.verifyTakeOver(id, silent, func() { shown = shown || holding(t, witness, id) > 0 })
	resumed := time.Now().UnixMicro()
	frozen.signal(t, syscall.SIGCONT)
	noticed := false
	eventually(t, patience, "the instance notices it, or is at work again", func() (bool, string) {
		seen := scalar[int](t, c.d.journal(), "select count(*) from instances where id = $1 and last_seen > $2", id, resumed) > 0
		noticed = frozen.metric(t, fenced) > before
		return noticed || seen, "neither"
	})
	return shown && noticed
}

// holding is how many campaigns an instance has leased according to another one.
func holding(t *testing.T, witness *server, id string) int64 {
	t.Helper()
	var list struct {
		Items []struct {
			ID     string
			Leases struct{ Campaigns int64 }
		}
	}
	witness.get(t, "/api/v1/instances", &list)
	for _, instance := range list.Items {
		if instance.ID == id {
			return instance.Leases.Campaigns
		}
	}
	t.Fatalf("instance %s is not among %+v", id, list.Items)
	return 0
}

// Instances survive restarts and crashes of their database server, which count as no failed
// attempt. Leases outlast any recovery: nothing may depend on their expiry.
func TestPostgresInstances_serverRestart(t *testing.T) {
	t.Parallel()
	fullOnly(t, "the server goes away in tests of internal/store and internal/worker")
	database, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := startCrew(t, databases{dir: t.TempDir(), url: database.Empty(t)}, "--lease", "10m")
	before := instances(t, c.servers...)

	c.load.awaitProgress(t, 200)
	if err := database.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.verifyRecovery(time.Now())

	c.load.awaitProgress(t, 200)
	if err := database.Crash(); err != nil {
		t.Fatal(err)
	}
	c.verifyNotReady()
	if err := database.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.verifyRecovery(time.Now())

	if after := instances(t, c.servers...); !maps.Equal(before, after) {
		t.Errorf("the instances were %v and are %v", before, after)
	}
	c.verifyNoAttempts()
	c.finish()
	each(t, c.d.journal(), "select * from attempts", func(row map[string]any) { t.Errorf("an attempt was counted: %v", row) })
}

// verifyNotReady fails the test unless every instance says that it lives and
// cannot work.
func (c *crew) verifyNotReady() {
	var asking sync.WaitGroup
	for _, s := range c.servers {
		for path, status := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
			asking.Go(func() {
				if a, err := s.do(c.t.Context(), http.MethodGet, path, nil); err != nil || a.status != status {
					c.t.Errorf("without a database %s says %d %s (%v), want %d", path, a.status, a.body, err, status)
				}
			})
		}
	}
	asking.Wait()
}

// verifyRecovery fails the test unless, before any lease expires, every instance is ready and
// events appended to every campaign are applied.
func (c *crew) verifyRecovery(back time.Time) {
	t := c.t
	t.Helper()
	for _, s := range c.servers {
		eventually(t, patience, "an instance is ready again", func() (bool, string) {
			a := do(t, s, http.MethodGet, "/readyz", nil)
			return a.status == http.StatusOK, fmt.Sprintf("%d %s", a.status, a.body)
		})
	}
	ready := time.Since(back)
	applied := make(chan string, len(c.load.campaigns))
	for i, campaign := range c.load.campaigns {
		go func() {
			applied <- c.applied(c.servers[i%len(c.servers)], campaign)
		}()
	}
	for range c.load.campaigns {
		if problem := <-applied; problem != "" {
			t.Error(problem)
		}
	}
	t.Logf("%s after the database was back every instance was ready, and %s after it new events of every campaign were applied",
		ready.Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
}

// applied appends an event and waits until it is applied. It returns the error, if any.
func (c *crew) applied(s *server, campaign string) string {
	a, err := s.do(c.t.Context(), http.MethodPost, "/api/v1/campaigns/"+campaign+"/events?wait=applied&timeout=30s",
		event{EventType: "recovery.made", Payload: map[string]any{"n": 1}})
	if err != nil || a.status != http.StatusCreated {
		return fmt.Sprintf("appending to %s after the database was back: %v, %d %s", campaign, err, a.status, a.body)
	}
	return ""
}

// verifyNoAttempts fails the test if an attempt to apply an event was counted.
func (c *crew) verifyNoAttempts() {
	c.t.Helper()
	for _, s := range c.servers {
		if n := s.metric(c.t, "outboxweb_apply_failures_total"); n != 0 {
			c.t.Errorf("instance %d counts %v failures", s.pid(), n)
		}
	}
	if n := scalar[int64](c.t, c.d.journal(), "select coalesce(max(attempt_count), 0) from projection_apply_outbox"); n != 0 {
		c.t.Errorf("a row has %d attempts", n)
	}
}

// An instance that is asked to end releases its leases at once: the next one is notified, and waits
// neither for its poll nor for the expiry of a lease.
func TestPostgresInstances_rollingRestart(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	projections := writeProjections(t, historyProjections)
	// A wave takes two rows of each campaign, with many behind them.
	const campaigns, events, wave = 8, 40, 16
	serve := append([]string{"--poll-interval", "1h", "--lease", "10m", "--event-timeout", "1m", "--batch-size", fmt.Sprint(wave)}, projections...)
	mustCommand(t, d, lines(t, campaigns, events), append([]string{"append", "-"}, projections...)...)
	mustCommand(t, d, nil, append([]string{"append", "-", "--mode", "inline_apply_only"}, projections...)...) // which makes the tables

	letGo := holdUp(t, d, campaigns)
	leaving := start(t, d, serve...)
	db := openReader(t, d.journal())
	eventually(t, patience, "one instance holds everything", func() (bool, string) {
		var held, owners int
		err := db.QueryRow("select count(*), count(distinct lease_owner) from campaigns where lease_owner <> ''").Scan(&held, &owners)
		return err == nil && held == campaigns && owners == 1, fmt.Sprintf("%d held by %d, %v", held, owners, err)
	})
	staying := start(t, d, serve...)
	instances(t, leaving, staying)
	leaving.signal(t, syscall.SIGTERM)
	eventually(t, patience, "the instance does not listen any more", func() (bool, string) {
		_, err := leaving.do(t.Context(), http.MethodGet, "/healthz", nil)
		return err != nil, "it does"
	})
	letGo()
	<-leaving.exited
	if leaving.code != 0 {
		t.Errorf("the instance ended with exit code %d", leaving.code)
	}
	read := openReader(t, d.projections())
	count := func() (n int) {
		if err := read.QueryRow("select count(*) from history").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	left := campaigns*events - count()
	began := time.Now()
	eventually(t, patience, "everything is applied", func() (bool, string) {
		n := count()
		return n >= campaigns*events, fmt.Sprintf("%d events are", n)
	})
	took := time.Since(began) // the next poll is an hour away
	staying.awaitSettled(t)
	by := staying.metric(t, "outboxweb_events_applied_total")
	t.Logf("%v events were handed over, of which %d were left when the instance had ended; they were applied %s later", by, left, took.Round(time.Millisecond))
	if by < campaigns*events-2*wave {
		t.Errorf("%v of %d events were handed over", by, campaigns*events)
	}
	verifyApplied(t, d)
	verifyNothingHeld(t, d)
	checkClean(t, d, projections...)
}

// lines are events of a number of campaigns, as JSON Lines.
func lines(t *testing.T, campaigns, events int) io.Reader {
	t.Helper()
	var text bytes.Buffer
	for i := range campaigns * events {
		line := event{CampaignID: numbered(i % campaigns), EventType: "one.made", Payload: map[string]any{"n": 1}}
		if err := json.NewEncoder(&text).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	return &text
}

func numbered(i int) string { return fmt.Sprintf("campaign-%02d", i) }

// holdUp blocks every worker that applies an event to one of the campaigns, until letGo is called
// or the test ends: it holds a lock on a row of each tally.
func holdUp(t *testing.T, d databases, campaigns int) (letGo func()) {
	t.Helper()
	tx, err := connect(t, d.projections(), "").Begin()
	for i := 0; err == nil && i < campaigns; i++ {
		_, err = tx.Exec("insert into tally (campaign_id, events, total) values ($1, 0, 0)", numbered(i))
	}
	if err != nil {
		t.Fatalf("hold the tally up: %v", err)
	}
	return func() { _ = tx.Rollback() } // a second call finds it done
}
