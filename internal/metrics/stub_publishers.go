package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outboxweb/internal/outbox"
)

var stubReads = prometheus.NewCounter(prometheus.CounterOpts{Name: "stub"})

type stub struct{ PublisherReads prometheus.Counter }

func (m *Metrics) Published(outbox.PairName, int, time.Duration)           {}
func (m *Metrics) PublishFailed(outbox.PairName, outbox.DeliveryErrorKind) {}
