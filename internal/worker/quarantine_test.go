package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPass_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		now := storetest.NewClock()
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.At(now), enginetest.MaxAttempts(most))
		b.MustAppend(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Spent("a", 1))
		b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 1), enginetest.Spent("b", 100), enginetest.Noted("b"), enginetest.Spent("b", 1))
		now.Advance(time.Second)
		for n := 1; n < most; n++ {
			b.MustPass()
			b.MustStand("b", 3, outbox.Failed, n)
			b.MustHaveApplied("b", 2)
			must.Equal(t, b.OpenFailures(), []string{fmt.Sprint("b accounts 3 ", n)}, "the failures after attempt", n)
			now.Advance(10 * time.Minute)
		}
		b.Drain()

		b.MustHaveApplied("a", 3)
		b.MustHaveApplied("b", 5)
		must.Equal(t, b.OpenFailures(), []string{fmt.Sprint("b accounts 3 ", most)}, "open failures")
		cursors := storetest.Column[string](t, b.ProjectionsDB, `select concat_ws(' ', campaign_id, projection, applied_seq, state) from projection_cursors`)
		must.Equal(t, cursors, []string{"b accounts 2 quarantined"}, "cursors")
		b.MustHaveBalances("a 8", "b 9")
		b.Sound()
		mustHaveRecorded(t, b, most)
	}
}

func TestPass_holdsTheCampaignWhenABlockingProjectionFailsBesideAQuarantinedOne(t *testing.T) {
	t.Parallel()
	strict := strings.ReplaceAll(enginetest.Accounts, "accounts", "vaults")
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts, strict), enginetest.At(now), enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"))
	now.Advance(time.Hour)
	b.Drain()

	b.MustStand("b", 2, outbox.Dead, 1)
	text := b.MustRow("b", 2).Row.LastError
	must.Hold(t, strings.HasPrefix(text, "projection vaults"), "the row died of %q, want of the blocking projection", text)
	b.MustHaveApplied("b", 1)

	b.ExecProjections(`update vaults set balance = 1000`)
	b.MustRequeue("b", 2)
	b.Drain()
	b.MustHaveApplied("b", 3)
	b.MustHaveBalances("b 10")
	b.Sound()
}

// Attempts of one projection are not those of another that fails at the same event, before it or after.
func TestPass_countsTheAttemptsOfEachProjectionForItself(t *testing.T) {
	t.Parallel()
	const most = 4
	vaults := strings.ReplaceAll(enginetest.Accounts, "accounts", "vaults")
	brief := strings.Replace(enginetest.LenientAccounts, "-- tables", "-- max-attempts: 2\n-- tables", 1)
	now := storetest.NewClock()
	start := func(projections ...string) (b *enginetest.Engine, fail func(times int)) {
		b = enginetest.Open(t, enginetest.Define(t, append(projections, enginetest.Ledger)...), enginetest.At(now), enginetest.MaxAttempts(most))
		b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"))
		return b, func(times int) {
			for range times {
				b.MustPass()
				now.Advance(10 * time.Minute)
			}
		}
	}

	b, fail := start(brief, vaults)
	fail(most) // the second attempt, the last of accounts, is the first of vaults
	b.MustStand("b", 2, outbox.Failed, most)
	fail(1)
	b.MustStand("b", 2, outbox.Dead, most+1)
	all, err := b.ErrorGroups(t.Context())
	must.Need(t, err == nil && len(all.Groups) == 1, "%+v, %v", all, err)
	g := all.Groups[0]
	must.Hold(t, g.Attempts == most && g.Alike == most && len(g.Tried) == 1 && g.Tried[0].Projection == "vaults" && g.Tried[0].Rows == 1, "the error has %d attempts, %d of them alike, by %+v, want the %d of vaults", g.Attempts, g.Alike, g.Tried, most)
	b.MustRequeue("b", 2)
	fail(most - 1)
	must.Equal(t, b.MustRow("b", 2).Row.Status, outbox.Failed, "the status of the requeued row")

	b, fail = start(vaults, enginetest.LenientAccounts)
	fail(most - 1)
	b.ExecProjections(`update vaults set balance = 1000`)
	fail(most - 1)
	b.MustStand("b", 2, outbox.Failed, 2*(most-1))
	fail(1)
	b.MustHaveApplied("b", 3)
	b.Sound()
}

func TestApplyInline_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.InMode(outbox.ModeInline), enginetest.MaxAttempts(3), enginetest.At(now))
	err := appendInline(t, b, enginetest.Opened("a", 10), enginetest.Spent("a", 100))
	must.Need(t, err != nil, "an event that cannot be applied was not refused")
	now.Advance(time.Minute)
	err = appendInline(t, b, enginetest.Noted("a"))
	must.Need(t, err != nil, "the second attempt was the last one")
	must.Equal(t, b.OpenFailures(), []string{"a accounts 2 2"}, "the failures before the last attempt")
	now.Advance(time.Minute)
	must.OK(t, appendInline(t, b, enginetest.Spent("a", 1)))
	b.MustHaveApplied("a", 4)
	must.Equal(t, b.OpenFailures(), []string{"a accounts 2 3"}, "open failures")
	b.MustHaveBalances("a 10")
}

// mustHaveRecorded asserts that the charts count for accounts what was applied to it, and for all every
// attempt, and that the event's history has them all.
func mustHaveRecorded(t *testing.T, b *enginetest.Engine, attempts int) {
	t.Helper()
	must.Equal(t, b.Worker.Counted().Failed, int64(attempts), "failed attempts are counted")
	must.OK(t, b.FlushCounts(t.Context()))
	got := storetest.Column[string](t, b.JournalDB, `select concat_ws(' ', kind, label, sum(value)) from series_samples where step = 60 and kind like 'projection%' group by kind, label order by kind, label`)
	must.Equal(t, got, []string{"projection accounts 5", "projection ledger 8", fmt.Sprint("projection_failed accounts ", attempts)}, "charts have")
	h := must.Get(b.EventHistory(t.Context(), "b", 3)).Or(t)
	kinds := make([]outbox.StepKind, len(h.Steps))
	for i, s := range h.Steps {
		kinds[i] = s.Kind
	}
	want := append([]outbox.StepKind{outbox.StepAppended}, slices.Repeat([]outbox.StepKind{outbox.StepFailed}, attempts-1)...)
	want = append(want, outbox.StepQuarantined, outbox.StepApplied)
	must.Hold(t, slices.Equal(kinds, want), "the event's history is %q, want %q", kinds, want)
	last := h.Steps[attempts].Attempt
	must.Hold(t, last != nil && last.Attempt == attempts && last.Projection == "accounts", "the last attempt is %+v, want number %d, of accounts", last, attempts)
}

func TestPass_countsNothingAsAppliedToAPausedProjection(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts))
	b.Feed(enginetest.Opened("a", 10))
	b.PauseProjection("accounts", "")
	b.Feed(enginetest.Spent("a", 1), enginetest.Opened("b", 1))
	must.OK(t, b.FlushCounts(t.Context()))
	got := storetest.Column[string](t, b.JournalDB, `select concat_ws(' ', label, sum(value)) from series_samples where step = 60 and kind = 'projection' group by label order by label`)
	must.Equal(t, got, []string{"accounts 1", "ledger 3"}, "the chart")
}
