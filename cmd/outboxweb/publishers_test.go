package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// withPublisher is a desk with a publisher blocked by an event: the second of three of its topic, at position 4.
func withPublisher(t *testing.T) *desk {
	d := two(t)
	for _, kind := range []string{"scene.a", "scene.b", "scene.c"} {
		must.Get(d.st.Append(t.Context(), store.Append{Events: []event.Event{{CampaignID: "c-1", EventType: kind, Payload: json.RawMessage(`{}`)}}})).Or(t)
	}
	d.exec(d.pair.Journal, `
insert into publisher_progress (topic, publisher, destination, selects, max_errors, status, position, delivered_position, delivered,
  error_count, error_kind, last_error, last_error_at, error_position, lease_owner, lease_epoch, lease_expires_at, created_at, updated_at)
values ('scenes', 'archive', 'file:///a.ndjson', '{"event_types":["scene.*"]}', 10, 'failed', 3, 3, 1201, 10, 'destination', 'no space left', 1, 4, 'w-1', 1, 4102444800000000, 1, 1)`)
	return d
}

func TestPublishers_areListedAndShown(t *testing.T) {
	d := withPublisher(t)
	d.says("publishers list", "PUBLISHER STATE POSITION HEAD LAG", "scenes/archive failed 3 5 2 events, ", "1201 never w-1 10 no space left")
	d.says("publishers show scenes/archive", "scenes/archive failed", "destination file:///a.ndjson", "selects event types scene.*", "position 3 of 5", "delivered 1,201 events, the last at position 3",
		"errors in a row 10", "cause The destination is unreachable, overloaded or misconfigured, as far as its answer says.", "could not deliver event 3 (scene.b) of campaign c-1, at position 4", "no space left")
	d.says("publishers show scenes/archive --json", `"topic": "scenes"`, `"publisher": "archive"`, `"error_event": {`)
	d.says("publishers history scenes/archive", "AT DELIVERED EVENTS/S LAG ERRORS", "1201 0.0 2 events, ")
	must.OK(t, d.st.Sample(t.Context()))
	d.says("publishers history scenes/archive --span hour", "AT DELIVERED EVENTS/S LAG ERRORS", "1201 0.0 2 events")
	d.says("publishers history scenes/archive --json", `"span": "hour"`, `"lag_events": 2`)
	d.refused("publishers show scenes", "is not a publisher")
	d.refused("publishers show scenes/x", "there is no publisher scenes/x")

	d.refused("publishers seek scenes/archive --to head --position 1", "needs one of")
	d.refused("publishers seek scenes/archive --position 1 --time 2026-11-21", "needs one of")
	d.says("publishers seek scenes/archive --to head --dry-run", "publisher scenes/archive would continue after position 5 instead of 3: 0 events repeated, 2 skipped")
	d.says("publishers seek scenes/archive --position 0 --json", `"from": 3`, `"repeats": 1`, `"capped": false`)
	d.exec(d.pair.Journal, `delete from publisher_progress`).says("publishers list", "no publishers")
	d.says("publishers list --json", `{ "publishers": [] }`)
}

func TestPublishers_sayThatTheirProcessWasKilled(t *testing.T) {
	d := withPublisher(t)
	d.exec(d.pair.Journal, `update publisher_progress set status = 'active', error_count = 0, error_position = 0`)
	must.OK(t, d.st.Heartbeat(t.Context(), storetest.Killed(t, "w-1", time.Now())))
	d.says("publishers list", "scenes/archive not held 3 5 2 events", "w-1, crashed or killed")
	d.says("publishers show scenes/archive", "scenes/archive not held", "why Its process w-1 crashed or was killed: last seen", "leased by w-1, crashed or killed")
	d.says("publishers show scenes/archive --json", `"state": "not held"`, `"why": "Its process w-1 crashed or was killed`)
}

func TestPublishersTest_saysWhatCameOfIt(t *testing.T) {
	d := withPublisher(t)
	d.refused("publishers test scenes/archive", "name the file with --config")
	place := filepath.Join(t.TempDir(), "missing", "a.ndjson")
	d.write("topics.yaml", "topics: {scenes: {match: {event_types: [scene.*]}, publishers: {archive: {url: 'file://"+place+"'}}}}")
	test := "publishers test scenes/archive --config " + filepath.Join(d.dir, "topics.yaml")
	d.ends(exitFailed, test, "did not accept event test-", "missing")
	must.OK(t, os.Mkdir(filepath.Dir(place), 0o700))
	d.says(test+" --json", `"ok": true`)
	sent := string(must.Get(os.ReadFile(place)).Or(t))
	must.Hold(t, strings.Contains(sent, `"type":"outboxweb.test"`), "what was sent: %s", sent)
}

func TestIntake_isShownAndDecidedOn(t *testing.T) {
	d := newDesk(t)
	d.says("intake list", "no sources in the journal")
	d.says("intake schema sqlite", "create table if not exists outboxweb_intake", "autoincrement")
	d.says("intake schema postgres --notify", "generated always as identity", "pg_try_advisory_xact_lock")
	d.refused("intake schema sqlite --notify", "")

	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	schema, _ := writers.Schema("sqlite")
	d.exec(url, schema+`insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ('c-9', 'e-1', 'a', '['), ('c-9', 'e-2', 'a', '{}')`)
	d.st.Intake.Settings.Sources = []intake.Source{must.Get(intake.Definition{URL: url}.Source("shop")).Or(t)}
	w := intake.NewWorker(intake.WorkerConfig{Intake: d.st.Intake, ID: "w-1"})
	defer w.Close()
	must.OK(t, w.Step(t.Context()))
	d.says("intake list", "SOURCE STATE WAITING OLDEST REJECTED JOURNALLED", "shop rejected ", " w-1")
	d.says("report", "1 row of source shop is rejected and blocks its campaign")
	d.says("intake rejections shop", "ID ROW CAMPAIGN EVENT TYPE STATUS REJECTED REASON", "1 1 c-9 e-1 a open", "payload must be a JSON object")
	d.refused("intake rejections nosuch", `there is no source "nosuch"; use shop`)
	d.says("intake retry shop 1 --reason try --json", `"status": "retrying"`)
	must.OK(t, w.Step(t.Context()))
	d.says("intake list --json", `"name": "shop"`, `"rejected": 1`)
	d.says("intake rejections shop --json", `"status": "open"`, `"change_reason": "try"`)
	d.exec(url, `update outboxweb_intake set payload = '{}'`).says("intake retry shop 1")
	must.OK(t, w.Step(t.Context()))
	d.says("intake list --json", `"journalled": 2`).says("intake rejections shop", "no rejected rows of source shop")

	long := strings.Repeat("x", 200)
	d.exec(d.pair.Journal, strings.ReplaceAll(`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', 'LONG', 'LONG', 'LONG', 'LONG', '{}', 2, 'wrong', 1)`, "LONG", long))
	d.says("intake rejections shop", " "+strings.Repeat(strings.Repeat("x", 40)+"… ", 4)+"open ")
	d.says("intake rejections shop --json", `"campaign_id": "`+long+`"`, `"event_id": "`+long+`"`)
}
