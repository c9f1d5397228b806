package intake_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestIntake_movesCommittedRowsInOrder(t *testing.T) {
	s := ownShop(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	full := writers.Event{CampaignID: "c-1", EventID: "e-1", EventType: "order.paid", Payload: []byte(`{"amount": 12.50}`), OccurredAt: at,
		ActorType: "user", ActorID: "7", EntityType: "order", EntityID: "17", SessionID: "s", RequestID: "r", CorrelationID: "co", CausationID: "ca",
		Tags: map[string]string{"shop": "berlin"}, Metadata: []byte(`{"trace":"t"}`), ExpectedSeq: new(int64(0))}
	s.put(full, anEvent("c-2", "x-1"), anEvent("c-1", "e-2"))
	s.raw("c-1", "e-3", `{}`)
	s.drain()
	s.holds(t, "c-1", "e-1 e-2 e-3", "c-2", "x-1", "rows", "")
	got := must.Get(s.Events(s.Ctx, "c-1", 0, 10)).Or(t)
	e := got.Items[0]
	equal(t, "stored", strings.Join([]string{e.ActorType, e.ActorID, e.EntityType, e.EntityID, e.SessionID, e.RequestID, e.CorrelationID, e.CausationID,
		string(e.Tags), string(e.Metadata), string(e.Payload)}, " "), `user 7 order 17 s r co ca {"shop":"berlin"} {"trace":"t"} {"amount":12.50}`)
	equal(t, "occurred_at", e.OccurredAt, at)
	age := time.Since(got.Items[2].OccurredAt)
	must.Hold(t, age >= 0 && age <= time.Hour, "a row without occurred_at has that of its insert, not %v", got.Items[2].OccurredAt)
	equal(t, "journalled", s.state().Journalled, 4)
}

func TestIntake_leavesUncommittedRows(t *testing.T) {
	s := ownShop(t)
	tx := must.Get(s.db.Begin()).Or(t)
	defer tx.Rollback()
	if dialect() == "postgres" { // SQLite has one writer
		must.OK(t, writers.Append(s.Ctx, tx, anEvent("c-1", "early")))
		s.put(anEvent("c-2", "late"))
		s.drain()
		equal(t, "campaign c-2", s.journal("c-2"), "late")
		must.OK(t, tx.Commit())
		s.drain()
		equal(t, "a row that committed after one with a higher id", s.journal("c-1"), "early")
		return
	}
	must.OK(t, writers.Append(s.Ctx, tx, anEvent("c-1", "gone")))
	must.OK(t, tx.Rollback())
	s.drain()
	equal(t, "after a rollback", s.journal("c-1"), "")
}

func TestIntake_rejectsARowAndHoldsOnlyItsCampaign(t *testing.T) {
	s := ownShop(t)
	s.put(anEvent("c-1", "e-1"), anEvent("c-3", "z-1"))
	s.drain()
	s.raw("c-1", "bad", `{"amount"`)
	s.raw("c-1", "behind", `{}`)
	s.raw("c-2", "big", `{"a":"`+strings.Repeat("x", 2000)+`"}`)
	s.raw("", "nameless", `{}`)
	s.raw("c-3", "z-1", `{"other":"content"}`)
	missed := anEvent("c-4", "missed")
	missed.ExpectedSeq = new(int64(5))
	s.put(missed, anEvent("c-5", "fine"))
	s.drain()
	s.drain()
	s.holds(t, "c-1", "e-1", "c-5", "fine", "rows", "bad behind big nameless z-1 missed", "rejected", "bad open, big open, nameless open, z-1 open, missed open")
	for id, want := range map[string]string{"bad": "payload is not JSON", "big": "payload is 2008 bytes; the limit is 1000", "nameless": "campaign_id is required",
		"z-1": "already exists at seq 1 with different content (payload)", "missed": `expected_seq 5 was missed: the next seq of campaign "c-4" is 1, not 6`} {
		r := s.rejected(id)
		must.Hold(t, strings.Contains(r.Reason, want) && r.Attempts == 1, "%s: %q after %d attempts, want %q", id, r.Reason, r.Attempts, want)
	}
	equal(t, "rejected rows", s.state().Rejected, 5)
	equal(t, "state", s.state().State(s.Clock.Now()), inbound.IntakeRejected)
}

// A row that is inserted again has the time of its own insert, unless the writer keeps the first one.
func TestIntake_journalsARepeatedRowOnce(t *testing.T) {
	s := ownShop(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first, later := anEvent("c-1", "e-1"), anEvent("c-1", "e-1")
	first.OccurredAt, later.OccurredAt = at, at.Add(time.Hour)
	s.put(first, later) // of one read
	s.drain()
	s.put(anEvent("c-1", "e-1"), later)
	s.raw("c-1", "e-2", `{}`)
	s.raw("c-1", "e-2", `{}`)
	s.drain()
	s.holds(t, "c-1", "e-1 e-2", "rows", "", "rejected", "")
	equal(t, "journalled", s.state().Journalled, 2)
	got := must.Get(s.Events(s.Ctx, "c-1", 0, 1)).Or(t)
	equal(t, "occurred_at of the first", got.Items[0].OccurredAt, at)
	later.ActorID, later.Payload = "7", []byte(`{"secret":"s"}`)
	s.put(later)
	s.drain()
	equal(t, "reason", s.rejected("e-1").Reason, `event "e-1" of campaign "c-1" already exists at seq 1 with different content (actor_id, payload)`)
}

func TestIntake_rejectedRowIsRetriedOrDiscarded(t *testing.T) {
	s := ownShop(t)
	retry := func(id int64) error { return storetest.No(s.intake.Retry(s.Ctx, storetest.Ana(""), "shop", id)) }
	for _, campaign := range []string{"c-1", "c-2", "c-3"} {
		s.raw(campaign, "bad-"+campaign, `{"amount"`)
		s.raw(campaign, "behind-"+campaign, `{}`)
	}
	s.drain()
	id, gone, r := s.rejected("bad-c-1").ID, s.rejected("bad-c-2").ID, s.rejected("bad-c-3")
	must.OK(t, retry(id))
	s.drain()
	equal(t, "a row that fails again", s.rejected("bad-c-1").Attempts, 2)
	mustExec(t, s.db, `update outboxweb_intake set payload = '[]' where event_id = 'bad-c-1'`)
	must.OK(t, retry(id))
	s.drain()
	equal(t, "the new reason", s.rejected("bad-c-1").Reason, "payload must be a JSON object")
	mustExec(t, s.db, `update outboxweb_intake set payload = '{}' where event_id = 'bad-c-1'`)
	must.OK(t, retry(id))
	storetest.Refused(t, retry(id), event.ErrConflict) // before the row is tried
	mustExec(t, s.db, `delete from outboxweb_intake where event_id = 'bad-c-2'`)
	s.drain()
	s.holds(t, "c-1", "bad-c-1 behind-c-1", "c-2", "", "c-3", "", "rejected", "bad-c-2 open, bad-c-3 open") // a row that is gone holds until an operator decides
	must.OK(t, retry(gone))
	s.drain()
	equal(t, "audit records", s.Number(`select count(*) from audit_log where action = 'intake_retry'`), 5)

	for reason, confirm := range map[string]string{"": "discard " + r.Discards(), "broken": ""} {
		o := storetest.Ana(reason)
		o.Confirm = confirm
		storetest.Refused(t, storetest.No(s.intake.Discard(s.Ctx, o, "shop", r.ID)), event.ErrInvalid)
	}
	o := storetest.Ana("broken at the source")
	o.Confirm = "discard " + r.Discards()
	must.Get(s.intake.Discard(s.Ctx, o, "shop", r.ID)).Or(t)
	s.drain()
	s.holds(t, "c-2", "behind-c-2", "c-3", "behind-c-3", "rows", "", "rejected", "bad-c-3 discarded")
	r = s.rejected("bad-c-3")
	must.Hold(t, strings.Contains(string(r.Content), `"payload":"{\"amount\""`) && r.ChangedBy == "ana" && r.ChangeReason == "broken at the source", "kept: %+v %s", r, r.Content)
	equal(t, "rejected rows", s.state().Rejected, 0)
	storetest.Refused(t, storetest.No(s.intake.Discard(s.Ctx, o, "shop", r.ID)), event.ErrConflict)
	storetest.Refused(t, storetest.No(s.intake.Discard(s.Ctx, o, "shop", 99)), event.ErrNotFound)
	s.raw("c-3", "bad-c-3", `{}`) // the id is free again
	s.drain()
	equal(t, "campaign", s.journal("c-3"), "behind-c-3 bad-c-3")
}

// A process may die between the two: the rows are read again, and recognized.
func TestIntake_journalsOnceWhenDeletingFails(t *testing.T) {
	s := ownShop(t)
	s.put(anEvent("c-1", "e-1"), anEvent("c-1", "e-2"))
	s.raw("c-1", "e-3", `{}`)
	forbid, allow := `create trigger stay before delete on outboxweb_intake begin select raise(abort, 'not now'); end`, `drop trigger stay`
	if dialect() == "postgres" {
		forbid, allow = `create function stay() returns trigger language plpgsql as $$ begin raise 'not now'; end $$;
			create trigger stay before delete on outboxweb_intake execute function stay()`, `drop trigger stay on outboxweb_intake`
	}
	mustExec(t, s.db, forbid)
	err := s.worker.Step(s.Ctx)
	must.Need(t, err != nil && strings.Contains(err.Error(), "not now"), "deleting did not fail: %v", err)
	s.holds(t, "c-1", "e-1 e-2 e-3", "rows", "e-1 e-2 e-3")
	st := s.state()
	must.Hold(t, st.State(s.Clock.Now()) == inbound.IntakeFailing && strings.Contains(st.Error, "not now"), "state: %+v", st)
	mustExec(t, s.db, allow)
	s.put(anEvent("c-1", "e-4"))
	s.drain()
	s.holds(t, "c-1", "e-1 e-2 e-3 e-4", "rows", "")
	equal(t, "journalled", s.state().Journalled, 4)
	equal(t, "error", s.state().Error, "")
}

func TestIntake_waitsForADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	url, db := serviceDatabase(t)
	s := openShop(t, url, db, intake.Definition{})
	err := s.worker.Step(s.Ctx)
	must.Need(t, err != nil, "a source without a table was read")
	st := s.state()
	equal(t, "state", st.State(s.Clock.Now()), inbound.IntakeFailing)
	schema, _ := writers.Schema(dialect())
	mustExec(t, s.db, schema)
	s.put(anEvent("c-1", "e-1"))
	s.drain()
	equal(t, "campaign", s.journal("c-1"), "e-1")
}

// A read that began under an old lease appends nothing: an operator may have discarded its row.
func TestIntake_fencesAProcessThatLostTheLease(t *testing.T) {
	s := ownShop(t)
	s.put(anEvent("c-1", "e-1"))
	s.worker.OnRead(sync.OnceFunc(func() {
		s.Exec(`update intake_sources set lease_owner = 'process-2', lease_epoch = lease_epoch + 1`)
	}))
	s.drain()
	s.holds(t, "c-1", "", "rows", "e-1")
	s.drain()
	equal(t, "while the other holds the source", s.journal("c-1"), "")
	s.Clock.Advance(2 * storetest.Lease)
	s.Exec(`update intake_sources set lease_expires_at = 1`)
	s.drain()
	equal(t, "after its lease", s.journal("c-1"), "e-1")
}

// What a process writes to the journal for a source it writes under its lease, whatever the step.
func TestIntake_leaseTakenOverChangesNothing(t *testing.T) {
	t.Parallel()
	broken := func(s *shop) int64 {
		s.raw("c-1", "bad", `{"amount"`)
		s.drain()
		return s.rejected("bad").ID
	}
	for what, prepare := range map[string]func(*shop){
		"an event":             func(s *shop) { s.put(anEvent("c-1", "e-1")) },
		"a row to reject":      func(s *shop) { s.raw("c-1", "bad", `{"amount"`) },
		"a table that is gone": func(s *shop) { mustExec(t, s.db, `drop table outboxweb_intake`) },
		"a retry of a row that is gone": func(s *shop) {
			must.Get(s.intake.Retry(s.Ctx, storetest.Ana(""), "shop", broken(s))).Or(t)
			mustExec(t, s.db, `delete from outboxweb_intake`)
		},
		"a discard": func(s *shop) {
			o := storetest.Ana("broken at the source")
			broken(s)
			r := s.rejected("bad")
			o.Confirm = "discard " + r.Discards()
			must.Get(s.intake.Discard(s.Ctx, o, "shop", r.ID)).Or(t)
		},
		"a kept event that the journal lacks": func(s *shop) {
			s.put(anEvent("c-1", "e-1"))
			s.drain()
			mustExec(t, s.db, `update outboxweb_intake_moved set event_id = 'lost', event = replace(event, 'e-1', 'lost')`)
		},
	} {
		for _, taken := range []string{`lease_owner = 'process-2'`, `lease_epoch = lease_epoch + 1`} {
			s := newShop(t)
			s.intake, s.worker = s.process(s.Fixture, "process-1", intake.Definition{KeepMoved: 10 * time.Minute})
			s.drain()
			prepare(s)
			s.Exec(`update intake_sources set ` + taken)
			s.Unchanged(func() {
				_ = s.worker.Step(s.Ctx)
				s.worker.Close()
			})
			must.Hold(t, !t.Failed(), "with %s, after %s", what, taken)
		}
	}
	s := newShop(t)
	s.worker.OnRead(func() { s.Exec(`update intake_sources set lease_epoch = lease_epoch + 1`) })
	s.drain()
	equal(t, "what waits, told", s.Number(`select count(*) from intake_sources where looked_at is not null`), 0)
}

// Between reading and deleting, another process may have deleted the row and the key may be in use
// again, on a table whose keys are.
func TestIntake_deletesOnlyTheEventThatItJournalled(t *testing.T) {
	t.Parallel()
	url, db := serviceDatabase(t)
	s := openShop(t, url, db, plain(t, db))
	mustExec(t, db, `insert into plain values (1, 'c-1', 'e-1', 't', '{}')`)
	s.worker.OnRead(sync.OnceFunc(func() {
		mustExec(t, db, `delete from plain`)
		mustExec(t, db, `insert into plain values (1, 'c-1', 'e-2', 't', '{}')`)
	}))
	s.drain()
	s.drain()
	equal(t, "campaign", s.journal("c-1"), "e-1 e-2")
}

func TestIntake_oneProcessHoldsASource(t *testing.T) {
	s := ownShop(t)
	_, second := s.process(s.Beside(), "process-2", intake.Definition{})
	s.drain()
	s.put(anEvent("c-1", "e-1"))
	must.OK(t, second.Step(s.Ctx))
	equal(t, "moved by the process without the lease", s.journal("c-1"), "")
	must.OK(t, s.EndLeases(s.Ctx, "process-1")) // it was killed
	must.OK(t, second.Step(s.Ctx))
	equal(t, "after the take-over", s.journal("c-1"), "e-1")
	equal(t, "holder", s.state().Lease.Owner, "process-2")
	equal(t, "epoch", s.state().Lease.Epoch, 2)
	second.Close()
	s.put(anEvent("c-1", "e-2"))
	s.drain()
	s.drain()
	equal(t, "after the other released it", s.journal("c-1"), "e-1 e-2")
}

// Append takes pgx's own transactions too.
func TestPostgresIntake_takesTransactionsOfPgx(t *testing.T) {
	s := ownShop(t)
	conn := must.Get(pgx.Connect(s.Ctx, s.url)).Or(t)
	defer conn.Close(s.Ctx)
	var many []writers.Event
	for n := range 120 {
		e := anEvent("c-1", fmt.Sprint("e-", n))
		e.ExpectedSeq = new(int64(n))
		many = append(many, e)
	}
	roll := errors.New("roll back")
	for _, end := range []error{roll, nil} {
		err := pgx.BeginFunc(s.Ctx, conn, func(tx pgx.Tx) error {
			return errors.Join(writers.Append(s.Ctx, writers.Pgx(tx), many...), end)
		})
		must.Need(t, errors.Is(err, end), "%v", err)
	}
	s.drain()
	equal(t, "events", s.Number(`select count(*) from events`), 120)
	equal(t, "rejections", s.rejections(), "")
}

// Append refuses what a server would reject in any configuration.
func TestAppend_refusesWhatCannotBeJournalled(t *testing.T) {
	s := ownShop(t)
	columns := strings.Split("campaign_id, event_id, event_type, payload, metadata, tags, occurred_at, expected_seq", ", ")
	for name, c := range map[string]struct {
		change func(*writers.Event)
		column int    // of columns
		value  any    // of the column, in a row past Append
		want   string // in the error, and in the reason of the rejected row
	}{
		"no campaign":                {func(e *writers.Event) { e.CampaignID = "" }, 0, "", "campaign_id is required"},
		"invalid UTF-8 in an id":     {func(e *writers.Event) { e.CampaignID = "c\xff" }, 0, "c\xff", "campaign_id is not valid UTF-8"},
		"an id that is a path":       {func(e *writers.Event) { e.CampaignID = ".." }, 0, "..", "campaign_id must not be"},
		"a long id":                  {func(e *writers.Event) { e.EventID = strings.Repeat("x", 201) }, 1, strings.Repeat("x", 201), "event_id is 201 bytes long"},
		"no id":                      {func(e *writers.Event) { e.EventID = "" }, 1, "", "event_id is required"},
		"no type":                    {func(e *writers.Event) { e.EventType = "" }, 2, "", "event_type is required"},
		"a line break":               {func(e *writers.Event) { e.EventType = "a\nb" }, 2, "a\nb", "event_type contains the control character U+000A"},
		"a wildcard":                 {func(e *writers.Event) { e.EventType = "*" }, 2, "*", "event_type must not contain spaces or *"},
		"a list":                     {func(e *writers.Event) { e.Payload = []byte(`[]`) }, 3, `[]`, "payload must be a JSON object"},
		"no JSON":                    {func(e *writers.Event) { e.Payload = []byte(`{"a":`) }, 3, `{"a":`, "payload is not JSON"},
		"NUL":                        {func(e *writers.Event) { e.Payload = []byte(`{"a":"\u0000"}`) }, 3, `{"a":"\u0000"}`, "payload contains a NUL character"},
		"half a character":           {func(e *writers.Event) { e.Payload = []byte(`{"a":"\ud800"}`) }, 3, `{"a":"\ud800"}`, "payload contains half a surrogate pair"},
		"an id that hides something": {func(e *writers.Event) { e.EventID = "e\u200b" }, 1, "e\u200b", "event_id contains the character U+200B"},
		"invalid UTF-8 in a payload": {func(e *writers.Event) { e.Payload = []byte("{\"a\":\"\xff\"}") }, 3, "{\"a\":\"\xff\"}", "payload is not valid UTF-8"},
		"metadata that is no JSON":   {func(e *writers.Event) { e.Metadata = []byte(`{`) }, 4, `{`, "metadata is not JSON"},
		"NUL in a tag":               {func(e *writers.Event) { e.Tags = map[string]string{"a": "\x00"} }, 5, `{"a":"\u0000"}`, "tags contains a NUL character"},
		"invalid UTF-8 in a tag":     {func(e *writers.Event) { e.Tags = map[string]string{"a": "\xff"} }, 5, "{\"a\":\"\xff\"}", "not valid UTF-8"},
		"a distant year":             {func(e *writers.Event) { e.OccurredAt = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) }, 6, "20000-01-01T00:00:00Z", "occurred_at"},
		"a negative seq":             {func(e *writers.Event) { e.ExpectedSeq = new(int64(-1)) }, 7, -1, "expected_seq must be a whole number from 0, not -1"},
		"a seq with none after it":   {func(e *writers.Event) { e.ExpectedSeq = new(int64(math.MaxInt64)) }, 7, int64(math.MaxInt64), "expected_seq must be a whole number from 0"},
	} {
		bad := anEvent("c-1", "e-1")
		c.change(&bad)
		err := writers.Append(s.Ctx, s.db, anEvent("c", "fine"), bad)
		must.Hold(t, err != nil && strings.Contains(err.Error(), "append event 2 of 2: ") && strings.Contains(err.Error(), c.want), "%s: %v, want %q", name, err, c.want)
		equal(t, name+": rows", s.rows(), "")
		values := []any{"c-1", "e-1", "order.paid", "{}", "{}", "{}", "2026-03-01T12:00:00Z", nil}
		values[c.column] = c.value
		if _, err := s.db.Exec("insert into outboxweb_intake ("+strings.Join(columns, ", ")+") values ($1, $2, $3, $4, $5, $6, $7, $8)", values...); err != nil {
			continue // PostgreSQL refuses invalid UTF-8 itself
		}
		s.drain()
		must.Get(json.Marshal(s.state())).Or(t) // JSON has no distant year
		page, err := s.intake.Rejections(s.Ctx, "shop", "", 1)
		must.Hold(t, err == nil && len(page.Items) == 1 && strings.Contains(page.Items[0].Reason, c.want), "%s: rejected %+v, %v, want %q", name, page.Items, err, c.want)
		mustExec(t, s.db, `delete from outboxweb_intake`)
		s.Exec(`delete from intake_rejections`)
	}
	for name, tx := range map[string]writers.Tx{"none": nil, "a nil transaction": (*sql.Tx)(nil), "a nil one of pgx": writers.Pgx(pgx.Tx(nil))} {
		err := writers.Append(s.Ctx, tx, anEvent("c", "fine"))
		must.Hold(t, err != nil && strings.Contains(err.Error(), "the transaction is nil"), "with %s: %v", name, err)
	}
}

// A batch that continued behind the last one would have the second event of c-1 before the first,
// which was not committed when the last one was read.
func TestPostgresIntake_readsEachBatchFromTheFirstRow(t *testing.T) {
	s := ownShop(t)
	s.intake, s.worker = s.process(s.Beside(), "process-2", intake.Definition{BatchSize: 1})
	tx := must.Get(s.db.Begin()).Or(t)
	defer tx.Rollback()
	must.OK(t, writers.Append(s.Ctx, tx, anEvent("c-1", "first")))
	s.put(anEvent("c-2", "other"))
	s.worker.OnRead(func() {
		if tx != nil {
			must.OK(t, tx.Commit())
			tx = nil
			s.put(anEvent("c-1", "second"))
		}
	})
	s.drain()
	equal(t, "campaign c-1", s.journal("c-1"), "first second")
}

// The trigger of the schema wakes the server; without it the row would wait for an hour.
func TestPostgresIntake_isWokenByTheTrigger(t *testing.T) {
	s := ownShop(t)
	for range 2 { // as a migration that is run again
		mustExec(t, s.db, writers.NotifySchema())
	}
	_, worker := s.process(s.Beside(), "process-2", intake.Definition{PollInterval: time.Hour})
	ctx, cancel := context.WithCancel(s.Ctx)
	ended := make(chan struct{})
	go func() {
		worker.Run(ctx)
		close(ended)
	}()
	must.Eventually(t, "the server listens", func() bool {
		return len(storetest.Texts(t, s.db, `select query from pg_stat_activity where datname = current_database() and query = 'listen outboxweb_intake' and state = 'idle'`)) == 1
	})
	s.put(anEvent("c-1", "e-1"))
	must.Eventually(t, "the row is moved", func() bool { return s.journal("c-1") == "e-1" && s.rows() == "" })
	cancel()
	<-ended
}

// A claim that fails leaves the listener to the next one, so that none is left behind: TestMain counts
// goroutines.
func TestPostgresIntake_listensOnceThoughAClaimFails(t *testing.T) {
	s := ownShop(t)
	mustExec(t, s.db, writers.NotifySchema())
	_, worker := s.process(s.Beside(), "process-2", intake.Definition{})
	defer worker.Close()
	gone, cancel := context.WithCancel(s.Ctx)
	cancel()
	for _, ctx := range []context.Context{s.Ctx, gone, s.Ctx} {
		err := worker.Step(ctx)
		must.Need(t, (err != nil) == (ctx == gone), "%v: %v", ctx.Err(), err)
		s.Clock.Advance(storetest.Lease)
	}
}

// A file without WAL is moved alike: reads are short, and nothing about the file is changed.
func TestSQLiteIntake_leavesTheModeOfAFileAlone(t *testing.T) {
	s := ownShop(t)
	mustExec(t, s.db, `pragma journal_mode = delete`)
	s.put(anEvent("c-1", "e-1"), anEvent("c-1", "e-2"))
	s.drain()
	equal(t, "campaign", s.journal("c-1"), "e-1 e-2")
	must.Equal(t, storetest.Texts(t, s.db, `pragma journal_mode`), []string{"delete"}, "the mode")
}
