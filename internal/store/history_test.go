package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// wantHistory compares the steps of an event, each as its kind and what tells it
// from others of the kind.
func (f *fixture) wantHistory(campaign string, seq int64, want ...string) {
	f.tb.Helper()
	h, err := f.EventHistory(f.ctx, campaign, seq)
	if err != nil {
		f.tb.Fatal(err)
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
		f.tb.Errorf("history of %s/%d:\n\t%s\nwant:\n\t%s", campaign, seq, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (f *fixture) spans() []string {
	f.tb.Helper()
	return texts(f.tb, f.journal, `select campaign_id || ' ' || first_seq || '-' || last_seq || ' ' || worker from applied_spans order by campaign_id, first_seq`)
}

func TestEventHistory_outlivesTheRow(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(2))
	f.append("a", 2)
	f.clock.advance(time.Second)
	f.kill("a")
	f.requeue("a", 1)
	f.clock.advance(time.Second)
	f.kill("a")
	op := f.startOperation(outbox.OperationOrder{})
	f.clock.advance(time.Second)
	f.stepOperation(op.ID)
	f.clock.advance(time.Second)
	f.drain()
	if n := f.number(`select count(*) from projection_apply_outbox`); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	f.wantHistory("a", 1, "appended", "failed 1: no such thing", "died 2: no such thing", "acted requeue by scene",
		"failed 1: no such thing", "died 2: no such thing", "acted operation_start by ana", "applied 1-2 by worker-1")
	f.wantHistory("a", 2, "appended", "applied 1-2 by worker-1")
}

func TestEventHistory_tellsSkipsApartFromApplying(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	f.append("a", 1)
	f.clock.advance(time.Second)
	f.kill("a")
	f.skip("a", 1)
	f.clock.advance(time.Second)
	f.drain()
	passed := []string{"appended", "died 1: no such thing", "acted skip by scene", "passed_over 1-1 by worker-1"}
	f.wantHistory("a", 1, passed...)
	f.clock.advance(time.Second)
	if _, err := f.UnskipEvent(f.ctx, ana(""), "a", 1); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(time.Second)
	f.drain()
	f.wantHistory("a", 1, append(passed, "acted unskip by ana", "applied 1-1 by worker-1")...)
}

func TestEventHistory_ofAMissingEventIsNotFound(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	_, err := f.EventHistory(f.ctx, "a", 2)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.EventHistory(f.ctx, "b", 1)
	refused(t, err, outbox.ErrNotFound, "unknown")
}

// One record stands for all that a process applied to a campaign within a minute
// without a pause, and none is written before the next begins.
func TestSettle_notesSpansOfAppliedEvents(t *testing.T) {
	t.Parallel()
	f := open(t)
	for range 12 {
		f.append("a", 1)
		f.drain()
		f.clock.advance(5 * time.Second)
	}
	if got := f.spans(); len(got) != 0 {
		t.Errorf("within a minute %v are written", got)
	}
	f.wantHistory("a", 1, "appended", "applied 1-12 by worker-1")
	f.clock.advance(time.Second)
	f.append("a", 1)
	f.drain()
	if got := f.spans(); !slices.Equal(got, []string{"a 1-12 worker-1"}) {
		t.Errorf("a minute later %v are written", got)
	}
	f.clock.advance(time.Second)
	f.append("a", 1)
	c := f.claimOne(two, 10)
	reached, err := f.apply(c, c.Last)
	if err != nil {
		t.Fatal(err)
	}
	f.settle(two, store.Result{Claim: c, Applied: reached})
	f.wantHistory("a", 12, "appended", "applied 1-12 by worker-1")
	f.wantHistory("a", 13, "appended", "applied 13-13 by worker-1")
	f.wantHistory("a", 14, "appended", "applied 14-14 by worker-2")
}

func TestPruneHistory_deletesWhatIsOlderAndOver(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	f.append("stuck", 1)
	f.append("a", 1)
	f.kill("a", "stuck")
	f.requeue("a", 1)
	f.drain()
	for range 2 { // which closes the span before
		f.clock.advance(time.Hour)
		f.append("a", 1)
		f.drain()
	}
	before := f.clock.now().Add(-time.Minute)
	for range 2 {
		if more, err := f.PruneHistory(f.ctx, before); more || err != nil {
			t.Fatal(more, err)
		}
	}
	if got := texts(t, f.journal, `select campaign_id from attempts`); !slices.Equal(got, []string{"stuck"}) {
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
	f.append("a", 1)
	f.raw(`
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
select 'gone', i, i, 1, 'w', 'v1', 'boom', 'boom' from n`)
	more, err := f.PruneHistory(f.ctx, f.clock.now())
	if n := f.number(`select count(*) from attempts`); err != nil || !more || n != 1000 {
		t.Errorf("after one portion %d attempts are left and more is %v, %v", n, more, err)
	}
	if more, err = f.PruneHistory(f.ctx, f.clock.now()); err != nil || more || f.number(`select count(*) from attempts`) != 0 {
		t.Errorf("after another some are left: %v, %v", more, err)
	}
}

func TestSettle_notesEventsAfterAPauseAsAnotherSpan(t *testing.T) {
	t.Parallel()
	f := open(t)
	for range 2 {
		f.append("a", 1)
		f.drain()
		f.clock.advance(6 * time.Second)
	}
	f.wantHistory("a", 1, "appended", "applied 1-1 by worker-1")
	f.wantHistory("a", 2, "appended", "applied 2-2 by worker-1")
}
