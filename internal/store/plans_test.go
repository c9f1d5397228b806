package store_test

import (
	"database/sql"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

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
	t.Helper()
	used := make([]bool, len(allowed))
	for _, s := range found {
		i := slices.IndexFunc(allowed, func(a scan) bool {
			return strings.HasPrefix(s.step, a.step) && strings.Contains(s.query, a.query)
		})
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
	{"SCAN campaigns", "set lease_expires_at = $1", "the leases of a worker that is gone, once at the start of another"},
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
	t.Parallel()
	f := open(t, storetest.MaxAttempts(2))
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
	t.Parallel()
	f := open(t)
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

// plan reads SQLite's plan of a query.
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
