package e2e

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/size"
)

// scene is what goes on while a row of TestKills kills, and the record of what everyone was told.
type scene struct {
	t        *testing.T
	random   *rand.Rand
	d        databases
	past     databases      // the same, past a pooler
	own      *pgtest.Server // of the databases, if it is to be killed
	commands []string       // flags of commands
	serve    []string       // flags of servers
	servers  []*server
	journal  *sql.DB

	load    *load
	shop    string // the service's database
	writers []*exec.Cmd
	hooks   *hooks
	file    string // a destination
	run     int64  // the last rebuild
}

// oldCampaigns are those that commands append, so many events each, and rebuilds are of.
var oldCampaigns = strings.Fields("old-0 old-1 old-2 old-3 old-4 old-5")

const oldEvents = 30

func oldJournal(events int) *bytes.Buffer {
	var text bytes.Buffer
	for n := range events {
		for _, c := range oldCampaigns {
			fmt.Fprintf(&text, `{"campaign_id": %q, "event_id": "e-%d", "event_type": "load.made", "payload": {"n": %[2]d}}`+"\n", c, n)
		}
	}
	return &text
}

func startScene(t *testing.T, row killRow) *scene {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("note: -kill-seed %d", seed)
	s := &scene{t: t, random: rand.New(rand.NewPCG(seed, 0)), servers: make([]*server, *killServers), hooks: newHooks(t, seed)}
	s.create(row.database)
	s.past = databases{dir: s.d.dir, url: s.d.url}
	s.commands = writeProjections(t, historyProjections)
	if row.mode != "" {
		s.commands = append(s.commands, "--mode", row.mode)
	}
	// With so many attempts no event is given up that was in progress in many kills in a row.
	s.serve = slices.Concat([]string{"--lease", "2s", "--poll-interval", "50ms", "--batch-size", "50", "--max-attempts", "1000", "--retry-base", "10ms", "--retry-max", "50ms"},
		row.flags, s.config(), s.commands)
	s.append(oldEvents)

	s.load = startLoad(t, 6, append(strings.Fields("campaign-0 campaign-1 campaign-2 campaign-3 campaign-4 campaign-5"), oldCampaigns[:2]...))
	for i := range s.servers {
		s.servers[i] = start(t, s.d, s.serve...)
	}
	s.load.point(s.servers...)
	s.writers = []*exec.Cmd{startWriter(t, s.shop), startWriter(t, s.shop)}
	s.journal = openReader(t, s.past.journal())
	s.rebuild()
	s.load.awaitProgress(t, 50)
	return s
}

func (s *scene) create(database string) {
	t := s.t
	s.shop = "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	switch database {
	case "sqlite":
		s.d = newDatabases(t)
	case "own":
		server := must.Get(pgtest.Start()).Or(t)
		t.Cleanup(func() { _ = server.Stop() })
		s.own, s.d, s.shop = server, databases{dir: t.TempDir(), url: server.Empty(t)}, server.Empty(t)
	default:
		s.d, s.shop = newPostgres(t), newPostgres(t).url
		if database == "pooler" {
			s.d.pooled = postgresServer(t).Pooler(t)(s.d.url)
		}
	}
	kind, _, _ := strings.Cut(s.shop, ":")
	prepareShop(t, kind, s.shop)
}

// config is the flag that names a file with the destinations and the service.
func (s *scene) config() []string {
	s.file = filepath.Join(s.d.dir, "out", "events.ndjson")
	must.OK(s.t, os.Mkdir(filepath.Dir(s.file), 0o700))
	return s.d.config(s.t, fmt.Sprintf(`
topics:
  everything:
    match: {event_types: ["*"]}
    publishers:
      file: {url: "file://%s", rotate_bytes: 20000, %s}
      hook: {url: "%s/structured", allow_private: true, %[2]s}
      batch: {url: "%[3]s/batch", format: batch, allow_private: true, %[2]s}
sources:
  shop: {url: %[4]q, poll_interval: 20ms, batch_size: 100}
`, s.file, "poll_interval: 20ms, max_errors: 3, failed_retry: 100ms, retry_base: 10ms, retry_max: 100ms", s.hooks.server.URL, s.shop))
}

// append appends so many events of each old campaign, of which some may be there.
func (s *scene) append(events int) {
	out := mustCommand(s.t, s.d, oldJournal(events), append([]string{"append", "-"}, s.commands...)...)
	must.Hold(s.t, strings.Contains(out, "refused 0"), "append printed %s", out)
}

// moment lets time pass: it is what varies, and no condition could replace it.
func (s *scene) moment(most time.Duration) { wait(time.Duration(s.random.Int64N(int64(most)))) }

func wait(d time.Duration) { <-time.After(d) }

func (s *scene) kill(i int) {
	s.servers[i].kill()
	s.replace(i)
}

// killHeldUp kills the server that has leased a row of a table, and then lets go of what it waits for.
func (s *scene) killHeldUp(table string, letGo func()) {
	victim := s.awaitHolder(table)
	s.servers[victim].kill()
	letGo()
	s.replace(victim)
}

func (s *scene) replace(i int) {
	s.servers[i] = start(s.t, s.d, s.serve...)
	s.load.point(s.servers...)
}

// rebuild starts a rebuild of the old campaigns once there is none, which takes a second or two: their events
// grow in number with the runs, and so does the rate.
func (s *scene) rebuild() {
	if s.run != 0 {
		s.awaitRebuild()
	}
	s.run = startRun(s.t, s.servers[0], map[string]any{"kind": "rebuild", "campaign_ids": oldCampaigns, "rate": 150 * (s.run + 1), "reason": "to be killed"}).ID
}

// awaitRebuild waits for the end of the last rebuild, and resumes it if its processes were killed or
// suspended too often.
func (s *scene) awaitRebuild() {
	r := awaitEnd(s.t, s.servers[0], s.run)
	for tries := 0; r.Status != "completed" && tries < 5; tries++ {
		command(s.t, s.d, nil, append([]string{"runs", "resume", fmt.Sprint(s.run), "--wait"}, s.commands...)...)
		r = awaitEnd(s.t, s.servers[0], s.run)
	}
	must.Hold(s.t, r.Status == "completed" && r.Counts.Failed+r.Counts.Drifted == 0 && r.Campaigns.Done == int64(len(oldCampaigns)), "the rebuild is %+v", r)
}

// leased are the tables of which processes lease rows.
var leased = []string{"campaigns", "publisher_progress", "intake_sources", "runs"}

func (s *scene) leases(table, id string) (n int) {
	must.OK(s.t, s.journal.QueryRow("select count(*) from "+table+" where lease_owner = $1 and lease_expires_at > $2", id, time.Now().UnixMicro()).Scan(&n))
	return n
}

// awaitHolder waits until a server has leased a row of each table, and returns which. A rebuild that has ended
// before it was seen, as on a busy machine, is followed by another one.
func (s *scene) awaitHolder(tables ...string) (holder int) {
	eventually(s.t, fmt.Sprintf("a server has leases of %v", tables), func() (bool, string) {
		if slices.Contains(tables, "runs") {
			var r runDoc
			if s.servers[0].get(s.t, fmt.Sprint("/api/v1/runs/", s.run), &r); !r.active() {
				s.rebuild()
			}
		}
		holder = slices.IndexFunc(s.servers, func(server *server) bool {
			id := s.id(server)
			return !slices.ContainsFunc(tables, func(table string) bool { return s.leases(table, id) == 0 })
		})
		return holder >= 0, "none has"
	})
	return holder
}

// end asks the server to end that has a lease of each kind, which must leave nothing leased.
func (s *scene) end() {
	s.rebuild()
	for _, kind := range []string{"runs", "intake_sources", "publisher_progress"} {
		victim := s.awaitHolder(kind)
		server := s.servers[victim]
		id := s.id(server)
		must.Equal(s.t, server.stop(s.t), 0, "a server ended with exit code")
		for _, table := range leased {
			must.Equal(s.t, s.leases(table, id), 0, "rows that a server that ended still leases, of", table)
		}
		s.replace(victim)
	}
}

func (s *scene) id(server *server) (id string) {
	must.OK(s.t, s.journal.QueryRow("select coalesce((select id from instances where pid = $1 order by last_seen desc limit 1), '')", server.pid()).Scan(&id))
	return id
}

func (s *scene) killAppend() {
	cmd := program(s.d, slices.Concat([]string{"append", "--batch", "10", "-"}, s.commands, s.d.flags())...)
	cmd.Stdin = oldJournal(2 * oldEvents)
	must.OK(s.t, cmd.Start())
	s.moment(300 * time.Millisecond)
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
	s.append(2 * oldEvents)
}

// suspend suspends a server in the middle of a wave and a delivery until another has taken over. It
// must notice, and change nothing.
func (s *scene) suspend() {
	t := s.t
	const fenced = "outboxweb_fenced_total"
	deliver, letGo := s.hooks.hold(t), holdUp(t, s.past)
	victim := s.awaitHolder("campaigns", "publisher_progress")
	frozen := s.servers[victim]
	awaitEqual(t, "its wave is held up, and not about to be settled", true, func() (held bool) { // its leases were renewed
		must.OK(t, s.journal.QueryRow("select exists (select 1 from campaigns where lease_owner = $1 and lease_expires_at > updated_at + 2000000)", s.id(frozen)).Scan(&held))
		return held
	})
	before := frozen.metric(t, fenced)
	writer := connect(t, s.past.journal(), "_txlock=immediate&_pragma=busy_timeout(1000)")
	eventually(t, "it is stopped where no other waits for its lock of an SQLite file", func() (bool, string) {
		freeze(t, frozen)
		tx, err := writer.BeginTx(t.Context(), nil)
		if err != nil {
			frozen.signal(t, syscall.SIGCONT)
			return false, err.Error()
		}
		return tx.Rollback() == nil, ""
	})
	letGo()
	s.awaitTakeOver(victim)
	deliver()
	frozen.signal(t, syscall.SIGCONT)
	awaitEqual(t, "the server notices that it is fenced", true, func() bool { return frozen.metric(t, fenced) > before })
}

// awaitTakeOver waits until nothing is leased by a server that is silent.
func (s *scene) awaitTakeOver(silent int) {
	id := s.id(s.servers[silent])
	for _, table := range leased {
		awaitEqual(s.t, "another server has taken over "+table, 0, func() int64 {
			return scalar[int64](s.t, s.past.journal(), "select count(*) from "+table+" where lease_owner = $1 and lease_expires_at > 0", id)
		})
	}
}

// killDatabases restarts the server of all databases, and kills it.
func (s *scene) killDatabases() {
	t := s.t
	must.OK(t, s.own.Restart(t.Context()))
	s.load.awaitProgress(t, 50)
	must.OK(t, s.own.Crash())
	for _, server := range s.servers {
		server.awaitReady(t, http.StatusServiceUnavailable, "")
	}
	must.OK(t, s.own.Launch(t.Context()))
	for _, server := range s.servers {
		server.awaitReady(t, http.StatusOK, "")
	}
	must.Equal(t, scalar[int64](t, s.past.journal(), "select coalesce(max(attempt_count), 0) from projection_apply_outbox"), 0, "the most attempts of a row")
}

// finish makes nothing new, waits until everything is done, ends the servers, and verifies all.
func (s *scene) finish() {
	t := s.t
	s.load.finish(t)
	for _, w := range s.writers {
		killWriter(w)
	}
	s.awaitRebuild()
	place := strings.TrimPrefix(s.shop, "sqlite:")
	awaitEqual(t, "the service's table is drained", 0, func() int64 { return scalar[int64](t, place, `select count(*) from outboxweb_intake`) })
	s.servers[0].awaitSummary(t, "everything is applied", func(sum summary) bool { return sum.settled() && sum.Lag.Events == 0 && sum.Counts.Dead == 0 })
	var journal []int64
	each(t, s.past.journal(), `select position from events order by position`, func(row map[string]any) { journal = append(journal, row["position"].(int64)) })
	awaitEqual(t, "the publishers that are behind", "", func() string {
		return scalar[string](t, s.past.journal(), fmt.Sprintf(`select coalesce(min(publisher || ' at ' || position), '') from publisher_progress where position < %d`, journal[len(journal)-1]))
	})
	for _, server := range s.servers {
		must.Equal(t, server.stop(t), 0, "a server ended with exit code")
	}
	s.load.verifyJournal(t, s.past)
	s.verifyIntake(place)
	for name, got := range map[string][]int64{"file": readFiles(t, s.file), "hook": s.hooks.took("/structured"), "batch": s.hooks.took("/batch")} {
		t.Logf("note: %s: %d events came again", name, mustBeJournal(t, name, got, journal))
	}
	t.Logf("note: %d events, of which %d were acknowledged only when sent again; the webhooks misbehaved %d times", len(journal), s.load.retold, s.hooks.bad)
	verifyApplied(t, s.past)
	for _, held := range []string{"projection_apply_outbox where status = 'processing'", "campaigns where lease_owner <> ''"} {
		must.Equal(t, scalar[int64](t, s.past.journal(), "select count(*) from "+held), 0, held)
	}
	checkClean(t, s.d, s.commands...)
}

// verifyIntake fails the test unless the journal has what the service committed, in its order.
func (s *scene) verifyIntake(place string) {
	t := s.t
	want := lists(t, place, `select campaign as campaign, event as event from ledger order by campaign, n`)
	got := lists(t, s.past.journal(), `select campaign_id as campaign, event_id as event from events order by campaign_id, seq`)
	total := 0
	for campaign, events := range want {
		total += len(events)
		must.Hold(t, slices.Equal(got[campaign], events), "campaign %s has %d events in the journal of %d committed, or in another order", campaign, len(got[campaign]), len(events))
	}
	for campaign := range got {
		must.Hold(t, want[campaign] != nil || !strings.HasPrefix(campaign, "order-"), "campaign %s is in the journal and was never committed", campaign)
	}
	must.Hold(t, total >= 20, "only %d events were committed", total)
	must.Equal(t, scalar[int64](t, s.past.journal(), `select count(*) from intake_rejections`), 0, "rows were rejected")
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

func campaignState(t *testing.T, s *server, id string) (c campaign) {
	s.get(t, "/api/v1/campaigns/"+id, &c)
	return c
}

func freeze(t *testing.T, s *server) {
	s.signal(t, syscall.SIGSTOP)
	eventually(t, "the process is stopped", func() (bool, string) {
		stat := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid()))).Or(t)
		_, state, _ := bytes.Cut(stat, []byte(") "))
		return bytes.HasPrefix(state, []byte("T")), string(state[:1])
	})
}

// holdUp lets no worker apply an event to the tally until letGo is called or the test ends.
func holdUp(t *testing.T, d databases) (letGo func()) {
	tx, err := connect(t, d.projections(), "_txlock=immediate").BeginTx(context.Background(), nil)
	if err == nil && d.url != "" {
		_, err = tx.Exec("lock table tally in exclusive mode")
	}
	must.Need(t, err == nil, "hold the workers up: %v", err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return func() { _ = tx.Rollback() } // a second call finds it done
}

var (
	kills       = flag.Int("kills", 0, "how often each row of TestKills kills, in one way after the other; 0 is in half of its ways, and in a soak three times in each")
	killServers = flag.Int("kill-servers", 2, "how many servers TestKills has on one pair of databases")
	killSeed    = flag.Uint64("kill-seed", 0, "the seed of the moments at which TestKills kills; 0 takes a new one")
)

// ways are who is killed at what. Each leaves as many servers as there were.
var ways = map[string]func(*scene){
	"a server at any moment": func(s *scene) {
		s.moment(400 * time.Millisecond)
		s.kill(s.random.IntN(len(s.servers)))
	},
	"a server that starts": func(s *scene) {
		starting := launch(s.t, s.d, s.serve...)
		s.moment(200 * time.Millisecond)
		starting.kill()
	},
	"a server in a wave":       func(s *scene) { s.killHeldUp("campaigns", holdUp(s.t, s.past)) },
	"a server in a delivery":   func(s *scene) { s.killHeldUp("publisher_progress", s.hooks.hold(s.t)) },
	"a server that moves rows": func(s *scene) { s.kill(s.awaitHolder("intake_sources")) },
	"a server in a rebuild": func(s *scene) {
		s.rebuild()
		victim := s.awaitHolder("runs")
		s.moment(200 * time.Millisecond)
		s.kill(victim)
	},
	"all servers": func(s *scene) {
		for _, server := range s.servers {
			server.kill()
		}
		for i := range s.servers {
			s.replace(i)
		}
	},
	"a writer of the service": func(s *scene) {
		i := s.random.IntN(len(s.writers))
		killWriter(s.writers[i])
		s.writers[i] = startWriter(s.t, s.shop)
	},
	"a command that appends":        (*scene).killAppend,
	"a server that is asked to end": (*scene).end,
	"a server that was suspended":   (*scene).suspend,
	"the databases' server":         (*scene).killDatabases,
}

// A killRow is a test of TestKills.
type killRow struct {
	name        string
	database    string // sqlite, postgres, pooler or own, which is a PostgreSQL server to be killed
	mode        string // of applying, unless the usual one
	flags, ways []string
}

var killRows = []killRow{
	{name: "servers on SQLite", database: "sqlite", flags: []string{"--lease", "1h"}, ways: []string{
		"a server that is asked to end", "a command that appends", "a server in a wave", "a server in a rebuild", "a server in a delivery", "a server that moves rows",
		"a writer of the service", "a server that starts", "all servers", "a server at any moment"}},
	{name: "servers on PostgreSQL", database: "postgres", flags: []string{"--lease", "1h"}, ways: []string{
		"a server that moves rows", "a writer of the service", "a server that starts", "all servers", "a server at any moment", // the other row begins with the others
		"a server in a wave", "a server in a delivery", "a server in a rebuild", "a server that is asked to end", "a command that appends"}},
	{name: "suspended", database: "postgres", ways: []string{"a server that was suspended"}},
	{name: "suspended on SQLite", database: "sqlite", ways: []string{"a server that was suspended"}},
	{name: "behind a pooler", database: "pooler", ways: []string{"a server in a wave", "a server that is asked to end", "a server at any moment"}},
	{name: "applying inline", database: "sqlite", mode: "inline_apply_only", ways: []string{"a server at any moment", "all servers", "a server that is asked to end"}},
	{name: "the databases' server", database: "own", flags: []string{"--lease", "10m"}, ways: []string{"the databases' server"}},
}

// Servers on one pair of databases apply what is appended to them, move what a service commits,
// deliver to three destinations, and rebuild; they and others are killed again and again. Everything
// that was acknowledged or committed must be in the journal once, and applied and delivered in
// order, and what was begun must be completed by the next process.
func TestKills(t *testing.T) {
	t.Parallel()
	for _, row := range killRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.name != killRows[0].name {
				size.Full(t, "one row is in every run")
			}
			s := startScene(t, row)
			for round := range cmp.Or(*kills, size.Of(1, 1, 6)*(len(row.ways)+1)/2) {
				way := row.ways[round%len(row.ways)]
				t.Logf("note: killed is %s", way)
				ways[way](s)
				s.load.awaitProgress(t, 20)
			}
			s.finish()
		})
	}
}
