package worker_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// rapidTB lets the helpers of this package fail one run of a property rather
// than the whole test.
type rapidTB struct {
	testing.TB
	r *rapid.T
}

func (p rapidTB) Cleanup(f func())                  { p.r.Cleanup(f) }
func (p rapidTB) Error(args ...any)                 { p.r.Error(args...) }
func (p rapidTB) Errorf(format string, args ...any) { p.r.Errorf(format, args...) }
func (p rapidTB) Fatal(args ...any)                 { p.r.Fatal(args...) }
func (p rapidTB) Fatalf(format string, args ...any) { p.r.Fatalf(format, args...) }

func (p rapidTB) TempDir() string {
	dir, err := os.MkdirTemp(p.TB.TempDir(), "")
	if err != nil {
		p.Fatal(err)
	}
	return dir
}

// troubled is a system of two processes to which anything may happen, with
// what it must come to in the end.
type troubled struct {
	tb       rapidTB
	now      *clock
	benches  []*bench
	appended map[string]int
	asleep   []sleeper
}

// sleeper is a wave whose process stopped after its claim.
type sleeper struct {
	bench  *bench
	claims []store.Claim
}

var troubledCampaigns = []string{"a", "b", "c"}

func newTroubled(tb rapidTB, sources []string) *troubled {
	s := &troubled{tb: tb, now: newClock(), appended: make(map[string]int)}
	a := open(tb, sources, at(s.now), batchSize(8), maxAttempts(3))
	s.benches = []*bench{a, a.beside(tb, at(s.now), batchSize(8), maxAttempts(3))}
	for _, campaign := range troubledCampaigns {
		a.mustAppend(tb, opened(campaign, 1))
		s.appended[campaign] = 1
	}
	return s
}

func (s *troubled) either(t *rapid.T) *bench {
	return s.benches[rapid.IntRange(0, 1).Draw(t, "process")]
}

func (s *troubled) campaign(t *rapid.T) string {
	return rapid.SampledFrom(troubledCampaigns).Draw(t, "campaign")
}

func (s *troubled) append(t *rapid.T) {
	campaign, n := s.campaign(t), rapid.IntRange(1, 6).Draw(t, "events")
	events := notes(campaign, n)
	if rapid.IntRange(0, 3).Draw(t, "poison") == 0 {
		events[n-1] = spent(campaign, 2)
	}
	s.either(t).mustAppend(s.tb, events...)
	s.appended[campaign] += n
}

func (s *troubled) pass(t *rapid.T) { s.either(t).pass(s.tb) }

func (s *troubled) advance(t *rapid.T) {
	s.now.advance(rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, leaseTime + time.Second}).Draw(t, "time"))
}

func (s *troubled) dieAfterClaim(t *rapid.T) { s.either(t).claim(s.tb) }

func (s *troubled) dieAfterApply(t *rapid.T) {
	b := s.either(t)
	if err := b.worker.ApplyClaims(context.Background(), b.claim(s.tb)); err != nil {
		t.Fatal(err)
	}
}

func (s *troubled) sleepAfterClaim(t *rapid.T) {
	b := s.either(t)
	s.asleep = append(s.asleep, sleeper{b, b.claim(s.tb)})
}

func (s *troubled) wake(t *rapid.T) {
	if len(s.asleep) == 0 {
		t.Skip("nobody sleeps")
	}
	i := rapid.IntRange(0, len(s.asleep)-1).Draw(t, "sleeper")
	w := s.asleep[i]
	s.asleep = slices.Delete(s.asleep, i, i+1)
	if err := w.bench.worker.FinishClaims(context.Background(), w.claims); err != nil {
		t.Fatal(err)
	}
}

func (s *troubled) requeue(t *rapid.T) {
	if _, err := s.either(t).RequeueDead(context.Background(), operator, outbox.RequeueFilter{}); err != nil {
		t.Fatal(err)
	}
}

func (s *troubled) pauseOrResume(t *rapid.T) {
	b, campaign := s.either(t), s.campaign(t)
	act := b.PauseCampaign
	if b.campaign(s.tb, campaign).Paused != nil {
		act = b.ResumeCampaign
	}
	if _, err := act(context.Background(), operator, campaign); err != nil {
		t.Fatal(err)
	}
}

func (s *troubled) reconcile(t *rapid.T) {
	if repaired, err := s.either(t).Reconcile(context.Background()); err != nil || repaired.Inserted > 0 || repaired.Diverged > 0 {
		t.Fatalf("reconciled %+v (%v), with no event lost and none changed", repaired, err)
	}
}

// invariants hold after every step.
func (s *troubled) invariants(t *rapid.T) {
	db := s.benches[0].projections
	for _, broken := range []struct{ what, query string }{
		{"applied more than once", `select campaign_id || ' ' || seq from ledger_applied where times <> 1`},
		{"applied out of order", `select campaign_id || ' ' || seq from (
  select campaign_id, seq, row_number() over (partition by campaign_id order by id) as n from ledger_history
) as numbered where seq <> n`},
		{"applied without the watermark", `select campaign_id || ' ' || seq from ledger_applied join projection_watermarks using (campaign_id) where seq > applied_seq`},
	} {
		if found := column[string](s.tb, db, broken.query); len(found) > 0 {
			t.Fatalf("%s: %q", broken.what, found)
		}
	}
}

// settle ends all trouble: causes are mended, dead rows requeued, campaigns
// resumed, and nobody dies any more.
func (s *troubled) settle() {
	b, mend := s.benches[0], s.benches[0].projections
	for _, campaign := range troubledCampaigns {
		if b.campaign(s.tb, campaign).Paused == nil {
			continue
		}
		if _, err := b.ResumeCampaign(context.Background(), operator, campaign); err != nil {
			s.tb.Fatal(err)
		}
	}
	for range 3 { // leases end, heads that died of their processes are requeued
		s.now.advance(time.Hour)
		mustExec(s.tb, mend, `update accounts set balance = 1000`)
		if _, err := b.RequeueDead(context.Background(), operator, outbox.RequeueFilter{}); err != nil {
			s.tb.Fatal(err)
		}
		b.drain(s.tb)
		s.benches[1].drain(s.tb)
	}
}

func TestWorker_drainsInOrderWhateverHappened(t *testing.T) {
	t.Parallel()
	sources := define(t, ledger, accounts)
	rapid.Check(t, func(r *rapid.T) {
		tb := rapidTB{t, r}
		s := newTroubled(tb, sources)
		r.Repeat(map[string]func(*rapid.T){
			"append": s.append, "pass": s.pass, "pass again": s.pass, "advance": s.advance,
			"die after claim": s.dieAfterClaim, "die after apply": s.dieAfterApply,
			"sleep after claim": s.sleepAfterClaim, "wake": s.wake,
			"requeue": s.requeue, "pause or resume": s.pauseOrResume, "reconcile": s.reconcile,
			"": s.invariants,
		})
		s.settle()
		for _, campaign := range troubledCampaigns {
			s.benches[0].mustHaveApplied(tb, campaign, s.appended[campaign])
		}
		for _, sleeper := range s.asleep {
			if err := sleeper.bench.worker.FinishClaims(context.Background(), sleeper.claims); err != nil {
				r.Fatal(err)
			}
		}
		s.invariants(r)
		s.benches[1].mustBeSound(tb)
		if left := column[string](tb, s.benches[0].journal, `select campaign_id || ' ' || seq from projection_apply_outbox`); len(left) > 0 {
			r.Fatalf("rows are left: %q", left)
		}
	})
}
