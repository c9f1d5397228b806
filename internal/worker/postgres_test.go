package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// terminate ends the server's side of connections of the program to the bench's
// database, and returns how many.
func (b *bench) terminate(tb testing.TB, which string) int {
	tb.Helper()
	return len(column[bool](tb, b.journal, `select pg_terminate_backend(pid) from `+programs+` and `+which))
}

const (
	// programs are the connections of the program to this database.
	programs = `pg_stat_activity where datname = current_database() and application_name = 'outboxweb'`
	// listening is the one on which a process waits for hints.
	listening = `query like 'listen %'`
)

// disconnect takes all connections away, and returns when they are gone.
func (b *bench) disconnect(tb testing.TB) {
	tb.Helper()
	if gone := column[bool](tb, b.journal, `select pg_terminate_backend(pid, $1) from `+programs, patience.Milliseconds()); len(gone) == 0 {
		tb.Error("there was no connection to take away")
	}
}

func TestPostgresPass_countsNoAttemptWhenItsConnectionIsLost(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, probing))
	var lost sync.Once
	onProbe(t, t.Name(), func([]string) (string, error) {
		lost.Do(func() {
			if n := b.terminate(t, `query like 'update probing%'`); n != 1 {
				t.Errorf("%d connections apply the event, want 1", n)
			}
		})
		return "fine", nil
	})
	b.mustAppend(t, notes("a", 3)...)
	b.mustAppend(t, noted("b"), probed("b", t.Name()), noted("b"))
	b.mustAppend(t, notes("c", 3)...)
	if _, err := b.worker.Pass(t.Context()); !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("error = %v, want ErrBusy", err)
	}
	mustBeUntouched(t, b)
	for _, campaign := range []string{"a", "b", "c"} {
		b.mustHaveApplied(t, campaign, 0)
	}

	b.drain(t)
	for _, campaign := range []string{"a", "b", "c"} {
		b.mustHaveApplied(t, campaign, 3)
	}
	mustBeUntouched(t, b)
	if got := b.worker.Counted(); got != (store.Settled{Applied: 9}) {
		t.Errorf("counted %+v, want 9 applied", got)
	}
	b.mustBeSound(t)
}

// mustLoseNothing makes sure that 3 events of each campaign a, b and c are
// applied once, without an attempt, and that nothing is owed any more.
func mustLoseNothing(t *testing.T, b *bench) {
	t.Helper()
	for _, campaign := range []string{"a", "b", "c"} {
		b.mustHaveApplied(t, campaign, 3)
	}
	if rows := column[int](t, b.journal, `select (select count(*) from projection_apply_outbox) + (select count(*) from attempts)`); rows[0] > 0 {
		t.Errorf("%d rows and attempts are left", rows[0])
	}
	b.mustBeSound(t)
}

func appendThree(t *testing.T, b *bench) {
	t.Helper()
	for _, campaign := range []string{"a", "b", "c"} {
		b.mustAppend(t, notes(campaign, 3)...)
	}
}

func TestPostgresPass_losesNothingWhenTheServerGoesAwayBetweenApplyingAndSettling(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	appendThree(t, b)
	if err := b.worker.FinishClaims(t.Context(), b.claim(t), func() { b.disconnect(t) }); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, b)
	if got := b.worker.Counted(); got != (store.Settled{Applied: 9}) {
		t.Errorf("counted %+v, want 9 applied", got)
	}
}

func TestPostgresPass_losesNothingWhenTheServerGoesAwayInAnyOfItsTransactions(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{whenClaiming, whenApplying, whenSettling} {
		var b *bench
		b = open(t, define(t, ledger), once(moment, func() { b.disconnect(t) }))
		appendThree(t, b)
		if _, err := b.worker.Pass(t.Context()); err != nil && !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("%s: %v", moment, err)
		}
		b.drain(t)
		mustLoseNothing(t, b)
	}
}

// A commit whose answer never comes may have happened or not.
func TestPostgresPass_losesNothingWhenItNeverLearnsOfACommit(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{whenClaiming, whenApplying, whenSettling} {
		s, p := dbtest.Server().Severer(t), dbtest.New(t)
		p.Journal, p.Projections = s.Through(p.Journal), s.Through(p.Projections)
		b := openPair(t, p, define(t, ledger), at(newClock()), once(moment, s.Arm))
		appendThree(t, b)
		if _, err := b.worker.Pass(t.Context()); err != nil && !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("%s: %v", moment, err)
		}
		if n := s.Severed(); n != 1 {
			t.Fatalf("%s: %d commits were left without an answer, want 1", moment, n)
		}
		b.drain(t) // without waiting for a lease to end that nobody knows of
		mustLoseNothing(t, b)
	}
}

func TestPostgresPass_countsNoAttemptWhileSomebodyElseHoldsALock(t *testing.T) {
	t.Parallel()
	for _, held := range []string{
		`select * from projection_watermarks where campaign_id = 'b' for update`,
		`update accounts set balance = balance where campaign_id = 'b'`,
		`lock table ledger_history in access exclusive mode`,
	} {
		b := open(t, define(t, ledger, accounts), cuttingOffAfter(overtime))
		b.mustAppend(t, opened("b", 10))
		b.drain(t)
		b.mustAppend(t, notes("a", 3)...)
		b.mustAppend(t, spent("b", 1), spent("b", 1))
		release := b.hold(t, held)
		if _, err := b.worker.Pass(t.Context()); !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("%s: error = %v, want ErrBusy", held, err)
		}
		release()
		mustBeUntouched(t, b)
		b.mustHaveApplied(t, "a", 0)
		b.drain(t)
		b.mustHaveApplied(t, "a", 3)
		b.mustHaveApplied(t, "b", 3)
		b.mustBeSound(t)
	}
}

// hold runs a statement on the projections in a transaction that stays open.
func (b *bench) hold(tb testing.TB, statement string) (release func()) {
	tb.Helper()
	tx, err := b.projections.BeginTx(context.Background(), nil)
	if err == nil {
		_, err = tx.Exec(statement)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			tb.Error(err)
		}
	}
}

// raising fails with the SQLSTATE that the event asks for, until that is mended.
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
	t.Parallel()
	b := open(t, define(t, ledger, raising), maxAttempts(1))
	appendRaised := func(code string) (bystander, raised string) {
		bystander, raised = "a "+code, "b "+code
		b.mustAppend(t, notes(bystander, 2)...)
		b.mustAppend(t, noted(raised), eventOf(raised, "raised", fmt.Sprintf(`{"code":%q}`, code)), noted(raised))
		return bystander, raised
	}
	mend := func(code string) {
		mustExec(t, b.projections, `insert into raising (campaign_id, seq) values ('`+code+`', 0)`)
	}
	for _, code := range []string{"40001", "40P01", "53100", "55P03", "57P01"} {
		bystander, raised := appendRaised(code)
		if _, err := b.worker.Pass(t.Context()); err == nil {
			t.Errorf("%s: the wave ended without an error", code)
		}
		mustBeUntouched(t, b)
		b.mustHaveApplied(t, bystander, 0)
		mend(code)
		b.drain(t)
		b.mustHaveApplied(t, bystander, 2)
		b.mustHaveApplied(t, raised, 3)
	}
	bystander, raised := appendRaised("58030") // a disk that fails, but not under all of them
	if _, err := b.worker.Pass(t.Context()); err == nil {
		t.Error("58030: the wave ended without an error")
	}
	b.mustHaveApplied(t, bystander, 2)
	b.mustHaveApplied(t, raised, 0)
	b.mustStand(t, raised, 2, outbox.Pending, 0)
	mend("58030")
	b.drain(t)
	for _, code := range []string{"22012", "23505", "53400", "54000", "P0001", "XX000", "XX001"} {
		bystander, raised := appendRaised(code)
		if _, err := b.worker.Pass(t.Context()); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		b.mustStand(t, raised, 2, outbox.Dead, 1)
		b.mustHaveApplied(t, bystander, 2)
		b.mustHaveApplied(t, raised, 1)
		mend(code)
		b.mustRequeue(t, raised, 2)
		b.drain(t)
		b.mustHaveApplied(t, raised, 3)
	}
	b.mustBeSound(t)
}

// hanging never ends on an event of type endless, after it has drawn a number,
// which is used up whatever is rolled back.
const hanging = `-- projection: hanging
-- tables: hangs

-- schema @postgres
create table hangs (n bigint generated always as identity primary key, campaign_id text not null);

-- on: endless @postgres
insert into hangs (campaign_id) values (:campaign_id);
insert into hangs (campaign_id) select :campaign_id from pg_sleep(600);
`

// A hanging event costs the others of its wave no more than a few times the
// deadline.
func TestPostgresPass_appliesTheRestOfAWaveSoonAfterAHangingEvent(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, hanging), cuttingOffAfter(overtime))
	b.mustAppend(t, noted("a"), eventOf("a", "endless", `{}`), noted("a"))
	b.mustAppend(t, notes("b", 3)...)
	b.pass(t)
	if hung := column[int](t, b.projections, `select last_value from hangs_n_seq`)[0]; hung > 2 {
		t.Errorf("the event hung %d times in one wave", hung)
	}
	b.mustHaveApplied(t, "a", 1)
	b.mustStand(t, "a", 2, outbox.Failed, 1)
	b.mustHaveApplied(t, "b", 3)
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
		now := newClock()
		b := openPair(t, p, define(t, ledger, accounts), at(now))
		b.mustAppend(t, notes("a", 3)...)
		b.mustAppend(t, opened("b", 1), spent("b", 2), noted("b"))
		b.drain(t)
		b.mustHaveApplied(t, "a", 3)
		b.mustStand(t, "b", 2, outbox.Failed, 1)
		mustExec(t, b.projections, `update accounts set balance = 1000`)
		now.advance(time.Minute)
		b.drain(t)
		b.mustHaveApplied(t, "b", 3)
		b.mustBeSound(t)
	}
}

// A pause waits for a wave under way, whose end it can then rely on; no lease
// is needed. A wave that begins later finds it.
func TestPostgresPause_waitsForThoseWhoApply(t *testing.T) {
	t.Parallel()
	for _, campaign := range []string{"a", ""} {
		b := open(t, define(t, ledger, probing, tally))
		entered, release := make(chan struct{}), make(chan struct{})
		key := t.Name() + campaign
		onProbe(t, key, func([]string) (string, error) {
			entered <- struct{}{}
			<-release
			return "", nil
		})
		b.mustAppend(t, noted("a"))
		b.drain(t)
		b.mustAppend(t, probed("a", key))
		applied := make(chan error, 1)
		go func() {
			_, err := b.worker.Pass(context.Background())
			applied <- err
		}()
		<-entered
		paused := make(chan error, 1)
		go func() {
			_, err := b.runs.PauseProjection(context.Background(), operator, "tally", campaign, b.infos())
			paused <- err
		}()
		eventually(t, "the pause waits", func() bool {
			select {
			case err := <-paused:
				close(release)
				t.Fatalf("the pause did not wait for the wave (%v)", err)
			default:
			}
			return column[int](t, b.projections, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)[0] > 0
		})
		close(release)
		if err := errors.Join(<-paused, <-applied); err != nil {
			t.Fatal(err)
		}
		b.mustAppend(t, notes("a", 2)...)
		b.drain(t)
		b.mustHaveTold(t, "tally", "a", 2)
		b.mustHaveApplied(t, "a", 4)
		b.mustHaveCursors(t, "a tally 2 paused")
		b.mustBeSound(t)
	}
}
