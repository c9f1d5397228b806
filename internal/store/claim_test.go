package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestClaim_marksARunFromTheHeadUnderANewEpoch(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	f.Claims(one, 3, "a 1-3 under 1")
	f.Is("a", "applied 0 of 5, head 1 processing, 2 pending, 3 processing, held by worker-1 under 1")
	must.Equal(t, f.MustCampaign("a").Lease.ExpiresAt, began.Add(lease), "lease")
	n := f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and claim_epoch = 1 and seq <= 3`)
	must.Hold(t, n == 3, "%d of the three rows carry the claim's epoch", n)
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
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("dead", 2)
	f.Kill("dead")
	f.AppendN("diverged", 1)
	f.MustSettle(one, store.Result{Claim: f.ClaimOne(one, 10), Applied: 0, Diverged: "for a test"})
	f.AppendN("paused", 1)
	f.MustPause("paused")
	f.AppendN("leased", 1)
	f.ClaimOne(one, 10)
	f.AppendN("empty", 1)
	f.Drain()
	f.NoClaim(two)
	_, due, err := f.UntilDue(f.Ctx, outbox.Scope{})
	must.Hold(t, err == nil && due, "the leased campaign is due at its lease's end: %v, %v", due, err)
	f.AppendN("ready", 1)
	f.Claims(two, 10, "ready 1-1 under 1")
	f.must(f.ResumeCampaign(f.Ctx, ana(""), "paused"))
	f.Claims(two, 10, "paused 1-1 under 1")
}

func TestClaim_failedHeadWaitsForItsTime(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Fail("boom", "a")
	f.NoClaim(one)
	wait, due, err := f.UntilDue(f.Ctx, outbox.Scope{})
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
	t.Parallel()
	for _, fourth := range []string{`delete from projection_apply_outbox`, `update projection_apply_outbox set status = 'dead'`, `update projection_apply_outbox set status = 'failed'`} {
		f := open(t)
		f.AppendN("a", 6)
		f.Exec(fourth + ` where seq = 4`)
		f.Exec(`update campaigns set pending = 5, (dead, failed) = (
  select count(case status when 'dead' then 1 end), count(case status when 'failed' then 1 end) from projection_apply_outbox)`)
		c := f.Claims(one, 10, "a 1-3 under 1")
		must.Equal(t, f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and seq > 4`), 0, fourth, "rows beyond the hole stayed marked")
		f.Exact("a")
		f.Works(one, c, 3)
		f.Exact("a")
	}
}

func TestClaim_withoutTheHeadsRowTakesNoLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.AppendN("b", 1)
	f.Exec(`delete from projection_apply_outbox where seq = 1`)
	f.NoClaim(one)
	f.Is("a", "applied 0 of 3, head 2 pending, 2 pending")
	f.Is("b", "applied 0 of 1")
}

func TestClaim_sharesAWave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		huge, small, rows     int // events of one campaign, how many others have two each, and the rows of the wave
		claims, largest, most int64
	}{
		{500, 20, 80, 21, 10, 50}, // an eighth for the huge one
		{100, 0, 80, 1, 80, 80},
		{2, 29, 1, 1, 1, 1},
		{2, 29, 7, 7, 1, 7},
	} {
		f := open(t)
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
	}
}

func TestClaim_servesThoseThatWaitedLongestFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
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
}

func TestRenew_extendsWhatIsHeldAndNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
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
}
