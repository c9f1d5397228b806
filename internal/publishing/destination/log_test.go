package destination_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

func TestLog_saysEachEventWithoutItsPayload(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	publisher := must.Get(subscriptionOf(t, "url: 'log:'").Open(destination.Options{Logger: logger})).Or(t)
	deliver(t, publisher, 4, 5)
	const want = `level=INFO msg=event topic=scenes publisher=p position=4 campaign_id=c-1 seq=2 event_type=character.created event_id=e-4
level=INFO msg=event topic=scenes publisher=p position=5 campaign_id=c-2 seq=2 event_type=character.created event_id=e-5
`
	must.Equal(t, out.String(), want, "logged")
}
