package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestUnskipEvent_beforeTheEventIsPassedOverOnlyTakesTheSkipBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(3, 2)
	f.MustSkip("a", 2)
	skip, err := f.UnskipEvent(f.Ctx, ana("it was right after all"), "a", 2)
	if err != nil || skip.Active() || skip.UndoneBy != "ana" || skip.UndoneReason != "it was right after all" || *skip.UndoneAt != f.Clock.Now() {
		t.Errorf("the skip is %+v, %v", skip, err)
	}
	if c := f.MustCampaign("a"); c.Skips != 0 || c.AppliedSeq != 1 || c.HeadSeq != 2 || c.HeadStatus != outbox.Pending {
		t.Errorf("campaign is %+v", c)
	}
	f.Sound()
	c := f.ClaimOne(one, 10)
	if !c.Unskipped || c.First != 2 {
		t.Errorf("claim is %+v", c)
	}
	f.MustSettle(one, store.Result{Claim: c, Applied: 1})
	f.Drain()
	f.WantMarks()
	f.Sound()
}

func TestUnskipEvent_setsTheWatermarkBackByOne(t *testing.T) {
	t.Parallel()
	for _, seq := range []int64{1, 2, 3} { // the first has no event before it, the last none after it
		t.Run(fmt.Sprint(seq), func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.DieAt(3, seq)
			before := f.MustWatermark("a")
			f.MustSkip("a", seq)
			f.PassOver()
			if got := f.MustWatermark("a").AppliedSeq; got != seq {
				t.Fatalf("the watermark is at %d", got)
			}
			epoch := f.Number(`select lease_epoch from campaigns`)
			f.Clock.Advance(lease)
			f.must(f.UnskipEvent(f.Ctx, ana(""), "a", seq))
			w := f.MustWatermark("a")
			if w.AppliedSeq != seq-1 || w.AppliedHash != before.AppliedHash || w.FenceEpoch <= epoch {
				t.Errorf("the watermark is %+v, want it as before the skip, %+v, under a higher fence", w, before)
			}
			f.WantMarks()
			row := f.MustRow("a", seq)
			if row.Row.Status != outbox.Pending || row.Row.AttemptCount != 0 || row.Row.EnqueuedAt != began || !row.Row.IsHead || row.Event.Skipped != nil {
				t.Errorf("the row is %+v", row.Row)
			}
			if c := f.MustCampaign("a"); c.AppliedSeq != seq-1 || c.Skips != 0 {
				t.Errorf("campaign is %+v", c)
			}
			f.Sound()
			f.MustBeReconciled()
			f.Drain()
			f.WantMarks()
			f.Sound()
		})
	}
}

func TestUnskipEvent_startsTheNextEventOver(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fixture){
		"failed": func(f *fixture) { f.Fail("no such seat", "a") },
		"dead":   func(f *fixture) { f.Kill("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.DieAt(4, 2)
			f.MustSkip("a", 2)
			f.PassOver()
			fail(f)
			f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 2))
			if row := f.MustRow("a", 3).Row; row.Status != outbox.Pending || row.AttemptCount != 0 {
				t.Errorf("the event after it is %+v", row)
			}
			f.Sound()
			f.Drain()
			f.Sound()
		})
	}
}

func TestUnskipEvent_isRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scene func(*fixture)
		seq   int64
		kind  error
		say   []string
	}{
		"of an event that is not skipped":   {seq: 1, kind: outbox.ErrConflict, say: []string{"is not skipped"}},
		"of no such event":                  {seq: 9, kind: outbox.ErrNotFound, say: []string{"no event 9"}},
		"when the next one was applied":     {scene: func(f *fixture) { f.PassOver(); f.PassOver() }, kind: outbox.ErrConflict, say: []string{"event 3", "was applied after event 2"}},
		"when later ones were applied":      {scene: func(f *fixture) { f.PassOver(); f.Drain() }, kind: outbox.ErrConflict, say: []string{"events 3 to 4", "were applied after event 2"}},
		"when the next one is skipped too":  {scene: func(f *fixture) { f.PassOver(); f.Kill("a"); f.MustSkip("a", 3); f.PassOver() }, kind: outbox.ErrConflict, say: []string{"event 3", "un-skip it first"}},
		"when the projections have no mark": {scene: func(f *fixture) { f.PassOver(); f.ExecProjections(`delete from watermark_skips`) }, kind: outbox.ErrConflict, say: []string{"have no record that event 2 was skipped"}},
		"when they have another event": {scene: func(f *fixture) {
			f.PassOver()
			f.ExecProjections(`update projection_watermarks set applied_hash = 'x'`)
		}, kind: outbox.ErrConflict, say: []string{"a different event 2"}},
		"when it is being passed over": {scene: func(f *fixture) { f.MustClaim(one, 1) }, kind: outbox.ErrConflict, say: []string{"worker-1 is applying", "try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, impatient)
			f.DieAt(4, 2)
			f.MustSkip("a", 2)
			if c.scene != nil {
				c.scene(f)
			}
			f.Unchanged(func() {
				_, err := f.UnskipEvent(f.Ctx, ana(""), "a", seqOr(c.seq, 2))
				refused(t, err, c.kind, c.say...)
			})
		})
	}
}

// A worker that skipped over the event, or was about to, stalls past its lease and resumes
// after the skip was reverted.
func TestUnskipEvent_cannotBeUndoneByAWorkerThatClaimedBefore(t *testing.T) {
	t.Parallel()
	for name, passes := range map[string]bool{"that had passed over it": true, "that was about to": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.DieAt(3, 1)
			f.MustSkip("a", 1)
			c := f.ClaimOne(one, 1)
			if passes {
				f.MustApply(c, 1)
			}
			f.Clock.Advance(lease)
			f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 1))
			f.Sound()
			f.Unchanged(func() {
				if _, err := f.ApplyClaim(c, 1); !errors.Is(err, outbox.ErrLeaseLost) {
					t.Errorf("the sleeper got %v, want it fenced off", err)
				}
				if got := f.MustSettle(one, store.Result{Claim: c, Applied: 1}); got.Fenced != 1 {
					t.Errorf("the sleeper settled %+v", got)
				}
			})
			f.Drain()
			f.WantMarks()
			f.Sound()
		})
	}
}

// The projections have committed that the watermark went back, and the journal does not commit.
func TestUnskipEvent_thatIsCutOffBetweenTheDatabasesHasNotHappened(t *testing.T) {
	t.Parallel()
	for name, half := range map[string]func(*fixture){
		"because the journal refuses": func(f *fixture) {
			f.ForbidAudit("the disk is full")
			if _, err := f.UnskipEvent(f.Ctx, ana(""), "a", 2); err == nil || !strings.Contains(err.Error(), "the disk is full") {
				f.TB.Errorf("got %v", err)
			}
			if w := f.MustWatermark("a"); w.AppliedSeq != 1 {
				f.TB.Errorf("the watermark is %+v: nothing was cut off", w)
			}
			if n := f.CountRows(outbox.Pending); n != 3 {
				f.TB.Errorf("%d rows, want that of the event given back at once", n)
			}
		},
		"because the process dies": func(f *fixture) { f.dieBetween("a", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.DieAt(4, 2)
			f.MustSkip("a", 2)
			f.PassOver()
			f.MustPause("a")
			half(f)
			if name == "because the process dies" {
				report, err := f.Check(f.Ctx, storetest.Quiet)
				if err != nil || len(report.Violations) != 4 || report.Violations[0].Invariant != "skips" || report.Violations[1].Invariant != "event_owed" {
					t.Errorf("check found %+v (%v)", report.Violations, err)
				}
			}
			f.must(f.Reconcile(f.Ctx))
			f.MustBeReconciled()
			f.Sound()
			if skip := f.SkipLedger("a")[0]; !skip.Active() || skip.AppliedAt != nil {
				t.Errorf("the skip is %+v, want it to stand, and not to be applied yet", skip)
			}
			if c := f.MustCampaign("a"); c.Skips != 1 || c.HeadSeq != 2 || c.AppliedSeq != 1 || c.Diverged != "" {
				t.Errorf("campaign is %+v", c)
			}
			f.AllowAudit()
			f.must(f.ResumeCampaign(f.Ctx, ana(""), "a"))
			f.Drain()
			f.WantMarks(fmt.Sprint("a 2 ", f.SkipLedger("a")[0].ID))
			f.Sound()
		})
	}
}

// dieBetween makes the projections' part of an unskip and not the journal's.
func (f *fixture) dieBetween(campaign string, seq int64) {
	f.TB.Helper()
	var hash string
	if seq > 1 {
		hash = storetest.Texts(f.TB, f.JournalDB, `select chain_hash from events where campaign_id = $1 and seq = $2`, campaign, seq-1)[0]
	}
	f.ExecProjections(`update projection_watermarks set applied_seq = $2, applied_hash = $3, fence_epoch = fence_epoch + 1 where campaign_id = $1`, campaign, seq-1, hash)
	f.ExecProjections(`delete from watermark_skips where campaign_id = $1 and seq = $2`, campaign, seq)
}
