// Package corpus holds the input that tests of several packages share: journals
// with the tables that builtin:campaigns must make of them, and decision traces
// with the digests that builtin:traces must have. Both come made, generated from
// a seed, and recorded, as other programs wrote them.
//
//	func TestX(t *testing.T) {
//		corpus.EachJournal(t, corpus.Light, func(t *testing.T, j corpus.Journal) { … })
//	}
//
// The recorded data lies beside the checkout and is not part of the project. A
// test that needs it skips where it is missing, after the same test has run on
// the made data. What is expected of the made data lies in testdata; write it
// after an intended change with
//
//	go test ./internal/corpus -update
package corpus

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// Variable is the environment variable that hides the recorded data, where it is
// there, when its value is Hidden. Tests then skip it in CI too.
const (
	Variable = "OUTBOXWEB_RECORDED"
	Hidden   = "hidden"
)

// Weight says in which runs a test takes the recorded journal, whose 31,893
// events take seconds to minutes. It takes the made one in all.
type Weight int

// The weights: in all runs, in all but a short one, in a soak alone.
const (
	Light Weight = iota
	Heavy
	Long
)

// runner is *testing.T or *testing.B.
type runner[T any] interface {
	testing.TB
	Run(name string, f func(T)) bool
}

// Tables names the tables of builtin:campaigns.
var Tables = []string{"campaigns", "participants", "characters", "sessions"}

// Row is a row of a table by column: text, int64 or nil. Times are microseconds
// since 1970.
type Row map[string]any

// Journal is a journal in which one event cannot be applied.
type Journal struct {
	Name      string
	Lines     []byte // JSON Lines, as `outboxweb append` reads them
	Events    int
	Campaigns int

	// PoisonedSeq is the event of the campaign Poisoned that gives a user a
	// second seat. Waiting is the number of events from that one to the
	// campaign's last.
	Poisoned    string
	PoisonedSeq int64
	Waiting     int

	AuditOnly []string         // event types that change no table
	Expected  map[string][]Row // by table, of every campaign in its campaigns table
}

// Parse returns the events in the form in which they are stored.
func (j Journal) Parse(tb testing.TB) []event.Event {
	tb.Helper()
	return parse(tb, j.Lines)
}

// EachJournal runs a test, or a benchmark, on the made and the recorded journal.
func EachJournal[T runner[T]](t T, w Weight, run func(t T, j Journal)) {
	t.Run("made", func(t T) { run(t, makeJournal(t)) })
	if w <= size.Of(Light, Heavy, Long) {
		t.Run("recorded", func(t T) { run(t, recordedJournal(t)) })
	}
}

// Trace is a recorded or made decision trace, in a campaign of its name.
type Trace struct {
	Name    string
	Lines   [][]byte          // an event each, as `outboxweb append` reads it
	Digests map[string]string // by projection, and "full"
}

// Parse returns the events in the form in which they are stored.
func (t Trace) Parse(tb testing.TB) []event.Event {
	tb.Helper()
	return parse(tb, bytes.Join(t.Lines, nil))
}

// Traces are five traces that hold every event type of builtin:traces.
type Traces []Trace

// Longest is the trace with the most events.
func (s Traces) Longest() Trace {
	longest := s[0]
	for _, trace := range s {
		if len(trace.Lines) > len(longest.Lines) {
			longest = trace
		}
	}
	return longest
}

// EachTraces runs a test on the made and the recorded traces.
func EachTraces[T runner[T]](t T, run func(t T, traces Traces)) {
	t.Run("made", func(t T) { run(t, makeTraces(t)) })
	t.Run("recorded", func(t T) { run(t, recordedTraces(t)) })
}

// parse reads events; those without a seq get the next one.
func parse(tb testing.TB, lines []byte) []event.Event {
	tb.Helper()
	var events []event.Event
	last := map[string]int64{}
	for line := range bytes.Lines(lines) {
		e, err := event.ParseEvent(line)
		if err == nil {
			err = e.Normalize(event.DefaultMaxPayload)
		}
		if err != nil {
			tb.Fatalf("line %d: %v", len(events)+1, err)
		}
		last[e.CampaignID]++
		e.Seq = last[e.CampaignID]
		events = append(events, e)
	}
	return events
}

//go:embed testdata
var embedded embed.FS

// expected is what is expected of the made data, and of the recorded traces
// whose digests nobody has published.
func expected(tb testing.TB) fs.FS {
	tb.Helper()
	return must.Get(fs.Sub(embedded, "testdata")).Or(tb)
}

func recordedJournal(tb testing.TB) Journal {
	tb.Helper()
	dir := recorded(tb)
	unzip := must.Get(gzip.NewReader(bytes.NewReader(readFile(tb, dir, "journal.jsonl.gz")))).Or(tb)
	lines := must.Get(io.ReadAll(unzip)).Or(tb)
	return Journal{
		Name: "recorded", Lines: lines, Events: 31_893, Campaigns: 590,
		Poisoned: "bdsewd4qujfbhle3m7pgb4wrzy", PoisonedSeq: 5, Waiting: 1,
		AuditOnly: []string{"sys.daggerheart.gm_move_applied", "story.note_added", "action.outcome_rejected", "action.roll_resolved", "action.outcome_applied"},
		Expected:  readTables(tb, dir, "reference"),
	}
}

func recordedTraces(tb testing.TB) Traces {
	tb.Helper()
	dir := recorded(tb)
	digests := readDigests(tb, expected(tb), "digests.json")
	for name, published := range readDigests(tb, dir, "traces/expected_digests.json") {
		published["full"] = published["full_projection"]
		delete(published, "full_projection")
		digests[name] = published
	}
	var traces Traces
	for _, name := range []string{"dealdesk", "release_rejected", "renewal", "support", "sync_failure"} {
		lines := bytes.SplitAfter(readFile(tb, dir, "traces/"+name+".jsonl"), []byte("\n"))
		traces = append(traces, Trace{Name: name, Lines: lines[:len(lines)-1], Digests: digests[name]})
	}
	return traces
}

// recorded is the directory of the recorded data. Without it the test is
// skipped, or fails in CI.
func recorded(tb testing.TB) fs.FS {
	tb.Helper()
	if os.Getenv(Variable) == Hidden {
		tb.Skipf("%s=%s hides the recorded data; the made data takes the same test", Variable, Hidden)
	}
	dir := filepath.Join(checkout(tb), "..", "shared", "data")
	if _, err := os.Stat(dir); err != nil {
		must.Need(tb, os.Getenv("CI") == "", "CI must have the recorded data beside its clone, or set %s=%s: %v", Variable, Hidden, err)
		tb.Skip("the recorded data is not beside this clone (../shared/data); the made data takes the same test")
	}
	return os.DirFS(dir)
}

// checkout is the root of the checkout that the test runs in.
func checkout(tb testing.TB) string {
	tb.Helper()
	dir := must.Get(os.Getwd()).Or(tb)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		must.Need(tb, parent != dir, "there is no go.mod above the working directory")
		dir = parent
	}
}

func readFile(tb testing.TB, dir fs.FS, name string) []byte {
	tb.Helper()
	return must.Get(fs.ReadFile(dir, name)).Or(tb)
}

func readDigests(tb testing.TB, dir fs.FS, name string) map[string]map[string]string {
	tb.Helper()
	var digests map[string]map[string]string
	err := json.Unmarshal(readFile(tb, dir, name), &digests)
	must.Need(tb, err == nil, "%s: %v", name, err)
	return digests
}

// readTables reads a file for each table, a row a line. Times are milliseconds
// there.
func readTables(tb testing.TB, dir fs.FS, under string) map[string][]Row {
	tb.Helper()
	tables := map[string][]Row{}
	for _, table := range Tables {
		lines := json.NewDecoder(bytes.NewReader(readFile(tb, dir, path.Join(under, table+".jsonl"))))
		lines.UseNumber()
		for lines.More() {
			var row Row
			if err := lines.Decode(&row); err != nil {
				tb.Fatalf("%s, row %d: %v", table, len(tables[table])+1, err)
			}
			for column, value := range row {
				number, ok := value.(json.Number)
				if !ok {
					continue
				}
				n, err := number.Int64()
				if err != nil {
					tb.Fatalf("%s, row %d: %v", table, len(tables[table])+1, err)
				}
				if strings.HasSuffix(column, "_at") {
					n *= 1000
				}
				row[column] = n
			}
			tables[table] = append(tables[table], row)
		}
	}
	return tables
}
