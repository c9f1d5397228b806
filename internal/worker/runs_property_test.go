package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"outboxweb/internal/outbox"
)

// remade is a troubled system whose projections are also rebuilt, verified and
// replayed, by processes that die of it.
type remade struct {
	troubled
	journal  map[string][]outbox.Event // as it was appended
	late     []func() error            // what processes of dead runs would still do
	blocking bool                      // accounts hold up the campaign that they cannot follow
	seen     map[string]int            // the longest trail a reader has seen
}

func newRemade(tb rapidTB, sources []string) *remade {
	s := &remade{journal: make(map[string][]outbox.Event), seen: make(map[string]int)}
	s.tb, s.now = tb, newClock()
	a := open(tb, sources, at(s.now), batchSize(8), maxAttempts(3))
	s.benches = []*bench{a, a.beside(tb, at(s.now), batchSize(8), maxAttempts(3))}
	for _, campaign := range troubledCampaigns {
		s.write(campaign, opened(campaign, 1))
	}
	return s
}

func (s *remade) write(campaign string, events ...outbox.Event) {
	s.benches[0].mustAppend(s.tb, events...)
	s.journal[campaign] = append(s.journal[campaign], events...)
}

func (s *remade) append(t *rapid.T) {
	campaign, n := s.campaign(t), rapid.IntRange(1, 6).Draw(t, "events")
	events := notes(campaign, n)
	if rapid.IntRange(0, 3).Draw(t, "poison") == 0 {
		events[n-1] = spent(campaign, 2)
	}
	s.write(campaign, events...)
}

func (s *remade) startRun(t *rapid.T) {
	b := s.either(t)
	order := outbox.RunOrder{Kind: rapid.SampledFrom(outbox.RunKinds).Draw(t, "kind")}
	if order.All = rapid.Bool().Draw(t, "all"); !order.All {
		order.Campaigns = []string{s.campaign(t)}
	}
	if rapid.Bool().Draw(t, "one projection") {
		order.Projections = []string{rapid.SampledFrom([]string{"trail", "accounts"}).Draw(t, "projection")}
	}
	if _, err := b.runs.Start(context.Background(), operator, order, b.infos()); err != nil && !errors.Is(err, outbox.ErrConflict) {
		t.Fatal(err)
	}
}

// pauseOrResumeProjection stops the accounts, or lets them go on.
func (s *remade) pauseOrResumeProjection(t *rapid.T) {
	b, campaign := s.either(t), ""
	if rapid.Bool().Draw(t, "one campaign") {
		campaign = s.campaign(t)
	}
	if s.blocking { // what is applied would depend on when it was paused
		t.Skip("accounts block")
	}
	_, err := b.runs.PauseProjection(context.Background(), operator, "accounts", campaign, b.infos())
	if errors.Is(err, outbox.ErrConflict) {
		_, err = b.runs.ResumeProjection(context.Background(), operator, "accounts", campaign, b.infos())
	}
	if err != nil && !errors.Is(err, outbox.ErrConflict) {
		t.Fatal(err)
	}
}

// workOnRuns works on runs until there are none. What a dead run holds is waited
// for until its lease ends, for which the clock has to move.
func (s *remade) workOnRuns(t *rapid.T) {
	for _, campaign := range troubledCampaigns {
		if lease := s.benches[0].campaign(s.tb, campaign).Lease; lease != nil && outbox.IsRun(lease.Owner) {
			s.now.advance(leaseTime + time.Second)
		}
	}
	s.either(t).stepRuns(s.tb)
}

func (s *remade) dieInRun(t *rapid.T) {
	next, err := s.either(t).runWorker.DieInRun(context.Background(), rapid.IntRange(0, 2).Draw(t, "stage"))
	if err != nil {
		t.Fatal(err)
	}
	if next != nil {
		s.late = append(s.late, next)
	}
}

func (s *remade) wakeLate(t *rapid.T) {
	if len(s.late) == 0 {
		t.Skip("no run sleeps")
	}
	next := s.late[0]
	s.late = s.late[1:]
	if err := next(); err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
		t.Fatal(err)
	}
}

func (s *remade) cancelOrResume(t *rapid.T) {
	b := s.either(t)
	page, err := b.runs.List(context.Background(), outbox.RunFilter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) == 0 {
		t.Skip("there is no run")
	}
	if run := page.Items[0]; run.Status.Active() {
		_, err = b.runs.Cancel(context.Background(), operator, run.ID)
	} else {
		_, err = b.runs.Resume(context.Background(), operator, run.ID, b.infos())
	}
	if err != nil && !errors.Is(err, outbox.ErrConflict) {
		t.Fatal(err)
	}
}

// invariants hold after every step: each trail has the events 1 to the
// watermark, each once and in order, and never less than a reader saw before.
func (s *remade) invariants(t *rapid.T) {
	for _, campaign := range troubledCampaigns {
		seqs := column[int](s.tb, s.benches[0].projections, `select seq from trail where campaign_id = $1 order by place`, campaign)
		for i, seq := range seqs {
			if seq != i+1 {
				t.Fatalf("campaign %q has event %d in place %d", campaign, seq, i+1)
			}
		}
		if len(seqs) < s.seen[campaign] {
			t.Fatalf("campaign %q had %d events and now %d", campaign, s.seen[campaign], len(seqs))
		}
		s.seen[campaign] = len(seqs)
		if applied, err := s.benches[0].AppliedSeq(context.Background(), campaign); err != nil || int(applied) != len(seqs) {
			t.Fatalf("campaign %q is applied up to %d (%v), with %d events in its trail", campaign, applied, err, len(seqs))
		}
	}
}

// settle ends all trouble but what is wrong with events.
func (s *remade) settle() {
	for _, campaign := range append([]string{""}, troubledCampaigns...) {
		_, err := s.benches[0].runs.ResumeProjection(context.Background(), operator, "accounts", campaign, s.benches[0].infos())
		if err != nil && !errors.Is(err, outbox.ErrConflict) {
			s.tb.Fatal(err)
		}
	}
	for range 4 {
		s.now.advance(time.Hour)
		for _, b := range s.benches {
			b.stepRuns(s.tb)
			if _, err := b.RequeueDead(context.Background(), operator, outbox.RequeueFilter{}); err != nil {
				s.tb.Fatal(err)
			}
			untilStuck(s.tb, b, s.now)
		}
	}
}

// untilStuck applies what can be applied, however long heads wait for their next
// attempts.
func untilStuck(tb rapidTB, b *bench, now *clock) {
	for range 8 {
		b.drain(tb)
		now.advance(time.Hour)
	}
}

// digests are those of all live rows, by campaign and projection.
func (s *remade) digests(b *bench) map[string]map[string]string {
	live, err := b.Live(context.Background())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer live.Close()
	all := make(map[string]map[string]string)
	for _, campaign := range troubledCampaigns {
		if all[campaign], _, err = b.set.Digests(context.Background(), live, campaign); err != nil {
			s.tb.Fatal(err)
		}
	}
	return all
}

func TestRuns_leaveWhatOneFoldMakesWhateverHappened(t *testing.T) {
	t.Parallel()
	for _, definition := range []string{accounts, lenientAccounts} {
		sources := define(t, trail, definition)
		rapid.Check(t, func(r *rapid.T) {
			tb := rapidTB{t, r}
			s := newRemade(tb, sources)
			s.blocking = definition == accounts
			r.Repeat(map[string]func(*rapid.T){
				"append": s.append, "pass": s.pass, "pass again": s.pass, "advance": s.advance,
				"die after claim": s.dieAfterClaim, "die after apply": s.dieAfterApply,
				"sleep after claim": s.sleepAfterClaim, "wake": s.wake,
				"requeue": s.requeue, "start a run": s.startRun, "work on runs": s.workOnRuns,
				"start another run": s.startRun, "die in a run": s.dieInRun, "die in a run again": s.dieInRun,
				"pause or resume a projection": s.pauseOrResumeProjection, "wake from a run": s.wakeLate, "cancel or resume": s.cancelOrResume,
				"": s.invariants,
			})
			s.settle()
			if _, err := s.benches[0].runs.Start(context.Background(), operator, outbox.RunOrder{Kind: outbox.RunReplay, All: true}, s.benches[0].infos()); err != nil {
				r.Fatal(err)
			}
			s.workOnRuns(r)
			for _, next := range s.late {
				if err := next(); err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
					r.Fatal(err)
				}
			}
			s.invariants(r)
			once := open(tb, sources, at(s.now), maxAttempts(3))
			for _, campaign := range slices.Sorted(slices.Values(troubledCampaigns)) {
				once.mustAppend(tb, s.journal[campaign]...)
			}
			untilStuck(tb, once, s.now)
			if diff := cmp.Diff(s.digests(once), s.digests(s.benches[0])); diff != "" {
				r.Fatalf("digests (-folded once +after all the trouble):\n%s", diff)
			}
			s.benches[0].mustMatchJournal(tb, troubledCampaigns...)
			s.benches[1].mustBeSound(tb)
		})
	}
}
