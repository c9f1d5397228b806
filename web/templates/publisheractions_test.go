package templates

import (
	"encoding/json"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestActSentence_namesThePublisher(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ action, after, want string }{
		{"publisher_pause", `{}`, "Paused publisher scenes/archive."},
		{"publisher_resume", `{}`, "Resumed publisher scenes/archive and cleared its errors."},
		{"publisher_reset", `{}`, "Reset publisher scenes/archive: errors cleared."},
		{"publisher_seek", `{"seek":{"from":2,"to":9000,"skips":1200,"capped":true}}`, "Moved publisher scenes/archive from position 2 to 9000: at least 1,200 events skipped."},
		{"publisher_seek", `{"seek":{"from":9,"to":2,"repeats":1}}`, "Moved publisher scenes/archive from position 9 to 2: 1 event repeated."},
		{"publisher_seek", `{"seek":{"from":9,"to":2}}`, "Moved publisher scenes/archive from position 9 to 2: no event repeated."},
		{"publisher_skip", `{"skip":{"position":7,"campaign_id":"c-1","seq":3,"event_type":"scene.a"}}`, "Publisher scenes/archive skipped event 3 (scene.a) of campaign c-1."},
		{"publisher_test", `{"ok":true,"seconds":0.0124}`, "Sent a test event to publisher scenes/archive: delivered in 12 ms."},
		{"publisher_test", `{"ok":false,"error":"refused\nat length"}`, "Sent a test event to publisher scenes/archive: refused"},
		{"publisher_skip", `null`, "Changed publisher scenes/archive."},
	} {
		a := outbox.AuditEntry{Action: outbox.Action(c.action), Before: json.RawMessage(`{"topic":"scenes","publisher":"archive"}`), After: json.RawMessage(c.after)}
		if got := actionSentence(a); got != c.want {
			t.Errorf("%s: %q, want %q", c.action, got, c.want)
		}
	}
}
