package runs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// seats is a projection with a constraint of every kind.
const seats = `-- projection: seats
-- tables: rooms, seats
-- on-failure: block

-- schema
create table rooms (campaign_id text not null, id text not null, primary key (campaign_id, id));
create table seats (
  campaign_id text not null,
  id text not null,
  room text,
  user_id text not null,
  code text,
  role text not null default 'player' check (role in ('player', 'master')),
  n bigint not null default 0,
  primary key (campaign_id, id),
  foreign key (campaign_id, room) references rooms (campaign_id, id)
);
create unique index seats_user on seats (campaign_id, user_id);
create unique index seats_code on seats (campaign_id, code);

-- on: room.opened
insert into rooms (campaign_id, id) values (:campaign_id, :payload.id!);

-- on: seat.taken
-- A user has one seat.
insert into seats (campaign_id, id, room, user_id, code, role, n)
values (:campaign_id, :payload.id!, :payload.room, lower(:payload.user), :payload.password,
  coalesce(:payload.role, 'player'), coalesce(cast(:payload.n as bigint), 0));

-- on: seat.kept
insert into seats (campaign_id, id, user_id)
values (:campaign_id, :payload.id, :payload.user)
on conflict (campaign_id, id) do update set user_id = excluded.user_id;

-- on: seat.moved
update seats set user_id = :payload.user where campaign_id = :campaign_id and id = :payload.id;

-- on: seat.rated
insert into seats (campaign_id, id, user_id, n)
values (:campaign_id, :payload.id, :payload.user, cast(:payload.price as bigint) * cast(:payload.factor as bigint));

-- on: seat.valued
insert into seats (campaign_id, id, user_id, n)
values (:campaign_id, :payload.id, :payload.user, nullif(cast(:payload.price as bigint), cast(:payload.factor as bigint)));

-- on: seat.doubled
insert into seats (campaign_id, id, user_id) values (:campaign_id, :payload.id, :payload.user);
insert into seats (campaign_id, id, user_id) values (:campaign_id, :payload.id, 'other');

-- on: room.closed
delete from rooms where campaign_id = :campaign_id and id = :payload.id;
`

// explain explains the only failure of an event, as readers of a page get it.
func explain(tb testing.TB, b *enginetest.Engine, campaign string, seq int64) outbox.ExplainedFailure {
	x := must.Get(runs.Explain(tb.Context(), b.Store, b.Set, redact.Of(redact.Builtin()), campaign, seq)).Or(tb)
	must.Need(tb, len(x.Failures) == 1, "%d failures are explained: %+v", len(x.Failures), x)
	return redact.Shown(redact.Builtin(), x).Failures[0]
}

func TestExplain_everyKindOfConstraint(t *testing.T) {
	t.Parallel()
	first := `{"id":"1","user":"ana","password":"hunter22","role":"master"}`
	b := enginetest.Open(t, enginetest.Define(t, seats), enginetest.MaxAttempts(1))
	cases := []struct {
		name, eventType, payload string
		kind, table, columns     string
		reason                   string // part of it
		existing                 string // fields of the row that is there
		refused                  string // the values that the constraint's columns get
	}{
		{"primary key", "seat.taken", `{"id":"1","user":"bo"}`, "unique", "seats", "campaign_id id",
			"A row with this key (campaign_id, id) exists already in seats.", `id="1" room=null user_id="ana" code="[redacted]" role="master" n=0`, ":campaign_id :payload.id"},
		{"unique index over an expression's value", "seat.taken", `{"id":"2","user":"ANA"}`, "unique", "seats", "campaign_id user_id",
			"(campaign_id, user_id)", `id="1" room=null user_id="ana" code="[redacted]" role="master" n=0`, ":campaign_id :payload.user"},
		{"secret in the key", "seat.taken", `{"id":"2","user":"bo","password":"hunter22"}`, "unique", "seats", "campaign_id code",
			"(campaign_id, code)", `id="1" room=null user_id="ana" code="[redacted]" role="master" n=0`, ":campaign_id :payload.password"},
		{"another key than that of on conflict", "seat.kept", `{"id":"9","user":"ana"}`, "unique", "seats", "campaign_id user_id",
			"exists already", `id="1" room=null user_id="ana" code="[redacted]" role="master" n=0`, ":campaign_id :payload.user"},
		{"update", "seat.moved", `{"id":"8","user":"ana"}`, "unique", "seats", "campaign_id user_id",
			"exists already", `id="1" room=null user_id="ana" code="[redacted]" role="master" n=0`, ":payload.user :campaign_id"},
		{"a row of the event itself", "seat.doubled", `{"id":"2","user":"bo"}`, "unique", "seats", "campaign_id id",
			"and no live row has it: an earlier statement of the event may have made it", "", ":campaign_id :payload.id"},
		{"not null", "seat.taken", `{"id":"2"}`, "not_null", "seats", "user_id", "Column user_id of seats must have a value", "", ":payload.user"},
		{"not null, an expression of two values", "seat.rated", `{"id":"2","user":"bo","price":7}`, "not_null", "seats", "n", "Column n of seats must have a value", "", ":payload.factor"},
		{"not null, an expression of present values", "seat.valued", `{"id":"2","user":"bo","price":7,"factor":7}`, "not_null", "seats", "n", "Column n of seats must have a value", "", ""},
		{"check", "seat.taken", `{"id":"2","user":"bo","role":"king"}`, "check", "seats", "role", "A check of table seats refuses the value of role.", "", ":payload.role"},
		{"foreign key", "seat.taken", `{"id":"2","user":"bo","room":"r-9"}`, "foreign_key", "seats", "campaign_id room", "refers to is missing", "", ":campaign_id :payload.room"},
		{"required value", "seat.taken", `{"user":"bo"}`, "", "", "", "The statement requires payload.id, and the event does not have it.", "", ""},
	}
	for _, c := range cases {
		b.MustAppend(enginetest.EventOf(c.name, "seat.taken", `{"id":"8","user":"cy"}`), enginetest.EventOf(c.name, "seat.taken", first), enginetest.EventOf(c.name, c.eventType, c.payload))
	}
	b.Drain()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := explain(t, b, c.name, 3)
			must.Need(t, f.Statement != nil && f.Unexplained == "" && f.VersionChanged() == "", "it is not explained: %+v", f)
			must.Hold(t, strings.Contains(f.Reason, c.reason), "reason %q, want %q", f.Reason, c.reason)
			if c.kind == "" {
				must.Hold(t, f.Constraint == nil, "constraint %+v", f.Constraint)
			} else if k := f.Constraint; k == nil || k.Kind != c.kind || k.Table != c.table || strings.Join(k.Columns, " ") != c.columns {
				t.Errorf("constraint %+v, want %s of %s (%s)", k, c.kind, c.table, c.columns)
			}
			must.Equal(t, fields(f.Existing), c.existing, "existing row")
			must.Equal(t, refusedValues(f), c.refused, "refused values")
			for _, v := range f.Statement.Values {
				within := v.Name == ":payload.price" || v.Name == ":payload.factor"
				must.Hold(t, within == slices.Equal(v.Computed, []string{"n"}) || c.eventType != "seat.valued", "%s is an input of %q", v.Name, v.Computed)
			}
			text := mustJSON(t, f)
			must.Hold(t, !strings.Contains(text, "hunter22"), "the secret is in it: %s", text)
			for _, l := range f.Statement.Lines {
				must.Hold(t, l.Number != f.Statement.Line || l.Failed && l.Text != "", "line %d is not marked: %+v", l.Number, l)
			}
		})
	}
}

func fields(row *outbox.ExistingRow) string {
	if row == nil {
		return ""
	}
	var all []string
	for _, f := range row.Fields {
		if f.Name != "campaign_id" {
			all = append(all, f.Name+"="+string(f.Value))
		}
	}
	return strings.Join(all, " ")
}

func refusedValues(f outbox.ExplainedFailure) string {
	var all []string
	for _, v := range f.Statement.Values {
		if v.Refused {
			all = append(all, v.Name)
		}
	}
	return strings.Join(all, " ")
}

func mustJSON(tb testing.TB, v any) string {
	text := must.Get(json.Marshal(v)).Or(tb)
	return string(text)
}

func TestExplain_saysWhatItCannotExplain(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, seats), enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"ana"}`), enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"bo"}`), enginetest.Noted("a"))
	of := func(definition string) outbox.ExplainedFailure {
		dialect := "sqlite"
		if b.OnPostgres() {
			dialect = "postgres"
		}
		set := must.Get(projection.Load(dialect, enginetest.Define(t, definition)...)).Or(t)
		x, err := runs.Explain(t.Context(), b.Store, set, redact.Of(redact.Builtin()), "a", 2)
		if err != nil || len(x.Failures) != 1 {
			t.Fatal(x, err)
		}
		return x.Failures[0]
	}
	if f := of(strings.Replace(seats, "-- A user has one seat.", "-- A user has only one seat.", 1)); !strings.Contains(f.VersionChanged(), "The loaded version differs from the one that failed") || f.Statement == nil {
		t.Errorf("another version: %q, %+v", f.VersionChanged(), f)
	}
	f := of("-- note: one more line\n" + seats)
	must.Hold(t, f.Statement == nil && strings.HasPrefix(f.Unexplained, "No statement of the loaded file begins at line ") && f.Reason != "", "a moved statement: %+v", f)
	f = of(strings.ReplaceAll(seats, "seat.taken", "seat.gone"))
	must.Hold(t, f.Statement == nil && f.Unexplained != "", "a type that no statement handles: %+v", f)
	f = of(enginetest.Trail)
	must.Hold(t, f.Statement == nil && f.Unexplained == "Projection seats is not loaded.", "another projection: %+v", f)
	for _, seq := range []int64{1, 3} {
		must.Equal(t, len(must.Get(runs.Explain(t.Context(), b.Store, b.Set, redact.Of(redact.Builtin()), "a", seq)).Or(t).Failures), 0, "event", seq, "has not failed")
	}
	_, err := runs.Explain(t.Context(), b.Store, b.Set, redact.Of(redact.Builtin()), "a", 9)
	must.Hold(t, errors.Is(err, outbox.ErrNotFound), "a missing event: %v", err)
	b.ExecProjections(`drop table seats`)
	f = explain(t, b, "a", 2)
	must.Hold(t, f.Statement != nil && f.Existing == nil && f.Reason != "", "without the table: %+v", f)
}

func TestExplain_valuesOfTheWrongTypeAndDeletedParents(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, seats), enginetest.MaxAttempts(1))
	b.MustAppend(enginetest.EventOf("a", "room.opened", `{"id":"r"}`), enginetest.EventOf("a", "seat.taken", `{"id":"1","room":"r","user":"ana"}`), enginetest.EventOf("a", "room.closed", `{"id":"r"}`))
	b.Drain()
	if f := explain(t, b, "a", 3); f.Constraint == nil || f.Constraint.Kind != outbox.ConstraintForeign || !strings.Contains(f.Reason, "others refer to") {
		t.Errorf("deleting a parent: %+v", f)
	}
	if !b.OnPostgres() {
		return // SQLite stores any type
	}
	b = enginetest.Open(t, enginetest.Define(t, strings.NewReplacer(":payload.n ", ":payload.password ", "lower(:payload.user), :payload.password", "lower(:payload.user), :payload.code").Replace(seats)), enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"ana","password":"hunter22"}`))
	f := explain(t, b, "a", 1)
	if f.Reason != "A value does not have the type that its column needs." || f.Statement == nil || strings.Contains(mustJSON(t, f), "hunter22") {
		t.Errorf("a value of the wrong type: %s", mustJSON(t, f))
	}
}

func TestExplain_quarantinedProjectionsAndHiddenPayloads(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, strings.Replace(seats, "on-failure: block", "on-failure: quarantine", 1)), enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"ana"}`), enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"bo"}`))
	f := explain(t, b, "a", 2)
	must.Hold(t, f.Projection == "seats" && f.Existing != nil && f.FailedVersion == "", "a quarantined projection: %+v", f)
	all := must.Get(redact.New(redact.Config{HidePayloads: true})).Or(t)
	x := must.Get(runs.Explain(t.Context(), b.Store, b.Set, redact.Of(all), "a", 2)).Or(t)
	text := mustJSON(t, redact.Shown(all, x))
	must.Hold(t, !strings.Contains(text, "ana") && !strings.Contains(text, `"bo"`), "with hidden payloads: %s", text)
}
