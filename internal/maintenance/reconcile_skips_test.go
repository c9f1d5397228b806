package maintenance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// The projections have skipped over the event, and its worker dies before it settles.
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
	// The reverse: the projections are older than the journal.
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
		"applied although skipped":    {func(f *fixture) { f.ExecProjections(`delete from watermark_skips`) }, "event 2 is skipped, but the projections did not skip it"},
		"passed over without a skip":  {func(f *fixture) { f.Exec(`update skips set undone_at = 1`); f.Exec(`update campaigns set skips = 0`) }, "the projections skipped event 2"},
		"passed over for another one": {func(f *fixture) { f.ExecProjections(`update watermark_skips set skip_id = 99`) }, "the projections skipped event 2"},
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

// A backup copies the projections first, and a skip may be reverted before it copies the
// journal.
func TestReconcile_takesBackInTheProjectionsWhatTheJournalNoLongerSkips(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.SkipTwo()
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
