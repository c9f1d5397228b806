package handlers

import (
	"context"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

const archivePath = "/api/v1/publishers/scenes/archive"

// withPublisher gives a site a publisher at a position.
func (s *site) withPublisher(position int64) {
	s.t.Helper()
	s.change(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
values ('scenes', 'archive', 'file:///a.ndjson', '{"event_types":["scene.*"]}', 10, $1, 1, 1)`, position)
}

// publisherFails makes the event at a position block the publisher.
func (s *site) publisherFails(position int64, kind string) {
	s.t.Helper()
	s.change(`
update publisher_progress
set status = 'failed', error_count = 10, error_kind = $1, last_error = 'status <500>', last_error_at = 1, error_position = $2, retry_at = 2,
  lease_owner = 'w', lease_epoch = 3, lease_expires_at = 4102444800000000`, kind, position)
}

func TestPublishers_areSteeredThroughTheAPI(t *testing.T) {
	t.Parallel()
	newSite(t).get("/api/v1/publishers").want(t, 200, `"items":[]`, `"next_cursor":null`)
	s := newSite(t)
	s.seed("c-1", "scene.a", "x", "scene.b", "scene.c")
	s.withPublisher(1)
	s.publisherFails(3, "event")
	s.get("/api/v1/publishers/scenes/nothing").want(t, 404, "no publisher scenes/nothing")
	s.get("/api/v1/publishers").want(t, 200, `"topic":"scenes"`, `"lag_events":2`, `"head_position":4`, `"total":1`)
	s.get("/api/v1/publishers?cursor=x").want(t, 422, "cursor")
	p := decodeAs[outbox.Publisher](t, s.get(archivePath).want(t, 200, `"event_types":["scene.*"]`))
	if p.ErrorEvent == nil || p.ErrorEvent.Seq != 3 || p.Lease == nil || p.Lease.Owner != "w" {
		t.Errorf("publisher %+v", p)
	}
	s.get("/api/v1/instances").want(t, 200, `"publishers":["scenes/archive"]`)

	s.post(archivePath+"/pause", `{"reasons":"x"}`).want(t, 422, "reasons")
	s.post(archivePath+"/pause", `{"reason":"a fire"}`).want(t, 200, `"status":"paused"`, `"reason":"a fire"`)
	s.post(archivePath+"/pause", "").want(t, 409, "is already paused", "last action: pause by local")
	s.post(archivePath+"/resume", "").want(t, 200, `"status":"active"`, `"error_count":0`)
	s.post(archivePath+"/resume", "").want(t, 409, "nothing to resume")
	s.post(archivePath+"/reset", "").want(t, 409, "nothing to reset")
	s.publisherFails(3, "destination")
	s.post(archivePath+"/reset", "").want(t, 200, `"status":"active"`)
	for _, act := range []string{"pause", "resume", "reset", "test"} {
		s.post("/api/v1/publishers/scenes/nothing/"+act, "").want(t, 404)
	}
	for _, action := range []string{"publisher_pause", "publisher_resume", "publisher_reset"} {
		s.get("/api/v1/audit?action="+action).want(t, 200, `"action":"`+action+`"`, `"topic":"scenes"`)
	}
}

func TestPublishers_seekThroughTheAPI(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "scene.a", "x", "scene.b", "scene.c")
	s.withPublisher(1)
	seek := archivePath + "/seek"
	for body, want := range map[string]string{
		`{}`:                            "0 are given",
		`{"position":1,"to":"head"}`:    "2 are given",
		`{"to":"end"}`:                  "head or beginning",
		`{"time":"soon"}`:               "write a date",
		`{"position":-1}`:               "must be 0 or more",
		`{"position":5,"dry_run":true}`: "beyond the head",
		`{"to":"head"}`:                 "a reason is required",
		`{"to":"head","dry_run":1}`:     "dry_run",
	} {
		s.post(seek, body).want(t, 422, want)
	}
	preview := decodeAs[outbox.Seek](t, s.post(seek, `{"to":"head","dry_run":true}`).want(t, 200))
	if preview.From != 1 || preview.To != 4 || preview.Skips != 2 {
		t.Errorf("the preview is %+v", preview)
	}
	s.post(seek, `{"to":"head","reason":"old"}`).want(t, 422, `"confirm":"skip 2 events"`, "never delivered; to confirm it, type: skip 2 events")
	s.post(seek, `{"to":"head","reason":"old","confirm":"skip 2 events","expected":{"repeats":0,"skips":2,"capped":false}}`, header("Idempotency-Key", "k")).want(t, 200, `"skips":2`)
	s.post(seek, `{"to":"head","reason":"old"}`, header("Idempotency-Key", "k")).want(t, 200, `"from":1`, `"skips":2`)
	s.post(seek, `{"to":"beginning"}`, header("Idempotency-Key", "k")).want(t, 409, "with different content")
	s.post(seek, `{"to":"head","reason":"old"}`).want(t, 409, "already at position 4")
	s.post(seek, `{"time":"2026-11-20"}`).want(t, 200, `"to":0`, `"repeats":3`)
	s.post("/api/v1/publishers/scenes/nothing/seek", `{"to":"head"}`).want(t, 404)
	s.get("/audit").want(t, 200, "Moved publisher scenes/archive from position 1 to 4: 2 events skipped.", "from position 4 to 0: 3 events repeated.")
	s.get(archivePath+"/history").want(t, 200, `"lag_events":3`, `"span":"hour"`)
	must.OK(t, s.store.Sample(context.Background()))
	h := decodeAs[outbox.PublisherHistory](t, s.get(archivePath+"/history?span=hour").want(t, 200))
	if n := len(h.Points); n == 0 || h.Points[n-1].LagEvents != 3 || h.StepSeconds != 60 {
		t.Errorf("history %+v", h)
	}
	s.get(archivePath+"/history?span=week").want(t, 422)
}

func TestPublishers_aTestDeliveryIsSentOnceAndRecorded(t *testing.T) {
	t.Parallel()
	sent := 0
	s := newSite(t, func(c *Config) {
		c.TestPublisher = func(_ context.Context, name outbox.SubscriptionName) (outbox.TestDelivery, error) {
			sent++
			return outbox.TestDelivery{SubscriptionName: name, ID: "test-1", Seconds: 0.25, Error: "refused"}, nil
		}
	})
	s.withPublisher(0)
	s.post("/api/v1/publishers/scenes/nothing/test", "").want(t, 404)
	for range 2 {
		s.post(archivePath+"/test", `{"reason":"is it back?"}`, header("Idempotency-Key", "k")).want(t, 200, `"ok":false`, `"error":"refused"`, `"seconds":0.25`)
	}
	if sent != 1 {
		t.Errorf("%d deliveries were sent for one key and none for an unknown publisher, want one", sent)
	}
	s.get("/audit?action=publisher_test").want(t, 200, "Sent a test event to publisher scenes/archive: refused")
	without := newSite(t)
	without.withPublisher(0)
	without.post(archivePath+"/test", "").want(t, 409, "publisher scenes/archive is not in this server's configuration")
	without.get("/api/v1/audit?outcome=done").want(t, 200, `"items":[]`)
}
