package store_test

import (
	"errors"
	"fmt"
	"reflect"
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
	c := f.ClaimOne(one, 3)
	if want := (store.Claim{CampaignID: "a", Epoch: 1, First: 1, Last: 3, Unskipped: true}); !reflect.DeepEqual(c, want) {
		t.Fatalf("claim is %+v, want %+v", c, want)
	}
	got := f.MustCampaign("a")
	if want := (outbox.Counts{Pending: 2, Processing: 3}); got.Counts != want || got.HeadStatus != outbox.Processing {
		t.Errorf("campaign is %+v, want counts %+v", got, want)
	}
	if l := got.Lease; l == nil || l.Owner != one.ID || l.Epoch != 1 || l.ExpiresAt != began.Add(lease) {
		t.Errorf("lease is %+v", l)
	}
	if n := f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and claim_epoch = 1 and seq <= 3`); n != 3 {
		t.Errorf("%d of the three rows carry the claim's epoch", n)
	}
	f.NoClaim(two)
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
	f.must(f.PauseCampaign(f.Ctx, ana("for a test"), "paused"))
	f.AppendN("leased", 1)
	f.ClaimOne(one, 10)
	f.AppendN("empty", 1)
	f.Drain()
	f.NoClaim(two)
	if _, due, err := f.UntilDue(f.Ctx, outbox.Scope{}); err != nil || !due {
		t.Errorf("the leased campaign is due at its lease's end: %v, %v", due, err)
	}
	f.AppendN("ready", 1)
	if c := f.ClaimOne(two, 10); c.CampaignID != "ready" {
		t.Errorf("claimed %+v, want the only one that is ready", c)
	}
}

func TestClaim_failedHeadWaitsForItsTime(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Fail("boom", "a")
	f.NoClaim(one)
	if wait, due, err := f.UntilDue(f.Ctx, outbox.Scope{}); err != nil || !due || wait != time.Second {
		t.Errorf("due in %s (%v, %v), want 1 s", wait, due, err)
	}
	f.Clock.Advance(time.Second - time.Microsecond)
	f.NoClaim(one)
	f.Clock.Advance(time.Microsecond)
	c := f.ClaimOne(one, 10)
	if want := (store.Claim{CampaignID: "a", Epoch: 2, First: 1, Last: 2, Attempts: 1, TriedBy: map[string]int{"": 1}, Unskipped: true}); !reflect.DeepEqual(c, want) {
		t.Errorf("claim is %+v, want %+v", c, want)
	}
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
		c := f.ClaimOne(one, 10)
		if c.First != 1 || c.Last != 3 {
			t.Errorf("%s: claimed %d to %d, want 1 to 3", fourth, c.First, c.Last)
		}
		if n := f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and seq > 4`); n != 0 {
			t.Errorf("%s: %d rows beyond the hole stayed marked", fourth, n)
		}
		f.Exact("a")
		f.MustApply(c, 3)
		f.MustSettle(one, store.Result{Claim: c, Applied: 3})
		f.Exact("a")
	}
}

func TestClaim_withoutTheHeadsRowTakesNoLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.AppendN("b", 1)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'a' and seq = 1`)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'b'`)
	f.NoClaim(one)
	if a := f.MustCampaign("a"); a.Lease != nil || a.HeadSeq != 2 || a.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign a is %+v, want it to show the rows that are there", a)
	}
	if b := f.MustCampaign("b"); b.Lease != nil || b.HeadSeq != 0 || b.Counts.Total() != 0 {
		t.Errorf("campaign b is %+v, want it without rows", b)
	}
}

func TestClaim_sharesAWaveBetweenAHugeCampaignAndSmallOnes(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("0-huge", 500)
	for i := range 20 {
		f.AppendN(fmt.Sprintf("small-%02d", i), 2)
	}
	claims := f.MustClaim(one, 80)
	rows := int64(0)
	for _, c := range claims {
		n := c.Last - c.First + 1
		rows += n
		if c.CampaignID == "0-huge" && n != 10 {
			t.Errorf("the huge campaign got %d of 80 rows, want an eighth", n)
		}
		if c.CampaignID != "0-huge" && n != 2 {
			t.Errorf("%s got %d rows, want its two", c.CampaignID, n)
		}
	}
	if len(claims) != 21 || rows != 50 {
		t.Errorf("%d campaigns with %d rows, want all 21 with 50", len(claims), rows)
	}
}

func TestClaim_givesTheWholeWaveToALoneCampaign(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 100)
	if c := f.ClaimOne(one, 80); c.Last != 80 {
		t.Errorf("claimed %+v, want 80 rows", c)
	}
}

func TestClaim_neverExceedsTheWave(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 30 {
		f.AppendN(fmt.Sprintf("c-%02d", i), 5)
	}
	for _, limit := range []int{1, 2, 7, 20} {
		rows := int64(0)
		for _, c := range f.MustClaim(one, limit) {
			rows += c.Last - c.First + 1
		}
		if rows > int64(limit) || rows == 0 {
			t.Errorf("a wave of %d has %d rows", limit, rows)
		}
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
		f.MustApply(c, c.Last)
		f.MustSettle(one, store.Result{Claim: c, Applied: c.Last})
	}
	if got := strings.Join(order, ""); got != "zazaza" {
		t.Errorf("served %s, want the two in turn", got)
	}
}

func TestClaim_takesOverAnExpiredLeaseWithAHigherEpoch(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.ClaimOne(one, 10)
	f.Clock.Advance(lease - time.Microsecond)
	f.NoClaim(two)
	f.Clock.Advance(time.Microsecond)
	c := f.ClaimOne(two, 10)
	if want := (store.Claim{CampaignID: "a", Epoch: 2, First: 1, Last: 3, Unskipped: true}); !reflect.DeepEqual(c, want) {
		t.Errorf("took over %+v, want %+v", c, want)
	}
	if l := f.MustCampaign("a").Lease; l.Owner != two.ID || l.Epoch != 2 {
		t.Errorf("lease is %+v", l)
	}
	f.Sound()
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
	if c := f.ClaimOne(two, 10); c.CampaignID != claims[1].CampaignID {
		t.Fatalf("took over %+v", c)
	}
	if err := f.Renew(f.Ctx, one, claims, time.Hour); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("got error %v, want a lost lease", err)
	}
	if l := f.MustCampaign(claims[0].CampaignID).Lease; l.ExpiresAt != f.Clock.Now().Add(time.Hour) {
		t.Errorf("the lease that is held was not renewed: %+v", l)
	}
	if l := f.MustCampaign(claims[1].CampaignID).Lease; l.Owner != two.ID || l.ExpiresAt != f.Clock.Now().Add(lease) {
		t.Errorf("the lease that was lost changed: %+v", l)
	}
}
