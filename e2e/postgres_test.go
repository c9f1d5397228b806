package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/pgtest"
)

var journalStep = flag.Int("journal-step", 30, "of how many campaigns TestPostgresWholeJournal compares the digests of one; 1 compares all, which takes minutes")

// postgres is the PostgreSQL server shared by all tests except those that restart theirs.
var postgres struct {
	start  sync.Once
	server *pgtest.Server
	err    error
}

// postgresServer returns the server, which it starts on first use. Each process of the program has
// some twenty connections.
func postgresServer(t *testing.T) *pgtest.Server {
	t.Helper()
	postgres.start.Do(func() { postgres.server, postgres.err = pgtest.Start("max_connections=1000") })
	if postgres.err != nil {
		t.Fatal(postgres.err)
	}
	return postgres.server
}

// stopPostgres ends the server, if it was started.
func stopPostgres() {
	if postgres.server == nil {
		return
	}
	if err := postgres.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}

// newPostgres is newDatabases on PostgreSQL.
func newPostgres(t *testing.T) databases {
	t.Helper()
	return databases{dir: t.TempDir(), url: postgresServer(t).Empty(t)}
}

// Two instances on PostgreSQL produce the same from a journal as one on SQLite, and as expected.
func TestPostgresWholeJournal(t *testing.T) {
	t.Parallel()
	corpus.EachJournal(t, corpus.Heavy, func(t *testing.T, j corpus.Journal) {
		t.Parallel()
		d := newPostgres(t)
		a, b := start(t, d, applyBriefly...), start(t, d, applyBriefly...)
		appendJournal(t, d, j, nil)
		awaitJournal(t, a, j)
		deadHead(t, b, j)
		noGaps(t, d, b, nil)
		for _, s := range []*server{a, b} {
			t.Logf("an instance applied %v events", s.metric(t, "outboxweb_events_applied_total"))
			if code := s.stop(t); code != 0 {
				t.Errorf("an instance ended with exit code %d", code)
			}
		}
		compareExpected(t, d, j)
		checkJournal(t, d, j, nil)

		files := newDatabases(t)
		appendJournal(t, files, j, nil)
		alone := start(t, files, applyBriefly...)
		awaitJournal(t, alone, j)
		if code := alone.stop(t); code != 0 {
			t.Errorf("the server on SQLite ended with exit code %d", code)
		}
		compareReadModels(t, files, d, j.Poisoned)
	})
}

// compareReadModels fails the test unless all rows of builtin:campaigns are the
// same, and the digests of the poisoned campaign and some others.
func compareReadModels(t *testing.T, want, got databases, poisoned string) {
	t.Helper()
	rows := func(d databases, table string) map[string]map[string]any {
		all := map[string]map[string]any{}
		each(t, d.projections(), "select * from "+table, func(row map[string]any) { all[rowKey(row)] = row })
		return all
	}
	for _, table := range corpus.Tables {
		if diff := cmp.Diff(rows(want, table), rows(got, table)); diff != "" {
			t.Errorf("table %s (-SQLite +PostgreSQL):\n%s", table, tail(diff, 3000))
		}
	}
	campaigns := []string{poisoned}
	each(t, want.journal(), "select campaign_id from campaigns order by campaign_id", func(row map[string]any) {
		campaigns = append(campaigns, row["campaign_id"].(string))
	})
	some := campaigns[:1]
	for i := 1; i < len(campaigns); i += *journalStep {
		some = append(some[:len(some):len(some)], campaigns[i])
	}
	if diff := cmp.Diff(digests(t, want, some, nil), digests(t, got, some, nil)); diff != "" {
		t.Errorf("digests (-SQLite +PostgreSQL):\n%s", diff)
	}
}

// With the journal behind a proxy that pools connections per transaction, everything works except
// notifications between instances: the rows of the table in docs/postgresql.md.
func TestPostgresProxy(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	behind := databases{dir: d.dir, url: d.url, pooled: postgresServer(t).Pooler(t)(d.url)}
	projections := writeProjections(t, seatProjections)
	serve := slices.Concat(quickDeath, []string{"--log-level", "warn"}, projections)
	a, b := start(t, behind, serve...), start(t, behind, serve...)
	instances(t, a, b)

	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				s := []*server{a, b}[i%2]
				got, err := s.do(t.Context(), http.MethodPost, fmt.Sprintf("/api/v1/campaigns/table-%d/events?wait=applied&timeout=30s", w),
					taken(fmt.Sprintf("seat-%d", i), fmt.Sprintf("user-%d", i)))
				if err != nil || got.status != http.StatusCreated {
					t.Errorf("append through a proxy: %v, %d %s", err, got.status, got.body)
				}
			}
		})
	}
	writers.Wait()
	appendTo(t, a, "", "poisoned", seats("ana", "ben", "ana", "dee"))
	awaitCounts(t, b, "", 1, 0, 1)
	for name, path := range troubledPages("poisoned", 3) {
		if publisherPages[name] != "" && name != "publishers" {
			continue // there are none here
		}
		want := map[string]int{"operation": http.StatusNotFound, "run": http.StatusNotFound, "run-result": http.StatusNotFound, "run-rebuild": http.StatusNotFound, "projection": http.StatusNotFound, "projection-aside": http.StatusNotFound, "not-found": http.StatusNotFound, "invalid": http.StatusUnprocessableEntity}[name]
		if got := do(t, b, http.MethodGet, path, nil); got.status != want && (want != 0 || got.status != http.StatusOK) {
			t.Errorf("%s is answered with %d %s", path, got.status, tail(string(got.body), 500))
		}
	}
	for _, args := range [][]string{{"verify"}, {"check"}, {"digest", "--campaign", "table-0"}, {"campaigns", "rows", "table-0"}, {"runs", "start", "rebuild", "--all", "--wait", "--reason", "again", "--confirm", rebuildPhrase}, {"runs", "start", "replay", "--all", "--wait"}, {"report"}} {
		if r := command(t, behind, nil, slices.Concat(args, projections)...); r.code != 0 {
			t.Errorf("%s: exit code %d: %s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
		}
	}
	if r := command(t, d, nil, "backup", filepath.Join(t.TempDir(), "copy")); r.code != 0 {
		t.Errorf("backup past the proxy: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	change(t, d.projections(), freeSeat, "poisoned", "ana")
	b.post(t, http.StatusOK, "/api/v1/rows/poisoned/3/requeue", map[string]any{"reason": "seat freed"})
	b.awaitSettled(t)
	for _, s := range []*server{a, b} {
		if code := s.stop(t); code != 0 {
			t.Errorf("an instance ended with exit code %d", code)
		}
		complaints := slices.DeleteFunc(slices.Collect(strings.Lines(s.stderr.String())), func(line string) bool {
			return strings.Contains(line, `msg="an event is dead,`) && strings.Contains(line, " campaign=poisoned seq=3 ") || strings.Contains(line, "the server runs with fsync=off") // as servers for tests do
		})
		if len(complaints) > 0 {
			t.Errorf("an instance had something to complain about:\n%s", strings.Join(complaints, ""))
		}
	}
	if n := scalar[int64](t, d.projections(), "select count(*) from seats"); n != 4*25+3 {
		t.Errorf("%d seats are taken, want %d", n, 4*25+3)
	}
	checkClean(t, behind, append([]string{"--no-replay"}, projections...)...) // the fix is not in the journal
}

// Differences between runs of the same command.
var fleeting = []struct {
	text *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)`), "TIME"},
	{regexp.MustCompile(`\b\d+ (ms|s|min)\b`), "AGE"},
	{regexp.MustCompile(`(none is )?running, last seen .*`), "WORKER"},
	{regexp.MustCompile(regexp.QuoteMeta(os.TempDir()) + `/\S+/`), "DIR/"},
	{regexp.MustCompile(` +`), " "}, // columns are as wide as what is in them
}

// Every command prints the same on PostgreSQL as on SQLite, beside running servers.
func TestPostgresCommands(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	for name, d := range map[string]databases{"SQLite": newDatabases(t), "PostgreSQL": newPostgres(t)} {
		said[name] = tellAll(t, d)
		if t.Failed() {
			return
		}
	}
	if diff := cmp.Diff(said["SQLite"], said["PostgreSQL"]); diff != "" {
		t.Errorf("commands say (-SQLite +PostgreSQL):\n%s", diff)
	}
}

// tellAll runs every command that uses databases and returns their output.
func tellAll(t *testing.T, d databases) string {
	t.Helper()
	var said strings.Builder
	projections := writeProjections(t, seatProjections)
	say := func(stdin string, args ...string) {
		t.Helper()
		r := command(t, d, strings.NewReader(stdin), append(args, projections...)...)
		text := fmt.Sprintf("\n$ %s\n%s%sexit %d\n", strings.Join(args, " "), r.stdout, r.stderr, r.code)
		for _, f := range fleeting {
			text = f.text.ReplaceAllString(text, f.as)
		}
		said.WriteString(text)
	}
	say("", "migrate")
	say("", "migrate", "--no-migrate", "--json")
	serve := slices.Concat(quickDeath, projections)
	servers := []*server{start(t, d, serve...), start(t, d, serve...)}
	awaitDead := func(s *server) {
		t.Helper()
		s.awaitSummary(t, "the poisonous row is dead", func(sum summary) bool {
			return sum.Counts.Dead == 1 && sum.Counts.Pending == 2 && sum.Campaigns.Leased == 0
		})
	}
	const poison = `{"campaign_id": "poisoned", "event_id": "p-2", "event_type": "seat.taken", "occurred_at": "2026-11-21T08:00:00Z", "payload": {"seat": "s"}}`
	var journal strings.Builder
	for _, campaign := range []string{"healthy", "poisoned"} {
		for i := range 3 {
			fmt.Fprintf(&journal, `{"campaign_id": %q, "event_id": "e-%d", "event_type": "seat.taken", "occurred_at": "2026-11-21T07:00:00Z", "payload": {"seat": "seat-%d", "user": "user-%d"}}`+"\n", campaign, i, i, i)
			if campaign == "poisoned" && i == 0 {
				journal.WriteString(poison + "\n")
			}
		}
	}
	say(journal.String(), "append", "-")
	awaitDead(servers[1])
	say(journal.String(), "append", "-")
	say(strings.Replace(poison, `"s"`, `"t"`, 1), "append", "-")
	say("{}", "append", "-")
	say("", "report", "--status", "dead")
	say("", "report", "--campaign", "poisoned")
	say("", "report", "--campaign", "nobody")
	say("", "requeue", "poisoned", "2", "--reason", "to see it fail again", "--json")
	awaitDead(servers[0])
	say("", "requeue", "poisoned", "4")
	say("", "requeue", "--dead", "--limit", "5", "--reason", "all of them")
	awaitDead(servers[0])
	say("", "digest", "--campaign", "healthy")
	say("", "digest", "--campaign", "healthy", "--until", "2", "--json")
	say("", "digest", "--campaign", "nobody")
	say("", "projections", "list")
	say("", "check")
	say("", "gaps")
	servers[0].post(t, http.StatusOK, "/api/v1/campaigns/poisoned/pause", map[string]any{"reason": "for the test"})
	// Their self-check could repair at any moment what is broken here.
	for _, s := range servers {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	change(t, d.journal(), "delete from projection_apply_outbox where campaign_id = 'poisoned' and seq = 3")
	say("", "gaps", "--json")
	say("", "check")
	say("", "gaps", "--repair", "--reason", "rows were lost")
	say("", "gaps")
	return said.String()
}
