package destination_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

type counters map[string]int

func (c counters) CountType(of outbox.SubscriptionName, eventType string, events int) {
	c[of.String()+" "+eventType] += events
}

func (c counters) CountTag(of outbox.SubscriptionName, tag, value string, events int) {
	c[of.String()+" "+tag+"="+value] += events
}

func statisticsEvents(eventType string, tags string, n int) (all []*destination.Event) {
	for range n {
		all = append(all, destination.NewEvent(outbox.Event{EventType: eventType, Tags: json.RawMessage(tags)}, "urn:x"))
	}
	return all
}

func TestStatistics_writesCountsAtIntervals(t *testing.T) {
	t.Parallel()
	sub := subscriptionOf(t, "url: 'statistics:'", "interval: 10s", "tags: [region]")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		metrics := counters{}
		to := must.Get(sub.Open(destination.Options{Published: metrics, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})).Or(t)
		for _, events := range [][]*destination.Event{
			statisticsEvents("scene.started", `{"region":"eu","player":"ana"}`, 20), statisticsEvents("scene.ended", `{"region":"us"}`, 5), statisticsEvents("scene.ended", `{}`, 5),
		} {
			if n, err := to.Publish(t.Context(), events); n != len(events) || err != nil {
				t.Fatal(n, err)
			}
		}
		time.Sleep(35 * time.Second) // the later intervals have no events
		synctest.Wait()
		must.Get(to.Publish(t.Context(), statisticsEvents("scene.ended", `{}`, 1))).Or(t)
		time.Sleep(time.Second)
		must.OK(t, to.Close())
		time.Sleep(time.Minute) // nothing is written any more
		const want = `"level":"INFO","msg":"events published","topic":"scenes","publisher":"p","seconds":10,"events":30,"per_second":3,` +
			`"event_types":{"scene.ended":{"events":10,"per_second":1},"scene.started":{"events":20,"per_second":2}},` +
			`"tags.region":{"eu":{"events":20,"per_second":2},"us":{"events":5,"per_second":0.5}}}`
		lines := bytes.Split(bytes.TrimSpace(log.Bytes()), []byte("\n"))
		if len(lines) != 2 || !bytes.HasSuffix(lines[0], []byte(want)) || !bytes.Contains(lines[1], []byte(`"events":1,`)) {
			t.Errorf("logged\n%s", log.String())
		}
		all := counters{"scenes/p scene.started": 20, "scenes/p scene.ended": 11, "scenes/p region=eu": 20, "scenes/p region=us": 5}
		must.Equal(t, metrics, all, "counted")
	})
}

// The bound holds for the process, however often the publisher is opened.
func TestStatistics_countsFewNamesAndTheRestTogether(t *testing.T) {
	t.Parallel()
	sub := subscriptionOf(t, "url: 'statistics:'", "tags: [player]", "max_distinct: 3")
	metrics := counters{}
	for opening := range 2 {
		to := must.Get(sub.Open(destination.Options{Published: metrics, Logger: slog.New(slog.DiscardHandler)})).Or(t)
		for i := range 10 {
			name := fmt.Sprint(opening, "-", i)
			must.Get(to.Publish(t.Context(), statisticsEvents("type-"+name, `{"player":"`+name+`"}`, 1))).Or(t)
		}
		must.OK(t, to.Close())
	}
	must.Hold(t, len(metrics) == 8 && metrics["scenes/p other"] == 17 && metrics["scenes/p player=other"] == 17 && metrics["scenes/p type-0-2"] == 1, "counted %v", metrics)
}
