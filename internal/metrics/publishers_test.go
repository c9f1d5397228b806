package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestWatchPublishers_tellsOfEachAndCountersAreAlwaysOn(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (outbox.Summary, error) { return outbox.Summary{}, nil })
	var failed error
	m.WatchPublishers(func(context.Context) ([]outbox.Publisher, error) {
		return []outbox.Publisher{
			{SubscriptionName: outbox.SubscriptionName{Topic: "scenes", Publisher: "archive"}, Status: outbox.PublisherFailed, Position: 7, LagEvents: 3, LagSeconds: 1.5, ErrorCount: 12},
			{SubscriptionName: outbox.SubscriptionName{Topic: "rare", Publisher: "a"}, Status: outbox.PublisherPaused, LagCapped: true},
			{SubscriptionName: outbox.SubscriptionName{Topic: "own", Publisher: "ok"}, Healthy: new(true)},
			{SubscriptionName: outbox.SubscriptionName{Topic: "own", Publisher: "ill"}, Healthy: new(false)},
		}, failed
	})
	m.PublisherDelivered.WithLabelValues("scenes", "archive").Add(4)
	m.PublisherErrors.WithLabelValues("scenes", "archive", "event").Inc()
	m.PublisherReads.Inc()
	m.PublisherSeconds.WithLabelValues("scenes", "archive").Observe(0.2)
	body := scrape(t, m)
	for _, line := range []string{
		`outboxweb_publisher_lag_events{publisher="archive",topic="scenes"} 3`,
		`outboxweb_publisher_lag_seconds{publisher="archive",topic="scenes"} 1.5`,
		`outboxweb_publisher_position{publisher="archive",topic="scenes"} 7`,
		`outboxweb_publisher_errors_in_a_row{publisher="archive",topic="scenes"} 12`,
		`outboxweb_publisher_status{publisher="archive",status="failed",topic="scenes"} 1`,
		`outboxweb_publisher_status{publisher="archive",status="active",topic="scenes"} 0`,
		`outboxweb_publisher_status{publisher="a",status="paused",topic="rare"} 1`,
		`outboxweb_publisher_delivered_total{publisher="archive",topic="scenes"} 4`,
		`outboxweb_publisher_errors_total{kind="event",publisher="archive",topic="scenes"} 1`,
		`outboxweb_publisher_healthy{publisher="ok",topic="own"} 1`,
		`outboxweb_publisher_healthy{publisher="ill",topic="own"} 0`,
		`outboxweb_publisher_reads_total 1`,
		`outboxweb_publisher_seconds_count{publisher="archive",topic="scenes"} 1`,
	} {
		must.Hold(t, strings.Contains(body, "\n"+line+"\n"), "the scrape lacks %q", line)
	}
	must.Hold(t, !strings.Contains(body, `publisher_lag_events{publisher="a"`) && !strings.Contains(body, `publisher_lag_seconds{publisher="a"`), "a lag that is not known is told as a number")
	must.Hold(t, !strings.Contains(body, `publisher_healthy{publisher="archive"`), "a publisher that says nothing is healthy or not")
	failed = errors.New("away")
	if body := scrape(t, m); strings.Contains(body, "outboxweb_publisher_lag_events") || !strings.Contains(body, "outboxweb_publisher_reads_total 1") {
		t.Error("a scrape that cannot list publishers is to have everything else")
	}
}
