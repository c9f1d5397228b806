package worker_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

const realJournal = "../../../shared/data/journal.jsonl.gz"

// readJournal reads the recorded journal, which a plain clone does not have.
func readJournal(tb testing.TB) []outbox.Event {
	tb.Helper()
	f, err := os.Open(realJournal)
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("the recorded journal is missing: %v", err)
		}
		tb.Skipf("the recorded journal is missing: %v", err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var events []outbox.Event
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e, err := outbox.ParseEvent(lines.Bytes())
		if err != nil {
			tb.Fatal(err)
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return events
}

// bench is a store with a worker on it.
type bench struct {
	*store.Store
	worker *worker.Worker
	set    *projection.Set
	dir    string
}

// open makes a store in a directory of its own. change adjusts the options.
func open(tb testing.TB, sources []string, change func(*store.Options, *worker.Config)) *bench {
	tb.Helper()
	return openIn(tb, tb.TempDir(), sources, change)
}

func openIn(tb testing.TB, dir string, sources []string, change func(*store.Options, *worker.Config)) *bench {
	tb.Helper()
	o := store.Options{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db")}
	c := worker.Config{Mode: outbox.ModeOutbox}
	if change != nil {
		change(&o, &c)
	}
	o.Mode = c.Mode
	set, err := projection.Load("sqlite", sources...)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := store.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	if err := worker.Install(tb.Context(), s, set); err != nil {
		tb.Fatal(err)
	}
	c.Store, c.Set = s, set
	return &bench{Store: s, worker: worker.New(c), set: set, dir: dir}
}

// drain works until nothing is due.
func (b *bench) drain(tb testing.TB) {
	tb.Helper()
	for more := true; more; {
		var err error
		if more, err = b.worker.Pass(context.Background()); err != nil {
			tb.Fatal(err)
		}
	}
}

func (b *bench) mustAppend(tb testing.TB, events ...outbox.Event) {
	tb.Helper()
	for first := 0; first < len(events); first += 500 {
		if _, err := b.Append(context.Background(), store.Append{Events: events[first:min(len(events), first+500)]}); err != nil {
			tb.Fatal(err)
		}
	}
}

func (b *bench) mustBeSound(tb testing.TB) {
	tb.Helper()
	report, err := b.Check(context.Background(), func(int64, int64) {})
	if err != nil {
		tb.Fatal(err)
	}
	for _, v := range report.Violations {
		tb.Errorf("check: %+v", v)
	}
	if report.Checked["skipped"] > 0 {
		tb.Errorf("check skipped %d campaigns", report.Checked["skipped"])
	}
}

func TestPass_appliesTheRecordedJournal(t *testing.T) {
	events := readJournal(t)
	b := open(t, []string{"builtin:campaigns"}, func(o *store.Options, _ *worker.Config) { o.Retry.MaxAttempts = 1 })
	b.mustAppend(t, events...)
	b.drain(t)

	summary, err := b.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if summary.Campaigns.Total != 590 || summary.Counts.Dead != 1 || summary.Campaigns.Blocked != 1 || summary.Campaigns.Leased != 0 {
		t.Errorf("summary = %+v", summary)
	}
	dead, err := b.Rows(t.Context(), outbox.RowFilter{Status: outbox.Dead})
	if err != nil {
		t.Fatal(err)
	}
	if len(dead.Items) != 1 || dead.Items[0].CampaignID != "bdsewd4qujfbhle3m7pgb4wrzy" || dead.Items[0].Seq != 5 {
		t.Errorf("dead rows = %+v", dead.Items)
	}
	b.mustBeSound(t)
}

// contextUntilDrained ends when no row is left.
func contextUntilDrained(tb testing.TB, b *bench) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	b.worker.Wake()
	go func() {
		defer cancel()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			waiting, err := b.OutstandingCampaigns(context.Background(), "", 1)
			if err != nil || len(waiting) == 0 {
				return
			}
		}
	}()
	return ctx, cancel
}
