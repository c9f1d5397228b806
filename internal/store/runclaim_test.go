package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

var (
	run      = enginetest.RunHolder
	otherRun = store.Worker{ID: outbox.RunOwner(8, "host-1"), Build: "v1"}
)

// queue is a campaign and its rows in the journal, without the columns that each claim changes.
func (f *fixture) queue(campaign string) string {
	f.TB.Helper()
	return strings.Join(append(storetest.Texts(f.TB, f.JournalDB, `
select concat_ws(' ', high_water_seq, applied_seq, head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at,
  pending, processing, failed, dead, lease_owner, crashes, suspect_seq, diverged)
from campaigns
where campaign_id = $1`, campaign), storetest.Texts(f.TB, f.JournalDB, `
select concat_ws(' ', seq, status, attempt_count, next_attempt_at, last_error, updated_at)
from projection_apply_outbox
where campaign_id = $1
order by seq`, campaign)...), "\n")
}

// stagesOfAWave are the possible states of a campaign in a claimed wave.
var stagesOfAWave = map[string]func(f *fixture) store.Claim{
	"fresh": func(f *fixture) store.Claim {
		f.AppendN("a", 5)
		return f.ClaimOne(one, 3)
	},
	"head failed before": func(f *fixture) store.Claim {
		f.AppendN("a", 5)
		f.Fail("boom", "a")
		f.Clock.Advance(time.Minute)
		return f.ClaimOne(one, 3)
	},
	"crashed once": func(f *fixture) store.Claim {
		f.AppendN("a", 5)
		f.ClaimOne(one, 3)
		f.Clock.Advance(lease)
		return f.ClaimOne(one, 3)
	},
	"attempt counted before it began": func(f *fixture) store.Claim {
		f.AppendN("a", 5)
		for range 2 {
			f.crash(one, 3)
		}
		c := f.ClaimOne(one, 3)
		if !c.Counted {
			f.TB.Fatalf("the claim %+v is not counted", c)
		}
		return c
	},
	"on the request path": func(f *fixture) store.Claim {
		f.AppendN("a", 5)
		return f.claimInline(one, "a")
	},
}

func TestClaimForRun_takesAWaveAwayAsThoughItHadBeenGivenBack(t *testing.T) {
	t.Parallel()
	for name, wave := range stagesOfAWave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given, taken := open(t), open(t)
			givenBack := wave(given)
			given.MustSettle(one, store.Result{Claim: givenBack, Applied: givenBack.First - 1})
			claim := wave(taken)
			claims := taken.ClaimedForRun("a")
			if rows := taken.queue("a"); strings.Contains(rows, "processing") {
				t.Errorf("while the run holds it the queue is\n%s", rows)
			}
			now, want := taken.MustCampaign("a"), given.MustCampaign("a")
			if now.Counts != want.Counts || now.HeadSeq != want.HeadSeq || now.HeadStatus != want.HeadStatus || now.HeadNextAttempt != want.HeadNextAttempt {
				t.Errorf("while the run holds it the campaign is %+v, after a wave that gave back %+v", now, want)
			}
			taken.Sound()
			taken.NoClaim(two)
			if got := taken.MustSettle(one, store.Result{Claim: claim, Applied: claim.Last, Failure: storetest.Failure("late")}); got != (store.Settled{Fenced: 1}) {
				t.Errorf("the wave settled %+v", got)
			}
			taken.ReleaseFromRun(claims...)
			if got, want := taken.queue("a"), given.queue("a"); got != want {
				t.Errorf("the queue is\n%s\nafter a wave that gave back\n%s", got, want)
			}
			taken.Sound()
			if c := taken.ClaimOne(two, 1); c.First != 1 {
				t.Errorf("afterwards a worker claims %+v", c)
			}
		})
	}
}

func TestClaimForRun_fencesTheWaveOff(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	wave := f.ClaimOne(one, 5)
	f.MustApply(wave, 2)
	claims := f.ClaimedForRun("a")
	if c := claims[0]; c.Watermark.AppliedSeq != 2 || c.Watermark.FenceEpoch != c.Epoch || c.Epoch <= wave.Epoch || c.HighWater != 5 || c.First != 3 || c.Last != 2 {
		t.Errorf("the claim is %+v, want it from event 3 on", c)
	}
	if _, err := f.ApplyClaim(wave, 3); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("the wave applied on: %v", err)
	}
	f.ReleaseFromRun(claims...)
	if c := f.MustCampaign("a"); c.AppliedSeq != 2 || c.Counts != (outbox.Counts{Pending: 3}) || c.HeadSeq != 3 || c.Lease != nil {
		t.Errorf("campaign is %+v, want the two rows gone that the wave applied", c)
	}
	f.Sound()
	f.Drain()
	f.Sound()
}

func TestClaimForRun_aLeaseThatRanOutIsStillACrash(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	f.ClaimOne(one, 3)
	f.Clock.Advance(lease)
	f.ReleaseFromRun(f.ClaimedForRun("a")...)
	if n := f.Number(`select crashes from campaigns`); n != 1 {
		t.Errorf("%d crashes are counted, want 1", n)
	}
	f.Sound()
}

func TestClaimForRun_takesWhatNoWorkerMay(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("dead", 2)
	f.Kill("dead")
	f.AppendN("current", 2)
	f.Drain()
	f.AppendN("paused", 2)
	f.MustPause("paused")
	f.AppendN("diverged", 2)
	f.SetWatermark("diverged", 1, 1)
	f.must(f.ReconcileCampaign(f.Ctx, "diverged"))
	var before []string
	ids := []string{"dead", "paused", "diverged", "current"}
	for _, id := range ids {
		before = append(before, f.queue(id))
	}
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), run, append([]string{"nobody"}, ids...), lease)
	if err != nil || len(claims) != 4 {
		t.Fatalf("claimed %+v, %v", claims, err)
	}
	for _, c := range claims {
		if (c.Diverged != "") != (c.CampaignID == "diverged") {
			t.Errorf("claim %+v", c)
		}
	}
	f.ReleaseFromRun(claims...)
	for i, id := range ids {
		if got := f.queue(id); got != before[i] {
			t.Errorf("%s is\n%s\nafter\n%s", id, got, before[i])
		}
	}
}

func TestClaimForRun_risesAboveEveryFence(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.SetWatermark("a", 0, 100)
	claims := f.ClaimedForRun("a")
	if claims[0].Epoch != 101 || f.MustWatermark("a").FenceEpoch != 101 {
		t.Errorf("claimed %+v, the fence is %+v", claims, f.MustWatermark("a"))
	}
	f.ReleaseFromRun(claims...)
	f.Drain()
	f.Sound()
}

func TestClaimForRun_leavesAnotherRunAlone(t *testing.T) {
	t.Parallel()
	f := open(t, impatient)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	held, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(8, "host-1"), otherRun, []string{"a"}, lease)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), run, []string{"a", "b"}, lease)
	if err != nil || len(claims) != 1 || claims[0].CampaignID != "b" {
		t.Errorf("claimed %+v, %v; want b alone", claims, err)
	}
	if lost, err := f.RenewForRun(f.Ctx, otherRun, held, lease); err != nil || len(lost) != 0 {
		t.Errorf("the other run lost %q, %v", lost, err)
	}
	c := f.MustCampaign("a")
	if why := c.Why(f.Clock.Now(), outbox.Surroundings{}); !strings.Contains(why, "run 8 of host-1") {
		t.Errorf("the campaign waits because: %s", why)
	}
	_, err = f.ReplayCampaign(f.Ctx, ana(""), "a")
	refused(t, err, outbox.ErrConflict, "run 8 of host-1 is working on")
}

func TestClaimForRun_takesOverFromAnotherProcess(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.ClaimedForRun("a")
	before := f.MustWatermark("a").FenceEpoch
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-2"), store.Worker{ID: outbox.RunOwner(7, "host-2")}, []string{"a"}, lease)
	if err != nil || len(claims) != 1 || claims[0].Epoch <= before {
		t.Errorf("claimed %+v, %v", claims, err)
	}
}

func TestRunClaims_thatAreLostAreNamed(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.AppendN(id, 1)
	}
	claims := f.ClaimedForRun("a", "b", "c")
	f.LoseRows("b", "seq = 1")
	f.Exec(`update campaigns set lease_epoch = lease_epoch + 1 where campaign_id = 'b'`)
	if lost, err := f.RenewForRun(f.Ctx, run, claims, 2*lease); err != nil || !slices.Equal(lost, []string{"b"}) {
		t.Errorf("renewing lost %q, %v", lost, err)
	}
	before := f.queue("b")
	if lost, err := f.ReleaseForRun(f.Ctx, run, claims); err != nil || !slices.Equal(lost, []string{"b"}) {
		t.Errorf("releasing lost %q, %v", lost, err)
	}
	if f.queue("b") != before {
		t.Error("what was lost has changed")
	}
	for _, id := range []string{"a", "c"} {
		if c := f.MustCampaign(id); c.Lease != nil {
			t.Errorf("%s is still held: %+v", id, c.Lease)
		}
	}
}

func TestReleaseForRun_writesNothingElseWhenNothingChanged(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 20 {
		f.AppendN(fmt.Sprint("c-", i), 2)
	}
	f.Drain()
	f.AppendN("c-3", 4)
	before := f.queue("c-3")
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("c-", i))
	}
	f.ReleaseFromRun(f.ClaimedForRun(ids...)...)
	if got := f.queue("c-3"); got != before {
		t.Errorf("the queue is\n%s\nafter\n%s", got, before)
	}
	f.Sound()
}

func TestReleaseForRun_seesThatACampaignIsInLineAgain(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Drain()
	hash := f.MustWatermark("a").AppliedHash
	f.ExecProjections(`update projection_watermarks set applied_hash = 'other'`)
	if _, err := f.ReconcileCampaign(f.Ctx, "a"); err != nil || f.MustCampaign("a").Diverged == "" {
		t.Fatal("the campaign is not diverged", err)
	}
	claims := f.ClaimedForRun("a")
	f.ExecProjections(`update projection_watermarks set applied_hash = $1`, hash)
	f.ReleaseFromRun(claims...)
	if c := f.MustCampaign("a"); c.Diverged != "" || c.Lease != nil {
		t.Errorf("campaign is %+v", c)
	}
	f.Sound()
}

func TestClaimForRun_isRefusedToAProcessThatDoesNotHoldTheRun(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	lost := f.HoldsRun(7, "host-1")
	f.HoldsRun(7, "host-2")
	if claims, err := f.Runs.ClaimCampaigns(f.Ctx, lost, run, []string{"a"}, lease); !errors.Is(err, outbox.ErrLeaseLost) || len(claims) > 0 {
		t.Errorf("claimed %+v, %v", claims, err)
	}
	if c := f.MustCampaign("a"); c.Lease != nil {
		t.Errorf("the campaign is held: %+v", c.Lease)
	}
}
