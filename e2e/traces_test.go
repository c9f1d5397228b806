package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// traces are the recorded decision traces, each in a campaign of its own.
var traces = []string{"dealdesk", "release_rejected", "renewal", "support", "sync_failure"}

// traceModels loads the read models of decision traces.
var traceModels = []string{"--projections", "builtin:traces"}

// recordedTrace reads the events of a trace, a line of JSON each.
func recordedTrace(t *testing.T, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recorded, "traces", name+".jsonl"))
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the recorded traces must be there in CI: %v", err)
		}
		t.Skipf("without the recorded traces there is nothing to test: %v", err)
	}
	return bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
}

// digestDoc is the document of `digest --json`.
type digestDoc struct {
	CampaignID  string            `json:"campaign_id"`
	AppliedSeq  int64             `json:"applied_seq"`
	Projections map[string]string `json:"projections"`
	Full        string            `json:"full"`
}

func digestOf(t *testing.T, d databases, campaign string, flags ...string) (doc digestDoc) {
	t.Helper()
	out := mustCommand(t, d, nil, append([]string{"digest", "--json", "--campaign", campaign}, flags...)...)
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("digest --json: %v\n%s", err, out)
	}
	return doc
}

// publishedDigests are those published with two of the traces.
func publishedDigests(t *testing.T) map[string]digestDoc {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recorded, "traces", "expected_digests.json"))
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]map[string]string
	if err := json.Unmarshal(text, &raw); err != nil || len(raw) != 2 {
		t.Fatalf("digests of %d traces: %v", len(raw), err)
	}
	published := map[string]digestDoc{}
	for name, projections := range raw {
		full := projections["full_projection"]
		delete(projections, "full_projection")
		published[name] = digestDoc{name, int64(len(recordedTrace(t, name))), projections, full}
	}
	return published
}

// tracesIn is the digests of all traces in a pair of databases, of the live
// rows or of a fold.
func tracesIn(t *testing.T, d databases, flags ...string) map[string]digestDoc {
	t.Helper()
	all := map[string]digestDoc{}
	for _, name := range traces {
		all[name] = digestOf(t, d, name, append(flags, traceModels...)...)
	}
	return all
}

// appendTraces appends the first events of each trace, and waits until they are
// applied by a server with these flags. The longest trace has 9 events.
func appendTraces(t *testing.T, d databases, first int, flags ...string) {
	t.Helper()
	var lines bytes.Buffer
	for _, name := range traces {
		events := recordedTrace(t, name)
		for _, line := range events[:min(first, len(events))] {
			lines.Write(append(bytes.TrimSpace(line), '\n'))
		}
	}
	mustCommand(t, d, &lines, append([]string{"append", "-"}, traceModels...)...)
	s := start(t, d, slices.Concat(flags, traceModels)...)
	if sum := s.awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
		t.Fatalf("settled at %+v", sum)
	}
	if code := s.stop(t); code != 0 {
		t.Fatalf("the server ended with exit code %d", code)
	}
}

const longestTrace = 9

// eachDatabase runs a test on SQLite and on PostgreSQL.
func eachDatabase(t *testing.T, test func(t *testing.T, d databases)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newDatabases(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newPostgres(t))
	})
}

// Whatever the batches, and however often the read models are rebuilt, on both
// databases: the digests of the recorded traces are the published ones, and
// those of the traces without published ones are everywhere the same.
func TestTraces_digestsAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	published := publishedDigests(t)
	judge := func(t *testing.T, got map[string]digestDoc) {
		t.Helper()
		for name, want := range published {
			if diff := cmp.Diff(want, got[name]); diff != "" {
				t.Errorf("%s (-published +got):\n%s", name, diff)
			}
		}
	}
	reference := newDatabases(t)
	appendTraces(t, reference, longestTrace)
	want := tracesIn(t, reference)
	judge(t, want)
	for _, size := range []string{"1", "7", "1000"} {
		t.Run("batches of "+size, func(t *testing.T) {
			t.Parallel()
			eachDatabase(t, func(t *testing.T, d databases) {
				appendTraces(t, d, longestTrace, "--batch-size", size)
				judge(t, tracesIn(t, d))
				for range 3 {
					mustCommand(t, d, nil, append([]string{"runs", "start", "rebuild", "--all", "--wait"}, traceModels...)...)
				}
				got := tracesIn(t, d)
				judge(t, got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("after three rebuilds (-one-shot +got):\n%s", diff)
				}
				out := mustCommand(t, d, nil, append([]string{"verify"}, traceModels...)...)
				if !shown(out, "all 5 campaigns match their journal: 40 events folded") {
					t.Errorf("verify printed %s", out)
				}
				checkClean(t, d, traceModels...)
			})
		})
	}
}

// A run over one campaign keeps the digests with the seq that they cover.
func TestTraces_aRunKeepsItsDigests(t *testing.T) {
	t.Parallel()
	published := publishedDigests(t)
	eachDatabase(t, func(t *testing.T, d databases) {
		appendTraces(t, d, longestTrace)
		s := start(t, d, traceModels...)
		for i, kind := range []string{"verify", "rebuild"} {
			var r runDoc
			s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": kind, "campaign_id": "dealdesk"}).decode(t, &r)
			r = awaitEnd(t, s, r.ID)
			want := published["dealdesk"]
			got := digestDoc{"dealdesk", r.Seq, map[string]string{}, r.Digests["full"]}
			for name, digest := range r.Digests {
				if name != "full" {
					got.Projections[name] = digest
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || r.Status != "completed" || r.Verdict != "match" {
				t.Errorf("%s %d is %s, %s (-published +got):\n%s", kind, i+1, r.Status, r.Verdict, diff)
			}
			if diff := cmp.Diff(r.Digests, r.Before); diff != "" {
				t.Errorf("%s: digests before (-after +before):\n%s", kind, diff)
			}
		}
	})
}

// The digests as of any event are those of a database that has seen no later
// one.
func TestTraces_digestsAsOfAnyEvent(t *testing.T) {
	t.Parallel()
	prefixes := make([]map[string]digestDoc, longestTrace+1)
	for n := 1; n <= longestTrace; n++ {
		d := newDatabases(t)
		appendTraces(t, d, n)
		prefixes[n] = tracesIn(t, d)
	}
	if prefixes[1]["renewal"].Full == prefixes[2]["renewal"].Full {
		t.Error("the digests do not depend on the events")
	}
	eachDatabase(t, func(t *testing.T, d databases) {
		appendTraces(t, d, longestTrace)
		for _, name := range traces {
			for n := 1; n <= len(recordedTrace(t, name)); n++ {
				got := digestOf(t, d, name, append([]string{"--until", fmt.Sprint(n)}, traceModels...)...)
				if diff := cmp.Diff(prefixes[n][name], got); diff != "" {
					t.Errorf("%s as of event %d (-the prefix alone +got):\n%s", name, n, diff)
				}
			}
		}
		r := command(t, d, nil, append([]string{"digest", "--campaign", "renewal", "--until", "10"}, traceModels...)...)
		if r.code != 1 || !shown(r.stderr, "has no event 10; its last is 9") {
			t.Errorf("past the end: %+v", r)
		}
	})
}
