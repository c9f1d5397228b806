package runs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// remade is a system with failures whose projections are also rebuilt, verified and replayed, by processes that die meanwhile.
type remade struct {
	enginetest.Troubled
	journal  map[string][]outbox.Event // as it was appended
	late     []func() error            // late steps of dead runs' processes
	blocking bool                      // accounts block a campaign in which they fail
	seen     map[string]int            // the longest trail a reader has seen
}

func newRemade(tb enginetest.RapidTB, sources []string) *remade {
	s := &remade{journal: make(map[string][]outbox.Event), seen: make(map[string]int)}
	s.TB, s.Clock = tb, storetest.NewClock()
	a := enginetest.Open(tb, sources, enginetest.At(s.Clock), enginetest.BatchSize(8), enginetest.MaxAttempts(3))
	s.Engines = []*enginetest.Engine{a, a.Beside(enginetest.BatchSize(8), enginetest.MaxAttempts(3))}
	for _, campaign := range enginetest.TroubledCampaigns {
		s.write(campaign, enginetest.Opened(campaign, 1))
	}
	return s
}

func (s *remade) write(campaign string, events ...outbox.Event) {
	s.Engines[0].MustAppend(events...)
	s.journal[campaign] = append(s.journal[campaign], events...)
}

func (s *remade) Append(t *rapid.T) {
	campaign, n := s.Campaign(t), rapid.IntRange(1, 6).Draw(t, "events")
	events := enginetest.Notes(campaign, n)
	if rapid.IntRange(0, 3).Draw(t, "poison") == 0 {
		events[n-1] = enginetest.Spent(campaign, 2)
	}
	s.write(campaign, events...)
}

func (s *remade) startRun(t *rapid.T) {
	b := s.Either(t)
	order := outbox.RunRequest{Kind: rapid.SampledFrom(outbox.ScopedRunKinds).Draw(t, "kind")}
	if order.All = rapid.Bool().Draw(t, "all"); !order.All {
		order.Campaigns = []string{s.Campaign(t)}
	}
	if rapid.Bool().Draw(t, "one projection") {
		order.Projections = []string{rapid.SampledFrom([]string{"trail", "accounts"}).Draw(t, "projection")}
	}
	_, err := b.Runs.Start(context.Background(), enginetest.Operator, order, b.Infos)
	must.Need(t, err == nil || errors.Is(err, outbox.ErrConflict), "%v", err)
}

func (s *remade) pauseOrResumeProjection(t *rapid.T) {
	b, campaign := s.Either(t), ""
	if rapid.Bool().Draw(t, "one campaign") {
		campaign = s.Campaign(t)
	}
	if s.blocking { // the applied events would depend on when it was paused
		t.Skip("accounts block")
	}
	_, err := b.Runs.PauseProjection(context.Background(), enginetest.Operator, "accounts", campaign, b.Infos)
	if errors.Is(err, outbox.ErrConflict) {
		_, err = b.Runs.ResumeProjection(context.Background(), enginetest.Operator, "accounts", campaign, b.Infos)
	}
	must.Need(t, err == nil || errors.Is(err, outbox.ErrConflict), "%v", err)
}

// workOnRuns executes runs until there are none. The leases of a dead run have to expire, for which the clock has to move.
func (s *remade) workOnRuns(t *rapid.T) {
	for _, campaign := range enginetest.TroubledCampaigns {
		if lease := s.Engines[0].MustCampaign(campaign).Lease; lease != nil && outbox.IsRun(lease.Owner) {
			s.Clock.Advance(storetest.Lease + time.Second)
		}
	}
	s.Either(t).StepRuns()
}

func (s *remade) dieInRun(t *rapid.T) {
	next := must.Get(s.Either(t).RunWorker.DieInRun(context.Background(), rapid.IntRange(0, 2).Draw(t, "stage"))).Or(t)
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
	err := next()
	must.Need(t, err == nil || errors.Is(err, outbox.ErrLeaseLost), "%v", err)
}

func (s *remade) cancelOrResume(t *rapid.T) {
	b := s.Either(t)
	page := must.Get(b.Runs.List(context.Background(), outbox.RunFilter{Limit: 1})).Or(t)
	if len(page.Items) == 0 {
		t.Skip("there is no run")
	}
	var err error
	if run := page.Items[0]; run.Status.Active() {
		_, err = b.Runs.Cancel(context.Background(), enginetest.Operator, run.ID)
	} else {
		_, err = b.Runs.Resume(context.Background(), enginetest.Operator, run.ID, b.Infos)
	}
	must.Need(t, err == nil || errors.Is(err, outbox.ErrConflict), "%v", err)
}

// Invariants hold after every step: each trail has the events 1 to the watermark, each once and in order, and never fewer than a reader saw before.
func (s *remade) Invariants(t *rapid.T) {
	for _, campaign := range enginetest.TroubledCampaigns {
		seqs := storetest.Column[int](s.TB, s.Engines[0].ProjectionsDB, `select seq from trail where campaign_id = $1 order by place`, campaign)
		for i, seq := range seqs {
			must.Need(t, seq == i+1, "campaign %q has event %d in place %d", campaign, seq, i+1)
		}
		if len(seqs) < s.seen[campaign] {
			t.Fatalf("campaign %q had %d events and now %d", campaign, s.seen[campaign], len(seqs))
		}
		s.seen[campaign] = len(seqs)
		applied, err := s.Engines[0].AppliedSeq(context.Background(), campaign)
		must.Need(t, err == nil && int(applied) == len(seqs), "campaign %q is applied up to %d (%v), with %d events in its trail", campaign, applied, err, len(seqs))
	}
}

// Settle ends all problems except faulty events.
func (s *remade) Settle() {
	for _, campaign := range append([]string{""}, enginetest.TroubledCampaigns...) {
		_, err := s.Engines[0].Runs.ResumeProjection(context.Background(), enginetest.Operator, "accounts", campaign, s.Engines[0].Infos)
		must.Need(s.TB, err == nil || errors.Is(err, outbox.ErrConflict), "%v", err)
	}
	for range 4 {
		s.Clock.Advance(time.Hour)
		for _, b := range s.Engines {
			b.StepRuns()
			must.Get(b.RequeueDead(context.Background(), enginetest.Operator, outbox.RequeueFilter{})).Or(s.TB)
			b.UntilStuck()
		}
	}
}

// digests are those of all live rows, by campaign and projection.
func (s *remade) digests(b *enginetest.Engine) map[string]map[string]string {
	live := must.Get(b.Live(context.Background())).Or(s.TB)
	defer live.Close()
	all := make(map[string]map[string]string)
	for _, campaign := range enginetest.TroubledCampaigns {
		digests, _, err := b.Set.Digests(context.Background(), live, campaign)
		must.OK(s.TB, err)
		all[campaign] = digests
	}
	return all
}

func TestRuns_leaveWhatOneReplayMakesWhateverHappened(t *testing.T) {
	t.Parallel()
	blocking, lenient := enginetest.Define(t, enginetest.Trail, enginetest.Accounts), enginetest.Define(t, enginetest.Trail, enginetest.LenientAccounts)
	rapid.Check(t, func(r *rapid.T) {
		tb, sources, blocks := enginetest.RapidTB{TB: t, R: r}, lenient, rapid.Bool().Draw(r, "accounts block")
		if blocks {
			sources = blocking
		}
		s := newRemade(tb, sources)
		s.blocking = blocks
		r.Repeat(map[string]func(*rapid.T){
			"append": s.Append, "pass": s.Pass, "pass again": s.Pass, "advance": s.Advance,
			"die after claim": s.DieAfterClaim, "die after apply": s.DieAfterApply,
			"sleep after claim": s.SleepAfterClaim, "wake": s.Wake,
			"requeue": s.Requeue, "start a run": s.startRun, "work on runs": s.workOnRuns,
			"start another run": s.startRun, "die in a run": s.dieInRun, "die in a run again": s.dieInRun,
			"pause or resume a projection": s.pauseOrResumeProjection, "wake from a run": s.wakeLate, "cancel or resume": s.cancelOrResume,
			"": s.Invariants,
		})
		s.Settle()
		must.Get(s.Engines[0].Runs.Start(context.Background(), enginetest.Operator, outbox.RunRequest{Kind: outbox.RunReplay, All: true}, s.Engines[0].Infos)).Or(r)
		s.workOnRuns(r)
		for _, next := range s.late {
			if err := next(); err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
				r.Fatal(err)
			}
		}
		s.Invariants(r)
		once := enginetest.Open(tb, sources, enginetest.At(s.Clock), enginetest.MaxAttempts(3))
		for _, campaign := range slices.Sorted(slices.Values(enginetest.TroubledCampaigns)) {
			once.MustAppend(s.journal[campaign]...)
		}
		once.UntilStuck()
		diff := cmp.Diff(s.digests(once), s.digests(s.Engines[0]))
		must.Need(r, diff == "", "digests (-folded once +after all the trouble):\n%s", diff)
		mustMatchJournal(tb, s.Engines[0], enginetest.TroubledCampaigns...)
		s.Engines[1].Sound()
	})
}
