package outbox_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestClaim_marksARunFromTheHeadUnderANewEpoch(t *testing.T) {
	f := own(t)
	f.AppendN("a", 5)
	f.Claims(one, 3, "a 1-3 under 1")
	f.Is("a", "applied 0 of 5, head 1 processing, 2 pending, 3 processing, held by worker-1 under 1")
	must.Equal(t, f.MustCampaign("a").Lease.ExpiresAt, began.Add(lease), "lease")
	must.Equal(t, f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and claim_epoch = 1 and seq <= 3`), 3, "rows with the claim's epoch")
	f.Sound()
	// It is taken over as soon as the lease has expired.
	f.Clock.Advance(lease - time.Microsecond)
	f.NoClaim(two)
	f.Clock.Advance(time.Microsecond)
	f.Claims(two, 10, "a 1-5 under 2")
	f.Is("a", "applied 0 of 5, head 1 processing, 5 processing, held by worker-2 under 2")
	f.Sound()
}

func TestClaim_passesOverCampaignsThatMayNotBeWorkedOn(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Dies("dead", 2)
	f.AppendN("diverged", 1)
	f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 10), Applied: 0, Diverged: "for a test"})
	f.Halted("paused", 1)
	f.AppendN("leased", 1)
	f.ClaimOne(one, 10)
	f.Applied("empty", 1)
	f.NoClaim(two)
	_, due, err := f.UntilDue(f.Ctx, campaign.Scope{})
	must.Hold(t, err == nil && due, "the leased campaign is due at its lease's end: %v, %v", due, err)
	f.AppendN("ready", 1)
	f.Claims(two, 10, "ready 1-1 under 1")
	f.must(f.ResumeCampaign(f.Ctx, ana(""), "paused"))
	f.Claims(two, 10, "paused 1-1 under 1")
}

func TestClaim_failedHeadWaitsForItsTime(t *testing.T) {
	f := own(t)
	f.Failing("boom", "a", 2)
	f.NoClaim(one)
	wait, due, err := f.UntilDue(f.Ctx, campaign.Scope{})
	must.Hold(t, err == nil && due && wait == time.Second, "due in %s (%v, %v), want 1 s", wait, due, err)
	f.Clock.Advance(time.Second - time.Microsecond)
	f.NoClaim(one)
	f.Clock.Advance(time.Microsecond)
	c := f.Claims(one, 10, "a 1-2 under 2, after 1")
	must.Hold(t, len(c.TriedBy) == 1 && c.TriedBy[""] == 1, "tried by %v", c.TriedBy)
	f.Works(one, c, 0) // shut down before it was tried
	f.Claims(one, 10, "a 1-2 under 3, after 1")
	f.Sound()
}

func TestClaim_stopsAtAHoleAndAtARowThatFailed(t *testing.T) {
	storetest.Each(t, own, map[string]string{"hole": `delete from projection_apply_outbox`, "dead": `update projection_apply_outbox set status = 'dead'`,
		"failed": `update projection_apply_outbox set status = 'failed'`}, func(t *testing.T, f *fixture, fourth string) {
		f.AppendN("a", 6)
		f.Exec(fourth + ` where seq = 4`)
		f.Exec(`update campaigns set pending = 5, (dead, failed) = (
  select count(case status when 'dead' then 1 end), count(case status when 'failed' then 1 end) from projection_apply_outbox)`)
		c := f.Claims(one, 10, "a 1-3 under 1")
		must.Equal(t, f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and seq > 4`), 0, fourth, "rows beyond the hole stayed marked")
		f.Exact("a")
		f.Works(one, c, 3)
		f.Exact("a")
	})
}

// A row that is marked under another epoch is not the claim's, though nobody counts it.
func TestClaim_stopsAtARowMarkedUnderAnotherEpoch(t *testing.T) {
	f := own(t)
	f.AppendN("a", 6)
	f.Exec(`update projection_apply_outbox set status = 'processing', claim_epoch = 9 where seq = 4`)
	f.Claims(one, 10, "a 1-3 under 1")
}

func TestClaim_withoutTheHeadsRowTakesNoLease(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.AppendN("b", 1)
	f.Exec(`delete from projection_apply_outbox where seq = 1`)
	f.NoClaim(one)
	f.Is("a", "applied 0 of 3, head 2 pending, 2 pending")
	f.Is("b", "applied 0 of 1")
}

func TestClaim_sharesAWave(t *testing.T) {
	type given struct {
		huge, small, rows     int // events of one campaign, how many others have two each, and the rows of the wave
		claims, largest, most int64
	}
	storetest.Each(t, own, map[string]given{"an eighth for the huge one": {500, 20, 80, 21, 10, 50}, "all for the only one": {100, 0, 80, 1, 80, 80},
		"one": {2, 29, 1, 1, 1, 1}, "few": {2, 29, 7, 7, 1, 7}}, func(t *testing.T, f *fixture, c given) {
		f.AppendN("0-huge", c.huge)
		for i := range c.small {
			f.AppendN(fmt.Sprintf("small-%02d", i), 2)
		}
		rows, largest := int64(0), int64(0)
		claims := f.MustClaim(one, c.rows)
		for _, c := range claims {
			rows, largest = rows+c.Last-c.First+1, max(largest, c.Last-c.First+1)
		}
		must.Hold(t, int64(len(claims)) == c.claims && largest == c.largest && rows == c.most, "of %+v it takes %d campaigns with %d rows, at most %d each", c, len(claims), rows, largest)
	})
}

func TestClaim_servesThoseThatWaitedLongestFirst(t *testing.T) {
	f := own(t)
	f.AppendN("z", 30)
	f.Clock.Advance(time.Second)
	f.AppendN("a", 30)
	var order []string
	for range 6 {
		f.Clock.Advance(time.Second)
		c := f.MustClaim(one, 1)[0]
		order = append(order, c.CampaignID)
		f.Works(one, c, c.Last)
	}
	must.Equal(t, strings.Join(order, ""), "zazaza", "served")
	f.Pass(f.Clock.Now().UnixMicro()) // as where entries of old claims are in the way: nothing is left for good
	claims := append(f.MustClaim(one, 100), f.MustClaim(one, 100)...)
	must.Hold(t, len(claims) == 2 && claims[0].CampaignID == "a" && claims[1].CampaignID == "z", "claimed %+v", claims)
}

func TestRenew_extendsWhatIsHeldAndNamesWhatIsLost(t *testing.T) {
	f := own(t)
	f.AppendN("a b", 1)
	claims := f.MustClaim(one, 10)
	f.Clock.Advance(lease - time.Second)
	must.OK(t, f.Renew(f.Ctx, one, claims, lease))
	f.Clock.Advance(lease - time.Second)
	f.NoClaim(two)
	// From here on the lease of b is not renewed.
	must.OK(t, f.Renew(f.Ctx, one, claims[:1], lease))
	f.Clock.Advance(2 * time.Second)
	f.Claims(two, 10, claims[1].CampaignID+" 1-1 under 2")
	wantLost(t, f.Renew(f.Ctx, one, claims, time.Hour))
	for i, until := range []time.Duration{time.Hour, lease} {
		must.Equal(t, f.MustCampaign(claims[i].CampaignID).Lease.ExpiresAt, f.Clock.Now().Add(until), "the lease", "does not end in")
	}
	f.MustSettle(one, outbox.Result{Claim: claims[0]})
	wantLost(t, f.Renew(f.Ctx, one, claims[:1], lease)) // it was given back
	f.ClaimOne(one, 1)
	wantLost(t, f.Renew(f.Ctx, one, claims[:1], lease)) // it is another claim's
}

// mustHoldInline fails unless the request path gets no claim for this reason.
func (f *fixture) mustHoldInline(w outbox.Worker, campaign string, want campaign.Blocker) {
	c, hold, err := f.ClaimInline(f.Ctx, w, campaign, outbox.ClaimLimits{Rows: 10, Lease: lease})
	must.Hold(f.TB, err == nil && hold == want, "the request path claimed %+v: %s, %v; want %s", c, hold, err, want)
}

// claimsInline is MustClaimInline of a claim as told.
func (f *fixture) claimsInline(w outbox.Worker, campaign, want string) outbox.Claim {
	c := f.MustClaimInline(w, campaign)
	must.Equal(f.TB, storetest.ToldClaim(c), want, "the request path claimed")
	return c
}

func TestClaimInline_takesEventsWithoutRows(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeInline))
	f.AppendN("a", 2)
	c := f.claimsInline(one, "a", "a 1-2 under 1, bare")
	f.mustHoldInline(two, "a", campaign.BlockerLease)
	f.Sound()
	must.Equal(t, f.Works(one, c, 2), outbox.Settled{Applied: 2}, "settled")
	f.Is("a", "applied 2 of 2")
	f.Unchanged(func() { f.mustHoldInline(one, "a", campaign.BlockerEmpty) })
	_, _, err := f.ClaimInline(f.Ctx, one, "b", outbox.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, event.ErrNotFound, `"b"`)
	f.MustPause("a")
	f.mustHoldInline(one, "a", campaign.BlockerEmpty)
	f.Sound()
}

// Events without rows under an expired lease are taken over like rows: by the next request or by a worker.
func TestClaimInline_leavesItsEventsToWhoeverComesOnceItsLeaseRanOut(t *testing.T) {
	storetest.Each(t, own, map[string]func(f *fixture) outbox.Claim{
		"the next request": func(f *fixture) outbox.Claim { return f.claimsInline(two, "a", "a 1-2 under 2") },
		"a worker":         func(f *fixture) outbox.Claim { return f.Claims(two, 10, "a 1-2 under 2") },
	}, func(t *testing.T, f *fixture, take func(f *fixture) outbox.Claim) {
		f.AppendN("a", 2)
		died := f.MustClaimInline(one, "a")
		f.NoClaim(two)
		f.Clock.Advance(lease)
		c := take(f)
		f.MustApply(c, 2)
		must.Equal(t, f.MustSettle(one, outbox.Result{Claim: died, Applied: 2}).Fenced, 1, "the one that was taken over settled")
		f.MustSettle(two, outbox.Result{Claim: c, Applied: 2})
		f.Sound()
	}, storetest.InMode(campaign.ModeInline))
}

func TestClaimInline_keepsWorkersOffRowsOfAnEarlierMode(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	inline := f.beside(storetest.InMode(campaign.ModeInline))
	inline.AppendN("a", 1)
	c := inline.claimsInline(one, "a", "a 1-3 under 1")
	f.NoClaim(two)
	inline.Works(one, c, 3)
	f.Is("a", "applied 3 of 3")
	f.Sound()
	inline.Sound()
}

func TestSettle_givesTheEventsOfABareClaimRowsFromTheFailedOneOn(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeInline), storetest.MaxAttempts(2))
	f.AppendN("a", 4)
	c := f.MustClaimInline(one, "a")
	f.AppendN("a", 1) // for its own request to apply
	must.Equal(t, f.FailsAfter(one, c, 1, "no seat"), outbox.Settled{Applied: 1, Failed: 1}, "settled")
	f.Is("a", "applied 1 of 5, head 2 failed, 3 pending, 1 failed")
	r := f.MustRow("a", 2)
	must.Hold(t, r.Row.AttemptCount == 1 && r.Row.LastError == "no seat" && len(r.Attempts) == 1, "the row is %+v", r)
	f.AppendN("a", 1)
	_, _, err := f.ClaimInline(f.Ctx, one, "a", outbox.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, event.ErrNotYet, "the event is appended but not yet applied", "Event 2 failed and will be retried in 1 s")
	f.Sound()
	f.Clock.Advance(time.Minute)
	f.Claims(two, 10, "a 2-6 under 2, after 1")
}

func TestEnqueueMissing_besideAnybody(t *testing.T) {
	storetest.Each(t, own, map[string]func(f *fixture) (end func()){
		"nobody":    func(*fixture) func() { return func() {} },
		"a request": func(f *fixture) func() { c := f.MustClaimInline(one, "a"); return func() { f.Works(one, c, 3) } },
		"a run":     func(f *fixture) func() { claims := f.ClaimedForRun("a"); return func() { f.ReleaseFromRun(claims...) } },
	}, func(t *testing.T, f *fixture, hold func(f *fixture) (end func())) {
		f.AppendN("a", 3)
		end := hold(f)
		for range 2 {
			must.OK(t, f.EnqueueMissing(f.Ctx, "a"))
		}
		c := f.MustCampaign("a")
		must.Hold(t, c.Counts == (campaign.Counts{Pending: 3}) && c.HeadSeq == 1, "campaign is %+v, want 3 rows", c)
		f.Sound()
		end()
		f.DrainsSoundly()
		f.Unchanged(func() { must.OK(t, f.EnqueueMissing(f.Ctx, "unknown")); must.OK(t, f.EnqueueMissing(f.Ctx, "a")) })
	}, storetest.InMode(campaign.ModeInline))
}

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
var stagesOfAWave = map[string]func(f *fixture) outbox.Claim{
	"fresh": func(f *fixture) outbox.Claim { f.AppendN("a", 5); return f.ClaimOne(one, 3) },
	"head failed before": func(f *fixture) outbox.Claim {
		f.Failing("boom", "a", 5)
		f.Clock.Advance(time.Minute)
		return f.ClaimOne(one, 3)
	},
	"crashed once": func(f *fixture) outbox.Claim {
		f.AppendN("a", 5)
		f.ClaimOne(one, 3)
		f.Clock.Advance(lease)
		return f.ClaimOne(one, 3)
	},
	"attempt counted before it began": func(f *fixture) outbox.Claim {
		f.AppendN("a", 5)
		f.Crash(one, 3)
		f.Crash(one, 3)
		return f.Claims(one, 3, "a 1-1 under 3, counted")
	},
	"on the request path": func(f *fixture) outbox.Claim { f.AppendN("a", 5); return f.MustClaimInline(one, "a") },
}

func TestClaimForRun_takesAWaveAwayAsThoughItHadBeenGivenBack(t *testing.T) {
	storetest.Each(t, own, stagesOfAWave, func(t *testing.T, given *fixture, wave func(f *fixture) outbox.Claim) {
		taken := open(t)
		givenBack := wave(given)
		given.MustSettle(one, outbox.Result{Claim: givenBack, Applied: givenBack.First - 1})
		claim := wave(taken)
		claims := taken.ClaimedForRun("a")
		rows := taken.queue("a")
		must.Hold(t, !strings.Contains(rows, "processing"), "while the run holds it the queue is\n%s", rows)
		now, want := taken.MustCampaign("a"), given.MustCampaign("a")
		must.Hold(t, now.Counts == want.Counts && now.HeadSeq == want.HeadSeq && now.HeadStatus == want.HeadStatus && now.HeadNextAttempt == want.HeadNextAttempt, "while the run holds it the campaign is %+v, after a wave that gave back %+v", now, want)
		taken.Sound()
		taken.NoClaim(two)
		must.Equal(t, taken.MustSettle(one, outbox.Result{Claim: claim, Applied: claim.Last, Failure: storetest.Failure("late")}), outbox.Settled{Fenced: 1}, "the wave settled")
		taken.ReleaseFromRun(claims...)
		must.Equal(t, taken.queue("a"), given.queue("a"), "the queue", "after a wave that gave back")
		taken.Sound()
		must.Equal(t, taken.ClaimOne(two, 1).First, 1, "afterwards a worker claims")
	})
}

func TestClaimForRun_fencesTheWaveOff(t *testing.T) {
	f := own(t)
	f.AppendN("a", 5)
	wave := f.ClaimOne(one, 5)
	f.MustApply(wave, 2)
	f.Is("a", "applied 2 of 5, head 1 processing, 5 processing, held by worker-1 under 1") // as the watermark says
	claims := f.ClaimedForRun("a")
	c := claims[0]
	must.Hold(t, c.Watermark.AppliedSeq == 2 && c.Watermark.FenceEpoch == c.Epoch && c.Epoch > wave.Epoch && c.First == 3 && c.Last == 2, "the claim is %+v", c)
	wantLost(t, storetest.No(f.ApplyClaim(wave, 3)))
	f.ReleaseFromRun(claims...)
	f.Is("a", "applied 2 of 5, head 3 pending, 3 pending")
	f.Sound()
	f.DrainsSoundly()
}

func TestClaimForRun_takesWhatNoWorkerMayAndGivesItBackAsItWas(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Dies("dead", 2)
	f.Applied("current", 2)
	f.Halted("paused", 2)
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
	f := own(t)
	f.AppendN("a", 2)
	f.SetWatermark("a", 0, 100)
	claims := f.ClaimedForRun("a")
	must.Hold(t, claims[0].Epoch == 101 && f.MustWatermark("a").FenceEpoch == 101, "claimed %+v, the fence is %+v", claims, f.MustWatermark("a"))
	// Another process takes the run over, and then its campaigns.
	lost := f.HoldsRun(7, "host-1")
	next := f.HoldsRun(7, "host-2")
	wantLost(t, storetest.No(f.Runs.ClaimCampaigns(f.Ctx, lost, run, []string{"a"}, lease)))
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, next, outbox.Worker{ID: campaign.RunOwner(7, "host-2")}, []string{"a"}, lease)
	must.Hold(t, err == nil && len(claims) == 1 && claims[0].Epoch > 101, "claimed %+v, %v", claims, err)
}

func TestClaimForRun_leavesAnotherRunAlone(t *testing.T) {
	f := own(t, storetest.Impatient)
	f.AppendN("a b", 1)
	other := outbox.Worker{ID: campaign.RunOwner(8, "host-1"), Build: "v1"}
	held, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(8, "host-1"), other, []string{"a"}, lease)
	must.Need(t, err == nil && len(held) == 1, "claimed %+v, %v", held, err)
	claims, err := f.Runs.ClaimCampaigns(f.Ctx, f.HoldsRun(7, "host-1"), run, []string{"a", "b"}, lease)
	must.Hold(t, err == nil && len(claims) == 1 && claims[0].CampaignID == "b", "claimed %+v, %v; want b alone", claims, err)
	must.Equal(t, len(must.Get(f.RenewForRun(f.Ctx, other, held, lease)).Or(t)), 0, "the other run lost")
	why := f.MustCampaign("a").Why(f.Clock.Now(), campaign.Surroundings{})
	must.Hold(t, strings.Contains(why, "run 8 of host-1"), "the campaign waits because: %s", why)
	refused(t, storetest.No(f.ReplayCampaign(f.Ctx, ana(""), "a")), event.ErrConflict, "run 8 of host-1 is working on")
}

func TestRunClaims_thatAreLostAreNamed(t *testing.T) {
	f := own(t)
	f.AppendN("a b c", 1)
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

func TestReleaseForRun_leavesACampaignAsTheProjectionsAreNow(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeInline)) // a run that fenced a request off leaves its events to the workers
	f.AppendN("a", 3)
	f.ReleaseFromRun(f.ClaimedForRun("a")...)
	f.Is("a", "applied 0 of 3, head 1 pending, 3 pending")
	f.Sound()
	f.Drain()
	hash := f.MustWatermark("a").AppliedHash
	f.ExecProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.must(f.ReconcileCampaign(f.Ctx, "a"))
	must.Need(t, f.MustCampaign("a").Diverged != "", "the campaign is not diverged")
	claims := f.ClaimedForRun("a")
	f.ExecProjections(`update projection_watermarks set applied_hash = $1`, hash)
	f.ReleaseFromRun(claims...)
	f.Is("a", "applied 3 of 3")
	f.Sound()
}
