package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// crash claims everything due and lets the lease expire.
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
	// Event 1 is innocent. Event 2 is the cause.
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

// untilHeadIs claims nothing until the previous crash is recorded as a failure, and waits for
// the head's next attempt.
func (f *fixture) untilHeadIs(campaign string, status outbox.Status) {
	f.TB.Helper()
	f.NoClaim(two)
	c := f.MustCampaign(campaign)
	if c.HeadStatus != status || c.Lease != nil {
		f.TB.Fatalf("campaign is %+v, want a %s head and no lease", c, status)
	}
	f.Clock.Advance(c.HeadNextAttempt.Sub(f.Clock.Now()))
}

// Every campaign claimed by a process that dies is a suspect. They are tried one at a time, so
// that a death counts against only one of them.
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
	f.must(f.RequeueRow(f.Ctx, ana("mended"), "a", 1))
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
