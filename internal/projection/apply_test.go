package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// recorder is a Tx that only records what it is asked to run.
type recorder struct {
	queries []string
	args    [][]any
	endless []bool // the context can never be cancelled
	fail    error
}

func (r *recorder) Exec(ctx context.Context, query string, args []any) error {
	r.queries = append(r.queries, query)
	r.args = append(r.args, append([]any{}, args...))
	r.endless = append(r.endless, ctx.Done() == nil)
	return r.fail
}

func (r *recorder) Query(context.Context, string, []any, func([]any) error) error {
	return errors.New("a file has no queries")
}

func testEvent() *event.Event {
	return &event.Event{
		CampaignID: "c-17", Seq: 4, Position: 912, EventID: "e-1", EventType: "a",
		OccurredAt: time.Date(2026, 11, 21, 7, 10, 3, 120e6, time.FixedZone("", 3600)),
		RecordedAt: time.Date(2026, 11, 21, 7, 10, 4, 0, time.UTC),
		ActorType:  "participant", ActorID: "p-1", EntityType: "character", EntityID: "ch-3",
		SessionID: "s-1", RequestID: "r-1", CorrelationID: "co-1", CausationID: "ca-1", EventHash: "beef",
		Payload: json.RawMessage(`{"name":"Ash","n":7,"big":9223372036854775808,"small":-9223372036854775808,"float":1.50,"exp":1e3,"whole":-2.0,"far":1e300,"huge":1e999,"long":12345678901234567.0,
			"yes":true,"no":false,"nil":null,"empty":"","esc":"a\"\u00e9\n","a":{"b":{"c":"deep"}},"list":[1,{"x":"y"}],"a.b":"dotted","*":"star","@this":"at","a b":"blank"}`),
		Metadata: json.RawMessage(`{"system":"x"}`),
		Tags:     json.RawMessage(`{"wallet_id":"w-1"}`),
	}
}

func TestApply_bindsValues(t *testing.T) {
	t.Parallel()
	e := testEvent()
	for binding, want := range map[string]any{
		":campaign_id": "c-17", ":seq": int64(4), ":position": int64(912), ":event_id": "e-1", ":event_type": "a",
		":occurred_at": e.OccurredAt.UnixMicro(), ":occurred_at_text": "2026-11-21T06:10:03.12Z",
		":recorded_at": e.RecordedAt.UnixMicro(), ":recorded_at_text": "2026-11-21T07:10:04Z",
		":actor_type": "participant", ":actor_id": "p-1", ":entity_type": "character", ":entity_id": "ch-3",
		":session_id": "s-1", ":request_id": "r-1", ":correlation_id": "co-1", ":causation_id": "ca-1", ":event_hash": "beef",
		":payload": string(e.Payload), ":metadata": `{"system":"x"}`, ":tags": `{"wallet_id":"w-1"}`,
		":metadata.system": "x", ":tags.wallet_id": "w-1", ":tags.other": nil,
		":payload.name": "Ash", ":payload.name!": "Ash", ":payload.empty!": "", ":payload.missing": nil, ":payload.nil": nil, ":payload.name.deeper": nil,
		":payload.n": int64(7), ":payload.big": "9223372036854775808", ":payload.small": int64(-9223372036854775808),
		":payload.float": 1.5, ":payload.exp": int64(1000), ":payload.whole": int64(-2), ":payload.far": 1e300, ":payload.long": int64(12345678901234567), ":payload.yes": int64(1), ":payload.no": int64(0),
		":payload.esc": "a\"é\n", ":payload.a.b.c": "deep", ":payload.a.b": `{"c":"deep"}`, ":payload.list": `[1,{"x":"y"}]`, ":payload.list.1.x": "y",
		`:payload."a.b"`: "dotted", `:payload."*"`: "star", `:payload."@this"`: "at", `:payload."a b"!`: "blank", `:payload."na*"`: nil, `:payload."#"`: nil,
	} {
		s := loadText(t, head+"-- on: a\ninsert into t values ("+binding+", :campaign_id);\n")
		var r recorder
		must.OK(t, s.Apply(t.Context(), &r, e, nil))
		must.Equal(t, r.args[0][0], want, binding)
	}
	s := loadText(t, head+"-- on: a\ninsert into t values (:campaign_id, :metadata, :metadata.a);\n")
	var r recorder // what is absent is an empty object
	must.OK(t, s.Apply(t.Context(), &r, &event.Event{CampaignID: "c", EventType: "a"}, nil))
	must.Equal(t, r.args[0], []any{"c", "{}", nil})
}

func TestBoundNumber_isWhatIsWritten(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]any{
		"0": int64(0), "-0": int64(0), "-0.0": int64(0), "0e400": int64(0), "7.000": int64(7), "-1.5e1": int64(-15), "100e-2": int64(1),
		"9007199254740993.0": int64(9007199254740993), "922337203685477580.7e1": int64(9223372036854775807), "-9223372036854775808.0": int64(-9223372036854775808),
		"9223372036854775808": "9223372036854775808", "100000000000000000000": "100000000000000000000",
		"9223372036854775808.0": "9223372036854775808.0", "1e20": 1e20, "12345678901234567890e2": "1234567890123456789000",
		"0.1": 0.1, "1.50": 1.5, "0.30000000000000004": 0.30000000000000004, "1.7976931348623157e308": 1.7976931348623157e308, "5e-324": 5e-324,
		"1.000000000000000001": "1.000000000000000001", "-0.1000000000000000000010": "-0.1000000000000000000010",
		"1.2345678901234567891E3": "1234.5678901234567891", "-1.2345678901234567891e-3": "-0.0012345678901234567891",
		"1e400": nil, "-1e400": nil, "1e-400": nil, "1e99999999999999999999": nil, "1e-99999999999999999999": nil, "1" + strings.Repeat("0", 400): nil,
	} {
		got, known := boundNumber(written, true)
		must.Equal(t, got, want, written, "is bound as")
		must.Hold(t, known == (want != nil), "%s is known: %t", written, known)
		if f, err := strconv.ParseFloat(written, 64); err == nil && strings.ContainsAny(written, ".e") {
			if _, whole := want.(int64); whole {
				continue
			}
			if got, known := boundNumber(written, false); known && got != f {
				t.Errorf("%s is %v where numbers are read, want %v", written, got, f)
			}
		}
	}
}

// A text is greater than every number on SQLite, and its columns of numbers do not round as Go does.
func TestApply_onSQLiteDigitsAreKeptWhereTextGoes(t *testing.T) {
	t.Parallel()
	const schema = "-- projection: p\n-- tables: t\n-- schema\ncreate table t (campaign_id text, s varchar(40), d double precision, n numeric, u);\n-- on: a\n"
	const exact, rounded = "0.1000000000000000000001", 0.1
	for statement, want := range map[string][]any{
		"insert into t (campaign_id, s) values (:campaign_id, :payload.x)":                                                         {exact},
		"insert into t (campaign_id, s) select :campaign_id, coalesce(:payload.x, '') where true":                                  {exact},
		"insert into t (campaign_id, s) values (:campaign_id, 'x ' || :payload.x)":                                                 {exact},
		"insert into t (campaign_id, n) values (:campaign_id, cast(:payload.x as text))":                                           {exact},
		"insert into t (campaign_id, d, s) values (:campaign_id, :payload.x, :payload.x)":                                          {rounded, exact},
		"update t set s = :payload.x where campaign_id = :campaign_id and s = :payload.x":                                          {exact},
		"insert into t (campaign_id, d) values (:campaign_id, :payload.x)":                                                         {rounded},
		"insert into t (campaign_id, n) values (:campaign_id, :payload.x)":                                                         {rounded},
		"insert into t (campaign_id, u) values (:campaign_id, :payload.x)":                                                         {rounded},
		"update t set s = 'big' where campaign_id = :campaign_id and :payload.x > 0.5":                                             {rounded},
		"update t set s = :payload.x where campaign_id = :campaign_id and :payload.x > 0.5":                                        {rounded, exact},
		"update t set s = case when coalesce(:payload.x, 0) > 0.5 then 'big' else :payload.x end where campaign_id = :campaign_id": {rounded},
		"update t set s = json_object('x', :payload.x) where campaign_id = :campaign_id":                                           {rounded},
		"update t set s = :payload.x + 1 where campaign_id = :campaign_id":                                                         {rounded},
	} {
		set := loadText(t, schema+statement+";\n")
		e := testEvent()
		e.Payload = json.RawMessage(`{"x":0.1000000000000000000001}`)
		var r recorder
		must.OK(t, set.Apply(t.Context(), &r, e, nil))
		bound := slices.DeleteFunc(r.args[0], func(arg any) bool { return arg == e.CampaignID })
		must.Equal(t, bound, want, statement)
		for n := range len(bound) + 1 {
			must.Hold(t, strings.Contains(r.queries[0], fmt.Sprintf("$%d", n+1)), "%s does not use $%d", r.queries[0], n+1)
		}
	}
	s := inMemory(t, loadText(t, schema+"insert into t (campaign_id, s, d, n) values (:campaign_id, :payload.x, :payload.x, cast(:payload.x as text));\n"))
	must.OK(t, s.Apply(t.Context(), &event.Event{CampaignID: "c", EventType: "a", Payload: []byte(`{"x":6718748338527386.5007}`)}))
	rows := must.Get(s.QueryContext(t.Context(), "select s, d from t")).Or(t)
	defer rows.Close()
	var text string
	var number float64
	must.Hold(t, rows.Next() && rows.Scan(&text, &number) == nil && text == "6718748338527386.5007" && number == 6718748338527386.5007, "it is %q and %v", text, number)
}

func TestApply_refusesANumberThatNoDatabaseHas(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{`{"x":1e400}`, `{"x":-1e400}`, `{"x":1e-400}`} {
		f := replayText(t, "-- projection: p\n-- tables: t\n-- schema\ncreate table t (campaign_id text, d double precision, s text);\n"+
			"-- on: d\ninsert into t (campaign_id, d) values (:campaign_id, :payload.x);\n-- on: s\ninsert into t (campaign_id, s) values (:campaign_id, :payload.x);\n"+
			"-- on: whole\ninsert into t (campaign_id, s) values (:campaign_id, :payload);\n")
		for _, eventType := range []string{"d", "s"} {
			err := f.Apply(t.Context(), &event.Event{CampaignID: "c", Seq: 1, EventType: eventType, Payload: []byte(payload)})
			must.Hold(t, errors.Is(err, event.ErrUnboundValue) && strings.HasSuffix(err.Error(), "payload.x is a number outside of what a 64-bit float can be: it is beyond 1.8e308, or nearer to 0 than 5e-324"), "%s on %s: %v", payload, eventType, err)
		}
		must.OK(t, f.Apply(t.Context(), &event.Event{CampaignID: "c", Seq: 1, EventType: "whole", Payload: []byte(payload)}))
	}
}

// JSON may contain half a surrogate pair; it becomes U+FFFD, and the text after it is kept.
func TestApply_halfACharacterTakesNoOtherWithIt(t *testing.T) {
	t.Parallel()
	s := loadText(t, head+"-- on: a\ninsert into t values (:payload.text, :campaign_id);\n")
	for spelled, want := range map[string]string{`\ud800\u0041b`: "\ufffdAb", `\ud800\ud83d\ude00`: "\ufffd😀", `\ude00\u0041`: "\ufffdA", `\ud83d\ude00`: "😀"} {
		e := testEvent()
		e.Payload = json.RawMessage(`{"text":"` + spelled + `"}`)
		var r recorder
		must.OK(t, s.Apply(t.Context(), &r, e, nil))
		must.Equal[any](t, r.args[0][0], want, spelled, "is bound as")
	}
}

func TestApply_namesWhatARequiredValueLacks(t *testing.T) {
	t.Parallel()
	for binding, want := range map[string]string{
		":payload.gone!":   "payload.gone is required, and the event does not have it",
		":payload.a.gone!": "payload.a.gone is required, and the event does not have it",
		":payload.nil!":    "payload.nil is required, and the event says null",
		":session_id!":     "session_id is required, and the event has none",
	} {
		s := loadText(t, head+"-- on: a\ndelete from t where campaign_id = :campaign_id;\ninsert into t values (:campaign_id, "+binding+");\n")
		e := testEvent()
		e.SessionID = ""
		var r recorder
		err := s.Apply(t.Context(), &r, e, nil)
		var at *ApplyError
		must.Need(t, errors.As(err, &at), "error %v, want *ApplyError", err)
		must.Hold(t, at.Projection == "p" && filepath.Base(at.File) == "test.sql" && at.Line == 7 && at.EventType == "a" && at.Err.Error() == want, "%s: %+v", binding, at)
		must.Equal(t, err.Error(), "projection p (test.sql:7) on a: "+want)
	}
}

func TestApply_leavesOutSkippedProjections(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, "builtin:campaigns", writeFiles(t, "t.sql", head+"-- on: session.started\ninsert into t (campaign_id) values (:campaign_id);\n"))
	e := testEvent()
	e.EventType = "session.started"
	var r recorder
	must.OK(t, s.Apply(t.Context(), &r, e, map[string]bool{"sessions": true, "campaigns": false}))
	must.Equal(t, r.queries, []string{"insert into t (campaign_id) values ($1)"})
}

func TestApply_firstErrorEnds(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, "builtin:campaigns")
	e := testEvent()
	e.EventType = "character.created"
	broken := errors.New("disk on fire")
	r := recorder{fail: broken}
	err := s.Apply(t.Context(), &r, e, nil)
	must.Hold(t, errors.Is(err, broken) && len(r.queries) == 1, "error %v after %d statements, want %v after 1", err, len(r.queries), broken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = s.Apply(ctx, &recorder{}, e, nil)
	must.Hold(t, errors.Is(err, context.Canceled), "error %v, want context.Canceled", err)
	e.EventType = "nobody.cares"
	must.OK(t, s.Apply(t.Context(), &r, e, nil))
	must.Hold(t, !s.Handles(e.EventType), "an event type without handler is handled")
}

// Only statements that the data could make run for long pay for a cancellable context.
func TestApply_deadlineIsForStatementsThatCouldRunLong(t *testing.T) {
	t.Parallel()
	for statement, endless := range map[string]bool{
		"insert into t (campaign_id, n) values (:campaign_id, coalesce(:payload.n, 0))":                                           true,
		"insert into t values (:campaign_id, 1) on conflict (campaign_id) do update set n = (t.n + excluded.n) where (t.n > 1)":   true,
		"update t set n = case when (n > 1) then upper(:payload.n) else n end where campaign_id = :campaign_id and (n in (1, 2))": true,
		"delete from t where campaign_id = :campaign_id and n = :seq":                                                             true,
		"insert into t select :campaign_id, 1":                                                                                    false,
		"with recursive r(x) as (select 1 union all select x + 1 from r) insert into t select :campaign_id, x from r":             false,
		"insert into t values (:campaign_id, (select count(*) from t))":                                                           false,
		"update t set n = u.n from t as u where t.campaign_id = :campaign_id":                                                     false,
		"delete from t where campaign_id = :campaign_id and n in (select n from t)":                                               false,
		"update t set n = 1 where campaign_id = :campaign_id and campaign_id like '%a%a%a%a%a%b'":                                 false,
		"insert into t values (:campaign_id, length(hex(zeroblob(1000000000))))":                                                  false,
		"insert into t values (:campaign_id, \"pg_sleep\"(1000))":                                                                 false,
		"replace into t values (:campaign_id, 1)":                                                                                 true,
	} {
		s := loadText(t, head+"-- on: a\n"+statement+";\n")
		var r recorder
		ctx, cancel := context.WithTimeout(t.Context(), must.Patience)
		must.OK(t, s.Apply(ctx, &r, testEvent(), nil))
		cancel()
		must.Equal(t, r.endless[0], endless, statement, "without deadline")
	}
	s := loadText(t, head+"create trigger tr after insert on t begin delete from t where n = 1; end;\n-- on: a\ninsert into t (campaign_id) values (:campaign_id);\n")
	var r recorder
	ctx, cancel := context.WithTimeout(t.Context(), must.Patience)
	defer cancel()
	must.OK(t, s.Apply(ctx, &r, testEvent(), nil))
	must.Hold(t, !r.endless[0], "with a trigger in the schema a statement has no deadline")
}

func TestApply_isSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, "builtin:campaigns")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				e := testEvent()
				e.CampaignID = fmt.Sprint(i, "-", j)
				e.EventType = []string{"campaign.created", "session.started", fmt.Sprint("other.", j)}[j%3]
				var r recorder
				err := s.Apply(context.Background(), &r, e, nil)
				must.Hold(t, err == nil, "%v", err)
				for _, args := range r.args {
					must.Equal[any](t, args[0], e.CampaignID, "bound campaign")
				}
			}
		})
	}
	wg.Wait()
}

func TestSet_keepsABoundedNumberOfPlans(t *testing.T) {
	t.Parallel()
	s := loadText(t, head+"-- on: *\ninsert into t (campaign_id) values (:campaign_id);\n")
	for i := range maxPlans + 100 {
		must.Need(t, s.Handles(fmt.Sprint("type.", i)), "* handles every type")
	}
	must.Equal(t, s.planCount.Load(), maxPlans, "plans kept")
}

// A statement that would never end is cancelled, and does not affect what was replayed before.
func TestApply_deadlineCutsARunawayStatement(t *testing.T) {
	t.Parallel()
	c := inMemory(t, loadText(t, head+`-- on: good
insert into t values (:campaign_id, :seq);
-- on: runaway
insert into t values (:campaign_id, 1);
insert into t with recursive r(x) as (select 1 union all select x + 1 from r) select :campaign_id, sum(x) from r;
`))
	must.OK(t, c.Apply(t.Context(), &event.Event{CampaignID: "c", Seq: 1, EventType: "good"}))
	for limit := 200 * time.Millisecond; ; limit *= 4 { // on a slow machine a short one ends the statement before
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := c.Apply(ctx, &event.Event{CampaignID: "c", Seq: 2, EventType: "runaway"})
		cancel()
		var at *ApplyError
		if errors.Is(err, context.DeadlineExceeded) && errors.As(err, &at) && at.Line == 9 {
			break
		}
		must.Need(t, errors.Is(err, context.DeadlineExceeded) && limit <= 10*time.Second, "error %v, want the deadline in line 9", err)
	}
	must.OK(t, c.Apply(t.Context(), &event.Event{CampaignID: "c", Seq: 3, EventType: "good"}))
	want := []string{`{"campaign_id":"c","n":1}`, `{"campaign_id":"c","n":3}`}
	must.Equal(t, tableRows(t, c, "t"), want)
}
