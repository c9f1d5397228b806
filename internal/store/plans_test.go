package store_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
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
	{"SCAN seen", "select event_type, count(*)", "those rows"},
	{"SCAN projection_loads", "projection_loads", "a few rows for each projection"},
	{"SCAN early", "as early", "rows of one error, up to its share, once per shared snapshot"},
	{"SCAN late", "as late", "likewise"},
	{"SCAN k", "as k", "those rows"},
	{"SCAN (subquery", "as made", "their attempts"},
	{"SCAN made", "as made", "their attempts"},
	{"SCAN r", "r.failed_seq is null", "what shadow mode found, once per shared snapshot"},
	{"SCAN r", "limit $2) as r", "rows of one error, up to its share, once per shared snapshot"},
	{"SCAN o USING INDEX operations_open", "g.status = 'running'", "operations that run or that nobody has acknowledged yet"},
	{"SCAN o USING INDEX outbox_", "limit $3", "dead or failed rows alone, in the order of a bulk requeue, up to its limit"},
	{"SCAN campaigns USING INDEX campaigns_in_trouble", "from campaigns", "campaigns with failed or dead rows, or diverged"},
	{"SCAN campaigns", "sum(pending)", "the totals, once per shared snapshot"},
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
	{"SCAN mismatched", "as mismatched", "those campaigns"},
	{"SCAN page", "sort_key", "the rows of one page"},
	{"SCAN ranked", "as ranked", "the campaigns of one page"},
	{"SCAN found", "as found", "the campaigns of one page"},
	{"SCAN either", "as either", "the campaigns of one page"},
	{"SCAN v USING COVERING INDEX verifications_found", "3 as sort_key", "what is not as it should be alone, up to the limit"},
	{"SCAN verifications USING", "group by projection, verdict", "what is not as it should be, once per evaluation of alerts"},
	{"SCAN h", "as h", "the heads of one page"},
	{"SCAN types", "recursive types", "one row for each event type in use, up to a limit"},
	{"SCAN events", "as newest", "the newest, up to a limit"},
	{"SCAN newest", "as newest", "those"},
	{"SCAN o", "limit $5", "as many rows as are looked at to count"},
	{"SCAN o", ") as o", "the rows of one page"},
	{"SCAN audit_log", "limit $11", "the newest, as many as are looked at to count"},
	{"SCAN near", "as near", "the spans next to an event, up to the limit"},
	{"SCAN named", "as named", "those acts, up to the limit"},
	{"SCAN ranged", "as ranged", "those acts, up to the limit"},
	{"SCAN chosen", "as chosen", "those acts, up to the limit"},
	{"SCAN campaigns", "limit $3", "as many as are looked at to count"},
	{"SCAN c", "limit $3", "those that are counted"},
	{"SCAN a", "limit $11", "those that are counted"},
	{"SCAN campaigns", "substr(lease_owner, 1", "what a run holds, once when it is ended by others"},
	{"SCAN c", "group by c.state", "those that are counted, up to a limit"},
	{"SCAN f", "limit $2\n) as f", "open failures of a projection, up to a limit"},
	{"SCAN f", "where f.first_at between", "the newest open failures, up to a limit"},
	{"SCAN publisher_progress", "publisher_progress", "one row for each pair there ever was"},
	{"SCAN e", "position between $1 and $2", "those that are counted, up to a limit"},
	{"SCAN instances", "instances", "one row for each process of the last week"},
	{"SCAN event_types", "event_types", "one row for each registered event type"},
	{"SCAN tokens", "order by id desc", "newest first, up to the limit"},
	{"SCAN journal_identity", "journal_identity", "one row"},
	{"SCAN CONSTANT ROW", "insert into events", "the one event to insert"},
	{"SCAN projection_versions", "projection_versions", "one row for each projection"},
	{"SCAN v", "from projection_versions v", "one row for each projection"},
	{"SCAN w", "insert into projection_versions", "until one was applied since, once at a start with another version"},
	{"SCAN ids", "with recursive ids", "the campaigns of one page"},
	{"SCAN r", "select distinct r.campaign_id", "wanted whole, by the check command only"},
	{"SCAN CONSTANT ROW", "select", "a constant"},
	{"SCAN pragma_page_", "pragma_page_", "one number"},
	{"SCAN pragma_table_xinfo", "pragma_table_xinfo", "the columns of one table"},
	{"SCAN 3-ROW VALUES CLAUSE", "tally_events", "the rows to insert"},
	{"SCAN n", "select count(*) from", "what may be in the way of an append, up to a limit"},
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
			if strings.HasPrefix(step, "SCAN") {
				found = append(found, scan{step, s.Query, ""})
			}
		}
	}
	for _, a := range onlyAllowed(t, sqliteScans, found) {
		t.Errorf("nothing needs the allowance for %s in %q any more", a.step, a.query)
	}
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
	f.AppendN("a", 1)
	f.Drain()
	_, _, err := f.UntilDue(f.Ctx, outbox.Scope{})
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
	rows, err := db.Query(`explain query plan `+query, make([]any, most)...)
	must.Need(t, err == nil, "explain %s: %v", query, err)
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
	{"scan by campaigns_due", "min(due_at)", "its first entry"},
	{"seq scan of campaigns", "sum(pending)", "the totals, once per shared snapshot"},
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
	{"scan by verifications_found", "3 as sort_key", "what is not as it should be alone, up to the limit"},
	{"scan by verifications_found", "group by projection, verdict", "what is not as it should be, once per evaluation of alerts"},
	{"scan by verifications_found", "as mismatched", "what is not as it should be, once per shared snapshot"},
	{"scan by verifications_failed", "verdict = 'failed'", "what could not be verified, once per shared snapshot"},
	{"seq scan of campaigns", "or high_water_seq < applied_seq then high_water_seq else applied_seq end), 0), count(*)", "what a run over all is about, once when it begins"},
	{"scan by audit_log_pkey", "order by id desc", "newest first, up to the limit"},
	{"scan by outbox_", "limit $5", "dead or failed rows, as many as are looked at to count"},
	{"scan by projection_apply_outbox_pkey", "limit $5", "as many rows as are looked at to count"},
	{"scan by campaigns_pkey", "limit $3", "as many campaigns as are looked at to count"},
	{"scan by failures_pkey", "where f.first_at between", "the newest open failures, up to a limit, where most failures are open"},
	{"seq scan of publisher_progress", "publisher_progress", "one row for each pair there ever was"},
	{"scan by publisher_progress_pkey", "publisher_progress", "one row for each pair there ever was"},
	{"seq scan of instances", "instances", "one row for each process of the last week"},
	{"seq scan of projection_loads", "projection_loads", "one row for each deploy of a projection in some days"},
	{"scan by tokens_pkey", "order by id desc", "newest first, up to the limit"},
	{"seq scan of audit_horizon", "removed_before", "one row"},
	{"seq scan of journal_identity", "journal_identity", "one row"},
	{"seq scan of event_types", "event_types", "one row for each registered event type"},
	{"seq scan of projection_versions", "projection_versions", "one row for each projection"},
	{"seq scan of", "select distinct r.campaign_id", "wanted whole, by the check command only"},
	{"seq scan of pg_", "pg_total_relation_size", "the catalog, for the page about this process"},
	{"scan by events_pkey", "coalesce(max(position), 0) from events", "its last entry"},
	{"seq scan of goose_db_version", "goose_db_version", "one row for each migration"},
}

// fill inserts as many rows into every large table as a journal has after some weeks, and analyzes them.
func (f *fixture) fill() {
	for _, statement := range []string{`
insert into campaigns (campaign_id, high_water_seq, applied_seq, head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at,
  pending, failed, dead, lease_owner, lease_epoch, lease_expires_at, created_at, updated_at)
select 'x-' || i, 3, case when i % 4 = 0 then 0 else 3 end,
  case when i % 4 = 0 then 1 end, case when i % 400 = 0 then 'dead' when i % 200 = 0 then 'failed' when i % 4 = 0 then 'pending' end,
  case when i % 4 = 0 then i end, case when i % 4 = 0 then i end, case when i % 4 = 0 and i % 400 <> 0 then i end,
  case when i % 4 = 0 then 3 else 0 end - case when i % 200 = 0 then 1 else 0 end, case when i % 400 = 200 then 1 else 0 end, case when i % 400 = 0 then 1 else 0 end,
  case when i % 1000 = 4 then 'worker-' || i % 7 else '' end, 1, 0, i, i
from generate_series(1, 10000) i`, `
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
select 'x-' || i, seq, 'e-' || seq, 'counted', i, i, '', '', '', '', '', '', '', '', '{}', '{}', '{}', md5(cast(i as text)), md5(cast(i as text))
from generate_series(1, 10000) i, generate_series(1, 3) seq`, `
insert into event_tags (name, value, position, event_type)
select name, cast(i % 300 as text), i, 'counted'
from generate_series(1, 30000) i, (values ('seat'), ('show')) n (name)`, `
insert into projection_apply_outbox (campaign_id, seq, event_type, status, next_attempt_at, last_error, fingerprint, enqueued_at, updated_at)
select 'x-' || i, seq, 'counted', case when seq = 1 and i % 400 = 0 then 'dead' when seq = 1 and i % 200 = 0 then 'failed' else 'pending' end,
  i, case when i % 200 = 0 then 'boom' else '' end, case when i % 200 = 0 then 'boom' else '' end, i, i
from generate_series(4, 10000, 4) i, generate_series(1, 3) seq`, `
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
select 'x-' || i, 1, i + n, n, 'w', 'b', 'boom', 'boom'
from generate_series(4, 10000, 4) i, generate_series(1, 8) n`, `
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
select i, 'ana', 'page', '', 'requeue', 'x-' || i % 500, 1, '{}', '{}', '', '', case when i % 3 = 0 then 'k-' || i else '' end, '{}'
from generate_series(1, 5000) i`, `
insert into applied_spans (campaign_id, first_seq, last_seq, began_at, ended_at, worker, build)
select 'x-' || i, n, n, n, n, 'w', 'b'
from generate_series(1, 1000) i, generate_series(1, 10) n`, `
insert into audit_log_rows (entry_id, campaign_id, first_seq, last_seq, at)
select i, 'x-' || n, 1, 3, i
from generate_series(1, 1000) i, generate_series(1, 10) n`, `
insert into projection_loads (projection, at, version, previous, instance, host)
select 'p-' || i, n, md5(cast(n as text)), 'before', 'w', 'h'
from generate_series(1, 50) i, generate_series(1, 100) n`, `
insert into samples (minute, pending, processing, failed, dead, lag_events, blocked, applied_total, failed_total)
select i, 0, 0, 0, 0, 0, 0, i, 0
from generate_series(1, 11000) i`, `
insert into campaign_samples (campaign_id, minute, lag_events, oldest_enqueued_at)
select 'x-' || i, n, 1, 1
from generate_series(1, 100) i, generate_series(1, 200) n`, `
insert into publisher_samples (topic, publisher, minute, delivered, lag_events, error_count)
select 't-' || i, 'p', n, n, 0, 0
from generate_series(1, 10) i, generate_series(1, 2000) n`, `
insert into series_samples (kind, step, at, label, source, value)
select k, s, n * s * 1000000::bigint, 'l-' || i, 'w', 1
from unnest(array['applied', 'failures', 'delay', 'backlog', 'behind']) k, unnest(array[60, 900]) s, generate_series(1, 200) n, generate_series(1, 10) i`, `
insert into operations (kind, status, canary, filter, started_by, via, reason, request_id, started_at, updated_at, acknowledged_at)
select 'requeue', case when i % 50 = 0 then 'running' else 'done' end, 1, '', 'ana', 'page', '', '', i, i, case when i % 50 = 0 then null else i end
from generate_series(100, 2000) i`, `
insert into operation_groups (operation_id, number, fingerprint, example, row_count, status, wave, updated_at)
select i, n, 'f-' || n, '', 10, case when i % 50 = 0 then 'running' else 'done' end, 1, i
from generate_series(100, 2000) i, generate_series(1, 3) n`, `
insert into operation_rows (operation_id, campaign_id, seq, ordinal, group_number, event_type, fingerprint, frozen_updated_at, frozen_attempts, watch_seq, wave, status, finished_at)
select i, 'x-' || i * 20 + n, 1, n, 1 + n % 3, 'counted', 'f-' || n % 3, i, 8, 3, 1, case when i % 50 = 0 then 'waiting' else 'done' end, case when i % 50 = 0 then null else i end
from generate_series(100, 2000) i, generate_series(1, 8) n`, `
insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at, finished_at)
select case when i % 2 = 0 then 'verify' else 'rebuild' end, case when i % 500 = 0 then 'running' else 'completed' end, '[]', 1, '["p-1"]', '{}', '', 'ana', 'page', '', i, i, case when i % 500 = 0 then null else i end
from generate_series(100, 3000) i`, `
insert into run_scopes (run_id, campaign_id, projection, active)
select i, case when i % 3 = 0 then '' else 'x-' || i end, 'p-' || n, 0
from generate_series(100, 3000) i, generate_series(1, 3) n`, `
insert into run_scopes (run_id, campaign_id, projection, active)
select 90000, 'x-' || i, 'p-' || n, 1
from generate_series(1, 1000) i, generate_series(1, 3) n`, `
insert into run_results (run_id, campaign_id, outcome, seq, events, full_digest, projections, error, at)
select n, 'x-' || i, case when i % 100 = 0 then 'drift' else 'match' end, 3, 3, '', '[]', '', i
from generate_series(1, 2000) i, generate_series(100, 110) n`, `
insert into run_log (run_id, at, campaign_id, text)
select 100 + i % 50, i, 'x-' || i, 'boom'
from generate_series(1, 5000) i`, `
insert into verifications (campaign_id, projection, at, seq, verdict, run_id, digest, added, changed, removed, first_seq)
select 'x-' || i, 'p-' || n, i, 3, case when i % 200 = 0 then 'drift' when i % 300 = 0 then 'failed' else 'match' end, 100, '', 0, 0, 0, 0
from generate_series(1, 5000) i, generate_series(1, 3) n`, `
insert into instances (id, host, pid, version, mode, started_at, last_seen)
select 'i-' || i, 'h', i, 'v', 'outbox_apply_only', i, i
from generate_series(1, 20) i`, `
insert into tokens (hash, role, note, created_at, created_by, expires_at)
select 'h-' || i, 'viewer', '', i, 'ana', i
from generate_series(1, 5000) i`, `
insert into skips (campaign_id, seq, event_type, error, skipped_at, skipped_by, reason, undone_at)
select 'x-' || i % 5000, i, 'counted', 'boom', i, 'ana', '', case when i % 3 = 0 then i end
from generate_series(1, 20000) i`, `
insert into rehearsals (campaign_id, rehearsed_seq, at)
select 'x-' || i, 1, i
from generate_series(1, 2000) i`, `
analyze`} {
		f.Exec(statement)
	}
	for _, statement := range []string{`
insert into projection_watermarks (campaign_id, applied_seq, updated_at)
select 'x-' || i, 3, i
from generate_series(1, 10000) i`, `
insert into watermark_skips (campaign_id, seq, skip_id, at)
select 'x-' || i % 5000, i, i, i
from generate_series(1, 20000) i`, `
insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at)
select 'x-' || i, 'p-' || i % 30, 1, 'quarantined', i
from generate_series(1, 3000) i`, `
insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at)
select 'x-' || i, 'p-' || i % 3, 1, 'counted', '', '', 8, i, i
from generate_series(1, 3000) i`, `
analyze`} {
		f.ExecProjections(statement)
	}
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
	{"coalesce(oldest_enqueued_at, 4611686018427387904) >= $1", `5000, 'x-5000', '', 51`},
	{"coalesce(oldest_enqueued_at, 4611686018427387904) <= $1", `5000, 'x-5000', '', 51`},
	{"campaign_id > $2\n  and cast($1 as bigint) = 0\n  and ($3 = '' or replace", `0, 'x-3', '', 51`},
	{"campaign_id < $2\n  and cast($1 as bigint) = 0\n  and ($3 = '' or replace", `0, 'x-3', '', 51`},
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
