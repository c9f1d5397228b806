package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is where the recorded journal lies, seen from this directory. A
// plain clone has none.
const recorded = "../../shared/data"

// The recorded journal, and the one campaign of it that no faithful read model
// can follow to its end.
const (
	recordedEvents    = 31_893
	recordedCampaigns = 590
	poisoned          = "bdsewd4qujfbhle3m7pgb4wrzy"
	poisonedSeq       = 5
)

// recordedTables are the read models of the recorded journal.
var recordedTables = []string{"campaigns", "participants", "characters", "sessions"}

// afterwards is a campaign that the recorded journal does not have.
const afterwards = "afterwards"

// recordedJournal returns the recorded journal as JSON Lines.
func recordedJournal(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(recorded, "journal.jsonl.gz"))
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the recorded journal must be there in CI: %v", err)
		}
		t.Skipf("without the recorded journal there is nothing to test: %v", err)
	}
	defer f.Close()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRecordedJournal(t *testing.T) {
	t.Parallel()
	journal := recordedJournal(t)
	for _, test := range []struct {
		name  string
		flags []string
	}{
		{"as it is", nil},
		{"with audit-only types", []string{
			"--audit-only", "sys.daggerheart.gm_move_applied", "--audit-only", "story.note_added", "--audit-only", "action.outcome_rejected"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			followRecorded(t, journal, test.flags)
		})
	}
}

// followRecorded takes the recorded journal in at one end and compares what
// comes out at the other.
func followRecorded(t *testing.T, journal []byte, flags []string) {
	d := newDatabases(t)
	serve := append([]string{"--max-attempts", "2", "--retry-base", "50ms"}, flags...)

	appendRecorded(t, d, journal, flags, fmt.Sprintf("appended %d, already there 0, refused 0", recordedEvents))
	first := start(t, d, serve...)
	awaitRecorded(t, first)
	noGaps(t, d, first, flags)
	if code := first.stop(t); code != 0 {
		t.Fatalf("the server ended with exit code %d", code)
	}
	compareReference(t, d)
	checkRecorded(t, d, flags)
	before := contents(t, d)

	appendRecorded(t, d, journal, flags, fmt.Sprintf("appended 0, already there %d, refused 0", recordedEvents))
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
	if log := second.stderr.String(); log != "" {
		t.Errorf("a second start had something to do:\n%s", log)
	}
	if diff := cmp.Diff(before, contents(t, d)); diff != "" {
		t.Errorf("a second start changed something (-before +after):\n%s", diff)
	}
}

// appendRecorded gives the journal to the command line, which must say this.
func appendRecorded(t *testing.T, d databases, journal []byte, flags []string, want string) {
	t.Helper()
	out := mustCommand(t, d, bytes.NewReader(journal), append([]string{"append", "-"}, flags...)...)
	if strings.TrimSpace(out) != want {
		t.Fatalf("append printed %q, want %q", out, want)
	}
}

// awaitRecorded waits until all of the journal is applied that can be.
func awaitRecorded(t *testing.T, s *server) {
	t.Helper()
	sum := s.awaitSettled(t)
	if sum.Campaigns.Total != recordedCampaigns || sum.Counts.Dead != 1 || sum.Lag.Events != 1 || sum.Campaigns.Blocked != 1 {
		t.Errorf("settled at %+v, want %d campaigns and one dead row", sum, recordedCampaigns)
	}
	deadHead(t, s)
}

// checkRecorded runs `check`, which must look at everything and find nothing.
func checkRecorded(t *testing.T, d databases, flags []string) {
	t.Helper()
	report := checkClean(t, d, flags...)
	for what, want := range map[string]int64{"events": recordedEvents, "campaigns": recordedCampaigns, "folded": recordedCampaigns} {
		if report.Checked[what] != want {
			t.Errorf("check looked at %d %s, want %d", report.Checked[what], what, want)
		}
	}
}

// deadHead looks at the one row that must be left.
func deadHead(t *testing.T, s *server) {
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
	s.get(t, "/api/v1/rows", &rows)
	if len(rows.Items) != 1 {
		t.Fatalf("%d rows are left, want 1: %+v", len(rows.Items), rows.Items)
	}
	row := rows.Items[0]
	if row.CampaignID != poisoned || row.Seq != poisonedSeq || row.Status != "dead" || row.AttemptCount != 2 || !row.IsHead {
		t.Errorf("the row that is left is %+v", row)
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

// compareReference compares the read models with what the server that wrote
// the journal made of it, in every campaign that it tells about.
func compareReference(t *testing.T, d databases) {
	t.Helper()
	campaigns := referenceRows(t, "campaigns")
	for _, table := range recordedTables {
		want := referenceRows(t, table)
		got := map[string]map[string]any{}
		each(t, d.projections(), "select * from "+table, func(row map[string]any) {
			if _, known := campaigns[fmt.Sprint(row["campaign_id"])]; known {
				got[rowKey(row)] = row
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("table %s differs from its reference of %d rows (-want +got):\n%s", table, len(want), tail(diff, 3000))
		}
	}
}

func rowKey(row map[string]any) string {
	if id, has := row["id"]; has {
		return fmt.Sprint(row["campaign_id"], "/", id)
	}
	return fmt.Sprint(row["campaign_id"])
}

// referenceRows reads a file of reference rows, with times in microseconds.
func referenceRows(t *testing.T, table string) map[string]map[string]any {
	t.Helper()
	f, err := os.Open(filepath.Join(recorded, "reference", table+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]map[string]any{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row map[string]any
		decode := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decode.UseNumber()
		if err := decode.Decode(&row); err != nil {
			t.Fatal(err)
		}
		for name, value := range row {
			number, is := value.(json.Number)
			if !is {
				continue
			}
			n, err := number.Int64()
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_at") {
				n *= 1000
			}
			row[name] = n
		}
		all[rowKey(row)] = row
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%d reference rows of table %s: %v", len(all), table, err)
	}
	return all
}

// contents digests what a start or a repeated append must leave as it is, table
// by table, without the campaign that is new.
func contents(t *testing.T, d databases) map[string]string {
	t.Helper()
	digests := map[string]string{}
	for _, table := range []struct{ path, name, order string }{
		{d.journal(), "events", "position"},
		{d.journal(), "projection_apply_outbox", "campaign_id, seq"},
		{d.journal(), "campaigns", "campaign_id"},
		{d.journal(), "attempts", "campaign_id, seq, at"},
		{d.journal(), "operator_acts", "id"},
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
	for _, campaign := range []string{poisoned, "2e226td2xnevvlbq76v55vh2uy"} {
		digests["digest "+campaign] = mustCommand(t, d, nil, "digest", "--campaign", campaign)
	}
	return digests
}
