package store_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// claimInline claims a campaign for the request path.
func (f *fixture) claimInline(w store.Worker, campaign string) store.Claim {
	c, hold, err := f.ClaimInline(f.Ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease})
	must.Need(f.TB, err == nil && hold == outbox.BlockerNone, "the request path claimed %+v: %s, %v", c, hold, err)
	return c
}

// mustHoldInline fails unless the request path gets no claim for this reason.
func (f *fixture) mustHoldInline(w store.Worker, campaign string, want outbox.Blocker) {
	c, hold, err := f.ClaimInline(f.Ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease})
	must.Hold(f.TB, err == nil && hold == want, "the request path claimed %+v: %s, %v; want %s", c, hold, err, want)
}

// claimsInline is claimInline of a claim as told.
func (f *fixture) claimsInline(w store.Worker, campaign, want string) store.Claim {
	c := f.claimInline(w, campaign)
	must.Equal(f.TB, storetest.ToldClaim(c), want, "the request path claimed")
	return c
}

func TestClaimInline_takesEventsWithoutRows(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline))
	f.AppendN("a", 2)
	c := f.claimsInline(one, "a", "a 1-2 under 1, bare")
	f.mustHoldInline(two, "a", outbox.BlockerLease)
	f.Sound()
	must.Equal(t, f.Works(one, c, 2), store.Settled{Applied: 2}, "settled")
	f.Is("a", "applied 2 of 2")
	f.Unchanged(func() { f.mustHoldInline(one, "a", outbox.BlockerEmpty) })
	_, _, err := f.ClaimInline(f.Ctx, one, "b", store.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, outbox.ErrNotFound, `"b"`)
	f.MustPause("a")
	f.mustHoldInline(one, "a", outbox.BlockerEmpty)
	f.Sound()
}

// Events without rows under an expired lease are taken over like rows: by the next request or
// by a worker.
func TestClaimInline_leavesItsEventsToWhoeverComesOnceItsLeaseRanOut(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(f *fixture) store.Claim{
		"the next request": func(f *fixture) store.Claim { return f.claimsInline(two, "a", "a 1-2 under 2") },
		"a worker":         func(f *fixture) store.Claim { return f.Claims(two, 10, "a 1-2 under 2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, storetest.InMode(outbox.ModeInline))
			f.AppendN("a", 2)
			died := f.claimInline(one, "a")
			f.NoClaim(two)
			f.Clock.Advance(lease)
			c := take(f)
			f.MustApply(c, 2)
			must.Equal(t, f.MustSettle(one, store.Result{Claim: died, Applied: 2}).Fenced, 1, "the one that was taken over settled")
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
	c := inline.claimsInline(one, "a", "a 1-3 under 1")
	f.NoClaim(two)
	inline.Works(one, c, 3)
	f.Is("a", "applied 3 of 3")
	f.Sound()
	inline.Sound()
}

func TestSettle_givesTheEventsOfABareClaimRowsFromTheFailedOneOn(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline), storetest.MaxAttempts(2))
	f.AppendN("a", 4)
	c := f.claimInline(one, "a")
	f.AppendN("a", 1) // for its own request to apply
	must.Equal(t, f.FailsAfter(one, c, 1, "no seat"), store.Settled{Applied: 1, Failed: 1}, "settled")
	f.Is("a", "applied 1 of 5, head 2 failed, 3 pending, 1 failed")
	r := f.MustRow("a", 2)
	must.Hold(t, r.Row.AttemptCount == 1 && r.Row.LastError == "no seat" && len(r.Attempts) == 1, "the row is %+v", r)
	f.AppendN("a", 1)
	_, _, err := f.ClaimInline(f.Ctx, one, "a", store.ClaimLimits{Rows: 10, Lease: lease})
	refused(t, err, outbox.ErrNotYet, "the event is appended but not yet applied", "Event 2 failed and will be retried in 1 s")
	f.Sound()
	f.Clock.Advance(time.Minute)
	f.Claims(two, 10, "a 2-6 under 2, after 1")
}

func TestEnqueueMissing_besideAnybody(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(f *fixture) (end func()){
		"nobody": func(*fixture) func() { return func() {} },
		"a request": func(f *fixture) func() {
			c := f.claimInline(one, "a")
			return func() { f.Works(one, c, 3) }
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
				must.OK(t, f.EnqueueMissing(f.Ctx, "a"))
			}
			c := f.MustCampaign("a")
			must.Hold(t, c.Counts == (outbox.Counts{Pending: 3}) && c.HeadSeq == 1, "campaign is %+v, want 3 rows", c)
			f.Sound()
			end()
			f.Drain()
			f.Sound()
			f.Unchanged(func() {
				must.OK(t, f.EnqueueMissing(f.Ctx, "unknown"))
				must.OK(t, f.EnqueueMissing(f.Ctx, "a"))
			})
		})
	}
}
