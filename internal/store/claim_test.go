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
	"outboxweb/internal/storetest"
)

func TestClaim_marksARunFromTheHeadUnderANewEpoch(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 3)
	if want := (store.Claim{CampaignID: "a", Epoch: 1, First: 1, Last: 3, Unskipped: true}); c != want {
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
	if _, err := f.PauseCampaign(f.Ctx, ana("for a test"), "paused"); err != nil {
		t.Fatal(err)
	}
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
	if want := (store.Claim{CampaignID: "a", Epoch: 2, First: 1, Last: 2, Attempts: 1, Unskipped: true}); c != want {
		t.Errorf("claim is %+v, want %+v", c, want)
	}
	f.Sound()
}

func TestClaim_stopsAtAHole(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 6)
	f.Exec(`delete from projection_apply_outbox where seq = 4`)
	f.Exec(`update campaigns set pending = 5`)
	c := f.ClaimOne(one, 10)
	if c.First != 1 || c.Last != 3 {
		t.Fatalf("claimed %d to %d, want 1 to 3", c.First, c.Last)
	}
	if n := f.Number(`select count(*) from projection_apply_outbox where status = 'processing' and seq > 4`); n != 0 {
		t.Errorf("%d rows beyond the hole stayed marked", n)
	}
	f.MustApply(c, 3)
	f.MustSettle(one, store.Result{Claim: c, Applied: 3})
	if got := f.MustCampaign("a"); got.HeadSeq != 5 || got.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign is %+v, want head 5 with two pending rows", got)
	}
}

func TestClaim_stopsAtADeadOrFailedRow(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"dead", "failed"} {
		f := open(t)
		f.AppendN("a", 6)
		f.Exec(`update projection_apply_outbox set status = $1 where seq = 4`, status)
		f.Exec(fmt.Sprintf(`update campaigns set pending = 5, %s = 1`, status))
		c := f.ClaimOne(one, 10)
		if c.First != 1 || c.Last != 3 {
			t.Errorf("%s: claimed %d to %d, want 1 to 3", status, c.First, c.Last)
		}
		if got := f.MustCampaign("a").Counts; got.Processing != 3 || got.Pending != 2 || got.Of(outbox.Status(status)) != 1 {
			t.Errorf("%s: counts are %+v", status, got)
		}
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
	if want := (store.Claim{CampaignID: "a", Epoch: 2, First: 1, Last: 3, Unskipped: true}); c != want {
		t.Errorf("took over %+v, want %+v", c, want)
	}
	if l := f.MustCampaign("a").Lease; l.Owner != two.ID || l.Epoch != 2 {
		t.Errorf("lease is %+v", l)
	}
	f.Sound()
}

func TestClaim_epochOnlyGrowsOverReleases(t *testing.T) {
	t.Parallel()
	f := open(t)
	last := int64(0)
	for range 4 {
		f.AppendN("a", 1)
		c := f.ClaimOne(one, 10)
		if c.Epoch <= last {
			t.Errorf("epoch %d follows %d", c.Epoch, last)
		}
		last = c.Epoch
		f.MustApply(c, c.Last)
		f.MustSettle(one, store.Result{Claim: c, Applied: c.Last})
	}
	if n := f.Number(`select lease_epoch from campaigns where lease_owner = ''`); n != last {
		t.Errorf("after the release the epoch is %d, want it to stay %d", n, last)
	}
}

func TestIdleWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Drain()
	f.AppendN("b", 1)
	f.Fail("boom", "b")
	before := f.Modified()
	for range 3 {
		f.NoClaim(one)
		if _, _, err := f.UntilDue(f.Ctx, outbox.Scope{}); err != nil {
			t.Error(err)
		}
		if r, err := f.Reconcile(f.Ctx); err != nil || r != (outbox.Repaired{}) {
			t.Errorf("reconcile: %+v, %v", r, err)
		}
		if _, _, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 100); err != nil {
			t.Error(err)
		}
		f.Sound()
	}
	if after := f.Modified(); after != before {
		t.Errorf("files changed from\n%sto\n%s", before, after)
	}
}

func TestRenew_extendsWhatIsHeldAndNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	claims := f.MustClaim(one, 10)
	f.Clock.Advance(lease - time.Second)
	if err := f.Renew(f.Ctx, one, claims, lease); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(lease - time.Second)
	f.NoClaim(two)
	// From here on b is lost: it was renewed without it.
	if err := f.Renew(f.Ctx, one, claims[:1], lease); err != nil {
		t.Fatal(err)
	}
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

// crash claims whatever is due and lets the lease run out.
func (f *fixture) crash(w store.Worker, rows int) store.Claim {
	f.TB.Helper()
	c := f.ClaimOne(w, rows)
	f.Clock.Advance(lease)
	return c
}

func TestCrashes_afterTwoRowsAreTriedSinglyAndCountedBeforehand(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(3))
	f.AppendN("a", 5)
	for i := range 2 {
		if c := f.crash(one, 3); c.Counted || c.Last != 3 {
			t.Fatalf("crash %d: claim is %+v, want three rows, not counted", i+1, c)
		}
		if n := f.MustRow("a", 1).Row.AttemptCount; n != 0 {
			t.Fatalf("crash %d counted %d attempts, though it may have been any of the rows", i+1, n)
		}
	}
	c := f.ClaimOne(one, 3)
	if !c.Counted || c.First != 1 || c.Last != 1 {
		t.Fatalf("third claim is %+v, want one row, counted", c)
	}
	if n := f.Number(`select attempt_count from projection_apply_outbox where seq = 1`); n != 1 {
		t.Errorf("%d attempts before the third try starts, want 1", n)
	}
	f.MustApply(c, 1)
	f.MustSettle(one, store.Result{Claim: c, Applied: 1})
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
	f.NoClaim(two)
	d := f.MustRow("a", 2)
	if d.Row.Status != outbox.Dead || d.Row.AttemptCount != 3 || !strings.Contains(d.Row.LastError, "died") {
		t.Errorf("the culprit is %+v, want it dead after 3 attempts", d.Row)
	}
	slices.SortFunc(d.Attempts, func(a, b outbox.Attempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	if len(d.Attempts) != 3 || d.Attempts[2].Attempt != 3 || !strings.Contains(d.Attempts[2].Error, two.ID) {
		t.Errorf("the history is %+v", d.Attempts)
	}
	if n := f.MustCampaign("a"); n.HeadStatus != outbox.Dead || n.Lease != nil || n.HeadNextAttempt != d.Row.NextAttemptAt {
		t.Errorf("campaign is %+v", n)
	}
	f.Sound()
}

// untilHeadIs claims, in vain, until the crash before has been written down as
// a failure, and waits for the head's next attempt.
func (f *fixture) untilHeadIs(campaign string, status outbox.Status) {
	f.TB.Helper()
	f.NoClaim(two)
	c := f.MustCampaign(campaign)
	if c.HeadStatus != status || c.Lease != nil {
		f.TB.Fatalf("campaign is %+v, want a %s head and no lease", c, status)
	}
	f.Clock.Advance(c.HeadNextAttempt.Sub(f.Clock.Now()))
}

// Whoever is there when a process dies is a suspect. They are tried one at a
// time, so that no death is counted against more than one of them.
func TestCrashes_innocentCampaignsDoNotDieWithTheCulprit(t *testing.T) {
	t.Parallel()
	const innocent = 20
	f := open(t, storetest.MaxAttempts(3))
	f.AppendN("culprit", 2)
	for i := range innocent {
		f.AppendN(fmt.Sprint("innocent-", i), 2)
	}
	for deaths := 0; f.MustCampaign("culprit").HeadStatus != outbox.Dead; {
		if deaths > 5 {
			t.Fatalf("the culprit is not dead after %d deaths: %+v", deaths, f.MustCampaign("culprit"))
		}
		dies := false
		claims := f.MustClaim(one, 1000)
		for _, c := range claims {
			if c.Counted && len(claims) > 1 {
				t.Fatalf("a suspect is tried beside others: %+v", claims)
			}
			dies = dies || c.CampaignID == "culprit"
		}
		for _, c := range claims {
			if !dies {
				f.MustApply(c, c.Last)
				f.MustSettle(one, store.Result{Claim: c, Applied: c.Last})
			}
		}
		if dies {
			deaths++
			f.Clock.Advance(lease)
		}
		if len(claims) == 0 {
			f.Clock.Advance(time.Minute)
		}
	}
	f.Drain()
	if left := storetest.Texts(t, f.JournalDB, `select campaign_id from projection_apply_outbox where status = 'dead' or campaign_id <> 'culprit'`); !slices.Equal(left, []string{"culprit"}) {
		t.Errorf("rows are left of %q, want the culprit's two", left)
	}
	if tried := storetest.Texts(t, f.JournalDB, `select distinct campaign_id from attempts`); !slices.Equal(tried, []string{"culprit"}) {
		t.Errorf("attempts were counted against %q", tried)
	}
	f.Sound()
}

func TestCrashes_areForgottenAfterTheSuspectsAreApplied(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 6)
	f.crash(one, 3)
	f.crash(one, 3)
	for seq := int64(1); seq <= 3; seq++ {
		c := f.ClaimOne(one, 10)
		if !c.Counted || c.First != seq || c.Last != seq {
			t.Fatalf("claim is %+v, want event %d alone", c, seq)
		}
		f.MustApply(c, seq)
		f.MustSettle(one, store.Result{Claim: c, Applied: seq})
	}
	if c := f.ClaimOne(one, 10); c.Counted || c.First != 4 || c.Last != 6 {
		t.Errorf("claim is %+v, want the innocent rest together", c)
	}
}

func TestCrashes_anUnfinishedCountedAttemptIsTakenBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.crash(one, 1)
	f.crash(one, 1)
	c := f.ClaimOne(one, 1)
	f.MustSettle(one, store.Result{Claim: c, Applied: 0}) // shut down before it was tried
	if r := f.MustRow("a", 1).Row; r.AttemptCount != 0 || r.Status != outbox.Pending {
		t.Errorf("row is %+v, want no attempt", r)
	}
	c = f.ClaimOne(one, 1)
	f.MustSettle(one, store.Result{Claim: c, Applied: 0, Failure: storetest.Failure("boom")})
	if r := f.MustRow("a", 1).Row; r.AttemptCount != 1 || r.Status != outbox.Failed {
		t.Errorf("row is %+v, want one failed attempt", r)
	}
	f.Sound()
}

func TestCrashes_afterTheEventWasAppliedAreNoFailureOfIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 2)
	f.crash(one, 2)
	f.crash(one, 2)
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 1) // and it dies before it can settle
	f.Clock.Advance(lease)
	c = f.ClaimOne(two, 2)
	reached, err := f.ApplyClaim(c, c.Last)
	if err != nil || reached != 1 {
		t.Fatalf("reached %d, %v", reached, err)
	}
	f.MustSettle(two, store.Result{Claim: c, Applied: reached})
	if n := f.Number(`select count(*) from attempts`); n != 0 || f.MustCampaign("a").HeadSeq != 2 {
		t.Errorf("%d failures were written down for an event that was applied: %+v", n, f.MustCampaign("a"))
	}
	f.Sound()
}

func TestCrashes_requeueStartsOver(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 3)
	f.crash(one, 3)
	f.crash(one, 3)
	f.crash(one, 3)
	f.NoClaim(one)
	if _, err := f.RequeueRow(f.Ctx, ana("mended"), "a", 1); err != nil {
		t.Fatal(err)
	}
	if c := f.ClaimOne(one, 3); c.Counted || c.Last != 3 {
		t.Errorf("claim is %+v, want all three rows, not counted", c)
	}
}

func TestClaim_countsTheFailuresOfAHeadThatWasGivenBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Fail("boom", "a")
	f.Clock.Advance(time.Second)
	c := f.ClaimOne(one, 10)
	f.MustSettle(one, store.Result{Claim: c, Applied: 0}) // shut down before it was tried
	if c := f.ClaimOne(one, 10); c.Attempts != 1 {
		t.Errorf("claim is %+v, want it to know of the failure", c)
	}
}

// claimInline takes a campaign for the request path.
func (f *fixture) claimInline(w store.Worker, campaign string) store.Claim {
	f.TB.Helper()
	c, hold, err := f.ClaimInline(f.Ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease})
	if err != nil || hold != outbox.HoldNone {
		f.TB.Fatalf("the request path claimed %+v: %s, %v", c, hold, err)
	}
	return c
}

// mustHoldInline makes sure that the request path gets no claim, and why.
func (f *fixture) mustHoldInline(w store.Worker, campaign string, want outbox.Hold) {
	f.TB.Helper()
	if c, hold, err := f.ClaimInline(f.Ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease}); err != nil || hold != want {
		f.TB.Errorf("the request path claimed %+v: %s, %v; want %s", c, hold, err, want)
	}
}

func TestClaimInline_takesEventsWithoutRows(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline))
	f.AppendN("a", 2)
	c := f.claimInline(one, "a")
	if want := (store.Claim{CampaignID: "a", Epoch: 1, First: 1, Last: 2, Bare: true, Unskipped: true}); c != want {
		t.Fatalf("the claim is %+v, want %+v", c, want)
	}
	f.mustHoldInline(two, "a", outbox.HoldLease)
	f.Sound()
	f.MustApply(c, 2)
	if s := f.MustSettle(one, store.Result{Claim: c, Applied: 2}); s != (store.Settled{Applied: 2}) {
		t.Errorf("settled %+v", s)
	}
	if got := f.MustCampaign("a"); got.Lease != nil || got.AppliedSeq != 2 || got.State() != outbox.StateCurrent {
		t.Errorf("campaign is %+v", got)
	}
	f.Unchanged(func() { f.mustHoldInline(one, "a", outbox.HoldEmpty) })
	_, _, err := f.ClaimInline(f.Ctx, one, "b", store.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, outbox.ErrNotFound, `"b"`)
	f.Sound()
}

func TestClaimInline_hasNothingToDoInAPausedCampaignThatIsCurrent(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline))
	f.AppendN("a", 1)
	c := f.claimInline(one, "a")
	f.MustApply(c, 1)
	f.MustSettle(one, store.Result{Claim: c, Applied: 1})
	f.MustPause("a")
	f.mustHoldInline(one, "a", outbox.HoldEmpty)
}

// Events without rows whose lease ran out are taken over like rows are: by the
// next request or by a worker.
func TestClaimInline_leavesItsEventsToWhoeverComesOnceItsLeaseRanOut(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(f *fixture) store.Claim{
		"the next request": func(f *fixture) store.Claim { return f.claimInline(two, "a") },
		"a worker":         func(f *fixture) store.Claim { return f.ClaimOne(two, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, storetest.InMode(outbox.ModeInline))
			f.AppendN("a", 2)
			died := f.claimInline(one, "a")
			f.NoClaim(two)
			f.Clock.Advance(lease)
			c := take(f)
			if c.Epoch != 2 || c.First != 1 || c.Last != 2 || c.Bare {
				t.Errorf("the claim is %+v, want both rows", c)
			}
			f.MustApply(c, 2)
			if s := f.MustSettle(one, store.Result{Claim: died, Applied: 2}); s.Fenced != 1 {
				t.Errorf("the one that was taken over settled %+v", s)
			}
			f.MustSettle(two, store.Result{Claim: c, Applied: 2})
			f.Sound()
		})
	}
}

func TestClaimInline_keepsWorkersOffRowsOfAnEarlierMode(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	inline := f.beside(storetest.InMode(outbox.ModeInline))
	inline.AppendN("a", 1)
	c := inline.claimInline(one, "a")
	if c.First != 1 || c.Last != 3 || c.Bare {
		t.Errorf("the claim is %+v, want three rows", c)
	}
	f.NoClaim(two)
	inline.MustApply(c, 3)
	inline.MustSettle(one, store.Result{Claim: c, Applied: 3})
	if n := f.Number(`select count(*) from projection_apply_outbox`); n != 0 {
		t.Errorf("%d rows of applied events are left", n)
	}
	f.Sound()
	inline.Sound()
}

func TestSettle_givesTheEventsOfABareClaimRowsFromTheFailedOneOn(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline), storetest.MaxAttempts(2))
	f.AppendN("a", 4)
	c := f.claimInline(one, "a")
	f.AppendN("a", 1) // meanwhile, to be applied by its own request
	f.MustApply(c, 1)
	if s := f.MustSettle(one, store.Result{Claim: c, Applied: 1, Failure: storetest.Failure("no seat")}); s != (store.Settled{Applied: 1, Failed: 1}) {
		t.Errorf("settled %+v", s)
	}
	if got := f.MustCampaign("a"); got.Counts != (outbox.Counts{Failed: 1, Pending: 3}) || got.HeadSeq != 2 || got.AppliedSeq != 1 {
		t.Errorf("campaign is %+v", got)
	}
	if r := f.MustRow("a", 2); r.Row.AttemptCount != 1 || r.Row.LastError != "no seat" || len(r.Attempts) != 1 {
		t.Errorf("the row is %+v", r)
	}
	f.AppendN("a", 1)
	_, _, err := f.ClaimInline(f.Ctx, one, "a", store.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, outbox.ErrNotYet, "the event is appended and waits", "Event 2 failed and is tried again in 1 s")
	f.Sound()
	f.Clock.Advance(time.Minute)
	if c := f.ClaimOne(two, 10); c.First != 2 || c.Last != 6 || c.Attempts != 1 {
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
				f.MustApply(c, 3)
				f.MustSettle(one, store.Result{Claim: c, Applied: 3})
			}
		},
		"a run": func(f *fixture) func() {
			claims := f.ClaimedForRun("a")
			return func() { f.ReleaseFromRun(claims...) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, storetest.InMode(outbox.ModeInline))
			f.AppendN("a", 3)
			end := hold(f)
			for range 2 {
				if err := f.EnqueueMissing(f.Ctx, "a"); err != nil {
					t.Fatal(err)
				}
			}
			if c := f.MustCampaign("a"); c.Counts != (outbox.Counts{Pending: 3}) || c.HeadSeq != 1 {
				t.Errorf("campaign is %+v, want 3 rows", c)
			}
			f.Sound()
			end()
			f.Drain()
			f.Sound()
			f.Unchanged(func() {
				if err := f.EnqueueMissing(f.Ctx, "unknown"); err != nil {
					t.Error(err)
				}
				if err := f.EnqueueMissing(f.Ctx, "a"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A run that fenced a request off leaves its events to the workers.
func TestReleaseForRun_givesEventsWithoutRowsTheirs(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline))
	f.AppendN("a", 3)
	f.ReleaseFromRun(f.ClaimedForRun("a")...)
	if c := f.MustCampaign("a"); c.Counts != (outbox.Counts{Pending: 3}) {
		t.Errorf("campaign is %+v, want 3 rows", c)
	}
	f.Sound()
}
