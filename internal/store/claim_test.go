package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/maintenance"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

func TestClaim_marksARunFromTheHeadUnderANewEpoch(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 5)
	c := f.claimOne(one, 3)
	if want := (store.Claim{CampaignID: "a", Epoch: 1, First: 1, Last: 3, Unskipped: true}); c != want {
		t.Fatalf("claim is %+v, want %+v", c, want)
	}
	got := f.campaign("a")
	if want := (outbox.Counts{Pending: 2, Processing: 3}); got.Counts != want || got.HeadStatus != outbox.Processing {
		t.Errorf("campaign is %+v, want counts %+v", got, want)
	}
	if l := got.Lease; l == nil || l.Owner != one.ID || l.Epoch != 1 || l.ExpiresAt != began.Add(lease) {
		t.Errorf("lease is %+v", l)
	}
	if n := f.number(`select count(*) from projection_apply_outbox where status = 'processing' and claim_epoch = 1 and seq <= 3`); n != 3 {
		t.Errorf("%d of the three rows carry the claim's epoch", n)
	}
	f.noClaim(two)
	f.sound()
}

func TestClaim_passesOverCampaignsThatMayNotBeWorkedOn(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	f.append("dead", 2)
	f.kill("dead")
	f.append("diverged", 1)
	f.settle(one, store.Result{Claim: f.claimOne(one, 10), Applied: 0, Diverged: "for a test"})
	f.append("paused", 1)
	if _, err := f.PauseCampaign(f.ctx, ana("for a test"), "paused"); err != nil {
		t.Fatal(err)
	}
	f.append("leased", 1)
	f.claimOne(one, 10)
	f.append("empty", 1)
	f.drain()
	f.noClaim(two)
	if _, due, err := f.UntilDue(f.ctx, outbox.Scope{}); err != nil || !due {
		t.Errorf("the leased campaign is due at its lease's end: %v, %v", due, err)
	}
	f.append("ready", 1)
	if c := f.claimOne(two, 10); c.CampaignID != "ready" {
		t.Errorf("claimed %+v, want the only one that is ready", c)
	}
}

func TestClaim_failedHeadWaitsForItsTime(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.fail("boom", "a")
	f.noClaim(one)
	if wait, due, err := f.UntilDue(f.ctx, outbox.Scope{}); err != nil || !due || wait != time.Second {
		t.Errorf("due in %s (%v, %v), want 1 s", wait, due, err)
	}
	f.clock.advance(time.Second - time.Microsecond)
	f.noClaim(one)
	f.clock.advance(time.Microsecond)
	c := f.claimOne(one, 10)
	if want := (store.Claim{CampaignID: "a", Epoch: 2, First: 1, Last: 2, Attempts: 1, Unskipped: true}); c != want {
		t.Errorf("claim is %+v, want %+v", c, want)
	}
	f.sound()
}

func TestClaim_stopsAtAHole(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 6)
	f.raw(`delete from projection_apply_outbox where seq = 4`)
	f.raw(`update campaigns set pending = 5`)
	c := f.claimOne(one, 10)
	if c.First != 1 || c.Last != 3 {
		t.Fatalf("claimed %d to %d, want 1 to 3", c.First, c.Last)
	}
	if n := f.number(`select count(*) from projection_apply_outbox where status = 'processing' and seq > 4`); n != 0 {
		t.Errorf("%d rows beyond the hole stayed marked", n)
	}
	f.mustApply(c, 3)
	f.settle(one, store.Result{Claim: c, Applied: 3})
	if got := f.campaign("a"); got.HeadSeq != 5 || got.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign is %+v, want head 5 with two pending rows", got)
	}
}

func TestClaim_stopsAtADeadOrFailedRow(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"dead", "failed"} {
		f := open(t)
		f.append("a", 6)
		f.raw(`update projection_apply_outbox set status = $1 where seq = 4`, status)
		f.raw(fmt.Sprintf(`update campaigns set pending = 5, %s = 1`, status))
		c := f.claimOne(one, 10)
		if c.First != 1 || c.Last != 3 {
			t.Errorf("%s: claimed %d to %d, want 1 to 3", status, c.First, c.Last)
		}
		if got := f.campaign("a").Counts; got.Processing != 3 || got.Pending != 2 || got.Of(outbox.Status(status)) != 1 {
			t.Errorf("%s: counts are %+v", status, got)
		}
	}
}

func TestClaim_withoutTheHeadsRowTakesNoLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 1)
	f.raw(`delete from projection_apply_outbox where campaign_id = 'a' and seq = 1`)
	f.raw(`delete from projection_apply_outbox where campaign_id = 'b'`)
	f.noClaim(one)
	if a := f.campaign("a"); a.Lease != nil || a.HeadSeq != 2 || a.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign a is %+v, want it to show the rows that are there", a)
	}
	if b := f.campaign("b"); b.Lease != nil || b.HeadSeq != 0 || b.Counts.Total() != 0 {
		t.Errorf("campaign b is %+v, want it without rows", b)
	}
}

func TestClaim_sharesAWaveBetweenAHugeCampaignAndSmallOnes(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("0-huge", 500)
	for i := range 20 {
		f.append(fmt.Sprintf("small-%02d", i), 2)
	}
	claims := f.claim(one, 80)
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
	f.append("a", 100)
	if c := f.claimOne(one, 80); c.Last != 80 {
		t.Errorf("claimed %+v, want 80 rows", c)
	}
}

func TestClaim_neverExceedsTheWave(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 30 {
		f.append(fmt.Sprintf("c-%02d", i), 5)
	}
	for _, limit := range []int{1, 2, 7, 20} {
		rows := int64(0)
		for _, c := range f.claim(one, limit) {
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
	f.append("z", 30)
	f.clock.advance(time.Second)
	f.append("a", 30)
	var order []string
	for range 6 {
		f.clock.advance(time.Second)
		c := f.claim(one, 1)[0]
		order = append(order, c.CampaignID)
		f.mustApply(c, c.Last)
		f.settle(one, store.Result{Claim: c, Applied: c.Last})
	}
	if got := strings.Join(order, ""); got != "zazaza" {
		t.Errorf("served %s, want the two in turn", got)
	}
}

func TestClaim_takesOverAnExpiredLeaseWithAHigherEpoch(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.claimOne(one, 10)
	f.clock.advance(lease - time.Microsecond)
	f.noClaim(two)
	f.clock.advance(time.Microsecond)
	c := f.claimOne(two, 10)
	if want := (store.Claim{CampaignID: "a", Epoch: 2, First: 1, Last: 3, Unskipped: true}); c != want {
		t.Errorf("took over %+v, want %+v", c, want)
	}
	if l := f.campaign("a").Lease; l.Owner != two.ID || l.Epoch != 2 {
		t.Errorf("lease is %+v", l)
	}
	f.sound()
}

func TestClaim_epochOnlyGrowsOverReleases(t *testing.T) {
	t.Parallel()
	f := open(t)
	last := int64(0)
	for range 4 {
		f.append("a", 1)
		c := f.claimOne(one, 10)
		if c.Epoch <= last {
			t.Errorf("epoch %d follows %d", c.Epoch, last)
		}
		last = c.Epoch
		f.mustApply(c, c.Last)
		f.settle(one, store.Result{Claim: c, Applied: c.Last})
	}
	if n := f.number(`select lease_epoch from campaigns where lease_owner = ''`); n != last {
		t.Errorf("after the release the epoch is %d, want it to stay %d", n, last)
	}
}

func (f *fixture) modified() string { f.tb.Helper(); return f.Modified() }

func TestIdleWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.drain()
	f.append("b", 1)
	f.fail("boom", "b")
	before := f.modified()
	for range 3 {
		f.noClaim(one)
		if _, _, err := f.UntilDue(f.ctx, outbox.Scope{}); err != nil {
			t.Error(err)
		}
		if r, err := f.Reconcile(f.ctx); err != nil || r != (outbox.Repaired{}) {
			t.Errorf("reconcile: %+v, %v", r, err)
		}
		if _, _, err := f.SelfCheck(f.ctx, maintenance.Round{}, 100); err != nil {
			t.Error(err)
		}
		f.sound()
	}
	if after := f.modified(); after != before {
		t.Errorf("files changed from\n%sto\n%s", before, after)
	}
}

func TestRenew_extendsWhatIsHeldAndNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.append("b", 1)
	claims := f.claim(one, 10)
	f.clock.advance(lease - time.Second)
	if err := f.Renew(f.ctx, one, claims, lease); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(lease - time.Second)
	f.noClaim(two)
	// From here on b is lost: it was renewed without it.
	if err := f.Renew(f.ctx, one, claims[:1], lease); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(2 * time.Second)
	if c := f.claimOne(two, 10); c.CampaignID != claims[1].CampaignID {
		t.Fatalf("took over %+v", c)
	}
	if err := f.Renew(f.ctx, one, claims, time.Hour); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("got error %v, want a lost lease", err)
	}
	if l := f.campaign(claims[0].CampaignID).Lease; l.ExpiresAt != f.clock.now().Add(time.Hour) {
		t.Errorf("the lease that is held was not renewed: %+v", l)
	}
	if l := f.campaign(claims[1].CampaignID).Lease; l.Owner != two.ID || l.ExpiresAt != f.clock.now().Add(lease) {
		t.Errorf("the lease that was lost changed: %+v", l)
	}
}

// crash claims whatever is due and lets the lease run out.
func (f *fixture) crash(w store.Worker, rows int) store.Claim {
	f.tb.Helper()
	c := f.claimOne(w, rows)
	f.clock.advance(lease)
	return c
}

func TestCrashes_afterTwoRowsAreTriedSinglyAndCountedBeforehand(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(3))
	f.append("a", 5)
	for i := range 2 {
		if c := f.crash(one, 3); c.Counted || c.Last != 3 {
			t.Fatalf("crash %d: claim is %+v, want three rows, not counted", i+1, c)
		}
		if n := f.row("a", 1).Row.AttemptCount; n != 0 {
			t.Fatalf("crash %d counted %d attempts, though it may have been any of the rows", i+1, n)
		}
	}
	c := f.claimOne(one, 3)
	if !c.Counted || c.First != 1 || c.Last != 1 {
		t.Fatalf("third claim is %+v, want one row, counted", c)
	}
	if n := f.number(`select attempt_count from projection_apply_outbox where seq = 1`); n != 1 {
		t.Errorf("%d attempts before the third try starts, want 1", n)
	}
	f.mustApply(c, 1)
	f.settle(one, store.Result{Claim: c, Applied: 1})
	// Event 1 was innocent. Event 2 is the culprit.
	for attempt := 1; attempt <= 3; attempt++ {
		c := f.crash(two, 3)
		if !c.Counted || c.First != 2 || c.Last != 2 || c.Attempts != attempt-1 {
			t.Fatalf("attempt %d: claim is %+v", attempt, c)
		}
		if attempt < 3 {
			f.untilHeadIs("a", outbox.Failed)
		}
	}
	f.noClaim(two)
	d := f.row("a", 2)
	if d.Row.Status != outbox.Dead || d.Row.AttemptCount != 3 || !strings.Contains(d.Row.LastError, "died") {
		t.Errorf("the culprit is %+v, want it dead after 3 attempts", d.Row)
	}
	slices.SortFunc(d.Attempts, func(a, b outbox.Attempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	if len(d.Attempts) != 3 || d.Attempts[2].Attempt != 3 || !strings.Contains(d.Attempts[2].Error, two.ID) {
		t.Errorf("the history is %+v", d.Attempts)
	}
	if n := f.campaign("a"); n.HeadStatus != outbox.Dead || n.Lease != nil || n.HeadNextAttempt != d.Row.NextAttemptAt {
		t.Errorf("campaign is %+v", n)
	}
	f.sound()
}

// untilHeadIs claims, in vain, until the crash before has been written down as
// a failure, and waits for the head's next attempt.
func (f *fixture) untilHeadIs(campaign string, status outbox.Status) {
	f.tb.Helper()
	f.noClaim(two)
	c := f.campaign(campaign)
	if c.HeadStatus != status || c.Lease != nil {
		f.tb.Fatalf("campaign is %+v, want a %s head and no lease", c, status)
	}
	f.clock.advance(c.HeadNextAttempt.Sub(f.clock.now()))
}

// Whoever is there when a process dies is a suspect. They are tried one at a
// time, so that no death is counted against more than one of them.
func TestCrashes_innocentCampaignsDoNotDieWithTheCulprit(t *testing.T) {
	t.Parallel()
	const innocent = 20
	f := open(t, maxAttempts(3))
	f.append("culprit", 2)
	for i := range innocent {
		f.append(fmt.Sprint("innocent-", i), 2)
	}
	for deaths := 0; f.campaign("culprit").HeadStatus != outbox.Dead; {
		if deaths > 5 {
			t.Fatalf("the culprit is not dead after %d deaths: %+v", deaths, f.campaign("culprit"))
		}
		dies := false
		claims := f.claim(one, 1000)
		for _, c := range claims {
			if c.Counted && len(claims) > 1 {
				t.Fatalf("a suspect is tried beside others: %+v", claims)
			}
			dies = dies || c.CampaignID == "culprit"
		}
		for _, c := range claims {
			if !dies {
				f.mustApply(c, c.Last)
				f.settle(one, store.Result{Claim: c, Applied: c.Last})
			}
		}
		if dies {
			deaths++
			f.clock.advance(lease)
		}
		if len(claims) == 0 {
			f.clock.advance(time.Minute)
		}
	}
	f.drain()
	if left := texts(t, f.journal, `select campaign_id from projection_apply_outbox where status = 'dead' or campaign_id <> 'culprit'`); !slices.Equal(left, []string{"culprit"}) {
		t.Errorf("rows are left of %q, want the culprit's two", left)
	}
	if tried := texts(t, f.journal, `select distinct campaign_id from attempts`); !slices.Equal(tried, []string{"culprit"}) {
		t.Errorf("attempts were counted against %q", tried)
	}
	f.sound()
}

func TestCrashes_areForgottenAfterTheSuspectsAreApplied(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 6)
	f.crash(one, 3)
	f.crash(one, 3)
	for seq := int64(1); seq <= 3; seq++ {
		c := f.claimOne(one, 10)
		if !c.Counted || c.First != seq || c.Last != seq {
			t.Fatalf("claim is %+v, want event %d alone", c, seq)
		}
		f.mustApply(c, seq)
		f.settle(one, store.Result{Claim: c, Applied: seq})
	}
	if c := f.claimOne(one, 10); c.Counted || c.First != 4 || c.Last != 6 {
		t.Errorf("claim is %+v, want the innocent rest together", c)
	}
}

func TestCrashes_anUnfinishedCountedAttemptIsTakenBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.crash(one, 1)
	f.crash(one, 1)
	c := f.claimOne(one, 1)
	f.settle(one, store.Result{Claim: c, Applied: 0}) // shut down before it was tried
	if r := f.row("a", 1).Row; r.AttemptCount != 0 || r.Status != outbox.Pending {
		t.Errorf("row is %+v, want no attempt", r)
	}
	c = f.claimOne(one, 1)
	f.settle(one, store.Result{Claim: c, Applied: 0, Failure: failure("boom")})
	if r := f.row("a", 1).Row; r.AttemptCount != 1 || r.Status != outbox.Failed {
		t.Errorf("row is %+v, want one failed attempt", r)
	}
	f.sound()
}

func TestCrashes_afterTheEventWasAppliedAreNoFailureOfIt(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	f.append("a", 2)
	f.crash(one, 2)
	f.crash(one, 2)
	c := f.claimOne(one, 2)
	f.mustApply(c, 1) // and it dies before it can settle
	f.clock.advance(lease)
	c = f.claimOne(two, 2)
	reached, err := f.apply(c, c.Last)
	if err != nil || reached != 1 {
		t.Fatalf("reached %d, %v", reached, err)
	}
	f.settle(two, store.Result{Claim: c, Applied: reached})
	if n := f.number(`select count(*) from attempts`); n != 0 || f.campaign("a").HeadSeq != 2 {
		t.Errorf("%d failures were written down for an event that was applied: %+v", n, f.campaign("a"))
	}
	f.sound()
}

func TestCrashes_requeueStartsOver(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	f.append("a", 3)
	f.crash(one, 3)
	f.crash(one, 3)
	f.crash(one, 3)
	f.noClaim(one)
	if _, err := f.RequeueRow(f.ctx, ana("mended"), "a", 1); err != nil {
		t.Fatal(err)
	}
	if c := f.claimOne(one, 3); c.Counted || c.Last != 3 {
		t.Errorf("claim is %+v, want all three rows, not counted", c)
	}
}

func TestClaim_countsTheFailuresOfAHeadThatWasGivenBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.fail("boom", "a")
	f.clock.advance(time.Second)
	c := f.claimOne(one, 10)
	f.settle(one, store.Result{Claim: c, Applied: 0}) // shut down before it was tried
	if c := f.claimOne(one, 10); c.Attempts != 1 {
		t.Errorf("claim is %+v, want it to know of the failure", c)
	}
}

// claimInline takes a campaign for the request path.
func (f *fixture) claimInline(w store.Worker, campaign string) store.Claim {
	f.tb.Helper()
	c, hold, err := f.ClaimInline(f.ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease})
	if err != nil || hold != outbox.HoldNone {
		f.tb.Fatalf("the request path claimed %+v: %s, %v", c, hold, err)
	}
	return c
}

// mustHoldInline makes sure that the request path gets no claim, and why.
func (f *fixture) mustHoldInline(w store.Worker, campaign string, want outbox.Hold) {
	f.tb.Helper()
	if c, hold, err := f.ClaimInline(f.ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease}); err != nil || hold != want {
		f.tb.Errorf("the request path claimed %+v: %s, %v; want %s", c, hold, err, want)
	}
}

func TestClaimInline_takesEventsWithoutRows(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline))
	f.append("a", 2)
	c := f.claimInline(one, "a")
	if want := (store.Claim{CampaignID: "a", Epoch: 1, First: 1, Last: 2, Bare: true, Unskipped: true}); c != want {
		t.Fatalf("the claim is %+v, want %+v", c, want)
	}
	f.mustHoldInline(two, "a", outbox.HoldLease)
	f.sound()
	f.mustApply(c, 2)
	if s := f.settle(one, store.Result{Claim: c, Applied: 2}); s != (store.Settled{Applied: 2}) {
		t.Errorf("settled %+v", s)
	}
	if got := f.campaign("a"); got.Lease != nil || got.AppliedSeq != 2 || got.State() != outbox.StateCurrent {
		t.Errorf("campaign is %+v", got)
	}
	f.unchanged(func() { f.mustHoldInline(one, "a", outbox.HoldEmpty) })
	_, _, err := f.ClaimInline(f.ctx, one, "b", store.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, outbox.ErrNotFound, `"b"`)
	f.sound()
}

func TestClaimInline_hasNothingToDoInAPausedCampaignThatIsCurrent(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline))
	f.append("a", 1)
	c := f.claimInline(one, "a")
	f.mustApply(c, 1)
	f.settle(one, store.Result{Claim: c, Applied: 1})
	f.pause("a")
	f.mustHoldInline(one, "a", outbox.HoldEmpty)
}

// Events without rows whose lease ran out are taken over like rows are: by the
// next request or by a worker.
func TestClaimInline_leavesItsEventsToWhoeverComesOnceItsLeaseRanOut(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(f *fixture) store.Claim{
		"the next request": func(f *fixture) store.Claim { return f.claimInline(two, "a") },
		"a worker":         func(f *fixture) store.Claim { return f.claimOne(two, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, mode(outbox.ModeInline))
			f.append("a", 2)
			died := f.claimInline(one, "a")
			f.noClaim(two)
			f.clock.advance(lease)
			c := take(f)
			if c.Epoch != 2 || c.First != 1 || c.Last != 2 || c.Bare {
				t.Errorf("the claim is %+v, want both rows", c)
			}
			f.mustApply(c, 2)
			if s := f.settle(one, store.Result{Claim: died, Applied: 2}); s.Fenced != 1 {
				t.Errorf("the one that was taken over settled %+v", s)
			}
			f.settle(two, store.Result{Claim: c, Applied: 2})
			f.sound()
		})
	}
}

func TestClaimInline_keepsWorkersOffRowsOfAnEarlierMode(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	inline := f.beside(mode(outbox.ModeInline))
	inline.append("a", 1)
	c := inline.claimInline(one, "a")
	if c.First != 1 || c.Last != 3 || c.Bare {
		t.Errorf("the claim is %+v, want three rows", c)
	}
	f.noClaim(two)
	inline.mustApply(c, 3)
	inline.settle(one, store.Result{Claim: c, Applied: 3})
	if n := f.number(`select count(*) from projection_apply_outbox`); n != 0 {
		t.Errorf("%d rows of applied events are left", n)
	}
	f.sound()
	inline.sound()
}

func TestSettle_givesTheEventsOfABareClaimRowsFromTheFailedOneOn(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline), maxAttempts(2))
	f.append("a", 4)
	c := f.claimInline(one, "a")
	f.append("a", 1) // meanwhile, to be applied by its own request
	f.mustApply(c, 1)
	if s := f.settle(one, store.Result{Claim: c, Applied: 1, Failure: failure("no seat")}); s != (store.Settled{Applied: 1, Failed: 1}) {
		t.Errorf("settled %+v", s)
	}
	if got := f.campaign("a"); got.Counts != (outbox.Counts{Failed: 1, Pending: 3}) || got.HeadSeq != 2 || got.AppliedSeq != 1 {
		t.Errorf("campaign is %+v", got)
	}
	if r := f.row("a", 2); r.Row.AttemptCount != 1 || r.Row.LastError != "no seat" || len(r.Attempts) != 1 {
		t.Errorf("the row is %+v", r)
	}
	f.append("a", 1)
	_, _, err := f.ClaimInline(f.ctx, one, "a", store.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, outbox.ErrNotYet, "the event is appended and waits", "Event 2 failed and is tried again in 1 s")
	f.sound()
	f.clock.advance(time.Minute)
	if c := f.claimOne(two, 10); c.First != 2 || c.Last != 6 || c.Attempts != 1 {
		t.Errorf("a worker claims %+v, want all that is left", c)
	}
}

func TestEnqueueMissing_besideAnybody(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(f *fixture) (end func()){
		"nobody": func(*fixture) func() { return func() {} },
		"a request": func(f *fixture) func() {
			c := f.claimInline(one, "a")
			return func() {
				f.mustApply(c, 3)
				f.settle(one, store.Result{Claim: c, Applied: 3})
			}
		},
		"a run": func(f *fixture) func() {
			claims := f.claimForRun("a")
			return func() { f.releaseFromRun(claims...) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, mode(outbox.ModeInline))
			f.append("a", 3)
			end := hold(f)
			for range 2 {
				if err := f.EnqueueMissing(f.ctx, "a"); err != nil {
					t.Fatal(err)
				}
			}
			if c := f.campaign("a"); c.Counts != (outbox.Counts{Pending: 3}) || c.HeadSeq != 1 {
				t.Errorf("campaign is %+v, want 3 rows", c)
			}
			f.sound()
			end()
			f.drain()
			f.sound()
			f.unchanged(func() {
				if err := f.EnqueueMissing(f.ctx, "unknown"); err != nil {
					t.Error(err)
				}
				if err := f.EnqueueMissing(f.ctx, "a"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A run that fenced a request off leaves its events to the workers.
func TestReleaseForRun_givesEventsWithoutRowsTheirs(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline))
	f.append("a", 3)
	f.releaseFromRun(f.claimForRun("a")...)
	if c := f.campaign("a"); c.Counts != (outbox.Counts{Pending: 3}) {
		t.Errorf("campaign is %+v, want 3 rows", c)
	}
	f.sound()
}
