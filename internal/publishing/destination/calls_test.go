package destination_test

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// A log whose reader has stopped reading takes a write that does not end, whatever the context says.
func TestPublisher_endsThoughItsWritesDoNot(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"log:", "statistics:"} {
		synctest.Test(t, func(t *testing.T) {
			reader, writer := io.Pipe()
			sub := subscriptionOf(t, "url: '"+url+"'", "timeout: 2s")
			open := func() destination.Publisher {
				return must.Get(sub.Open(destination.Options{Logger: slog.New(slog.NewTextHandler(writer, nil))})).Or(t)
			}
			to, began := open(), time.Now()
			_, err := to.Publish(t.Context(), eventsAt(1, 2))
			if url == "log:" {
				must.Hold(t, err != nil && destination.Cause(err).Kind == outbox.DestinationError && strings.Contains(err.Error(), "with 2 events, any of which may be at fault, has not returned for 17 s, though its time limit is 16s"), "%v", err)
				since := sub.HangingSince()
				must.Hold(t, since.Equal(began), "it hangs since %s, want %s", since, began)
				_, err := open().Publish(t.Context(), eventsAt(1))
				must.Hold(t, err != nil && strings.Contains(err.Error(), "no other call starts"), "beside it: %v", err)
			}
			err = to.Close()
			must.Hold(t, err != nil && strings.Contains(err.Error(), "has not closed within 5s"), "%s closed: %v", url, err)
			took := time.Since(began)
			must.Hold(t, took <= 30*time.Second, "%s took %s", url, took)
			go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(reader)) }()
			synctest.Wait()
			since := sub.HangingSince()
			must.Hold(t, since.IsZero(), "%s hangs since %s", url, since)
			to = open()
			n, err := to.Publish(t.Context(), eventsAt(1, 2))
			must.Hold(t, n == 2 && err == nil, "%s delivered %d, %v", url, n, err)
			must.OK(t, to.Close())
			writer.Close()
		})
	}
}
