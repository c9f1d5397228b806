package enginetest

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// RapidTB makes the helpers of this package fail one run of a property instead of the whole test.
type RapidTB struct {
	testing.TB
	R *rapid.T
}

func (p RapidTB) Cleanup(f func())                  { p.R.Cleanup(f) }
func (p RapidTB) Error(args ...any)                 { p.R.Error(args...) }
func (p RapidTB) Errorf(format string, args ...any) { p.R.Errorf(format, args...) }
func (p RapidTB) Fatal(args ...any)                 { p.R.Fatal(args...) }
func (p RapidTB) Fatalf(format string, args ...any) { p.R.Fatalf(format, args...) }

func (p RapidTB) TempDir() string { return must.Get(os.MkdirTemp(p.TB.TempDir(), "")).Or(p) }

// Troubled is a system of two processes with random faults, and the expected end state.
type Troubled struct {
	TB      RapidTB
	Clock   *storetest.Clock
	Engines []*Engine
	Journal map[string][]event.Event // as it was appended
	Asleep  []Sleeper
}

// Sleeper is a wave whose process stalled after its claim.
type Sleeper struct {
	Engine *Engine
	Claims []outbox.Claim
}

var TroubledCampaigns = []string{"a", "b", "c"}

func NewTroubled(tb RapidTB, sources []string) *Troubled {
	s := &Troubled{TB: tb, Clock: storetest.NewClock(), Journal: make(map[string][]event.Event)}
	a := Open(tb, sources, At(s.Clock), BatchSize(8), MaxAttempts(3))
	s.Engines = []*Engine{a, a.Beside(BatchSize(8), MaxAttempts(3))}
	for _, campaign := range TroubledCampaigns {
		s.write(a, Opened(campaign, 1))
	}
	return s
}

func (s *Troubled) write(b *Engine, events ...event.Event) {
	b.MustAppend(events...)
	s.Journal[events[0].CampaignID] = append(s.Journal[events[0].CampaignID], events...)
}

func (s *Troubled) Either(t *rapid.T) *Engine {
	return s.Engines[rapid.IntRange(0, 1).Draw(t, "process")]
}

func (s *Troubled) Campaign(t *rapid.T) string {
	return rapid.SampledFrom(TroubledCampaigns).Draw(t, "campaign")
}

func (s *Troubled) Append(t *rapid.T) {
	campaign, n := s.Campaign(t), rapid.IntRange(1, 6).Draw(t, "events")
	events := Notes(campaign, n)
	if rapid.IntRange(0, 3).Draw(t, "poison") == 0 {
		events[n-1] = Spent(campaign, 2)
	}
	s.write(s.Either(t), events...)
}

func (s *Troubled) Pass(t *rapid.T) { s.Either(t).MustPass() }

func (s *Troubled) Advance(t *rapid.T) {
	s.Clock.Advance(rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, storetest.Lease + time.Second}).Draw(t, "time"))
}

func (s *Troubled) DieAfterClaim(t *rapid.T) { s.Either(t).ClaimWave() }

func (s *Troubled) DieAfterApply(t *rapid.T) {
	b := s.Either(t)
	must.Get(b.Worker.Apply(context.Background(), b.ClaimWave())).Or(t)
}

func (s *Troubled) SleepAfterClaim(t *rapid.T) {
	b := s.Either(t)
	s.Asleep = append(s.Asleep, Sleeper{b, b.ClaimWave()})
}

func (s *Troubled) Wake(t *rapid.T) {
	if len(s.Asleep) == 0 {
		t.Skip("nobody sleeps")
	}
	i := rapid.IntRange(0, len(s.Asleep)-1).Draw(t, "sleeper")
	w := s.Asleep[i]
	s.Asleep = slices.Delete(s.Asleep, i, i+1)
	must.OK(t, w.Engine.FinishClaims(context.Background(), w.Claims))
}

func (s *Troubled) Requeue(t *rapid.T) {
	must.Get(s.Either(t).RequeueDead(context.Background(), Operator, campaign.RequeueFilter{})).Or(t)
}

func (s *Troubled) PauseOrResume(t *rapid.T) {
	b, campaign := s.Either(t), s.Campaign(t)
	act := b.PauseCampaign
	if b.MustCampaign(campaign).Paused != nil {
		act = b.ResumeCampaign
	}
	must.Get(act(context.Background(), Operator, campaign)).Or(t)
}
