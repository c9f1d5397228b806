package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
)

// afterwards is a campaign that no journal of the corpus has.
const afterwards = "afterwards"

// applyBriefly are the flags of a server that gives up on the poisoned event soon.
var applyBriefly = []string{"--max-attempts", "2", "--retry-base", "50ms"}

func TestWholeJournal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		auditOnly bool
	}{
		{"as it is", false},
		{"with audit-only types", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			corpus.EachJournal(t, corpus.Heavy, func(t *testing.T, j corpus.Journal) {
				t.Parallel()
				var flags []string
				for _, eventType := range j.AuditOnly {
					if test.auditOnly {
						flags = append(flags, "--audit-only", eventType)
					}
				}
				followJournal(t, j, flags)
			})
		})
	}
}

// followJournal appends a journal and compares the resulting read models.
func followJournal(t *testing.T, j corpus.Journal, flags []string) {
	d := newDatabases(t)
	serve := slices.Concat(applyBriefly, []string{"--log-level", "warn"}, flags)

	appendJournal(t, d, j, flags)
	first := start(t, d, serve...)
	awaitJournal(t, first, j)
	noGaps(t, d, first, flags)
	if code := first.stop(t); code != 0 {
		t.Fatalf("the server ended with exit code %d", code)
	}
	compareExpected(t, d, j)
	checkJournal(t, d, j, flags)
	before := contents(t, d, j)

	again := mustCommand(t, d, bytes.NewReader(j.Lines), append([]string{"append", "-"}, flags...)...)
	if want := fmt.Sprintf("appended 0, already there %d, refused 0", j.Events); strings.TrimSpace(again) != want {
		t.Errorf("append printed %q, want %q", again, want)
	}
	if diff := cmp.Diff(before, contents(t, d, j)); diff != "" {
		t.Errorf("appending the same file again changed something (-before +after):\n%s", diff)
	}
	second := start(t, d, serve...)
	// Its worker applies only once it has compared both databases.
	second.post(t, http.StatusCreated, "/api/v1/campaigns/"+afterwards+"/events?wait=applied&timeout=20s",
		event{EventType: "start.noticed", Payload: map[string]any{}})
	if code := second.stop(t); code != 0 {
		t.Errorf("the second server ended with exit code %d", code)
	}
	if log := second.stderr.String(); log != "" {
		t.Errorf("a second start had something to do:\n%s", log)
	}
	if diff := cmp.Diff(before, contents(t, d, j)); diff != "" {
		t.Errorf("a second start changed something (-before +after):\n%s", diff)
	}
}

// appendJournal gives a journal to the command line, which must append all of it.
func appendJournal(t *testing.T, d databases, j corpus.Journal, flags []string) {
	t.Helper()
	out := mustCommand(t, d, bytes.NewReader(j.Lines), append([]string{"append", "-"}, flags...)...)
	if want := fmt.Sprintf("appended %d, already there 0, refused 0", j.Events); strings.TrimSpace(out) != want {
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

// checkJournal runs `check`, which must look at everything and find nothing.
func checkJournal(t *testing.T, d databases, j corpus.Journal, flags []string) {
	t.Helper()
	report := checkClean(t, d, flags...)
	for what, want := range map[string]int{"events": j.Events, "campaigns": j.Campaigns, "replayed": j.Campaigns} {
		if report.Checked[what] != int64(want) {
			t.Errorf("check looked at %d %s, want %d", report.Checked[what], what, want)
		}
	}
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

// noGaps asks the command line and the API.
func noGaps(t *testing.T, d databases, s *server, flags []string) {
	t.Helper()
	var gaps struct{ Gaps []any }
	if err := json.Unmarshal([]byte(mustCommand(t, d, nil, append([]string{"gaps", "--json"}, flags...)...)), &gaps); err != nil || len(gaps.Gaps) > 0 {
		t.Errorf("gaps --json lists %v (%v)", gaps.Gaps, err)
	}
	var list struct{ Items []any }
	s.get(t, "/api/v1/gaps", &list)
	if len(list.Items) > 0 {
		t.Errorf("the API lists gaps: %v", list.Items)
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
func contents(t *testing.T, d databases, j corpus.Journal) map[string]string {
	t.Helper()
	digests := map[string]string{}
	for _, table := range []struct{ path, name, order string }{
		{d.journal(), "events", "position"},
		{d.journal(), "projection_apply_outbox", "campaign_id, seq"},
		{d.journal(), "campaigns", "campaign_id"},
		{d.journal(), "attempts", "campaign_id, seq, at"},
		{d.journal(), "audit_log", "id"},
		{d.projections(), "projection_watermarks", "campaign_id"},
		{d.projections(), "campaigns", "campaign_id"},
		{d.projections(), "participants", "campaign_id, id"},
		{d.projections(), "characters", "campaign_id, id"},
		{d.projections(), "sessions", "campaign_id, id"},
	} {
		digest := sha256.New()
		each(t, table.path, "select * from "+table.name+" where campaign_id <> '"+afterwards+"' order by "+table.order, func(row map[string]any) {
			if err := json.NewEncoder(digest).Encode(row); err != nil {
				t.Fatal(err)
			}
		})
		digests[filepath.Base(table.path)+" "+table.name] = hex.EncodeToString(digest.Sum(nil))
	}
	for _, campaign := range []string{j.Poisoned, j.Expected["campaigns"][0]["campaign_id"].(string)} {
		digests["digest "+campaign] = mustCommand(t, d, nil, "digest", "--campaign", campaign)
	}
	return digests
}
