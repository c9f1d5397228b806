package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func serving(patterns ...string) enginetest.Option {
	return func(o *enginetest.Options) {
		scope, err := outbox.ParseScope(patterns)
		if err != nil {
			panic(err)
		}
		o.Worker.Campaigns = scope
	}
}

func explained(tb testing.TB, b *enginetest.Engine, id string) outbox.Explanation {
	summary := must.Get(b.Store.Summary(tb.Context())).Or(tb)
	return b.MustCampaign(id).Explain(time.Now(), summary.Surroundings())
}

func TestRun_appliesTheCampaignsThatItServesAndOthersSayWhyTheyWait(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), serving("trial-*"), enginetest.Polling(20*time.Millisecond))
	stop := b.Start()
	b.MustAppend(enginetest.Opened("trial-1", 1), enginetest.Opened("other", 1))
	storetest.Eventually(t, "the trial is applied", func() bool { return b.MustCampaign("trial-1").LagEvents() == 0 })
	storetest.Eventually(t, "the other says why", func() bool { return explained(t, b, "other").Blocker == outbox.BlockerUnserved })
	e := explained(t, b, "other")
	must.Hold(t, e.ClaimableAt == nil && strings.Contains(e.Why, "match trial-*"), "it says %+v", e)
	must.Equal(t, b.MustCampaign("other").LagEvents(), 1, "the other lags by")

	second := b.Beside(enginetest.Polling(20 * time.Millisecond))
	defer second.Start()()
	storetest.Eventually(t, "another instance takes it", func() bool { return b.MustCampaign("other").LagEvents() == 0 })
	stop()
	b.Sound()
}

func TestApplyInline_leavesCampaignsThatItDoesNotServe(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(outbox.ModeInline), serving("trial"))
	must.OK(t, appendInline(t, b, enginetest.Opened("trial", 1)))
	err := appendInline(t, b, enginetest.Opened("other", 1))
	must.Hold(t, errors.Is(err, outbox.ErrNotYet) && strings.Contains(err.Error(), "match trial"), "what it does not serve: %v", err)
	b.MustStand("other", 1, outbox.Pending, 0)
}
