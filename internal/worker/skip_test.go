package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func poisoned(t *testing.T) *enginetest.Engine {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 1), enginetest.Noted("a"), enginetest.Spent("a", 2), enginetest.Noted("a"), enginetest.Spent("a", 1))
	b.MustStand("a", 3, event.Dead, 1)
	return b
}

// The content of a skipped event does not matter; its place in the chain does.
func TestPass_advancesOverASkippedEventThatWasTamperedWith(t *testing.T) {
	t.Parallel()
	b, now := tampered(t, `update events set payload = '{"amount":1000}' where campaign_id = 'b' and seq = 3`)
	mustRefuse(t, b, now, "event 3 has changed since it was appended")
	b.MustSkip("b", 3)
	b.Drain()
	must.Equal(t, b.Entries("ledger", "b"), []int{1, 2, 4, 5}, "the events that were applied")

	b, now = tampered(t)
	rewrite(t, b, "b", 3, `{"amount":1000}`)
	mustRefuse(t, b, now, "event 3 does not continue the chain")
	b.MustSkip("b", 3)
	mustRefuse(t, b, now, "event 3 does not continue the chain")
	storetest.Refused(t, b.Skip("b", 3), event.ErrConflict, "is already skipped")
}

// A worker has read events ahead; another one fails at them first.
func TestPass_doesNotApplyASkippedEventThatItReadAhead(t *testing.T) {
	a := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(1), enginetest.BatchSize(2))
	b := a.Beside(enginetest.MaxAttempts(1), enginetest.BatchSize(2))
	a.Pass(enginetest.Opened("a", 1), enginetest.Noted("a"), enginetest.Spent("a", 2), enginetest.Noted("a"), enginetest.Noted("a"))
	b.Pass()
	a.MustStand("a", 3, event.Dead, 1)
	a.ExecProjections(`update accounts set balance = 10`)
	a.MustSkip("a", 3)
	a.Drain()
	must.Equal(t, a.Entries("ledger", "a"), []int{1, 2, 4, 5}, "the events that were applied")
	a.WantMarks("a 3 1")
	a.Sound()
}

// The projections are older than the journal, so that a skip is ahead of the worker, and it is reverted after its event was read ahead.
func TestPass_appliesAnEventThatItReadAheadWhileItWasSkipped(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.MaxAttempts(1), enginetest.BatchSize(2))
	b.Feed(enginetest.Opened("a", 1), enginetest.Noted("a"), enginetest.Spent("a", 2), enginetest.Noted("a"), enginetest.Noted("a"))
	b.MustSkip("a", 3)
	b.Drain()
	must.Equal(t, b.Entries("ledger", "a"), []int{1, 2, 4, 5}, "the events that were applied")
	for _, table := range []string{"projection_watermarks", "watermark_skips", "accounts", "ledger_applied", "ledger_history"} {
		b.ExecProjections(`delete from ` + table)
	}
	must.Get(b.Reconcile(t.Context())).Or(t)
	b.Pass().MustHaveApplied("a", 2)
	b.ExecProjections(`update accounts set balance = 10`)
	b.MustUnskip("a", 3)
	b.Drain().MustHaveApplied("a", 5).WantMarks()
	b.Sound()
}

func TestApplyInline_advancesOverASkippedEvent(t *testing.T) {
	b := poisoned(t)
	b.MustSkip("a", 3)
	inline := b.Beside(enginetest.InMode(campaign.ModeInline))
	b.ExecProjections(`update accounts set balance = 10`)
	must.OK(t, appendInline(t, inline, enginetest.Noted("a")))
	must.Equal(t, b.Entries("ledger", "a"), []int{1, 2, 4, 5, 6}, "the events that were applied")
	b.WantMarks("a 3 1")
	skips, err := b.Skips(t.Context(), event.SkipFilter{CampaignID: "a"})
	must.Hold(t, err == nil && skips.Items[0].AppliedAt != nil, "the ledger is %+v (%v), want the skip applied", skips.Items, err)
	b.Sound()
}

func TestRehearse_advancesOverASkippedEventAndLeavesNoMark(t *testing.T) {
	b := poisoned(t)
	shadow := b.Beside(enginetest.InMode(campaign.ModeShadow))
	rehearse(t, shadow)
	mustHaveRehearsed(t, shadow, outbox.Rehearsal{CampaignID: "a", RehearsedSeq: 2, FailedSeq: 3})
	b.MustSkip("a", 3)
	rehearse(t, shadow)
	mustHaveRehearsed(t, shadow, outbox.Rehearsal{CampaignID: "a", RehearsedSeq: 5})
	must.Equal(t, b.Entries("ledger", "a"), []int{1, 2}, "the events that were applied")
	b.WantMarks()
}

// setBack makes the projections' part of an unskip and not the journal's.
func setBack(tb testing.TB, b *enginetest.Engine, campaign string, seq int64) {
	before := must.Get(b.Event(context.Background(), campaign, seq-1)).Or(tb)
	b.ExecProjections(fmt.Sprintf(`update projection_watermarks set applied_seq = %d, applied_hash = '%s', fence_epoch = fence_epoch + 1 where campaign_id = '%s'`, seq-1, before.ChainHash, campaign))
	b.ExecProjections(fmt.Sprintf(`delete from watermark_skips where campaign_id = '%s' and seq = %d`, campaign, seq))
}

// skipping is a troubled system in which events that cannot be applied are skipped, and skips are reverted.
type skipping struct{ *enginetest.Troubled }

func (s skipping) skip(t *rapid.T) {
	campaign := s.Campaign(t)
	b := s.Either(t)
	c := b.MustCampaign(campaign)
	if c.HeadStatus != event.Dead && c.HeadStatus != event.Failed {
		t.Skip("nothing to skip")
	}
	err := b.Skip(campaign, c.HeadSeq)
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
}

// standing lists the skipped events of one campaign or of all.
func (s skipping) standing(campaign string) []int64 {
	return storetest.Column[int64](s.TB, s.Engines[0].JournalDB, `select seq from skips where campaign_id = $1 and undone_at is null order by seq`, campaign)
}

// free reports whether the campaign has no lease; an unskip would wait for it in real time.
func (s skipping) free(c campaign.Campaign) bool {
	return c.Lease == nil || !c.Lease.ExpiresAt.After(s.Clock.Now())
}

func (s skipping) unskip(t *rapid.T) {
	campaign := s.Campaign(t)
	b := s.Either(t)
	seqs := s.standing(campaign)
	if len(seqs) == 0 || !s.free(b.MustCampaign(campaign)) {
		t.Skip("nothing to take back")
	}
	seq := rapid.SampledFrom(seqs).Draw(t, "seq")
	_, err := b.UnskipEvent(context.Background(), enginetest.Operator, campaign, seq)
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
}

func (s skipping) dieInUnskip(t *rapid.T) {
	campaign := s.Campaign(t)
	b := s.Either(t)
	c := b.MustCampaign(campaign)
	if c.AppliedSeq < 2 || !slices.Contains(s.standing(campaign), c.AppliedSeq) || !s.free(c) {
		t.Skip("nothing to take back")
	}
	setBack(s.TB, b, campaign, c.AppliedSeq)
}

func (s skipping) Reconcile(t *rapid.T) {
	repaired, err := s.Either(t).Reconcile(context.Background())
	must.Need(t, err == nil && repaired.Diverged <= 0, "reconciled %+v (%v), with nothing changed", repaired, err)
}

// Invariants fails unless the invariants hold; it is called after every step.
func (s skipping) Invariants(t *rapid.T) {
	for _, campaign := range enginetest.TroubledCampaigns {
		applied := s.Engines[0].MustWatermark(campaign).AppliedSeq
		passed := storetest.Column[int64](s.TB, s.Engines[0].ProjectionsDB, `select seq from watermark_skips where campaign_id = $1 order by seq`, campaign)
		skipped := slices.DeleteFunc(s.standing(campaign), func(seq int64) bool { return seq > applied })
		must.Need(t, slices.Equal(skipped, passed), "campaign %s at %d: %v are skipped, and %v passed over", campaign, applied, skipped, passed)
		want := []int{}
		for seq := int64(1); seq <= applied; seq++ {
			if !slices.Contains(skipped, seq) {
				want = append(want, int(seq))
			}
		}
		seen := s.Engines[0].Entries("ledger", campaign)
		must.Need(t, slices.Equal(seen, want), "campaign %s at %d without %v: %v were applied, want %v", campaign, applied, skipped, seen, want)
	}
}

// Settle ends all faults: it resumes campaigns and skips dead events.
func (s skipping) Settle(t *rapid.T) {
	b := s.Engines[0]
	for _, campaign := range enginetest.TroubledCampaigns {
		if b.MustCampaign(campaign).Paused != nil {
			b.MustResume(campaign)
		}
	}
	rows := func() int64 { return b.Number(`select count(*) from projection_apply_outbox`) }
	for range 100 {
		s.Clock.Advance(time.Hour)
		s.Reconcile(t)
		b.Drain()
		if rows() == 0 {
			return
		}
		for _, campaign := range enginetest.TroubledCampaigns {
			if c := b.MustCampaign(campaign); c.HeadStatus == event.Dead {
				b.MustSkip(campaign, c.HeadSeq)
			}
		}
	}
	t.Fatalf("%d rows are left", rows())
}

func TestWorker_drainsInOrderWhateverHappened(t *testing.T) {
	t.Parallel()
	sources := enginetest.Define(t, enginetest.Ledger, enginetest.Accounts)
	rapid.Check(t, func(r *rapid.T) {
		tb := enginetest.RapidTB{TB: t, R: r}
		s := skipping{enginetest.NewTroubled(tb, sources)}
		r.Repeat(map[string]func(*rapid.T){
			"append": s.Append, "pass": s.Pass, "pass again": s.Pass, "advance": s.Advance,
			"die after claim": s.DieAfterClaim, "die after apply": s.DieAfterApply,
			"sleep after claim": s.SleepAfterClaim, "wake": s.Wake, "requeue": s.Requeue, "pause or resume": s.PauseOrResume, "reconcile": s.Reconcile,
			"skip": s.skip, "skip again": s.skip, "unskip": s.unskip, "die in unskip": s.dieInUnskip, "": s.Invariants,
		})
		s.Settle(r)
		for _, campaign := range enginetest.TroubledCampaigns {
			must.Equal(r, s.Engines[0].MustWatermark(campaign).AppliedSeq, int64(len(s.Journal[campaign])), "campaign", campaign, "is drained up to")
		}
		run := s.Engines[0].RunToEnd(replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{"accounts"}}) // the ledger has the failed attempts
		must.Equal(r, run.Verdict, campaign.VerdictMatch, "a replay says of accounts")
		for _, sleeper := range s.Asleep {
			must.OK(r, sleeper.Engine.FinishClaims(context.Background(), sleeper.Claims))
		}
		s.Invariants(r)
		s.Engines[1].Sound()
	})
}
