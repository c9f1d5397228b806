package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/bench"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/size"
)

func TestPostgresBench(t *testing.T) {
	t.Parallel()
	size.Full(t, "bench on SQLite is in every run, in a script")
	server := must.Get(postgres()).Or(t)
	for name, test := range map[string]func(t *testing.T, journal, projections string){
		"measures all":   benchMeasuresAll,
		"behind a proxy": benchBehindAProxy,
		"interrupted":    benchInterrupted,
		"refused":        benchRefused,
	} {
		t.Run(name, func(t *testing.T) {
			journal, projections := databases(t, server)
			test(t, journal, projections)
			mustLeaveNothing(t, journal, projections)
		})
	}
}

// databases makes two databases, the first with a table of another user.
func databases(t *testing.T, s *pgtest.Server) (journal, projections string) {
	prefix := strings.ReplaceAll(t.Name()[strings.Index(t.Name(), "/")+1:], "_", "")
	for _, name := range []string{prefix + "_app", prefix + "_views"} {
		must.OK(t, s.CreateDatabase(t.Context(), name))
	}
	journal, projections = s.URL(prefix+"_app"), s.URL(prefix+"_views")
	ask(t, journal, "create table events (id int); insert into events values (1)")
	return journal, projections
}

// ask runs a query directly on the database and returns its answer as lines.
func ask(t *testing.T, url, query string) []string {
	conn := must.Get(pgx.Connect(t.Context(), url)).Or(t)
	defer conn.Close(context.Background())
	results := must.Get(conn.PgConn().Exec(t.Context(), query).ReadAll()).Or(t)
	var lines []string
	for _, row := range results[len(results)-1].Rows {
		lines = append(lines, string(bytes.Join(row, []byte(" "))))
	}
	return lines
}

// everything lists the user objects of a database.
const everything = `
select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
union all
select schemaname || '.' || relname from pg_stat_user_tables
order by 1`

func mustLeaveNothing(t *testing.T, journal, projections string) {
	must.Equal(t, ask(t, journal, everything), []string{"public", "public.events"}, "the journal database")
	must.Equal(t, ask(t, projections, everything), []string{"public"}, "the projections database")
	must.Equal(t, ask(t, journal, "select id from events"), []string{"1"}, "public.events")
}

func benchMeasuresAll(t *testing.T, journal, projections string) {
	args, names := []string{"bench", "--json", "--scale", "0.01", "--journal-db", journal, "--projections-db", projections}, []string{
		"append_1_caller", "append_16_callers", "append_batches_of_100",
		"drain_1x100k_1_worker", "drain_1x100k_4_workers",
		"drain_100x1k_1_worker", "drain_100x1k_4_workers", "drain_100x1k_2_instances",
		"drain_10000x10_1_worker", "drain_10000x10_4_workers", "drain_10000x10_2_instances", "drain_10000x10_random_4_workers",
		"drain_100000x1_4_workers", "drain_100000x1_random_4_workers",
	}
	if !size.Soak() { // some of each kind of work
		names = []string{names[2], names[7], names[9]}
		args = append(args, "--only", strings.Join(names, ","))
	}
	stdout, stderr, code := here(t.Context(), args...)
	must.Need(t, code == exitDone, "exit code %d: %s", code, stderr)
	var result bench.Result
	must.OK(t, json.Unmarshal([]byte(stdout), &result))
	var got []string
	for _, m := range result.Results {
		got = append(got, m.Name)
		must.Hold(t, m.Events > 0 && m.Seconds > 0 && m.EventsPerSecond > 0, "%+v", m)
	}
	must.Equal(t, got, names, "measurements")
	must.Hold(t, result.CommitsPerSecond > 0 && result.FsyncPerSecond == 0 && result.Dir == "", "it measured %+v", result)
	must.Hold(t, strings.HasPrefix(result.Server, "PostgreSQL ") && strings.Contains(result.Server, "fsync off"), "server %q", result.Server)
}

// A proxy that pools transactions keeps no setting and no prepared statement.
func benchBehindAProxy(t *testing.T, journal, projections string) {
	_, stderr, code := here(t.Context(), "bench", "--scale", "0.01", "--only", "drain_10000x10_1", "--only", "append_1", "--journal-db", must.Get(postgres()).Or(t).Pooler(t)(journal), "--projections-db", projections)
	must.Need(t, code == exitDone, "exit code %d: %s", code, stderr)
}

func benchInterrupted(t *testing.T, journal, projections string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stderr string
	ended := make(chan int, 1)
	go func() {
		var code int
		_, stderr, code = here(ctx, "bench", "--scale", "0.05", "--only", "drain_10000x10", "--journal-db", journal, "--projections-db", projections)
		ended <- code
	}()
	must.Eventually(t, "something is drained", func() bool {
		return len(ask(t, projections, "select 1 from pg_tables where tablename = 'bench_tokens'")) > 0
	})
	cancel()
	code := <-ended
	must.Hold(t, code == exitFailed && strings.HasSuffix(stderr, "outboxweb: interrupted\n"), "exit code %d: %s", code, stderr)
}

// The role may make the journal's schema and not the projections'.
func benchRefused(t *testing.T, journal, projections string) {
	ask(t, journal, "create role guest login; grant create on database refused_app to guest")
	as := func(url string) string { return strings.Replace(url, "postgres@", "guest@", 1) }
	_, stderr, code := here(t.Context(), "bench", "--scale", "0.01", "--only", "append_1_caller", "--journal-db", as(journal), "--projections-db", as(projections))
	must.Hold(t, code == exitUsage && strings.Contains(stderr, "cannot be created: permission denied for database refused_views"), "exit code %d: %s", code, stderr)
}
