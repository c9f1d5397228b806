package metrics

import (
	"time"

	"outboxweb/internal/outbox"
)

// Published counts a batch that a destination acknowledged, and how long that
// took.
func (m *Metrics) Published(name outbox.PairName, events int, took time.Duration) {
	m.PublisherDelivered.WithLabelValues(name.Topic, name.Publisher).Add(float64(events))
	m.PublisherSeconds.WithLabelValues(name.Topic, name.Publisher).Observe(took.Seconds())
}

// PublishFailed counts a delivery that failed.
func (m *Metrics) PublishFailed(name outbox.PairName, kind outbox.DeliveryErrorKind) {
	m.PublisherErrors.WithLabelValues(name.Topic, name.Publisher, string(kind)).Inc()
}
