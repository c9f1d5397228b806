package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

// lenientAccounts is set aside for a campaign that it cannot follow.
var lenientAccounts = strings.ReplaceAll(accounts, "on-failure: block", "on-failure: quarantine")

// failures are the open failures as "campaign projection seq attempts".
func failures(t *testing.T, b *bench) []string {
	t.Helper()
	return column[string](t, b.projections, `select concat_ws(' ', campaign_id, projection, seq, attempts) from failures where status = 'open' order by id`)
}

func TestPass_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		now := newClock()
		b := open(t, define(t, ledger, lenientAccounts), at(now), maxAttempts(most))
		b.mustAppend(t, opened("a", 10), spent("a", 1), spent("a", 1))
		b.mustAppend(t, opened("b", 10), spent("b", 1), spent("b", 100), noted("b"), spent("b", 1))
		for n := 1; n < most; n++ {
			b.pass(t)
			b.mustStand(t, "b", 3, outbox.Failed, n)
			b.mustHaveApplied(t, "b", 2)
			if open := failures(t, b); !slices.Equal(open, []string{fmt.Sprint("b accounts 3 ", n)}) {
				t.Errorf("failures %q after attempt %d", open, n)
			}
			now.advance(10 * time.Minute)
		}
		b.drain(t)

		b.mustHaveApplied(t, "a", 3)
		b.mustHaveApplied(t, "b", 5)
		if open, want := failures(t, b), []string{fmt.Sprint("b accounts 3 ", most)}; !slices.Equal(open, want) {
			t.Errorf("open failures %q, want %q", open, want)
		}
		cursors := column[string](t, b.projections, `select concat_ws(' ', campaign_id, projection, applied_seq, state) from projection_cursors`)
		if want := []string{"b accounts 2 quarantined"}; !slices.Equal(cursors, want) {
			t.Errorf("cursors %q, want %q", cursors, want)
		}
		mustHaveBalances(t, b, "a 8", "b 9")
		b.mustBeSound(t)
	}
}

func mustHaveBalances(t *testing.T, b *bench, want ...string) {
	t.Helper()
	if got := column[string](t, b.projections, `select campaign_id || ' ' || balance from accounts order by campaign_id`); !slices.Equal(got, want) {
		t.Errorf("balances %q, want %q", got, want)
	}
}

func TestPass_passesLaterEventsByAProjectionThatIsSetAside(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, lenientAccounts), maxAttempts(1))
	b.mustAppend(t, opened("a", 10), opened("b", 10), spent("b", 100))
	b.drain(t)
	b.mustAppend(t, spent("a", 3), spent("b", 3), spent("b", 200), noted("b"))
	b.drain(t)

	mustHaveBalances(t, b, "a 7", "b 10")
	b.mustHaveApplied(t, "b", 5)
	if open := failures(t, b); !slices.Equal(open, []string{"b accounts 2 1"}) {
		t.Errorf("open failures %q, want the first one alone", open)
	}
	var infos []outbox.ProjectionInfo
	for _, p := range b.set.Projections() {
		infos = append(infos, outbox.ProjectionInfo{Name: p.Name, Version: p.Version})
	}
	infos, err := b.runs.DescribeProjections(t.Context(), infos)
	if err != nil || infos[0].Quarantined != 0 || infos[1].Quarantined != 1 {
		t.Errorf("projections %+v (%v), want accounts quarantined for one campaign", infos, err)
	}
	b.mustBeSound(t)
}

func TestPass_holdsTheCampaignWhenABlockingProjectionFailsBesideAQuarantinedOne(t *testing.T) {
	t.Parallel()
	strict := strings.ReplaceAll(accounts, "accounts", "vaults")
	now := newClock()
	b := open(t, define(t, ledger, lenientAccounts, strict), at(now), maxAttempts(1))
	b.mustAppend(t, opened("b", 10), spent("b", 100), noted("b"))
	b.drain(t)
	now.advance(time.Hour)
	b.drain(t)

	b.mustStand(t, "b", 2, outbox.Dead, 1)
	if text := b.row(t, "b", 2).Row.LastError; !strings.HasPrefix(text, "projection vaults") {
		t.Errorf("the row died of %q, want of the blocking projection", text)
	}
	b.mustHaveApplied(t, "b", 1)

	mustExec(t, b.projections, `update vaults set balance = 1000`)
	b.mustRequeue(t, "b", 2)
	b.drain(t)
	b.mustHaveApplied(t, "b", 3)
	mustHaveBalances(t, b, "b 10")
	b.mustBeSound(t)
}

func TestApplyInline_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, lenientAccounts), mode(outbox.ModeInline), maxAttempts(3), at(now))
	if err := b.appendInline(t, opened("a", 10), spent("a", 100)); err == nil {
		t.Fatal("an event that cannot be applied was not refused")
	}
	now.advance(time.Minute)
	if err := b.appendInline(t, noted("a")); err == nil {
		t.Fatal("the second attempt was the last one")
	}
	if open := failures(t, b); !slices.Equal(open, []string{"a accounts 2 2"}) {
		t.Errorf("failures %q before the last attempt", open)
	}
	now.advance(time.Minute)
	if err := b.appendInline(t, spent("a", 1)); err != nil {
		t.Fatal(err)
	}
	b.mustHaveApplied(t, "a", 4)
	if open, want := failures(t, b), []string{"a accounts 2 3"}; !slices.Equal(open, want) {
		t.Errorf("open failures %q, want %q", open, want)
	}
	mustHaveBalances(t, b, "a 10")
}
