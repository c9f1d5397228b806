package worker_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestWorker_drainsInOrderWhateverHappened(t *testing.T) {
	t.Parallel()
	sources := enginetest.Define(t, enginetest.Ledger, enginetest.Accounts)
	rapid.Check(t, func(r *rapid.T) {
		tb := enginetest.RapidTB{TB: t, R: r}
		s := enginetest.NewTroubled(tb, sources)
		r.Repeat(map[string]func(*rapid.T){
			"append": s.Append, "pass": s.Pass, "pass again": s.Pass, "advance": s.Advance,
			"die after claim": s.DieAfterClaim, "die after apply": s.DieAfterApply,
			"sleep after claim": s.SleepAfterClaim, "wake": s.Wake,
			"requeue": s.Requeue, "pause or resume": s.PauseOrResume, "reconcile": s.Reconcile,
			"": s.Invariants,
		})
		s.Settle()
		for _, campaign := range enginetest.TroubledCampaigns {
			s.Engines[0].MustHaveApplied(campaign, s.Appended[campaign])
		}
		for _, sleeper := range s.Asleep {
			must.OK(r, sleeper.Engine.FinishClaims(context.Background(), sleeper.Claims))
		}
		s.Invariants(r)
		s.Engines[1].Sound()
		left := storetest.Column[string](tb, s.Engines[0].JournalDB, `select campaign_id || ' ' || seq from projection_apply_outbox`)
		must.Need(r, len(left) == 0, "rows are left: %q", left)
	})
}
