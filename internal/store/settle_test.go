package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestSettle_deletesAppliedRowsAndReleases(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	f.AppendN("b", 2)
	claims := f.MustClaim(one, 10)
	results := make([]store.Result, len(claims))
	for i, c := range claims {
		f.MustApply(c, c.Last)
		results[i] = store.Result{Claim: c, Applied: c.Last}
	}
	if got, want := f.MustSettle(one, results...), (store.Settled{Applied: 6}); got != want {
		t.Errorf("settled %+v, want %+v", got, want)
	}
	for _, id := range []string{"a", "b"} {
		c := f.MustCampaign(id)
		if c.Lease != nil || c.Counts.Total() != 0 || c.HeadSeq != 0 || c.AppliedSeq != c.HighWaterSeq || c.State() != outbox.StateCurrent {
			t.Errorf("campaign is %+v, want everything applied and nothing leased", c)
		}
	}
	f.Sound()
}

func TestSettle_givesBackWhatWasNotReached(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 4)
	f.MustApply(c, 2)
	if got := f.MustSettle(one, store.Result{Claim: c, Applied: 2}); got != (store.Settled{Applied: 2}) {
		t.Errorf("settled %+v", got)
	}
	got := f.MustCampaign("a")
	if got.HeadSeq != 3 || got.HeadStatus != outbox.Pending || got.Counts != (outbox.Counts{Pending: 3}) || got.Lease != nil {
		t.Errorf("campaign is %+v, want three pending rows from 3 on", got)
	}
	if c := f.ClaimOne(two, 10); c.First != 3 || c.Last != 5 {
		t.Errorf("the rest is claimable at once; got %+v", c)
	}
	f.Sound()
}

func TestSettle_failedHeadBacksOffAndDiesAtTheEighth(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	delays := []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second}
	for i, delay := range delays {
		f.Fail("boom at 17", "a")
		r := f.MustRow("a", 1).Row
		if r.Status != outbox.Failed || r.AttemptCount != i+1 || r.NextAttemptAt != f.Clock.Now().Add(delay) ||
			r.LastError != "boom at 17" || r.Fingerprint != "boom at #" || r.BlockedBehind != 2 || r.EnqueuedAt != began {
			t.Fatalf("after failure %d the row is %+v, want it due in %s", i+1, r, delay)
		}
		if c := f.MustCampaign("a"); c.Counts != (outbox.Counts{Pending: 2, Failed: 1}) || c.HeadNextAttempt != r.NextAttemptAt || c.State() != outbox.StateFailing {
			t.Fatalf("campaign is %+v", c)
		}
		f.Clock.Advance(delay)
	}
	c := f.ClaimOne(one, 10)
	if got := f.MustSettle(one, store.Result{Claim: c, Applied: 0, Failure: storetest.Failure("boom at 18")}); got != (store.Settled{Failed: 1, Died: 1}) {
		t.Errorf("settled %+v", got)
	}
	d := f.MustRow("a", 1)
	if d.Row.Status != outbox.Dead || d.Row.AttemptCount != 8 || d.Row.NextAttemptAt != f.Clock.Now() {
		t.Errorf("after the eighth failure the row is %+v", d.Row)
	}
	if len(d.Attempts) != 8 || d.Attempts[0].Attempt != 8 || d.Attempts[0].Worker != one.ID || d.Attempts[0].Build != one.Build || d.Attempts[7].Attempt != 1 {
		t.Errorf("the history is %+v, want eight attempts, newest first", d.Attempts)
	}
	f.Clock.Advance(24 * time.Hour)
	f.NoClaim(one)
	if _, due, err := f.UntilDue(f.Ctx, outbox.Scope{}); due || err != nil {
		t.Errorf("a dead head is due by itself: %v", err)
	}
	f.Sound()
}

func TestSettle_backOffIsCappedAndConfigurable(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(12))
	f.AppendN("a", 1)
	for n := 1; n < 12; n++ {
		f.Fail("boom", "a")
		f.Clock.Advance(5 * time.Minute)
	}
	if r := f.MustRow("a", 1).Row; r.NextAttemptAt != f.Clock.Now() || r.AttemptCount != 11 {
		t.Errorf("row is %+v, want it to have waited five minutes after failure 11", r)
	}
}

func TestSettle_appliedPartAndFailureInOneWave(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 6)
	c := f.ClaimOne(one, 5)
	f.MustApply(c, 2)
	if got := f.MustSettle(one, store.Result{Claim: c, Applied: 2, Failure: storetest.Failure("boom")}); got != (store.Settled{Applied: 2, Failed: 1}) {
		t.Errorf("settled %+v", got)
	}
	got := f.MustCampaign("a")
	if got.HeadSeq != 3 || got.HeadStatus != outbox.Failed || got.Counts != (outbox.Counts{Pending: 3, Failed: 1}) || got.BlockedBehind() != 3 {
		t.Errorf("campaign is %+v, want a failed head at 3", got)
	}
	f.NoClaim(two)
	f.Sound()
}

func TestSettle_neverKillsARowWhoseProjectionIsSetAside(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 1)
	c := f.ClaimOne(one, 10)
	aside := storetest.Failure("boom")
	aside.SetAside = true
	if got := f.MustSettle(one, store.Result{Claim: c, Applied: 0, Failure: aside}); got.Died != 0 {
		t.Errorf("settled %+v", got)
	}
	if r := f.MustRow("a", 1).Row; r.Status != outbox.Failed {
		t.Errorf("row is %+v", r)
	}
}

func TestSettle_keepsTheErrorWholeInTheHistoryAndShortOnTheRow(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	c := f.ClaimOne(one, 10)
	long := strings.Repeat("ü", 5000)
	f.MustSettle(one, store.Result{Claim: c, Applied: 0, Failure: &readmodel.Failure{Message: long, Fingerprint: "ü"}})
	d := f.MustRow("a", 1)
	if d.Attempts[0].Error != long {
		t.Errorf("the attempt keeps %d bytes of %d", len(d.Attempts[0].Error), len(long))
	}
	if got := d.Row.LastError; len(got) > 1024 || !strings.HasPrefix(long, got) || len(got)%2 != 0 || got == "" {
		t.Errorf("the row keeps %d bytes, want at most 1024 whole characters", len(got))
	}
}

func TestSettle_ofALostLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*fixture){
		"taken over": func(f *fixture) {
			f.Clock.Advance(lease)
			f.ClaimOne(two, 10)
		},
		"taken over and settled, then claimed again": func(f *fixture) {
			f.Clock.Advance(lease)
			c := f.ClaimOne(two, 10)
			f.MustSettle(two, store.Result{Claim: c, Applied: 0})
			f.ClaimOne(one, 2)
		},
		"held by another": func(f *fixture) {
			f.Exec(`update campaigns set lease_owner = $1`, two.ID)
		},
		"ended by a replay": func(f *fixture) {
			f.Clock.Advance(lease)
			f.must(f.ReplayCampaign(f.Ctx, ana("for a test"), "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("a", 4)
			stale := f.ClaimOne(one, 3)
			lose(f)
			for _, result := range []store.Result{
				{Claim: stale, Applied: 3},
				{Claim: stale, Applied: 0},
				{Claim: stale, Applied: 1, Failure: storetest.Failure("boom")},
				{Claim: stale, Applied: 0, Diverged: "for a test"},
			} {
				f.Unchanged(func() {
					if got := f.MustSettle(one, result); got != (store.Settled{Fenced: 1}) {
						t.Errorf("settled %+v, want it fenced", got)
					}
				})
			}
			f.Sound()
		})
	}
}

func TestSettle_touchesOnlyRowsMarkedUnderItsEpoch(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 5)
	f.Exec(`update projection_apply_outbox set status = 'pending' where seq = 2`)
	f.Exec(`update projection_apply_outbox set claim_epoch = 9 where seq in (1, 4)`)
	f.MustApply(c, 3)
	if got := f.MustSettle(one, store.Result{Claim: c, Applied: 3}); got.Applied != 1 {
		t.Errorf("settled %+v, want the one row that is still its own", got)
	}
	left := storetest.Texts(t, f.JournalDB, `select seq || ' ' || status || ' ' || claim_epoch from projection_apply_outbox order by seq`)
	if diff := cmp.Diff([]string{"1 processing 9", "2 pending 1", "4 processing 9", "5 pending 1"}, left); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	f.Exact("a")
}

func TestApply_ofALostLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	stale := f.ClaimOne(one, 3)
	f.Clock.Advance(lease)
	fresh := f.ClaimOne(two, 3)
	f.MustApply(fresh, 1)
	f.Unchanged(func() {
		if _, err := f.ApplyClaim(stale, 3); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("got error %v, want a lost lease", err)
		}
	})
	f.MustApply(fresh, 3)
	f.MustSettle(two, store.Result{Claim: fresh, Applied: 3})
	f.Sound()
}

func TestSettle_fencesOneCampaignWithoutTheOthers(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	claims := f.MustClaim(one, 10)
	f.Clock.Advance(lease)
	lost := f.MustClaim(two, 1)[0].CampaignID
	var results []store.Result
	for _, c := range claims {
		results = append(results, store.Result{Claim: c, Applied: c.Last})
		if c.CampaignID != lost {
			f.MustApply(c, c.Last)
		}
	}
	results = append(results, store.Result{Claim: store.Claim{CampaignID: "unknown", Epoch: 1, First: 1, Last: 1}})
	if got := f.MustSettle(one, results...); got != (store.Settled{Applied: 1, Fenced: 2}) {
		t.Errorf("settled %+v, want one applied and two fenced", got)
	}
}

func TestSettle_marksADivergedCampaign(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	c := f.ClaimOne(one, 10)
	f.MustSettle(one, store.Result{Claim: c, Applied: 0, Diverged: "built from another journal"})
	got := f.MustCampaign("a")
	if got.Diverged != "built from another journal" || got.State() != outbox.StateDiverged || got.Lease != nil || got.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign is %+v", got)
	}
	f.NoClaim(one)
}
