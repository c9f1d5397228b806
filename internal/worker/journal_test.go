package worker_test

import (
	"context"
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// digestsOf are the full digests of every campaign of the journal.
func digestsOf(tb testing.TB, b *enginetest.Engine, events []outbox.Event) map[string]string {
	snapshot := must.Get(b.Snapshot(context.Background())).Or(tb)
	defer snapshot.Rollback()
	all := make(map[string]string)
	for _, e := range events {
		if _, known := all[e.CampaignID]; known {
			continue
		}
		_, full, err := b.Set.Digests(context.Background(), snapshot, e.CampaignID)
		must.OK(tb, err)
		all[e.CampaignID] = full
	}
	return all
}

// replayed are the digests of a replay of the journal from scratch, without the poisoned event and the events behind it.
func replayed(tb testing.TB, b *enginetest.Engine, j corpus.Journal, events []outbox.Event) map[string]string {
	scratch := must.Get(b.Set.NewScratch(context.Background())).Or(tb)
	defer scratch.Close()
	all := make(map[string]string)
	for _, e := range events {
		if e.CampaignID == j.Poisoned && e.Seq >= j.PoisonedSeq {
			continue
		}
		must.OK(tb, scratch.Apply(context.Background(), &e))
		all[e.CampaignID] = ""
	}
	for campaign := range all {
		_, digest, err := scratch.Digests(context.Background(), campaign)
		must.OK(tb, err)
		all[campaign] = digest
	}
	return all
}

func mustHaveDigests(tb testing.TB, got, want map[string]string) {
	must.Equal(tb, got, want, "digests by campaign")
}

func mustHaveOneDeadHead(tb testing.TB, b *enginetest.Engine, j corpus.Journal) {
	dead := must.Get(b.Rows(context.Background(), outbox.RowFilter{Status: outbox.Dead})).Or(tb)
	must.Hold(tb, len(dead.Items) == 1 && dead.Items[0].CampaignID == j.Poisoned && dead.Items[0].Seq == j.PoisonedSeq && dead.Items[0].IsHead, "dead rows = %+v", dead.Items)
	waiting := storetest.Column[string](tb, b.JournalDB, `select campaign_id from projection_apply_outbox`)
	must.Hold(tb, len(waiting) == j.Waiting && !slices.ContainsFunc(waiting, func(id string) bool { return id != j.Poisoned }), "rows of campaigns %q are left", waiting)
	leased := storetest.Column[string](tb, b.JournalDB, `select campaign_id from campaigns where lease_owner <> ''`)
	must.Hold(tb, len(leased) == 0, "campaigns %q stay leased", leased)
}

func mustHaveNoGap(tb testing.TB, b *enginetest.Engine) {
	gaps, err := b.Gaps(context.Background())
	must.Hold(tb, err == nil && len(gaps) == 0, "gaps %+v (%v), want none", gaps, err)
}

// journalled is an engine on which a journal was applied as far as possible, with its audit-only types registered.
func journalled(t *testing.T, p dbtest.Pair, j corpus.Journal, events []outbox.Event) *enginetest.Engine {
	b := enginetest.OpenPair(t, p, []string{"builtin:campaigns"}, enginetest.MaxAttempts(1))
	intents := make(map[string]outbox.Intent)
	for _, eventType := range j.AuditOnly {
		intents[eventType] = outbox.IntentAuditOnly
	}
	must.OK(t, b.RegisterEventTypes(t.Context(), intents))
	b.Feed(events...)
	return b
}

// Each journal is used for all subtests, since appending and applying the recorded one takes long.
func TestWorker_onAWholeJournal(t *testing.T) {
	t.Parallel()
	corpus.EachJournal(t, corpus.Long, func(t *testing.T, j corpus.Journal) {
		t.Parallel()
		events := j.Parse(t)
		b := journalled(t, dbtest.New(t), j, events)
		digests, before := digestsOf(t, b, events), b.Dump("instances")

		t.Run("applies all but the dead head and what waits for it, advancing over audit-only events", func(t *testing.T) {
			mustHaveOneDeadHead(t, b, j)
			mustHaveNoGap(t, b)
			b.Sound()
		})
		t.Run("makes of it what a replay from scratch makes, and the other database", func(t *testing.T) {
			must.Equal(t, len(digests), j.Campaigns, "campaigns")
			mustHaveDigests(t, digests, replayed(t, b, j, events))
			if b.OnPostgres() {
				mustHaveDigests(t, digests, digestsOf(t, journalled(t, dbtest.Files(t.TempDir()), j, events), events))
			}
		})
		t.Run("changes nothing when it is appended again", func(t *testing.T) {
			again := events
			if b.OnPostgres() {
				again = events[:len(events)/5] // each is applied on its own there
			}
			appendAgain(t, b, again)
			must.Equal(t, b.Dump("instances"), before, "appending it again")
		})
		t.Run("changes nothing on a second start", func(t *testing.T) {
			second := b.Beside(enginetest.MaxAttempts(1))
			stop := second.Start()
			storetest.Eventually(t, "the second start has announced itself", func() bool {
				return len(storetest.Column[int](t, b.JournalDB, `select 1 from instances`)) > 0
			})
			stop()
			for _, step := range append(second.Worker.TimedSteps(), second.Operations.Step) {
				more, err := step(t.Context())
				must.Hold(t, !more && err == nil, "a step of the second start had something to do: %v %v", more, err)
			}
			must.Equal(t, must.Get(second.Reconcile(t.Context())).Or(t), outbox.Repaired{}, "what the second start repaired")
			must.Equal(t, b.Dump("instances"), before, "a second start")
			mustHaveDigests(t, digestsOf(t, second, events), digests)
			mustHaveNoGap(t, second)
		})
	})
}

func appendAgain(t *testing.T, b *enginetest.Engine, events []outbox.Event) {
	for chunk := range slices.Chunk(events, 500) {
		appended := must.Get(b.Append(t.Context(), store.Append{Events: chunk})).Or(t)
		for _, a := range appended {
			must.Need(t, a.Existed, "campaign %q seq %d was appended a second time", a.CampaignID, a.Seq)
		}
	}
}
