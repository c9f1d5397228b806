package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
)

// afterwards is a campaign that no journal of the corpus has.
const afterwards = "afterwards"

// A whole journal is appended and applied, by one server on files, by two on PostgreSQL, where types
// are for the audit only. Its read models are the expected ones; appending it again and a second start
// change nothing.
func TestWholeJournal(t *testing.T) {
	t.Parallel()
	corpus.EachJournal(t, corpus.Heavy, func(t *testing.T, j corpus.Journal) {
		t.Parallel()
		eachDatabase(t, func(t *testing.T, d databases) {
			servers := 1
			var flags []string
			if d.url != "" {
				servers = 2
				for _, eventType := range j.AuditOnly {
					flags = append(flags, "--audit-only", eventType)
				}
			}
			followJournal(t, d, j, servers, flags)
		})
	})
}

func followJournal(t *testing.T, d databases, j corpus.Journal, servers int, flags []string) {
	serve := slices.Concat([]string{"--max-attempts", "2", "--retry-base", "50ms", "--log-level", "warn"}, flags)
	appendJournal(t, d, j, flags, fmt.Sprintf("appended %d, already there 0, refused 0", j.Events))
	var first []*server
	for range servers {
		first = append(first, start(t, d, serve...))
	}
	awaitJournal(t, first[0], j)
	for _, s := range first {
		if code := s.stop(t); code != 0 {
			t.Fatalf("a server ended with exit code %d", code)
		}
	}
	compareExpected(t, d, j)
	report := checkClean(t, d, flags...)
	for what, want := range map[string]int{"events": j.Events, "campaigns": j.Campaigns, "replayed": j.Campaigns} {
		if report.Checked[what] != int64(want) {
			t.Errorf("check looked at %d %s, want %d", report.Checked[what], what, want)
		}
	}

	before := contents(t, d)
	appendJournal(t, d, j, flags, fmt.Sprintf("appended 0, already there %d, refused 0", j.Events))
	if diff := cmp.Diff(before, contents(t, d)); diff != "" {
		t.Errorf("appending the same file again changed something (-before +after):\n%s", diff)
	}
	second := start(t, d, serve...)
	// Its worker applies only once it has compared both databases.
	second.post(t, http.StatusCreated, "/api/v1/campaigns/"+afterwards+"/events?wait=applied&timeout=20s",
		event{EventType: "start.noticed", Payload: map[string]any{}})
	if code := second.stop(t); code != 0 {
		t.Errorf("the second server ended with exit code %d", code)
	}
	if log := second.stderr.String(); log != "" && d.url == "" { // a server for tests is warned about
		t.Errorf("a second start had something to do:\n%s", log)
	}
	if diff := cmp.Diff(before, contents(t, d)); diff != "" {
		t.Errorf("a second start changed something (-before +after):\n%s", diff)
	}
}

// appendJournal gives a journal to the command line.
func appendJournal(t *testing.T, d databases, j corpus.Journal, flags []string, want string) {
	t.Helper()
	out := mustCommand(t, d, bytes.NewReader(j.Lines), append([]string{"append", "-"}, flags...)...)
	if strings.TrimSpace(out) != want {
		t.Fatalf("append printed %q, want %q", out, want)
	}
}

// awaitJournal waits until all of a journal is applied that can be.
func awaitJournal(t *testing.T, s *server, j corpus.Journal) {
	t.Helper()
	sum := s.awaitSummary(t, "all but the poisoned campaign is applied", func(sum summary) bool {
		return sum.Counts.Dead == 1 && sum.Campaigns.Leased == 0 && sum.Lag.Events == int64(j.Waiting)
	})
	waiting := sum.Counts.Pending + sum.Counts.Processing + sum.Counts.Failed
	if sum.Campaigns.Total != int64(j.Campaigns) || sum.Campaigns.Blocked != 1 || waiting != int64(j.Waiting)-1 {
		t.Errorf("settled at %+v, want %d campaigns, one blocked with %d rows behind its dead head", sum, j.Campaigns, j.Waiting-1)
	}
	deadHead(t, s, j)
}

// deadHead looks at the poisoned event's row, the only dead one.
func deadHead(t *testing.T, s *server, j corpus.Journal) {
	t.Helper()
	var rows struct {
		Items []struct {
			CampaignID   string `json:"campaign_id"`
			Seq          int64
			Status       string
			AttemptCount int    `json:"attempt_count"`
			LastError    string `json:"last_error"`
			IsHead       bool   `json:"is_head"`
		}
	}
	s.get(t, "/api/v1/rows?status=dead", &rows)
	if len(rows.Items) != 1 {
		t.Fatalf("%d rows are dead, want 1: %+v", len(rows.Items), rows.Items)
	}
	row := rows.Items[0]
	if row.CampaignID != j.Poisoned || row.Seq != j.PoisonedSeq || row.Status != "dead" || row.AttemptCount != 2 || !row.IsHead {
		t.Errorf("the dead row is %+v", row)
	}
	if !strings.Contains(row.LastError, "participants") {
		t.Errorf("its error does not name the table at fault: %q", row.LastError)
	}
}

// compareExpected compares the read models with those that are expected, in
// every campaign that rows are expected of.
func compareExpected(t *testing.T, d databases, j corpus.Journal) {
	t.Helper()
	known := map[any]bool{}
	for _, row := range j.Expected["campaigns"] {
		known[row["campaign_id"]] = true
	}
	for _, table := range corpus.Tables {
		want, got := map[string]map[string]any{}, map[string]map[string]any{}
		for _, row := range j.Expected[table] {
			want[rowKey(row)] = row
		}
		each(t, d.projections(), "select * from "+table, func(row map[string]any) {
			if known[row["campaign_id"]] {
				got[rowKey(row)] = row
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("table %s differs from the %d rows expected (-want +got):\n%s", table, len(want), tail(diff, 3000))
		}
	}
}

func rowKey(row map[string]any) string {
	if id, has := row["id"]; has {
		return fmt.Sprint(row["campaign_id"], "/", id)
	}
	return fmt.Sprint(row["campaign_id"])
}

// contents digests, table by table, what a start or a repeated append must not change, without the
// new campaign.
func contents(t *testing.T, d databases) map[string]string {
	t.Helper()
	digests := map[string]string{}
	for place, tables := range map[string][]string{
		d.journal():     {"events", "projection_apply_outbox", "campaigns", "attempts", "audit_log"},
		d.projections(): append([]string{"projection_watermarks"}, corpus.Tables...),
	} {
		for _, table := range tables {
			var rows []string
			each(t, place, "select * from "+table+" where campaign_id <> '"+afterwards+"'", func(row map[string]any) { rows = append(rows, fmt.Sprint(row)) })
			slices.Sort(rows)
			digests[place+" "+table] = fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(rows, "\n"))))
		}
	}
	return digests
}
