package metrics

import (
	"context"
	"log/slog"

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
	publisherStatusDesc   = desc("publisher_status", "1 for the publisher's status, 0 for the others: active, paused or failed.", "topic", "publisher", "status")
)

func (p *publishers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{publisherLagDesc, publisherAgeDesc, publisherPositionDesc, publisherErrorsDesc, publisherStatusDesc} {
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
		for _, status := range outbox.PublisherStatuses {
			is := 0.0
			if one.Status == status {
				is = 1
			}
			gauge(publisherStatusDesc, is, string(status))
		}
	}
}
