package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPostgresPass_countsNoAttemptWhenItsConnectionIsLost(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Probing})
	var lost sync.Once
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		lost.Do(func() { must.Equal(t, b.Terminate(`query like 'update probing%'`), 1, "connections apply the event") })
		return "fine", nil
	})
	b.MustAppend(slices.Concat(enginetest.Notes("a", 3), []event.Event{enginetest.Noted("b"), enginetest.Probed("b", t.Name()), enginetest.Noted("b")}, enginetest.Notes("c", 3))...)
	_, err := b.Worker.Pass(t.Context())
	must.Hold(t, errors.Is(err, event.ErrBusy), "error = %v, want ErrBusy", err)
	mustBeUntouched(t, b)
	b.MustHaveAppliedEach("a b c", 0)

	b.Drain().MustHaveAppliedEach("a b c", 3)
	mustBeUntouched(t, b)
	must.Equal(t, b.Worker.Counted(), outbox.Settled{Applied: 9}, "counted")
	b.Sound()
}

// A connection may be lost in any of its transactions, and the answer to a commit alone, which then may have happened or not.
func TestPostgresPass_losesNothingWhenItsConnectionIsLost(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		moment, answer := []string{whenClaiming, whenApplying, whenSettling}[i/2], i%2 > 0
		s, p := dbtest.Server().Severer(t), dbtest.New(t)
		p.Journal, p.Projections = s.Through(p.Journal), s.Through(p.Projections)
		var b *enginetest.Engine
		lose := func() { b.Terminate() }
		if answer {
			lose = s.Arm
		}
		b = enginetest.OpenPair(t, p, enginetest.Define(t, enginetest.Ledger), enginetest.At(storetest.NewClock()), once(moment, lose))
		b.MustAppend(enginetest.Notes("a b c", 3)...)
		_, err := b.Worker.Pass(t.Context())
		must.Hold(t, err == nil || errors.Is(err, event.ErrBusy), "%s: %v", moment, err)
		must.Equal(t, s.Severed() == 1, answer, moment, "a commit had no answer")
		b.Drain() // without waiting for an unknown lease to end
		b.MustHaveAppliedEach("a b c", 3)
		must.Equal(t, b.Number(`select (select count(*) from projection_apply_outbox) + (select count(*) from attempts)`), 0, moment, "rows and attempts are left")
		b.Sound()
	}
}

func TestPostgresPass_countsNoAttemptWhileSomebodyElseHoldsALock(t *testing.T) {
	t.Parallel()
	for _, held := range []string{
		`select * from projection_watermarks where campaign_id = 'b' for update`,
		`update accounts set balance = balance where campaign_id = 'b'`,
		`lock table ledger_history in access exclusive mode`,
	} {
		t.Run(held, func(t *testing.T) {
			t.Parallel() // each waits for the deadline
			b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.EventTimeout(storetest.Overtime))
			b.Feed(enginetest.Opened("b", 10)).MustAppend(enginetest.Notes("a", 3)...)
			b.MustAppend(enginetest.Spent("b", 1), enginetest.Spent("b", 1))
			release := hold(t, b, held)
			_, err := b.Worker.Pass(t.Context())
			must.Hold(t, errors.Is(err, event.ErrBusy), "error = %v, want ErrBusy", err)
			release()
			mustBeUntouched(t, b)
			b.MustHaveApplied("a", 0)
			b.Drain().MustHaveAppliedEach("a b", 3).Sound()
		})
	}
}

// hold runs a statement on the projections in a transaction that stays open.
func hold(tb testing.TB, b *enginetest.Engine, statement string) (release func()) {
	tx, err := b.ProjectionsDB.BeginTx(context.Background(), nil)
	if err == nil {
		_, err = tx.Exec(statement)
	}
	must.OK(tb, err)
	return func() { must.OK(tb, tx.Rollback()) }
}

// raising fails with the SQLSTATE in the event, until that is fixed.
const raising = `-- projection: raising
-- tables: raising

-- schema @postgres
create table raising (campaign_id text not null, seq bigint not null);
create function raise_code(code text) returns bigint language plpgsql as $$
begin
  if not exists (select 1 from raising where campaign_id = code) then
    raise exception 'something about %', code using errcode = code;
  end if;
  return 1;
end
$$;

-- on: raised @postgres
insert into raising (campaign_id, seq) select :campaign_id, raise_code(:payload.code!);
`

func TestPostgresPass_tellsTheFaultsOfAnEventFromThoseOfTheServer(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, raising}, enginetest.MaxAttempts(1))
	appendRaised := func(code string) (bystander, raised string) {
		bystander, raised = "a-"+code, "b-"+code
		b.MustAppend(enginetest.Notes(bystander, 2)...)
		b.MustAppend(enginetest.Noted(raised), enginetest.EventOf(raised, "raised", fmt.Sprintf(`{"code":%q}`, code)), enginetest.Noted(raised))
		return bystander, raised
	}
	mend := func(code string) {
		b.ExecProjections(`insert into raising (campaign_id, seq) values ('` + code + `', 0)`)
	}
	for _, code := range []string{"40001", "40P01", "53100", "55P03", "57P01"} {
		bystander, raised := appendRaised(code)
		_, err := b.Worker.Pass(t.Context())
		must.Hold(t, err != nil, "%s: the wave ended without an error", code)
		mustBeUntouched(t, b)
		b.MustHaveApplied(bystander, 0)
		mend(code)
		b.Drain().MustHaveApplied(bystander, 2).MustHaveApplied(raised, 3)
	}
	bystander, raised := appendRaised("58030") // a failing disk, but not for all events
	_, err := b.Worker.Pass(t.Context())
	must.Hold(t, err != nil, "58030: the wave ended without an error")
	b.MustHaveApplied(bystander, 2).MustHaveApplied(raised, 0).MustStand(raised, 2, event.Pending, 0)
	mend("58030")
	b.Drain()
	for _, code := range []string{"22012", "23505", "53400", "54000", "P0001", "XX000", "XX001"} {
		bystander, raised := appendRaised(code)
		must.Get(b.Worker.Pass(t.Context())).Or(t)
		b.MustStand(raised, 2, event.Dead, 1).MustHaveApplied(bystander, 2).MustHaveApplied(raised, 1)
		mend(code)
		b.MustRequeue(raised, 2)
		b.Drain().MustHaveApplied(raised, 3)
	}
	b.Sound()
}

func TestPostgresPass_worksWithOneDatabaseOfEachKind(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"journal", "projections"} {
		p, files := dbtest.New(t), dbtest.Files(t.TempDir())
		if kind == "journal" {
			p.Projections = files.Projections
		} else {
			p.Journal = files.Journal
		}
		b := enginetest.OpenPair(t, p, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.At(storetest.NewClock()))
		b.MustAppend(enginetest.Notes("a", 3)...)
		b.Feed(enginetest.Opened("b", 1), enginetest.Spent("b", 2), enginetest.Noted("b")).MustHaveApplied("a", 3)
		b.MustStand("b", 2, event.Failed, 1)
		b.ExecProjections(`update accounts set balance = 1000`)
		b.Clock.Advance(time.Minute)
		b.Drain().MustHaveApplied("b", 3).Sound()
	}
}

// A pause waits for a running wave and can then rely on its end; no lease is needed. A later wave sees the pause.
func TestPostgresPause_waitsForThoseWhoApply(t *testing.T) {
	t.Parallel()
	for _, campaign := range []string{"a", ""} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing, enginetest.Tally))
		entered, release, key := make(chan struct{}), make(chan struct{}), t.Name()+campaign
		enginetest.OnProbe(t, key, func([]string) (string, error) {
			entered <- struct{}{}
			<-release
			return "", nil
		})
		b.Feed(enginetest.Noted("a")).MustAppend(enginetest.Probed("a", key))
		applied := storetest.Begin(func() error { return storetest.No(b.Worker.Pass(context.Background())) })
		<-entered
		paused := storetest.Begin(func() error {
			return storetest.No(b.Runs.PauseProjection(context.Background(), enginetest.Operator, "tally", campaign, b.Infos))
		})
		must.Eventually(t, "the pause waits", func() bool {
			select {
			case err := <-paused:
				close(release)
				t.Fatalf("the pause did not wait for the wave (%v)", err)
			default:
			}
			return storetest.Column[int](t, b.ProjectionsDB, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)[0] > 0
		})
		close(release)
		must.OK(t, errors.Join(<-paused, <-applied))
		b.Feed(enginetest.Notes("a", 2)...).MustHaveTold("tally", "a", 2).MustHaveApplied("a", 4)
		b.MustHaveCursors("a tally 2 paused").Sound()
	}
}

func TestPostgresRun_endsWellWhenItsLastConnectionIsLost(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	for _, statement := range []string{ // a sequence counts beyond the transaction that is lost
		`create sequence stops`,
		`create function lose_first() returns trigger language plpgsql as $$ begin
			if nextval('stops') = 1 then perform pg_terminate_backend(pg_backend_pid()); end if;
			return new;
		end $$`,
		`create trigger lost before insert or update on instances for each row when (new.stopped_at is not null) execute function lose_first()`,
	} {
		b.Exec(statement)
	}
	stop := b.Start()
	b.MustAppend(enginetest.Noted("a"))
	b.MustWait("a", 1)
	stop()
	n := b.Number(`select last_value from stops`)
	must.Hold(t, n >= 2, "%d attempts to record the end, want 2 or more", n)
	must.Equal(t, len(storetest.Column[string](t, b.JournalDB, `select id from instances where stopped_at is not null`)), 1, "stopped instances")
}
