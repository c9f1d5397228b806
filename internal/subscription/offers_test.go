package subscription

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestPublisher_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []operator.Action
	}{
		{"a publisher", Publisher{Status: PublisherActive}.Actions(false), []operator.Action{operator.ActionPublisherPause, operator.ActionPublisherSeek}},
		{"a paused publisher that can be tested", Publisher{Status: PublisherPaused}.Actions(true), []operator.Action{operator.ActionPublisherResume, operator.ActionPublisherSeek, operator.ActionPublisherTest}},
		{"a publisher that fails at an event", Publisher{Status: PublisherActive, ErrorCount: 2, ErrorPosition: 4, Position: 3, ErrorEvent: &event.EventRef{}}.Actions(false),
			[]operator.Action{operator.ActionPublisherPause, operator.ActionPublisherResume, operator.ActionPublisherReset, operator.ActionPublisherSeek, operator.ActionPublisherSkip}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
}

func TestPublisher_whatMayBeDone(t *testing.T) {
	t.Parallel()
	event := &event.EventRef{Position: 4}
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
