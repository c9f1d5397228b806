package store_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

var run = enginetest.RunHolder

// queue is a campaign and its rows in the journal, without the columns that each claim changes.
func (f *fixture) queue(campaign string) string {
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
		f.crash(one, 3)
		f.crash(one, 3)
		return f.Claims(one, 3, "a 1-1 under 3, counted")
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
			rows := taken.queue("a")
			must.Hold(t, !strings.Contains(rows, "processing"), "while the run holds it the queue is\n%s", rows)
			now, want := taken.MustCampaign("a"), given.MustCampaign("a")
			must.Hold(t, now.Counts == want.Counts && now.HeadSeq == want.HeadSeq && now.HeadStatus == want.HeadStatus && now.HeadNextAttempt == want.HeadNextAttempt, "while the run holds it the campaign is %+v, after a wave that gave back %+v", now, want)
			taken.Sound()
			taken.NoClaim(two)
			must.Equal(t, taken.MustSettle(one, store.Result{Claim: claim, Applied: claim.Last, Failure: storetest.Failure("late")}), store.Settled{Fenced: 1}, "the wave settled")
			taken.ReleaseFromRun(claims...)
			must.Equal(t, taken.queue("a"), given.queue("a"), "the queue", "after a wave that gave back")
			taken.Sound()
			must.Equal(t, taken.ClaimOne(two, 1).First, 1, "afterwards a worker claims")
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
	c := claims[0]
	must.Hold(t, c.Watermark.AppliedSeq == 2 && c.Watermark.FenceEpoch == c.Epoch && c.Epoch > wave.Epoch && c.HighWater == 5 && c.First == 3 && c.Last == 2, "the claim is %+v", c)
	wantLost(t, storetest.No(f.ApplyClaim(wave, 3)))
	f.ReleaseFromRun(claims...)
	f.Is("a", "applied 2 of 5, head 3 pending, 3 pending")
	f.Sound()
	f.Drain()
	f.Sound()
}

func TestClaimForRun_takesWhatNoWorkerMayAndGivesItBackAsItWas(t *testing.T) {
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
	f.AppendN("waiting", 4)
	before := map[string]string{"dead": "", "paused": "", "diverged": "", "current": "", "waiting": ""}
	for id := range before {
		before[id] = f.queue(id)
	}
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), run, slices.Sorted(maps.Keys(before)), lease)
	must.Need(t, err == nil && len(claims) == 5, "claimed %+v, %v", claims, err)
	for _, c := range claims {
		must.Hold(t, (c.Diverged != "") == (c.CampaignID == "diverged"), "claim %+v", c)
	}
	f.ReleaseFromRun(claims...)
	for id, was := range before {
		must.Equal(t, f.queue(id), was, id, "is", "after")
	}
	// A lease that ran out is a crash also where a run comes next.
	f.ClaimOne(one, 3)
	f.Clock.Advance(lease)
	f.ReleaseFromRun(f.ClaimedForRun("waiting")...)
	must.Equal(t, f.Number(`select crashes from campaigns where campaign_id = 'waiting'`), 1, "crashes are counted")
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
	// Another process takes the run over, and then its campaigns.
	lost := f.HoldsRun(7, "host-1")
	next := f.HoldsRun(7, "host-2")
	wantLost(t, storetest.No(f.Runs.ClaimCampaigns(f.Ctx, lost, run, []string{"a"}, lease)))
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, next, store.Worker{ID: outbox.RunOwner(7, "host-2")}, []string{"a"}, lease)
	must.Hold(t, err == nil && len(claims) == 1 && claims[0].Epoch > 101, "claimed %+v, %v", claims, err)
}

func TestClaimForRun_leavesAnotherRunAlone(t *testing.T) {
	t.Parallel()
	f := open(t, impatient)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	other := store.Worker{ID: outbox.RunOwner(8, "host-1"), Build: "v1"}
	held, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(8, "host-1"), other, []string{"a"}, lease)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), run, []string{"a", "b"}, lease)
	must.Hold(t, err == nil && len(claims) == 1 && claims[0].CampaignID == "b", "claimed %+v, %v; want b alone", claims, err)
	must.Equal(t, len(must.Get(f.RenewForRun(f.Ctx, other, held, lease)).Or(t)), 0, "the other run lost")
	why := f.MustCampaign("a").Why(f.Clock.Now(), outbox.Surroundings{})
	must.Hold(t, strings.Contains(why, "run 8 of host-1"), "the campaign waits because: %s", why)
	refused(t, storetest.No(f.ReplayCampaign(f.Ctx, ana(""), "a")), outbox.ErrConflict, "run 8 of host-1 is working on")
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
	must.Equal(t, must.Get(f.RenewForRun(f.Ctx, run, claims, 2*lease)).Or(t), []string{"b"}, "renewing lost")
	before := f.queue("b")
	must.Equal(t, must.Get(f.ReleaseForRun(f.Ctx, run, claims)).Or(t), []string{"b"}, "releasing lost")
	must.Equal(t, f.queue("b"), before, "what was lost has changed")
	for _, id := range []string{"a", "c"} {
		f.Is(id, "applied 0 of 1, head 1 pending, 1 pending")
	}
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
	f.Is("a", "applied 3 of 3")
	f.Sound()
}

// A run that fenced a request off leaves its events to the workers.
func TestReleaseForRun_givesEventsWithoutRowsTheirs(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline))
	f.AppendN("a", 3)
	f.ReleaseFromRun(f.ClaimedForRun("a")...)
	f.Is("a", "applied 0 of 3, head 1 pending, 3 pending")
	f.Sound()
}
