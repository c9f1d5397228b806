package worker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/redact"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

func TestPass_undoesOnlyTheFailingEvent(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, accounts), at(now))
	b.mustAppend(t, notes("a", 4)...)
	b.mustAppend(t, opened("b", 10), spent("b", 3), spent("b", 100), spent("b", 1), noted("b"))
	b.mustAppend(t, notes("c", 4)...)
	b.pass(t)

	b.mustHaveApplied(t, "a", 4)
	b.mustHaveApplied(t, "b", 2)
	b.mustHaveApplied(t, "c", 4)
	if balance := column[int](t, b.projections, `select balance + 1000 * spent from accounts`); !slices.Equal(balance, []int{1007}) {
		t.Errorf("balance and spendings are %v, want those of the first two events", balance)
	}
	b.mustStand(t, "b", 3, outbox.Failed, 1)
	b.mustStand(t, "b", 4, outbox.Pending, 0)
	b.mustStand(t, "b", 5, outbox.Pending, 0)
	b.mustBeSound(t)
}

func TestPass_groupsErrorsByWhatReadersMaySee(t *testing.T) {
	t.Parallel()
	hide, err := redact.New(redact.Config{Values: []string{`accounts`}})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, define(t, accounts), func(_ *store.Options, c *worker.Config) { c.Redact = hide })
	b.mustAppend(t, opened("b", 10), spent("b", 100))
	b.pass(t)
	if row := b.row(t, "b", 2).Row; !strings.Contains(row.LastError, "accounts") || strings.Contains(row.Fingerprint, "accounts") || !strings.Contains(row.Fingerprint, redact.Mark) {
		t.Errorf("%q has the fingerprint %q", row.LastError, row.Fingerprint)
	}
}

func TestPass_writesTheHistoryOfAFailedAttempt(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, accounts), at(now))
	b.mustAppend(t, opened("b", 10), spent("b", 100))
	b.pass(t)

	r := b.row(t, "b", 2)
	if len(r.Attempts) != 1 {
		t.Fatalf("%d attempts, want 1", len(r.Attempts))
	}
	a := r.Attempts[0]
	if !strings.Contains(a.Error, "projection accounts (00.sql:") || !strings.Contains(a.Error, b.checkFailed()) {
		t.Errorf("the error does not say where and why: %s", a.Error)
	}
	want := outbox.Attempt{Attempt: 1, Worker: b.worker.ID(), Build: "test", At: now.now(), Error: a.Error, Fingerprint: outbox.Fingerprint(a.Error),
		Projection: "accounts", ProjectionVersion: b.set.Named("accounts").Version}
	if a != want || r.Row.LastError != a.Error || r.Row.Fingerprint != a.Fingerprint {
		t.Errorf("attempt = %+v, want %+v; the row says %q, %q", a, want, r.Row.LastError, r.Row.Fingerprint)
	}
}

func TestPass_retriesWithBackoffUntilDead(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, accounts), at(now))
	b.mustAppend(t, opened("b", 10), spent("b", 100), spent("b", 1), noted("b"))
	for n := 1; n < 8; n++ {
		if !b.pass(t) {
			t.Fatalf("attempt %d was not due", n)
		}
		b.mustStand(t, "b", 2, outbox.Failed, n)
		delay := time.Second << (n - 1)
		if next := b.row(t, "b", 2).Row.NextAttemptAt.Sub(now.now()); next != delay {
			t.Errorf("after failure %d the next attempt is due in %s, want %s", n, next, delay)
		}
		now.advance(delay - time.Microsecond)
		if b.pass(t) {
			t.Errorf("attempt %d came too early", n+1)
		}
		now.advance(time.Microsecond)
	}
	b.pass(t)
	b.mustStand(t, "b", 2, outbox.Dead, 8)
	before := b.dump(t)
	now.advance(24 * time.Hour)
	if b.pass(t) {
		t.Error("a dead head was tried again")
	}
	mustEqual(t, "looking for work behind a dead head", before, b.dump(t))
	b.mustHaveApplied(t, "b", 1)
	b.mustBeSound(t)

	mustExec(t, b.projections, `update accounts set balance = 1000`)
	b.mustRequeue(t, "b", 2)
	b.drain(t)
	b.mustHaveApplied(t, "b", 4)
	b.mustBeSound(t)
}

func TestPass_goesOnWhenAnEventFailsOnceAndPassesAlone(t *testing.T) {
	t.Parallel()
	for _, flaky := range []int{0, 1, 3} {
		b := open(t, define(t, ledger, probing))
		key := fmt.Sprint(t.Name(), flaky)
		calls := 0
		onProbe(t, key, func([]string) (string, error) {
			if calls++; calls == 1 {
				return "", errors.New("not today")
			}
			return "fine", nil
		})
		events := notes("b", 4)
		events[flaky] = probed("b", key)
		b.mustAppend(t, events...)
		b.pass(t)

		b.mustHaveApplied(t, "b", 4)
		if rows := column[int](t, b.journal, `select attempt from attempts`); len(rows) > 0 {
			t.Errorf("flaky event %d left attempts %v", flaky+1, rows)
		}
	}
}

// checkFailed is in the database's own words for a check that failed.
func (b *bench) checkFailed() string {
	if b.postgres() {
		return "violates check constraint"
	}
	return "CHECK constraint failed"
}

// On PostgreSQL nothing of a projection runs in this process, where it could
// panic.
func TestSQLitePass_recordsAPanicAsAFailedAttempt(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, probing), at(now))
	onProbe(t, t.Name(), func([]string) (string, error) { panic("out of cheese") })
	b.mustAppend(t, notes("a", 3)...)
	b.mustAppend(t, noted("b"), probed("b", t.Name()), noted("b"))
	b.mustAppend(t, notes("c", 3)...)
	b.pass(t)

	b.mustHaveApplied(t, "a", 3)
	b.mustHaveApplied(t, "b", 1)
	b.mustHaveApplied(t, "c", 3)
	b.mustStand(t, "b", 2, outbox.Failed, 1)
	if text := b.row(t, "b", 2).Attempts[0].Error; !strings.Contains(text, "panic while applying event 2: out of cheese") || !strings.Contains(text, "failure_test.go") {
		t.Errorf("the attempt lacks the panic or its stack: %s", text)
	}
	if left := column[int](t, b.projections, `select seq from probing`); len(left) > 0 {
		t.Errorf("the panicking event left something behind: %v", left)
	}

	now.advance(time.Second)
	b.mustAppend(t, notes("c", 2)...)
	b.drain(t)
	b.mustHaveApplied(t, "c", 5)
	b.mustStand(t, "b", 2, outbox.Failed, 2)
	b.mustBeSound(t)
}

// forever never ends on an event of type endless, after it has written
// something.
const forever = `-- projection: forever
-- tables: forever

-- schema
create table forever (campaign_id text not null, n bigint);

-- on: endless
insert into forever (campaign_id, n) values (:campaign_id, 0);

-- on: endless @sqlite
insert into forever (campaign_id, n)
with recursive up (n) as (select 1 union all select n + 1 from up)
select :campaign_id, max(n) from up;

-- on: endless @postgres
insert into forever (campaign_id, n)
select :campaign_id, 1 from pg_sleep(600);
`

func TestPass_cutsAHangingEvent(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, forever), at(now), cuttingOffAfter(overtime))
	b.mustAppend(t, notes("a", 3)...)
	for _, hanging := range []string{"b", "c"} {
		b.mustAppend(t, noted(hanging), eventOf(hanging, "endless", `{}`), noted(hanging))
	}
	b.mustAppend(t, notes("d", 3)...)
	b.pass(t)

	b.mustHaveApplied(t, "a", 3)
	b.mustHaveApplied(t, "d", 3)
	for _, hanging := range []string{"b", "c"} {
		b.mustHaveApplied(t, hanging, 1)
		b.mustStand(t, hanging, 2, outbox.Failed, 1)
		if text := b.row(t, hanging, 2).Row.LastError; !strings.Contains(text, "took longer than "+overtime.String()+" and was cut off") {
			t.Errorf("the error does not say that the event was cut off: %s", text)
		}
	}
	if left := column[int](t, b.projections, `select n from forever`); len(left) > 0 {
		t.Errorf("the cut-off events left something behind: %v", left)
	}
	b.mustAppend(t, notes("a", 2)...)
	b.drain(t)
	b.mustHaveApplied(t, "a", 5)
	b.mustBeSound(t)
}

func TestSQLitePass_countsNoAttemptWhileADatabaseIsBusy(t *testing.T) {
	t.Parallel()
	for i := range 2 {
		b := openPair(t, dbtest.Files(filepath.Join(t.TempDir(), hurried)), define(t, ledger))
		file := []string{b.pair.Journal, b.pair.Projections}[i]
		b.mustAppend(t, notes("a", 3)...)
		b.mustAppend(t, notes("b", 3)...)
		other := dbtest.Open(t, file)
		other.SetMaxOpenConns(1)
		mustExec(t, other, `begin immediate`)
		if _, err := b.worker.Pass(t.Context()); !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("with %s locked by somebody else: error = %v, want ErrBusy", file, err)
		}
		mustExec(t, other, `rollback`)

		mustBeUntouched(t, b)
		b.drain(t)
		b.mustHaveApplied(t, "a", 3)
		b.mustHaveApplied(t, "b", 3)
		b.mustBeSound(t)
	}
}

// mustBeUntouched makes sure that every row is pending, without attempts, and
// that nobody holds a lease.
func mustBeUntouched(tb testing.TB, b *bench) {
	tb.Helper()
	if touched := column[string](tb, b.journal, `select campaign_id || ' ' || seq || ' ' || status from projection_apply_outbox where status <> 'pending' or attempt_count <> 0`); len(touched) > 0 {
		tb.Errorf("rows were touched: %q", touched)
	}
	if n := column[int](tb, b.journal, `select count(*) from attempts`); n[0] > 0 {
		tb.Errorf("%d attempts were recorded", n[0])
	}
	if leased := column[string](tb, b.journal, `select campaign_id from campaigns where lease_owner <> ''`); len(leased) > 0 {
		tb.Errorf("campaigns %q stay leased", leased)
	}
}

func TestSQLitePass_countsNoAttemptWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	b := openPair(t, dbtest.Files(filepath.Join(t.TempDir(), cramped)), define(t, ledger, probing))
	key := t.Name()
	var stuffed atomic.Bool
	onProbe(t, key, func([]string) (string, error) {
		if stuffed.Load() {
			return strings.Repeat("x", crampedBytes), nil
		}
		return "small", nil
	})
	stuffed.Store(true)
	b.mustAppend(t, notes("a", 3)...)
	b.mustAppend(t, noted("b"), probed("b", key))
	if _, err := b.worker.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("error = %v, want that the disk is full", err)
	}
	mustBeUntouched(t, b)
	b.mustHaveApplied(t, "a", 0)

	stuffed.Store(false)
	b.drain(t)
	b.mustHaveApplied(t, "a", 3)
	b.mustHaveApplied(t, "b", 2)
	b.mustBeSound(t)
}

func TestPass_advancesOverWhatNoProjectionHandles(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, accounts))
	b.mustAppend(t, noted("a"), opened("a", 10), noted("a"), spent("a", 4), noted("a"))
	b.drain(t)
	if applied, err := b.AppliedSeq(context.Background(), "a"); err != nil || applied != 5 {
		t.Errorf("the watermark is %d (%v), want 5", applied, err)
	}
	mustHaveNoGap(t, b)
	b.mustBeSound(t)
}

func TestPass_advancesOverAuditOnlyEventsAndTouchesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	if err := b.RegisterEventTypes(t.Context(), map[string]outbox.Intent{"remarked": outbox.IntentAuditOnly}); err != nil {
		t.Fatal(err)
	}
	remarked := eventOf("a", "remarked", `{}`)
	b.mustAppend(t, remarked, noted("a"), remarked, remarked, noted("a"), remarked)
	b.drain(t)
	if seen := column[int](t, b.projections, `select seq from ledger_history order by id`); !slices.Equal(seen, []int{2, 5}) {
		t.Errorf("projections saw events %v, want 2 and 5", seen)
	}
	if c := b.campaign(t, "a"); c.AppliedSeq != 6 || c.State() != outbox.StateCurrent {
		t.Errorf("applied seq %d, state %s; want 6, current", c.AppliedSeq, c.State())
	}
	mustHaveNoGap(t, b)
	b.mustBeSound(t)
}
