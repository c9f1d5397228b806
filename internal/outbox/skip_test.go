package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestSkipEvent_releasesTheHeadAndSaysSoEverywhere(t *testing.T) {
	storetest.Each(t, own, map[string]func(*fixture){
		"dead":   func(f *fixture) { f.Kill("a") },
		"failed": func(f *fixture) { f.Fail("no such thing", "a") },
	}, func(t *testing.T, f *fixture, fails func(*fixture)) {
		f.AppendN("a", 3)
		fails(f)
		f.must(f.SkipEvent(f.Ctx, storetest.ToSkip(ana("it names nobody"), "a", 1), "a", 1))
		f.RowIs("a", 1, "pending after 0, due in 0s")
		f.Is("a", "applied 0 of 3, head 1 pending, 3 pending, 1 skipped")
		skips := f.SkipLedger("a")
		want := event.Skip{ID: skips[0].ID, CampaignID: "a", Seq: 1, EventType: "counted", Error: "no such thing",
			SkippedAt: f.Clock.Now(), SkippedBy: "ana", Reason: "it names nobody"}
		must.Equal(t, skips, []event.Skip{want}, "the ledger")
		e := must.Get(f.Event(f.Ctx, "a", 1)).Or(t)
		diff := cmp.Diff(&want, e.Skipped)
		must.Hold(t, diff == "" && f.MustRow("a", 1).Event.Skipped != nil && f.MustRow("a", 2).Event.Skipped == nil, "the event's skip (-want +got):\n%s", diff)
		f.Sound()
	})
}

// A skip that holds its campaign can be undone until a resume confirms it.
func TestSkipEvent_holdsTheCampaignUntilItIsConfirmed(t *testing.T) {
	storetest.Each(t, own, map[string]bool{"confirmed": true, "taken back": false}, func(t *testing.T, f *fixture, confirms bool) {
		f.DieAt(3, 1)
		o := storetest.ToSkip(ana("it names nobody"), "a", 1)
		o.Hold = true
		f.must(f.SkipEvent(f.Ctx, o, "a", 1))
		c := must.Get(f.Campaign(f.Ctx, "a")).Or(t)
		must.Hold(t, c.Paused != nil && c.Paused.Reason == "event 1 was skipped; a resume confirms that, and an un-skip takes it back", "paused as %+v", c.Paused)
		must.Equal(t, len(f.MustClaim(one, 10)), 0, "claims of the held campaign")
		if confirms {
			must.Get(f.ResumeCampaign(f.Ctx, ana(""), "a")).Or(t)
			must.Equal(t, len(f.MustClaim(one, 10)), 1, "claims once it is confirmed")
			return
		}
		must.Get(f.UnskipEvent(f.Ctx, ana("it was right"), "a", 1)).Or(t)
		c = must.Get(f.Campaign(f.Ctx, "a")).Or(t)
		must.Hold(t, c.Paused == nil && c.Skips == 0, "after the skip is taken back: %+v", c)
		f.Sound()
	})
}

func TestSkipEvent_isLoadedWithTheEventsOfEveryLaterClaim(t *testing.T) {
	f := own(t)
	f.Applied("b", 1)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	c := f.Claims(one, 10, "a 2-4 under 11, with skips")
	skipped := func(events []event.Event) (all []int64) {
		for _, e := range events {
			if e.Skipped != nil {
				all = append(all, e.Seq)
			}
		}
		return all
	}
	loaded := must.Get(f.LoadClaim(c)).Or(t)
	must.Hold(t, len(loaded) == 3 && slices.Equal(skipped(loaded), []int64{2}), "loaded %+v", loaded)
	must.Equal(t, skipped(must.Get(f.Events(f.Ctx, "a", 0, 10)).Or(t).Items), []int64{2}, "listed")
	f.Works(one, c, c.Last)
	skip := f.SkipLedger("a")[0]
	must.Hold(t, skip.AppliedAt != nil && *skip.AppliedAt == f.Clock.Now(), "the skip is %+v, want it applied now", skip)
	f.WantMarks(fmt.Sprint("a 2 ", skip.ID))
	f.AppendN("a", 1)
	f.Claims(one, 10, "a 5-5 under 12, with skips")
	must.Equal(t, must.Get(f.Summary(f.Ctx)).Or(t).Campaigns.Skips, 1, "the summary counts", "skips")
}

// refusal is of the event with a seq, after a scene.
type refusal struct {
	scene func(*fixture)
	seq   int64
	kind  error
	says  string
}

// What else refuses a skip is in the scenarios of the command.
func TestSkipEvent_isRefused(t *testing.T) {
	storetest.Each(t, own, map[string]refusal{
		"behind a dead head": {func(*fixture) {}, 2, event.ErrConflict, "pending and waits behind event 1"},
		"dead behind the head": {func(f *fixture) {
			f.MustRequeue("a", 1)
			f.Exec(`update projection_apply_outbox set status = 'dead' where seq = 2`)
			f.Exec(`update campaigns set dead = 1, pending = 2`)
		}, 2, event.ErrConflict, "dead and waits behind event 1"},
		"of no such event":       {func(*fixture) {}, 9, event.ErrNotFound, "no event 9"},
		"when it is being tried": {func(f *fixture) { f.MustRequeue("a", 1); f.MustClaim(one, 9) }, 1, event.ErrConflict, "is processing"},
		"when it is applied":     {func(f *fixture) { f.MustRequeue("a", 1); f.Drain() }, 1, event.ErrNotFound, "is already applied"},
		"when a request applies it": {func(f *fixture) {
			f.MustRequeue("a", 1)
			f.MustClaimInline(two, "a")
		}, 1, event.ErrConflict, "is processing"},
		"when it was applied after all": {func(f *fixture) { f.SetWatermark("a", 1, 99) }, 1, event.ErrConflict, "already applied"},
	}, func(t *testing.T, f *fixture, c refusal) {
		f.DieAt(3, 1)
		c.scene(f)
		f.Unchanged(func() {
			refused(t, storetest.No(f.SkipEvent(f.Ctx, storetest.ToSkip(ana(""), "a", c.seq), "a", c.seq)), c.kind, c.says)
		})
	}, storetest.Impatient)
}

func TestSkipEvent_needsAReasonAndItsPhrase(t *testing.T) {
	f := own(t)
	f.DeadHead()
	unreasoned := storetest.ToSkip(ana(""), "a", 1)
	unreasoned.Reason = " "
	f.Unchanged(func() {
		refused(t, storetest.No(f.SkipEvent(f.Ctx, unreasoned, "a", 1)), event.ErrInvalid, "requires a reason")
		refused(t, storetest.No(f.SkipEvent(f.Ctx, ana("it is wrong"), "a", 1)), event.ErrInvalid, "never applied to any projection")
	})
}

// A head may have died because its processes died. One of them may only have stalled: it read
// the event before the skip, and must not apply it when it resumes.
func TestSkipEvent_fencesOffWhoeverClaimedBefore(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.AppendN("a", 3)
	f.Crash(one, 3)
	f.Crash(one, 3)
	sleeper := f.Crash(one, 3)
	f.NoClaim(two)
	f.Is("a", "applied 0 of 3, head 1 dead, 2 pending, 1 dead")
	f.MustSkip("a", 1)
	wantLost(t, storetest.No(f.ApplyClaim(sleeper, 1)))
	f.PassOver()
	f.Drain()
	f.WantMarks(fmt.Sprint("a 1 ", f.SkipLedger("a")[0].ID))
	f.Sound()
}

func TestSkips_arePagedNewestFirst(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.AppendN("a", 4)
	for seq := range int64(3) {
		f.Kill("a")
		f.MustSkip("a", seq+1)
		f.PassOver()
	}
	f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 3))
	filter := event.SkipFilter{CampaignID: "a", Limit: 2}
	pages := storetest.Pager(func(cursor string) event.Page[string] {
		filter.Cursor = cursor
		return storetest.Keyed(must.Get(f.Skips(f.Ctx, filter)).Or(t), func(k event.Skip) string { return fmt.Sprint(k.Seq) })
	})
	must.Equal(t, storetest.Items(pages.All(t)), []string{"3", "2", "1"}, "skips")
}

func TestUnskipEvent_beforeTheEventIsPassedOverOnlyTakesTheSkipBack(t *testing.T) {
	f := own(t)
	f.DieAt(3, 2)
	f.MustSkip("a", 2)
	skip, err := f.UnskipEvent(f.Ctx, ana("it was right after all"), "a", 2)
	must.Hold(t, err == nil && !skip.Active() && skip.UndoneBy == "ana" && skip.UndoneReason == "it was right after all" && *skip.UndoneAt == f.Clock.Now(), "the skip is %+v, %v", skip, err)
	f.Is("a", "applied 1 of 3, head 2 pending, 2 pending")
	f.Sound()
	f.Works(one, f.Claims(one, 10, "a 2-3 under 12"), 1)
	f.Drain()
	f.WantMarks()
	f.Sound()
}

func TestUnskipEvent_setsTheWatermarkBackByOne(t *testing.T) {
	storetest.Each(t, own, map[string]int64{"the first, with no event before it": 1, "one in between": 2, "the last, with none after it": 3}, func(t *testing.T, f *fixture, seq int64) {
		f.DieAt(3, seq)
		before := f.MustWatermark("a")
		f.MustSkip("a", seq)
		f.PassOver()
		must.Equal(t, f.MustWatermark("a").AppliedSeq, seq, "the watermark")
		epoch := f.Number(`select lease_epoch from campaigns`)
		f.Clock.Advance(lease)
		f.must(f.UnskipEvent(f.Ctx, ana(""), "a", seq))
		w := f.MustWatermark("a")
		must.Hold(t, w.AppliedSeq == seq-1 && w.AppliedHash == before.AppliedHash && w.FenceEpoch > epoch, "the watermark is %+v", w)
		f.WantMarks()
		row := f.MustRow("a", seq)
		must.Hold(t, row.Row.EnqueuedAt == began && row.Row.IsHead && row.Event.Skipped == nil, "the row is %+v", row.Row)
		f.Is("a", fmt.Sprintf("applied %d of 3, head %d pending, %d pending", seq-1, seq, 4-seq))
		f.Sound()
		f.MustBeReconciled()
		f.Drain()
		f.WantMarks()
		f.Sound()
	})
}

func TestUnskipEvent_startsTheNextEventOver(t *testing.T) {
	storetest.Each(t, own, map[string]func(*fixture){
		"failed": func(f *fixture) { f.Fail("no such seat", "a") },
		"dead":   func(f *fixture) { f.Kill("a") },
	}, func(t *testing.T, f *fixture, fail func(*fixture)) {
		f.DieAt(4, 2)
		f.MustSkip("a", 2)
		f.PassOver()
		fail(f)
		f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 2))
		f.Is("a", "applied 1 of 4, head 2 pending, 3 pending")
		f.Sound()
		f.DrainsSoundly()
	})
}

func TestUnskipEvent_isRefused(t *testing.T) {
	storetest.Each(t, own, map[string]refusal{
		"of an event that is not skipped":   {func(*fixture) {}, 1, event.ErrConflict, "is not skipped"},
		"of no such event":                  {func(*fixture) {}, 9, event.ErrNotFound, "no event 9"},
		"when the next one was applied":     {func(f *fixture) { f.PassOver(); f.PassOver() }, 2, event.ErrConflict, `event 3 of campaign "a" was applied after event 2`},
		"when later ones were applied":      {func(f *fixture) { f.PassOver(); f.Drain() }, 2, event.ErrConflict, `events 3 to 4 of campaign "a" were applied after event 2`},
		"when the next one is skipped too":  {func(f *fixture) { f.PassOver(); f.Kill("a"); f.MustSkip("a", 3); f.PassOver() }, 2, event.ErrConflict, "un-skip it first"},
		"when the projections have no mark": {func(f *fixture) { f.PassOver(); f.ExecProjections(`delete from watermark_skips`) }, 2, event.ErrConflict, "have no record that event 2 was skipped"},
		"when they have another event": {func(f *fixture) {
			f.PassOver()
			f.ExecProjections(`update projection_watermarks set applied_hash = 'x'`)
		}, 2, event.ErrConflict, "a different event 2"},
		"when it is being passed over": {func(f *fixture) { f.MustClaim(one, 1) }, 2, event.ErrConflict, "worker-1 is applying"},
	}, func(t *testing.T, f *fixture, c refusal) {
		f.DieAt(4, 2)
		f.MustSkip("a", 2)
		c.scene(f)
		f.Unchanged(func() { refused(t, storetest.No(f.UnskipEvent(f.Ctx, ana(""), "a", c.seq)), c.kind, c.says) })
	}, storetest.Impatient)
}

// A worker that skipped over the event, or was about to, stalls past its lease and resumes after the skip was reverted.
func TestUnskipEvent_cannotBeUndoneByAWorkerThatClaimedBefore(t *testing.T) {
	storetest.Each(t, own, map[string]bool{"that had passed over it": true, "that was about to": false}, func(t *testing.T, f *fixture, passes bool) {
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
			wantLost(t, storetest.No(f.ApplyClaim(c, 1)))
			must.Equal(t, f.MustSettle(one, outbox.Result{Claim: c, Applied: 1}).Fenced, 1, "the sleeper settled")
		})
		f.Drain()
		f.WantMarks()
		f.Sound()
	})
}

// The projections have committed that the watermark went back, and the journal does not commit.
func TestUnskipEvent_thatIsCutOffBetweenTheDatabasesHasNotHappened(t *testing.T) {
	storetest.Each(t, own, map[string]func(*fixture){
		"because the journal refuses": func(f *fixture) {
			f.ForbidAudit("the disk is full")
			_, err := f.UnskipEvent(f.Ctx, ana(""), "a", 2)
			must.Hold(f.TB, err != nil && strings.Contains(err.Error(), "the disk is full"), "got %v", err)
			must.Equal(f.TB, f.MustWatermark("a").AppliedSeq, 1, "the watermark")
			must.Equal(f.TB, f.CountRows(event.Pending), 3, "rows")
		},
		"because the process dies": func(f *fixture) {
			hash := storetest.Texts(f.TB, f.JournalDB, `select chain_hash from events where seq = 1`)[0]
			f.ExecProjections(`update projection_watermarks set applied_seq = 1, applied_hash = $1, fence_epoch = fence_epoch + 1`, hash)
			f.ExecProjections(`delete from watermark_skips`)
			report, err := f.Check(f.Ctx, storetest.Quiet)
			must.Hold(f.TB, err == nil && len(report.Violations) == 4 && report.Violations[0].Invariant == "skips" && report.Violations[1].Invariant == "event_owed", "check found %+v (%v)", report.Violations, err)
		},
	}, func(t *testing.T, f *fixture, half func(*fixture)) {
		f.DieAt(4, 2)
		f.MustSkip("a", 2)
		f.PassOver()
		f.MustPause("a")
		half(f)
		f.must(f.Reconcile(f.Ctx))
		f.MustBeReconciled()
		f.Sound()
		skip := f.SkipLedger("a")[0]
		must.Hold(t, skip.Active() && skip.AppliedAt == nil, "the skip is %+v, want it to stand, and not to be applied yet", skip)
		f.Is("a", "applied 1 of 4, head 2 pending, 3 pending, 1 skipped, paused by scene")
		f.AllowAudit()
		f.must(f.ResumeCampaign(f.Ctx, ana(""), "a"))
		f.Drain()
		f.WantMarks(fmt.Sprint("a 2 ", f.SkipLedger("a")[0].ID))
		f.Sound()
	})
}
