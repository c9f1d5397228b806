package store_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// claimInline claims a campaign for the request path.
func (f *fixture) claimInline(w store.Worker, campaign string) store.Claim {
	f.TB.Helper()
	c, hold, err := f.ClaimInline(f.Ctx, w, campaign, store.ClaimLimits{Rows: 10, Lease: lease})
	if err != nil || hold != outbox.BlockerNone {
		f.TB.Fatalf("the request path claimed %+v: %s, %v", c, hold, err)
	}
	return c
}

// mustHoldInline fails unless the request path gets no claim for this reason.
func (f *fixture) mustHoldInline(w store.Worker, campaign string, want outbox.Blocker) {
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
	if want := (store.Claim{CampaignID: "a", Epoch: 1, First: 1, Last: 2, Bare: true, Unskipped: true}); !reflect.DeepEqual(c, want) {
		t.Fatalf("the claim is %+v, want %+v", c, want)
	}
	f.mustHoldInline(two, "a", outbox.BlockerLease)
	f.Sound()
	f.MustApply(c, 2)
	if s := f.MustSettle(one, store.Result{Claim: c, Applied: 2}); s != (store.Settled{Applied: 2}) {
		t.Errorf("settled %+v", s)
	}
	if got := f.MustCampaign("a"); got.Lease != nil || got.AppliedSeq != 2 || got.State() != outbox.StateCurrent {
		t.Errorf("campaign is %+v", got)
	}
	f.Unchanged(func() { f.mustHoldInline(one, "a", outbox.BlockerEmpty) })
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
	f.mustHoldInline(one, "a", outbox.BlockerEmpty)
}

// Events without rows under an expired lease are taken over like rows: by the next request or
// by a worker.
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
	f.AppendN("a", 1) // meanwhile, for its own request to apply
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
	refused(t, err, outbox.ErrNotYet, "the event is appended but not yet applied", "Event 2 failed and will be retried in 1 s")
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
				must.OK(t, f.EnqueueMissing(f.Ctx, "a"))
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
