package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/corpus"
)

// traceModels loads the read models of decision traces.
var traceModels = []string{"--projections", "builtin:traces"}

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

// expectedDigests is the document of a fully applied trace.
func expectedDigests(trace corpus.Trace) digestDoc {
	projections := maps.Clone(trace.Digests)
	delete(projections, "full")
	return digestDoc{trace.Name, int64(len(trace.Lines)), projections, trace.Digests["full"]}
}

// mustHaveDigests fails the test unless the live rows of every trace have the
// expected digests.
func mustHaveDigests(t *testing.T, d databases, traces corpus.Traces) {
	t.Helper()
	for _, trace := range traces {
		if diff := cmp.Diff(expectedDigests(trace), digestOf(t, d, trace.Name, traceModels...)); diff != "" {
			t.Errorf("%s (-expected +got):\n%s", trace.Name, diff)
		}
	}
}

// appendTraces appends the first events of each trace, and waits until they are
// applied by a server with these flags.
func appendTraces(t *testing.T, d databases, traces corpus.Traces, first int, flags ...string) {
	t.Helper()
	var lines []byte
	for _, trace := range traces {
		lines = append(lines, bytes.Join(trace.Lines[:min(first, len(trace.Lines))], nil)...)
	}
	mustCommand(t, d, bytes.NewReader(lines), append([]string{"append", "-"}, traceModels...)...)
	s := start(t, d, slices.Concat(flags, traceModels)...)
	if sum := s.awaitSettled(t); sum.Counts.Dead > 0 || sum.Lag.Events > 0 {
		t.Fatalf("settled at %+v", sum)
	}
	if n := s.metric(t, "outboxweb_apply_failures_total"); n != 0 {
		t.Errorf("applying the traces failed %v times on the way", n)
	}
	if code := s.stop(t); code != 0 {
		t.Fatalf("the server ended with exit code %d", code)
	}
}

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

// Whatever the batches, and however often the read models are rebuilt, on both
// databases: the digests of the traces are the expected ones.
func TestTraces_digestsAreTheExpectedOnes(t *testing.T) {
	t.Parallel()
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		t.Parallel()
		events := 0
		for _, trace := range traces {
			events += len(trace.Lines)
		}
		sizes := []string{"1", "7", "1000"}
		if testing.Short() {
			sizes = sizes[1:2]
		}
		for _, size := range sizes {
			t.Run("batches of "+size, func(t *testing.T) {
				t.Parallel()
				eachDatabase(t, func(t *testing.T, d databases) {
					appendTraces(t, d, traces, events, "--batch-size", size)
					mustHaveDigests(t, d, traces)
					for range 3 {
						mustCommand(t, d, nil, append([]string{"runs", "start", "rebuild", "--all", "--wait", "--reason", "again", "--confirm", rebuildPhrase}, traceModels...)...)
					}
					mustHaveDigests(t, d, traces)
					out := mustCommand(t, d, nil, append([]string{"verify"}, traceModels...)...)
					if want := fmt.Sprintf("the live rows of %d campaigns match the journal, as far as events are applied (%d events in it)", len(traces), events); !shown(out, want) {
						t.Errorf("verify printed %s, want %s", out, want)
					}
					checkClean(t, d, traceModels...)
				})
			})
		}
	})
}

// A run over one campaign keeps the digests with the seq that they cover.
func TestTraces_aRunKeepsItsDigests(t *testing.T) {
	t.Parallel()
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		t.Parallel()
		eachDatabase(t, func(t *testing.T, d databases) {
			trace := traces[0]
			appendTraces(t, d, traces, len(trace.Lines))
			s := start(t, d, traceModels...)
			for i, kind := range []string{"verify", "rebuild"} {
				var r runDoc
				s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": kind, "campaign_id": trace.Name}).decode(t, &r)
				r = awaitEnd(t, s, r.ID)
				if diff := cmp.Diff(trace.Digests, r.Digests); diff != "" || r.Seq != int64(len(trace.Lines)) || r.Status != "completed" || r.Verdict != "match" {
					t.Errorf("%s %d as of event %d is %s, %s (-expected +got):\n%s", kind, i+1, r.Seq, r.Status, r.Verdict, diff)
				}
				if diff := cmp.Diff(r.Digests, r.Before); diff != "" {
					t.Errorf("%s: digests before (-after +before):\n%s", kind, diff)
				}
			}
		})
	})
}

// The digests as of any event are those of a database that has seen no later
// one.
func TestTraces_digestsAsOfAnyEvent(t *testing.T) {
	t.Parallel()
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		t.Parallel()
		longest := traces.Longest()
		last := len(longest.Lines)
		prefixes := make([]map[string]digestDoc, last+1)
		step := 1
		if testing.Short() {
			step = 4
		}
		for n := 1; n <= last; n += step {
			d := newDatabases(t)
			appendTraces(t, d, traces, n)
			prefixes[n] = map[string]digestDoc{}
			for _, trace := range traces {
				prefixes[n][trace.Name] = digestOf(t, d, trace.Name, traceModels...)
			}
		}
		if prefixes[1][longest.Name].Full == prefixes[1+step][longest.Name].Full {
			t.Error("the digests do not depend on the events")
		}
		eachDatabase(t, func(t *testing.T, d databases) {
			appendTraces(t, d, traces, last)
			for _, trace := range traces {
				for n := 1; n <= len(trace.Lines); n += step {
					got := digestOf(t, d, trace.Name, append([]string{"--until", fmt.Sprint(n)}, traceModels...)...)
					if diff := cmp.Diff(prefixes[n][trace.Name], got); diff != "" {
						t.Errorf("%s as of event %d (-the prefix alone +got):\n%s", trace.Name, n, diff)
					}
				}
			}
			r := command(t, d, nil, append([]string{"digest", "--campaign", longest.Name, "--until", fmt.Sprint(last + 1)}, traceModels...)...)
			if r.code != 1 || !shown(r.stderr, fmt.Sprintf("has no event %d; its last is %d", last+1, last)) {
				t.Errorf("past the end: %+v", r)
			}
		})
	})
}
