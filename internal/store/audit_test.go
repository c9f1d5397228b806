package store_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// kinds are all operator actions of the store.
var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture },
	Beside: func(f *fixture) *fixture { return f.beside() }, All: []storetest.Kind[*fixture]{
		{Action: "requeue", Scene: (*fixture).DeadHead,
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.RequeueRow(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.CountRows(outbox.Dead) == 1 }},
		{Action: "requeue_many", Scene: (*fixture).DeadHead,
			Do: func(f *fixture, o outbox.Command) (any, error) {
				return f.RequeueDead(f.Ctx, o, outbox.RequeueFilter{CampaignID: "a"})
			},
			Undone: func(f *fixture) bool { return f.CountRows(outbox.Dead) == 1 }},
		{Action: "retry", Scene: func(f *fixture) { f.AppendN("a", 3); f.Fail("boom", "a") },
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.RetryRow(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.MustRow("a", 1).Row.NextAttemptAt != f.Clock.Now() }},
		{Action: "dead_letter", Scene: func(f *fixture) { f.AppendN("a", 3); f.Fail("boom", "a") },
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.DeadLetterRow(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.CountRows(outbox.Failed) == 1 }},
		{Action: "pause", Scene: func(f *fixture) { f.AppendN("a", 3) },
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.PauseCampaign(f.Ctx, o, "a") },
			Undone: func(f *fixture) bool { return f.MustCampaign("a").Paused == nil }},
		{Action: "resume", Scene: func(f *fixture) { f.AppendN("a", 3); f.MustPause("a") },
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.ResumeCampaign(f.Ctx, o, "a") },
			Undone: func(f *fixture) bool { return f.MustCampaign("a").Paused != nil }},
		{Action: "replay", Scene: (*fixture).Gap,
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.ReplayCampaign(f.Ctx, o, "a") },
			Undone: func(f *fixture) bool { return f.CountRows(outbox.Pending) == 0 }},
		{Action: "skip", Scene: (*fixture).DeadHead,
			Do: func(f *fixture, o outbox.Command) (any, error) {
				return f.SkipEvent(f.Ctx, storetest.ToSkip(o, "a", 1), "a", 1)
			},
			Undone: func(f *fixture) bool { return f.CountRows(outbox.Dead) == 1 && f.MustCampaign("a").Skips == 0 }},
		{Action: "unskip", Scene: func(f *fixture) { f.DeadHead(); f.MustSkip("a", 1) },
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.UnskipEvent(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.MustCampaign("a").Skips == 1 }},
		{Action: "retry_many", Scene: func(f *fixture) { f.AppendN("a", 3); f.Fail("boom", "a") },
			Do: func(f *fixture, o outbox.Command) (any, error) {
				return f.RetryFailed(f.Ctx, o, outbox.RequeueFilter{Fingerprint: "boom"})
			},
			Undone: func(f *fixture) bool { return f.MustRow("a", 1).Row.NextAttemptAt != f.Clock.Now() }},
		{Action: "note_errors", Scene: (*fixture).DeadHead,
			Do: func(f *fixture, o outbox.Command) (any, error) {
				return f.SetGroupNote(f.Ctx, o, "no such thing", "the disk was full")
			},
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from group_notes`) == 0 }},
	}}

func TestAction_keepsTheRules(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestAction_onAStaleViewIsRefusedWithWhatChangedAndWho(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.must(f.RequeueRow(f.Ctx, ana(""), "a", 1))
	f.Clock.Advance(4 * time.Second)
	seen := func(e outbox.Expected) outbox.Command {
		o := outbox.Command{By: outbox.Operator{Name: "bob"}, Expected: &e}
		return o
	}
	f.Unchanged(func() {
		_, err := f.RequeueRow(f.Ctx, seen(outbox.Expected{Status: outbox.Dead}), "a", 1)
		refused(t, err, outbox.ErrConflict, "has changed since this page was loaded", "status is pending, not dead", "requeue by ana 4 s ago")
		_, err = f.RequeueRow(f.Ctx, seen(outbox.Expected{AttemptCount: new(8)}), "a", 1)
		refused(t, err, outbox.ErrConflict, "0 failed attempts, not 8", "ana")
		_, err = f.RetryRow(f.Ctx, seen(outbox.Expected{HeadSeq: 2}), "a", 1)
		refused(t, err, outbox.ErrConflict, "the head is event 1, not 2")
		_, err = f.RequeueRow(f.Ctx, ana(""), "a", 1)
		refused(t, err, outbox.ErrConflict, "is pending, not dead", "requeue by ana 4 s ago")
		for _, act := range []func(outbox.Command) error{
			func(o outbox.Command) error { _, err := f.PauseCampaign(f.Ctx, o, "a"); return err },
			func(o outbox.Command) error { _, err := f.ResumeCampaign(f.Ctx, o, "a"); return err },
			func(o outbox.Command) error { _, err := f.ReplayCampaign(f.Ctx, o, "a"); return err },
		} {
			refused(t, act(seen(outbox.Expected{HeadSeq: 2})), outbox.ErrConflict, `campaign "a" has changed`, "the head is event 1, not 2")
			refused(t, act(seen(outbox.Expected{Status: outbox.Dead})), outbox.ErrConflict, "status is pending, not dead")
		}
	})
	if _, err := f.PauseCampaign(f.Ctx, seen(outbox.Expected{Status: outbox.Pending, HeadSeq: 1}), "a"); err != nil {
		t.Errorf("a view that is still right: %v", err)
	}
}

// A row that was requeued and is dead again, with as many attempts as before, is not the one that
// the operator saw.
func TestAction_onARowThatDiedAgainIsRefused(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	seen := f.MustRow("a", 1).Row
	f.Clock.Advance(time.Minute)
	f.must(f.RequeueRow(f.Ctx, ana(""), "a", 1))
	f.Kill("a")
	again := f.MustRow("a", 1).Row
	if again.Status != seen.Status || again.AttemptCount != seen.AttemptCount {
		t.Fatalf("the row was %+v and is %+v", seen, again)
	}
	o := ana("")
	o.Expected = &outbox.Expected{Status: outbox.Dead, AttemptCount: &seen.AttemptCount, UpdatedAt: &seen.UpdatedAt}
	f.Unchanged(func() {
		_, err := f.RequeueRow(f.Ctx, o, "a", 1)
		refused(t, err, outbox.ErrConflict, "has changed since this page was loaded", "it became dead again at ", "requeue by ana")
	})
	o.Expected.UpdatedAt = &again.UpdatedAt
	if _, err := f.RequeueRow(f.Ctx, o, "a", 1); err != nil {
		t.Error(err)
	}
}

func TestRequeueRow_setsADeadRowBackWithoutAttemptsDueNow(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	woken := false
	f.OnWork(func() { woken = true })
	o := ana("mended")
	o.Expected = &outbox.Expected{Status: outbox.Dead, AttemptCount: new(8), HeadSeq: 1}
	r := must.Get(f.RequeueRow(f.Ctx, o, "a", 1)).Or(t)
	if r.Status != outbox.Pending || r.AttemptCount != 0 || r.NextAttemptAt != f.Clock.Now() || !r.IsHead || r.BlockedBehind != 2 || r.EnqueuedAt != began {
		t.Errorf("row is %+v", r)
	}
	if !woken {
		t.Error("nobody was woken")
	}
	act := f.DoneActions()[0]
	if act.Seq != 1 || !strings.Contains(string(act.Before), `"dead"`) || !strings.Contains(string(act.After), `"pending"`) {
		t.Errorf("audit record is %+v", act)
	}
	if d := f.MustRow("a", 1); len(d.Attempts) != 8 || len(d.Activity) != 1 {
		t.Errorf("the row's page has %d attempts and %d acts, want the history kept", len(d.Attempts), len(d.Activity))
	}
	f.Drain()
	f.Sound()
}

func TestRequeueRow_touchesOnlyDeadRows(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("applied", 1)
	f.Drain()
	f.AppendN("failed", 2)
	f.Fail("boom", "failed")
	f.AppendN("processing", 1)
	f.ClaimOne(one, 1)
	f.AppendN("pending", 1)
	f.AppendN("gone", 2)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'gone' and seq = 1`)
	f.Unchanged(func() {
		for _, c := range []struct {
			campaign string
			seq      int64
			kind     error
			sentence string
		}{
			{"failed", 1, outbox.ErrConflict, "is failed, not dead"},
			{"failed", 2, outbox.ErrConflict, "is pending, not dead"},
			{"processing", 1, outbox.ErrConflict, "is processing, not dead"},
			{"pending", 1, outbox.ErrConflict, "is pending, not dead"},
			{"applied", 1, outbox.ErrNotFound, "it is already applied"},
			{"gone", 1, outbox.ErrNotFound, "replay the campaign to enqueue it"},
			{"pending", 2, outbox.ErrNotFound, "no event 2"},
			{"pending", 0, outbox.ErrNotFound, "no event 0"},
			{"unknown", 1, outbox.ErrNotFound, `there is no campaign "unknown"`},
		} {
			_, err := f.RequeueRow(f.Ctx, ana(""), c.campaign, c.seq)
			refused(t, err, c.kind, c.sentence)
		}
	})
}

func TestRequeueRow_ofManyAtOnceExactlyOneWins(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	others := f.beside()
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		s := f
		if i%2 == 1 {
			s = others
		}
		wg.Go(func() {
			_, err := s.RequeueRow(f.Ctx, ana(""), "a", 1)
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, outbox.ErrConflict) {
				t.Errorf("got error %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || len(f.DoneActions()) != 1 {
		t.Errorf("%d won and %d records were left, want one", won.Load(), len(f.DoneActions()))
	}
	f.Sound()
}

func TestRetryRow_makesAFailedHeadDueNowAndKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	for range 3 {
		f.Fail("boom", "a")
		f.Clock.Advance(4 * time.Second)
	}
	f.Fail("boom", "a")
	r, err := f.RetryRow(f.Ctx, ana(""), "a", 1)
	if err != nil || r.Status != outbox.Failed || r.AttemptCount != 4 || r.NextAttemptAt != f.Clock.Now() {
		t.Errorf("row is %+v, %v", r, err)
	}
	f.Sound()
	f.Fail("boom", "a")
	if r := f.MustRow("a", 1).Row; r.AttemptCount != 5 {
		t.Errorf("row is %+v, want its fifth attempt", r)
	}
}

func TestRetryRow_touchesOnlyAFailedHead(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.AppendN("b", 2)
	f.Fail("boom", "b")
	f.Exec(`update projection_apply_outbox set status = 'failed' where campaign_id = 'b' and seq = 2`)
	f.Unchanged(func() {
		for _, c := range []struct {
			campaign string
			seq      int64
			kind     error
		}{{"a", 1, outbox.ErrConflict}, {"a", 2, outbox.ErrConflict}, {"b", 2, outbox.ErrConflict}, {"b", 9, outbox.ErrNotFound}, {"c", 1, outbox.ErrNotFound}} {
			_, err := f.RetryRow(f.Ctx, ana(""), c.campaign, c.seq)
			refused(t, err, c.kind)
		}
	})
}

func TestPause_keepsWorkersOffUntilResume(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	c, err := f.PauseCampaign(f.Ctx, ana("the rules are wrong"), "a")
	if err != nil || c.Paused == nil || c.Paused.By != "ana" || c.Paused.Reason != "the rules are wrong" || c.Paused.At != began || c.State() != outbox.StatePaused {
		t.Fatalf("campaign is %+v, %v", c, err)
	}
	f.AppendN("a", 1)
	f.NoClaim(one)
	f.Unchanged(func() {
		_, err := f.PauseCampaign(f.Ctx, ana(""), "a")
		refused(t, err, outbox.ErrConflict, "already paused", "pause by ana")
	})
	f.Sound()
	if c, err = f.ResumeCampaign(f.Ctx, ana(""), "a"); err != nil || c.Paused != nil {
		t.Fatalf("campaign is %+v, %v", c, err)
	}
	f.Unchanged(func() {
		_, err := f.ResumeCampaign(f.Ctx, ana(""), "a")
		refused(t, err, outbox.ErrConflict, "is not paused", "resume by ana")
		_, err = f.PauseCampaign(f.Ctx, ana(""), "b")
		refused(t, err, outbox.ErrNotFound, `"b"`)
		_, err = f.ResumeCampaign(f.Ctx, ana(""), "b")
		refused(t, err, outbox.ErrNotFound, `"b"`)
	})
	if c := f.ClaimOne(one, 10); c.Last != 3 {
		t.Errorf("claim is %+v", c)
	}
}

func TestAction_isReadByItsID(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	for range 2 {
		f.must(f.PauseCampaign(f.Ctx, ana("first"), "a"))
		f.must(f.ResumeCampaign(f.Ctx, ana("second"), "a"))
	}
	for _, want := range f.DoneActions() {
		if got, err := f.AuditEntry(f.Ctx, want.ID); err != nil || !cmp.Equal(got, want) {
			t.Errorf("act %d is %+v, %v, want %+v", want.ID, got, err, want)
		}
	}
	for _, id := range []int64{-1, 0, 5, math.MaxInt64} {
		_, err := f.AuditEntry(f.Ctx, id)
		refused(t, err, outbox.ErrNotFound, "no audit record")
	}
}

// A key reused for another request must not return the first result, even where the difference
// is not in the request's target.
func TestAction_keyForOtherContentIsRefused(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 6)
	keyed := func(key string) outbox.Command {
		o := ana("")
		o.IdempotencyKey = key
		return o
	}
	named := func(rows ...string) outbox.OperationRequest {
		var o outbox.OperationRequest
		for _, id := range rows {
			o.Rows = append(o.Rows, outbox.RowKey{CampaignID: id, Seq: 1})
		}
		return o
	}
	verify := func(projection string) outbox.RunRequest {
		return outbox.RunRequest{Kind: outbox.RunVerify, All: true, Projections: []string{projection}}
	}
	started := map[bool]int64{false: f.StartOperation(named(ids[4])).ID, true: f.StartOperation(named(ids[5])).ID}
	runs := map[bool]int64{false: f.StartRun(verify("roster")).ID, true: f.StartRun(verify("history")).ID}
	for name, act := range map[string]struct {
		says string
		do   func(second bool) error
	}{
		"requeue of many": {"different content", func(second bool) error {
			_, err := f.RequeueDead(f.Ctx, keyed("k-1"), outbox.RequeueFilter{CampaignID: ids[0], EventType: map[bool]string{false: "", true: "weighed"}[second]})
			return err
		}},
		"note": {"different content", func(second bool) error {
			_, err := f.SetGroupNote(f.Ctx, keyed("k-2"), "no such thing", map[bool]string{false: "known", true: "better known"}[second])
			return err
		}},
		"operation on a filter": {"different content", func(second bool) error {
			_, err := f.Operations.Start(f.Ctx, keyed("k-3"), outbox.OperationRequest{Canary: second, Selection: outbox.Selection{Filter: outbox.RequeueFilter{CampaignID: ids[2]}}})
			return err
		}},
		"operation on named rows": {"different content", func(second bool) error {
			_, err := f.Operations.Start(f.Ctx, keyed("k-4"), named(map[bool]string{false: ids[3], true: ids[1]}[second]))
			return err
		}},
		"retry of many": {"different content", func(second bool) error {
			_, err := f.RetryFailed(f.Ctx, keyed("k-5"), outbox.RequeueFilter{Fingerprint: map[bool]string{false: "x", true: "y"}[second]})
			return err
		}},
		"cancelled operation": {"used for operation 1", func(second bool) error {
			_, err := f.Operations.Cancel(f.Ctx, keyed("k-6"), started[second], "")
			return err
		}},
		"cancelled run": {"used for run 1", func(second bool) error {
			_, err := f.Runs.Cancel(f.Ctx, keyed("k-7"), runs[second])
			return err
		}},
		"paused projection": {"different content", func(second bool) error {
			_, err := f.Runs.PauseProjection(f.Ctx, keyed("k-8"), map[bool]string{false: "roster", true: "history"}[second], ids[0], enginetest.LoadedRuns)
			return err
		}},
	} {
		for range 2 {
			if err := act.do(false); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		f.Unchanged(func() { refused(t, act.do(true), outbox.ErrConflict, "Idempotency-Key", act.says) })
	}
}
