package worker_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

const (
	realJournal    = "../../../shared/data/journal.jsonl.gz"
	realTraces     = "../../../shared/data/traces"
	realCampaigns  = 590
	poisonCampaign = "bdsewd4qujfbhle3m7pgb4wrzy"
	poisonSeq      = 5
)

// auditOnly are the event types that the recorded journal's own registry keeps
// out of projections.
var auditOnly = map[string]outbox.Intent{
	"sys.daggerheart.gm_move_applied": outbox.IntentAuditOnly,
	"story.note_added":                outbox.IntentAuditOnly,
	"action.outcome_rejected":         outbox.IntentAuditOnly,
	"action.roll_resolved":            outbox.IntentAuditOnly,
	"action.outcome_applied":          outbox.IntentAuditOnly,
}

// realFile opens recorded data, which a plain clone does not have.
func realFile(tb testing.TB, path string) io.Reader {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("the recorded data is missing: %v", err)
		}
		tb.Skipf("the recorded data is missing: %v", err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}

// readJournal reads the recorded journal.
func readJournal(tb testing.TB) []outbox.Event {
	tb.Helper()
	unzipped, err := gzip.NewReader(realFile(tb, realJournal))
	if err != nil {
		tb.Fatal(err)
	}
	return readEvents(tb, unzipped)
}

// readEvents reads one event a line.
func readEvents(tb testing.TB, from io.Reader) []outbox.Event {
	tb.Helper()
	var events []outbox.Event
	lines := bufio.NewScanner(from)
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

// digests are the full digests of every campaign of the journal.
func (b *bench) digests(tb testing.TB, events []outbox.Event) map[string]string {
	tb.Helper()
	snapshot, err := b.ProjectionsSnapshot(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer snapshot.Rollback()
	all := make(map[string]string)
	for _, e := range events {
		if _, known := all[e.CampaignID]; known {
			continue
		}
		_, full, err := b.set.Digests(context.Background(), snapshot, e.CampaignID)
		if err != nil {
			tb.Fatal(err)
		}
		all[e.CampaignID] = full
	}
	return all
}

// folded are the digests of a fold of the journal from scratch, without the
// dead head and what waits behind it.
func (b *bench) folded(tb testing.TB, events []outbox.Event) map[string]string {
	tb.Helper()
	scratch, err := b.set.NewScratch(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer scratch.Close()
	all := make(map[string]string)
	seqs := make(map[string]int)
	for i := range events {
		e := events[i]
		if seqs[e.CampaignID]++; e.CampaignID == poisonCampaign && seqs[e.CampaignID] >= poisonSeq {
			continue
		}
		if err := e.Normalize(outbox.DefaultMaxPayload); err != nil {
			tb.Fatal(err)
		}
		if err := scratch.Apply(context.Background(), &e); err != nil {
			tb.Fatalf("fold campaign %q seq %d: %v", e.CampaignID, e.Seq, err)
		}
		all[e.CampaignID] = ""
	}
	for campaign := range all {
		if _, all[campaign], err = scratch.Digests(context.Background(), campaign); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

func mustHaveDigests(tb testing.TB, got, want map[string]string) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("digests by campaign (-want +got):\n%s", diff)
	}
}

func mustHaveOneDeadHead(tb testing.TB, b *bench) {
	tb.Helper()
	dead, err := b.Rows(context.Background(), outbox.RowFilter{Status: outbox.Dead})
	if err != nil {
		tb.Fatal(err)
	}
	if len(dead.Items) != 1 || dead.Items[0].CampaignID != poisonCampaign || dead.Items[0].Seq != poisonSeq || !dead.Items[0].IsHead {
		tb.Errorf("dead rows = %+v, want the one head of campaign %q seq %d", dead.Items, poisonCampaign, poisonSeq)
	}
	waiting := column[string](tb, b.journal, `select distinct campaign_id from projection_apply_outbox`)
	if len(waiting) != 1 || waiting[0] != poisonCampaign {
		tb.Errorf("campaigns %q have rows, want only %q", waiting, poisonCampaign)
	}
	if leased := column[string](tb, b.journal, `select campaign_id from campaigns where lease_owner <> ''`); len(leased) > 0 {
		tb.Errorf("campaigns %q stay leased", leased)
	}
}

func mustHaveNoGap(tb testing.TB, b *bench) {
	tb.Helper()
	if gaps, err := b.Gaps(context.Background()); err != nil || len(gaps) > 0 {
		tb.Errorf("gaps %+v (%v), want none", gaps, err)
	}
}

// recorded is a bench on which the recorded journal was applied as far as it
// goes, its audit-only types registered.
func recorded(t *testing.T, p dbtest.Pair, events []outbox.Event) *bench {
	t.Helper()
	b := openPair(t, p, []string{"builtin:campaigns"}, maxAttempts(1))
	if err := b.RegisterEventTypes(t.Context(), auditOnly); err != nil {
		t.Fatal(err)
	}
	b.mustAppend(t, events...)
	b.drain(t)
	return b
}

// One journal serves all that follows, since appending and applying it takes
// its time.
func TestWorker_onTheRecordedJournal(t *testing.T) {
	t.Parallel()
	events := readJournal(t)
	b := recorded(t, dbtest.New(t), events)
	digests, before := b.digests(t, events), b.dump(t, "instances")

	t.Run("applies all but the one dead head, advancing over audit-only events", func(t *testing.T) {
		mustHaveOneDeadHead(t, b)
		mustHaveNoGap(t, b)
		b.mustBeSound(t)
	})
	t.Run("makes of it what a fold from scratch makes, and the other database", func(t *testing.T) {
		if len(digests) != realCampaigns {
			t.Errorf("%d campaigns, want %d", len(digests), realCampaigns)
		}
		mustHaveDigests(t, digests, b.folded(t, events))
		if b.postgres() {
			mustHaveDigests(t, digests, recorded(t, dbtest.Files(t.TempDir()), events).digests(t, events))
		}
	})
	t.Run("changes nothing when it is appended again", func(t *testing.T) {
		again := events
		if b.postgres() {
			again = events[:len(events)/5] // each is asked for on its own there
		}
		appendAgain(t, b, again)
		mustEqual(t, "appending it again", before, b.dump(t, "instances"))
	})
	t.Run("changes nothing on a second start", func(t *testing.T) {
		second := b.beside(t, maxAttempts(1))
		stop := second.start(t)
		eventually(t, "the second start has announced itself", func() bool {
			return len(column[int](t, b.journal, `select 1 from instances`)) > 0
		})
		stop()
		for _, step := range second.worker.TimedSteps() {
			if more, err := step(t.Context()); more || err != nil {
				t.Errorf("a step of the second start had something to do: %v %v", more, err)
			}
		}
		if repaired, err := second.Reconcile(t.Context()); err != nil || repaired != (outbox.Repaired{}) {
			t.Errorf("the second start repaired %+v (%v)", repaired, err)
		}
		mustEqual(t, "a second start", before, b.dump(t, "instances"))
		mustHaveDigests(t, second.digests(t, events), digests)
		mustHaveNoGap(t, second)
	})
}

func appendAgain(t *testing.T, b *bench, events []outbox.Event) {
	t.Helper()
	for chunk := range slices.Chunk(events, 500) {
		appended, err := b.Append(t.Context(), store.Append{Events: chunk})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range appended {
			if !a.Existed {
				t.Fatalf("campaign %q seq %d was appended a second time", a.CampaignID, a.Seq)
			}
		}
	}
}

// readTraces reads the recorded decision traces, and the digests published of
// some of them.
func readTraces(tb testing.TB) (events []outbox.Event, published map[string]string) {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(realTraces, "*.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	var digests map[string]map[string]string
	if err := json.NewDecoder(realFile(tb, filepath.Join(realTraces, "expected_digests.json"))).Decode(&digests); err != nil {
		tb.Fatal(err)
	}
	for _, path := range paths {
		events = append(events, readEvents(tb, realFile(tb, path))...)
	}
	published = make(map[string]string)
	for trace, d := range digests {
		published[trace] = d["full_projection"]
	}
	return events, published
}

func TestWorker_makesOfRecordedTracesWhatIsPublished(t *testing.T) {
	t.Parallel()
	events, published := readTraces(t)
	digests := applied(t, dbtest.New(t), events)
	if len(digests) != 5 || len(published) != 2 {
		t.Errorf("%d traces and %d published digests, want 5 and 2", len(digests), len(published))
	}
	for trace, want := range published {
		if digests[trace] != want {
			t.Errorf("the digest of %s is %s, want %s", trace, digests[trace], want)
		}
	}
	if dbtest.Postgres() {
		mustHaveDigests(t, digests, applied(t, dbtest.Files(t.TempDir()), events))
	}
}

// applied is the digests of traces after they were applied.
func applied(t *testing.T, p dbtest.Pair, events []outbox.Event) map[string]string {
	t.Helper()
	b := openPair(t, p, []string{"builtin:traces"})
	b.mustAppend(t, events...)
	b.drain(t)
	mustBeUntouched(t, b)
	b.mustBeSound(t)
	return b.digests(t, events)
}
