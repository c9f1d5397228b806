package outbox

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestPublisher_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []Action
	}{
		{"a publisher", Publisher{Status: PublisherActive}.Actions(false), []Action{ActionPublisherPause, ActionPublisherSeek}},
		{"a paused publisher that can be tested", Publisher{Status: PublisherPaused}.Actions(true), []Action{ActionPublisherResume, ActionPublisherSeek, ActionPublisherTest}},
		{"a publisher that fails at an event", Publisher{Status: PublisherActive, ErrorCount: 2, ErrorPosition: 4, Position: 3, ErrorEvent: &EventRef{}}.Actions(false),
			[]Action{ActionPublisherPause, ActionPublisherResume, ActionPublisherReset, ActionPublisherSeek, ActionPublisherSkip}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
}

func TestPublisher_whatMayBeDone(t *testing.T) {
	t.Parallel()
	event := &EventRef{Position: 4}
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"a publisher waits for an event", Publisher{ErrorCount: 1, Position: 3, ErrorPosition: 4, ErrorEvent: event}.BlockingEvent() == event, true},
		{"a publisher has passed the event", Publisher{ErrorCount: 1, Position: 4, ErrorPosition: 4, ErrorEvent: event}.BlockingEvent() == event, false},
		{"a publisher has no errors", Publisher{ErrorPosition: 4, ErrorEvent: event}.BlockingEvent() == event, false},
		{"a failed publisher without errors is resumed", Publisher{Status: PublisherFailed}.Resumable(), true},
		{"a sound publisher is resumed", Publisher{Status: PublisherActive}.Resumable(), false},
		{"a paused publisher with an error is reset", Publisher{Status: PublisherPaused, LastError: "refused"}.Resettable(), true},
		{"a paused publisher is reset", Publisher{Status: PublisherPaused}.Resettable(), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
}
