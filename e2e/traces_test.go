package e2e

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/must"
)

var traceModels = []string{"--projections", "builtin:traces"}

// However often the read models are rebuilt: the digests of the traces are the expected ones.
func TestTraces_digestsAreTheExpectedOnes(t *testing.T) {
	t.Parallel()
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		t.Parallel()
		d := newDatabases(t)
		var lines []byte
		for _, trace := range traces {
			lines = append(lines, bytes.Join(trace.Lines, nil)...)
		}
		mustCommand(t, d, bytes.NewReader(lines), append([]string{"append", "-"}, traceModels...)...)
		s := start(t, d, append([]string{"--batch-size", "7"}, traceModels...)...)
		sum := s.awaitSettled(t)
		must.Need(t, sum.Counts.Dead <= 0 && sum.Lag.Events <= 0, "settled at %+v", sum)
		mustHaveDigests(t, d, traces)
		for range 2 {
			mustCommand(t, d, nil, append([]string{"runs", "start", "rebuild", "--all", "--wait", "--reason", "again", "--confirm", rebuildPhrase}, traceModels...)...)
		}
		mustHaveDigests(t, d, traces)
		checkClean(t, d, traceModels...)
	})
}

func mustHaveDigests(t *testing.T, d databases, traces corpus.Traces) {
	t.Helper()
	for _, trace := range traces {
		var got struct {
			AppliedSeq  int `json:"applied_seq"`
			Projections map[string]string
			Full        string
		}
		out := mustCommand(t, d, nil, append([]string{"digest", "--json", "--campaign", trace.Name}, traceModels...)...)
		err := json.Unmarshal([]byte(out), &got)
		must.Need(t, err == nil, "digest --json: %v\n%s", err, out)
		got.Projections["full"] = got.Full
		diff := cmp.Diff(trace.Digests, got.Projections)
		must.Hold(t, diff == "" && got.AppliedSeq == len(trace.Lines), "%s at event %d (-expected +got):\n%s", trace.Name, got.AppliedSeq, diff)
	}
}
