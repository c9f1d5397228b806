package main

import (
	"path/filepath"
	"strings"
	"testing"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
)

func TestIntake_isShownAndDecidedOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.redact = redact.Builtin()
	d.does("intake", "list")
	d.said("no sources in the journal")
	d.does("intake", "schema", "sqlite")
	d.said("create table if not exists outboxweb_intake", "autoincrement")
	d.does("intake", "schema", "postgres", "--notify")
	d.said("generated always as identity", "pg_try_advisory_xact_lock")
	if err := d.run("intake", "schema", "sqlite", "--notify"); err == nil {
		t.Error("SQLite notifies")
	}

	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	shop := dbtest.Open(t, url)
	schema, _ := writers.Schema("sqlite")
	must.Get(shop.Exec(schema + `insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ('c-9', 'e-1', 'a', '['), ('c-9', 'e-2', 'a', '{}')`)).Or(t)
	source, err := intake.Definition{URL: url}.Source("shop")
	if err != nil {
		t.Fatal(err)
	}
	d.st.Intake.Settings.Sources = []intake.Source{source}
	w := intake.NewWorker(intake.WorkerConfig{Intake: d.st.Intake, ID: "w-1"})
	defer w.Close()
	move := func() {
		t.Helper()
		must.OK(t, w.Step(t.Context()))
	}
	move()
	d.does("intake", "list")
	d.said("SOURCE STATE WAITING OLDEST REJECTED JOURNALLED", "shop rejected ", " w-1")
	must.OK(t, new(reportCmd).Run(t.Context(), d.app))
	d.said("intake 1 row of source shop rejected, the first")
	d.does("intake", "rejections", "shop")
	d.said("ID ROW CAMPAIGN EVENT TYPE STATUS REJECTED REASON", "1 1 c-9 e-1 a open", "payload must be a JSON object")
	d.fails(`there is no source "nosuch"; use shop`, "intake", "rejections", "nosuch")
	d.does("intake", "retry", "shop", "1", "--reason", "try", "--json")
	d.said(`"status": "retrying"`)
	move()
	d.does("intake", "list", "--json")
	d.said(`"name": "shop"`, `"rejected": 1`)
	d.does("intake", "discard", "shop", "1", "--reason", "broken", "--confirm", "discard shop 1", "--json")
	d.said(`"status": "discarding"`)
	move()
	d.does("intake", "rejections", "shop", "--json")
	d.said(`"status": "discarded"`, `"change_reason": "broken"`)

	must.Get(shop.Exec(`update outboxweb_intake_owner set journal = 'another', since = since + 1`)).Or(t)
	if err := w.Step(t.Context()); err == nil {
		t.Error("moved the rows of another journal's source")
	}
	d.does("intake", "list")
	d.said("shop failing ", "source shop belongs to journal another, since ")
	d.does("intake", "hand-over", "shop", "--reason", "moved", "--confirm", "hand over shop")
	d.said("source shop is taken from journal another at the next read of the server that has it")
	move()
	d.does("intake", "list")
	d.said("shop caught up")
	events, err := d.st.Events(t.Context(), "c-9", 0, 10)
	if err != nil || len(events.Items) != 1 || events.Items[0].EventID != "e-2" {
		t.Errorf("events: %+v, %v", events.Items, err)
	}
}

func TestIntakeRejections_shortensLongIDs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	journal := dbtest.Open(t, d.JournalDB)
	must.Get(journal.Exec(`insert into intake_sources (source) values ('shop')`)).Or(t)
	d.does("intake", "rejections", "shop")
	d.said("no rejected rows of source shop")
	long := strings.Repeat("x", 200)
	must.Get(journal.Exec(`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', $1, $1, $1, $1, '{}', 2, 'wrong', 1)`, long)).Or(t)
	d.does("intake", "rejections", "shop")
	d.said("1 " + strings.Repeat(strings.Repeat("x", 40)+"… ", 4) + "open ")
	d.does("intake", "rejections", "shop", "--json")
	d.said(`"campaign_id": "`+long+`"`, `"event_id": "`+long+`"`)
}
