package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
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
			row, err := f.SkipEvent(f.Ctx, storetest.ToSkip(ana("it names nobody"), "a", 1), "a", 1)
			if err != nil {
				t.Fatal(err)
			}
			if row.Status != outbox.Pending || row.AttemptCount != 0 || row.NextAttemptAt != f.Clock.Now() || !row.IsHead {
				t.Errorf("the row is %+v, want it pending, due now", row)
			}
			skips := f.SkipLedger("a")
			want := outbox.Skip{ID: skips[0].ID, CampaignID: "a", Seq: 1, EventType: "counted", Error: "no such thing",
				SkippedAt: f.Clock.Now(), SkippedBy: "ana", Reason: "it names nobody"}
			if diff := cmp.Diff([]outbox.Skip{want}, skips); diff != "" {
				t.Errorf("the ledger (-want +got):\n%s", diff)
			}
			if c := f.MustCampaign("a"); c.Skips != 1 || c.HeadStatus != outbox.Pending || c.State() != outbox.StateLagging {
				t.Errorf("campaign is %+v", c)
			}
			e, err := f.Event(f.Ctx, "a", 1)
			if diff := cmp.Diff(&want, e.Skipped); err != nil || diff != "" {
				t.Errorf("the event's skip: %v (-want +got):\n%s", err, diff)
			}
			if f.MustRow("a", 1).Event.Skipped == nil || f.MustRow("a", 2).Event.Skipped != nil {
				t.Error("the rows' events do not say which of them is skipped")
			}
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
	c := f.ClaimOne(one, 10)
	if c.Unskipped {
		t.Error("the claim says that nothing is skipped")
	}
	events, err := f.LoadClaim(c)
	if err != nil || len(events) != 3 || events[0].Skipped == nil || events[1].Skipped != nil {
		t.Fatalf("loaded %+v, %v", events, err)
	}
	page, err := f.Events(f.Ctx, "a", 0, 10)
	for i, e := range page.Items {
		if (e.Skipped != nil) != (i == 1) {
			t.Errorf("event %d says %+v of being skipped (%v)", e.Seq, e.Skipped, err)
		}
	}
	f.MustApply(c, c.Last)
	f.MustSettle(one, store.Result{Claim: c, Applied: c.Last})
	skip := f.SkipLedger("a")[0]
	if skip.AppliedAt == nil || *skip.AppliedAt != f.Clock.Now() {
		t.Errorf("the skip is %+v, want it applied now", skip)
	}
	f.WantMarks(fmt.Sprint("a 2 ", skip.ID))
	f.AppendN("a", 1)
	if c := f.ClaimOne(one, 10); c.Unskipped {
		t.Error("a later claim says that nothing is skipped")
	}
	if sum, err := f.Summary(f.Ctx); err != nil || sum.Campaigns.Skips != 1 {
		t.Errorf("the summary counts %d skips (%v)", sum.Campaigns.Skips, err)
	}
}

func TestSkipEvent_isRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*outbox.Order)
		scene  func(*fixture)
		seq    int64
		kind   error
		say    []string
	}{
		"without a reason":      {change: func(o *outbox.Order) { o.Reason = " " }, kind: outbox.ErrInvalid, say: []string{"reason"}},
		"without the phrase":    {change: func(o *outbox.Order) { o.Confirm = "" }, kind: outbox.ErrInvalid, say: []string{`type: skip a 1`}},
		"with another's phrase": {change: func(o *outbox.Order) { o.Confirm = "skip a 2" }, kind: outbox.ErrInvalid, say: []string{`type: skip a 1`}},
		"behind the head":       {seq: 2, kind: outbox.ErrConflict, say: []string{"pending and waits behind event 1"}},
		"dead behind the head": {scene: func(f *fixture) {
			f.requeue("a", 1)
			f.Exec(`update projection_apply_outbox set status = 'dead' where seq = 2`)
			f.Exec(`update campaigns set dead = 1, pending = 2`)
		}, seq: 2, kind: outbox.ErrConflict, say: []string{"dead and waits behind event 1"}},
		"of no such event":       {seq: 9, kind: outbox.ErrNotFound, say: []string{"no event 9"}},
		"twice":                  {scene: func(f *fixture) { f.MustSkip("a", 1) }, kind: outbox.ErrConflict, say: []string{"is pending", "skip by scene"}},
		"when it is being tried": {scene: func(f *fixture) { f.requeue("a", 1); f.MustClaim(one, 9) }, kind: outbox.ErrConflict, say: []string{"is processing"}},
		"when it is applied":     {scene: func(f *fixture) { f.requeue("a", 1); f.Drain() }, kind: outbox.ErrNotFound, say: []string{"is applied"}},
		"when it has changed": {change: func(o *outbox.Order) { o.Expected = &outbox.Expected{AttemptCount: new(1)} },
			kind: outbox.ErrConflict, say: []string{"has changed since you looked", "8 failed attempts, not 1"}},
		"when somebody applies on the request path": {scene: func(f *fixture) {
			f.requeue("a", 1)
			f.claimInline(two, "a")
		}, kind: outbox.ErrConflict, say: []string{"is processing"}},
		"when it was applied after all": {scene: func(f *fixture) { f.SetWatermark("a", 1, 99) }, kind: outbox.ErrConflict, say: []string{"applied already"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.DieAt(3, 1)
			if c.scene != nil {
				c.scene(f)
			}
			seq := seqOr(c.seq, 1)
			o := storetest.ToSkip(ana(""), "a", seq)
			if c.change != nil {
				c.change(&o)
			}
			f.Unchanged(func() {
				_, err := f.SkipEvent(f.Ctx, o, "a", seq)
				refused(t, err, c.kind, c.say...)
			})
		})
	}
}

func seqOr(seq, otherwise int64) int64 {
	if seq == 0 {
		return otherwise
	}
	return seq
}

func (f *fixture) requeue(campaign string, seq int64) {
	f.TB.Helper()
	if _, err := f.RequeueRow(f.Ctx, outbox.Order{By: outbox.Operator{Name: "scene"}}, campaign, seq); err != nil {
		f.TB.Fatal(err)
	}
}

// A head may have died of processes that died. One of them may only have slept:
// it read the event before the skip, and must not apply it when it wakes.
func TestSkipEvent_fencesOffWhoeverClaimedBefore(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 3)
	f.crash(one, 3)
	f.crash(one, 3)
	sleeper := f.crash(one, 3)
	f.NoClaim(two)
	if c := f.MustCampaign("a"); c.HeadStatus != outbox.Dead {
		t.Fatalf("campaign is %+v, want its head dead", c)
	}
	f.MustSkip("a", 1)
	if reached, err := f.ApplyClaim(sleeper, 1); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("the sleeper reached %d, %v, want it fenced off", reached, err)
	}
	f.PassOver()
	f.Drain()
	f.WantMarks(fmt.Sprint("a 1 ", f.SkipLedger("a")[0].ID))
	f.Sound()
}

func TestSkipEvent_ofTwoAtOnceOneWins(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(3, 1)
	beside := f.beside()
	errs := make(chan error, 2)
	for _, s := range []*fixture{f, beside} {
		go func() {
			_, err := s.SkipEvent(f.Ctx, storetest.ToSkip(ana(""), "a", 1), "a", 1)
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), outbox.ErrConflict) {
		t.Errorf("got %v and %v, want one success and one conflict", first, second)
	}
	if len(f.SkipLedger("a")) != 1 {
		t.Errorf("the ledger is %+v", f.SkipLedger("a"))
	}
	f.Sound()
}

// The projections have passed over the event, and its worker dies before it
// settles.
func TestReconcile_notesThatASkipIsApplied(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(3, 1)
	f.MustSkip("a", 1)
	f.MustApply(f.ClaimOne(one, 1), 1)
	f.Clock.Advance(lease)
	if _, err := f.Reconcile(f.Ctx); err != nil {
		t.Fatal(err)
	}
	if skip := f.SkipLedger("a")[0]; skip.AppliedAt == nil {
		t.Errorf("the skip is %+v, want it applied", skip)
	}
	f.MustBeReconciled()
	f.Sound()
	// And the other way round: the projections are those of an earlier day.
	f.ExecProjections(`delete from projection_watermarks`)
	f.ExecProjections(`delete from watermark_skips`)
	if _, err := f.Reconcile(f.Ctx); err != nil {
		t.Fatal(err)
	}
	if skip := f.SkipLedger("a")[0]; skip.AppliedAt != nil {
		t.Errorf("the skip is %+v, want it not applied yet", skip)
	}
	f.MustBeReconciled()
	f.Sound()
	f.Drain()
	f.WantMarks(fmt.Sprint("a 1 ", f.SkipLedger("a")[0].ID))
	f.Sound()
}

func TestSkips_thatTheProjectionsContradictDivergeAndAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(*fixture)
		say  string
	}{
		"applied although skipped":    {func(f *fixture) { f.ExecProjections(`delete from watermark_skips`) }, "event 2 is skipped, and the projections did not pass over it"},
		"passed over without a skip":  {func(f *fixture) { f.Exec(`update skips set undone_at = 1`); f.Exec(`update campaigns set skips = 0`) }, "the projections passed over event 2"},
		"passed over for another one": {func(f *fixture) { f.ExecProjections(`update watermark_skips set skip_id = 99`) }, "the projections passed over event 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.DieAt(4, 2)
			f.MustSkip("a", 2)
			f.Drain()
			f.Sound()
			c.harm(f)
			report, err := f.Check(f.Ctx, storetest.Quiet)
			if err != nil || len(report.Violations) != 1 {
				t.Fatalf("check found %+v (%v), want one violation", report.Violations, err)
			}
			if v := report.Violations[0]; v.Invariant != "skips" || v.Seq != 2 || !strings.Contains(v.Detail, c.say) {
				t.Errorf("check found %+v", v)
			}
			f.MustReconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
			if got := f.MustCampaign("a").Diverged; !strings.Contains(got, c.say) {
				t.Errorf("diverged: %q", got)
			}
			f.MustBeReconciled()
		})
	}
}

func TestCheck_findsSkipsThatAreCountedWrongOrAppliedTooEarly(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.Exec(`update campaigns set skips = 2`)
	f.Exec(`update skips set applied_at = 1`)
	report, err := f.Check(f.Ctx, storetest.Quiet)
	if err != nil || len(report.Violations) != 2 || report.Violations[0].Invariant != "skips" || report.Violations[1].Invariant != "campaign_row" {
		t.Errorf("check found %+v (%v)", report.Violations, err)
	}
	if found := f.SelfCheckAll(); len(found) != 1 || !found[0].Drifted {
		t.Errorf("the self-check found %+v, want one that drifted", found)
	}
	f.Exact("a")
	f.Sound()
	f.Exec(`update campaigns set skips = 0`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1})
	f.Exact("a")
}

func TestSkips_arePagedNewestFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	for seq := range int64(3) {
		f.Kill("a")
		f.MustSkip("a", seq+1)
		f.PassOver()
	}
	if _, err := f.UnskipEvent(f.Ctx, ana(""), "a", 3); err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	filter := outbox.SkipFilter{CampaignID: "a", Limit: 2}
	for {
		page, err := f.Skips(f.Ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page.Items {
			seqs = append(seqs, k.Seq)
		}
		if page.NextCursor == nil {
			break
		}
		filter.Cursor = *page.NextCursor
	}
	if diff := cmp.Diff([]int64{3, 2, 1}, seqs); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
	_, err := f.Skips(f.Ctx, outbox.SkipFilter{CampaignID: "nobody"})
	refused(t, err, outbox.ErrNotFound, "nobody")
}

func TestSQLiteBackup_carriesWhatIsSkippedAndWhatWasPassedOver(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(4, 2)
	old, current, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "current"), t.TempDir()
	if err := f.Backup(f.Ctx, old, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	f.MustSkip("a", 2)
	f.PassOver()
	f.Drain()
	if err := f.Backup(f.Ctx, current, storetest.Quiet); err != nil {
		t.Fatal(err)
	}
	marks := f.Marks()
	for name, days := range map[string]struct{ journal, projections string }{
		"both of one day":                     {current, current},
		"projections from before the skip":    {current, old},
		"journal from before the passed over": {old, current},
	} {
		from, restored := t.TempDir(), filepath.Join(to, name)
		for file, dir := range map[string]string{"journal.db": days.journal, "projections.db": days.projections} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(from, file), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := f.restore(from, restored); err != nil {
			t.Fatal(err)
		}
		r := openPair(t, dbtest.Files(restored), f.Clock)
		if days.journal == old {
			if c := r.MustCampaign("a"); !strings.Contains(c.Diverged, "the projections passed over event 2") {
				t.Errorf("%s: campaign is %+v, want it diverged", name, c)
			}
			continue
		}
		r.Sound()
		r.Drain()
		r.Sound()
		if len(r.SkipLedger("a")) != 1 || r.MustCampaign("a").AppliedSeq != 4 {
			t.Errorf("%s: the ledger is %+v, campaign %+v", name, r.SkipLedger("a"), r.MustCampaign("a"))
		}
		r.WantMarks(marks...)
	}
}

// A backup copies the projections first, and skips may be taken back before it
// comes to the journal.
func TestReconcile_takesBackInTheProjectionsWhatTheJournalNoLongerSkips(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.PassOver()
	f.Kill("a")
	f.MustSkip("a", 3)
	f.PassOver()
	f.Exec(`update skips set undone_at = 1`)
	f.Exec(`update campaigns set skips = 0`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Inserted: 2})
	if w := f.MustWatermark("a"); w.AppliedSeq != 1 {
		t.Errorf("the watermark is %+v, want it before both events", w)
	}
	f.WantMarks()
	f.MustBeReconciled()
	f.Sound()
	f.Drain()
	f.WantMarks()
	f.Sound()
}

func TestReconcile_ofAnotherJournalTakesNothingBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.PassOver()
	f.Exec(`update skips set undone_at = 1`)
	f.Exec(`update campaigns set skips = 0`)
	f.ExecProjections(`update projection_watermarks set applied_hash = 'x'`)
	f.AppendN("b", 1)
	f.LoseRows("b", "true")
	f.MustReconcile(outbox.Repaired{Campaigns: 2, Inserted: 1, Diverged: 1})
	if c := f.MustCampaign("a"); !strings.Contains(c.Diverged, "an event 2 that the journal does not have") || f.MustWatermark("a").AppliedSeq != 2 {
		t.Errorf("campaign is %+v, its watermark %+v", c, f.MustWatermark("a"))
	}
	f.MustBeReconciled()
}
