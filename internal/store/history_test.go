package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestEventHistory_outlivesTheRow(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(2))
	f.AppendN("a", 2)
	f.Clock.Advance(time.Second)
	f.Kill("a")
	f.MustRequeue("a", 1)
	f.Clock.Advance(time.Second)
	f.Kill("a")
	op := f.StartOperation(outbox.OperationRequest{})
	f.Clock.Advance(time.Second)
	f.StepOperation(op.ID)
	f.Clock.Advance(time.Second)
	f.Drain()
	n := f.Number(`select count(*) from projection_apply_outbox`)
	must.Need(t, n == 0, "%d rows are left", n)
	f.WantHistory("a", 1, "appended", "failed 1: no such thing", "died 2: no such thing", "acted requeue by scene",
		"failed 1: no such thing", "died 2: no such thing", "acted operation_start by ana", "applied 1-2 by worker-1")
	f.WantHistory("a", 2, "appended", "applied 1-2 by worker-1")
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
	f.WantHistory("a", 1, passed...)
	f.Clock.Advance(time.Second)
	f.must(f.UnskipEvent(f.Ctx, ana(""), "a", 1))
	f.Clock.Advance(time.Second)
	f.Drain()
	f.WantHistory("a", 1, append(passed, "acted unskip by ana", "applied 1-1 by worker-1")...)
	refused(t, storetest.No(f.EventHistory(f.Ctx, "a", 2)), outbox.ErrNotFound)
	refused(t, storetest.No(f.EventHistory(f.Ctx, "b", 1)), outbox.ErrNotFound, `there is no campaign "b"`)
}

// One record covers everything that a process applied to a campaign within a minute without a
// pause, and it is written when the next begins.
func TestSettle_notesSpansOfAppliedEvents(t *testing.T) {
	t.Parallel()
	f := open(t)
	for range 13 {
		f.AppendN("a", 1)
		f.Drain()
		f.Clock.Advance(5 * time.Second)
	}
	must.Equal(t, len(f.Spans()), 0, "within a minute", "are written")
	f.WantHistory("a", 1, "appended", "applied 1-13 by worker-1")
	f.AppendN("a", 1) // without a pause, but a minute after the first
	f.Drain()
	must.Equal(t, f.Spans(), []string{"a 1-13 worker-1"}, "the spans a minute later")
	f.Clock.Advance(time.Second)
	f.AppendN("a", 1)
	f.Works(two, f.ClaimOne(two, 10), 15)
	f.WantHistory("a", 12, "appended", "applied 1-13 by worker-1")
	f.WantHistory("a", 14, "appended", "applied 14-14 by worker-1")
	f.WantHistory("a", 15, "appended", "applied 15-15 by worker-2")
	for seq := int64(1); seq <= 2; seq++ { // a pause between them
		f.AppendN("b", 1)
		f.Drain()
		f.Clock.Advance(6 * time.Second)
		f.WantHistory("b", seq, "appended", fmt.Sprintf("applied %d-%[1]d by worker-1", seq))
	}
}
