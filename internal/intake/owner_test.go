package intake_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// keeping is a shop whose source keeps moved events for ten minutes.
func keeping(t *testing.T) *shop {
	s := ownShop(t)
	s.worker.Close()
	s.intake, s.worker = s.process(s.Fixture, "process-1", intake.Definition{KeepMoved: 10 * time.Minute})
	return s
}

func (s *shop) kept() string {
	return strings.Join(storetest.Texts(s.TB, s.db, `select event_id from outboxweb_intake_moved order by id`), " ")
}

// fallBack puts a standby, which is no other journal, in the place of the journal: it has none of the shop's events so far but
// those of the campaign first.
func (s *shop) fallBack() {
	s.worker.Close()
	id := s.id()
	s.Fixture = storetest.Open(s.TB)
	s.Exec(`update journal_identity set id = $1`, id)
	s.MustAppend(storetest.Event("first", "a"))
	s.intake, s.worker = s.process(s.Fixture, "process-2", intake.Definition{KeepMoved: 10 * time.Minute})
}

// An asynchronous standby became the journal, without its last commits: the rows of those events were
// deleted.
func TestIntake_journalsAgainWhatAFailoverLost(t *testing.T) {
	s := keeping(t)
	s.MustAppend(storetest.Event("first", "a"))
	condition := anEvent("c-1", "e-1")
	condition.ExpectedSeq = new(int64(0))
	condition.Payload = []byte(`{"amount":12.50,"note":"<a & b>"}`)
	s.put(anEvent("c-3", "y-1"), condition, anEvent("c-2", "x-1"), anEvent("c-1", "e-2"))
	s.drain()
	s.holds(t, "rows", "", "kept", "y-1 e-1 x-1 e-2")
	s.fallBack()
	other := storetest.Event("c-3", "another") // under the id of a lost one: no retry would change that
	other.EventID = "y-1"
	s.MustAppend(other)
	s.put(anEvent("c-1", "e-3"))
	s.drain()
	s.holds(t, "c-1", "e-1 e-2 e-3", "c-2", "x-1", "c-3", "y-1", "kept", "e-1 x-1 e-2 e-3")
	got := must.Get(s.Events(s.Ctx, "c-1", 0, 1)).Or(t)
	equal(t, "content", string(got.Items[0].Payload), `{"amount":12.50,"note":"<a & b>"}`)
	s.drain()
	equal(t, "events", s.Number(`select count(*) from events`), 6)
	s.Clock.Advance(11 * time.Minute)
	s.drain()
	equal(t, "kept when their time is over", s.kept(), "")
}

// The standby took over between the look for lost events and the append: what is kept last is there.
func TestIntake_journalsAgainWhatAFailoverLostWhileItMoved(t *testing.T) {
	s := keeping(t)
	s.put(anEvent("c-1", "e-1"), anEvent("c-2", "x-1"))
	s.drain()
	s.put(anEvent("c-3", "y-1"), anEvent("c-3", "y-2"), anEvent("c-3", "y-3"))
	s.worker.OnRead(sync.OnceFunc(func() {
		s.Exec(`drop trigger events_refuse_delete` + map[string]string{"postgres": " on events"}[dialect()])
		for _, lost := range []string{"projection_apply_outbox", "event_tags", "events", "campaigns"} {
			s.Exec(`delete from ` + lost)
		}
	}))
	s.drain()
	s.drain()
	s.holds(t, "c-3", "y-1 y-2 y-3", "c-1", "e-1", "c-2", "x-1")
}

// Kept events are those of one journal: after a hand-over the next one does not take them.
func TestIntake_keepsEventsForTheirJournal(t *testing.T) {
	s := keeping(t)
	s.put(anEvent("c-1", "e-1"))
	s.drain()
	mustExec(t, s.db, `update outboxweb_intake_owner set journal = 'new'`)
	next := s.beside("new")
	_, next.worker = s.process(next.Fixture, "server-2", intake.Definition{KeepMoved: 10 * time.Minute})
	s.put(anEvent("c-1", "e-2"))
	must.OK(t, next.worker.Step(s.Ctx))
	equal(t, "events of the new owner", next.events(t), "e-2")
}

// journal is another set-up with the source of a shop.
type journal struct {
	*storetest.Fixture
	intake *intake.Intake
	worker *intake.Worker
}

// beside is another journal, whose server has the shop in its configuration.
func (s *shop) beside(id string) *journal {
	j := &journal{Fixture: storetest.Open(s.TB)}
	j.Exec(`update journal_identity set id = $1`, id) // the fixtures' journals are copies of one
	j.intake, j.worker = s.process(j.Fixture, "server-of-"+id, intake.Definition{})
	return j
}

func (j *journal) events(tb testing.TB) string {
	return strings.Join(storetest.Texts(tb, j.JournalDB, `select event_id from events order by position`), " ")
}

func (j *journal) refused(tb testing.TB, by string) {
	err := j.worker.Step(j.Ctx)
	must.Hold(tb, err != nil && strings.Contains(err.Error(), "source shop belongs to journal "+by+", since "), "another journal's step: %v", err)
}

func handOver() operator.Command {
	o := storetest.Ana("moved to a new cluster")
	o.Confirm = "hand over shop"
	return o
}

// Two journals with one source had some of its events each, without a word.
func TestIntake_refusesAnotherJournal(t *testing.T) {
	s := ownShop(t)
	s.Exec(`update journal_identity set id = 'production'`)
	laptop := s.beside("laptop")
	for n := range 6 {
		s.put(anEvent("c-1", fmt.Sprint("e-", n)))
		if n%2 == 0 {
			s.drain()
		} else {
			laptop.refused(t, "production")
		}
	}
	s.drain()
	equal(t, "events of the owner", s.journal("c-1"), "e-0 e-1 e-2 e-3 e-4 e-5")
	equal(t, "events of the other journal", laptop.events(t), "")
	states := must.Get(laptop.intake.States(t.Context())).Or(t)
	st := states[0]
	equal(t, "state", st.State(laptop.Clock.Now()), inbound.IntakeFailing)
	must.Hold(t, st.Owner == "production" && st.OwnedSince != nil && !st.HandedOver && strings.Contains(st.Error, "this server moves rows to journal laptop. Take"), "state: %+v", st)
	equal(t, "owner, as its own journal has it", s.state().Owner, "")
}

func (s *shop) id() string {
	return must.Get(s.JournalID(s.Ctx)).Or(s.TB)
}

func TestIntake_isHandedOverAndRefusesTheFormerOwner(t *testing.T) {
	s := ownShop(t)
	s.Exec(`update journal_identity set id = 'old'`)
	next := s.beside("new")
	s.put(anEvent("c-1", "e-1"))
	s.drain()
	storetest.Refused(t, storetest.No(next.intake.HandOver(t.Context(), handOver(), "shop")), event.ErrConflict)
	next.refused(t, "old")
	unconfirmed := handOver()
	unconfirmed.Confirm = ""
	storetest.Refused(t, storetest.No(next.intake.HandOver(t.Context(), unconfirmed, "shop")), event.ErrInvalid)
	h := must.Get(next.intake.HandOver(t.Context(), handOver(), "shop")).Or(t)
	equal(t, "handed over", h, operator.IntakeHandOver{Source: "shop", From: "old", To: "new"})
	s.put(anEvent("c-1", "e-2"))
	must.OK(t, next.worker.Step(t.Context()))
	equal(t, "events of the new owner", next.events(t), "e-2")
	storetest.Refused(t, storetest.No(next.intake.HandOver(t.Context(), handOver(), "shop")), event.ErrConflict)
	s.put(anEvent("c-1", "e-3"))
	err := s.worker.Step(t.Context())
	must.Hold(t, err != nil && strings.Contains(err.Error(), "belongs to journal new, since "), "the former owner's step: %v", err)
	equal(t, "events of the former owner", s.journal("c-1"), "e-1")

	// The way back. What was asked for long ago is no longer asked for.
	must.Get(s.intake.HandOver(t.Context(), handOver(), "shop")).Or(t)
	s.drain()
	equal(t, "events after the way back", s.journal("c-1"), "e-1 e-3")
	next.refused(t, "old")
	equal(t, "asked", next.Number(`select count(*) from intake_sources where handed_over = owned_since`), 0)
}

// Rows that the former owner has read may be in its journal. On PostgreSQL the hand-over waits for
// it; on SQLite, which has no such lock, the new owner has them too: it lacks none.
func TestIntake_handsOverWhileRowsAreMoved(t *testing.T) {
	s := ownShop(t)
	s.Exec(`update journal_identity set id = 'old'`)
	next := s.beside("new")
	s.drain()
	next.refused(t, "old")
	must.Get(next.intake.HandOver(t.Context(), handOver(), "shop")).Or(t)
	s.put(anEvent("c-1", "e-1"), anEvent("c-1", "e-2"))
	taken := make(chan error, 1)
	s.worker.OnRead(sync.OnceFunc(func() {
		go func() { taken <- next.worker.Step(s.Ctx) }()
		if dialect() == "sqlite" {
			taken <- <-taken // it does not wait
			return
		}
		must.Eventually(t, "the hand-over waits", func() bool {
			return len(storetest.Texts(t, s.db, `select mode from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())`)) == 1
		})
	}))
	err := s.worker.Step(s.Ctx) // all of it, or until it is refused
	must.Need(t, err == nil || strings.Contains(err.Error(), "belongs to journal new"), "%v", err)
	must.OK(t, <-taken)
	want := map[string]string{"sqlite": "e-1 e-2", "postgres": ""}[dialect()]
	equal(t, "events of the former owner", s.journal("c-1"), "e-1 e-2")
	equal(t, "events of the new owner", next.events(t), want)
	equal(t, "rows", s.rows(), "")
}

// The former owner read before the hand-over and deletes after it: what it deletes then would be lost
// to the new owner, which may have read nothing yet.
func TestSQLiteIntake_deletesNothingOnceHandedOver(t *testing.T) {
	s := ownShop(t)
	s.drain()
	s.put(anEvent("c-1", "e-1"))
	s.worker.OnRead(sync.OnceFunc(func() {
		mustExec(t, s.db, `update outboxweb_intake_owner set journal = 'new', since = since + 1`)
	}))
	s.drain()
	s.holds(t, "c-1", "e-1", "rows", "e-1")
	err := s.worker.Step(s.Ctx)
	must.Hold(t, err != nil && strings.Contains(err.Error(), "belongs to journal new"), "the former owner's next step: %v", err)
}

// Two tables of one database are two sources, and may belong to two journals.
func TestIntake_ownsATableNotADatabase(t *testing.T) {
	s := ownShop(t)
	s.Exec(`update journal_identity set id = 'old'`)
	s.drain()
	next := s.beside("new")
	_, worker := s.process(next.Fixture, "server-2", plain(t, s.db))
	mustExec(t, s.db, `insert into plain values (1, 'c-1', 'e-1', 't', '{}')`)
	must.OK(t, worker.Step(s.Ctx))
	equal(t, "events", next.events(t), "e-1")
	equal(t, "owners", strings.Join(storetest.Texts(t, s.db, `select source_table || ' ' || journal from outboxweb_intake_owner order by source_table`), ", "), "outboxweb_intake old, plain new")
}

// A user that may read and delete rows, and no more, is told which statements are missing.
func TestPostgresIntake_saysWhatAUserMayNot(t *testing.T) {
	s := ownShop(t)
	guest := storetest.Role(t, "intake_guest")
	t.Cleanup(func() { mustExec(t, s.db, `drop owned by `+guest) })
	mustExec(t, s.db, `drop table outboxweb_intake_owner`)
	mustExec(t, s.db, `grant usage on schema journal to `+guest)
	mustExec(t, s.db, `grant select, delete on outboxweb_intake to `+guest)
	as := must.Get(url.Parse(s.url)).Or(t)
	as.User = url.UserPassword(guest, "")
	s.url = as.String()
	_, worker := s.process(s.Fixture, "server-2", intake.Definition{KeepMoved: time.Minute})
	s.put(anEvent("c-1", "e-1"))
	for _, table := range []string{"outboxweb_intake_owner", "outboxweb_intake_moved"} {
		err := worker.Step(s.Ctx)
		must.Need(t, err != nil, "read without the right to say to whom the source belongs")
		_, statements, ok := strings.Cut(err.Error(), "Let the owner of the database run: ")
		must.Need(t, ok && strings.Contains(statements, table), "the error names no statement: %v", err)
		mustExec(t, s.db, statements)
	}
	must.OK(t, worker.Step(s.Ctx))
	equal(t, "campaign", s.journal("c-1"), "e-1")
	schema, _ := writers.Schema("postgres")
	mustExec(t, s.db, schema) // may be run again
}
