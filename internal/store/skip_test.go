package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestSkipEvent_releasesTheHeadAndSaysSoEverywhere(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(*fixture){
		"dead":   func(f *fixture) { f.Kill("a") },
		"failed": func(f *fixture) { f.Fail("no such thing", "a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("a", 3)
			fails(f)
			f.must(f.SkipEvent(f.Ctx, storetest.ToSkip(ana("it names nobody"), "a", 1), "a", 1))
			f.RowIs("a", 1, "pending after 0, due in 0s")
			f.Is("a", "applied 0 of 3, head 1 pending, 3 pending, 1 skipped")
			skips := f.SkipLedger("a")
			want := outbox.Skip{ID: skips[0].ID, CampaignID: "a", Seq: 1, EventType: "counted", Error: "no such thing",
				SkippedAt: f.Clock.Now(), SkippedBy: "ana", Reason: "it names nobody"}
			must.Equal(t, skips, []outbox.Skip{want}, "the ledger")
			e := must.Get(f.Event(f.Ctx, "a", 1)).Or(t)
			diff := cmp.Diff(&want, e.Skipped)
			must.Hold(t, diff == "" && f.MustRow("a", 1).Event.Skipped != nil && f.MustRow("a", 2).Event.Skipped == nil, "the event's skip (-want +got):\n%s", diff)
			f.Sound()
		})
	}
}

func TestSkipEvent_isLoadedWithTheEventsOfEveryLaterClaim(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("b", 1)
	f.Drain()
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	c := f.Claims(one, 10, "a 2-4 under 11, with skips")
	skipped := func(events []outbox.Event) (all []int64) {
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

// What else refuses a skip is in the scenarios of the command.
func TestSkipEvent_isRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scene func(*fixture)
		seq   int64
		kind  error
		says  string
	}{
		"behind a dead head": {func(*fixture) {}, 2, outbox.ErrConflict, "pending and waits behind event 1"},
		"dead behind the head": {func(f *fixture) {
			f.MustRequeue("a", 1)
			f.Exec(`update projection_apply_outbox set status = 'dead' where seq = 2`)
			f.Exec(`update campaigns set dead = 1, pending = 2`)
		}, 2, outbox.ErrConflict, "dead and waits behind event 1"},
		"of no such event":       {func(*fixture) {}, 9, outbox.ErrNotFound, "no event 9"},
		"when it is being tried": {func(f *fixture) { f.MustRequeue("a", 1); f.MustClaim(one, 9) }, 1, outbox.ErrConflict, "is processing"},
		"when it is applied":     {func(f *fixture) { f.MustRequeue("a", 1); f.Drain() }, 1, outbox.ErrNotFound, "is already applied"},
		"when a request applies it": {func(f *fixture) {
			f.MustRequeue("a", 1)
			f.claimInline(two, "a")
		}, 1, outbox.ErrConflict, "is processing"},
		"when it was applied after all": {func(f *fixture) { f.SetWatermark("a", 1, 99) }, 1, outbox.ErrConflict, "already applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, impatient)
			f.DieAt(3, 1)
			c.scene(f)
			f.Unchanged(func() {
				refused(t, storetest.No(f.SkipEvent(f.Ctx, storetest.ToSkip(ana(""), "a", c.seq), "a", c.seq)), c.kind, c.says)
			})
		})
	}
}

// A head may have died because its processes died. One of them may only have stalled: it read
// the event before the skip, and must not apply it when it resumes.
func TestSkipEvent_fencesOffWhoeverClaimedBefore(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 3)
	f.crash(one, 3)
	f.crash(one, 3)
	sleeper := f.crash(one, 3)
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
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 4)
	for seq := range int64(3) {
		f.Kill("a")
		f.MustSkip("a", seq+1)
		f.PassOver()
	}
	f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 3))
	filter := outbox.SkipFilter{CampaignID: "a", Limit: 2}
	pages := pager(f, func(cursor string) (outbox.Page[outbox.Skip], error) {
		filter.Cursor = cursor
		return f.Skips(f.Ctx, filter)
	}, func(k outbox.Skip) string { return fmt.Sprint(k.Seq) })
	must.Equal(t, storetest.Items(pages.All(t)), []string{"3", "2", "1"}, "skips")
	refused(t, storetest.No(f.Skips(f.Ctx, outbox.SkipFilter{CampaignID: "nobody"})), outbox.ErrNotFound, "nobody")
}
