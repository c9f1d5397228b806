package outbox_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestCrashes_afterTwoRowsAreTriedSinglyAndCountedBeforehand(t *testing.T) {
	f := own(t, storetest.MaxAttempts(3))
	f.AppendN("a", 5)
	for i := range 2 {
		f.Claims(one, 3, fmt.Sprintf("a 1-3 under %d", i+1))
		f.Clock.Advance(lease)
		must.Equal(t, f.MustRow("a", 1).Row.AttemptCount, 0, "attempts, though it may have been any of the rows")
	}
	c := f.Claims(one, 3, "a 1-1 under 3, counted")
	must.Equal(t, f.Number(`select attempt_count from projection_apply_outbox where seq = 1`), 1, "attempts before the third try starts")
	f.Works(one, c, 1)
	// Event 1 is innocent. Event 2 is the cause.
	for attempt := range 3 {
		c := f.Crash(two, 3)
		must.Need(t, c.Counted && c.First == 2 && c.Last == 2 && c.Attempts == attempt, "attempt %d: claim is %+v", attempt+1, c)
		f.NoClaim(two) // until the crash is recorded as a failure
		if c := f.MustCampaign("a"); attempt < 2 {
			f.Is("a", "applied 1 of 5, head 2 failed, 3 pending, 1 failed")
			f.Clock.Advance(c.HeadNextAttempt.Sub(f.Clock.Now()))
		}
	}
	f.RowIs("a", 2, "dead after 3, due in 0s")
	f.Is("a", "applied 1 of 5, head 2 dead, 3 pending, 1 dead")
	d := f.MustRow("a", 2)
	slices.SortFunc(d.Attempts, func(a, b campaign.Attempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	must.Hold(t, len(d.Attempts) == 3 && d.Attempts[2].Attempt == 3 && strings.Contains(d.Attempts[2].Error, two.ID) && strings.Contains(d.Row.LastError, "died"), "the history is %+v", d.Attempts)
	f.Sound()
}

// Every campaign claimed by a process that dies is a suspect. They are tried one at a time, so
// that a death counts against only one of them.
func TestCrashes_innocentCampaignsDoNotDieWithTheCulprit(t *testing.T) {
	f := own(t, storetest.MaxAttempts(3))
	f.AppendN("culprit", 2)
	for i := range 5 {
		f.AppendN(fmt.Sprint("innocent-", i), 2)
	}
	for deaths := 0; f.MustCampaign("culprit").HeadStatus != event.Dead; {
		must.Need(t, deaths <= 5, "the culprit is not dead after %d deaths: %+v", deaths, f.MustCampaign("culprit"))
		claims := f.MustClaim(one, 1000)
		dies := slices.ContainsFunc(claims, func(c outbox.Claim) bool { return c.CampaignID == "culprit" })
		for _, c := range claims {
			must.Need(t, !c.Counted || len(claims) <= 1, "a suspect is tried beside others: %+v", claims)
			if !dies {
				f.Works(one, c, c.Last)
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
	for _, query := range []string{`select campaign_id from projection_apply_outbox where status = 'dead' or campaign_id <> 'culprit'`, `select distinct campaign_id from attempts`} {
		must.Equal(t, storetest.Texts(t, f.JournalDB, query), []string{"culprit"}, query)
	}
	f.Sound()
}

// What is known of two crashes ends in one of these ways.
func TestCrashes_end(t *testing.T) {
	storetest.Each(t, own, map[string]func(*testing.T, *fixture){
		"once the suspects are applied": func(t *testing.T, f *fixture) {
			for seq := int64(1); seq <= 3; seq++ {
				f.Works(one, f.Claims(one, 10, fmt.Sprintf("a %d-%[1]d under %d, counted", seq, seq+2)), seq)
			}
			f.Claims(one, 10, "a 4-6 under 6")
		},
		"as a failure unless the attempt was not made": func(t *testing.T, f *fixture) {
			f.Works(one, f.ClaimOne(one, 1), 0) // shut down before it was tried
			f.RowIs("a", 1, "pending after 0, due in -1m0s")
			f.FailsAfter(one, f.ClaimOne(one, 1), 0, "boom")
			f.RowIs("a", 1, "failed after 1, due in 1s")
		},
		"without a failure where the event was applied": func(t *testing.T, f *fixture) {
			f.MustApply(f.ClaimOne(one, 2), 1) // and it dies before it can settle
			f.Clock.Advance(lease)
			c := f.ClaimOne(two, 2)
			reached, err := f.ApplyClaim(c, c.Last)
			must.Need(t, err == nil && reached == 1, "reached %d, %v", reached, err)
			f.MustSettle(two, outbox.Result{Claim: c, Applied: reached})
			n := f.Number(`select count(*) from attempts`)
			must.Hold(t, n == 0 && f.MustCampaign("a").HeadSeq == 2, "%d failures were written down for an event that was applied: %+v", n, f.MustCampaign("a"))
		},
		"by a requeue": func(t *testing.T, f *fixture) {
			f = f.beside(storetest.MaxAttempts(1))
			f.Crash(one, 3)
			f.NoClaim(one)
			f.must(f.RequeueRow(f.Ctx, ana("mended"), "a", 1))
			f.Claims(one, 3, "a 1-3 under 4")
		},
	}, func(t *testing.T, f *fixture, then func(*testing.T, *fixture)) {
		f.AppendN("a", 6)
		f.Crash(one, 3)
		f.Crash(one, 3)
		then(t, f)
		f.Sound()
	})
}
