package e2e

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
)

// traceModels loads the read models of decision traces.
var traceModels = []string{"--projections", "builtin:traces"}

// eachDatabase runs a test on SQLite and, in a full run, on PostgreSQL, where it costs up to four
// times as much. The tests named for PostgreSQL, and a part of the runbook, are on it in any run.
func eachDatabase(t *testing.T, test func(t *testing.T, d databases)) {
	for _, database := range []struct {
		name   string
		create func(*testing.T) databases
	}{{"sqlite", newDatabases}, {"postgres", newPostgres}} {
		if testing.Short() && database.name == "postgres" {
			continue
		}
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			test(t, database.create(t))
		})
	}
}

// However often the read models are rebuilt, on both databases: the digests of the traces are the
// expected ones.
func TestTraces_digestsAreTheExpectedOnes(t *testing.T) {
	t.Parallel()
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		t.Parallel()
		eachDatabase(t, func(t *testing.T, d databases) {
			var lines []byte
			for _, trace := range traces {
				lines = append(lines, bytes.Join(trace.Lines, nil)...)
			}
			mustCommand(t, d, bytes.NewReader(lines), append([]string{"append", "-"}, traceModels...)...)
			s := start(t, d, append([]string{"--batch-size", "7"}, traceModels...)...)
			if sum := s.awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
				t.Fatalf("settled at %+v", sum)
			}
			mustHaveDigests(t, d, traces)
			for range 2 {
				mustCommand(t, d, nil, append([]string{"runs", "start", "rebuild", "--all", "--wait", "--reason", "again", "--confirm", rebuildPhrase}, traceModels...)...)
			}
			mustHaveDigests(t, d, traces)
			checkClean(t, d, traceModels...)
		})
	})
}

// mustHaveDigests fails the test unless the live rows of every trace have the expected digests.
func mustHaveDigests(t *testing.T, d databases, traces corpus.Traces) {
	t.Helper()
	for _, trace := range traces {
		var got struct {
			AppliedSeq  int `json:"applied_seq"`
			Projections map[string]string
			Full        string
		}
		out := mustCommand(t, d, nil, append([]string{"digest", "--json", "--campaign", trace.Name}, traceModels...)...)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("digest --json: %v\n%s", err, out)
		}
		got.Projections["full"] = got.Full
		if diff := cmp.Diff(trace.Digests, got.Projections); diff != "" || got.AppliedSeq != len(trace.Lines) {
			t.Errorf("%s at event %d (-expected +got):\n%s", trace.Name, got.AppliedSeq, diff)
		}
	}
}
