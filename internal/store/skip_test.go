package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
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
		change func(*outbox.Command)
		scene  func(*fixture)
		seq    int64
		kind   error
		say    []string
	}{
		"without a reason":      {change: func(o *outbox.Command) { o.Reason = " " }, kind: outbox.ErrInvalid, say: []string{"reason"}},
		"without the phrase":    {change: func(o *outbox.Command) { o.Confirm = "" }, kind: outbox.ErrInvalid, say: []string{`type: skip a 1`}},
		"with another's phrase": {change: func(o *outbox.Command) { o.Confirm = "skip a 2" }, kind: outbox.ErrInvalid, say: []string{`type: skip a 1`}},
		"behind the head":       {seq: 2, kind: outbox.ErrConflict, say: []string{"pending and waits behind event 1"}},
		"dead behind the head": {scene: func(f *fixture) {
			f.MustRequeue("a", 1)
			f.Exec(`update projection_apply_outbox set status = 'dead' where seq = 2`)
			f.Exec(`update campaigns set dead = 1, pending = 2`)
		}, seq: 2, kind: outbox.ErrConflict, say: []string{"dead and waits behind event 1"}},
		"of no such event":       {seq: 9, kind: outbox.ErrNotFound, say: []string{"no event 9"}},
		"twice":                  {scene: func(f *fixture) { f.MustSkip("a", 1) }, kind: outbox.ErrConflict, say: []string{"is pending", "skip by scene"}},
		"when it is being tried": {scene: func(f *fixture) { f.MustRequeue("a", 1); f.MustClaim(one, 9) }, kind: outbox.ErrConflict, say: []string{"is processing"}},
		"when it is applied":     {scene: func(f *fixture) { f.MustRequeue("a", 1); f.Drain() }, kind: outbox.ErrNotFound, say: []string{"is already applied"}},
		"when it has changed": {change: func(o *outbox.Command) { o.Expected = &outbox.Expected{AttemptCount: new(1)} },
			kind: outbox.ErrConflict, say: []string{"has changed since this page was loaded", "8 failed attempts, not 1"}},
		"when somebody applies on the request path": {scene: func(f *fixture) {
			f.MustRequeue("a", 1)
			f.claimInline(two, "a")
		}, kind: outbox.ErrConflict, say: []string{"is processing"}},
		"when it was applied after all": {scene: func(f *fixture) { f.SetWatermark("a", 1, 99) }, kind: outbox.ErrConflict, say: []string{"already applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, impatient)
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

func TestSkips_arePagedNewestFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	for seq := range int64(3) {
		f.Kill("a")
		f.MustSkip("a", seq+1)
		f.PassOver()
	}
	f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 3))
	var seqs []int64
	filter := outbox.SkipFilter{CampaignID: "a", Limit: 2}
	for {
		page := must.Get(f.Skips(f.Ctx, filter)).Or(t)
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
