package runs_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// try previews a rebuild of a campaign.
func try(tb testing.TB, b *enginetest.Engine, campaign string, projections ...string) outbox.RunResult {
	tb.Helper()
	f, err := runs.NewReplayer(tb.Context(), b.Store, b.Set)
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
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Accounts))
	b.MustAppend(t, enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Noted("a"))
	b.Drain(t)
	b.Meddle(t, `update projection_watermarks set applied_hash = 'other', applied_seq = 7 where campaign_id = 'a'`)
	b.Meddle(t, `update accounts set balance = 5 where campaign_id = 'a'`)
	if _, err := b.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := try(t, b, "a", "accounts"); r.Outcome != outbox.OutcomeFailed || !strings.Contains(r.Error, "all projections") {
		t.Errorf("of one projection: %+v", r)
	}
	r := try(t, b, "a")
	if added, changed, removed := changes(r); r.Outcome != outbox.OutcomeDrift || r.Seq != 3 || added+removed != 0 || changed != 1 {
		t.Errorf("of all: %+v", r)
	}
	if c := b.MustCampaign(t, "a"); c.Diverged == "" {
		t.Error("the trial took the mark off")
	}
	b.MustRun(t, outbox.RunRequest{Kind: outbox.RunRebuild, Campaigns: []string{"a"}})
	if r := try(t, b, "a"); r.Outcome != outbox.OutcomeMatch {
		t.Errorf("after the rebuild: %+v", r)
	}
}

func TestTryRebuild_bringsQuarantinedProjectionsLevel(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.LenientAccounts), enginetest.MaxAttempts(1))
	b.MustAppend(t, enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"), enginetest.Spent("b", 1))
	b.Drain(t)
	r := try(t, b, "b")
	if r.Outcome != outbox.OutcomeFailed || !strings.Contains(r.Error, "event 2 cannot be replayed") {
		t.Errorf("while it fails: %+v", r)
	}
	repaired := enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.LenientAccounts, "balance = balance - :payload.amount!", "balance = 7"))
	after := enginetest.OpenPair(t, b.Pair, repaired, enginetest.MaxAttempts(1))
	r = try(t, after, "b")
	if added, changed, removed := changes(r); r.Outcome != outbox.OutcomeDrift || added+removed != 0 || changed != 1 {
		t.Errorf("once it is mended: %+v", r)
	}
	after.MustHaveCursors(t, "b accounts 1 quarantined")
}
