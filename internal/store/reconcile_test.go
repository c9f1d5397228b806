package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
)

func TestReconcile_givesUnappliedEventsTheirRowsBack(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"all": "true", "the first": "seq = 3", "the middle": "seq in (4, 5)", "the last": "seq = 6"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("a", 6)
			c := f.ClaimOne(one, 2)
			f.MustApply(c, 2)
			f.MustSettle(one, store.Result{Claim: c, Applied: 2})
			f.AppendN("b", 1)
			f.LoseRows("a", where)
			missing := 4 - f.Number(`select count(*) from projection_apply_outbox where campaign_id = 'a'`)
			want := []outbox.Gap{{CampaignID: "a", AppliedSeq: 2, HighWaterSeq: 6, Missing: missing}}
			if diff := cmp.Diff(want, f.MustFindGaps()); diff != "" {
				t.Errorf("gaps (-want +got):\n%s", diff)
			}
			woken := false
			f.OnWork(func() { woken = true })
			f.Clock.Advance(time.Hour)
			f.MustReconcile(outbox.Repaired{Campaigns: 1, Inserted: missing})
			if !woken || len(f.MustFindGaps()) != 0 {
				t.Errorf("woken: %v; gaps: %+v", woken, f.MustFindGaps())
			}
			if c := f.MustCampaign("a"); c.HeadSeq != 3 || c.OldestEnqueuedAt != began || c.Counts != (outbox.Counts{Pending: 4}) {
				t.Errorf("campaign is %+v, want head 3, as old as its append", c)
			}
			f.MustBeReconciled()
			f.Sound()
			f.Drain()
			f.Sound()
		})
	}
}

func TestReconcile_removesRowsOfAppliedEvents(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 5)
	f.MustApply(c, 3)
	f.Clock.Advance(lease)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Removed: 3})
	if c := f.MustCampaign("a"); c.HeadSeq != 4 || c.AppliedSeq != 3 || c.Lease != nil || c.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign is %+v", c)
	}
	// The worker that slept through all this changes nothing.
	f.Unchanged(func() {
		if _, err := f.ApplyClaim(c, 5); err == nil {
			t.Error("a worker whose lease was ended applied events")
		}
		if got := f.MustSettle(one, store.Result{Claim: c, Applied: 5}); got.Fenced != 1 {
			t.Errorf("settled %+v", got)
		}
	})
	f.MustBeReconciled()
	f.Sound()
	f.Drain()
	f.Sound()
}

func TestReconcile_leavesCampaignsUnderALeaseToTheirWorker(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 2)
	f.Exec(`delete from projection_apply_outbox where seq = 3`)
	f.Unchanged(func() {
		f.MustReconcile(outbox.Repaired{})
		if got, err := f.ReconcileCampaign(f.Ctx, "a"); err != nil || got != (outbox.Repaired{}) {
			t.Errorf("reconciled %+v, %v", got, err)
		}
		_, err := f.ReplayCampaign(f.Ctx, ana(""), "a")
		refused(t, err, outbox.ErrConflict, "worker-1 is applying events", "try again")
	})
	f.MustSettle(one, store.Result{Claim: c, Applied: 2})
	if _, err := f.ReconcileCampaign(f.Ctx, "a"); err != nil {
		t.Fatal(err)
	}
	f.Sound()
}

func TestReconcile_marksAWatermarkThatContradictsTheJournal(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct{ contradict, reason string }{
		"above the journal": {`update projection_watermarks set applied_seq = 99`, "the projections have an event 99 that the journal does not have"},
		"of another event":  {`update projection_watermarks set applied_hash = 'other'`, "the projections have an event 2 that the journal does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("a", 2)
			f.Drain()
			f.AppendN("a", 2)
			f.ExecProjections(scene.contradict)
			f.MustReconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
			c := f.MustCampaign("a")
			if c.State() != outbox.StateDiverged || c.Diverged != scene.reason {
				t.Errorf("campaign is %+v", c)
			}
			f.NoClaim(one)
			f.AppendN("a", 1)
			f.Clock.Advance(time.Hour)
			f.NoClaim(one)
			_, _, err := f.ClaimInline(f.Ctx, one, "a", store.ClaimLimits{Rows: 10, Lease: lease})
			refused(t, err, outbox.ErrNotYet, "Diverged: "+scene.reason)
			f.MustBeReconciled()
			if report, err := f.Check(f.Ctx, func(int64, int64) {}); err != nil || report.OK {
				t.Errorf("check is %+v, %v", report, err)
			}
		})
	}
}

func TestReconcile_marksACampaignThatTheJournalDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.AppendN("z", 2)
	f.Drain()
	f.AppendN("b", 1)
	f.Tamper(`delete from events where campaign_id in ('a', 'z')`)
	f.Exec(`delete from campaigns where campaign_id in ('a', 'z')`)
	f.ExecProjections(`insert into projection_watermarks (campaign_id, fence_epoch, updated_at) values ('0', 3, 1)`) // nothing was applied to it
	f.MustReconcile(outbox.Repaired{Campaigns: 2, Diverged: 2})
	for _, id := range []string{"a", "z"} {
		if c := f.MustCampaign(id); c.State() != outbox.StateDiverged || c.Diverged != "the projections have an event 2 that the journal does not have" {
			t.Errorf("campaign %s is %+v", id, c)
		}
	}
	f.MustBeReconciled()

	// What refuses an append leaves the mark, and what is appended waits.
	seq := int64(7)
	if _, err := f.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}, ExpectedSeq: &seq}); !errors.Is(err, outbox.ErrConflict) {
		t.Errorf("append at another seq: %v", err)
	}
	f.AppendN("a", 1)
	if c := f.MustCampaign("a"); c.State() != outbox.StateDiverged || c.Counts != (outbox.Counts{Pending: 1}) {
		t.Errorf("with an event campaign a is %+v", c)
	}
	f.Drain()
	if c := f.MustCampaign("a"); c.Counts != (outbox.Counts{Pending: 1}) {
		t.Errorf("an event of a diverged campaign was taken: %+v", c)
	}

	// Where the projections are made from nothing there is no contradiction.
	f.ExecProjections(`delete from projection_watermarks`)
	f.MustReconcile(outbox.Repaired{Campaigns: 3, Inserted: 1})
	f.Drain()
	f.Sound()
}

func TestReconcile_ofADivergedCampaignUnderAnExpiredLeaseKeepsItsRowExact(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Drain()
	f.AppendN("a", 3)
	f.ClaimOne(one, 2)
	f.Clock.Advance(lease)
	f.ExecProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
	f.Exact("a")
}

func TestReplay_waitsForTheWaveUnderWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.LoseRows("a", "seq = 3")
	c := f.ClaimOne(one, 2)
	replayed := make(chan outbox.Repaired)
	go func() {
		began := time.Now()
		got, err := f.ReplayCampaign(f.Ctx, ana(""), "a")
		for errors.Is(err, outbox.ErrConflict) && time.Since(began) >= store.HeldWait && time.Since(began) < time.Minute { // the wave took long
			got, err = f.ReplayCampaign(f.Ctx, ana(""), "a")
		}
		if err != nil {
			t.Errorf("replay: %v", err)
		}
		replayed <- got
	}()
	f.MustApply(c, 2)
	f.MustSettle(one, store.Result{Claim: c, Applied: 2})
	if got := <-replayed; got != (outbox.Repaired{Campaigns: 1, Inserted: 1}) {
		t.Errorf("replayed %+v, want one row", got)
	}
	f.Sound()
}

func TestReplay_clearsADivergenceThatIsMended(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Drain()
	f.AppendN("a", 2)
	hash := storetest.Texts(t, f.ProjectionsDB, `select applied_hash from projection_watermarks`)[0]
	f.ExecProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
	f.ExecProjections(`update projection_watermarks set applied_hash = $1`, hash)
	if _, err := f.ReplayCampaign(f.Ctx, ana(""), "a"); err != nil {
		t.Fatal(err)
	}
	f.Drain()
	f.Sound()
}

func TestReplay_givesFailedAndDeadRowsNothingAndGapsTheirRows(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.Exec(`delete from projection_apply_outbox where seq = 3`)
	f.Exec(`update campaigns set pending = 1`)
	got, err := f.ReplayCampaign(f.Ctx, ana(""), "a")
	if want := (outbox.Repaired{Campaigns: 1, Inserted: 1}); err != nil || got != want {
		t.Errorf("replayed %+v, %v, want %+v", got, err, want)
	}
	if r := f.MustRow("a", 1).Row; r.Status != outbox.Dead || r.AttemptCount != 8 {
		t.Errorf("the dead head became %+v", r)
	}
	f.Sound()
	_, err = f.ReplayCampaign(f.Ctx, ana(""), "b")
	refused(t, err, outbox.ErrNotFound, `"b"`)
}

func TestReplay_beforeAFailedRowKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 1)
	f.MustSettle(one, store.Result{Claim: c, Applied: 1, Failure: storetest.Failure("boom")})
	// The projections are restored from before: event 1 is to be applied again.
	f.ExecProjections(`update projection_watermarks set applied_seq = 0, applied_hash = ''`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Inserted: 1})
	f.Exact("a")
	for _, last := range []int64{1, 4} {
		f.Clock.Advance(time.Minute)
		c := f.ClaimOne(one, 10)
		if c.Last != last {
			t.Errorf("claim is %+v, want it to end at %d", c, last)
		}
		f.MustApply(c, c.Last)
		f.MustSettle(one, store.Result{Claim: c, Applied: c.Last})
	}
	f.Sound()
}

func TestRepairGaps_repairsEveryCampaignWithOneRecord(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.AppendN(id, 3)
	}
	f.LoseRows("a", "seq > 1")
	f.LoseRows("b", "seq = 2")
	if got, err := f.RepairGaps(f.Ctx, ana("")); err != nil || got != (outbox.Repaired{Campaigns: 2, Inserted: 3}) {
		t.Errorf("repaired %+v, %v", got, err)
	}
	if acts := f.DoneActs(); len(acts) != 1 || acts[0].Action != "repair_gaps" {
		t.Errorf("audit records are %+v", acts)
	}
	f.Sound()
}

func TestSQLiteRepairGaps_leavesARecordOfWhatWasDoneBeforeItFailed(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
		f.LoseRows(id, "seq > 1")
	}
	f.Exec(`create trigger broken before insert on projection_apply_outbox when new.campaign_id = 'b' begin select raise(abort, 'the disk is odd'); end`)
	order := ana("")
	order.IdempotencyKey = "k"
	if got, err := f.RepairGaps(f.Ctx, order); err == nil {
		t.Fatalf("repaired %+v", got)
	}
	acts := f.DoneActs()
	if len(acts) != 1 || acts[0].Action != outbox.ActRepairGaps || acts[0].Outcome != outbox.ActDone || !strings.Contains(string(acts[0].After), `"inserted":2`) || !strings.Contains(string(acts[0].After), "the disk is odd") {
		t.Errorf("audit records are %+v", acts)
	}
	f.Exec(`drop trigger broken`)
	if got, err := f.RepairGaps(f.Ctx, order); err != nil || got.Inserted != 2 {
		t.Errorf("then it repaired %+v, %v", got, err)
	}
	f.Sound()
}

func TestRepairGaps_findsRowsTheCountsDoNotMiss(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Exec(`delete from projection_apply_outbox where seq = 2`)
	if gaps := f.MustFindGaps(); len(gaps) != 1 || gaps[0].Missing != 1 {
		t.Errorf("gaps are %+v", gaps)
	}
	if got, err := f.RepairGaps(f.Ctx, ana("")); err != nil || got.Inserted != 1 {
		t.Errorf("repaired %+v, %v", got, err)
	}
	f.Exact("a")
	f.Sound()
}

func TestGaps_areNoneWhileAWaveIsBetweenItsDatabases(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 3)
	f.MustApply(c, 2)
	if gaps := f.MustFindGaps(); len(gaps) != 0 {
		t.Errorf("gaps are %+v", gaps)
	}
}

// What a process appended that died before it applied it is owed in inline mode
// as in any other.
func TestReconcile_inInlineModeGivesEventsTheirRows(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.InMode(outbox.ModeInline))
	f.AppendN("a", 3)
	f.Clock.Advance(store.InlineWait)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Inserted: 3})
	f.Sound()
	f.Drain()
	f.Sound()
}

func TestReconcile_raisesEpochsAboveTheFencesOfTheProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	// The projections have seen more claims than this journal remembers.
	f.ExecProjections(`insert into projection_watermarks (campaign_id, fence_epoch, updated_at) values ('a', 40, 1)`)
	if _, err := f.Reconcile(f.Ctx); err != nil {
		t.Fatal(err)
	}
	f.Drain()
	if c := f.MustCampaign("a"); c.AppliedSeq != 2 {
		t.Errorf("campaign is %+v", c)
	}
	f.MustBeReconciled()
}
