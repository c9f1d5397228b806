package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Errors are grouped by what readers may see.
func TestPass_undoesOnlyTheFailingEventAndWritesItsHistory(t *testing.T) {
	hide := must.Get(redact.New(redact.Config{Values: []string{`failed|violates`}})).Or(t)
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.At(storetest.NewClock()), func(o *enginetest.Options) { o.Worker.Redact = hide })
	b.MustAppend(enginetest.Notes("a", 4)...)
	b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 3), enginetest.Spent("b", 100), enginetest.Spent("b", 1), enginetest.Noted("b"))
	b.Pass(enginetest.Notes("c", 4)...)

	b.MustHaveAppliedEach("a c", 4).MustHaveApplied("b", 2)
	must.Equal(t, storetest.Column[int](t, b.ProjectionsDB, `select balance + 1000 * spent from accounts`), []int{1007}, "balance and spendings")
	b.MustStand("b", 3, event.Failed, 1).MustStand("b", 4, event.Pending, 0).MustStand("b", 5, event.Pending, 0)
	r := b.MustRow("b", 3)
	must.Need(t, len(r.Attempts) == 1, "%d attempts, want 1", len(r.Attempts))
	a := r.Attempts[0]
	must.Hold(t, strings.Contains(a.Error, "projection accounts (01.sql:") && strings.Contains(a.Error, checkFailed(b)), "the error does not say where and why: %s", a.Error)
	want := campaign.Attempt{Attempt: 1, Worker: b.Worker.ID(), Build: "test", At: b.Clock.Now(), Error: a.Error, Fingerprint: event.Fingerprint(hide.Text(a.Error)),
		Projection: "accounts", ProjectionVersion: b.Set.Named("accounts").Version}
	must.Hold(t, a == want && r.Row.LastError == a.Error && r.Row.Fingerprint == a.Fingerprint, "attempt = %+v, want %+v; the row says %q, %q", a, want, r.Row.LastError, r.Row.Fingerprint)
	must.Hold(t, strings.Contains(a.Fingerprint, redact.Mark), "what is hidden is in the fingerprint %q", a.Fingerprint)
	b.Sound()
}

func TestPass_goesOnWhenAnEventFailsOnceAndPassesAlone(t *testing.T) {
	t.Parallel()
	for _, flaky := range []int{0, 1, 3} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing))
		key, calls := fmt.Sprint(t.Name(), flaky), 0
		enginetest.OnProbe(t, key, func([]string) (string, error) {
			if calls++; calls == 1 {
				return "", errors.New("not today")
			}
			return "fine", nil
		})
		events := enginetest.Notes("b", 4)
		events[flaky] = enginetest.Probed("b", key)
		b.Pass(events...)

		b.MustHaveApplied("b", 4)
		rows := storetest.Column[int](t, b.JournalDB, `select attempt from attempts`)
		must.Hold(t, len(rows) <= 0, "flaky event %d left attempts %v", flaky+1, rows)
	}
}

func checkFailed(b *enginetest.Engine) string {
	if b.OnPostgres() {
		return "violates check constraint"
	}
	return "CHECK constraint failed"
}

// On PostgreSQL a projection runs no code in this process that could panic.
func TestSQLitePass_recordsAPanicAsAFailedAttempt(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Probing}, enginetest.At(storetest.NewClock()))
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) { panic("out of cheese") })
	b.Pass(slices.Concat(enginetest.Notes("a", 3), []event.Event{enginetest.Noted("b"), enginetest.Probed("b", t.Name()), enginetest.Noted("b")}, enginetest.Notes("c", 3))...)

	b.MustHaveAppliedEach("a c", 3).MustHaveApplied("b", 1).MustStand("b", 2, event.Failed, 1)
	text := b.MustRow("b", 2).Attempts[0].Error
	must.Hold(t, strings.Contains(text, "panic while applying event 2: out of cheese") && strings.Contains(text, "failure_test.go"), "the attempt lacks the panic or its stack: %s", text)
	left := storetest.Column[int](t, b.ProjectionsDB, `select seq from probing`)
	must.Hold(t, len(left) == 0, "the panicking event left something behind: %v", left)
	must.Equal(t, b.OpenFailures(), []string{"b probing 2 1"}, "open failures")

	b.Clock.Advance(time.Second)
	b.Feed(enginetest.Notes("c", 2)...).MustHaveApplied("c", 5).MustStand("b", 2, event.Failed, 2).Sound()
}

// forever writes a row and then never ends, on an event of type endless.
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

// ownForever is an engine with a ledger, probes and an event that never ends. On PostgreSQL the
// server cuts that off by the store's limit, which holds for all events.
func ownForever(t *testing.T, options ...enginetest.Option) *enginetest.Engine {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Probing, forever}, append(options, enginetest.EventTimeout(storetest.Overtime))...)
	if !b.OnPostgres() {
		b.Worker.Limit("endless", 50*time.Millisecond)
	}
	return b
}

func TestPass_cutsAHangingEvent(t *testing.T) {
	b := ownForever(t, enginetest.At(storetest.NewClock()))
	if b.OnPostgres() { // a rollback does not return the numbers that it draws
		b.ExecProjections(`alter table forever add hang bigint generated always as identity`)
	}
	b.MustAppend(enginetest.Notes("a", 3)...)
	for _, hanging := range []string{"b", "c"} {
		b.MustAppend(enginetest.Noted(hanging), enginetest.EventOf(hanging, "endless", `{}`), enginetest.Noted(hanging))
	}
	b.Pass(enginetest.Notes("d", 3)...)

	if b.OnPostgres() {
		hung := storetest.Column[int](t, b.ProjectionsDB, `select last_value from forever_hang_seq`)[0]
		must.Hold(t, hung <= 4, "two events hung %d times in one wave", hung)
	}
	b.MustHaveAppliedEach("a d", 3)
	for _, hanging := range []string{"b", "c"} {
		b.MustHaveApplied(hanging, 1).MustStand(hanging, 2, event.Failed, 1)
		text := b.MustRow(hanging, 2).Row.LastError
		must.Hold(t, strings.Contains(text, "took longer than ") && strings.Contains(text, "s and was cut off"), "the error does not say that the event was cut off: %s", text)
	}
	left := storetest.Column[int](t, b.ProjectionsDB, `select n from forever`)
	must.Hold(t, len(left) == 0, "the cut-off events left something behind: %v", left)
	must.Equal(t, b.OpenFailures(), []string{"b forever 2 1", "c forever 2 1"}, "open failures")
	b.Feed(enginetest.Notes("a", 2)...).MustHaveApplied("a", 5).Sound()
}

func TestSQLitePass_countsNoAttemptWhileADatabaseIsBusy(t *testing.T) {
	t.Parallel()
	for i := range 2 {
		b := enginetest.OpenPair(t, dbtest.Files(filepath.Join(t.TempDir(), enginetest.Hurried)), enginetest.Define(t, enginetest.Ledger))
		file := []string{b.Pair.Journal, b.Pair.Projections}[i]
		b.MustAppend(enginetest.Notes("a b", 3)...)
		other := dbtest.Open(t, file)
		other.SetMaxOpenConns(1)
		must.Get(other.Exec(`begin immediate`)).Or(t)
		_, err := b.Worker.Pass(t.Context())
		must.Hold(t, errors.Is(err, event.ErrBusy), "with %s locked by somebody else: error = %v, want ErrBusy", file, err)
		must.Get(other.Exec(`rollback`)).Or(t)

		mustBeUntouched(t, b)
		b.Drain().MustHaveAppliedEach("a b", 3).Sound()
	}
}

// mustBeUntouched fails unless every row is pending without attempts, and no lease is held.
func mustBeUntouched(tb testing.TB, b *enginetest.Engine) {
	touched := storetest.Column[string](tb, b.JournalDB, `select campaign_id || ' ' || seq || ' ' || status from projection_apply_outbox where status <> 'pending' or attempt_count <> 0`)
	must.Hold(tb, len(touched) <= 0, "rows were touched: %q", touched)
	n := storetest.Column[int](tb, b.JournalDB, `select count(*) from attempts`)
	must.Hold(tb, n[0] <= 0, "%d attempts were recorded", n[0])
	leased := storetest.Column[string](tb, b.JournalDB, `select campaign_id from campaigns where lease_owner <> ''`)
	must.Hold(tb, len(leased) == 0, "campaigns %q stay leased", leased)
}

func TestSQLitePass_countsNoAttemptWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	b := enginetest.OpenPair(t, dbtest.Files(filepath.Join(t.TempDir(), enginetest.Cramped)), enginetest.Define(t, enginetest.Ledger, enginetest.Probing))
	key := t.Name()
	var stuffed atomic.Bool
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		if stuffed.Load() {
			return strings.Repeat("x", enginetest.CrampedBytes), nil
		}
		return "small", nil
	})
	stuffed.Store(true)
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.MustAppend(enginetest.Noted("b"), enginetest.Probed("b", key))
	_, err := b.Worker.Pass(t.Context())
	must.Need(t, err != nil && strings.Contains(err.Error(), "full"), "error = %v, want that the disk is full", err)
	mustBeUntouched(t, b)
	b.MustHaveApplied("a", 0)
	faults := b.ReadModel().Faults()
	must.Hold(t, errors.Is(err, event.ErrFull) && len(faults) == 1 && faults[0].Kind == database.FaultFull && !faults[0].Since.After(time.Now()), "%v, and the faults are %+v", err, faults)

	stuffed.Store(false)
	b.Drain()
	must.Equal(t, len(b.ReadModel().Faults()), 0, "faults once there is room")
	b.MustHaveApplied("a", 3).MustHaveApplied("b", 2).Sound()
}

func TestPass_advancesOverWhatNoProjectionHandles(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts})
	b.Feed(enginetest.Noted("a"), enginetest.Opened("a", 10), enginetest.Noted("a"), enginetest.Spent("a", 4), enginetest.Noted("a"))
	must.Equal(t, must.Get(b.AppliedSeq(context.Background(), "a")).Or(t), 5, "the watermark")
	b.Sound()
}

func TestPass_advancesOverAuditOnlyEventsAndTouchesNothing(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	must.OK(t, b.RegisterEventTypes(t.Context(), map[string]event.Intent{"remarked": event.IntentAuditOnly}))
	remarked := enginetest.EventOf("a", "remarked", `{}`)
	b.Feed(remarked, enginetest.Noted("a"), remarked, remarked, enginetest.Noted("a"), remarked)
	must.Equal(t, storetest.Column[int](t, b.ProjectionsDB, `select seq from ledger_history order by id`), []int{2, 5}, "projections saw events")
	c := b.MustCampaign("a")
	must.Hold(t, c.AppliedSeq == 6 && c.State() == campaign.StateCurrent, "applied seq %d, state %s; want 6, current", c.AppliedSeq, c.State())
	b.Sound()
}

// strict refuses events of its types in ways that a retry cannot fix.
const strict = `-- projection: strict
-- tables: strict_rows, strict_numbers

-- schema
create table strict_rows (campaign_id text primary key, name text not null);
create table strict_numbers (n integer primary key, campaign_id text not null);

-- on: required
insert into strict_rows (campaign_id, name) values (:campaign_id, :payload.name!);

-- on: empty
insert into strict_rows (campaign_id, name) values (:campaign_id, :payload.name);

-- on: typed
insert into strict_numbers (n, campaign_id) values (:payload.n, :campaign_id);
`

func TestPass_declaresAnEventDeadAtOnceThatCanNeverSucceed(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, strict})
	for i, c := range []struct{ name, eventType, payload, broken string }{
		{"a required value is missing", "required", `{}`, ""},
		{"a required value is null", "required", `{"name":null}`, ""},
		{"a column is not null", "empty", `{}`, ""},
		{"a value has the wrong type", "typed", `{"n":"one"}`, ""},
		{"a column is not there", "required", `{"name":"x"}`, `alter table strict_rows rename column name to title`},
	} {
		if c.broken != "" {
			b.ExecProjections(c.broken)
		}
		id := fmt.Sprint("c-", i)
		b.Feed(enginetest.EventOf(id, c.eventType, c.payload), enginetest.Noted(id)).MustStand(id, 1, event.Dead, 1)
		b.MustStand(id, 2, event.Pending, 0)
		at := b.MustRow(id, 1).Attempts[0]
		want := b.Set.Named("strict").Version
		must.Hold(t, at.Permanent && at.Projection == "strict" && at.ProjectionVersion == want, "%s: the attempt is %+v, want a permanent one of version %s", c.name, at, want)
		must.Equal(t, b.MustCampaign(id).HeadStatus, event.Dead, c.name, "the head of the campaign")
	}
	b.Sound()
}

// Rows of others may go, and a worker makes a dropped table again.
func TestPass_triesAgainWhatMaySucceedLater(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{`insert into strict_rows (campaign_id, name) values ('a', 'in the way')`, `drop table strict_rows`} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, strict))
		b.ExecProjections(broken)
		b.Pass(enginetest.EventOf("a", "required", `{"name":"x"}`)).MustStand("a", 1, event.Failed, 1)
		at := b.MustRow("a", 1).Attempts[0]
		must.Hold(t, !at.Permanent && at.Projection == "strict", "%s: the attempt is %+v, want one of strict that is not permanent", broken, at)
	}
}

// SQLite has one code for a statement that it refuses and for one that fails while it runs.
func TestSQLitePass_triesAgainWhatGoesWrongInAStatement(t *testing.T) {
	const refusing = `-- projection: refusing
-- tables: refused

-- schema
create table refused (campaign_id text primary key, n bigint);
create trigger refused_ten before insert on refused when new.n = 10 begin select raise(abort, 'not ten'); end;

-- on: told
insert into refused (campaign_id, n) values (:campaign_id, abs(:payload.n));
`
	b := enginetest.Own(t, []string{enginetest.Ledger, refusing})
	b.Pass(enginetest.EventOf("overflow", "told", `{"n":-9223372036854775808}`), enginetest.EventOf("raised", "told", `{"n":10}`))
	for _, campaign := range []string{"overflow", "raised"} {
		b.MustStand(campaign, 1, event.Failed, 1)
		at := b.MustRow(campaign, 1).Attempts[0]
		must.Hold(t, !at.Permanent, "%q is taken for permanent", at.Error)
	}
}

func TestPass_setsAQuarantiningProjectionAsideAtOnceWhenItCanNeverFollow(t *testing.T) {
	lenient := strings.Replace(strict, "-- tables", "-- on-failure: quarantine\n-- tables", 1)
	b := enginetest.Own(t, []string{enginetest.Ledger, lenient})
	b.Feed(enginetest.EventOf("a", "required", `{}`), enginetest.Noted("a")).MustHaveApplied("a", 2)
	must.Equal(t, b.OpenFailures(), []string{"a strict 1 1"}, "open failures")
	b.Sound()
}

func TestApplyInline_declaresAnEventDeadAtOnceThatCanNeverSucceed(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, strict}, enginetest.InMode(campaign.ModeInline))
	err := appendInline(t, b, enginetest.EventOf("a", "required", `{}`))
	must.Need(t, err != nil && strings.Contains(err.Error(), "can never be applied with this version of the projection"), "an event that can never be applied was answered with %v", err)
	b.MustStand("a", 1, event.Dead, 1)
	at := b.MustRow("a", 1).Attempts[0]
	must.Hold(t, at.Permanent, "the attempt is %+v, want a permanent one", at)
}

func TestPass_triesAnEventAsOftenAsItsProjectionSays(t *testing.T) {
	t.Parallel()
	for most, server := range map[int]int{3: 8, 4: 2} {
		now := storetest.NewClock()
		impatient := strings.Replace(enginetest.Accounts, "-- tables", fmt.Sprintf("-- max-attempts: %d\n-- tables", most), 1)
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, impatient), enginetest.At(now), enginetest.MaxAttempts(server))
		b.MustAppend(enginetest.Opened("a", 10), enginetest.Spent("a", 100))
		for n := 1; n < most; n++ {
			b.Pass().MustStand("a", 2, event.Failed, n)
			now.Advance(10 * time.Minute)
		}
		b.Pass().MustStand("a", 2, event.Dead, most)
	}
}

// A dead event is a line in the log; those of one error in one wave are one line.
func TestPass_logsWhatDied(t *testing.T) {
	var log storetest.Log
	b := enginetest.Own(t, []string{enginetest.Ledger, strict}, func(o *enginetest.Options) { o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b.MustAppend(enginetest.EventOf("a", "required", `{}`))
	b.MustAppend(enginetest.EventOf("b", "required", `{}`))
	b.MustAppend(enginetest.EventOf("c", "typed", `{"n":"one"}`))
	b.Feed(enginetest.Noted("d"))
	must.Hold(t, log.Says("level=WARN", "campaign=a seq=1", "projection=strict", "others_of_the_same_error=1") && log.Says("campaign=c seq=1", "others_of_the_same_error=0") && !log.Says("campaign=b") && !log.Says("campaign=d"), "the log is:\n%s", &log)
}
