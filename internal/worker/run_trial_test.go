package worker_test

import (
	"strings"
	"testing"

	"outboxweb/internal/outbox"
	"outboxweb/internal/worker"
)

// try asks what a rebuild of a campaign would do.
func (b *bench) try(tb testing.TB, campaign string, projections ...string) outbox.RunResult {
	tb.Helper()
	f, err := worker.NewFolder(tb.Context(), b.Store, b.set)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	r, err := f.TryRebuild(tb.Context(), campaign, projections...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// changes sums up how the rows of the projections would change.
func changes(r outbox.RunResult) (added, changed, removed int64) {
	for _, p := range r.Projections {
		if c := p.Comparison; c != nil {
			added, changed, removed = added+c.Added, changed+c.Changed, removed+c.Removed
		}
	}
	return added, changed, removed
}

func TestTryRebuild_followsADivergedCampaignToTheEndOfItsJournal(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, accounts))
	b.mustAppend(t, opened("a", 10), spent("a", 1), noted("a"))
	b.drain(t)
	b.meddle(t, `update projection_watermarks set applied_hash = 'other', applied_seq = 7 where campaign_id = 'a'`)
	b.meddle(t, `update accounts set balance = 5 where campaign_id = 'a'`)
	if _, err := b.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := b.try(t, "a", "accounts"); r.Outcome != outbox.OutcomeFailed || !strings.Contains(r.Error, "all projections") {
		t.Errorf("of one projection: %+v", r)
	}
	r := b.try(t, "a")
	if added, changed, removed := changes(r); r.Outcome != outbox.OutcomeDrift || r.Seq != 3 || added+removed != 0 || changed != 1 {
		t.Errorf("of all: %+v", r)
	}
	if c := b.campaign(t, "a"); c.Diverged == "" {
		t.Error("the trial took the mark off")
	}
	b.mustRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, Campaigns: []string{"a"}})
	if r := b.try(t, "a"); r.Outcome != outbox.OutcomeMatch {
		t.Errorf("after the rebuild: %+v", r)
	}
}

func TestTryRebuild_bringsQuarantinedProjectionsLevel(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, lenientAccounts), maxAttempts(1))
	b.mustAppend(t, opened("b", 10), spent("b", 100), noted("b"), spent("b", 1))
	b.drain(t)
	r := b.try(t, "b")
	if r.Outcome != outbox.OutcomeFailed || !strings.Contains(r.Error, "event 2 cannot be folded") {
		t.Errorf("while it fails: %+v", r)
	}
	repaired := define(t, trail, strings.ReplaceAll(lenientAccounts, "balance = balance - :payload.amount!", "balance = 7"))
	after := openPair(t, b.pair, repaired, maxAttempts(1))
	r = after.try(t, "b")
	if added, changed, removed := changes(r); r.Outcome != outbox.OutcomeDrift || added+removed != 0 || changed != 1 {
		t.Errorf("once it is mended: %+v", r)
	}
	if aside, err := after.SetAside(t.Context(), "b"); err != nil || aside["accounts"] != 1 {
		t.Errorf("the trial moved what is set aside: %v (%v)", aside, err)
	}
}
