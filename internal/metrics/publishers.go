package metrics

import (
	"context"
	"time"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// WatchPublishers adds the gauges of each publisher, which call list at each scrape; when it
// fails they are left out of that scrape. An unknown lag is left out too.
func (m *Metrics) WatchPublishers(list func(ctx context.Context) ([]subscription.Publisher, error)) {
	m.watch("list the publishers", func(ctx context.Context, gauge gauge) error {
		all, err := list(ctx)
		if err != nil {
			return err
		}
		for _, p := range all {
			collectPublisher(p, gauge)
		}
		return nil
	}, publisherLagDesc, publisherAgeDesc, publisherPositionDesc, publisherErrorsDesc, publisherLeasedDesc, publisherLeaseDesc, publisherStatusDesc, publisherHealthyDesc)
}

var (
	publisherLagDesc = desc("publisher_lag_events",
		"Events of the topic after the publisher's position, as far as the journal was scanned; absent while the scan is incomplete and has found none.", "topic", "publisher")
	publisherAgeDesc      = desc("publisher_lag_seconds", "Age of the first event behind, since its append; 0 when there is none.", "topic", "publisher")
	publisherPositionDesc = desc("publisher_position", "Journal position up to which events were scanned for the publisher.", "topic", "publisher")
	publisherErrorsDesc   = desc("publisher_errors_in_a_row", "Errors since the last delivered event.", "topic", "publisher")
	publisherLeasedDesc   = desc("publisher_leased", "1 while a process holds the publisher's lease, else 0.", "topic", "publisher")
	publisherLeaseDesc    = desc("publisher_lease_remaining_seconds", "Remaining time of that lease; 0 when there is none or it has expired.", "topic", "publisher")
	publisherStatusDesc   = desc("publisher_status", "1 for the publisher's current status, 0 for the others: active, paused or failed.", "topic", "publisher", "status")
	publisherHealthyDesc  = desc("publisher_healthy", "1 if the publisher last said that it can deliver, 0 if not; absent while no process holds it, and for kinds that do not say.", "topic", "publisher")
)

// CountType counts events of a type that were published to statistics:.
func (m *Metrics) CountType(of operator.SubscriptionName, eventType string, events int) {
	m.PublishedEvents.WithLabelValues(of.Topic, of.Publisher, eventType).Add(float64(events))
}

// CountTag counts events with a tag that were published to statistics:.
func (m *Metrics) CountTag(of operator.SubscriptionName, tag, value string, events int) {
	m.PublishedTags.WithLabelValues(of.Topic, of.Publisher, tag, value).Add(float64(events))
}

func collectPublisher(p subscription.Publisher, gauge gauge) {
	if !p.LagUnknown() {
		gauge(publisherLagDesc, float64(p.LagEvents), p.Topic, p.Publisher)
		gauge(publisherAgeDesc, p.LagSeconds, p.Topic, p.Publisher)
	}
	gauge(publisherPositionDesc, float64(p.Position), p.Topic, p.Publisher)
	gauge(publisherErrorsDesc, float64(p.ErrorCount), p.Topic, p.Publisher)
	remaining := 0.0
	if p.Lease != nil {
		remaining = max(0, time.Until(p.Lease.ExpiresAt).Seconds())
	}
	gauge(publisherLeasedDesc, boolGauge(remaining > 0), p.Topic, p.Publisher)
	gauge(publisherLeaseDesc, remaining, p.Topic, p.Publisher)
	if p.Healthy != nil {
		gauge(publisherHealthyDesc, boolGauge(*p.Healthy), p.Topic, p.Publisher)
	}
	for _, status := range subscription.PublisherStatuses {
		gauge(publisherStatusDesc, boolGauge(p.Status == status), p.Topic, p.Publisher, string(status))
	}
}
