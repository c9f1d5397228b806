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

func TestPublishers_areListedByTheAPI(t *testing.T) {
	t.Parallel()
	newSite(t).get("/api/v1/publishers").want(t, 200, `"items":[]`, `"next_cursor":null`)
	s := newSite(t)
	s.seed("c-1", "scene.a", "x", "scene.b", "scene.c")
	s.withPublisher(1)
	s.publisherFails(3, "event")
	s.get("/api/v1/publishers").want(t, 200, `"topic":"scenes"`, `"lag_events":2`, `"head_position":4`, `"total":1`)
	s.get("/api/v1/publishers?cursor=x").want(t, 422, "cursor")
	p := decodeAs[outbox.Publisher](t, s.get(archivePath).want(t, 200, `"event_types":["scene.*"]`))
	if p.ErrorEvent == nil || p.ErrorEvent.Seq != 3 || p.Lease == nil || p.Lease.Owner != "w" {
		t.Errorf("publisher %+v", p)
	}
	s.get("/api/v1/instances").want(t, 200, `"publishers":["scenes/archive"]`)
	s.post(archivePath+"/pause", `{"reasons":"x"}`).want(t, 422, "reasons")
}

func TestPublishers_seekThroughTheAPI(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "scene.a", "x", "scene.b", "scene.c")
	s.withPublisher(1)
	seek := archivePath + "/seek"
	for body, want := range map[string]string{
		`{}`:                         "0 are given",
		`{"position":1,"to":"head"}`: "2 are given",
		`{"to":"end"}`:               "head or beginning",
		`{"position":-1}`:            "must be 0 or more",
		`{"to":"head","dry_run":1}`:  "dry_run",
	} {
		s.post(seek, body).want(t, 422, want)
	}
	preview := decodeAs[outbox.Seek](t, s.post(seek, `{"to":"head","dry_run":true}`).want(t, 200))
	if preview.From != 1 || preview.To != 4 || preview.Skips != 2 {
		t.Errorf("the preview is %+v", preview)
	}
	s.post(seek, `{"to":"beginning"}`, header("Idempotency-Key", "k")).want(t, 200, `"repeats":1`)
	s.post(seek, `{"to":"head","reason":"old"}`, header("Idempotency-Key", "k")).want(t, 409, "with different content")
	s.post(seek, `{"time":"2026-11-20"}`).want(t, 409, "already at position 0")
	s.get(archivePath+"/history").want(t, 200, `"lag_events":3`, `"span":"hour"`)
	must.OK(t, s.store.Sample(context.Background()))
	h := decodeAs[outbox.PublisherHistory](t, s.get(archivePath+"/history?span=hour").want(t, 200))
	if n := len(h.Points); n == 0 || h.Points[n-1].LagEvents != 3 || h.StepSeconds != 60 {
		t.Errorf("history %+v", h)
	}
	s.get(archivePath+"/history?span=week").want(t, 422)
}
