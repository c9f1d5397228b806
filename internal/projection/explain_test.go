package projection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

func nothingHidden() Hider {
	return Hider{Event: func(e event.Event) event.Event { return e }, Name: func(string) bool { return false }}
}

// Every statement of the built-in sets can be explained for every event of the sample journals, with the values that applying it binds.
func TestExplain_everyStatementOfEverySampleEvent(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		s := must.Get(Load(dialect, builtins()...)).Or(t)
		corpus.EachJournal(t, corpus.Heavy, func(t *testing.T, j corpus.Journal) {
			events := j.Parse(t)
			must.Hold(t, explainAll(t, s, events[:min(len(events), size.Of(300, 600, 5000))]) >= 100, "few statements were explained")
		})
		corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
			must.Hold(t, explainAll(t, s, traces.Longest().Parse(t)) != 0, "no statement was explained")
		})
	}
}

// explainAll explains each event for each of its statements, as if that had failed, and returns how many it explained.
func explainAll(t *testing.T, s *Set, events []event.Event) int {
	explained := 0
	for i := range events {
		e := &events[i]
		for _, h := range s.plan(e.EventType) {
			table, _ := h.target()
			var r recorder
			bindable := h.run(t.Context(), s, &r, e, new([]any))
			recorded := (&ApplyError{h.projection.Name, h.File, h.Line, e.EventType, fmt.Errorf("UNIQUE constraint failed: %s.campaign_id", table)}).Error()
			f := s.Explain(t.Context(), nil, e, recorded, nothingHidden())
			must.Need(t, f.Statement != nil && f.Statement.Line == h.Line && f.Unexplained == "" && f.Constraint != nil, "%s on event %d of %s: %+v", recorded, e.Seq, e.CampaignID, f)
			for n, v := range f.Statement.Values {
				must.Hold(t, bindable != nil || string(v.Value) == string(shown(appendValue(nil, r.args[0][n]))), "%s binds %v to %s, and %s is shown", recorded, r.args[0][n], v.Name, v.Value)
			}
			explained++
		}
	}
	return explained
}

func TestStatement_saysWhatItWrites(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"insert into t (campaign_id, a) values (:campaign_id, lower(:payload.x, 'y'))":                                              "campaign_id=:campaign_id a=lower(:payload.x, 'y')",
		"insert into t values (:payload.x, :campaign_id)":                                                                           "a=:payload.x campaign_id=:campaign_id",
		"insert into t (campaign_id, a) values (:campaign_id, 1), (:campaign_id, :payload.x)":                                       "campaign_id=:campaign_id a=1 1:campaign_id=:campaign_id 1:a=:payload.x",
		"insert into t as u (campaign_id, a) values (:campaign_id, 1) on conflict (campaign_id) do update set a = excluded.a":       "campaign_id=:campaign_id a=1 a=excluded.a",
		"insert into t (campaign_id, a) select :campaign_id, coalesce(u.a, :payload.x) from t u where u.campaign_id = :campaign_id": "campaign_id=:campaign_id a=coalesce(u.a, :payload.x) campaign_id=:campaign_id",
		"update t set a = a + :payload.x where campaign_id = :campaign_id":                                                          "a=a + :payload.x campaign_id=:campaign_id",
		"update t set (a) = (:payload.x) where campaign_id = :campaign_id":                                                          "a=(:payload.x) campaign_id=:campaign_id",
		"delete from t where campaign_id = :campaign_id and a = :payload.x":                                                         "campaign_id=:campaign_id a=:payload.x",
		"with u as (select 1 as one) insert into t (campaign_id, a) select :campaign_id, one from u":                                "campaign_id=:campaign_id a=one",
	} {
		s := loadText(t, "-- projection: p\n-- tables: t\n-- schema\ncreate table t (a text, campaign_id text);\n-- on: a\n"+sql+";\n")
		h := s.plan("a")[0]
		var got []string
		for _, w := range h.writes(s.projections[0].tables[0]) {
			tuple := ""
			if w.tuple > 0 {
				tuple = fmt.Sprint(w.tuple, ":")
			}
			got = append(got, tuple+w.column+"="+sql[h.tokens[w.from].start-h.tokens[0].start:h.tokens[w.to-1].end-h.tokens[0].start])
		}
		must.Equal(t, strings.Join(got, " "), want, sql, "writes")
	}
}

func TestReasonOf_isASentence(t *testing.T) {
	t.Parallel()
	for cause, want := range map[string]string{
		"payload.id is required, and the event says null": "The statement requires payload.id, and the event does not have it.",
		"cannot store TEXT value in INTEGER column t.n":   "Column t.n holds INTEGER, and the value is TEXT.",
		`invalid input syntax for type bigint: "one"`:     "A value does not have the type that its column needs.",
		`value "99" is out of range for type bigint`:      "A value does not have the type that its column needs.",
		"no such table: t": "The statement names a table, column or function that the database does not have.",
		"the event took longer than 1s and was cut off: interrupted": "It ran for longer than one event may take.",
		"anything else": "The database refused the statement.",
	} {
		must.Equal(t, reasonOf(cause), want, cause)
	}
	_, ok := readError(errors.New("panic while applying event 3: x").Error(), "a")
	must.Hold(t, !ok, "a panic names no statement")
}
