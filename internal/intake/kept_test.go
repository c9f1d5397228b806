package intake_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// keeping is a shop whose source keeps moved events for ten minutes.
func keeping(tb testing.TB) *shop {
	tb.Helper()
	s := newShop(tb)
	s.worker.Close()
	s.intake, s.worker = s.process(s.Fixture, "process-1", intake.Definition{KeepMoved: 10 * time.Minute})
	return s
}

// kept is the ids of the kept events.
func (s *shop) kept() string {
	s.tb.Helper()
	return strings.Join(storetest.Texts(s.tb, s.db, `select event_id from outboxweb_intake_moved order by id`), " ")
}

// fallBack puts a standby in the place of the journal, which has none of the shop's events so far but
// those of the campaign first.
func (s *shop) fallBack() {
	s.tb.Helper()
	s.worker.Close()
	id := s.id()
	s.Fixture = storetest.Open(s.tb)
	s.Exec(`update journal_identity set id = $1`, id)
	s.MustAppend(storetest.Event("first", "a"))
	s.intake, s.worker = s.process(s.Fixture, "process-2", intake.Definition{KeepMoved: 10 * time.Minute})
}

// An asynchronous standby became the journal, without its last commits: the rows of those events were
// deleted.
func TestIntake_journalsAgainWhatAFailoverLost(t *testing.T) {
	t.Parallel()
	s := keeping(t)
	s.MustAppend(storetest.Event("first", "a"))
	condition := event("c-1", "e-1")
	condition.ExpectedSeq = ptr(int64(0))
	condition.Payload = []byte(`{"amount":12.50,"note":"<a & b>"}`)
	s.put(condition, event("c-2", "x-1"), event("c-1", "e-2"))
	s.drain()
	equal(t, "rows", s.rows(), "")
	equal(t, "kept", s.kept(), "e-1 x-1 e-2")
	s.fallBack()
	s.put(event("c-1", "e-3"))
	s.drain()
	equal(t, "campaign c-1", s.journal("c-1"), "e-1 e-2 e-3")
	equal(t, "campaign c-2", s.journal("c-2"), "x-1")
	equal(t, "kept", s.kept(), "e-1 x-1 e-2 e-3")
	got, err := s.Events(s.Ctx, "c-1", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "content", string(got.Items[0].Payload), `{"amount":12.50,"note":"<a & b>"}`)
	s.drain()
	equal(t, "events", s.Number(`select count(*) from events`), 5)
	s.Clock.Advance(11 * time.Minute)
	s.drain()
	equal(t, "kept when their time is over", s.kept(), "")
}

// The standby took over between the look for lost events and the append: what is kept last is there.
func TestIntake_journalsAgainWhatAFailoverLostWhileItMoved(t *testing.T) {
	t.Parallel()
	s := keeping(t)
	s.put(event("c-1", "e-1"), event("c-2", "x-1"))
	s.drain()
	s.put(event("c-3", "y-1"), event("c-3", "y-2"), event("c-3", "y-3"))
	once := false
	s.worker.OnRead(func() {
		if !once {
			once = true
			s.Exec(`drop trigger events_refuse_delete` + map[string]string{"postgres": " on events"}[dialect()])
			for _, lost := range []string{"projection_apply_outbox", "event_tags", "events", "campaigns"} {
				s.Exec(`delete from ` + lost)
			}
		}
	})
	s.drain()
	s.drain()
	equal(t, "campaign c-3", s.journal("c-3"), "y-1 y-2 y-3")
	equal(t, "campaign c-1", s.journal("c-1"), "e-1")
	equal(t, "campaign c-2", s.journal("c-2"), "x-1")
}

// The journal has another event under the id of a lost one: no retry would change that.
func TestIntake_forgetsALostEventThatTheJournalRefuses(t *testing.T) {
	t.Parallel()
	s := keeping(t)
	s.put(event("c-1", "e-1"), event("c-2", "x-1"))
	s.drain()
	s.fallBack()
	other := storetest.Event("c-1", "another")
	other.EventID = "e-1"
	s.MustAppend(other)
	s.drain()
	equal(t, "campaign c-2", s.journal("c-2"), "x-1")
	equal(t, "kept", s.kept(), "x-1")
}

// Kept events are those of one journal: after a hand-over the next one does not take them.
func TestIntake_keepsEventsForTheirJournal(t *testing.T) {
	t.Parallel()
	s := keeping(t)
	s.put(event("c-1", "e-1"))
	s.drain()
	mustExec(t, s.db, `update outboxweb_intake_owner set journal = 'new'`)
	next := s.beside("new")
	_, next.worker = s.process(next.Fixture, "server-2", intake.Definition{KeepMoved: 10 * time.Minute})
	s.put(event("c-1", "e-2"))
	if err := next.worker.Step(s.Ctx); err != nil {
		t.Fatal(err)
	}
	equal(t, "events of the new owner", next.events(t), "e-2")
}
