package worker_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

const (
	realJournal    = "../../../shared/data/journal.jsonl.gz"
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

// digests are the full digests of every campaign of the journal.
func (b *bench) digests(tb testing.TB, events []outbox.Event) map[string]string {
	tb.Helper()
	all := make(map[string]string)
	for _, e := range events {
		if _, known := all[e.CampaignID]; known {
			continue
		}
		_, full, err := b.set.Digests(context.Background(), b.ProjectionsReader(), e.CampaignID)
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
	waiting := column[string](tb, b.journal(tb), `select distinct campaign_id from projection_apply_outbox`)
	if len(waiting) != 1 || waiting[0] != poisonCampaign {
		tb.Errorf("campaigns %q have rows, want only %q", waiting, poisonCampaign)
	}
	if leased := column[string](tb, b.journal(tb), `select campaign_id from campaigns where lease_owner <> ''`); len(leased) > 0 {
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
func recorded(t *testing.T, events []outbox.Event) *bench {
	t.Helper()
	b := open(t, []string{"builtin:campaigns"}, maxAttempts(1))
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
	b := recorded(t, events)
	digests, before := b.digests(t, events), b.dump(t, "instances", "sqlite_sequence")

	t.Run("applies all but the one dead head, advancing over audit-only events", func(t *testing.T) {
		mustHaveOneDeadHead(t, b)
		mustHaveNoGap(t, b)
		b.mustBeSound(t)
	})
	t.Run("makes of it what a fold from scratch makes", func(t *testing.T) {
		if len(digests) != realCampaigns {
			t.Errorf("%d campaigns, want %d", len(digests), realCampaigns)
		}
		mustHaveDigests(t, digests, b.folded(t, events))
	})
	t.Run("changes nothing when it is appended again", func(t *testing.T) {
		appendAgain(t, b, events)
		mustEqual(t, "appending it again", before, b.dump(t, "instances", "sqlite_sequence"))
	})
	t.Run("changes nothing on a second start", func(t *testing.T) {
		second := b.beside(t, maxAttempts(1))
		stop := second.start(t)
		eventually(t, "the second start has announced itself", func() bool {
			return len(column[int](t, b.journal(t), `select 1 from instances`)) > 0
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
		mustEqual(t, "a second start", before, b.dump(t, "instances", "sqlite_sequence"))
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
