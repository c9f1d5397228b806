package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"outboxweb/internal/outbox"
)

// WatchConnections adds the gauges of connections to the databases, which call
// list at each scrape.
func (m *Metrics) WatchConnections(list func() []outbox.Connections) {
	m.registry.MustRegister(&connections{list: list})
}

type connections struct{ list func() []outbox.Connections }

var (
	connectionsDesc = desc("connections", "Connections of this process to a database for transactions that write or read, by whether one is in use. Digests, migrations and being told of new work need a few more.",
		"database", "use", "state")
	mostConnectionsDesc    = desc("connections_limit", "How many of them there can be.", "database", "use")
	waitingConnectionsDesc = desc("connections_waiting", "Transactions of this process that wait for one.", "database", "use")
)

func (c *connections) Describe(ch chan<- *prometheus.Desc) {
	ch <- connectionsDesc
	ch <- mostConnectionsDesc
	ch <- waitingConnectionsDesc
}

func (c *connections) Collect(ch chan<- prometheus.Metric) {
	for _, one := range c.list() {
		gauge := func(d *prometheus.Desc, n int, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), append([]string{one.Database, one.Use}, labels...)...)
		}
		gauge(connectionsDesc, one.Idle, "idle")
		gauge(connectionsDesc, one.InUse, "in_use")
		gauge(mostConnectionsDesc, one.Limit)
		gauge(waitingConnectionsDesc, one.Waiting)
	}
}
