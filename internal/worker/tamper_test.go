package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// mustRefuse fails unless event 3 of campaign b fails for the reason, on every attempt, while campaign a is applied to its end.
func mustRefuse(t *testing.T, b *enginetest.Engine, now *storetest.Clock, reason string) {
	t.Helper()
	for n := 1; n <= 3; n++ {
		b.MustPass()
		now.Advance(10 * time.Minute)
		r := b.MustRow("b", 3)
		want := map[bool]outbox.Status{true: outbox.Dead, false: outbox.Failed}[n == 3]
		must.Hold(t, r.Row.Status == want && r.Row.AttemptCount == n, "after try %d the event is %s with %d attempts, want %s", n, r.Row.Status, r.Row.AttemptCount, want)
		must.Hold(t, strings.Contains(r.Row.LastError, reason), "the error is %q, want it to say %q", r.Row.LastError, reason)
	}
	b.MustHaveApplied("a", 5)
	b.MustHaveApplied("b", 2)
}

func tampered(t *testing.T, statements ...string) (*enginetest.Engine, *storetest.Clock) {
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(now), enginetest.MaxAttempts(3))
	b.MustAppend(enginetest.Notes("a", 5)...)
	b.MustAppend(enginetest.Notes("b", 5)...)
	for _, statement := range statements {
		b.Tamper(statement)
	}
	return b.Beside(enginetest.MaxAttempts(3)), now // a process that knows nothing of what is gone, which would be a journal that went back
}

func TestPass_neverAppliesAnEventWhoseContentDoesNotMatchItsHash(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		`payload = '{"amount":1000}'`, `event_type = 'opened'`, `occurred_at = occurred_at + 1`, `entity_id = 'somebody else'`,
	} {
		b, now := tampered(t, `update events set `+change+` where campaign_id = 'b' and seq = 3`)
		mustRefuse(t, b, now, "event 3 has changed since it was appended: its content no longer matches its hash")
	}
}

func rewrite(t *testing.T, b *enginetest.Engine, campaign string, seq int64, payload string) {
	e := must.Get(b.Event(t.Context(), campaign, seq)).Or(t)
	e.Payload = []byte(payload)
	b.Tamper(fmt.Sprintf(`update events set payload = '%s', event_hash = '%s' where campaign_id = '%s' and seq = %d`, payload, e.ContentHash(), campaign, seq))
}

func TestPass_neverAppliesAnEventThatDoesNotContinueWhatIsApplied(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(now), enginetest.MaxAttempts(3))
	b.MustAppend(enginetest.Notes("a", 5)...)
	b.Feed(enginetest.Notes("b", 2)...)
	b.MustAppend(enginetest.Notes("b", 3)...)
	rewrite(t, b, "b", 3, `{"amount":1000}`)
	mustRefuse(t, b, now, "event 3 does not continue the chain of hashes of its campaign")
}

func TestPass_neverPassesOverAnEventThatIsGone(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{`seq = 3`, `seq >= 3`} {
		b, now := tampered(t, `delete from events where campaign_id = 'b' and `+gone)
		b.Drain()
		b.MustHaveApplied("a", 5)
		b.MustHaveApplied("b", 2)
		must.Equal(t, b.MustRow("b", 4).Row.LastError, "", "an event behind the missing one was tried")
		head := storetest.Column[string](t, b.JournalDB, `select status || ': ' || last_error from projection_apply_outbox where campaign_id = 'b' and seq = 3`)
		must.Hold(t, len(head) == 1 && strings.HasPrefix(head[0], "failed: event 3 is missing from the journal"), "the head is %q", head)
		now.Advance(time.Second)
		b.Drain()
	}
}

func TestPass_repairsAGapBelowTheHeadItselfAndAppliesInOrder(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"seq <= 1", "seq <= 4", "seq <= 5"} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
		b.MustAppend(enginetest.Notes("a", 5)...)
		b.LoseRows("a", lost)
		b.Feed(enginetest.Notes("a", 2)...)
		b.MustHaveApplied("a", 7)
		b.Sound()
	}
}

func TestPass_repairsAGapThatTheCampaignsRowDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{`seq = 1`, `seq in (2, 4)`, `seq = 5`, `seq < 5`, `seq > 0`} {
		now := storetest.NewClock()
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(now))
		b.MustAppend(enginetest.Notes("a", 5)...)
		b.Exec(`delete from projection_apply_outbox where ` + lost)
		for range 5 { // a wave or an hourly step finds it
			b.Drain()
			takeSteps(t, b)
			now.Advance(time.Hour)
		}
		b.MustHaveApplied("a", 5)
		b.Sound()
	}
}
