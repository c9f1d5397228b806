package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// deadRows is a store with dead heads that died in the order d, c, b, a, with two event types
// and two errors among them, and rows waiting behind them.
func deadRows(t *testing.T) *fixture {
	t.Helper()
	f := open(t, storetest.MaxAttempts(1))
	for i, id := range []string{"d", "c", "b", "a"} {
		f.MustAppend(append([]outbox.Event{storetest.Event(id, []string{"counted", "weighed"}[i%2])}, slices.Repeat([]outbox.Event{storetest.Event(id, "counted")}, i)...)...)
		c := f.ClaimOne(one, 1)
		f.MustSettle(one, store.Result{Claim: c, Applied: 0, Failure: storetest.Failure(fmt.Sprintf("%s failed at %d", []string{"this", "that"}[i/2], i))})
		f.Clock.Advance(time.Second)
	}
	f.AppendN("e", 2)
	return f
}

func TestRequeueDead_takesThoseThatDiedFirst(t *testing.T) {
	t.Parallel()
	f := deadRows(t)
	got, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{Limit: 2})
	if want := (outbox.Requeued{Requeued: 2, Heads: 2, Released: 1}); err != nil || got != want {
		t.Errorf("requeued %+v, %v, want %+v", got, err, want)
	}
	left := storetest.Texts(t, f.JournalDB, `select campaign_id from projection_apply_outbox where status = 'dead' order by 1`)
	if diff := cmp.Diff([]string{"a", "b"}, left); diff != "" {
		t.Errorf("still dead (-want +got):\n%s", diff)
	}
	for _, id := range []string{"c", "d"} {
		if r := f.MustRow(id, 1).Row; r.Status != outbox.Pending || r.AttemptCount != 0 || r.NextAttemptAt != f.Clock.Now() {
			t.Errorf("row is %+v", r)
		}
	}
	f.Sound()
}

func TestRequeueDead_equalsItsPreviewForEveryFilter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		filter outbox.RequeueFilter
		want   outbox.Requeued
	}{
		"all":                   {outbox.RequeueFilter{}, outbox.Requeued{Requeued: 4, Heads: 4, Released: 6}},
		"campaign":              {outbox.RequeueFilter{CampaignID: "a"}, outbox.Requeued{Requeued: 1, Heads: 1, Released: 3}},
		"campaign without":      {outbox.RequeueFilter{CampaignID: "e"}, outbox.Requeued{}},
		"event type":            {outbox.RequeueFilter{EventType: "weighed"}, outbox.Requeued{Requeued: 2, Heads: 2, Released: 4}},
		"fingerprint":           {outbox.RequeueFilter{Fingerprint: "that failed at #"}, outbox.Requeued{Requeued: 2, Heads: 2, Released: 5}},
		"limit":                 {outbox.RequeueFilter{Limit: 3}, outbox.Requeued{Requeued: 3, Heads: 3, Released: 3}},
		"a campaign's own type": {outbox.RequeueFilter{CampaignID: "a", EventType: "weighed"}, outbox.Requeued{Requeued: 1, Heads: 1, Released: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := deadRows(t)
			got, err := f.RequeueDead(f.Ctx, ana(""), c.filter)
			if err != nil || got != c.want {
				t.Errorf("requeued %+v, %v, want %+v", got, err, c.want)
			}
			if left := f.CountRows(outbox.Dead); left != 4-c.want.Requeued {
				t.Errorf("%d rows are dead still", left)
			}
			if acts := f.DoneActions(); len(acts) != 1 || acts[0].Action != "requeue_many" {
				t.Errorf("audit records are %+v, want one", acts)
			}
			f.Sound()
		})
	}
}

func TestRequeueDead_countsARowThatIsNoHead(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.Exec(`update projection_apply_outbox set status = 'dead', attempt_count = 8 where seq = 3`)
	f.Exec(`update campaigns set dead = 2, pending = 1`)
	got, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{})
	if want := (outbox.Requeued{Requeued: 2, Heads: 1, Released: 2}); err != nil || got != want {
		t.Errorf("requeued %+v, %v, want %+v", got, err, want)
	}
	f.Sound()
}

func TestRequeueDead_refusesWhatItCannotBound(t *testing.T) {
	t.Parallel()
	f := deadRows(t)
	f.Unchanged(func() {
		for _, limit := range []int{-1, 10_001} {
			_, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{Limit: limit})
			if r := refused(t, err, outbox.ErrInvalid, "10000"); r.Field != "limit" {
				t.Errorf("the refusal is about %q", r.Field)
			}
		}
		_, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{CampaignID: "unknown"})
		refused(t, err, outbox.ErrNotFound, `"unknown"`)
	})
}

func TestActions_needAReasonFromTheReachTheyWereToldOf(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1), func(o *store.Options) { o.ReasonFrom = 3 })
	f.AppendN("few", 3)
	f.Kill("few")
	f.AppendN("many", 4)
	f.Kill("many")
	if _, err := f.RequeueRow(f.Ctx, ana(""), "few", 1); err != nil {
		t.Errorf("two rows are released: %v", err)
	}
	f.Unchanged(func() {
		_, err := f.RequeueRow(f.Ctx, ana(" "), "many", 1)
		refused(t, err, outbox.ErrInvalid, "releases 3 rows; actions that release 3 or more require a reason")
		_, err = f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{})
		refused(t, err, outbox.ErrInvalid, "releases 3 rows")
		_, err = f.Operations.Start(f.Ctx, ana(""), outbox.OperationRequest{})
		refused(t, err, outbox.ErrInvalid, "releases 3 rows")
	})
	if _, err := f.RequeueRow(f.Ctx, ana("mended"), "many", 1); err != nil {
		t.Error(err)
	}
	f = f.beside(func(o *store.Options) { o.ReasonFrom = 1 })
	for i, act := range []func(outbox.Command) error{
		func(o outbox.Command) error { _, err := f.PauseCampaign(f.Ctx, o, "few"); return err },
		func(o outbox.Command) error { _, err := f.ResumeCampaign(f.Ctx, o, "few"); return err },
		func(o outbox.Command) error { _, err := f.ReplayCampaign(f.Ctx, o, "few"); return err },
		func(o outbox.Command) error { _, err := f.RepairGaps(f.Ctx, o); return err },
	} {
		refused(t, act(ana("")), outbox.ErrInvalid, "every action requires a reason")
		if err := act(ana("because")); err != nil {
			t.Errorf("act %d with a reason: %v", i, err)
		}
	}
}

func TestRequeueDead_ofWideReachIsConfirmed(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	for id, rows := range map[string]int{"a": 1002, "b": 3} {
		f.AppendN(id, rows)
		f.Kill(id)
	}
	o := ana("mended")
	f.Unchanged(func() {
		for _, o.By.Via = range []string{"page", "api", "cli"} {
			for _, o.Confirm = range []string{"", "requeue 1 rows", "release 1003 rows"} {
				_, err := f.RequeueDead(f.Ctx, o, outbox.RequeueFilter{})
				if r := refused(t, err, outbox.ErrInvalid, "requeues 2 rows and releases 1,003", "type: requeue 2 rows"); r.Field != "confirm" || r.Confirm != "requeue 2 rows" {
					t.Errorf("by %s: the refusal is about %q and wants %q", o.By.Via, r.Field, r.Confirm)
				}
			}
		}
	})
	if done, err := f.RequeueDead(f.Ctx, ana("mended"), outbox.RequeueFilter{CampaignID: "b"}); err != nil || done.Requeued != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	o.Confirm = " requeue 1 rows "
	if done, err := f.RequeueDead(f.Ctx, o, outbox.RequeueFilter{}); err != nil || done.Released != 1001 {
		t.Errorf("%+v, %v", done, err)
	}
}

// Events keep arriving while the operator types: a few more must not invalidate the phrase.
func TestRequeueRow_takesThePhraseOfAMomentAgo(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 1002)
	f.Kill("a")
	o := ana("mended")
	o.By.Via, o.Confirm = "page", "release 1001 rows"
	f.AppendN("a", 101)
	f.Unchanged(func() {
		_, err := f.RequeueRow(f.Ctx, o, "a", 1)
		refused(t, err, outbox.ErrInvalid, "type: release 1102 rows")
		o.Confirm = "release 1001 rows or so"
		_, err = f.RequeueRow(f.Ctx, o, "a", 1)
		refused(t, err, outbox.ErrInvalid, "type: release 1102 rows")
	})
	o.Confirm = "release 1002 rows"
	if _, err := f.RequeueRow(f.Ctx, o, "a", 1); err != nil {
		t.Error(err)
	}
}

// A retry only brings forward what happens anyway, and a skip has its own phrase.
func TestPageActions_ofWideReachAskForNoOtherPhraseThanTheirOwn(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(2), func(o *store.Options) { o.ReasonFrom = 1000 })
	f.AppendN("a", 1002)
	c := f.ClaimOne(one, 1)
	f.MustSettle(one, store.Result{Claim: c, Failure: storetest.Failure("no such thing")})
	o := outbox.Command{By: outbox.Operator{Name: "ana", Via: "page"}}
	if _, err := f.RetryRow(f.Ctx, o, "a", 1); err != nil {
		t.Errorf("retry: %v", err)
	}
	if _, err := f.SkipEvent(f.Ctx, storetest.ToSkip(o, "a", 1), "a", 1); err != nil {
		t.Errorf("skip: %v", err)
	}
}

func TestRetryFailed_makesTheFailedHeadsOfAFilterDueNow(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(3))
	for _, id := range []string{"a", "b", "c"} {
		f.AppendN(id, 2)
		f.Fail(map[string]string{"a": "boom", "b": "boom", "c": "bang"}[id], id)
		f.MustPause(id)
	}
	for _, id := range []string{"a", "b", "c"} {
		f.must(f.ResumeCampaign(f.Ctx, ana(""), id))
	}
	f.NoClaim(one)
	got, err := f.RetryFailed(f.Ctx, ana("mended"), outbox.RequeueFilter{Fingerprint: "boom"})
	if err != nil || got.Retried != 2 {
		t.Fatalf("retried %+v, %v, want two", got, err)
	}
	claimed := f.MustClaim(one, 10)
	if len(claimed) != 2 || claimed[0].CampaignID != "a" || claimed[1].CampaignID != "b" || claimed[0].Attempts != 1 {
		t.Errorf("claimed %+v, want the heads of a and b with their attempts", claimed)
	}
	if r := f.MustRow("c", 1).Row; !r.NextAttemptAt.After(f.Clock.Now()) {
		t.Errorf("the row of another error is due at %s", r.NextAttemptAt)
	}
	if got, err := f.RetryFailed(f.Ctx, ana(""), outbox.RequeueFilter{Fingerprint: "boom"}); err != nil || got.Retried != 0 {
		t.Errorf("rows that are being applied: %+v, %v, want none", got, err)
	}
	f.Sound()
}
