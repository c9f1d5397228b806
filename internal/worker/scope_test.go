package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

func serving(patterns ...string) option {
	return func(_ *store.Options, c *worker.Config) {
		scope, err := outbox.ParseScope(patterns)
		if err != nil {
			panic(err)
		}
		c.Campaigns = scope
	}
}

func (b *bench) explained(tb testing.TB, id string) outbox.Explanation {
	tb.Helper()
	summary, err := b.Store.Summary(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return b.campaign(tb, id).Explain(time.Now(), summary.Surroundings())
}

func TestRun_appliesTheCampaignsThatItServesAndOthersSayWhyTheyWait(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger), serving("trial-*"), polling(20*time.Millisecond))
	stop := b.start(t)
	b.mustAppend(t, opened("trial-1", 1), opened("other", 1))
	eventually(t, "the trial is applied", func() bool { return b.campaign(t, "trial-1").LagEvents() == 0 })
	eventually(t, "the other says why", func() bool { return b.explained(t, "other").Hold == outbox.HoldUnserved })
	if e := b.explained(t, "other"); e.ClaimableAt != nil || !strings.Contains(e.Why, "match trial-*") {
		t.Errorf("it says %+v", e)
	}
	if lag := b.campaign(t, "other").LagEvents(); lag != 1 {
		t.Errorf("the other lags by %d", lag)
	}

	second := b.beside(t, polling(20*time.Millisecond))
	defer second.start(t)()
	eventually(t, "another instance takes it", func() bool { return b.campaign(t, "other").LagEvents() == 0 })
	stop()
	b.mustBeSound(t)
}

func TestApplyInline_leavesCampaignsThatItDoesNotServe(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger), mode(outbox.ModeInline), serving("trial"))
	if err := b.appendInline(t, opened("trial", 1)); err != nil {
		t.Errorf("what it serves: %v", err)
	}
	err := b.appendInline(t, opened("other", 1))
	if !errors.Is(err, outbox.ErrNotYet) || !strings.Contains(err.Error(), "match trial") {
		t.Errorf("what it does not serve: %v", err)
	}
	b.mustStand(t, "other", 1, outbox.Pending, 0)
}
