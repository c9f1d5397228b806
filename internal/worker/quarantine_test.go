package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPass_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		now := storetest.NewClock()
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.At(now), enginetest.MaxAttempts(most))
		b.MustAppend(t, enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Spent("a", 1))
		b.MustAppend(t, enginetest.Opened("b", 10), enginetest.Spent("b", 1), enginetest.Spent("b", 100), enginetest.Noted("b"), enginetest.Spent("b", 1))
		for n := 1; n < most; n++ {
			b.MustPass(t)
			b.MustStand(t, "b", 3, outbox.Failed, n)
			b.MustHaveApplied(t, "b", 2)
			if open := enginetest.Failures(t, b); !slices.Equal(open, []string{fmt.Sprint("b accounts 3 ", n)}) {
				t.Errorf("failures %q after attempt %d", open, n)
			}
			now.Advance(10 * time.Minute)
		}
		b.Drain(t)

		b.MustHaveApplied(t, "a", 3)
		b.MustHaveApplied(t, "b", 5)
		if open, want := enginetest.Failures(t, b), []string{fmt.Sprint("b accounts 3 ", most)}; !slices.Equal(open, want) {
			t.Errorf("open failures %q, want %q", open, want)
		}
		cursors := enginetest.Column[string](t, b.ProjectionsDB, `select concat_ws(' ', campaign_id, projection, applied_seq, state) from projection_cursors`)
		if want := []string{"b accounts 2 quarantined"}; !slices.Equal(cursors, want) {
			t.Errorf("cursors %q, want %q", cursors, want)
		}
		enginetest.MustHaveBalances(t, b, "a 8", "b 9")
		b.MustBeSound(t)
	}
}

func TestPass_passesLaterEventsByAProjectionThatIsSetAside(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.MaxAttempts(1))
	b.MustAppend(t, enginetest.Opened("a", 10), enginetest.Opened("b", 10), enginetest.Spent("b", 100))
	b.Drain(t)
	b.MustAppend(t, enginetest.Spent("a", 3), enginetest.Spent("b", 3), enginetest.Spent("b", 200), enginetest.Noted("b"))
	b.Drain(t)

	enginetest.MustHaveBalances(t, b, "a 7", "b 10")
	b.MustHaveApplied(t, "b", 5)
	if open := enginetest.Failures(t, b); !slices.Equal(open, []string{"b accounts 2 1"}) {
		t.Errorf("open failures %q, want the first one alone", open)
	}
	var infos []outbox.ProjectionInfo
	for _, p := range b.Set.Projections() {
		infos = append(infos, outbox.ProjectionInfo{Name: p.Name, Version: p.Version})
	}
	infos, err := b.Runs.DescribeProjections(t.Context(), infos)
	if err != nil || infos[0].Quarantined != 0 || infos[1].Quarantined != 1 {
		t.Errorf("projections %+v (%v), want accounts quarantined for one campaign", infos, err)
	}
	b.MustBeSound(t)
}

func TestPass_holdsTheCampaignWhenABlockingProjectionFailsBesideAQuarantinedOne(t *testing.T) {
	t.Parallel()
	strict := strings.ReplaceAll(enginetest.Accounts, "accounts", "vaults")
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts, strict), enginetest.At(now), enginetest.MaxAttempts(1))
	b.MustAppend(t, enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"))
	b.Drain(t)
	now.Advance(time.Hour)
	b.Drain(t)

	b.MustStand(t, "b", 2, outbox.Dead, 1)
	if text := b.MustRow(t, "b", 2).Row.LastError; !strings.HasPrefix(text, "projection vaults") {
		t.Errorf("the row died of %q, want of the blocking projection", text)
	}
	b.MustHaveApplied(t, "b", 1)

	enginetest.MustExec(t, b.ProjectionsDB, `update vaults set balance = 1000`)
	b.MustRequeue(t, "b", 2)
	b.Drain(t)
	b.MustHaveApplied(t, "b", 3)
	enginetest.MustHaveBalances(t, b, "b 10")
	b.MustBeSound(t)
}

func TestApplyInline_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.InMode(outbox.ModeInline), enginetest.MaxAttempts(3), enginetest.At(now))
	if err := appendInline(t, b, enginetest.Opened("a", 10), enginetest.Spent("a", 100)); err == nil {
		t.Fatal("an event that cannot be applied was not refused")
	}
	now.Advance(time.Minute)
	if err := appendInline(t, b, enginetest.Noted("a")); err == nil {
		t.Fatal("the second attempt was the last one")
	}
	if open := enginetest.Failures(t, b); !slices.Equal(open, []string{"a accounts 2 2"}) {
		t.Errorf("failures %q before the last attempt", open)
	}
	now.Advance(time.Minute)
	if err := appendInline(t, b, enginetest.Spent("a", 1)); err != nil {
		t.Fatal(err)
	}
	b.MustHaveApplied(t, "a", 4)
	if open, want := enginetest.Failures(t, b), []string{"a accounts 2 3"}; !slices.Equal(open, want) {
		t.Errorf("open failures %q, want %q", open, want)
	}
	enginetest.MustHaveBalances(t, b, "a 10")
}
