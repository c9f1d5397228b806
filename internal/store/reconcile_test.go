package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

func (f *fixture) reconcile(want outbox.Repaired) {
	f.tb.Helper()
	if got, err := f.Reconcile(f.ctx); err != nil || got != want {
		f.tb.Fatalf("reconciled %+v, %v, want %+v", got, err, want)
	}
}

// settled fails unless another reconcile finds nothing and writes nothing.
func (f *fixture) settledNow() {
	f.tb.Helper()
	before := f.modified()
	f.unchanged(func() { f.reconcile(outbox.Repaired{}) })
	if after := f.modified(); after != before {
		f.tb.Errorf("a second reconcile wrote: from\n%sto\n%s", before, after)
	}
}

func (f *fixture) gaps() []outbox.Gap {
	f.tb.Helper()
	gaps, err := f.Gaps(f.ctx)
	if err != nil {
		f.tb.Fatal(err)
	}
	return gaps
}

// lose deletes rows past the store and recounts the campaign's row, as if the
// rows had never been written.
func (f *fixture) lose(campaign, where string) {
	f.tb.Helper()
	f.raw(`delete from projection_apply_outbox where campaign_id = $1 and `+where, campaign)
	f.raw(`update campaigns set
  pending = (select count(*) from projection_apply_outbox o where o.campaign_id = $1 and status = 'pending'),
  (head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at) =
    (select seq, status, next_attempt_at, enqueued_at, next_attempt_at from projection_apply_outbox o where o.campaign_id = $1 order by seq limit 1)
where campaign_id = $1`, campaign)
}

func TestReconcile_givesUnappliedEventsTheirRowsBack(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"all": "true", "the first": "seq = 3", "the middle": "seq in (4, 5)", "the last": "seq = 6"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.append("a", 6)
			c := f.claimOne(one, 2)
			f.mustApply(c, 2)
			f.settle(one, store.Result{Claim: c, Applied: 2})
			f.append("b", 1)
			f.lose("a", where)
			missing := 4 - f.number(`select count(*) from projection_apply_outbox where campaign_id = 'a'`)
			want := []outbox.Gap{{CampaignID: "a", AppliedSeq: 2, HighWaterSeq: 6, Missing: missing}}
			if diff := cmp.Diff(want, f.gaps()); diff != "" {
				t.Errorf("gaps (-want +got):\n%s", diff)
			}
			woken := false
			f.OnWork(func() { woken = true })
			f.clock.advance(time.Hour)
			f.reconcile(outbox.Repaired{Campaigns: 1, Inserted: missing})
			if !woken || len(f.gaps()) != 0 {
				t.Errorf("woken: %v; gaps: %+v", woken, f.gaps())
			}
			if c := f.campaign("a"); c.HeadSeq != 3 || c.OldestEnqueuedAt != began || c.Counts != (outbox.Counts{Pending: 4}) {
				t.Errorf("campaign is %+v, want head 3, as old as its append", c)
			}
			f.settledNow()
			f.sound()
			f.drain()
			f.sound()
		})
	}
}

func TestReconcile_removesRowsOfAppliedEvents(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 5)
	c := f.claimOne(one, 5)
	f.mustApply(c, 3)
	f.clock.advance(lease)
	f.reconcile(outbox.Repaired{Campaigns: 1, Removed: 3})
	if c := f.campaign("a"); c.HeadSeq != 4 || c.AppliedSeq != 3 || c.Lease != nil || c.Counts != (outbox.Counts{Pending: 2}) {
		t.Errorf("campaign is %+v", c)
	}
	// The worker that slept through all this changes nothing.
	f.unchanged(func() {
		if _, err := f.apply(c, 5); err == nil {
			t.Error("a worker whose lease was ended applied events")
		}
		if got := f.settle(one, store.Result{Claim: c, Applied: 5}); got.Fenced != 1 {
			t.Errorf("settled %+v", got)
		}
	})
	f.settledNow()
	f.sound()
	f.drain()
	f.sound()
}

func TestReconcile_leavesCampaignsUnderALeaseToTheirWorker(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	c := f.claimOne(one, 2)
	f.mustApply(c, 2)
	f.raw(`delete from projection_apply_outbox where seq = 3`)
	f.unchanged(func() {
		f.reconcile(outbox.Repaired{})
		if got, err := f.ReconcileCampaign(f.ctx, "a"); err != nil || got != (outbox.Repaired{}) {
			t.Errorf("reconciled %+v, %v", got, err)
		}
		_, err := f.ReplayCampaign(f.ctx, ana(""), "a")
		refused(t, err, outbox.ErrConflict, "worker-1 is applying events", "try again")
	})
	f.settle(one, store.Result{Claim: c, Applied: 2})
	if _, err := f.ReconcileCampaign(f.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	f.sound()
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
			f.append("a", 2)
			f.drain()
			f.append("a", 2)
			f.rawProjections(scene.contradict)
			f.reconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
			c := f.campaign("a")
			if c.State() != outbox.StateDiverged || c.Diverged != scene.reason {
				t.Errorf("campaign is %+v", c)
			}
			f.noClaim(one)
			f.append("a", 1)
			f.clock.advance(time.Hour)
			f.noClaim(one)
			_, _, err := f.ClaimInline(f.ctx, one, "a", store.ClaimLimits{Rows: 10, Lease: lease})
			refused(t, err, outbox.ErrNotYet, "Diverged: "+scene.reason)
			f.settledNow()
			if report, err := f.Check(f.ctx, func(int64, int64) {}); err != nil || report.OK {
				t.Errorf("check is %+v, %v", report, err)
			}
		})
	}
}

func TestReconcile_marksACampaignThatTheJournalDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.append("z", 2)
	f.drain()
	f.append("b", 1)
	f.tamper(`delete from events where campaign_id in ('a', 'z')`)
	f.raw(`delete from campaigns where campaign_id in ('a', 'z')`)
	f.rawProjections(`insert into projection_watermarks (campaign_id, fence_epoch, updated_at) values ('0', 3, 1)`) // nothing was applied to it
	f.reconcile(outbox.Repaired{Campaigns: 2, Diverged: 2})
	for _, id := range []string{"a", "z"} {
		if c := f.campaign(id); c.State() != outbox.StateDiverged || c.Diverged != "the projections have an event 2 that the journal does not have" {
			t.Errorf("campaign %s is %+v", id, c)
		}
	}
	f.settledNow()

	// What refuses an append leaves the mark, and what is appended waits.
	seq := int64(7)
	if _, err := f.Append(f.ctx, store.Append{Events: []outbox.Event{event("a", "counted")}, ExpectedSeq: &seq}); !errors.Is(err, outbox.ErrConflict) {
		t.Errorf("append at another seq: %v", err)
	}
	f.append("a", 1)
	if c := f.campaign("a"); c.State() != outbox.StateDiverged || c.Counts != (outbox.Counts{Pending: 1}) {
		t.Errorf("with an event campaign a is %+v", c)
	}
	f.drain()
	if c := f.campaign("a"); c.Counts != (outbox.Counts{Pending: 1}) {
		t.Errorf("an event of a diverged campaign was taken: %+v", c)
	}

	// Where the projections are made from nothing there is no contradiction.
	f.rawProjections(`delete from projection_watermarks`)
	f.reconcile(outbox.Repaired{Campaigns: 3, Inserted: 1})
	f.drain()
	f.sound()
}

func TestReconcile_ofADivergedCampaignUnderAnExpiredLeaseKeepsItsRowExact(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.drain()
	f.append("a", 3)
	f.claimOne(one, 2)
	f.clock.advance(lease)
	f.rawProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.reconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
	f.exact("a")
}

func TestReplay_waitsForTheWaveUnderWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.lose("a", "seq = 3")
	c := f.claimOne(one, 2)
	replayed := make(chan outbox.Repaired)
	go func() {
		began := time.Now()
		got, err := f.ReplayCampaign(f.ctx, ana(""), "a")
		for errors.Is(err, outbox.ErrConflict) && time.Since(began) >= store.HeldWait && time.Since(began) < time.Minute { // the wave took long
			got, err = f.ReplayCampaign(f.ctx, ana(""), "a")
		}
		if err != nil {
			t.Errorf("replay: %v", err)
		}
		replayed <- got
	}()
	f.mustApply(c, 2)
	f.settle(one, store.Result{Claim: c, Applied: 2})
	if got := <-replayed; got != (outbox.Repaired{Campaigns: 1, Inserted: 1}) {
		t.Errorf("replayed %+v, want one row", got)
	}
	f.sound()
}

func TestReplay_clearsADivergenceThatIsMended(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.drain()
	f.append("a", 2)
	hash := texts(t, f.projections, `select applied_hash from projection_watermarks`)[0]
	f.rawProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.reconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
	f.rawProjections(`update projection_watermarks set applied_hash = $1`, hash)
	if _, err := f.ReplayCampaign(f.ctx, ana(""), "a"); err != nil {
		t.Fatal(err)
	}
	f.drain()
	f.sound()
}

func TestReplay_givesFailedAndDeadRowsNothingAndGapsTheirRows(t *testing.T) {
	t.Parallel()
	f := open(t)
	deadHead(f)
	f.raw(`delete from projection_apply_outbox where seq = 3`)
	f.raw(`update campaigns set pending = 1`)
	got, err := f.ReplayCampaign(f.ctx, ana(""), "a")
	if want := (outbox.Repaired{Campaigns: 1, Inserted: 1}); err != nil || got != want {
		t.Errorf("replayed %+v, %v, want %+v", got, err, want)
	}
	if r := f.row("a", 1).Row; r.Status != outbox.Dead || r.AttemptCount != 8 {
		t.Errorf("the dead head became %+v", r)
	}
	f.sound()
	_, err = f.ReplayCampaign(f.ctx, ana(""), "b")
	refused(t, err, outbox.ErrNotFound, `"b"`)
}

func TestReplay_beforeAFailedRowKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 4)
	c := f.claimOne(one, 2)
	f.mustApply(c, 1)
	f.settle(one, store.Result{Claim: c, Applied: 1, Failure: failure("boom")})
	// The projections are restored from before: event 1 is to be applied again.
	f.rawProjections(`update projection_watermarks set applied_seq = 0, applied_hash = ''`)
	f.reconcile(outbox.Repaired{Campaigns: 1, Inserted: 1})
	f.exact("a")
	for _, last := range []int64{1, 4} {
		f.clock.advance(time.Minute)
		c := f.claimOne(one, 10)
		if c.Last != last {
			t.Errorf("claim is %+v, want it to end at %d", c, last)
		}
		f.mustApply(c, c.Last)
		f.settle(one, store.Result{Claim: c, Applied: c.Last})
	}
	f.sound()
}

func TestRepairGaps_repairsEveryCampaignWithOneRecord(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.append(id, 3)
	}
	f.lose("a", "seq > 1")
	f.lose("b", "seq = 2")
	if got, err := f.RepairGaps(f.ctx, ana("")); err != nil || got != (outbox.Repaired{Campaigns: 2, Inserted: 3}) {
		t.Errorf("repaired %+v, %v", got, err)
	}
	if acts := f.acts(); len(acts) != 1 || acts[0].Action != "repair_gaps" {
		t.Errorf("audit records are %+v", acts)
	}
	f.sound()
}

func TestSQLiteRepairGaps_leavesARecordOfWhatWasDoneBeforeItFailed(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b"} {
		f.append(id, 3)
		f.lose(id, "seq > 1")
	}
	f.raw(`create trigger broken before insert on projection_apply_outbox when new.campaign_id = 'b' begin select raise(abort, 'the disk is odd'); end`)
	order := ana("")
	order.IdempotencyKey = "k"
	if got, err := f.RepairGaps(f.ctx, order); err == nil {
		t.Fatalf("repaired %+v", got)
	}
	acts := f.acts()
	if len(acts) != 1 || acts[0].Action != outbox.ActRepairGaps || acts[0].Outcome != outbox.ActDone || !strings.Contains(string(acts[0].After), `"inserted":2`) || !strings.Contains(string(acts[0].After), "the disk is odd") {
		t.Errorf("audit records are %+v", acts)
	}
	f.raw(`drop trigger broken`)
	if got, err := f.RepairGaps(f.ctx, order); err != nil || got.Inserted != 2 {
		t.Errorf("then it repaired %+v, %v", got, err)
	}
	f.sound()
}

func TestRepairGaps_findsRowsTheCountsDoNotMiss(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.raw(`delete from projection_apply_outbox where seq = 2`)
	if gaps := f.gaps(); len(gaps) != 1 || gaps[0].Missing != 1 {
		t.Errorf("gaps are %+v", gaps)
	}
	if got, err := f.RepairGaps(f.ctx, ana("")); err != nil || got.Inserted != 1 {
		t.Errorf("repaired %+v, %v", got, err)
	}
	f.exact("a")
	f.sound()
}

func TestGaps_areNoneWhileAWaveIsBetweenItsDatabases(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 5)
	c := f.claimOne(one, 3)
	f.mustApply(c, 2)
	if gaps := f.gaps(); len(gaps) != 0 {
		t.Errorf("gaps are %+v", gaps)
	}
}

// What a process appended that died before it applied it is owed in inline mode
// as in any other.
func TestReconcile_inInlineModeGivesEventsTheirRows(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline))
	f.append("a", 3)
	f.clock.advance(store.InlineWait)
	f.reconcile(outbox.Repaired{Campaigns: 1, Inserted: 3})
	f.sound()
	f.drain()
	f.sound()
}

func TestReconcile_raisesEpochsAboveTheFencesOfTheProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	// The projections have seen more claims than this journal remembers.
	f.rawProjections(`insert into projection_watermarks (campaign_id, fence_epoch, updated_at) values ('a', 40, 1)`)
	if _, err := f.Reconcile(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.drain()
	if c := f.campaign("a"); c.AppliedSeq != 2 {
		t.Errorf("campaign is %+v", c)
	}
	f.settledNow()
}
