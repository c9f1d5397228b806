package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// takenOver lets a's lease on campaign c expire after its claim, and makes b take over and apply everything.
func takenOver(t *testing.T, now *storetest.Clock, a *enginetest.Engine, events ...outbox.Event) (b *enginetest.Engine, stale []store.Claim) {
	b = a.Beside()
	a.MustAppend(events...)
	stale = a.ClaimWave()
	now.Advance(storetest.Lease + time.Second)
	b.Drain()
	return b, stale
}

func TestPass_changesNothingOnceItsLeaseWasTakenOver(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.At(now))
	b, stale := takenOver(t, now, a, append(enginetest.Notes("c", 3), enginetest.Opened("d", 10), enginetest.Spent("d", 100), enginetest.Noted("d"))...)
	b.MustHaveApplied("c", 3)
	b.MustStand("d", 2, outbox.Failed, 1)
	before := a.Dump()

	must.OK(t, a.FinishClaims(t.Context(), stale))

	must.Equal(t, a.Dump(), before, "a worker that was taken over")
	must.Equal(t, a.Worker.Counted(), store.Settled{Fenced: 2}, "counted")
	a.Sound()
}

// Between a take-over and its first transaction on the projections, nothing there fences off
// the stale worker. It may apply, and the new owner finds the events applied.
func TestPass_appliesOnceWhenTheStaleWorkerComesBeforeTheNewOwnersFence(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(now))
	b := a.Beside()
	a.MustAppend(enginetest.Notes("c", 5)...)
	stale := a.ClaimWave()
	now.Advance(storetest.Lease + time.Second)
	held := b.ClaimWave()
	for _, wave := range []struct {
		*enginetest.Engine
		claims []store.Claim
	}{{a, stale}, {b, held}} {
		must.OK(t, wave.FinishClaims(t.Context(), wave.claims))
	}
	b.MustHaveApplied("c", 5)
	if a.Worker.Counted().Fenced != 1 || b.Worker.Counted().Applied != 5 {
		t.Errorf("the stale worker counted %+v, the new owner %+v", a.Worker.Counted(), b.Worker.Counted())
	}
	b.Sound()
}

// quickRetries retries an event soon and never gives up.
var quickRetries = outbox.Retry{MaxAttempts: 100_000, Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}

// A process that stalls for longer than its lease loses it. When that happens to this one, the test retries with a longer lease.
func TestPass_keepsItsLeaseThroughAWaveThatTakesLong(t *testing.T) {
	t.Parallel()
	for lease := time.Second; ; lease *= 3 {
		taken := takenInALongWave(t, lease)
		if len(taken) == 0 {
			return
		}
		must.Need(t, lease <= 20*time.Second, "another worker took over: %+v", taken)
	}
}

// takenInALongWave is what another worker can claim of a campaign that is being applied for longer than the lease.
func takenInALongWave(t *testing.T, lease time.Duration) (claims []store.Claim) {
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing), enginetest.Leasing(lease))
	b, db := a.Beside(), a.JournalDB
	key := t.Name() + lease.String()
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		expiry := func() int64 { return storetest.Column[int64](t, db, `select lease_expires_at from campaigns`)[0] }
		first := expiry()
		storetest.Eventually(t, "the lease is renewed beyond its first end", func() bool {
			now := time.Now().UnixMicro()
			return now > first && expiry() > now
		})
		claims = b.ClaimWave()
		return "late", nil
	})
	a.MustAppend(enginetest.Noted("c"), enginetest.Probed("c", key), enginetest.Noted("c"))
	a.MustPass()
	if len(claims) == 0 {
		a.MustHaveApplied("c", 3)
		a.Sound()
	}
	return claims
}

// This test appends while two workers on the same files start, stop and lose their waves at random.
func TestRun_appliesEveryEventOnceUnderTwoProcesses(t *testing.T) {
	t.Parallel()
	campaigns, each := size.Of(4, 6, 12), size.Of(20, 30, 60)
	short := func(o *enginetest.Options) {
		o.Retry = quickRetries // a wave whose lease ends on a slow machine counts as an attempt
		o.Worker.Lease, o.Worker.PollInterval, o.Worker.BatchSize = 300*time.Millisecond, 10*time.Millisecond, 40
	}
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), short)
	b := a.Beside(short)
	ctx, cancel := context.WithCancel(t.Context())
	var disturbing sync.WaitGroup
	for i, process := range []*enginetest.Engine{a, b} {
		disturbing.Go(func() { disturb(ctx, t, process, rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	for i := range each {
		for c := range campaigns {
			[]*enginetest.Engine{a, b}[(i+c)%2].MustAppend(enginetest.Noted(fmt.Sprint("c", c)))
		}
	}
	cancel()
	disturbing.Wait()

	a.Start()
	b.Start()
	for c := range campaigns {
		a.MustWait(fmt.Sprint("c", c), int64(each))
	}
	storetest.Eventually(t, "no row is left", func() bool {
		left, err := a.OutstandingCampaigns(t.Context(), "", 1)
		return err == nil && len(left) == 0
	})
	for c := range campaigns {
		a.MustHaveApplied(fmt.Sprint("c", c), each)
	}
	a.Sound()
}

// disturb runs the worker for short times; in between, waves are claimed or applied and then abandoned, as by a killed process.
func disturb(ctx context.Context, t *testing.T, b *enginetest.Engine, dice *rand.Rand) {
	for ctx.Err() == nil {
		run, cancel := context.WithTimeout(ctx, time.Duration(dice.IntN(30))*time.Millisecond)
		err := b.Worker.Run(run)
		must.Hold(t, err == nil, "run: %v", err)
		cancel()
		claims, err := b.Claim(ctx, b.Worker.Name(), store.ClaimLimits{Rows: 20, Lease: time.Duration(20+dice.IntN(80)) * time.Millisecond})
		if err != nil || dice.IntN(2) == 0 {
			continue
		}
		_, err = b.Worker.Apply(ctx, claims)
		must.Hold(t, err == nil, "apply: %v", err)
	}
}
