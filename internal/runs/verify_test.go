package runs_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
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
		b := enginetest.Open(t, enginetest.Define(t, `-- projection: days
-- tables: days
-- schema
create table days (campaign_id text not null, day `+column+` not null, n bigint not null, primary key (campaign_id, day));
-- on: opened
insert into days (campaign_id, day, n) values (:campaign_id, :payload.day, 0);
-- on: noted
update days set n = :seq where campaign_id = :campaign_id;
`))
		b.MustAppend(t, enginetest.Noted("a"), enginetest.EventOf("a", "opened", `{"day":`+strconv.Quote(tt.value)+`}`), enginetest.Noted("a"), enginetest.Noted("a"))
		b.Drain(t)
		b.Meddle(t, `update days set n = 3`)
		run := b.MustRun(t, enginetest.Everything)
		if run.Status != outbox.RunCompleted || run.Counts.Drifted != 1 {
			t.Errorf("%s: run %+v", column, run)
			page, _ := b.Runs.Log(t.Context(), run.ID, "", 0)
			t.Log(page.Items)
			continue
		}
		if c := b.RunResult(t, run, "a").Projections[0].Comparison; c.Changed != 1 || c.FirstSeq != 4 {
			t.Errorf("%s: %+v, want a change from event 4 on", column, c)
		}
	}
}

func TestVerify_showsLongValuesCutAndStillFindsTheirEvent(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, `-- projection: texts
-- tables: texts
-- schema
create table texts (campaign_id text not null, seq bigint not null, body text not null, primary key (campaign_id, seq));
-- on: noted
insert into texts values (:campaign_id, :seq, :payload.body!);
`))
	long := strings.Repeat("é", 100_000)
	texts := 40
	if testing.Short() {
		texts = 22 // still more than are shown
	}
	for range texts {
		b.MustAppend(t, enginetest.EventOf("a", "noted", `{"body":"`+long+`"}`))
	}
	b.Drain(t)
	b.Meddle(t, `update texts set body = body || 'x' where seq > 1`)
	run := b.MustRun(t, enginetest.Everything)
	p := b.RunResult(t, run, "a").Projections[0]
	if c := p.Comparison; c.Changed != int64(texts-1) || c.FirstSeq != 2 || len(c.Samples) != 20 {
		t.Errorf("%d changed from event %d on, %d shown", c.Changed, c.FirstSeq, len(c.Samples))
	}
	text, err := json.Marshal(p)
	if err != nil || len(text) > 200_000 {
		t.Errorf("the result is %d bytes (%v)", len(text), err)
	}
	for _, s := range p.Comparison.Samples {
		if f := s.Fields[0]; string(f.Live) == string(f.Expected) || !strings.Contains(string(f.Expected), "(200000 bytes, sha256 ") {
			t.Errorf("live %s, fold %s", f.Live, f.Expected)
		}
	}
}

// A verification of all campaigns that finds no difference shows that the rows are those of the loaded
// version, whichever version built them. One that finds a difference does not.
func TestVerify_ofEverythingShowsWhatTheRowsWereBuiltBy(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, `-- projection: texts
-- tables: texts
-- schema
create table texts (campaign_id text not null, seq bigint not null, primary key (campaign_id, seq));
-- on: noted
insert into texts values (:campaign_id, :seq);
`))
	b.MustAppend(t, enginetest.EventOf("a", "noted", `{}`), enginetest.EventOf("b", "noted", `{}`))
	b.Drain(t)
	b.Meddle(t, `update projection_versions set built_version = ''`)
	b.Meddle(t, `update texts set seq = 7 where campaign_id = 'b'`)
	for _, verified := range []bool{false, true} {
		if verified {
			b.Meddle(t, `update texts set seq = 1 where campaign_id = 'b'`)
		}
		b.MustRun(t, outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"a"}})
		b.MustRun(t, enginetest.Everything)
		described, err := b.Runs.DescribeProjections(t.Context(), b.Infos())
		if err != nil || described[0].BuiltByOtherVersion == verified {
			t.Errorf("verified: %t; described as %+v, %v", verified, described, err)
		}
	}
}
