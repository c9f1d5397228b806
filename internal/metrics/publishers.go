package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboxweb/internal/outbox"
)

// WatchPublishers adds the gauges of each publisher, which call list at each
// scrape; when it fails they are left out of that scrape. So is the lag of one
// that is not known.
func (m *Metrics) WatchPublishers(list func(ctx context.Context) ([]outbox.Publisher, error)) {
	m.registry.MustRegister(&publishers{list: list})
}

type publishers struct {
	list func(ctx context.Context) ([]outbox.Publisher, error)
}

var (
	publisherLagDesc = desc("publisher_lag_events",
		"Events of the topic after the publisher's position, as far as the journal was looked through; absent while that found none and there was more.", "topic", "publisher")
	publisherAgeDesc      = desc("publisher_lag_seconds", "Age of the first of them, from its append; 0 when there is none.", "topic", "publisher")
	publisherPositionDesc = desc("publisher_position", "How far the journal was scanned for the publisher.", "topic", "publisher")
	publisherErrorsDesc   = desc("publisher_errors_in_a_row", "Errors since the last event that was delivered.", "topic", "publisher")
	publisherLeasedDesc   = desc("publisher_leased", "1 while a process holds the publisher's lease and delivers, 0 while none does.", "topic", "publisher")
	publisherLeaseDesc    = desc("publisher_lease_remaining_seconds", "How long that lease lasts yet; 0 when no process holds one, or it has run out.", "topic", "publisher")
	publisherStatusDesc   = desc("publisher_status", "1 for the publisher's status, 0 for the others: active, paused or failed.", "topic", "publisher", "status")
)

func (p *publishers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{publisherLagDesc, publisherAgeDesc, publisherPositionDesc, publisherErrorsDesc, publisherLeasedDesc, publisherLeaseDesc, publisherStatusDesc} {
		ch <- d
	}
}

func (p *publishers) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	all, err := p.list(ctx)
	if err != nil {
		slog.Error("scrape: list the publishers", "err", err)
		return
	}
	for _, one := range all {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{one.Topic, one.Publisher}, labels...)...)
		}
		if !one.LagUnknown() {
			gauge(publisherLagDesc, float64(one.LagEvents))
			gauge(publisherAgeDesc, one.LagSeconds)
		}
		gauge(publisherPositionDesc, float64(one.Position))
		gauge(publisherErrorsDesc, float64(one.ErrorCount))
		leased, remaining := 0.0, 0.0
		if one.Lease != nil {
			remaining = max(0, time.Until(one.Lease.ExpiresAt).Seconds())
		}
		if remaining > 0 {
			leased = 1
		}
		gauge(publisherLeasedDesc, leased)
		gauge(publisherLeaseDesc, remaining)
		for _, status := range outbox.PublisherStatuses {
			is := 0.0
			if one.Status == status {
				is = 1
			}
			gauge(publisherStatusDesc, is, string(status))
		}
	}
}
