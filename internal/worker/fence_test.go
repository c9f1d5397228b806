package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

// takenOver lets a's lease on campaign c run out after its claim, and b take
// over and apply everything.
func takenOver(t *testing.T, now *clock, a *bench, events ...outbox.Event) (b *bench, stale []store.Claim) {
	t.Helper()
	b = a.beside(t, at(now))
	a.mustAppend(t, events...)
	stale = a.claim(t)
	now.advance(leaseTime + time.Second)
	b.drain(t)
	return b, stale
}

func TestPass_changesNothingOnceItsLeaseWasTakenOver(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger, accounts), at(now))
	b, stale := takenOver(t, now, a, append(notes("c", 3), opened("d", 10), spent("d", 100), noted("d"))...)
	b.mustHaveApplied(t, "c", 3)
	b.mustStand(t, "d", 2, outbox.Failed, 1)
	before := a.dump(t)

	if err := a.worker.FinishClaims(t.Context(), stale); err != nil {
		t.Fatal(err)
	}

	mustEqual(t, "a worker that was taken over", before, a.dump(t))
	if got := a.worker.Counted(); got != (store.Settled{Fenced: 2}) {
		t.Errorf("counted %+v, want 2 campaigns fenced and nothing else", got)
	}
	a.mustBeSound(t)
}

func TestPass_leavesTheEventsAppendedAfterATakeOverToTheNewOwner(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger), at(now))
	b, stale := takenOver(t, now, a, notes("c", 3)...)
	b.mustAppend(t, notes("c", 2)...)
	held := b.claim(t)
	before := a.dump(t)

	if err := a.worker.FinishClaims(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "a worker that was taken over", before, a.dump(t))

	if err := b.worker.FinishClaims(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	b.mustHaveApplied(t, "c", 5)
	b.mustBeSound(t)
}

func TestPass_fencesACampaignWhoseHeadItCouldNotApply(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger, probing), at(now))
	broken := errors.New("not today")
	onProbe(t, t.Name(), func([]string) (string, error) { return "fine", broken })
	_, stale := takenOver(t, now, a, probed("c", t.Name()), noted("c"))
	a.mustStand(t, "c", 1, outbox.Failed, 1)
	before := a.dump(t)
	broken = nil

	if err := a.worker.FinishClaims(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "a worker that was taken over", before, a.dump(t))
	if got := a.worker.Counted(); got != (store.Settled{Fenced: 1}) {
		t.Errorf("counted %+v, want 1 campaign fenced and nothing else", got)
	}
}

// Between a take-over and its first transaction on the projections nothing
// there tells the stale worker. It may apply, and the new owner finds it done.
func TestPass_appliesOnceWhenTheStaleWorkerComesBeforeTheNewOwnersFence(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger), at(now))
	b := a.beside(t, at(now))
	a.mustAppend(t, notes("c", 5)...)
	stale := a.claim(t)
	now.advance(leaseTime + time.Second)
	held := b.claim(t)
	for _, wave := range []struct {
		*bench
		claims []store.Claim
	}{{a, stale}, {b, held}} {
		if err := wave.worker.FinishClaims(t.Context(), wave.claims); err != nil {
			t.Fatal(err)
		}
	}
	b.mustHaveApplied(t, "c", 5)
	if a.worker.Counted().Fenced != 1 || b.worker.Counted().Applied != 5 {
		t.Errorf("the stale worker counted %+v, the new owner %+v", a.worker.Counted(), b.worker.Counted())
	}
	b.mustBeSound(t)
}

func TestPass_completesWithoutApplyingTwiceWhatACrashLeftUnsettled(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger), at(now))
	a.mustAppend(t, notes("c", 5)...)
	if err := a.worker.ApplyClaims(t.Context(), a.claim(t)); err != nil {
		t.Fatal(err)
	}
	a.mustHaveApplied(t, "c", 5)
	a.mustAppend(t, notes("c", 2)...)

	b := a.beside(t, at(now))
	if b.pass(t) {
		t.Error("a lease that stands was taken")
	}
	now.advance(leaseTime + time.Second)
	b.drain(t)
	b.mustHaveApplied(t, "c", 7)
	if rows := b.campaign(t, "c").Counts.Total(); rows != 0 {
		t.Errorf("%d rows are left", rows)
	}
	b.mustBeSound(t)
}

func TestRun_completesAtStartWhatACrashLeftUnsettled(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger), at(now))
	a.mustAppend(t, notes("c", 5)...)
	if err := a.worker.ApplyClaims(t.Context(), a.claim(t)); err != nil {
		t.Fatal(err)
	}
	now.advance(leaseTime + time.Second)

	b := a.beside(t, at(now), polling(time.Hour))
	stop := b.start(t)
	eventually(t, "the rows of applied events are gone", func() bool { return b.campaign(t, "c").Counts.Total() == 0 })
	stop()
	b.mustHaveApplied(t, "c", 5)
	b.mustBeSound(t)
}

// An event whose process dies in the middle, again and again, is suspected of
// being the cause: it is tried alone, each attempt counted before it starts, and
// dies like any other that fails.
func TestPass_countsAttemptsThatTookTheirProcessDown(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger), at(now))
	b.mustAppend(t, notes("c", 5)...)
	for range 20 {
		b.claim(t)
		now.advance(leaseTime + 10*time.Minute)
	}
	r := b.row(t, "c", 1)
	if r.Row.Status != outbox.Dead || r.Row.AttemptCount != 8 {
		t.Errorf("the event that takes processes down is %s after %d attempts, want dead after 8", r.Row.Status, r.Row.AttemptCount)
	}
	b.mustHaveApplied(t, "c", 0)
	b.mustRequeue(t, "c", 1)
	b.drain(t)
	b.mustHaveApplied(t, "c", 5)
	b.mustBeSound(t)
}

// quickRetries try an event again soon, and never give it up.
var quickRetries = outbox.Retry{MaxAttempts: 100_000, Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}

// A process that stands still for longer than its lease loses it. Where that
// happens to this one, the lease becomes longer than that.
func TestPass_keepsItsLeaseThroughAWaveThatTakesLong(t *testing.T) {
	t.Parallel()
	for lease := time.Second; ; lease *= 3 {
		taken := takenInALongWave(t, lease)
		if len(taken) == 0 {
			return
		}
		if lease > 20*time.Second {
			t.Fatalf("another worker took over: %+v", taken)
		}
	}
}

// takenInALongWave is what another worker can claim of a campaign that is
// applied for longer than the lease.
func takenInALongWave(t *testing.T, lease time.Duration) (claims []store.Claim) {
	t.Helper()
	a := open(t, define(t, ledger, probing), leasing(lease))
	b, db := a.beside(t), a.journal
	key := t.Name() + lease.String()
	onProbe(t, key, func([]string) (string, error) {
		expiry := func() int64 { return column[int64](t, db, `select lease_expires_at from campaigns`)[0] }
		first := expiry()
		eventually(t, "the lease is renewed beyond its first end", func() bool {
			now := time.Now().UnixMicro()
			return now > first && expiry() > now
		})
		claims = b.claim(t)
		return "late", nil
	})
	a.mustAppend(t, noted("c"), probed("c", key), noted("c"))
	a.pass(t)
	if len(claims) == 0 {
		a.mustHaveApplied(t, "c", 3)
		a.mustBeSound(t)
	}
	return claims
}

// TestRun_appliesEveryEventOnceUnderTwoProcesses appends while two workers on
// the same files start, end and lose their waves at random.
func TestRun_appliesEveryEventOnceUnderTwoProcesses(t *testing.T) {
	t.Parallel()
	const campaigns, each = 12, 60
	short := func(o *store.Options, c *worker.Config) {
		o.Retry = quickRetries // a wave whose lease ends on a slow machine counts as an attempt
		c.Lease, c.PollInterval, c.BatchSize = 300*time.Millisecond, 10*time.Millisecond, 40
	}
	a := open(t, define(t, ledger), short)
	b := a.beside(t, short)
	ctx, cancel := context.WithCancel(t.Context())
	var disturbing sync.WaitGroup
	for i, process := range []*bench{a, b} {
		disturbing.Go(func() { process.disturb(ctx, t, rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	for i := range each {
		for c := range campaigns {
			[]*bench{a, b}[(i+c)%2].mustAppend(t, noted(fmt.Sprint("c", c)))
		}
	}
	cancel()
	disturbing.Wait()

	a.start(t)
	b.start(t)
	for c := range campaigns {
		a.mustWait(t, fmt.Sprint("c", c), each)
	}
	eventually(t, "no row is left", func() bool {
		left, err := a.OutstandingCampaigns(t.Context(), "", 1)
		return err == nil && len(left) == 0
	})
	for c := range campaigns {
		a.mustHaveApplied(t, fmt.Sprint("c", c), each)
	}
	a.mustBeSound(t)
}

// disturb runs the worker for short times; in between, waves are claimed or
// applied and then forgotten, as by a process that is killed.
func (b *bench) disturb(ctx context.Context, t *testing.T, dice *rand.Rand) {
	for ctx.Err() == nil {
		run, cancel := context.WithTimeout(ctx, time.Duration(dice.IntN(30))*time.Millisecond)
		if err := b.worker.Run(run); err != nil {
			t.Errorf("run: %v", err)
		}
		cancel()
		claims, err := b.Claim(ctx, b.worker.Who(), store.ClaimLimits{Rows: 20, Lease: time.Duration(20+dice.IntN(80)) * time.Millisecond})
		if err != nil || dice.IntN(2) == 0 {
			continue
		}
		if err := b.worker.ApplyClaims(ctx, claims); err != nil {
			t.Errorf("apply: %v", err)
		}
	}
}
