package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
)

func (b *bench) skip(campaign string, seq int64) error {
	o := operator
	o.Confirm = outbox.SkipPhrase(campaign, seq)
	_, err := b.SkipEvent(context.Background(), o, campaign, seq)
	return err
}

func (b *bench) mustSkip(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	if err := b.skip(campaign, seq); err != nil {
		tb.Fatal(err)
	}
}

func (b *bench) mustUnskip(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	if _, err := b.UnskipEvent(context.Background(), operator, campaign, seq); err != nil {
		tb.Fatal(err)
	}
}

// mustHaveSeen makes sure that the ledger has seen these events of the campaign,
// each once and in this order, and nothing else.
func (b *bench) mustHaveSeen(tb testing.TB, campaign string, seqs ...int) {
	tb.Helper()
	history := column[int](tb, b.projections, `select seq from ledger_history where campaign_id = $1 order by id`, campaign)
	if diff := cmp.Diff(seqs, history); diff != "" {
		tb.Errorf("events of campaign %q that were applied (-want +got):\n%s", campaign, diff)
	}
}

// marks lists what the projections passed over.
func (b *bench) marks(tb testing.TB) []string {
	tb.Helper()
	marks := column[string](tb, b.projections, `select campaign_id || ' ' || seq from watermark_skips`)
	slices.Sort(marks)
	return marks
}

// mustEqualFold compares the live rows of the accounts, which alone look the
// same however often an event failed, with a fold of the journal up to where
// they are.
func (b *bench) mustEqualFold(tb testing.TB, campaign string) {
	tb.Helper()
	set, err := projection.Load("sqlite", b.sources...)
	if err != nil {
		tb.Fatal(err)
	}
	scratch, err := set.NewScratch(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer scratch.Close()
	applied, err := b.AppliedSeq(context.Background(), campaign)
	if err != nil {
		tb.Fatal(err)
	}
	page, err := b.Events(context.Background(), campaign, 0, 1000)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range page.Items[:applied] {
		if err := scratch.Apply(context.Background(), &page.Items[i]); err != nil {
			tb.Fatalf("fold campaign %q seq %d: %v", campaign, i+1, err)
		}
	}
	want, _, err := scratch.Digests(context.Background(), campaign, "accounts")
	if err != nil {
		tb.Fatal(err)
	}
	snapshot, err := b.Snapshot(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer snapshot.Rollback()
	got, _, err := b.set.Digests(context.Background(), snapshot, campaign, "accounts")
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("digests of campaign %q at %d (-fold +live):\n%s", campaign, applied, diff)
	}
}

// poisoned is a campaign whose third of five events can never be applied and is
// dead.
func poisoned(t *testing.T, options ...option) *bench {
	t.Helper()
	b := open(t, define(t, ledger, accounts), append([]option{maxAttempts(1)}, options...)...)
	b.mustAppend(t, opened("a", 1), noted("a"), spent("a", 2), noted("a"), spent("a", 1))
	b.drain(t)
	b.mustStand(t, "a", 3, outbox.Dead, 1)
	return b
}

func TestPass_advancesOverASkippedEventWithoutApplyingIt(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{1, 2, 1000} {
		b := poisoned(t, batchSize(rows))
		b.mustSkip(t, "a", 3)
		b.drain(t)
		b.mustHaveSeen(t, "a", 1, 2, 4, 5)
		mustEqual(t, "what was passed over", "a 3", strings.Join(b.marks(t), ", "))
		if c := b.campaign(t, "a"); c.AppliedSeq != 5 || c.State() != outbox.StateCurrent || c.Skips != 1 {
			t.Errorf("campaign is %+v", c)
		}
		b.mustEqualFold(t, "a")
		b.mustBeSound(t)
	}
}

// An event behind the skipped one fails in the same wave: what is undone and
// done again includes the mark.
func TestPass_keepsTheMarkWhenALaterEventOfTheWaveFails(t *testing.T) {
	t.Parallel()
	b := poisoned(t)
	b.mustAppend(t, spent("a", 9), noted("a"))
	b.mustSkip(t, "a", 3)
	b.drain(t)
	b.mustHaveSeen(t, "a", 1, 2, 4, 5)
	b.mustStand(t, "a", 6, outbox.Dead, 1)
	mustEqual(t, "what was passed over", "a 3", strings.Join(b.marks(t), ", "))
	b.mustSkip(t, "a", 6)
	b.drain(t)
	b.mustHaveSeen(t, "a", 1, 2, 4, 5, 7)
	mustEqual(t, "what was passed over", "a 3, a 6", strings.Join(b.marks(t), ", "))
	b.mustEqualFold(t, "a")
	b.mustBeSound(t)
}

func TestPass_appliesAnEventWhoseSkipWasTakenBack(t *testing.T) {
	t.Parallel()
	for name, passed := range map[string]bool{"passed over": true, "not yet passed over": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := poisoned(t, batchSize(1))
			b.mustSkip(t, "a", 3)
			if passed {
				b.pass(t)
				mustEqual(t, "what was passed over", "a 3", strings.Join(b.marks(t), ", "))
			}
			b.mustUnskip(t, "a", 3)
			mustExec(t, b.projections, `update accounts set balance = 10`)
			b.drain(t)
			b.mustHaveApplied(t, "a", 5)
			mustEqual(t, "what was passed over", "", strings.Join(b.marks(t), ", "))
			b.mustBeSound(t)
		})
	}
}

// The content of a skipped event does not matter; its place in the chain does.
func TestPass_advancesOverASkippedEventThatWasTamperedWith(t *testing.T) {
	t.Parallel()
	b, now := tampered(t, `update events set payload = '{"amount":1000}' where campaign_id = 'b' and seq = 3`)
	mustRefuse(t, b, now, "event 3 is not the one that was appended")
	b.mustSkip(t, "b", 3)
	b.drain(t)
	b.mustHaveSeen(t, "b", 1, 2, 4, 5)

	b, now = tampered(t)
	rewrite(t, b, "b", 3, `{"amount":1000}`)
	mustRefuse(t, b, now, "event 3 does not continue the chain")
	b.mustSkip(t, "b", 3)
	mustRefuse(t, b, now, "event 3 does not continue the chain")
	if err := b.skip("b", 3); !errors.Is(err, outbox.ErrConflict) || !strings.Contains(err.Error(), "is skipped already") {
		t.Errorf("skipping it again: %v", err)
	}
}

// A worker has read events ahead; another one comes before it and fails at them.
func TestPass_doesNotApplyASkippedEventThatItReadAhead(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger, accounts), at(now), maxAttempts(1), batchSize(2))
	b := a.beside(t, at(now), maxAttempts(1), batchSize(2))
	a.mustAppend(t, opened("a", 1), noted("a"), spent("a", 2), noted("a"), noted("a"))
	a.pass(t)
	b.pass(t)
	a.mustStand(t, "a", 3, outbox.Dead, 1)
	mustExec(t, a.projections, `update accounts set balance = 10`)
	a.mustSkip(t, "a", 3)
	a.drain(t)
	a.mustHaveSeen(t, "a", 1, 2, 4, 5)
	mustEqual(t, "what was passed over", "a 3", strings.Join(a.marks(t), ", "))
	a.mustBeSound(t)
}

// The projections are those of an earlier day, so that a skip stands further on
// than the worker is, and it is taken back when its event has been read ahead.
func TestPass_appliesAnEventThatItReadAheadWhileItWasSkipped(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, accounts), maxAttempts(1), batchSize(2))
	b.mustAppend(t, opened("a", 1), noted("a"), spent("a", 2), noted("a"), noted("a"))
	b.drain(t)
	b.mustSkip(t, "a", 3)
	b.drain(t)
	b.mustHaveSeen(t, "a", 1, 2, 4, 5)
	for _, table := range []string{"projection_watermarks", "watermark_skips", "accounts", "ledger_applied", "ledger_history"} {
		mustExec(t, b.projections, `delete from `+table)
	}
	if _, err := b.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pass(t)
	b.mustHaveApplied(t, "a", 2)
	mustExec(t, b.projections, `update accounts set balance = 10`)
	b.mustUnskip(t, "a", 3)
	b.drain(t)
	b.mustHaveApplied(t, "a", 5)
	mustEqual(t, "what was passed over", "", strings.Join(b.marks(t), ", "))
	b.mustBeSound(t)
}

func TestApplyInline_advancesOverASkippedEvent(t *testing.T) {
	t.Parallel()
	b := poisoned(t)
	b.mustSkip(t, "a", 3)
	inline := b.beside(t, mode(outbox.ModeInline))
	mustExec(t, b.projections, `update accounts set balance = 10`)
	if err := inline.appendInline(t, noted("a")); err != nil {
		t.Fatal(err)
	}
	b.mustHaveSeen(t, "a", 1, 2, 4, 5, 6)
	mustEqual(t, "what was passed over", "a 3", strings.Join(b.marks(t), ", "))
	if skips, err := b.Skips(t.Context(), outbox.SkipFilter{CampaignID: "a"}); err != nil || skips.Items[0].AppliedAt == nil {
		t.Errorf("the ledger is %+v (%v), want the skip applied", skips.Items, err)
	}
	b.mustBeSound(t)
}

func TestRehearse_advancesOverASkippedEventAndLeavesNoMark(t *testing.T) {
	t.Parallel()
	b := poisoned(t)
	shadow := b.beside(t, mode(outbox.ModeShadow))
	shadow.rehearse(t)
	mustHaveRehearsed(t, shadow, store.Rehearsal{CampaignID: "a", RehearsedSeq: 2, FailedSeq: 3})
	b.mustSkip(t, "a", 3)
	shadow.rehearse(t)
	mustHaveRehearsed(t, shadow, store.Rehearsal{CampaignID: "a", RehearsedSeq: 5})
	b.mustHaveSeen(t, "a", 1, 2)
	mustEqual(t, "what was passed over", "", strings.Join(b.marks(t), ", "))
}

// The process that took a skip back died between the two databases, and nobody
// reconciles: the next event shows the worker what is missing.
func TestPass_passesOverAgainWhatAnUnskipHadSetBackWhenItsProcessDied(t *testing.T) {
	t.Parallel()
	b := poisoned(t, batchSize(1))
	b.mustSkip(t, "a", 3)
	b.pass(t)
	b.setBack(t, "a", 3)
	b.drain(t)
	b.mustHaveSeen(t, "a", 1, 2, 4, 5)
	mustEqual(t, "what was passed over", "a 3", strings.Join(b.marks(t), ", "))
	b.mustBeSound(t)
}

// setBack does to the projections what an un-skip does, and nothing else.
func (b *bench) setBack(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	before, err := b.Event(context.Background(), campaign, seq-1)
	if err != nil {
		tb.Fatal(err)
	}
	mustExec(tb, b.projections, fmt.Sprintf(`update projection_watermarks set applied_seq = %d, applied_hash = '%s', fence_epoch = fence_epoch + 1 where campaign_id = '%s'`, seq-1, before.ChainHash, campaign))
	mustExec(tb, b.projections, fmt.Sprintf(`delete from watermark_skips where campaign_id = '%s' and seq = %d`, campaign, seq))
}

// skipping is a troubled system in which what cannot be applied is skipped, and
// skips are taken back.
type skipping struct{ *troubled }

func (s skipping) skip(t *rapid.T) {
	campaign := s.campaign(t)
	b := s.either(t)
	c := b.campaign(s.tb, campaign)
	if c.HeadStatus != outbox.Dead && c.HeadStatus != outbox.Failed {
		t.Skip("nothing to skip")
	}
	if err := b.skip(campaign, c.HeadSeq); err != nil && !errors.Is(err, outbox.ErrConflict) {
		t.Fatal(err)
	}
}

// standing lists the events that are skipped, of one campaign or of all.
func (s skipping) standing(campaign string) []int64 {
	return column[int64](s.tb, s.benches[0].journal, `select seq from skips where campaign_id = $1 and undone_at is null order by seq`, campaign)
}

// free reports whether nobody works on the campaign, which an un-skip would wait
// for in real time.
func (s skipping) free(c outbox.Campaign) bool {
	return c.Lease == nil || !c.Lease.ExpiresAt.After(s.now.now())
}

func (s skipping) unskip(t *rapid.T) {
	campaign := s.campaign(t)
	b := s.either(t)
	seqs := s.standing(campaign)
	if len(seqs) == 0 || !s.free(b.campaign(s.tb, campaign)) {
		t.Skip("nothing to take back")
	}
	seq := rapid.SampledFrom(seqs).Draw(t, "seq")
	if _, err := b.UnskipEvent(context.Background(), operator, campaign, seq); err != nil && !errors.Is(err, outbox.ErrConflict) {
		t.Fatal(err)
	}
}

func (s skipping) dieInUnskip(t *rapid.T) {
	campaign := s.campaign(t)
	b := s.either(t)
	c := b.campaign(s.tb, campaign)
	if c.AppliedSeq < 2 || !slices.Contains(s.standing(campaign), c.AppliedSeq) || !s.free(c) {
		t.Skip("nothing to take back")
	}
	b.setBack(s.tb, campaign, c.AppliedSeq)
}

func (s skipping) reconcile(t *rapid.T) {
	if repaired, err := s.either(t).Reconcile(context.Background()); err != nil || repaired.Diverged > 0 {
		t.Fatalf("reconciled %+v (%v), with nothing changed", repaired, err)
	}
}

// invariants hold after every step.
func (s skipping) invariants(t *rapid.T) {
	db := s.benches[0].projections
	for _, campaign := range troubledCampaigns {
		seen := column[int64](s.tb, db, `select seq from ledger_history where campaign_id = $1 order by id`, campaign)
		applied := int64(0)
		if at := column[int64](s.tb, db, `select applied_seq from projection_watermarks where campaign_id = $1`, campaign); len(at) > 0 {
			applied = at[0]
		}
		passed := column[int64](s.tb, db, `select seq from watermark_skips where campaign_id = $1 order by seq`, campaign)
		skipped := s.standing(campaign)
		skipped = slices.DeleteFunc(skipped, func(seq int64) bool { return seq > applied })
		if diff := cmp.Diff(skipped, passed); diff != "" {
			t.Fatalf("campaign %s at %d: what was passed over (-ledger +marks):\n%s", campaign, applied, diff)
		}
		want := []int64{}
		for seq := int64(1); seq <= applied; seq++ {
			if !slices.Contains(skipped, seq) {
				want = append(want, seq)
			}
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Fatalf("campaign %s at %d without %v: what was applied (-want +got):\n%s", campaign, applied, skipped, diff)
		}
	}
}

// settle ends all trouble: whatever dies is skipped, and nobody dies any more.
func (s skipping) settle(t *rapid.T) {
	b := s.benches[0]
	rows := func() int64 {
		return column[int64](s.tb, b.journal, `select count(*) from projection_apply_outbox`)[0]
	}
	for range 100 {
		s.now.advance(time.Hour)
		s.reconcile(t)
		b.drain(s.tb)
		if rows() == 0 {
			return
		}
		for _, campaign := range troubledCampaigns {
			if c := b.campaign(s.tb, campaign); c.HeadStatus == outbox.Dead {
				b.mustSkip(s.tb, campaign, c.HeadSeq)
			}
		}
	}
	t.Fatalf("%d rows are left", rows())
}

func TestWorker_neverAppliesWhatIsSkippedWhateverHappened(t *testing.T) {
	t.Parallel()
	sources := define(t, ledger, accounts)
	rapid.Check(t, func(r *rapid.T) {
		tb := rapidTB{t, r}
		s := skipping{newTroubled(tb, sources)}
		r.Repeat(map[string]func(*rapid.T){
			"append": s.append, "pass": s.pass, "pass again": s.pass, "advance": s.advance,
			"die after claim": s.dieAfterClaim, "die after apply": s.dieAfterApply,
			"sleep after claim": s.sleepAfterClaim, "wake": s.wake,
			"requeue": s.requeue, "reconcile": s.reconcile,
			"skip": s.skip, "skip again": s.skip, "unskip": s.unskip, "die in unskip": s.dieInUnskip,
			"": s.invariants,
		})
		s.settle(r)
		for _, sleeper := range s.asleep {
			if err := sleeper.bench.worker.FinishClaims(context.Background(), sleeper.claims); err != nil {
				r.Fatal(err)
			}
		}
		s.invariants(r)
		s.benches[1].mustBeSound(tb)
		for _, campaign := range troubledCampaigns {
			s.benches[0].mustEqualFold(tb, campaign)
		}
	})
}
