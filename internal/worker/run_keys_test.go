package worker_test

import (
	"strconv"
	"testing"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
)

func TestVerify_findsTheFirstWrongEventByKeysOfAnyType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ sqlite, postgres, value string }{
		{"date", "date", "2026-01-02"},
		{"timestamp", "timestamptz", "2026-01-02 03:04:05"},
		{"boolean", "boolean", "1"},
		{"numeric(10,2)", "numeric(10,2)", "1.50"},
		{"double precision", "double precision", "0.1"},
		{"real", "real", "0.1"},
		{"text", "uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
		{"blob", "bytea", "xyz"},
		{"text", "jsonb", `{"a":1}`},
		{"text", "char(9)", "ab"},
		{"text", "varchar", "ab"},
	} {
		column := tt.sqlite
		if dbtest.Postgres() {
			column = tt.postgres
		}
		b := open(t, define(t, `-- projection: days
-- tables: days
-- schema
create table days (campaign_id text not null, day `+column+` not null, n bigint not null, primary key (campaign_id, day));
-- on: opened
insert into days (campaign_id, day, n) values (:campaign_id, :payload.day, 0);
-- on: noted
update days set n = :seq where campaign_id = :campaign_id;
`))
		b.mustAppend(t, noted("a"), eventOf("a", "opened", `{"day":`+strconv.Quote(tt.value)+`}`), noted("a"), noted("a"))
		b.drain(t)
		b.meddle(t, `update days set n = 3`)
		run := b.mustRun(t, everything)
		if run.Status != outbox.RunCompleted || run.Counts.Drifted != 1 {
			t.Errorf("%s: run %+v", column, run)
			page, _ := b.RunLog(t.Context(), run.ID, "", 0)
			t.Log(page.Items)
			continue
		}
		if c := b.result(t, run, "a").Projections[0].Comparison; c.Changed != 1 || c.FirstSeq != 4 {
			t.Errorf("%s: %+v, want a change from event 4 on", column, c)
		}
	}
}
