package maintenance_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// mustBeFixed fails unless nothing is left to reconcile and everything due can be processed.
func mustBeFixed(f *fixture) {
	f.MustBeReconciled()
	f.Sound()
	f.DrainsSoundly()
}

func TestReconcile_givesUnappliedEventsTheirRowsBack(t *testing.T) {
	storetest.Each(t, own, map[string]string{"all": "true", "the first": "seq = 3", "the middle": "seq in (4, 5)", "the last": "seq = 6"}, func(t *testing.T, f *fixture, where string) {
		f.AppendN("a", 6)
		f.Works(one, f.ClaimOne(one, 2), 2)
		f.AppendN("b", 1)
		f.LoseRows("a", where)
		missing := 4 - f.Number(`select count(*) from projection_apply_outbox where campaign_id = 'a'`)
		want := []campaign.Gap{{CampaignID: "a", AppliedSeq: 2, HighWaterSeq: 6, Missing: missing}}
		must.Equal(t, f.MustFindGaps(), want, "gaps")
		woken := false
		f.OnWork(func() { woken = true })
		f.Clock.Advance(time.Hour)
		f.MustReconcile(campaign.Repaired{Campaigns: 1, Inserted: missing})
		must.Hold(t, woken && len(f.MustFindGaps()) == 0, "woken: %v; gaps: %+v", woken, f.MustFindGaps())
		c := f.MustCampaign("a")
		must.Hold(t, c.HeadSeq == 3 && c.OldestEnqueuedAt == began && c.Counts == (campaign.Counts{Pending: 4}), "campaign is %+v, want head 3, as old as its append", c)
		mustBeFixed(f)
	})
}

func TestReconcile_removesRowsOfAppliedEvents(t *testing.T) {
	f := own(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 5)
	f.MustApply(c, 3)
	f.Clock.Advance(lease)
	f.MustReconcile(campaign.Repaired{Campaigns: 1, Removed: 3})
	f.Is("a", "applied 3 of 5, head 4 pending, 2 pending")
	// The worker that stalled through all this changes nothing.
	f.Unchanged(func() {
		_, err := f.ApplyClaim(c, 5)
		must.Hold(t, err != nil, "a worker whose lease was ended applied events")
		must.Equal(t, f.MustSettle(one, outbox.Result{Claim: c, Applied: 5}).Fenced, 1, "settled")
	})
	mustBeFixed(f)
}

func TestReconcile_leavesCampaignsUnderALeaseToTheirWorker(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 2)
	f.Exec(`delete from projection_apply_outbox where seq = 3`)
	f.Unchanged(func() {
		f.MustReconcile(campaign.Repaired{})
		must.Equal(t, must.Get(f.ReconcileCampaign(f.Ctx, "a")).Or(t), campaign.Repaired{}, "reconciled")
		refused(t, storetest.No(f.ReplayCampaign(f.Ctx, ana(""), "a")), event.ErrConflict, "worker-1 is applying events", "try again")
	})
	f.MustSettle(one, outbox.Result{Claim: c, Applied: 2})
	must.Get(f.ReconcileCampaign(f.Ctx, "a")).Or(t)
	f.Sound()
}

func TestReconcile_marksAWatermarkThatContradictsTheJournal(t *testing.T) {
	type given struct {
		contradict, reason string
		claimed            int // under a lease that runs out
	}
	storetest.Each(t, own, map[string]given{
		"above the journal": {`update projection_watermarks set applied_seq = 99`, "the projections have an event 99 that the journal does not have", 0},
		"of another event":  {`update projection_watermarks set applied_hash = 'other'`, "the projections have an event 2 that the journal does not have", 0},
		"under a lease":     {`update projection_watermarks set applied_hash = 'other'`, "the projections have an event 2 that the journal does not have", 1},
	}, func(t *testing.T, f *fixture, scene given) {
		f.Applied("a", 2)
		f.AppendN("a", 2)
		for range scene.claimed {
			f.ClaimOne(one, 1)
			f.Clock.Advance(lease)
		}
		f.ExecProjections(scene.contradict)
		f.MustReconcile(campaign.Repaired{Campaigns: 1, Diverged: 1})
		f.Exact("a")
		c := f.MustCampaign("a")
		must.Hold(t, c.State() == campaign.StateDiverged && c.Diverged == scene.reason, "campaign is %+v", c)
		f.NoClaim(one)
		f.AppendN("a", 1)
		f.Clock.Advance(time.Hour)
		f.NoClaim(one)
		_, _, err := f.ClaimInline(f.Ctx, one, "a", outbox.ClaimLimits{Rows: 10, Lease: lease})
		refused(t, err, event.ErrNotYet, "Diverged: "+scene.reason)
		f.MustBeReconciled()
		report, err := f.Check(f.Ctx, func(int64, int64) {})
		must.Hold(t, err == nil && !report.OK, "check is %+v, %v", report, err)
	})
}

func TestReconcile_marksACampaignThatTheJournalDoesNotKnow(t *testing.T) {
	f := own(t)
	f.Applied("a z", 2)
	f.AppendN("b", 1)
	f.Tamper(`delete from events where campaign_id in ('a', 'z')`)
	f.Exec(`delete from campaigns where campaign_id in ('a', 'z')`)
	f.ExecProjections(`insert into projection_watermarks (campaign_id, fence_epoch, updated_at) values ('0', 3, 1)`) // nothing was applied
	f.MustReconcile(campaign.Repaired{Campaigns: 2, Diverged: 2})
	for _, id := range []string{"a", "z"} {
		f.Is(id, "applied 0 of 0, diverged: the projections have an event 2 that the journal does not have")
	}
	f.MustBeReconciled()

	// Whatever refuses an append leaves the mark, and appended events wait.
	seq := int64(7)
	_, err := f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted")}, ExpectedSeq: &seq})
	must.Hold(t, errors.Is(err, event.ErrConflict), "append at another seq: %v", err)
	f.AppendN("a", 1)
	f.Is("a", "applied 0 of 1, head 1 pending, 1 pending, diverged: the projections have an event 2 that the journal does not have")
	f.Drain()
	f.Is("a", "applied 0 of 1, head 1 pending, 1 pending, diverged: the projections have an event 2 that the journal does not have")

	// Projections that are rebuilt from nothing do not contradict the journal.
	f.ExecProjections(`delete from projection_watermarks`)
	f.MustReconcile(campaign.Repaired{Campaigns: 3, Inserted: 1})
	f.DrainsSoundly()
}

// The reason follows the current projections: they may have been replaced again.
func TestReconcile_tellsOfTheProjectionsAsTheyAreNow(t *testing.T) {
	f := own(t)
	f.Applied("a", 2)
	f.ExecProjections(`update projection_watermarks set applied_seq = 9`)
	f.MustReconcile(campaign.Repaired{Campaigns: 1, Diverged: 1})
	for _, to := range []int{7, 1} {
		f.ExecProjections(`update projection_watermarks set applied_seq = $1, applied_hash = 'other'`, to)
		must.Get(f.Reconcile(f.Ctx)).Or(t)
		listed := f.AllCampaigns(campaign.CampaignFilter{})
		want := fmt.Sprintf("event %d that", to)
		must.Hold(t, len(listed) == 1 && strings.Contains(listed[0].Diverged, want), "listed as %+v, want %q", listed, want)
		f.MustBeReconciled()
	}
}

// Events of a process that died before applying them get rows in inline mode as in any other, and their age.
func TestReconcile_inInlineModeGivesEventsTheirRows(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeInline))
	f.AppendN("a", 2)
	f.Exec(`update campaigns set oldest_enqueued_at = null`)
	f.Clock.Advance(outbox.InlineWait)
	f.MustReconcile(campaign.Repaired{Campaigns: 1, Inserted: 2})
	oldest, _ := f.Ages()
	must.Hold(t, oldest.Seq == 1 && oldest.AgeSeconds == outbox.InlineWait.Seconds(), "the oldest is %+v, want event 1", oldest)
	mustBeFixed(f)
}

// The projections have skipped over the event, and its worker dies before it settles.
func TestReconcile_notesThatASkipIsApplied(t *testing.T) {
	f := own(t)
	f.DieAt(3, 1)
	f.MustSkip("a", 1)
	f.MustApply(f.ClaimOne(one, 1), 1)
	f.Clock.Advance(lease)
	must.Get(f.Reconcile(f.Ctx)).Or(t)
	skip := f.SkipLedger("a")[0]
	must.Hold(t, skip.AppliedAt != nil, "the skip is %+v, want it applied", skip)
	f.MustBeReconciled()
	f.Sound()
	// The reverse: the projections are older than the journal.
	f.ExecProjections(`delete from projection_watermarks`)
	f.ExecProjections(`delete from watermark_skips`)
	must.Get(f.Reconcile(f.Ctx)).Or(t)
	skip = f.SkipLedger("a")[0]
	must.Hold(t, skip.AppliedAt == nil, "the skip is %+v, want it not applied yet", skip)
	f.MustBeReconciled()
	f.Sound()
	f.Drain()
	f.WantMarks(fmt.Sprint("a 1 ", f.SkipLedger("a")[0].ID))
	f.Sound()
}

func TestSkips_thatTheProjectionsContradictDivergeAndAreFound(t *testing.T) {
	type given struct {
		harm func(*fixture)
		say  string
	}
	storetest.Each(t, own, map[string]given{
		"applied although skipped":    {func(f *fixture) { f.ExecProjections(`delete from watermark_skips`) }, "event 2 is skipped, but the projections did not skip it"},
		"passed over without a skip":  {func(f *fixture) { f.Exec(`update skips set undone_at = 1`); f.Exec(`update campaigns set skips = 0`) }, "the projections skipped event 2"},
		"passed over for another one": {func(f *fixture) { f.ExecProjections(`update watermark_skips set skip_id = 99`) }, "the projections skipped event 2"},
	}, func(t *testing.T, f *fixture, c given) {
		f.DieAt(4, 2)
		f.MustSkip("a", 2)
		f.DrainsSoundly()
		c.harm(f)
		report, err := f.Check(f.Ctx, storetest.Quiet)
		must.Need(t, err == nil && len(report.Violations) == 1, "check found %+v (%v), want one violation", report.Violations, err)
		v := report.Violations[0]
		must.Hold(t, v.Invariant == "skips" && v.Seq == 2 && strings.Contains(v.Detail, c.say), "check found %+v", v)
		f.MustReconcile(campaign.Repaired{Campaigns: 1, Diverged: 1})
		got := f.MustCampaign("a").Diverged
		must.Hold(t, strings.Contains(got, c.say), "diverged: %q", got)
		f.MustBeReconciled()
	})
}

// A backup copies the projections first, and a skip may be reverted before it copies the journal.
func TestReconcile_takesBackInTheProjectionsWhatTheJournalNoLongerSkips(t *testing.T) {
	f := own(t)
	f.SkipTwo()
	f.Exec(`update skips set undone_at = 1`)
	f.Exec(`update campaigns set skips = 0`)
	f.MustReconcile(campaign.Repaired{Campaigns: 1, Inserted: 2})
	must.Equal(t, f.MustWatermark("a").AppliedSeq, 1, "the watermark")
	f.WantMarks()
	f.MustBeReconciled()
	f.Sound()
	f.Drain()
	f.WantMarks()
	f.Sound()
}

func TestReconcile_ofAnotherJournalTakesNothingBack(t *testing.T) {
	f := own(t)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.PassOver()
	f.Exec(`update skips set undone_at = 1`)
	f.Exec(`update campaigns set skips = 0`)
	f.ExecProjections(`update projection_watermarks set applied_hash = 'x'`)
	f.AppendN("b", 1)
	f.LoseRows("b", "true")
	f.MustReconcile(campaign.Repaired{Campaigns: 2, Inserted: 1, Diverged: 1})
	c := f.MustCampaign("a")
	must.Hold(t, strings.Contains(c.Diverged, "an event 2 that the journal does not have") && f.MustWatermark("a").AppliedSeq == 2, "campaign is %+v, its watermark %+v", c, f.MustWatermark("a"))
	f.MustBeReconciled()
}

func TestRepairGaps_repairsEveryCampaignWithOneRecord(t *testing.T) {
	f := own(t)
	f.AppendN("a b c wave", 3)
	f.LoseRows("a", "seq > 1")
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'b' and seq = 2`) // which the counts do not miss
	f.Exec(`update campaigns set due_at = null where campaign_id <> 'wave'`)
	f.MustApply(f.ClaimOne(one, 3), 2) // a wave between its databases is no gap
	gaps := f.MustFindGaps()
	must.Hold(t, len(gaps) == 2 && gaps[0].Missing == 2 && gaps[1].Missing == 1, "gaps are %+v", gaps)
	must.Equal(t, must.Get(f.RepairGaps(f.Ctx, ana(""))).Or(t).Inserted, 3, "repaired")
	acts := f.DoneActions()
	must.Hold(t, len(acts) == 1 && acts[0].Action == "repair_gaps", "audit records are %+v", acts)
	f.Exact("b")
	f.Sound()
}

func TestSQLiteRepairGaps_leavesARecordOfWhatWasDoneBeforeItFailed(t *testing.T) {
	f := own(t)
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
		f.LoseRows(id, "seq > 1")
	}
	f.Exec(`create trigger broken before insert on projection_apply_outbox when new.campaign_id = 'b' begin select raise(abort, 'the disk is odd'); end`)
	order := ana("")
	order.IdempotencyKey = "k"
	got, err := f.RepairGaps(f.Ctx, order)
	must.Need(t, err != nil, "repaired %+v", got)
	acts := f.DoneActions()
	must.Hold(t, len(acts) == 1 && acts[0].Action == operator.ActionRepairGaps && acts[0].Outcome == operator.AuditDone && strings.Contains(string(acts[0].After), `"inserted":2`) && strings.Contains(string(acts[0].After), "the disk is odd"), "audit records are %+v", acts)
	f.Exec(`drop trigger broken`)
	must.Equal(t, must.Get(f.RepairGaps(f.Ctx, order)).Or(t).Inserted, 2, "then it repaired")
	f.Sound()
}
