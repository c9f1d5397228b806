package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

var archive = subscriptionArg{outbox.SubscriptionName{Topic: "scenes", Publisher: "archive"}}

// withPublisher gives a desk a publisher blocked by an event: the second of three of its topic, at
// position 4.
func (d *desk) withPublisher() *desk {
	d.t.Helper()
	for _, kind := range []string{"scene.a", "scene.b", "scene.c"} {
		must.Get(d.st.Append(d.t.Context(), store.Append{Events: []outbox.Event{{CampaignID: "c-1", EventType: kind, Payload: json.RawMessage(`{}`)}}})).Or(d.t)
	}
	must.Get(dbtest.Open(d.t, d.JournalDB).Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, status, position, delivered_position, delivered,
  error_count, error_kind, last_error, last_error_at, error_position, lease_owner, lease_epoch, lease_expires_at, created_at, updated_at)
values ('scenes', 'archive', 'file:///a.ndjson', '{"event_types":["scene.*"]}', 10, 'failed', 3, 3, 1201, 10, 'destination', 'no space left', 1, 4, 'w-1', 1, 4102444800000000, 1, 1)`)).Or(d.t)
	return d
}

func (d *desk) configure(topics string) {
	d.t.Helper()
	var document yaml.Node
	must.OK(d.t, yaml.Unmarshal([]byte(topics), &document))
	d.sections = map[string]*yaml.Node{destination.TopicsKey: document.Content[0]}
}

func (d *desk) run(args ...string) error {
	d.t.Helper()
	var c cli
	parsed, err := newParser(&c, d.streams).Parse(args)
	if err != nil {
		return err
	}
	return d.execute(d.t.Context(), parsed)
}

func (d *desk) does(args ...string) {
	d.t.Helper()
	if err := d.run(args...); err != nil {
		d.t.Fatalf("%v: %v", args, err)
	}
}

func (d *desk) says(command string, wanted ...string) {
	d.t.Helper()
	d.does(strings.Fields(command)...)
	d.said(wanted...)
}

func (d *desk) fails(sentence string, args ...string) {
	d.t.Helper()
	if err := d.run(args...); err == nil || !strings.Contains(err.Error(), sentence) {
		d.t.Errorf("%v: got error %v, want %q", args, err, sentence)
	}
	if d.out.Len() > 0 {
		d.t.Errorf("%v printed %s", args, d.out.String())
	}
}

func TestPublishers_areListedAndShown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.says("publishers list", "no publishers")
	d.says("publishers list --json", `{ "publishers": [] }`)
	d.withPublisher()
	d.says("publishers list", "PUBLISHER STATE POSITION HEAD LAG", "scenes/archive failed 3 5 2 events, ", "1201 never w-1 10 no space left")
	d.says("publishers show scenes/archive", "scenes/archive failed", "destination file:///a.ndjson", "selects event types scene.*", "position 3 of 5", "delivered 1,201 events, the last at position 3",
		"errors in a row 10", "cause The destination is unreachable, overloaded or misconfigured, as far as its answer says.", "could not deliver event 3 (scene.b) of campaign c-1, at position 4", "no space left")
	d.does("publishers", "show", "scenes/archive", "--json")
	var p outbox.Publisher
	err := json.Unmarshal(d.out.Bytes(), &p)
	must.Hold(t, err == nil && p.SubscriptionName == archive.SubscriptionName && p.ErrorEvent != nil, "document is %+v, %v", p, err)
	d.out.Reset()
	d.says("publishers history scenes/archive", "AT DELIVERED EVENTS/S LAG ERRORS", "1201 0.0 2 events, ")
	must.OK(t, d.st.Sample(t.Context()))
	d.says("publishers history scenes/archive --span hour", "AT DELIVERED EVENTS/S LAG ERRORS", "1201 0.0 2 events")
	d.says("publishers history scenes/archive --json", `"span": "hour"`, `"lag_events": 2`)
	d.fails("is not a publisher", "publishers", "show", "scenes")
	d.fails("there is no publisher scenes/x", "publishers", "show", "scenes/x")
}

func TestPublishers_sayThatTheirProcessWasKilled(t *testing.T) {
	t.Parallel()
	d := newDesk(t).withPublisher()
	must.OK(t, d.st.Heartbeat(t.Context(), storetest.Killed(t, "w-1", time.Now())))
	d.says("publishers resume scenes/archive", "it is active")
	must.Get(dbtest.Open(t, d.JournalDB).Exec(`update publisher_progress set lease_owner = 'w-1', lease_expires_at = 4102444800000000`)).Or(t)
	d.says("publishers list", "scenes/archive not held 3 5 2 events", "w-1, crashed or killed")
	d.says("publishers show scenes/archive", "scenes/archive not held", "why Its process w-1 crashed or was killed: last seen", "leased by w-1, crashed or killed")
	d.says("publishers show scenes/archive --json", `"state": "not held"`, `"why": "Its process w-1 crashed or was killed`)
}

func TestPublishersSeek_saysWhatItWouldRepeatOrSkip(t *testing.T) {
	t.Parallel()
	d := newDesk(t).withPublisher()
	for _, flags := range [][]string{{"--to", "head", "--position", "1"}, {"--position", "1", "--time", "2026-11-21"}} {
		d.fails("needs one of", append([]string{"publishers", "seek", "scenes/archive"}, flags...)...)
	}
	d.says("publishers seek scenes/archive --to head --dry-run", "publisher scenes/archive would continue after position 5 instead of 3: 0 events repeated, 2 skipped")
	d.says("publishers seek scenes/archive --position 0 --json", `"from": 3`, `"repeats": 1`, `"capped": false`)
}

func TestPublishersTest_saysWhatCameOfIt(t *testing.T) {
	t.Parallel()
	d := newDesk(t).withPublisher()
	d.fails("name the file with --config", "publishers", "test", "scenes/archive")
	place := filepath.Join(t.TempDir(), "missing", "a.ndjson")
	d.configure("scenes: {match: {event_types: [scene.*]}, publishers: {archive: {url: 'file://" + place + "'}}}")
	if err := d.run("publishers", "test", "scenes/archive"); !errors.Is(err, errFound) {
		t.Errorf("a test event that is not taken ends the command with %v", err)
	}
	d.said("did not accept event test-", "missing")
	must.OK(t, os.Mkdir(filepath.Dir(place), 0o700))
	d.says("publishers test scenes/archive --json", `"ok": true`)
	if text, err := os.ReadFile(place); err != nil || !strings.Contains(string(text), `"type":"outboxweb.test"`) {
		t.Errorf("what was sent: %s, %v", text, err)
	}
}

func TestIntake_isShownAndDecidedOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.redact = redact.Builtin()
	d.says("intake list", "no sources in the journal")
	d.says("intake schema sqlite", "create table if not exists outboxweb_intake", "autoincrement")
	d.says("intake schema postgres --notify", "generated always as identity", "pg_try_advisory_xact_lock")
	if err := d.run("intake", "schema", "sqlite", "--notify"); err == nil {
		t.Error("SQLite notifies")
	}

	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	shop := dbtest.Open(t, url)
	schema, _ := writers.Schema("sqlite")
	must.Get(shop.Exec(schema + `insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ('c-9', 'e-1', 'a', '['), ('c-9', 'e-2', 'a', '{}')`)).Or(t)
	source := must.Get(intake.Definition{URL: url}.Source("shop")).Or(t)
	d.st.Intake.Settings.Sources = []intake.Source{source}
	w := intake.NewWorker(intake.WorkerConfig{Intake: d.st.Intake, ID: "w-1"})
	defer w.Close()
	move := func() {
		t.Helper()
		must.OK(t, w.Step(t.Context()))
	}
	move()
	d.says("intake list", "SOURCE STATE WAITING OLDEST REJECTED JOURNALLED", "shop rejected ", " w-1")
	d.does("report")
	d.said("1 row of source shop is rejected and blocks its campaign")
	d.says("intake rejections shop", "ID ROW CAMPAIGN EVENT TYPE STATUS REJECTED REASON", "1 1 c-9 e-1 a open", "payload must be a JSON object")
	d.fails(`there is no source "nosuch"; use shop`, "intake", "rejections", "nosuch")
	d.says("intake retry shop 1 --reason try --json", `"status": "retrying"`)
	move()
	d.says("intake list --json", `"name": "shop"`, `"rejected": 1`)
	d.does("intake", "discard", "shop", "1", "--reason", "broken", "--confirm", "discard shop 1", "--json")
	d.said(`"status": "discarding"`)
	move()
	d.says("intake rejections shop --json", `"status": "discarded"`, `"change_reason": "broken"`)

	must.Get(shop.Exec(`update outboxweb_intake_owner set journal = 'another', since = since + 1`)).Or(t)
	if err := w.Step(t.Context()); err == nil {
		t.Error("moved the rows of another journal's source")
	}
	d.says("intake list", "shop failing ", "source shop belongs to journal another, since ")
	d.does("intake", "hand-over", "shop", "--reason", "moved", "--confirm", "hand over shop")
	d.said("source shop is taken from journal another at the next read of the server that has it")
	move()
	d.says("intake list", "shop caught up")
	events, err := d.st.Events(t.Context(), "c-9", 0, 10)
	must.Hold(t, err == nil && len(events.Items) == 1 && events.Items[0].EventID == "e-2", "events: %+v, %v", events.Items, err)
}

func TestIntakeRejections_shortensLongIDs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	journal := dbtest.Open(t, d.JournalDB)
	must.Get(journal.Exec(`insert into intake_sources (source) values ('shop')`)).Or(t)
	d.says("intake rejections shop", "no rejected rows of source shop")
	long := strings.Repeat("x", 200)
	must.Get(journal.Exec(`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', $1, $1, $1, $1, '{}', 2, 'wrong', 1)`, long)).Or(t)
	d.says("intake rejections shop", "1 "+strings.Repeat(strings.Repeat("x", 40)+"… ", 4)+"open ")
	d.says("intake rejections shop --json", `"campaign_id": "`+long+`"`, `"event_id": "`+long+`"`)
}
