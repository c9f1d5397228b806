package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
)

var (
	run      = store.Worker{ID: outbox.RunOwner(7, "host-1"), Build: "v1"}
	otherRun = store.Worker{ID: outbox.RunOwner(8, "host-1"), Build: "v1"}
)

// holds makes a process the one that works on a run, which is made up.
func (f *fixture) holds(id int64, process string) runs.Lease {
	f.tb.Helper()
	override, next := "", ""
	if dbtest.Postgres() {
		override, next = "overriding system value", `; select setval(pg_get_serial_sequence('runs', 'id'), max(id)) from runs`
	}
	f.raw(fmt.Sprintf(`
insert into runs (id, kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at, lease_owner, lease_epoch)
%s values (%d, 'rebuild', 'running', '[]', 1, '[]', '{}', '', 'ana', 'cli', '', 1, 1, '%s', 1)
on conflict (id) do update set lease_owner = excluded.lease_owner%s`, override, id, process, next))
	return runs.Lease{Run: outbox.Run{ID: id}, Owner: process, Epoch: 1}
}

// claimForRun claims campaigns that must all be had.
func (f *fixture) claimForRun(campaigns ...string) []store.RunClaim {
	f.tb.Helper()
	claims, err := f.runs.ClaimCampaigns(f.ctx, f.holds(7, "host-1"), run, campaigns, lease)
	if err != nil || len(claims) != len(campaigns) {
		f.tb.Fatalf("claimed %+v, %v; want %q", claims, err, campaigns)
	}
	return claims
}

func (f *fixture) releaseFromRun(claims ...store.RunClaim) {
	f.tb.Helper()
	if lost, err := f.ReleaseForRun(f.ctx, run, claims); err != nil || len(lost) != 0 {
		f.tb.Fatalf("release: lost %q, %v", lost, err)
	}
}

// queue is a campaign and its rows as the journal has them, without what each
// claim changes.
func (f *fixture) queue(campaign string) string {
	f.tb.Helper()
	return strings.Join(append(texts(f.tb, f.journal, `
select concat_ws(' ', high_water_seq, applied_seq, head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at,
  pending, processing, failed, dead, lease_owner, crashes, suspect_seq, diverged)
from campaigns
where campaign_id = $1`, campaign), texts(f.tb, f.journal, `
select concat_ws(' ', seq, status, attempt_count, next_attempt_at, last_error, updated_at)
from projection_apply_outbox
where campaign_id = $1
order by seq`, campaign)...), "\n")
}

// stagesOfAWave are what a campaign may have been through when a wave holds it.
var stagesOfAWave = map[string]func(f *fixture) store.Claim{
	"fresh": func(f *fixture) store.Claim {
		f.append("a", 5)
		return f.claimOne(one, 3)
	},
	"head failed before": func(f *fixture) store.Claim {
		f.append("a", 5)
		f.fail("boom", "a")
		f.clock.advance(time.Minute)
		return f.claimOne(one, 3)
	},
	"crashed once": func(f *fixture) store.Claim {
		f.append("a", 5)
		f.claimOne(one, 3)
		f.clock.advance(lease)
		return f.claimOne(one, 3)
	},
	"attempt counted before it began": func(f *fixture) store.Claim {
		f.append("a", 5)
		for range 2 {
			f.crash(one, 3)
		}
		c := f.claimOne(one, 3)
		if !c.Counted {
			f.tb.Fatalf("the claim %+v is not counted", c)
		}
		return c
	},
	"on the request path": func(f *fixture) store.Claim {
		f.append("a", 5)
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
			given.settle(one, store.Result{Claim: givenBack, Applied: givenBack.First - 1})
			claim := wave(taken)
			claims := taken.claimForRun("a")
			if rows := taken.queue("a"); strings.Contains(rows, "processing") {
				t.Errorf("while the run holds it the queue is\n%s", rows)
			}
			now, want := taken.campaign("a"), given.campaign("a")
			if now.Counts != want.Counts || now.HeadSeq != want.HeadSeq || now.HeadStatus != want.HeadStatus || now.HeadNextAttempt != want.HeadNextAttempt {
				t.Errorf("while the run holds it the campaign is %+v, after a wave that gave back %+v", now, want)
			}
			taken.sound()
			taken.noClaim(two)
			if got := taken.settle(one, store.Result{Claim: claim, Applied: claim.Last, Failure: failure("late")}); got != (store.Settled{Fenced: 1}) {
				t.Errorf("the wave settled %+v", got)
			}
			taken.releaseFromRun(claims...)
			if got, want := taken.queue("a"), given.queue("a"); got != want {
				t.Errorf("the queue is\n%s\nafter a wave that gave back\n%s", got, want)
			}
			taken.sound()
			if c := taken.claimOne(two, 1); c.First != 1 {
				t.Errorf("afterwards a worker claims %+v", c)
			}
		})
	}
}

func TestClaimForRun_fencesTheWaveOff(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 5)
	wave := f.claimOne(one, 5)
	f.mustApply(wave, 2)
	claims := f.claimForRun("a")
	if c := claims[0]; c.Watermark.AppliedSeq != 2 || c.Watermark.FenceEpoch != c.Epoch || c.Epoch <= wave.Epoch || c.HighWater != 5 || c.First != 3 || c.Last != 2 {
		t.Errorf("the claim is %+v, want it from event 3 on", c)
	}
	if _, err := f.apply(wave, 3); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("the wave applied on: %v", err)
	}
	f.releaseFromRun(claims...)
	if c := f.campaign("a"); c.AppliedSeq != 2 || c.Counts != (outbox.Counts{Pending: 3}) || c.HeadSeq != 3 || c.Lease != nil {
		t.Errorf("campaign is %+v, want the two rows gone that the wave applied", c)
	}
	f.sound()
	f.drain()
	f.sound()
}

func TestClaimForRun_aLeaseThatRanOutIsStillACrash(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 5)
	f.claimOne(one, 3)
	f.clock.advance(lease)
	f.releaseFromRun(f.claimForRun("a")...)
	if n := f.number(`select crashes from campaigns`); n != 1 {
		t.Errorf("%d crashes are counted, want 1", n)
	}
	f.sound()
}

func TestClaimForRun_takesWhatNoWorkerMay(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	f.append("dead", 2)
	f.kill("dead")
	f.append("current", 2)
	f.drain()
	f.append("paused", 2)
	f.pause("paused")
	f.append("diverged", 2)
	f.set("diverged", 1, 1)
	if _, err := f.ReconcileCampaign(f.ctx, "diverged"); err != nil {
		t.Fatal(err)
	}
	var before []string
	ids := []string{"dead", "paused", "diverged", "current"}
	for _, id := range ids {
		before = append(before, f.queue(id))
	}
	claims, err := f.runs.ClaimCampaigns(f.ctx, f.holds(7, "host-1"), run, append([]string{"nobody"}, ids...), lease)
	if err != nil || len(claims) != 4 {
		t.Fatalf("claimed %+v, %v", claims, err)
	}
	for _, c := range claims {
		if (c.Diverged != "") != (c.CampaignID == "diverged") {
			t.Errorf("claim %+v", c)
		}
	}
	f.releaseFromRun(claims...)
	for i, id := range ids {
		if got := f.queue(id); got != before[i] {
			t.Errorf("%s is\n%s\nafter\n%s", id, got, before[i])
		}
	}
}

func TestClaimForRun_risesAboveEveryFence(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.set("a", 0, 100)
	claims := f.claimForRun("a")
	if claims[0].Epoch != 101 || f.watermark("a").FenceEpoch != 101 {
		t.Errorf("claimed %+v, the fence is %+v", claims, f.watermark("a"))
	}
	f.releaseFromRun(claims...)
	f.drain()
	f.sound()
}

func TestClaimForRun_leavesAnotherRunAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.append("b", 1)
	held, err := f.runs.ClaimCampaigns(f.ctx, f.holds(8, "host-1"), otherRun, []string{"a"}, lease)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	claims, err := f.runs.ClaimCampaigns(f.ctx, f.holds(7, "host-1"), run, []string{"a", "b"}, lease)
	if err != nil || len(claims) != 1 || claims[0].CampaignID != "b" {
		t.Errorf("claimed %+v, %v; want b alone", claims, err)
	}
	if lost, err := f.RenewForRun(f.ctx, otherRun, held, lease); err != nil || len(lost) != 0 {
		t.Errorf("the other run lost %q, %v", lost, err)
	}
	c := f.campaign("a")
	if why := c.Why(f.clock.now(), outbox.Surroundings{}); !strings.Contains(why, "run 8 of host-1") {
		t.Errorf("the campaign waits because: %s", why)
	}
	_, err = f.ReplayCampaign(f.ctx, ana(""), "a")
	refused(t, err, outbox.ErrConflict, "run 8 of host-1 works on")
}

func TestClaimForRun_takesOverFromAnotherProcess(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.claimForRun("a")
	before := f.watermark("a").FenceEpoch
	claims, err := f.runs.ClaimCampaigns(f.ctx, f.holds(7, "host-2"), store.Worker{ID: outbox.RunOwner(7, "host-2")}, []string{"a"}, lease)
	if err != nil || len(claims) != 1 || claims[0].Epoch <= before {
		t.Errorf("claimed %+v, %v", claims, err)
	}
}

func TestRunClaims_thatAreLostAreNamed(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.append(id, 1)
	}
	claims := f.claimForRun("a", "b", "c")
	f.lose("b", "seq = 1")
	f.raw(`update campaigns set lease_epoch = lease_epoch + 1 where campaign_id = 'b'`)
	if lost, err := f.RenewForRun(f.ctx, run, claims, 2*lease); err != nil || !slices.Equal(lost, []string{"b"}) {
		t.Errorf("renewing lost %q, %v", lost, err)
	}
	before := f.queue("b")
	if lost, err := f.ReleaseForRun(f.ctx, run, claims); err != nil || !slices.Equal(lost, []string{"b"}) {
		t.Errorf("releasing lost %q, %v", lost, err)
	}
	if f.queue("b") != before {
		t.Error("what was lost has changed")
	}
	for _, id := range []string{"a", "c"} {
		if c := f.campaign(id); c.Lease != nil {
			t.Errorf("%s is still held: %+v", id, c.Lease)
		}
	}
}

func TestReleaseForRun_writesNothingElseWhenNothingChanged(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 20 {
		f.append(fmt.Sprint("c-", i), 2)
	}
	f.drain()
	f.append("c-3", 4)
	before := f.queue("c-3")
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("c-", i))
	}
	f.releaseFromRun(f.claimForRun(ids...)...)
	if got := f.queue("c-3"); got != before {
		t.Errorf("the queue is\n%s\nafter\n%s", got, before)
	}
	f.sound()
}

func TestReleaseForRun_seesThatACampaignIsInLineAgain(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.drain()
	hash := f.watermark("a").AppliedHash
	f.rawProjections(`update projection_watermarks set applied_hash = 'other'`)
	if _, err := f.ReconcileCampaign(f.ctx, "a"); err != nil || f.campaign("a").Diverged == "" {
		t.Fatal("the campaign is not diverged", err)
	}
	claims := f.claimForRun("a")
	f.rawProjections(`update projection_watermarks set applied_hash = $1`, hash)
	f.releaseFromRun(claims...)
	if c := f.campaign("a"); c.Diverged != "" || c.Lease != nil {
		t.Errorf("campaign is %+v", c)
	}
	f.sound()
}

func TestClaimForRun_isRefusedToAProcessThatDoesNotHoldTheRun(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	lost := f.holds(7, "host-1")
	f.holds(7, "host-2")
	if claims, err := f.runs.ClaimCampaigns(f.ctx, lost, run, []string{"a"}, lease); !errors.Is(err, outbox.ErrLeaseLost) || len(claims) > 0 {
		t.Errorf("claimed %+v, %v", claims, err)
	}
	if c := f.campaign("a"); c.Lease != nil {
		t.Errorf("the campaign is held: %+v", c.Lease)
	}
}
