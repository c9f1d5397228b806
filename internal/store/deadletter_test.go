package store_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestDeadLetterRow_givesUpOnAFailingHeadUntilItIsRequeued(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Fail("boom", "a")
	r, err := f.DeadLetterRow(f.Ctx, ana("waits for the fix"), "a", 1)
	if err != nil || r.Status != outbox.Dead || r.AttemptCount != 1 || r.BlockedBehind != 2 || r.LastError != "boom" {
		t.Fatalf("row is %+v, %v", r, err)
	}
	f.Sound()
	f.Clock.Advance(time.Hour)
	f.NoClaim(one)
	if c := f.MustCampaign("a"); c.State() != outbox.StateBlocked || c.Counts.Dead != 1 || c.Counts.Failed != 0 {
		t.Errorf("campaign is %+v", c)
	}
	if acts := f.DoneActions(); len(acts) != 1 || acts[0].Action != outbox.ActionDeadLetter || acts[0].Reason != "waits for the fix" || acts[0].Seq != 1 {
		t.Errorf("acts are %+v", acts)
	}
	if r, err = f.RequeueRow(f.Ctx, ana(""), "a", 1); err != nil || r.Status != outbox.Pending || r.AttemptCount != 0 {
		t.Errorf("row is %+v, %v", r, err)
	}
	f.Sound()
}

func TestDeadLetterRow_touchesOnlyAFailingHeadThatNobodyHolds(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.AppendN("held", 2)
	f.Fail("boom", "held")
	f.Clock.Advance(time.Hour)
	f.MustClaim(one, 10)
	f.Unchanged(func() {
		for _, c := range []struct {
			campaign string
			seq      int64
			kind     error
			says     string
		}{
			{"a", 1, outbox.ErrConflict, "is already dead"}, {"a", 2, outbox.ErrConflict, "is not the head"},
			{"held", 1, outbox.ErrConflict, "is being applied"}, {"held", 9, outbox.ErrNotFound, ""}, {"c", 1, outbox.ErrNotFound, ""},
		} {
			_, err := f.DeadLetterRow(f.Ctx, ana(""), c.campaign, c.seq)
			refused(t, err, c.kind, c.says)
		}
	})
	f.AppendN("new", 1)
	f.Unchanged(func() {
		_, err := f.DeadLetterRow(f.Ctx, ana(""), "new", 1)
		refused(t, err, outbox.ErrConflict, "has not failed")
	})
}
