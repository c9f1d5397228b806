package store_test

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// scan is a step of a plan that reads a whole table or index. In the list of allowed scans,
// query is a part of the statement's text, and reason is why the scan is cheap.
type scan struct{ step, query, reason string }

// onlyAllowed fails for every scan found that is not allowed. It returns the unused allowances.
func onlyAllowed(t *testing.T, allowed, found []scan) (idle []scan) {
	used := make([]bool, len(allowed))
	for _, s := range found {
		i := slices.IndexFunc(allowed, func(a scan) bool { return strings.HasPrefix(s.step, a.step) && strings.Contains(s.query, a.query) })
		if i < 0 {
			t.Errorf("%s\n\tfor %s", s.step, s.query)
			continue
		}
		used[i] = true
	}
	for i, a := range allowed {
		if !used[i] {
			idle = append(idle, a)
		}
	}
	return idle
}

var sqliteScans = []scan{
	{"SCAN projection_apply_outbox", "select event_type, count(*)", "as many rows as a sample of the backlog counts"},
	{"SCAN loaded_sets", "distinct loaded", "one row for each deploy and projection"},
	{"SCAN projection_loads", "projection_loads", "a few rows for each projection"},
	{"SCAN (subquery", "as made", "their attempts"},
	{"SCAN r", "r.failed_seq is null", "what shadow mode found, once per shared snapshot"},
	{"SCAN o USING INDEX operations_open", "g.status = 'running'", "operations that run or that nobody has acknowledged yet"},
	{"SCAN o USING INDEX outbox_", "limit $3", "dead or failed rows alone, in the order of a bulk requeue, up to its limit"},
	{"SCAN campaigns USING INDEX campaigns_in_trouble", "from campaigns", "campaigns with failed or dead rows, or diverged"},
	{"SCAN campaigns USING INDEX campaigns_by_trouble", "sum(pending)", "those that diverged, once per shared snapshot"},
	{"SCAN campaigns", "sum(skips)", "the totals, once per shared snapshot, and less often where there are many"},
	{"SCAN campaigns", "order by lease_expires_at", "who holds what, once per shared snapshot"},
	{"SCAN campaigns", "select applied_span", "what a killed process did last, until another start notices it"},
	{"SCAN ", "set lease_expires_at = $1", "the leases of a process that is gone, once at the start of another"},
	{"SCAN operations USING INDEX operations_open", "acknowledged_at is null", "operations that run or that nobody has acknowledged yet"},
	{"SCAN runs USING INDEX runs_active", "finished_at is null", "runs that have not ended"},
	{"SCAN campaigns", "or high_water_seq < applied_seq then high_water_seq else applied_seq end), 0), count(*)", "what a run over all is about, once when it begins"},
	{"SCAN runs", "count(*) from runs", "how many there are, once a scrape"},
	{"SCAN v USING", "verdict = 'drift'", "what is not as it should be, up to the limit"},
	{"SCAN v USING", "verdict = 'failed'", "what could not be verified, once per shared snapshot"},
	{"SCAN verifications USING", "verdict = 'failed'", "what could not be verified, once per shared snapshot"},
	{"SCAN verifications USING", "as mismatched", "what is not as it should be, once per shared snapshot"},
	{"SCAN v USING COVERING INDEX verifications_found", "3 as sort_key", "what is not as it should be alone, up to the limit"},
	{"SCAN verifications USING", "group by projection, verdict", "what is not as it should be, once per evaluation of alerts"},
	{"SCAN events", "as newest", "the newest, up to a limit"},
	{"SCAN o", "as counted", "as many rows as are looked at to count"},
	{"SCAN o", ") as o", "the rows of one page"},
	{"SCAN audit_log", "as counted", "the newest, as many as are looked at to count"},
	{"SCAN campaigns", "as counted", "as many as are looked at to count"},
	{"SCAN campaigns", "substr(lease_owner, 1", "what a run holds, once when it is ended by others"},
	{"SCAN publisher_progress", "publisher_progress", "one row for each pair there ever was"},
	{"SCAN instances", "instances", "one row for each process of the last week"},
	{"SCAN event_types", "event_types", "one row for each registered event type"},
	{"SCAN tokens", "order by id desc", "newest first, up to the limit"},
	{"SCAN journal_identity", "journal_identity", "one row"},
	{"SCAN sqlite_sequence", "sqlite_sequence", "one row for each table that counts"},
	{"SCAN projection_versions", "projection_versions", "one row for each projection"},
	{"SCAN v", "from projection_versions v", "one row for each projection"},
	{"SCAN w", "insert into projection_versions", "until one was applied since, once at a start with another version"},
	{"SCAN r", "select distinct r.campaign_id", "wanted whole, by the check command only"},
	{"SCAN CONSTANT ROW", "select", "a constant"},
	{"SCAN pragma_page_", "pragma_page_", "one number"},
	{"SCAN pragma_table_xinfo", "pragma_table_xinfo", "the columns of one table"},
	{"SCAN 3-ROW VALUES CLAUSE", "tally_events", "the rows to insert"},
	{"SCAN sqlite_master", "sqlite_master", "the schema"},
	{"SCAN goose_db_version", "goose_db_version", "one row for each migration"},
}

func TestSQLitePlans_noStatementScansTheOutboxOrTheJournal(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	f.everything()
	statements := f.allStatements()
	f.Close()
	var found []scan
	for _, s := range statements {
		for _, step := range plan(t, f.database(s), s.Query) {
			if strings.HasPrefix(step, "SCAN") && !ofItsOwn(step, s.Query) {
				found = append(found, scan{step, s.Query, ""})
			}
		}
	}
	for _, a := range onlyAllowed(t, sqliteScans, found) {
		t.Errorf("nothing needs the allowance for %s in %q any more", a.step, a.query)
	}
}

// ofItsOwn reports whether a step scans what the statement gives a name to: further steps read for that. A table that is called alike makes it another matter.
func ofItsOwn(step, query string) bool {
	name := regexp.QuoteMeta(strings.Fields(step + " -")[1])
	named := regexp.MustCompile(`\b` + name + `( \([^()]*\))? as (not )?(materialized )?\(|\) (as )?` + name + `\b`)
	return named.MatchString(query) && !regexp.MustCompile(`\b(from|join) \w+ (as )?`+name+`\b`).MatchString(query)
}

// allStatements lists the statements of the store after everything was used.
func (f *fixture) allStatements() []store.Statement {
	statements := append(f.Statements(), f.swaps...)
	count := make(map[string]int)
	for _, s := range statements {
		count[s.Database]++
	}
	must.Need(f.TB, count["journal"] >= 65 && count["projections"] >= 17, "only %v statements were prepared; use all of the store", count)
	return statements
}

// database is the raw connection to the database of a statement.
func (f *fixture) database(s store.Statement) *sql.DB {
	if s.Database == "journal" {
		return f.JournalDB
	}
	return f.ProjectionsDB
}

func TestSQLitePlans_claimingUsesTheIndexOnDueTime(t *testing.T) {
	f := own(t)
	f.Applied("a", 1)
	_, _, err := f.UntilDue(f.Ctx, campaign.Scope{})
	must.Need(t, err == nil, "%v", err)
	found := 0
	for _, s := range f.Statements() {
		if !strings.Contains(s.Query, "due_at <= $1") && !strings.Contains(s.Query, "min(due_at)") {
			continue
		}
		found++
		steps := strings.Join(plan(t, f.JournalDB, s.Query), "; ")
		must.Hold(t, strings.Contains(steps, "USING") && (strings.Contains(steps, "INDEX campaigns_due") || strings.Contains(steps, "INDEX campaigns_suspects")) && !strings.Contains(steps, "TEMP B-TREE"), "%s\n\tfor %s", steps, s.Query)
	}
	must.Equal(t, found, 3, "statements look for due campaigns")
}

var parameter = regexp.MustCompile(`\$(\d+)`)

func plan(t *testing.T, db *sql.DB, query string) []string {
	switch word, _, _ := strings.Cut(strings.TrimSpace(query), " "); strings.TrimSpace(word) {
	case "begin", "commit", "rollback", "savepoint", "release", "pragma":
		return nil
	}
	most := 0
	for _, p := range parameter.FindAllStringSubmatch(query, -1) {
		n, _ := strconv.Atoi(p[1])
		most = max(most, n)
	}
	rows := must.Get(db.Query(`explain query plan `+query, make([]any, most)...)).Or(t)
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		must.OK(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	return steps
}

var postgresScans = []scan{
	{"seq scan of projection_watermarks", "projection_versions.built_version", "until one was applied since, once at a start with another version"},
	{"scan by projection_watermarks_pkey", "projection_versions.built_version", "until one was applied without it, once at a start"},
	{"scan by projection_cursors_pkey", "projection_versions.built_version", "until one was applied without it, once at a start"},
	{"scan by outbox_", "limit $3", "rows that failed alone, in the order of a bulk requeue, up to its limit"},
	{"seq scan of rehearsals", "r.failed_seq is null", "what shadow mode found, once per shared snapshot"},
	{"seq scan of campaigns", "r.failed_seq is null", "likewise"},
	{"scan by campaigns_paused", "paused_at is not null", "the campaigns that operators stopped"},
	{"seq scan of samples", "samples", "as long as there are few of them"},
	{"scan by samples_pkey", "samples", "the last sample, or those of a day"},
	{"seq scan of campaign_samples", "campaign_samples", "as long as there are few of them"},
	{"scan by projection_apply_outbox_pkey", "select event_type, count(*)", "as many rows as a sample of the backlog counts"},
	{"seq scan of projection_loads", "projection_loads", "a few rows for each projection"},
	{"scan by projection_loads_pkey", "projection_loads", "likewise"},
	{"scan by campaigns_in_trouble", "from campaigns", "campaigns with failed or dead rows, or diverged"},
	{"scan by campaigns_by_age", "coalesce(head_status, '') not in", "those that wait longest, up to the limit"},
	{"scan by campaigns_due", "min(due_at)", "its first entry"},
	{"scan by campaigns_by_age", "sum(pending)", "those that are behind, once per shared snapshot"},
	{"scan by campaigns_by_trouble", "from campaigns", "campaigns whose head failed or is dead, or that diverged"},
	{"seq scan of campaigns", "sum(skips)", "the totals, once per shared snapshot, and less often where there are many"},
	{"seq scan of campaigns", "substr(lease_owner, 1", "what a run holds, once when it is ended by others"},
	{"scan by campaigns_pkey", "substr(lease_owner, 1", "likewise"},
	{"seq scan of campaigns", "order by lease_expires_at", "who holds what, once per shared snapshot"},
	{"seq scan of campaigns", "select applied_span", "what a killed process did last, until another start notices it"},
	{"scan by ", "set lease_expires_at = $1", "the leases of a process that is gone, once at the start of another"},
	{"seq scan of campaigns", "sort_key", "by lag, which has no index here; by age only as long as the limit is not known, see the test below"},
	{"scan by operation_rows_open", "limit $3", "rows of running operations alone, to be left out of another"},
	{"scan by operations_open", "acknowledged_at is null", "operations that run or that nobody has acknowledged yet"},
	{"scan by operations_pkey", "order by id desc", "newest first, up to the limit"},
	{"scan by runs_active", "finished_at is null", "runs that have not ended"},
	{"scan by runs_pkey", "order by id desc", "newest first, up to the limit"},
	{"seq scan of runs", "count(*) from runs", "how many there are, once a scrape"},
	{"scan by verifications_drifted", "verdict = 'drift'", "what is not as it should be, up to the limit"},
	{"scan by events_pkey", "as newest", "the newest, up to a limit"},
	{"seq scan of views", "views", "at most 50 for each owner"},
	{"seq scan of pause_ends", "pause_ends", "one row for each pause that will end"},
	{"scan by pause_ends", "pause_ends", "likewise"},
	{"scan by verifications_found", ") as looked", "what is not as it should be alone, up to the limit"},
	{"scan by verifications_found", "group by projection, verdict", "what is not as it should be, once per evaluation of alerts"},
	{"scan by verifications_found", "as mismatched", "what is not as it should be, once per shared snapshot"},
	{"scan by verifications_failed", "verdict = 'failed'", "what could not be verified, once per shared snapshot"},
	{"seq scan of campaigns", "or high_water_seq < applied_seq then high_water_seq else applied_seq end), 0), count(*)", "what a run over all is about, once when it begins"},
	{"scan by audit_log_pkey", "order by id desc", "newest first, up to the limit"},
	{"scan by outbox_", "as counted", "dead or failed rows, as many as are looked at to count"},
	{"scan by projection_apply_outbox_pkey", "as counted", "as many rows as are looked at to count"},
	{"scan by campaigns_pkey", "as counted", "as many campaigns as are looked at to count"},
	{"scan by failures_pkey", "where f.first_at between", "the newest open failures, up to a limit, where most failures are open"},
	{"seq scan of publisher_progress", "publisher_progress", "one row for each pair there ever was"},
	{"scan by publisher_progress_pkey", "publisher_progress", "one row for each pair there ever was"},
	{"seq scan of instances", "instances", "one row for each process of the last week"},
	{"scan by tokens_pkey", "order by id desc", "newest first, up to the limit"},
	{"seq scan of audit_horizon", "removed_before", "one row"},
	{"seq scan of journal_identity", "journal_identity", "one row"},
	{"seq scan of event_types", "event_types", "one row for each registered event type"},
	{"seq scan of projection_versions", "projection_versions", "one row for each projection"},
	{"seq scan of", "select distinct r.campaign_id", "wanted whole, by the check command only"},
	{"seq scan of pg_", "pg_total_relation_size", "the catalog, for the page about this process"},
	{"scan by events_pkey", "coalesce(max(position), 0) from events", "its last entry"},
	{"seq scan of loaded_sets", "distinct loaded", "one row for each deploy and projection"},
	{"seq scan of goose_db_version", "goose_db_version", "one row for each migration"},
}

// largeTables are the tables with as many rows as after some weeks: a row for each i and n of two series, and what is not i, empty, or campaign x-i in it.
var largeTables = []struct{ table, i, n, given string }{
	{"campaigns", "1, 10000", "", `high_water_seq = 3; applied_seq = case when i % 4 = 0 then 0 else 3 end; head_seq = case when i % 4 = 0 then 1 end;
head_status = case when i % 400 = 0 then 'dead' when i % 200 = 0 then 'failed' when i % 4 = 0 then 'pending' end; head_next_attempt_at = case when i % 4 = 0 then i end;
oldest_enqueued_at = case when i % 4 = 0 then i end; due_at = case when i % 4 = 0 and i % 400 <> 0 then i end; lease_epoch = 1; lease_expires_at = 0;
pending = case when i % 4 = 0 then 3 else 0 end - case when i % 200 = 0 then 1 else 0 end; failed = case when i % 400 = 200 then 1 else 0 end;
dead = case when i % 400 = 0 then 1 else 0 end; lease_owner = case when i % 1000 = 4 then 'worker-' || i % 7 else '' end`},
	{"events", "1, 10000", "1, 3", `seq = n; event_id = 'e-' || n; event_type = 'counted'; tags = '{}'; metadata = '{}'; payload = '{}';
event_hash = md5(cast(i as text)); chain_hash = md5(cast(i as text))`},
	{"event_tags", "1, 30000", "1, 2", `name = (array['seat', 'show'])[n]; value = cast(i % 300 as text); event_type = 'counted'`},
	{"projection_apply_outbox", "4, 10000, 4", "1, 3", `seq = n; event_type = 'counted'; last_error = case when i % 200 = 0 then 'boom' else '' end;
status = case when n = 1 and i % 400 = 0 then 'dead' when n = 1 and i % 200 = 0 then 'failed' else 'pending' end; fingerprint = case when i % 200 = 0 then 'boom' else '' end`},
	{"attempts", "4, 10000, 4", "1, 8", `seq = 1; at = i + n; attempt = n; error = 'boom'; fingerprint = 'boom'`},
	{"audit_log", "1, 5000", "", `actor = 'ana'; via = 'page'; action = 'requeue'; campaign_id = 'x-' || i % 500; seq = 1; before = '{}'; after = '{}'; result = '{}';
idempotency_key = case when i % 3 = 0 then 'k-' || i else '' end`},
	{"applied_spans", "1, 1000", "1, 10", `first_seq = n; last_seq = n; loaded = 's-' || i % 7`},
	{"loaded_sets", "1, 1000", "1, 3", `loaded = 's-' || i; projection = 'p-' || n; version = 'v-' || i`},
	{"audit_log_rows", "1, 1000", "1, 10", `campaign_id = 'x-' || n; first_seq = 1; last_seq = 3`},
	{"projection_loads", "1, 50", "1, 100", `projection = 'p-' || i; at = n; version = md5(cast(n as text))`},
	{"samples", "1, 11000", "", ``},
	{"campaign_samples", "1, 100", "1, 200", `minute = n`},
	{"publisher_samples", "1, 10", "1, 2000", `topic = 't-' || i; minute = n`},
	{"series_samples", "0, 99", "1, 200", `kind = (array['applied', 'failures', 'delay', 'backlog', 'behind'])[i % 5 + 1]; step = case when i % 2 = 0 then 60 else 900 end;
at = n * 1000000::bigint; label = 'l-' || i / 10`},
	{"operations", "100, 2000", "", `kind = 'requeue'; status = case when i % 50 = 0 then 'running' else 'done' end; acknowledged_at = case when i % 50 = 0 then null else i end; canary = 1`},
	{"operation_groups", "100, 2000", "1, 3", `number = n; fingerprint = 'f-' || n; status = case when i % 50 = 0 then 'running' else 'done' end`},
	{"operation_rows", "100, 2000", "1, 8", `campaign_id = 'x-' || i * 20 + n; seq = 1; ordinal = n; group_number = 1 + n % 3; fingerprint = 'f-' || n % 3; wave = 1;
status = case when i % 50 = 0 then 'waiting' else 'done' end; finished_at = case when i % 50 = 0 then null else i end`},
	{"runs", "100, 3000", "", `kind = case when i % 2 = 0 then 'verify' else 'rebuild' end; status = case when i % 500 = 0 then 'running' else 'completed' end; campaign_ids = '[]';
projections = '["p-1"]'; versions = '{}'; all_campaigns = 1; finished_at = case when i % 500 = 0 then null else i end`},
	{"run_rehearsals", "100, 3000", "", `versions = '{}'`},
	{"run_scopes", "100, 3000", "1, 3", `campaign_id = case when i % 3 = 0 then '' else 'x-' || i end; projection = 'p-' || n; active = 0`},
	{"run_scopes", "1, 1000", "1, 3", `run_id = 90000; projection = 'p-' || n; active = 1`},
	{"run_results", "1, 2000", "100, 110", `run_id = n; outcome = case when i % 100 = 0 then 'drift' else 'match' end; projections = '[]'`},
	{"run_log", "1, 5000", "", `run_id = 100 + i % 50; text = 'boom'`},
	{"verifications", "1, 5000", "1, 3", `projection = 'p-' || n; verdict = case when i % 200 = 0 then 'drift' when i % 300 = 0 then 'failed' else 'match' end`},
	{"instances", "1, 20", "", `id = 'i-' || i; mode = 'outbox_apply_only'`},
	{"tokens", "1, 5000", "", `hash = 'h-' || i; role = 'viewer'`},
	{"skips", "1, 20000", "", `campaign_id = 'x-' || i % 5000; undone_at = case when i % 3 = 0 then i end`},
	{"rehearsals", "1, 2000", "", ``},
	{"projection_watermarks", "1, 10000", "", `applied_seq = 3`},
	{"watermark_skips", "1, 20000", "", `campaign_id = 'x-' || i % 5000`},
	{"projection_cursors", "1, 3000", "", `projection = 'p-' || i % 30; applied_seq = 1; state = 'quarantined'`},
	{"failures", "1, 3000", "", `projection = 'p-' || i % 3; seq = 1`},
}

// fill fills the large tables of both databases, and analyzes them.
func (f *fixture) fill() {
	for _, t := range largeTables {
		values := map[string]string{}
		for pair := range strings.SplitSeq(t.given, ";") {
			if name, value, given := strings.Cut(strings.TrimSpace(pair), " = "); given {
				values[name] = value
			}
		}
		db := f.JournalDB
		if slices.Contains([]string{"projection_watermarks", "watermark_skips", "projection_cursors", "failures"}, t.table) {
			db = f.ProjectionsDB
		}
		for _, column := range storetest.Texts(f.TB, db, `
select column_name || ' ' || data_type
from information_schema.columns
where table_schema = current_schema() and table_name = $1 and is_nullable = 'NO' and column_default is null and is_identity = 'NO'`, t.table) {
			name, kind, _ := strings.Cut(column, " ")
			empty := map[string]string{"text": "''"}[kind]
			values[name] = cmp.Or(values[name], map[string]string{"campaign_id": "'x-' || i"}[name], empty, "i")
		}
		names, texts := slices.Sorted(maps.Keys(values)), []string{}
		for _, name := range names {
			texts = append(texts, values[name])
		}
		_, err := db.Exec(fmt.Sprintf(`insert into %s ("%s") select %s from generate_series(%s) i, generate_series(%s) n`,
			t.table, strings.Join(names, `", "`), strings.Join(texts, ", "), t.i, cmp.Or(t.n, "1, 1")))
		must.Need(f.TB, err == nil, "fill %s: %v", t.table, err)
	}
	f.Exec(`analyze`)
	f.ExecProjections(`analyze`)
}

func TestPostgresPlans_noStatementScansALargeTable(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	f.everything()
	statements := f.allStatements()
	var found []scan
	look := func(which func(store.Statement) bool) {
		leading, planners := f.leading(), make(map[string]*pgx.Conn)
		for i, s := range statements {
			if !which(s) {
				continue
			}
			settings := fmt.Sprintf(`set plan_cache_mode = force_generic_plan; set enable_seqscan = %v`, !s.Writes)
			if planners[s.Database+settings] == nil {
				planners[s.Database+settings] = f.planner(s.Database, settings)
			}
			for _, step := range f.generic(planners[s.Database+settings], i, s).scans(leading) {
				found = append(found, scan{step, s.Query, ""})
			}
		}
	}
	// Writing statements must use indexes even if a table was empty a moment ago and the planner still assumes so.
	look(func(s store.Statement) bool { return s.Writes })
	if !testing.Short() {
		f.fill()
		look(func(store.Statement) bool { return true })
		f.pagesScanNothing(statements)
	}
	onlyAllowed(t, postgresScans, found) // other server versions need other allowances
}

// pages are statements with parameters as for a page in the middle of a list.
var pages = []struct {
	query string // a part of the statement's text
	args  string
}{
	{"oldest_enqueued_at, campaign_id\n    limit 2000\n) as looked\n  where true and", `5000, 'x-5000', '', 51`},
	{"oldest_enqueued_at desc, campaign_id desc\n    limit 2000\n) as looked\n  where true and", `5000, 'x-5000', '', 51`},
	{"campaign_id > $2\n      and true\n    order by campaign_id\n    limit 3000\n) as looked\n  where true and", `0, 'x-3', '', 51`},
	{"campaign_id < $2\n      and true\n    order by campaign_id desc\n    limit 3000\n) as looked\n  where true and", `0, 'x-3', '', 51`},
	{"(o.campaign_id, o.seq) > ($1, $2)\n  order by", `'x-3', 1, 51`},
	{"(o.campaign_id, o.seq) < ($1, $2)\n  order by", `'x-3', 1, 51`},
	{"o.status = 'dead'\n  and o.attempt_count > 0\n  and (o.next_attempt_at, o.seq, o.campaign_id) >", `5000, 1, 'x-5000', 51`},
	{"o.status = 'dead'\n  and o.attempt_count > 0\n  and (o.next_attempt_at, o.seq, o.campaign_id) <", `5000, 1, 'x-5000', 51`},
	{"o.status = 'failed'\n  and o.attempt_count > 0\n  and (o.next_attempt_at, o.seq, o.campaign_id) >", `5000, 1, 'x-5000', 51`},
	{"o.status = 'failed'\n  and o.attempt_count > 0\n  and (o.next_attempt_at, o.seq, o.campaign_id) <", `5000, 1, 'x-5000', 51`},
	{"and o.campaign_id >= $1", `'', 1, 'x-3000', 51`},
	{"and o.campaign_id <= $1", `'x-3000', 3, 'x-3000', 51`},
	{"where id < $1\norder by id desc", `3000, 51`},
	{"where id > $1\norder by id\n", `3000, 51`},
	{"and (due_at, campaign_id) > ($3, $4)\n  and crashes < 2\norder by", `5000, 8, -1, ''`},
	{"where position > $1\n  and position <= $2", `15000, 9223372036854775807, 1000`},
	{"where position > $1\n  and position < $2", `15000, 9223372036854775807, 1000`},
	{"where position > $1\norder by position", `15000, 1000`},
	{"event_type\nfrom event_tags\nwhere name = $1", `'seat', '7', 100, 9223372036854775807, 32`},
	{"(select 1\nfrom event_tags", `'seat', '7', 100, 9223372036854775807, 1000`},
	{"event_type\nfrom events\nwhere event_type = $1", `'nobody', 100, 9223372036854775807, 32`},
	{"(select 1\nfrom events\nwhere event_type = $1", `'nobody', 100, 9223372036854775807, 1000`},
	{"event_type\nfrom events\nwhere campaign_id = $1\n  and seq > $2", `'x-5000', 1, 9223372036854775807, 32`},
	{"(select 1\nfrom events\nwhere campaign_id = $1", `'x-5000', 1, 9223372036854775807, 1000`},
	{"where (name, value, position) >", `'seat', '7', 1, 2000`},
}

// pagesScanNothing checks generic plans of pages: after a few executions the server may stop
// planning with the parameters if the generic plan looks as good.
func (f *fixture) pagesScanNothing(statements []store.Statement) {
	leading := f.leading()
	conn := f.planner("journal", `set plan_cache_mode = auto`)
	for i, page := range pages {
		found := 0
		for _, s := range statements {
			if s.Database != "journal" || !strings.Contains(s.Query, page.query) {
				continue
			}
			found++
			name := fmt.Sprint("page_", i)
			storetest.Run(f.TB, conn, `prepare `+name+` as `+s.Query)
			for range 8 {
				for _, step := range f.explain(conn, name+`(`+page.args+`)`).scans(leading) {
					f.TB.Errorf("%s\n\tfor %s", step, s.Query)
				}
			}
		}
		must.Equal(f.TB, found, 1, "statements have", page.query, "in them")
	}
}

func (f *fixture) planner(database, settings string) *pgx.Conn {
	conn := storetest.Connect(f.TB, map[string]string{"journal": f.Pair.Journal, "projections": f.Pair.Projections}[database])
	storetest.Run(f.TB, conn, strings.Split(settings, "; ")...)
	return conn
}

type node struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	Condition string `json:"Index Cond"`
	Plans     []node
}

// scans lists the steps below n that read a whole table or index. leading is the first column
// of every index; without a condition on it the whole index must be read.
func (n node) scans(leading map[string]string) (steps []string) {
	switch {
	case n.Type == "Seq Scan":
		steps = append(steps, "seq scan of "+n.Relation)
	case n.Index != "" && (n.Condition == "" || !strings.Contains(bare(n.Condition), bare(leading[n.Index]))):
		steps = append(steps, "scan by "+n.Index)
	}
	for _, below := range n.Plans {
		steps = append(steps, below.scans(leading)...)
	}
	return steps
}

// bare is an expression without what two ways of printing it differ in.
func bare(expression string) string {
	return strings.NewReplacer(" ", "", "\n", "", "(", "", ")", "").Replace(expression)
}

func (f *fixture) leading() map[string]string {
	columns := make(map[string]string)
	for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
		for _, line := range storetest.Texts(f.TB, db, `
select indexrelid::regclass || ' ' || pg_get_indexdef(indexrelid, 1, true)
from pg_index
where indrelid in (select oid from pg_class where relnamespace = cast(current_schema() as regnamespace))`) {
			index, column, _ := strings.Cut(line, " ")
			columns[index] = column
		}
	}
	return columns
}

// generic is the plan of a statement with unknown parameters.
func (f *fixture) generic(conn *pgx.Conn, i int, s store.Statement) node {
	switch word, _, _ := strings.Cut(strings.TrimSpace(s.Query), "\n"); strings.Fields(word)[0] {
	case "select", "insert", "update", "delete", "with":
	default:
		return node{}
	}
	name := fmt.Sprint("s", i)
	var parameters []string
	storetest.Run(f.TB, conn, `prepare `+name+` as `+s.Query)
	must.OK(f.TB, conn.QueryRow(f.Ctx, `select cast(parameter_types as text[]) from pg_prepared_statements where name = $1`, name).Scan(&parameters))
	for _, kind := range parameters {
		// Numbers of the store have 64 bits, whatever type the server infers.
		must.Hold(f.TB, kind != "integer" || strings.Contains(s.Query, "hashtext"), "a parameter is %s, want bigint, in %s", kind, s.Query)
	}
	nulls := strings.TrimSuffix(strings.Repeat("null, ", len(parameters)), ", ")
	if nulls != "" {
		nulls = "(" + nulls + ")"
	}
	return f.explain(conn, name+nulls)
}

func (f *fixture) explain(conn *pgx.Conn, execution string) node {
	var answer []byte
	err := conn.QueryRow(f.Ctx, `explain (format json) execute `+execution, pgx.QueryExecModeSimpleProtocol).Scan(&answer)
	must.Need(f.TB, err == nil, "explain %s: %v", execution, err)
	var plans []struct{ Plan node }
	err = json.Unmarshal(answer, &plans)
	must.Need(f.TB, err == nil && len(plans) == 1, "explain %s: %s, %v", execution, answer, err)
	return plans[0].Plan
}
