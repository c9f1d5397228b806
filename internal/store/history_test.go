package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
)

// wantHistory compares the steps of an event, each as its kind and what tells it
// from others of the kind.
func (f *fixture) wantHistory(campaign string, seq int64, want ...string) {
	f.TB.Helper()
	h, err := f.EventHistory(f.Ctx, campaign, seq)
	if err != nil {
		f.TB.Fatal(err)
	}
	got := []string{}
	for _, s := range h.Steps {
		text := string(s.Kind)
		switch {
		case s.Attempt != nil:
			text += fmt.Sprintf(" %d: %s", s.Attempt.Attempt, s.Attempt.Error)
		case s.Act != nil:
			text += fmt.Sprintf(" %s by %s", s.Act.Action, s.Act.Actor)
		case s.Span != nil:
			text += fmt.Sprintf(" %d-%d by %s", s.Span.FirstSeq, s.Span.LastSeq, s.Span.Worker)
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		f.TB.Errorf("history of %s/%d:\n\t%s\nwant:\n\t%s", campaign, seq, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (f *fixture) spans() []string {
	f.TB.Helper()
	return storetest.Texts(f.TB, f.JournalDB, `select campaign_id || ' ' || first_seq || '-' || last_seq || ' ' || worker from applied_spans order by campaign_id, first_seq`)
}

func TestEventHistory_outlivesTheRow(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(2))
	f.AppendN("a", 2)
	f.Clock.Advance(time.Second)
	f.Kill("a")
	f.requeue("a", 1)
	f.Clock.Advance(time.Second)
	f.Kill("a")
	op := f.StartOperation(outbox.OperationOrder{})
	f.Clock.Advance(time.Second)
	f.StepOperation(op.ID)
	f.Clock.Advance(time.Second)
	f.Drain()
	if n := f.Number(`select count(*) from projection_apply_outbox`); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	f.wantHistory("a", 1, "appended", "failed 1: no such thing", "died 2: no such thing", "acted requeue by scene",
		"failed 1: no such thing", "died 2: no such thing", "acted operation_start by ana", "applied 1-2 by worker-1")
	f.wantHistory("a", 2, "appended", "applied 1-2 by worker-1")
}

func TestEventHistory_tellsSkipsApartFromApplying(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 1)
	f.Clock.Advance(time.Second)
	f.Kill("a")
	f.MustSkip("a", 1)
	f.Clock.Advance(time.Second)
	f.Drain()
	passed := []string{"appended", "died 1: no such thing", "acted skip by scene", "passed_over 1-1 by worker-1"}
	f.wantHistory("a", 1, passed...)
	f.Clock.Advance(time.Second)
	if _, err := f.UnskipEvent(f.Ctx, ana(""), "a", 1); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Second)
	f.Drain()
	f.wantHistory("a", 1, append(passed, "acted unskip by ana", "applied 1-1 by worker-1")...)
}

func TestEventHistory_ofAMissingEventIsNotFound(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	_, err := f.EventHistory(f.Ctx, "a", 2)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.EventHistory(f.Ctx, "b", 1)
	refused(t, err, outbox.ErrNotFound, "unknown")
}

// One record stands for all that a process applied to a campaign within a minute
// without a pause, and none is written before the next begins.
func TestSettle_notesSpansOfAppliedEvents(t *testing.T) {
	t.Parallel()
	f := open(t)
	for range 12 {
		f.AppendN("a", 1)
		f.Drain()
		f.Clock.Advance(5 * time.Second)
	}
	if got := f.spans(); len(got) != 0 {
		t.Errorf("within a minute %v are written", got)
	}
	f.wantHistory("a", 1, "appended", "applied 1-12 by worker-1")
	f.Clock.Advance(time.Second)
	f.AppendN("a", 1)
	f.Drain()
	if got := f.spans(); !slices.Equal(got, []string{"a 1-12 worker-1"}) {
		t.Errorf("a minute later %v are written", got)
	}
	f.Clock.Advance(time.Second)
	f.AppendN("a", 1)
	c := f.ClaimOne(two, 10)
	reached, err := f.ApplyClaim(c, c.Last)
	if err != nil {
		t.Fatal(err)
	}
	f.MustSettle(two, store.Result{Claim: c, Applied: reached})
	f.wantHistory("a", 12, "appended", "applied 1-12 by worker-1")
	f.wantHistory("a", 13, "appended", "applied 13-13 by worker-1")
	f.wantHistory("a", 14, "appended", "applied 14-14 by worker-2")
}

func TestPruneHistory_deletesWhatIsOlderAndOver(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("stuck", 1)
	f.AppendN("a", 1)
	f.Kill("a", "stuck")
	f.requeue("a", 1)
	f.Drain()
	for range 2 { // which closes the span before
		f.Clock.Advance(time.Hour)
		f.AppendN("a", 1)
		f.Drain()
	}
	before := f.Clock.Now().Add(-time.Minute)
	for range 2 {
		if more, err := f.PruneHistory(f.Ctx, before); more || err != nil {
			t.Fatal(more, err)
		}
	}
	if got := storetest.Texts(t, f.JournalDB, `select campaign_id from attempts`); !slices.Equal(got, []string{"stuck"}) {
		t.Errorf("the attempts of %v are left; want those of the event that is not applied", got)
	}
	if got := f.spans(); len(got) != 0 {
		t.Errorf("the spans %v are left", got)
	}
	f.wantHistory("a", 1, "appended", "acted requeue by scene")
	f.wantHistory("a", 3, "appended", "applied 3-3 by worker-1")
}

func TestPruneHistory_goesInPortions(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.Exec(`
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
select 'gone', i, i, 1, 'w', 'v1', 'boom', 'boom' from n`)
	more, err := f.PruneHistory(f.Ctx, f.Clock.Now())
	if n := f.Number(`select count(*) from attempts`); err != nil || !more || n != 1000 {
		t.Errorf("after one portion %d attempts are left and more is %v, %v", n, more, err)
	}
	if more, err = f.PruneHistory(f.Ctx, f.Clock.Now()); err != nil || more || f.Number(`select count(*) from attempts`) != 0 {
		t.Errorf("after another some are left: %v, %v", more, err)
	}
}

func TestSettle_notesEventsAfterAPauseAsAnotherSpan(t *testing.T) {
	t.Parallel()
	f := open(t)
	for range 2 {
		f.AppendN("a", 1)
		f.Drain()
		f.Clock.Advance(6 * time.Second)
	}
	f.wantHistory("a", 1, "appended", "applied 1-1 by worker-1")
	f.wantHistory("a", 2, "appended", "applied 2-2 by worker-1")
}
